// An expression as the terms that one layer has, each with the heads that it answers for: what is left of sums, head
// mixtures and patterns over the layers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "torsor/encoding/registry.h"

namespace torsor {

/// A term without heads(...) or layers(...) in a layer of a model. Its tensors have the names that they would have if
/// it were the whole expression.
struct Leaf {
  Term term;
  std::shared_ptr<const Encoding> encoding;     ///< made for the leaf's own heads
  std::map<std::string, std::string> prefixes;  ///< "rope" -> "rope#2": the number that it has in the expression
  std::int64_t first_head = 0;
  NamedTensors tensors;

  std::int64_t heads() const { return encoding->dimensions().heads; }
  std::int64_t kv_heads() const { return encoding->dimensions().kv_heads; }
  std::int64_t first_key_head() const { return first_head / encoding->group(); }
  bool same_heads(const Leaf& other) const { return first_head == other.first_head && heads() == other.heads(); }
  /// Its keys with defaults filled in.
  Settings settings() const;
  /// Name in a model's parameters of one of its trained tensors in a layer.
  std::string parameter_name(const ParameterInfo& info, std::int64_t layer) const;
};

/// The terms of one layer in the order written; `none` is left out. `dimensions` are complete.
std::vector<Leaf> leaves_of(const Expression& expression, const Dimensions& dimensions, std::int64_t layer);

/// Two floats that come from the same number by way of a trained logarithm may differ in the last place.
inline constexpr double kLastPlace = 1.2e-7;

/// Throws the Refusal of a conversion that would not be exact.
[[noreturn]] void refuse_conversion(const Leaf& source, const Leaf& target, const std::string& reason);

/// The leaf's tensors of a layer as a new model would have them: drawn ones as the model draws them from `seed`.
NamedTensors initial_tensors(const Leaf& leaf, std::int64_t layer, std::uint64_t seed);

}  // namespace torsor
