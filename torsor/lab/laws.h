// Checks in numbers which laws an encoding keeps, and how far off it is at worst.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "torsor/encoding/registry.h"
#include "torsor/model/config.h"

namespace torsor {

struct LawsRequest {
  std::string encoding;
  std::int64_t head_dim = 64;
  std::int64_t heads =
      0;  ///< 0 = the first number of heads that the expression allows, 4 with 2 key heads if it can be
  std::int64_t kv_heads = 0;
  std::int64_t train_length = 0;  ///< 0 = a short one
  std::uint64_t seed = 0;
  QkNorm qk_norm = QkNorm::None;  ///< RMS norm of q and k a head with drawn gains, before or after the moves
};

struct Law {
  /// "identity", "composition", "inverse", "norm", "relative", "streaming", "chunked", "left-padded", "packed",
  /// "causality", "nothing seen", "penalty", "falling", "row composition", "chaining", "batch order"; with per-token
  /// inputs also "no inputs", "first values" and, around slopes, "falling alike"; where a state goes from layer to
  /// layer also "permutation", "phase", "reflection", "state bound".
  std::string name;
  std::string about;  ///< what it says
  bool claimed = true;
  bool holds = false;
  std::optional<double>
      worst;         ///< largest error found, in units of the largest value compared; none where it could not be tried
  double bound = 0;  ///< what counts as holding; 0 = equal bit for bit
  std::string note;  ///< why it is not claimed, or what was thrown
};

/// All laws over random float64 cases, the worst over all layers of a pattern. Throws UsageError for an expression that
/// is wrong or does not fit, and for a norm after moves that change the width of a head.
std::vector<Law> check_laws(const LawsRequest& request);
/// The same for an encoding that was made already.
std::vector<Law> check_laws(const std::shared_ptr<const Encoding>& whole, std::uint64_t seed,
                            QkNorm qk_norm = QkNorm::None);

/// "holds"; "does not hold", claimed or not; or "not claimed", where nothing was measured or the cases show no error.
std::string verdict(const Law& law);

}  // namespace torsor
