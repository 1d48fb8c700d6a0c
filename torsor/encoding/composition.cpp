#include "torsor/encoding/composition.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace torsor {
namespace {

/// What sums and head mixtures share: parts whose answers are concatenated, each seen through a window of heads.
class Parts : public Encoding {
 public:
  struct Part {
    EncodingPointer encoding;
    std::int64_t first_head = 0;
  };

  Parts(const Dimensions& dimensions, std::vector<Part> parts) : Encoding(dimensions), parts_(std::move(parts)) {
    for (const Part& part : parts_) period_ = std::lcm(period_, part.encoding->period());
    if (period_ == 1) return;
    for (std::int64_t layer = 0; layer < period_; ++layer) {
      std::vector<Part> resolved;
      for (const Part& part : parts_) {
        EncodingPointer chosen = part.encoding->at_layer(layer);
        resolved.push_back({chosen ? chosen : part.encoding, part.first_head});
      }
      by_layer_.push_back(std::make_shared<Parts>(dimensions, std::move(resolved)));
    }
  }

  std::int64_t period() const override { return period_; }
  EncodingPointer at_layer(std::int64_t layer) const override {
    return period_ == 1 ? nullptr : by_layer_[static_cast<std::size_t>(layer % period_)];
  }

  Traits traits() const override {
    Traits all;
    for (const Part& part : parts_) {
      const Traits one = part.encoding->traits();
      all.rotates |= one.rotates;
      all.absolute |= one.absolute;
      all.relative &= one.relative;
      all.length_dependent |= one.length_dependent;
      all.content |= one.content;
      all.carries |= one.carries;
      all.averages |= one.averages;
      all.leaks |= one.leaks;
      all.warm_start |= one.warm_start;
      all.monotone |= one.monotone;
      if (all.whole.empty()) all.whole = one.whole;
      if (one.moved_width != 0) all.moved_width = one.moved_width;
      all.axes = std::max(all.axes, one.axes);
      all.forms.insert(all.forms.end(), one.forms.begin(), one.forms.end());
    }
    return all;
  }

  std::vector<ParameterInfo> parameters(std::int64_t layer) const override {
    std::vector<ParameterInfo> all;
    for (const Part& part : parts_)
      for (ParameterInfo& info : part.encoding->parameters(layer)) all.push_back(std::move(info));
    return all;
  }

  std::vector<std::string> inputs() const override {
    std::set<std::string> all;
    for (const Part& part : parts_)
      for (std::string& name : part.encoding->inputs()) all.insert(std::move(name));
    return {all.begin(), all.end()};
  }

  std::shared_ptr<const Encoding> without_inputs() const override {
    bool any = false;
    std::vector<Part> plain = parts_;
    for (Part& part : plain)
      if (EncodingPointer one = part.encoding->without_inputs()) any = true, part.encoding = std::move(one);
    return any ? std::make_shared<Parts>(dimensions_, std::move(plain)) : nullptr;
  }

  at::Tensor embedding(const Side& tokens, const NamedTensors& parameters, const NamedTensors& named,
                       const at::Tensor& x) const override {
    at::Tensor sum;
    for (const Part& part : parts_) {
      const at::Tensor one = part.encoding->embedding(tokens, parameters, named, x);
      if (one.defined()) sum = sum.defined() ? sum + one : one;
    }
    return sum;
  }

  at::Tensor behind_attention(const Side& tokens, const NamedTensors& parameters,
                              const NamedTensors& named) const override {
    at::Tensor sum;
    for (const Part& part : parts_) {
      const at::Tensor one = part.encoding->behind_attention(tokens, parameters, named);
      if (one.defined()) sum = sum.defined() ? sum + one : one;
    }
    return sum;
  }

  std::vector<Move> moves(const Question& question, Role role) const override {
    std::vector<Move> all;
    for (const Part& part : parts_)
      for (Move& move : part.encoding->moves(view(question, part), role)) {
        std::visit([&](auto& one) { shift(one.heads, part); }, move);
        all.push_back(std::move(move));
      }
    // A vector is added before any plane turns, whichever part it comes from.
    std::stable_partition(all.begin(), all.end(),
                          [](const Move& move) { return std::holds_alternative<AddedVector>(move); });
    return all;
  }

  std::vector<Decay> decays() const override {
    return shifted<Decay>([](const Encoding& one) { return one.decays(); });
  }

  // The factor that all heads share; softmax_factors() holds those of a mixture.
  double softmax_factor() const override {
    const std::vector<double> factors = softmax_factors();
    const bool alike = std::equal(factors.begin() + 1, factors.end(), factors.begin());
    return alike ? factors.front() : 1;
  }

  std::vector<double> softmax_factors() const override {
    std::vector<double> factors(static_cast<std::size_t>(dimensions_.heads), 1.0);
    for (const Part& part : parts_) {
      const std::vector<double> own = part.encoding->softmax_factors();
      for (std::size_t head = 0; head < own.size(); ++head)
        factors[static_cast<std::size_t>(part.first_head) + head] *= own[head];
    }
    return factors;
  }

  std::vector<LogitScale> logit_scales(const Question& question) const override {
    std::vector<LogitScale> all;
    for (const Part& part : parts_)
      for (LogitScale& scale : part.encoding->logit_scales(view(question, part))) {
        shift(scale.heads, part);
        all.push_back(std::move(scale));
      }
    return all;
  }

  std::vector<BiasForm> biases(const Question& question) const override {
    std::vector<BiasForm> all;
    for (const Part& part : parts_)
      for (BiasForm& bias : part.encoding->biases(view(question, part))) {
        shift(bias.heads, part);
        all.push_back(std::move(bias));
      }
    return all;
  }

  // At most one part carries or averages: make_sum and make_heads see to it.
  std::optional<Carried> carried(const Question& question) const override {
    for (const Part& part : parts_) {
      std::optional<Carried> one = part.encoding->carried(view(question, part));
      if (!one) continue;
      const std::int64_t heads = one->values.size(1), own = part.encoding->dimensions().heads;
      if (whole(part) || heads == 1) return one;
      // Heads of other parts carry nothing.
      const std::int64_t share = own / heads, before = part.first_head / share;
      one->values = at::constant_pad_nd(one->values, {0, 0, 0, 0, before, dimensions_.heads / share - before - heads});
      return one;
    }
    return std::nullopt;
  }

  at::Tensor after_layer(const Question& question, const at::Tensor& averages,
                         const at::Tensor& mlp_output) const override {
    for (const Part& part : parts_) {
      if (!part.encoding->traits().carries) continue;
      const bool narrow = averages.defined() && !whole(part);
      return part.encoding->after_layer(
          view(question, part),
          narrow ? averages.narrow(1, part.first_head, part.encoding->dimensions().heads) : averages, mlp_output);
    }
    return {};
  }

  at::Tensor after_attention(const Question& question, const at::Tensor& averages) const override {
    for (const Part& part : parts_) {
      if (!part.encoding->traits().averages) continue;
      if (whole(part)) return part.encoding->after_attention(question, averages);
      const std::int64_t heads = part.encoding->dimensions().heads;
      const at::Tensor own =
          part.encoding->after_attention(view(question, part), averages.narrow(1, part.first_head, heads));
      if (!own.defined()) return own;
      return at::constant_pad_nd(own, {0, 0, 0, 0, part.first_head, dimensions_.heads - part.first_head - heads});
    }
    return {};
  }

  CacheContract cache(std::int64_t layer) const override {
    CacheContract all;
    all.shift = all.evict = all.evict_oldest = "exact";
    for (const Part& part : parts_) {
      CacheContract one = part.encoding->cache(layer);
      if (one.key == CacheContract::Key::Raw) all.key = CacheContract::Key::Raw;
      all.kept.insert(all.kept.end(), one.kept.begin(), one.kept.end());
      if (!CacheContract::exact(one.shift)) all.shift = one.shift;
      if (!CacheContract::exact(one.evict)) all.evict = one.evict;
      if (!CacheContract::exact(one.oldest())) all.evict_oldest = one.oldest();
      if (!one.note.empty()) all.note += (all.note.empty() ? "" : "; ") + one.note;
    }
    return all;
  }

  NamedTensors arrive(const Question& question, NamedTensors& state) const override {
    NamedTensors all;
    for (const Part& part : parts_)
      for (auto& [name, tensor] : part.encoding->arrive(view(question, part), state)) all.emplace(name, tensor);
    return all;
  }

  NamedTensors rewind(const Side& tokens, const NamedTensors& kept) const override {
    NamedTensors all;
    for (const Part& part : parts_)
      for (auto& [name, tensor] : part.encoding->rewind(tokens, kept)) all.emplace(name, tensor);
    return all;
  }

  std::vector<Move> shift_moves(const Question& question, const at::Tensor& offsets) const override {
    std::vector<Move> all;
    for (const Part& part : parts_)
      for (Move& move : part.encoding->shift_moves(view(question, part), offsets)) {
        std::visit([&](auto& one) { shift(one.heads, part); }, move);
        all.push_back(std::move(move));
      }
    return all;
  }

  NamedTensors shift_kept(const NamedTensors& kept, const at::Tensor& offsets) const override {
    NamedTensors all = kept;
    for (const Part& part : parts_) all = part.encoding->shift_kept(all, offsets);
    return all;
  }

  double define_embedding(double position, std::int64_t channel, const PlainParameters& parameters) const override {
    double sum = 0;
    for (const Part& part : parts_) sum += part.encoding->define_embedding(position, channel, parameters);
    return sum;
  }

  // Parts turn different planes, so what each changes of the plain product adds up.
  double define_product(const PlainPair& pair, const PlainParameters& parameters) const override {
    const double plain = Encoding::define_product(pair, parameters);
    double product = plain;
    for (const Part& part : parts_)
      if (holds(part, pair.head)) product += part.encoding->define_product(seen(pair, part), parameters) - plain;
    return product;
  }

  double define_token_embedding(const PlainToken& token, std::int64_t channel,
                                const PlainParameters& parameters) const override {
    double sum = 0;
    for (const Part& part : parts_) sum += part.encoding->define_token_embedding(token, channel, parameters);
    return sum;
  }

  double define_value(const PlainPair& pair, std::int64_t channel, const PlainParameters& parameters) const override {
    double sum = 0;
    for (const Part& part : parts_)
      if (holds(part, pair.head)) sum += part.encoding->define_value(seen(pair, part), channel, parameters);
    return sum;
  }

  double define_query_factor(const double* pq, std::int64_t head, std::int64_t layer) const override {
    double factor = 1;
    for (const Part& part : parts_)
      if (holds(part, head)) factor *= part.encoding->define_query_factor(pq, head - part.first_head, layer);
    return factor;
  }

  double define_bias(const PlainPair& pair, const PlainParameters& parameters) const override {
    double sum = 0;
    for (const Part& part : parts_)
      if (holds(part, pair.head)) sum += part.encoding->define_bias(seen(pair, part), parameters);
    return sum;
  }

  void define_path(std::vector<double>& logits, const PlainTokens& tokens,
                   const PlainParameters& parameters) const override {
    for (const Part& part : parts_)
      if (holds(part, tokens.head)) part.encoding->define_path(logits, seen(tokens, part), parameters);
  }

  void define_row(std::vector<double>& logits, const double* q, std::int64_t head, std::int64_t layer,
                  const PlainParameters& parameters) const override {
    for (const Part& part : parts_)
      if (holds(part, head)) part.encoding->define_row(logits, q, head - part.first_head, layer, parameters);
  }

  std::optional<RotationInfo> rotation(double length, const PlainParameters& parameters) const override {
    for (const Part& part : parts_)
      if (auto one = part.encoding->rotation(length, parameters)) return one;
    return std::nullopt;
  }

  bool frequencies_change(double from, double to) const override {
    return std::any_of(parts_.begin(), parts_.end(),
                       [&](const Part& part) { return part.encoding->frequencies_change(from, to); });
  }

  std::vector<double> slopes() const override {
    std::vector<double> all;
    for (const Part& part : parts_)
      for (const double slope : part.encoding->slopes()) all.push_back(slope);
    return all;
  }

  std::vector<std::int64_t> buckets(const std::vector<double>& distances) const override {
    for (const Part& part : parts_)
      if (auto one = part.encoding->buckets(distances); !one.empty()) return one;
    return {};
  }

  std::vector<std::string> content() const override {
    std::vector<std::string> all;
    for (const Part& part : parts_)
      for (std::string& line : part.encoding->content()) all.push_back(std::move(line));
    return all;
  }

 private:
  bool whole(const Part& part) const { return part.encoding->dimensions().heads == dimensions_.heads; }
  static bool holds(const Part& part, std::int64_t head) {
    return head >= part.first_head && head < part.first_head + part.encoding->dimensions().heads;
  }
  template <class Plain>
  static Plain seen(Plain pair_or_tokens, const Part& part) {
    pair_or_tokens.head -= part.first_head;
    return pair_or_tokens;
  }
  static void shift(HeadRange& heads, const Part& part) {
    heads.begin += part.first_head;
    heads.end += part.first_head;
  }

  /// The question as a part sees it: its own heads only.
  Question view(const Question& question, const Part& part) const {
    if (whole(part)) return question;
    Question one = question;
    const std::int64_t heads = part.encoding->dimensions().heads;
    if (one.q.defined()) one.q = one.q.narrow(1, part.first_head, heads);
    if (one.k.defined()) one.k = one.k.narrow(1, part.first_head / group(), heads / group());
    if (one.v.defined()) one.v = one.v.narrow(1, part.first_head / group(), heads / group());
    return one;
  }

  template <class Answer, class Ask>
  std::vector<Answer> shifted(Ask ask) const {
    std::vector<Answer> all;
    for (const Part& part : parts_)
      for (Answer& one : ask(*part.encoding)) {
        shift(one.heads, part);
        all.push_back(std::move(one));
      }
    return all;
  }

  std::vector<Part> parts_;
  std::int64_t period_ = 1;
  std::vector<EncodingPointer> by_layer_;
};

/// A pattern over the layers. Asked as a whole it knows only what does not depend on the layer.
class Layers : public Encoding {
 public:
  Layers(const Dimensions& dimensions, std::vector<EncodingPointer> pattern)
      : Encoding(dimensions), pattern_(std::move(pattern)) {}

  std::int64_t period() const override { return static_cast<std::int64_t>(pattern_.size()); }
  EncodingPointer at_layer(std::int64_t layer) const override {
    return pattern_[static_cast<std::size_t>(layer) % pattern_.size()];
  }
  Traits traits() const override {
    std::vector<Parts::Part> parts;
    for (const EncodingPointer& one : pattern_) parts.push_back({one, 0});
    return Parts(dimensions_, std::move(parts)).traits();
  }
  std::vector<ParameterInfo> parameters(std::int64_t layer) const override {
    return at_layer(layer)->parameters(layer);
  }
  std::vector<std::string> inputs() const override {
    std::set<std::string> all;
    for (const EncodingPointer& one : pattern_)
      for (std::string& name : one->inputs()) all.insert(std::move(name));
    return {all.begin(), all.end()};
  }
  std::shared_ptr<const Encoding> without_inputs() const override {
    bool any = false;
    std::vector<EncodingPointer> plain = pattern_;
    for (EncodingPointer& one : plain)
      if (EncodingPointer inner = one->without_inputs()) any = true, one = std::move(inner);
    return any ? std::make_shared<Layers>(dimensions_, std::move(plain)) : nullptr;
  }
  CacheContract cache(std::int64_t layer) const override { return at_layer(layer)->cache(layer); }
  std::optional<RotationInfo> rotation(double length, const PlainParameters& parameters) const override {
    return pattern_.front()->rotation(length, parameters);
  }
  bool frequencies_change(double from, double to) const override {
    return std::any_of(pattern_.begin(), pattern_.end(),
                       [&](const EncodingPointer& one) { return one->frequencies_change(from, to); });
  }
  std::vector<std::string> content() const override {
    std::vector<std::string> all;
    for (const EncodingPointer& one : pattern_)
      for (std::string& line : one->content())
        if (std::find(all.begin(), all.end(), line) == all.end()) all.push_back(line);
    return all;
  }

 private:
  std::vector<EncodingPointer> pattern_;
};

void refuse_shared_planes(const std::vector<EncodingPointer>& parts) {
  // Spans are compared where both are known; trained frequencies count as turning whatever their span says.
  std::vector<std::pair<std::int64_t, std::int64_t>> spans;
  for (const EncodingPointer& part : parts) {
    const auto rotation = part->rotation(1, {});
    if (!rotation) continue;
    const std::int64_t begin = rotation->offset, end = rotation->offset + rotation->width;
    for (const auto& [other_begin, other_end] : spans)
      if (begin < other_end && other_begin < end)
        throw UsageError(str("two rotations turn the same planes: channels ", begin, "-", end - 1, " and ", other_begin,
                             "-", other_end - 1, "; give them different spans with dim= and part="));
    spans.emplace_back(begin, end);
  }
}

void refuse_two_carriers(const std::vector<EncodingPointer>& parts) {
  const auto carries = [](const EncodingPointer& part) { return part->traits().carries; };
  if (std::count_if(parts.begin(), parts.end(), carries) > 1)
    throw UsageError("two terms carry a position state from layer to layer: one model has one, so one term may");
  const auto averages = [](const EncodingPointer& part) { return part->traits().carries || part->traits().averages; };
  if (std::count_if(parts.begin(), parts.end(), averages) > 1)
    throw UsageError("two terms have attention average something along: one call averages one thing, so one term may");
}

}  // namespace

double Encoding::define_product(const PlainPair& pair, const PlainParameters&) const {
  double sum = 0;
  for (std::int64_t c = 0; c < dimensions_.head_dim; ++c) sum += pair.q[c] * pair.k[c];
  return sum;
}

bool Encoding::frequencies_change(double from, double to) const {
  if (!traits().length_dependent) return false;
  const auto a = rotation(from, {}), b = rotation(to, {});
  return a && b && (a->inv_freq != b->inv_freq || a->magnitude != b->magnitude);
}

EncodingPointer make_sum(std::vector<EncodingPointer> parts, const Dimensions& dimensions) {
  if (parts.size() == 1) return parts.front();
  refuse_shared_planes(parts);
  refuse_two_carriers(parts);
  std::vector<Parts::Part> all;
  for (EncodingPointer& part : parts) all.push_back({std::move(part), 0});
  return std::make_shared<Parts>(dimensions, std::move(all));
}

Dimensions part_dimensions(const Dimensions& whole, std::int64_t count) {
  const std::int64_t group = whole.heads / whole.kv_heads;
  if (count % group != 0)
    throw UsageError(str("heads: a part of ", count, " query heads cuts a group: ", group,
                         " query heads read one key head, so counts must be multiples of ", group));
  Dimensions part = whole;
  part.heads = count;
  part.kv_heads = count / group;
  return part;
}

EncodingPointer make_heads(std::vector<EncodingPointer> parts, const Dimensions& dimensions) {
  refuse_two_carriers(parts);
  for (const EncodingPointer& part : parts)
    if (const std::string why = part->traits().whole; !why.empty()) throw UsageError("heads: " + why);
  std::vector<Parts::Part> all;
  std::int64_t first = 0;
  for (EncodingPointer& part : parts) {
    const std::int64_t heads = part->dimensions().heads;
    all.push_back({std::move(part), first});
    first += heads;
  }
  if (first != dimensions.heads)
    throw UsageError(str("heads: the counts add up to ", first, ", the model has ", dimensions.heads, " query heads"));
  return std::make_shared<Parts>(dimensions, std::move(all));
}

EncodingPointer make_layers(std::vector<EncodingPointer> pattern, const Dimensions& dimensions) {
  for (const EncodingPointer& one : pattern)
    if (one->traits().absolute)
      throw UsageError("layers: what adds to the token embedding stands before all layers and cannot be one of them");
  // One state goes through all layers: it starts once.
  std::optional<RotationInfo> start;
  for (const EncodingPointer& one : pattern) {
    if (!one->traits().carries) continue;
    const std::optional<RotationInfo> own = one->rotation(1, {});
    const bool differs = start && own &&
                         (own->inv_freq != start->inv_freq || own->magnitude != start->magnitude ||
                          own->layout != start->layout || own->offset != start->offset || own->width != start->width ||
                          own->blocks != start->blocks || own->axis != start->axis);
    if (differs)
      throw UsageError(
          "layers: one position state goes through all layers, so the terms that carry it must start from one "
          "rotation");
    if (own) start = own;
  }
  return std::make_shared<Layers>(dimensions, std::move(pattern));
}

}  // namespace torsor
