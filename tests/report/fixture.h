// Results as a comparison of eight encodings would write them, from formulas: for tests of the report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "torsor/base/json.h"

namespace torsor::report {

struct FixtureOptions {
  std::vector<std::int64_t> seeds = {0};
  std::vector<std::string> encodings = {"none", "sinusoidal", "learned", "rope", "alibi", "t5", "kerple", "fire"};
  std::vector<std::int64_t> lengths = {128, 256, 512, 1024, 2048};
  bool exploding = false;  ///< sinusoidal reaches 12000 and at the last length is no longer finite
  bool windows = true;
  bool effects = true;
};

/// A whole results.json. `learned` refuses every length above 128.
Json fixture_document(const FixtureOptions& options = {});

}  // namespace torsor::report
