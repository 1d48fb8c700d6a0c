#include "torsor/model/convert.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "torsor/base/random.h"
#include "torsor/encoding/syntax/sample.h"
#include "torsor/model/convert_leaves.h"
#include "torsor/model/convert_rotation.h"

namespace torsor {
namespace {

using Weights = std::map<std::string, at::Tensor>;

constexpr std::int64_t kComparedRows = 3, kComparedTokens = 64;

// --------------------------------------------------------------------------------------------------------------------
// Slopes

bool has_slopes(const Leaf& leaf) { return leaf.term.name == "alibi" || leaf.term.name == "grape-a"; }

bool gated(const Leaf& leaf) { return leaf.term.name == "grape-a" && leaf.settings().word("gate") != "none"; }

/// The slopes that a leaf uses; empty where it uses none (gates of the paper's variant).
std::vector<double> slopes_of(const Leaf& leaf) {
  for (const auto& [name, tensor] : leaf.tensors) {
    const at::Tensor wide = tensor.to(at::kDouble).contiguous();
    if (name == "grape-a.log_slopes") {
      const at::Tensor slopes = wide.exp();
      return {slopes.const_data_ptr<double>(), slopes.const_data_ptr<double>() + slopes.numel()};
    }
    if (name == "alibi.slopes") return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
  }
  return leaf.encoding->slopes();
}

void convert_slopes(const Leaf& source, Leaf& target) {
  const auto gate_of = [](const Leaf& leaf) {
    return gated(leaf) ? leaf.settings().word("gate") + " " + leaf.settings().word("variant") : "none";
  };
  if (gate_of(source) != gate_of(target))
    refuse_conversion(source, target, "gates read the content, and these are not the same");
  const std::vector<double> slopes = slopes_of(source);
  const auto trained = [&](const char* name) { return target.tensors.count(name) > 0; };
  if (trained("alibi.slopes")) {
    target.tensors["alibi.slopes"] = at::tensor(slopes, at::kDouble);
  } else if (trained("grape-a.log_slopes")) {
    for (std::size_t h = 0; h < slopes.size(); ++h)
      if (!(slopes[h] > 0))
        refuse_conversion(source, target,
                          str("the slope of head ", source.first_head + static_cast<std::int64_t>(h), " is ", slopes[h],
                              ", which has no logarithm; alibi(learn=true) takes any slope"));
    target.tensors["grape-a.log_slopes"] = at::tensor(slopes, at::kDouble).log();
  } else {
    const std::vector<double> fixed = target.encoding->slopes();
    for (std::size_t h = 0; h < slopes.size(); ++h)
      if (std::fabs(slopes[h] - fixed[h]) > kLastPlace * std::max(1.0, std::fabs(std::log(fixed[h]))) * fixed[h])
        refuse_conversion(source, target,
                          str("the slope of head ", source.first_head + static_cast<std::int64_t>(h), " would be ",
                              fixed[h], ", the model's is ", slopes[h], "; ",
                              target.term.name == "alibi" ? "learn=true" : "learn_slopes=true", " takes other slopes"));
  }
}

// --------------------------------------------------------------------------------------------------------------------
// Terms that read the channels of q and k

/// Whether probes are q or k themselves.
bool ties_channels(const Leaf& leaf) {
  if (leaf.term.name != "grape-ap") return false;
  const std::string& tie = leaf.settings().word("tie");
  return tie == "q" || tie == "k";
}

bool reads_channels(const Leaf& leaf) {
  return gated(leaf) || ties_channels(leaf) || leaf.term.name == "cope" || leaf.term.name == "txl";
}

/// What stands in a product with q or k is converted like them.
void follow_channels(const Leaf& source, Leaf& target, const std::vector<HeadMap>& maps) {
  const std::int64_t group = source.encoding->group(), first = source.first_key_head();
  const auto map_of = [&](std::int64_t key_head) -> const HeadMap& {
    return maps[static_cast<std::size_t>(first + key_head)];
  };
  for (const auto& [name, tensor] : source.tensors) {
    if (name != "grape-a.u" && name != "grape-a.v") continue;
    std::vector<at::Tensor> rows;
    for (std::int64_t h = 0; h < tensor.size(0); ++h)
      rows.push_back(map_of(name == "grape-a.u" ? h : h / group).apply(tensor[h]));
    target.tensors[name] = at::stack(rows);
  }
  if (source.term.name == "cope") {
    const at::Tensor table = source.tensors.at("cope.table").t();
    const at::Tensor converted = map_of(0).apply(table);
    for (std::int64_t g = 1; g < source.kv_heads(); ++g)
      if (!at::equal(map_of(g).apply(table), converted))
        refuse_conversion(source, target,
                          "heads share its table, and the rotation beside it changes them in different ways");
    target.tensors["cope.table"] = converted.t().contiguous();
  }
  if (source.term.name == "txl" || ties_channels(source))
    for (std::int64_t g = 0; g < source.kv_heads(); ++g)
      if (!map_of(g).identity())
        throw Refusal(
            str("no exact conversion: '", print(source.term),
                "' reads the channels of q and k as they are, and the rotation beside it would reorder them"));
}

// --------------------------------------------------------------------------------------------------------------------
// States that go from layer to layer

bool carries(const Leaf& leaf) { return leaf.term.name == "tape"; }

/// Whether the leaf's maps are zero, so that every state stays what its operand says.
bool leaves_states(const Leaf& leaf) {
  const auto zero = [&](const char* name) {
    const auto found = leaf.tensors.find(name);
    return found == leaf.tensors.end() || found->second.eq(0).all().item<bool>();
  };
  return zero("tape.post_attention") && (zero("tape.up_proj") || zero("tape.down_proj"));
}

bool same_keys(const Term& a, const Term& b) {
  return std::equal(a.arguments.begin(), a.arguments.end(), b.arguments.begin(), b.arguments.end(),
                    [](const Argument& x, const Argument& y) { return x.key == y.key && x.value == y.value; });
}

/// The maps act alike on every plane, so they stay as they are where the operand gets other planes.
void convert_states(const Leaf& source, Leaf& target) {
  if (carries(source) && carries(target) && same_keys(source.term, target.term)) {
    const bool mixes = source.settings().word("control") == "mixing";
    if (mixes && print(source.term) != print(target.term))
      refuse_conversion(source, target, "control=mixing maps planes to planes, and these are in another order");
    for (const auto& [name, tensor] : source.tensors)
      if (name.starts_with("tape.")) target.tensors[name] = tensor;
    return;
  }
  if (!leaves_states(source))
    refuse_conversion(source, target, "its position states move from layer to layer, the other's do not follow");
}

// --------------------------------------------------------------------------------------------------------------------
// Syntax around a term

bool reads_syntax(const Leaf& leaf) { return leaf.term.name == "sipe"; }

/// The term itself around, or at its start what stands inside: then the model goes on with syntax.
void convert_syntax(const Leaf& source, Leaf& target) {
  const bool same = print(source.term) == print(target.term);
  const bool starts = reads_syntax(target) && !reads_syntax(source) &&
                      print(target.term.operands.front().expression) == print(Expression{{source.term}, ""});
  if (!same && !starts)
    refuse_conversion(source, target,
                      "syntax changes what stands inside; E becomes sipe(E), at its start, and stays it");
  if (!same && !target.encoding->traits().warm_start)
    refuse_conversion(source, target, "with these keys it does not start as what stands inside");
  for (auto& [name, tensor] : target.tensors)
    if (const auto found = source.tensors.find(name); found != source.tensors.end()) tensor = found->second;
}

// --------------------------------------------------------------------------------------------------------------------
// One layer

class LayerConversion {
 public:
  LayerConversion(const ModelConfig& config, std::int64_t layer, std::vector<Leaf> source, std::vector<Leaf> target,
                  std::uint64_t seed)
      : seed_(seed),
        config_(config),
        layer_(layer),
        source_(std::move(source)),
        target_(std::move(target)),
        maps_(static_cast<std::size_t>(config.kv_heads)) {}

  void run(const Weights& from, const std::string& written, Weights& weights) {
    check_structure(written);
    for (std::size_t i = 0; i < source_.size(); ++i) {
      for (const ParameterInfo& info : source_[i].encoding->parameters(layer_))
        source_[i].tensors[info.name] = from.at(source_[i].parameter_name(info, layer_));
      target_[i].tensors = initial_tensors(target_[i], layer_, seed_);
    }
    for (std::size_t i = 0; i < source_.size(); ++i)
      if (is_rotation(source_[i]) && !around(i)) {
        if (!is_rotation(target_[i])) refuse_conversion(source_[i], target_[i], "only one of them is a rotation");
        convert_rotation(source_[i], target_[i], config_.precision, maps_);
        if (carries(source_[i]) || carries(target_[i])) convert_states(source_[i], target_[i]);
      }
    for (HeadMap& map : maps_) map.complete(config_.head_dim);
    settle_free_heads();
    for (std::size_t i = 0; i < source_.size(); ++i) {
      if (around(i))
        convert_syntax(source_[i], target_[i]);
      else if (!is_rotation(source_[i]))
        convert_other(source_[i], target_[i]);
    }
    project(weights);
    for (const Leaf& leaf : target_)
      for (const ParameterInfo& info : leaf.encoding->parameters(layer_))
        put(weights, leaf.parameter_name(info, layer_), leaf.tensors.at(info.name).to(at::kFloat).contiguous().clone());
  }

 private:
  /// Whether syntax stands around either of two terms.
  bool around(std::size_t i) const { return reads_syntax(source_[i]) || reads_syntax(target_[i]); }

  void check_structure(const std::string& written) const {
    bool same = source_.size() == target_.size();
    for (std::size_t i = 0; same && i < source_.size(); ++i) same = source_[i].same_heads(target_[i]);
    if (same) return;
    const auto list = [](const std::vector<Leaf>& leaves) {
      std::string text;
      for (const Leaf& leaf : leaves) text += (text.empty() ? "" : ", ") + print(leaf.term);
      return text.empty() ? "none" : text;
    };
    throw Refusal(str("no exact conversion from '", config_.encoding, "' to '", written, "': layer ", layer_, " has ",
                      list(source_), " where the other has ", list(target_),
                      "; terms convert one by one, in order, on the same heads"));
  }

  void convert_other(const Leaf& source, Leaf& target) const {
    const bool equal = print(source.term) == print(target.term);
    if (!equal && !(has_slopes(source) && has_slopes(target)))
      refuse_conversion(source, target, "they say different things");
    for (const ParameterInfo& info : target.encoding->parameters(layer_))
      if (const auto found = source.tensors.find(info.name); found != source.tensors.end())
        target.tensors[info.name] = found->second;
    if (!equal) convert_slopes(source, target);
    if (reads_channels(source)) follow_channels(source, target, maps_);
  }

  /// Heads without positions may take any order, and with QK-norm they must take that of the others, whose gains they
  /// share.
  void settle_free_heads() {
    for (std::size_t i = 0; i < source_.size(); ++i)
      if (const Leaf& leaf = source_[i]; reads_channels(leaf) || around(i))
        for (std::int64_t g = 0; g < leaf.kv_heads(); ++g)
          maps_[static_cast<std::size_t>(leaf.first_key_head() + g)].read = true;
    const auto turned = std::find_if(maps_.begin(), maps_.end(), [](const HeadMap& map) { return map.turned; });
    if (config_.qk_norm == QkNorm::None || turned == maps_.end()) return;
    for (HeadMap& map : maps_)
      if (!map.turned && !map.read) map.permutation = turned->permutation;
  }

  void project(Weights& weights) const {
    const std::string own = str("model.layers.", layer_, ".self_attn.");
    if (std::all_of(maps_.begin(), maps_.end(), [](const HeadMap& map) { return map.identity() && !map.enters_frame; }))
      return;
    for (const char* side : {"q", "k"}) {
      const std::string projection = own + side + "_proj";
      convert_rows(weights, projection + ".weight", config_.width);
      if (config_.block.qkv_bias) convert_rows(weights, projection + ".bias", 1);
      if (config_.qk_norm != QkNorm::None) {
        const std::string gain = own + side + "_norm.weight";
        weights[gain] = converted_gain(gain, weights.at(gain));
      }
    }
  }

  /// Rows of all heads, `width` numbers each.
  void convert_rows(Weights& weights, const std::string& name, std::int64_t width) const {
    at::Tensor& tensor = weights.at(name);
    const at::Tensor heads = tensor.view({-1, config_.head_dim, width});
    const std::int64_t group = heads.size(0) / config_.kv_heads;
    std::vector<at::Tensor> converted;
    for (std::int64_t h = 0; h < heads.size(0); ++h)
      converted.push_back(maps_[static_cast<std::size_t>(h / group)].apply(heads[h]));
    tensor = at::cat(converted).view(tensor.sizes());
  }

  /// All heads share the gain, which stands between the projection and the rotation, or behind both.
  at::Tensor converted_gain(const std::string& name, const at::Tensor& gain) const {
    const bool flat = gain.eq(gain[0]).all().item<bool>();
    at::Tensor converted;
    for (const HeadMap& map : maps_) {
      const bool between = map.frame.defined() && (config_.qk_norm == QkNorm::Before || map.leaves_frame);
      const bool behind = map.enters_frame && config_.qk_norm == QkNorm::After;
      if ((between || behind) && !flat)
        throw Refusal(str("no exact conversion: the basis of ", config_.encoding, " would have to pass the gains of ",
                          name, ", which stand ", between && !map.leaves_frame ? "before" : "behind",
                          " the rotation and differ from channel to channel (qk_norm)"));
      const at::Tensor one = gain.index_select(0, at::tensor(map.permutation, at::kLong));
      if (!converted.defined()) converted = one;
      if (!at::equal(converted, one))
        throw Refusal(str("no exact conversion: heads would need different orders of their channels, and share the ",
                          "gains of ", name, " (qk_norm)"));
    }
    return converted;
  }

  static void put(Weights& weights, const std::string& name, const at::Tensor& tensor) {
    const auto [place, added] = weights.emplace(name, tensor);
    // One tensor for all layers.
    if (!added && !at::equal(place->second, tensor))
      throw Refusal(str("no exact conversion: layers share ", name, " and would change it in different ways"));
  }

  std::uint64_t seed_;
  const ModelConfig& config_;
  std::int64_t layer_;
  std::vector<Leaf> source_, target_;
  std::vector<HeadMap> maps_;
};

std::int64_t axes_of(const Decoder& model) {
  std::int64_t axes = 1;
  for (std::int64_t layer = 0; layer < model.config().layers; ++layer)
    axes = std::max(axes, layer_encoding(model.shared_encoding(), layer)->traits().axes);
  return axes;
}

}  // namespace

LogitsDifference compare_logits(const Decoder& a, const Decoder& b, std::uint64_t seed) {
  const at::NoGradGuard no_gradient;
  const ModelConfig& config = a.config();
  LogitsDifference difference;
  difference.rows = kComparedRows;
  difference.tokens = std::min(kComparedTokens, config.train_length > 0 ? config.train_length : kComparedTokens);
  Random random(seed, stream_of("convert"));
  const std::int64_t axes = axes_of(a);
  for (;; difference.tokens /= 2) {
    const std::int64_t tokens = difference.tokens;
    TokenBatch batch;
    batch.tokens = at::empty({kComparedRows, tokens}, at::kLong);
    std::int64_t* ids = batch.tokens.data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < batch.tokens.numel(); ++i)
      ids[i] = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(config.vocabulary_size)));
    if (axes > 1) {
      // Axis 0 counts the tokens, as gates and paths demand; the others jump.
      batch.positions = at::arange(tokens, at::kDouble).view({1, tokens, 1}).repeat({kComparedRows, 1, axes});
      double* values = batch.positions.data_ptr<double>();
      for (std::int64_t i = 0; i < batch.positions.numel(); ++i)
        if (i % axes > 0) values[i] = static_cast<double>(random.below(static_cast<std::uint64_t>(tokens)));
    }
    for (const Decoder* model : {&a, &b})
      for (const auto& [name, tensor] : sample_syntax(model->encoding().inputs(), kComparedRows, tokens, random))
        batch.named.emplace(name, tensor);
    try {
      const at::Tensor ours = a.logits(a.hidden(batch)), theirs = b.logits(b.hidden(batch));
      difference.worst = (ours - theirs).abs().max().item<double>() / ours.abs().max().item<double>();
      return difference;
    } catch (const Refusal&) {
      if (tokens == 1) throw;
    }
  }
}

double logits_rounding(const ModelConfig& config) { return 1e-5 + 1e-6 * static_cast<double>(config.layers); }

Converted convert_model(const Decoder& model, const std::string& encoding, std::uint64_t seed) {
  const at::NoGradGuard no_gradient;
  ModelConfig config = model.config();
  const Expression from = parse(config.encoding), to = parse(encoding);
  const Dimensions dimensions = config.dimensions();
  const auto made = make_encoding(to, dimensions);  // refuses what does not fit the model, before anything else
  Weights all, weights;
  for (const ModelParameter& parameter : model.parameters()) {
    const at::Tensor tensor = parameter.tensor.detach();
    all[parameter.name] = tensor;
    if (!is_positional(parameter.name)) weights[parameter.name] = tensor.clone();
  }
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    LayerConversion(model.config(), layer, leaves_of(from, dimensions, layer), leaves_of(to, dimensions, layer), seed)
        .run(all, print(to), weights);
  config.encoding = print(to);
  Converted converted{Decoder(config, weights, "the converted model"), {}};
  converted.difference = compare_logits(model, converted.model, seed);
  if (!(converted.difference.worst <= logits_rounding(config)))
    throw Error(str("the logits under '", config.encoding, "' differ from those under '", model.config().encoding,
                    "' by ", converted.difference.worst, " of the largest, more than the ", logits_rounding(config),
                    " that rounding may leave"));
  return converted;
}

}  // namespace torsor
