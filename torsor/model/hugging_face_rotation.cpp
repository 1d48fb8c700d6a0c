#include "torsor/model/hugging_face_rotation.h"

#include <cmath>

#include "torsor/encoding/registry.h"
#include "torsor/encoding/rotary/scaling.h"

namespace torsor {
namespace {

/// A number that only counts.
Json whole(double value) {
  return std::nearbyint(value) == value && std::abs(value) < 1e15 ? Json(static_cast<std::int64_t>(value))
                                                                  : Json(value);
}

/// The share of a head of which transformers makes `width` channels: int(head_dim * share).
double share_of(std::int64_t width, std::int64_t head_dim) {
  double share = static_cast<double>(width) / static_cast<double>(head_dim);
  if (static_cast<std::int64_t>(static_cast<double>(head_dim) * share) < width) share = std::nextafter(share, 2.0);
  return share;
}

}  // namespace

RotationKeys rotation_keys(const ModelConfig& config, std::int64_t longest) {
  RotationKeys keys;
  const Expression expression = parse(config.encoding);
  const Term& outer = expression.terms.front();
  const bool scaled = !outer.operands.empty() && find_name(outer.name)->operand == Operand::Rotary;
  const Term& inner = scaled ? outer.operands.front().expression.terms.front() : outer;
  if (expression.terms.size() != 1 || inner.name != "rope") {
    keys.obstacle = str("there is no encoding '", config.encoding, "'");
    return keys;
  }
  const auto encoding = make_encoding(expression, config.dimensions());
  const Settings rope(inner, find_name("rope")->keys), scaling(outer, find_name(outer.name)->keys);
  const double base = rope.list("base").front();
  const auto trained = static_cast<double>(config.train_length);
  const auto length = [&] { return scaling.is_auto("train_length") ? trained : scaling.number("train_length"); };

  Json& parameters = keys.parameters;
  parameters["rope_type"] = scaled ? outer.name : "default";
  parameters["rope_theta"] = base;
  const auto rotation = encoding->rotation(1, {});
  if (rotation && rotation->width != config.head_dim)
    parameters["partial_rotary_factor"] = share_of(rotation->width, config.head_dim);
  double most = trained;
  if (outer.name == "ntk") {
    // A rope of another base, and transformers has no other word for it.
    const double width = rotation ? static_cast<double>(rotation->width) : static_cast<double>(config.head_dim);
    parameters["rope_type"] = "default";
    parameters["rope_theta"] = ntk_base(base, scaling.number("factor"), width);
  } else if (outer.name == "linear") {
    parameters["factor"] = scaling.number("factor");
  } else if (outer.name == "dynamic") {
    parameters["factor"] = scaling.number("factor");
    most = length();
    longest = 0;
  } else if (outer.name == "yarn" || outer.name == "llama3") {
    const double factor = scaling.number("factor");
    parameters["factor"] = factor;
    keys.original = static_cast<std::int64_t>(length());
    parameters["original_max_position_embeddings"] = whole(length());
    most = std::nearbyint(factor * length());
    if (outer.name == "llama3") {
      parameters["low_freq_factor"] = scaling.number("low_freq_factor");
      parameters["high_freq_factor"] = scaling.number("high_freq_factor");
    } else {
      if (scaling.number("mscale_all_dim") != 0)
        keys.obstacle = "there is no second correction of the softmax (mscale_all_dim)";
      for (const char* key : {"beta_fast", "beta_slow"}) parameters[key] = scaling.number(key);
      if (!scaling.boolean("truncate")) parameters["truncate"] = false;
      if (!scaling.is_auto("attention_factor")) parameters["attention_factor"] = scaling.number("attention_factor");
    }
  } else if (outer.name == "longrope") {
    keys.original = static_cast<std::int64_t>(length());
    parameters["original_max_position_embeddings"] = whole(length());
    parameters["short_factor"] = scaling.list("short");
    parameters["long_factor"] = scaling.list("long");
    const double factor = scaling.is_auto("factor") ? trained / length() : scaling.number("factor");
    most = std::nearbyint(factor * length());
    // Releases differ in whether the factor or the two lengths give the magnitude: the number itself ends that.
    const double ratio = (longest > 0 ? static_cast<double>(longest) : most) / length();
    if (!scaling.is_auto("attention_factor") || ratio != factor)
      parameters["attention_factor"] = rotation ? rotation->magnitude : 1.0;
    parameters["factor"] = scaling.is_auto("attention_factor") ? factor : ratio;
  } else if (scaled) {
    keys.parameters = nullptr;
    keys.obstacle = str("there is no encoding '", config.encoding, "'");
    return keys;
  }
  keys.longest = longest > 0 ? longest : static_cast<std::int64_t>(most);
  if (keys.original && static_cast<double>(*keys.original) != length())
    keys.obstacle = str("a training length is whole there, here it is ", length());
  return keys;
}

}  // namespace torsor
