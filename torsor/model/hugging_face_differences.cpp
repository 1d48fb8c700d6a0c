#include "torsor/model/hugging_face_differences.h"

#include <algorithm>
#include <cmath>

#include "torsor/encoding/registry.h"

namespace torsor {
namespace {

/// All that decides a model's function but its positions, by the names of the model file.
Json shape_of(ModelConfig config) {
  const std::vector<std::int64_t> windows = config.window;
  config.window.clear();
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    ModelConfig with = config;
    with.window = windows;
    config.window.push_back(with.window_of(layer));
  }
  config.decay_positions = false;  // of training alone
  config.tag_heads.reset();
  config.precision = Precision::Exact;
  const bool plain = config.block == BlockStyle();
  if (plain) config.block.head_bias = true;  // else Llama's blocks would not be written out
  Json json = model_to_json(config);
  if (plain) json["head_bias"] = false;
  json["vocabulary_size"] = config.vocabulary_size;
  return json;
}

bool near(double a, double b) { return std::abs(a - b) <= 1e-12 * std::max(std::abs(a), std::abs(b)); }

bool same_rotation(const RotationInfo& a, const RotationInfo& b) {
  if (a.layout != b.layout || a.offset != b.offset || a.width != b.width || a.blocks != b.blocks || a.axis != b.axis ||
      a.inv_freq.size() != b.inv_freq.size() || !near(a.magnitude, b.magnitude))
    return false;
  for (std::size_t row = 0; row < a.inv_freq.size(); ++row)
    if (!std::equal(a.inv_freq[row].begin(), a.inv_freq[row].end(), b.inv_freq[row].begin(), b.inv_freq[row].end(),
                    near))
      return false;
  return true;
}

}  // namespace

bool same_positions(const ModelConfig& a, const ModelConfig& b) {
  if (a.encoding == b.encoding && a.train_length == b.train_length) return true;
  const auto one = make_encoding(a.encoding, a.dimensions()), other = make_encoding(b.encoding, b.dimensions());
  const Traits traits = one->traits();
  if (a.encoding == b.encoding && !traits.rotates && !traits.length_dependent && one->parameters(0).empty())
    return true;
  if (!one->parameters(0).empty() || !other->parameters(0).empty()) {
    // Trained tensors: only the same words (a table's rows may be told by the training length), and the same shapes.
    const auto mine = one->parameters(0), theirs = other->parameters(0);
    const auto table = [](const ModelConfig& config) {
      const Expression expression = parse(config.encoding);
      return expression.terms.size() == 1 && expression.terms.front().name == "learned";
    };
    return (a.encoding == b.encoding || (table(a) && table(b))) &&
           std::equal(mine.begin(), mine.end(), theirs.begin(), theirs.end(),
                      [](const ParameterInfo& x, const ParameterInfo& y) { return x.shape == y.shape; });
  }
  if (!one->traits().forms.empty() || !other->traits().forms.empty()) return false;
  if (!near(one->softmax_factor(), other->softmax_factor())) return false;
  const double longest = 16.0 * static_cast<double>(std::max({a.train_length, b.train_length, std::int64_t{1} << 16}));
  for (double length = 1; length <= longest; length *= 2)
    for (const double tokens : {length, length + static_cast<double>(a.train_length)}) {
      const auto mine = one->rotation(tokens, {}), theirs = other->rotation(tokens, {});
      if (!mine || !theirs || !same_rotation(*mine, *theirs)) return false;
    }
  return true;
}

std::vector<std::string> key_differences(const Json& mine, const Json& theirs) {
  std::vector<std::string> found;
  const auto value_of = [](const Json& json, const std::string& key) {
    return json.contains(key) ? json.at(key) : Json();
  };
  for (const auto& [key, value] : mine.items())
    if (const Json read = value_of(theirs, key); read != value)
      found.push_back(str(key, "=", json_text(read), ", not ", json_text(value)));
  return found;
}

std::string encoding_difference(const ModelConfig& config, const ModelConfig& read) {
  return same_positions(config, read) ? "" : str("encoding '", read.encoding, "', not '", config.encoding, "'");
}

std::vector<std::string> model_differences(const ModelConfig& config, const ModelConfig& read) {
  std::vector<std::string> found = key_differences(shape_of(config), shape_of(read));
  if (const std::string positions = encoding_difference(config, read); !positions.empty()) found.push_back(positions);
  return found;
}

Refusal no_family(const std::string& nearest, const std::vector<std::string>& reasons) {
  std::string all;
  for (const std::string& one : reasons) all += (all.empty() ? "" : "; ") + one;
  return Refusal(str("Hugging Face has no architecture for this model; the nearest, ", nearest, ": ", all));
}

}  // namespace torsor
