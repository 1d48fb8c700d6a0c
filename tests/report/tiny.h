// Small results with every number given by the test.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/report/results.h"
#include "torsor/report/statistics.h"

namespace torsor::report {

/// Perplexities by length, one a seed (0, 1, ...). A negative number is a refusal, 0 a failure, NaN a figure that is
/// not finite.
using TinyCurve = std::map<std::int64_t, std::vector<double>>;
using TinyCurves = std::vector<std::pair<std::string, TinyCurve>>;

inline Json tiny_document(const TinyCurves& curves, std::int64_t trained = 128) {
  Json document = {{"format", "torsor-results-1"}, {"config", {{"length", trained}}}, {"machine", Json::object()}};
  Json runs = Json::array();
  for (const auto& [encoding, curve] : curves) {
    std::size_t seeds = 0;
    for (const auto& [length, values] : curve) seeds = std::max(seeds, values.size());
    for (std::size_t seed = 0; seed < seeds; ++seed) {
      Json evals = Json::array();
      for (const auto& [length, values] : curve) {
        if (seed >= values.size()) continue;
        const double value = values[seed];
        Json eval = {{"task", "lm"},
                     {"length", length},
                     {"status", value < 0    ? "refused"
                                : value == 0 ? "failed"
                                             : "ok"}};
        if (value < 0) eval["reason"] = "no row";
        if (value == 0) eval["reason"] = "out of memory";
        if (value > 0) {
          eval["perplexity"] = value;
          eval["loss"] = std::log(value);
        }
        if (std::isnan(value)) {
          eval["perplexity"] = nullptr;
          eval["reason"] = "the loss is not finite";
        }
        evals.push_back(eval);
      }
      runs.push_back({{"encoding", encoding}, {"seed", seed}, {"status", "ok"}, {"eval", evals}});
    }
  }
  document["runs"] = runs;
  return document;
}

inline Results tiny_results(const TinyCurves& curves, std::int64_t trained = 128) {
  Results results = parse_results(tiny_document(curves, trained));
  summarize(results);
  return results;
}

}  // namespace torsor::report
