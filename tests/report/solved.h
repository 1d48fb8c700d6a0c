// Results of tasks scored by accuracy, as a comparison would write them: by hand, or from formulas.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/base/random.h"
#include "torsor/report/results.h"
#include "torsor/report/statistics.h"

namespace torsor::report {

/// Problems solved of ten by length, one number a seed (0, 1, ...). A negative number is a refusal.
using SolvedCurve = std::map<std::int64_t, std::vector<int>>;
using SolvedCurves = std::vector<std::pair<std::string, SolvedCurve>>;

/// Ten problems a length, the first ones solved; no cells.
inline Json solved_document(const SolvedCurves& curves, std::int64_t trained, const std::string& task = "addition") {
  Json document = {
      {"format", "torsor-results-1"}, {"config", {{"length", trained}, {"task", task}}}, {"machine", Json::object()}};
  Json runs = Json::array();
  for (const auto& [encoding, curve] : curves) {
    std::size_t seeds = 0;
    for (const auto& [length, solved] : curve) seeds = std::max(seeds, solved.size());
    for (std::size_t seed = 0; seed < seeds; ++seed) {
      Json evals = Json::array();
      for (const auto& [length, solved] : curve) {
        if (seed >= solved.size()) continue;
        Json eval = {{"task", task}, {"length", length}, {"status", solved[seed] < 0 ? "refused" : "ok"}};
        if (solved[seed] < 0) {
          eval["reason"] = "no row";
        } else {
          eval["accuracy"] = solved[seed] / 10.0;
          for (int i = 0; i < 10; ++i) eval["windows"].push_back(i < solved[seed] ? 1 : 0);
        }
        evals.push_back(eval);
      }
      runs.push_back({{"encoding", encoding}, {"seed", seed}, {"status", "ok"}, {"eval", evals}});
    }
  }
  document["runs"] = runs;
  return document;
}

inline Results solved_results(const SolvedCurves& curves, std::int64_t trained, const std::string& task = "addition") {
  Results results = parse_results(solved_document(curves, trained, task));
  summarize(results);
  return results;
}

struct SolvedFixture {
  std::string task = "addition";
  std::vector<std::int64_t> seeds = {0};
  std::vector<std::string> encodings = {"none", "learned", "rope", "alibi", "t5", "fox", "grape-ap", "kerple"};
  std::vector<std::int64_t> lengths = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  std::int64_t trained = 6;
  std::int64_t problems = 20;  ///< of each kind
};

inline SolvedFixture passkey_fixture() {
  SolvedFixture fixture;
  fixture.task = "passkey";
  fixture.lengths = {128, 256, 512, 1024, 2048};
  fixture.trained = 256;
  return fixture;
}

namespace fixture {

/// The share solved inside, and how many times the trained length it takes to lose half of it.
inline std::pair<double, double> skill_of(const std::string& encoding) {
  static const std::map<std::string, std::pair<double, double>> skills = {
      {"none", {0.55, 1.1}}, {"learned", {0.97, 1.0}}, {"rope", {0.995, 1.15}},    {"alibi", {0.985, 1.5}},
      {"t5", {0.99, 1.7}},   {"fox", {1.0, 8.0}},      {"grape-ap", {0.998, 2.4}}, {"kerple", {0.93, 1.35}}};
  const auto found = skills.find(encoding);
  return found != skills.end() ? found->second : std::pair(0.95, 1.3);
}

}  // namespace fixture

/// A whole results.json without summary and verdict. `learned` refuses every length past the trained one.
inline Json solved_fixture(const SolvedFixture& fixture) {
  Json document = {{"format", "torsor-results-1"}};
  document["config"] = {{"encodings", fixture.encodings},  {"task", fixture.task},   {"length", fixture.trained},
                        {"eval_lengths", fixture.lengths}, {"seeds", fixture.seeds}, {"profile", "quick"}};
  document["machine"] = {{"cpu", "two cores"}, {"threads", 2}};
  Json runs = Json::array();
  for (const std::int64_t seed : fixture.seeds) {
    for (std::size_t i = 0; i < fixture.encodings.size(); ++i) {
      const std::string& encoding = fixture.encodings[i];
      const auto [skill, reach] = fixture::skill_of(encoding);
      Json evals = Json::array();
      for (const std::int64_t length : fixture.lengths) {
        Json eval = {{"task", fixture.task}, {"length", length}, {"status", "ok"}};
        if (encoding == "learned" && length > fixture.trained) {
          eval["status"] = "refused";
          eval["reason"] = "the table has no row past its last";
          evals.push_back(eval);
          continue;
        }
        std::vector<std::pair<std::int64_t, std::int64_t>> kinds;
        if (fixture.task == "addition") {
          for (std::int64_t y = 1; y <= length; ++y) kinds.emplace_back(length, y);
          for (std::int64_t x = 1; x < length; ++x) kinds.emplace_back(x, length);
        } else {
          for (std::int64_t depth = 0; depth <= 100; depth += 25) kinds.emplace_back(length, depth);
        }
        std::int64_t solved = 0;
        Random random(static_cast<std::uint64_t>(seed) + 10, 100 * i + static_cast<std::uint64_t>(length));
        for (const auto& [x, y] : kinds) {
          const double size = fixture.task == "addition"
                                  ? (static_cast<double>(x + y) / 2 + static_cast<double>(length)) / 2
                                  : static_cast<double>(length) * (1.2 - 0.004 * static_cast<double>(y));
          const double past = size / static_cast<double>(fixture.trained);
          const double share = past <= 1 ? skill : skill / (1 + std::pow((past - 1) / (reach - 0.95), 2.0));
          std::int64_t correct = 0;
          for (std::int64_t problem = 0; problem < fixture.problems; ++problem) {
            const bool right = random.uniform() < share;
            eval["windows"].push_back(right ? 1 : 0);
            correct += right ? 1 : 0;
          }
          eval["cells"].push_back({{"x", x}, {"y", y}, {"correct", correct}, {"count", fixture.problems}});
          solved += correct;
        }
        eval["accuracy"] = static_cast<double>(solved) /
                           static_cast<double>(fixture.problems * static_cast<std::int64_t>(kinds.size()));
        evals.push_back(eval);
      }
      Json losses = Json::array();
      for (int step = 0; step < 600; step += 3) losses.push_back({step, 0.1 + 2.2 * std::exp(-step * skill / 90.0)});
      runs.push_back({{"encoding", encoding},
                      {"seed", seed},
                      {"status", "ok"},
                      {"parameters", 819840 + 128 * static_cast<std::int64_t>(i)},
                      {"train",
                       {{"steps", 600},
                        {"tokens", 1228800},
                        {"seconds", 70},
                        {"tokens_per_second", 17600 - 500.0 * static_cast<double>(i)},
                        {"losses", losses}}},
                      {"peak_memory_bytes", 327155712},
                      {"decode_tokens_per_second", 900 - 20.0 * static_cast<double>(i)},
                      {"eval", evals}});
    }
  }
  document["runs"] = runs;
  return document;
}

}  // namespace torsor::report
