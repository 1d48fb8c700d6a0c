#include "torsor/model/convert_rotation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "torsor/group/basis.h"
#include "torsor/group/mixture.h"
#include "torsor/group/planes.h"
#include "torsor/group/rank2.h"

namespace torsor {
namespace {

constexpr double kStill = -std::numeric_limits<double>::infinity();  // the logarithm of frequency 0

/// Two channels that turn by plus the angle, the first towards the second.
struct PlaneChannels {
  std::int64_t a = 0, b = 0, axis = 0;
};

/// How a leaf turns the vectors of its heads.
struct Turning {
  std::vector<PlaneChannels> planes;          ///< in the coordinates of the frame
  std::vector<std::vector<double>> log_freq;  ///< [1 or key heads][plane]
  at::Tensor frame;                           ///< (1 or key heads, D, D) float64; undefined = the channels themselves
  bool returns = false;                       ///< moved vectors are F R F^T x instead of R F^T x
  double magnitude = 1;
};

bool is_grape(const Leaf& leaf) { return leaf.term.name == "grape-m"; }
bool grape_word(const Leaf& leaf, const char* key, const char* word) {
  return is_grape(leaf) && leaf.settings().word(key) == word;
}
std::int64_t rank_of(const Leaf& leaf) { return is_grape(leaf) ? leaf.settings().integer("rank") : 0; }
bool in_context(const Leaf& leaf) { return is_grape(leaf) && leaf.settings().boolean("context"); }
/// Planes of trained vectors instead of pairs of channels.
bool free_planes(const Leaf& leaf) {
  return is_grape(leaf) && (rank_of(leaf) > 0 || leaf.settings().word("planes") != "canonical");
}

std::string log_freq_name(const Leaf& leaf) {
  for (const auto& [name, tensor] : leaf.tensors)
    if (name.ends_with(".log_freq")) return name;
  return "";
}

std::vector<PlaneChannels> canonical_planes(Layout layout, std::int64_t offset, std::int64_t width,
                                            std::int64_t blocks) {
  std::vector<PlaneChannels> planes;
  const std::int64_t each = width / blocks;
  for (std::int64_t plane = 0; plane < width / 2; ++plane) {
    const std::int64_t first = offset + plane / (each / 2) * each, index = plane % (each / 2);
    planes.push_back(layout == Layout::Half ? PlaneChannels{first + index, first + index + each / 2}
                                            : PlaneChannels{first + 2 * index, first + 2 * index + 1});
  }
  return planes;
}

PlainParameters plain_tensors(const Leaf& leaf) {
  PlainParameters plain;
  for (const auto& [name, tensor] : leaf.tensors) {
    const at::Tensor wide = tensor.to(at::kDouble).contiguous();
    plain[name].assign(wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel());
  }
  return plain;
}

/// The planes that the leaf's keys name, whatever turns in them and in whatever basis; none for planes=general and
/// rank, which name no channels.
std::vector<PlaneChannels> named_planes(const Leaf& leaf) {
  std::vector<PlaneChannels> planes;
  if (is_grape(leaf)) {
    const Settings settings = leaf.settings();
    if (settings.word("planes") == "general" || rank_of(leaf) > 0) return {};
    const std::int64_t width = leaf.encoding->dimensions().head_dim, axes = settings.integer("axes");
    planes = canonical_planes(grape_word(leaf, "layout", "interleaved") ? Layout::Interleaved : Layout::Half, 0, width,
                              axes);
    for (std::size_t i = 0; i < planes.size(); ++i) planes[i].axis = static_cast<std::int64_t>(i) / (width / 2 / axes);
    if (grape_word(leaf, "orientation", "minus"))
      for (PlaneChannels& plane : planes) std::swap(plane.a, plane.b);
    return planes;
  }
  const RotationInfo info = leaf.encoding->rotation(1, plain_tensors(leaf)).value();
  planes = canonical_planes(info.layout, info.offset, info.width, info.blocks);
  for (std::size_t i = 0; i < planes.size(); ++i) {
    planes[i].axis = info.axis[i];
    if (info.inv_freq.front()[i] < 0) std::swap(planes[i].a, planes[i].b);
  }
  return planes;
}

std::vector<std::vector<double>> rows_of(const at::Tensor& table) {
  const at::Tensor wide = table.to(at::kDouble).contiguous();
  std::vector<std::vector<double>> rows;
  for (const at::Tensor& row : wide.unbind(0))
    rows.emplace_back(row.const_data_ptr<double>(), row.const_data_ptr<double>() + row.numel());
  return rows;
}

/// The planes in which trained vectors turn, as a frame whose first channels are the planes and whose last are the
/// complement, which stands still.
Turning free_turning(const Leaf& leaf) {
  const std::string own = leaf.term.name + ".";
  at::Tensor mix, theta;
  if (rank_of(leaf) > 0) {
    mix = leaf.tensors.at(own + "mix").to(at::kDouble), theta = leaf.tensors.at(own + "theta");
  } else {
    const at::Tensor a = leaf.tensors.at(own + "a").to(at::kDouble);
    const at::Tensor b = grape_word(leaf, "planes", "ja")
                             ? group::quarter_turn(a, grape_word(leaf, "layout", "interleaved"))
                             : leaf.tensors.at(own + "b").to(at::kDouble);
    mix = at::stack({a, b}, 2), theta = leaf.tensors.at(own + "omega").unsqueeze(1);
  }
  const group::MixturePlanes planes = group::mixture_planes(mix, theta);
  const std::int64_t count = planes.values.size(1) / 2;
  // Fastest first, as rope numbers its planes.
  const at::Tensor angle = planes.values.flip(1).narrow(1, 0, count).contiguous(),
                   vectors = planes.vectors.flip(2).narrow(2, 0, count) * std::sqrt(2.0);
  const at::Tensor live = angle.gt(1e-12 * planes.values.abs().amax(1, true)).sum(1);
  const std::int64_t used = live.max().item<std::int64_t>();
  if (live.min().item<std::int64_t>() != used)
    throw Refusal(str(print(leaf.term), ": its key heads turn different numbers of planes, ",
                      live.min().item<std::int64_t>(), " to ", used, "; no other encoding can say that"));
  const auto lifted = [&](const at::Tensor& part) { return at::matmul(planes.frame, part.narrow(2, 0, used)); };
  // L(x, y) turns x towards minus y, so the plane in the order of plus is (y, x).
  const at::Tensor turning = at::cat({lifted(at::imag(vectors)), lifted(at::real(vectors))}, 2);
  const at::Tensor complement =
      std::get<0>(at::linalg_qr(turning, "complete")).narrow(2, 2 * used, turning.size(1) - 2 * used);
  Turning answer;
  answer.frame = at::cat({turning, complement}, 2);
  answer.returns = true;
  for (std::int64_t i = 0; i < used; ++i) answer.planes.push_back({i, used + i, 0});
  answer.log_freq = rows_of(angle.narrow(1, 0, used).log());
  return answer;
}

Turning turning_of(const Leaf& leaf) {
  if (free_planes(leaf)) return free_turning(leaf);
  Turning turning;
  turning.planes = named_planes(leaf);
  const std::string trained = log_freq_name(leaf);
  if (is_grape(leaf)) {
    turning.log_freq =
        rows_of(leaf.tensors.at(trained).to(at::kDouble) / (in_context(leaf) ? 1 : group::kSpectrumScale));
    if (grape_word(leaf, "basis", "cayley"))
      turning.frame = group::cayley(group::skew_matrix(leaf.tensors.at("grape-m.skew").to(at::kDouble))).unsqueeze(0);
    if (grape_word(leaf, "basis", "householder"))
      turning.frame = group::householder(leaf.tensors.at("grape-m.reflectors").to(at::kDouble)).unsqueeze(0);
    return turning;
  }
  const RotationInfo info = leaf.encoding->rotation(1, plain_tensors(leaf)).value();
  turning.magnitude = info.magnitude;
  if (!trained.empty() && leaf.term.operands.empty()) {
    turning.log_freq = rows_of(leaf.tensors.at(trained));  // as they are: exp and log would round
    return turning;
  }
  for (const std::vector<double>& row : info.inv_freq) {
    turning.log_freq.emplace_back();
    for (const double frequency : row)
      turning.log_freq.back().push_back(frequency == 0 ? kStill : std::log(std::fabs(frequency)));
  }
  return turning;
}

// --------------------------------------------------------------------------------------------------------------------
// The same term in another layout or orientation

Term without_layout(Term term) {
  std::erase_if(term.arguments, [](const Argument& one) { return one.key == "layout" || one.key == "orientation"; });
  for (Item& item : term.operands)
    for (Term& inner : item.expression.terms) inner = without_layout(inner);
  return term;
}

/// Trained tensors that live in the channels go with them.
at::Tensor relabelled(const std::string& name, const at::Tensor& tensor, const HeadMap& map) {
  const at::Tensor order = at::tensor(map.permutation, at::kLong);
  if (name == "grape-m.a" || name == "grape-m.reflectors") return tensor.index_select(1, order);
  if (name != "grape-m.skew") return tensor;
  const at::Tensor full = group::skew_matrix(tensor).index_select(0, order).index_select(1, order);
  const at::Tensor place = at::triu_indices(full.size(0), full.size(0), 1, at::kLong);
  return full.index({place.select(0, 0), place.select(0, 1)});
}

void convert_layout(const Leaf& source, Leaf& target, std::vector<HeadMap>& maps) {
  const std::vector<PlaneChannels> from = named_planes(source), to = named_planes(target);
  HeadMap alone;
  for (std::size_t i = 0; i < from.size(); ++i) {
    alone.moved.emplace_back(from[i].a, to[i].a);
    alone.moved.emplace_back(from[i].b, to[i].b);
  }
  for (std::int64_t g = 0; g < source.kv_heads(); ++g) {
    HeadMap& map = maps[static_cast<std::size_t>(source.first_key_head() + g)];
    map.moved.insert(map.moved.end(), alone.moved.begin(), alone.moved.end());
    map.turned = true;
  }
  alone.complete(source.encoding->dimensions().head_dim);
  for (const auto& [name, tensor] : source.tensors) target.tensors[name] = relabelled(name, tensor, alone);
}

// --------------------------------------------------------------------------------------------------------------------
// Another rotation with the same frequencies

bool equal_frequencies(double a, double b) {
  return a == b || std::fabs(a - b) <= kLastPlace * std::max(1.0, std::fabs(a));
}

double log_freq_at(const Turning& turning, std::int64_t key_head, std::size_t plane) {
  const std::size_t row = turning.log_freq.size() == 1 ? 0 : static_cast<std::size_t>(key_head);
  return turning.log_freq[row][plane];
}

/// Planes along one axis that turn in some key head.
std::vector<std::size_t> live_planes(const Turning& turning, std::int64_t axis) {
  std::vector<std::size_t> live;
  for (std::size_t i = 0; i < turning.planes.size(); ++i) {
    const bool turns = std::any_of(turning.log_freq.begin(), turning.log_freq.end(),
                                   [&](const std::vector<double>& row) { return row[i] != kStill; });
    if (turns && turning.planes[i].axis == axis) live.push_back(i);
  }
  return live;
}

/// For every key head, pairs (plane of the source, plane of the target).
using Matches = std::vector<std::vector<std::pair<std::size_t, std::size_t>>>;

Matches matches_of(const Leaf& source, const Leaf& target, const Turning& from, const Turning& to) {
  const bool trained = !log_freq_name(target).empty();
  Matches matches(static_cast<std::size_t>(source.kv_heads()));
  for (std::int64_t axis = 0; axis < source.encoding->traits().axes; ++axis) {
    const std::vector<std::size_t> a = live_planes(from, axis), b = live_planes(to, axis);
    if (a.size() != b.size()) {
      const std::string along = source.encoding->traits().axes > 1 ? str(" along axis ", axis) : "";
      const std::string counts =
          str("the model turns ", a.size(), " planes of a head", along, ", the other ", b.size());
      if (trained && a.size() < b.size())
        refuse_conversion(
            source, target,
            str(counts, "; planes that stand still cannot be expressed: a frequency of 0 has no logarithm",
                along.empty() && !in_context(source)
                    ? str("; rope(dim=", 2 * a.size(), ", learn=true) turns as many as the model")
                    : ""));
      refuse_conversion(source, target, counts);
    }
    for (std::int64_t g = 0; g < source.kv_heads(); ++g) {
      std::vector<std::size_t> ours = a, theirs = b;
      const auto differs = [&] {
        for (std::size_t i = 0; i < ours.size(); ++i)
          if (!equal_frequencies(log_freq_at(from, g, ours[i]), log_freq_at(to, g, theirs[i]))) return i;
        return ours.size();
      };
      if (!trained && differs() < ours.size()) {
        const auto sort = [&](const Turning& turning, std::vector<std::size_t>& planes) {
          std::stable_sort(planes.begin(), planes.end(), [&](std::size_t x, std::size_t y) {
            return log_freq_at(turning, g, x) > log_freq_at(turning, g, y);
          });
        };
        sort(from, ours), sort(to, theirs);
        if (const std::size_t i = differs(); i < ours.size())
          refuse_conversion(source, target,
                            str("plane ", theirs[i], " of key head ", source.first_key_head() + g, " would turn by ",
                                std::exp(log_freq_at(to, g, theirs[i])), " a position, the model's nearest by ",
                                std::exp(log_freq_at(from, g, ours[i])), "; learn=true takes any frequencies"));
      }
      for (std::size_t i = 0; i < ours.size(); ++i)
        matches[static_cast<std::size_t>(g)].emplace_back(ours[i], theirs[i]);
    }
  }
  return matches;
}

/// One row of log_freq a key head, or one for all where they agree.
at::Tensor spectrum(const Leaf& source, const Leaf& target, const Turning& from, const Matches& matches) {
  const at::Tensor& initial = target.tensors.at(log_freq_name(target));
  const double scale = is_grape(target) && !in_context(target) ? group::kSpectrumScale : 1;
  at::Tensor all = at::zeros({source.kv_heads(), initial.size(1)}, at::kDouble);
  double* values = all.data_ptr<double>();
  for (std::int64_t g = 0; g < source.kv_heads(); ++g)
    for (const auto& [ours, theirs] : matches[static_cast<std::size_t>(g)]) {
      const double value = log_freq_at(from, g, ours);
      if (value == kStill) refuse_conversion(source, target, "a frequency of 0 has no logarithm");
      values[g * initial.size(1) + static_cast<std::int64_t>(theirs)] = scale * value;
    }
  if (initial.size(0) == all.size(0)) return all;
  if (!all.eq(all.narrow(0, 0, 1)).all().item<bool>())
    refuse_conversion(
        source, target,
        str("key heads turn at different frequencies; ",
            is_grape(target) ? "per_head=true" : "base=[...] with one number a key head", " keeps them apart"));
  return all.narrow(0, 0, 1);
}

/// Clocks: positions, or phases made of gates.
void convert_clock(const Leaf& source, Leaf& target) {
  if (in_context(source) != in_context(target))
    refuse_conversion(source, target, "with context=true the content says how far a token turns, else its position");
  if (!in_context(source)) {
    const std::int64_t from = source.encoding->traits().axes, to = target.encoding->traits().axes;
    if (from != to) refuse_conversion(source, target, str("positions have ", from, " axes, not ", to));
    return;
  }
  if (source.settings().word("link") != target.settings().word("link"))
    refuse_conversion(source, target, "another link= makes other phases of the same gates");
  for (const char* name : {"grape-m.gate_weight", "grape-m.gate_bias"}) {
    at::Tensor gates = source.tensors.at(name);
    const at::Tensor& initial = target.tensors.at(name);
    if (gates.size(0) > initial.size(0)) {
      if (!gates.eq(gates.narrow(0, 0, 1)).all().item<bool>())
        refuse_conversion(source, target, "key heads have different gates; per_head=true keeps them apart");
      gates = gates.narrow(0, 0, 1);
    }
    target.tensors[name] = gates.expand(initial.sizes()).clone();
  }
}

/// Planes of trained vectors can be put where the model's planes are: the projections stay.
void fill_mixture(const Leaf& source, Leaf& target, const Turning& from, std::vector<HeadMap>& maps) {
  const std::int64_t width = source.encoding->dimensions().head_dim, room = rank_of(target) / 2;
  const std::vector<std::size_t> live = live_planes(from, 0);
  if (static_cast<std::int64_t>(live.size()) > room)
    refuse_conversion(source, target, str("the model turns ", live.size(), " planes of a head, the other ", room));
  std::vector<at::Tensor> mixes, thetas;
  for (std::int64_t g = 0; g < source.kv_heads(); ++g) {
    const at::Tensor frame =
        from.frame.defined() ? from.frame.select(0, from.frame.size(0) == 1 ? 0 : g) : at::eye(width, at::kDouble);
    std::vector<std::int64_t> columns;
    std::vector<bool> used(static_cast<std::size_t>(width), false);
    std::vector<double> theta;
    for (const std::size_t i : live) {
      // L(a, b) turns a towards minus b.
      for (const std::int64_t channel : {from.planes[i].b, from.planes[i].a}) {
        columns.push_back(channel);
        used[static_cast<std::size_t>(channel)] = true;
      }
      theta.push_back(std::exp(log_freq_at(from, g, i)));
    }
    for (std::int64_t c = 0; c < width && static_cast<std::int64_t>(columns.size()) < 2 * room; ++c)
      if (!used[static_cast<std::size_t>(c)]) columns.push_back(c);
    theta.resize(static_cast<std::size_t>(room), 0.0);
    mixes.push_back(frame.index_select(1, at::tensor(columns, at::kLong)));
    thetas.push_back(at::tensor(theta, at::kDouble));
    HeadMap& map = maps[static_cast<std::size_t>(source.first_key_head() + g)];
    map.turned = true;
    map.enters_frame = from.frame.defined() && !from.returns;
  }
  target.tensors["grape-m.mix"] = at::stack(mixes);
  target.tensors["grape-m.theta"] = at::stack(thetas);
}

/// Refuses what depends on more than frequencies.
void check_kinds(const Leaf& source, const Leaf& target, Precision precision) {
  for (const Leaf* leaf : {&source, &target}) {
    if (leaf->encoding->traits().length_dependent)
      refuse_conversion(source, target,
                        str("the frequencies of ", leaf->term.name,
                            " depend on the length of the text; only layout and ", "orientation can change"));
    if (!leaf->encoding->decays().empty())
      refuse_conversion(source, target,
                        str("the planes of ", leaf->term.name, " fade with the distance; only layout can change"));
  }
  const bool from_trained = !log_freq_name(source).empty(), to_trained = !log_freq_name(target).empty();
  if (precision == Precision::HuggingFace && (from_trained != to_trained || is_grape(source) != is_grape(target)))
    refuse_conversion(
        source, target,
        "with precision hf rope's angles are float32 in Hugging Face's order, and other encodings round otherwise; "
        "set \"precision\" to \"exact\" in config.json");
  if (to_trained && !target.term.operands.empty())
    refuse_conversion(source, target,
                      str("trained frequencies inside ", target.term.name, " change only with the same term"));
  if (target.encoding->softmax_factor() != source.encoding->softmax_factor())
    refuse_conversion(source, target, "they scale the logits differently");
  if (free_planes(target) && rank_of(target) == 0)
    refuse_conversion(
        source, target,
        str("planes=", target.settings().word("planes"), " is no target; rank=2 has a plane of trained vectors too"));
}

void convert_planes(const Leaf& source, Leaf& target, Precision precision, std::vector<HeadMap>& maps) {
  check_kinds(source, target, precision);
  convert_clock(source, target);
  const Turning from = turning_of(source);
  if (rank_of(target) > 0) {
    if (from.magnitude != 1) refuse_conversion(source, target, str("it multiplies q and k by ", from.magnitude));
    fill_mixture(source, target, from, maps);
    return;
  }
  const Turning to = turning_of(target);  // a basis starts as the identity and stays there
  if (from.magnitude != to.magnitude)
    refuse_conversion(source, target,
                      str("one multiplies what turns of q and k by ", from.magnitude, ", the other by ", to.magnitude));
  const Matches matches = matches_of(source, target, from, to);
  if (const std::string name = log_freq_name(target); !name.empty())
    target.tensors[name] = spectrum(source, target, from, matches);
  for (std::int64_t g = 0; g < source.kv_heads(); ++g) {
    HeadMap& map = maps[static_cast<std::size_t>(source.first_key_head() + g)];
    map.turned = true;
    if (from.frame.defined()) {
      map.frame = from.frame.select(0, from.frame.size(0) == 1 ? 0 : g);
      map.leaves_frame = from.returns;
    }
    for (const auto& [ours, theirs] : matches[static_cast<std::size_t>(g)]) {
      map.moved.emplace_back(from.planes[ours].a, to.planes[theirs].a);
      map.moved.emplace_back(from.planes[ours].b, to.planes[theirs].b);
    }
  }
}

}  // namespace

void HeadMap::complete(std::int64_t head_dim) {
  const std::size_t width = static_cast<std::size_t>(head_dim);
  permutation.assign(width, -1);
  std::vector<bool> taken(width, false);
  for (const auto& [from, to] : moved) {
    permutation[static_cast<std::size_t>(to)] = from;
    taken[static_cast<std::size_t>(from)] = true;
  }
  for (std::size_t c = 0; c < width; ++c)
    if (permutation[c] < 0 && !taken[c]) {
      permutation[c] = static_cast<std::int64_t>(c);
      taken[c] = true;
    }
  std::size_t next = 0;
  for (std::size_t c = 0; c < width; ++c) {
    if (permutation[c] >= 0) continue;
    while (taken[next]) ++next;
    permutation[c] = static_cast<std::int64_t>(next);
    taken[next] = true;
  }
}

bool HeadMap::identity() const {
  for (std::size_t c = 0; c < permutation.size(); ++c)
    if (permutation[c] != static_cast<std::int64_t>(c)) return false;
  return !frame.defined();
}

at::Tensor HeadMap::apply(const at::Tensor& rows) const {
  const at::Tensor order = at::tensor(permutation, at::kLong);
  if (!frame.defined()) return rows.index_select(0, order);
  const at::Tensor coordinates = at::matmul(frame.t(), rows.to(at::kDouble).reshape({rows.size(0), -1}));
  return coordinates.index_select(0, order).reshape(rows.sizes()).to(rows.scalar_type());
}

bool is_rotation(const Leaf& leaf) { return leaf.encoding->traits().rotates; }

void convert_rotation(const Leaf& source, Leaf& target, Precision precision, std::vector<HeadMap>& maps) {
  if (print(without_layout(source.term)) == print(without_layout(target.term)))
    convert_layout(source, target, maps);
  else
    convert_planes(source, target, precision, maps);
}

}  // namespace torsor
