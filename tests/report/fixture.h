// Results as a comparison of eight encodings would write them, from formulas: for tests of the report.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/base/random.h"

namespace torsor::report {

struct FixtureOptions {
  std::vector<std::int64_t> seeds = {0};
  std::vector<std::string> encodings = {"none", "sinusoidal", "learned", "rope", "alibi", "t5", "kerple", "fire"};
  std::vector<std::int64_t> lengths = {128, 256, 512, 1024, 2048};
  bool exploding = false;  ///< sinusoidal reaches 12000 and at the last length is no longer finite
  bool windows = true;
  bool effects = true;
};

namespace fixture {

struct Shape {
  double home;    // perplexity at 128
  double growth;  // times for each doubling, and it accelerates
  double parameters;
  double speed;  // relative to none
  double decode;
};

inline Shape shape_of(const std::string& encoding) {
  static const std::map<std::string, Shape> shapes = {
      {"none", {11.7, 0.004, 0, 1.0, 910}},    {"sinusoidal", {9.4, 0.42, 0, 0.99, 905}},
      {"learned", {9.1, 0, 16384, 0.99, 902}}, {"rope", {7.4, 0.17, 0, 0.93, 842}},
      {"alibi", {8.2, 0.0, 0, 0.97, 880}},     {"t5", {7.9, 0.015, 128, 0.91, 861}},
      {"kerple", {7.75, 0.004, 8, 0.88, 850}}, {"fire", {7.6, 0.03, 1156, 0.81, 790}}};
  const auto found = shapes.find(encoding);
  return found != shapes.end() ? found->second : Shape{8.5, 0.05, 64, 0.9, 800};
}

inline Json eval_of(const std::string& encoding, std::int64_t length, std::int64_t seed, const FixtureOptions& options,
                    std::size_t place) {
  Json eval = {{"task", "lm"}, {"length", length}, {"status", "ok"}};
  if (encoding == "learned" && length > 128) {
    eval["status"] = "refused";
    eval["reason"] = "the table has 128 rows; position 128 has none";
    return eval;
  }
  const Shape shape = shape_of(encoding);
  const double doublings = std::log2(static_cast<double>(length) / 128);
  Random random(static_cast<std::uint64_t>(seed), 100 * place + static_cast<std::uint64_t>(length));
  double growth = shape.growth * std::pow(doublings, 1.35) / 4 * 1.25;
  if (options.exploding && encoding == "sinusoidal") growth = 1.79 * doublings;
  const double loss = std::log(shape.home) + growth +
                      0.004 * (Random(static_cast<std::uint64_t>(seed), place).normal() + 0.4 * random.normal());
  if (options.exploding && encoding == "sinusoidal" && length == 2048) {
    eval["loss"] = nullptr;
    eval["perplexity"] = nullptr;
    eval["reason"] = "the loss is not finite";
    return eval;
  }
  eval["loss"] = loss;
  eval["perplexity"] = std::exp(loss);
  eval["bits_per_byte"] = loss / std::log(2.0);
  Json bins = Json::array();
  for (std::int64_t from = 0; from < length; from += 16) {
    const double x = static_cast<double>(from) + 8;
    const double past = std::max(0.0, std::log2(x / 128));
    bins.push_back(
        {from, from + 16,
         loss - 0.1 + 1.3 / std::sqrt(1 + x) + growth * 0.7 * (past - 0.6 * doublings) + 0.012 * random.normal()});
  }
  eval["position_loss"] = bins;
  if (options.windows) {
    Json windows = Json::array();
    for (std::int64_t i = 0; i < 16384 / length; ++i) {
      const double text = 0.25 * Random(7, static_cast<std::uint64_t>(length + 10000 * i)).normal();
      windows.push_back(loss + text + 0.03 * random.normal());
    }
    eval["windows"] = windows;
  }
  return eval;
}

inline Json effects_of(const FixtureOptions& options) {
  const std::vector<double> distances = {0,  1,  2,   3,   4,   6,   8,   12,  16,   24,   32,  48,
                                         64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2047};
  Json list = Json::array();
  for (const std::string& encoding : options.encodings) {
    Json effect = {{"encoding", encoding},
                   {"kind", "none"},
                   {"distances", Json::array()},
                   {"per_head", Json::array()},
                   {"note", ""}};
    if (encoding == "none") effect["note"] = "Attention sees no positions: only the causal mask tells them apart.";
    if (encoding == "sinusoidal" || encoding == "learned") {
      effect["kind"] = "content";
      effect["note"] = "A vector added to the embedding: its effect on a logit depends on the projections.";
    }
    const bool rotation = encoding.rfind("rope", 0) == 0;
    if (rotation || encoding == "alibi" || encoding == "t5" || encoding == "kerple" || encoding == "fire") {
      effect["kind"] = rotation ? "rotation" : "bias";
      effect["distances"] = distances;
      Json rows = Json::array();
      for (int head = 0; head < (rotation ? 1 : 4); ++head) {
        Json row = Json::array();
        for (const double n : distances) {
          double value = 0;
          if (rotation) {
            for (int plane = 0; plane < 16; ++plane) value += std::cos(n * std::pow(10000.0, -plane / 16.0)) / 16;
          } else if (encoding == "alibi") {
            value = -n * std::pow(2.0, -2.0 * (head + 1));
          } else if (encoding == "t5") {
            value = 0.8 * std::sin(head + 1.0) - (0.25 + 0.2 * head) * std::log2(1 + std::min(n, 128.0));
          } else if (encoding == "kerple") {
            value = -(0.4 + 0.3 * head) * std::log(1 + (0.5 + head) * n);
          } else {
            value = 1.5 * std::sin(0.8 * head) - (0.6 * head + 0.4) * 2.2 * std::log(1 + n) / std::log(129.0);
          }
          row.push_back(value);
        }
        rows.push_back(row);
      }
      effect["per_head"] = rows;
    }
    list.push_back(effect);
  }
  return list;
}

}  // namespace fixture

/// A whole results.json without summary and verdict. `learned` refuses every length above 128.
inline Json fixture_document(const FixtureOptions& options = {}) {
  using namespace fixture;
  Json document = {{"format", "torsor-results-1"}};
  document["config"] = {
      {"encodings", options.encodings},
      {"task", "lm"},
      {"length", 128},
      {"eval_lengths", options.lengths},
      {"seeds", options.seeds},
      {"steps", 300},
      {"batch", 16},
      {"profile", options.seeds.size() > 1 ? "standard" : "quick"},
      {"dtype", "float32"},
      {"model", {{"width", 128}, {"layers", 4}, {"heads", 4}, {"kv_heads", 4}, {"mlp_width", 344}, {"tie_head", true}}},
      {"text", {"books/first.txt", "books/second.txt"}},
      {"data_sha256", "9f2feb0f1ef425b292f2f94bdd4b0a7d3f0e1ab6a8b0b1cde0f4c9b1c2d3e4f5"}};
  document["machine"] = {
      {"cpu", "two cores, AVX-512"}, {"threads", 2}, {"memory_bytes", 8589934592}, {"version", "0.1.0"}};
  Json runs = Json::array();
  for (const std::int64_t seed : options.seeds) {
    for (std::size_t i = 0; i < options.encodings.size(); ++i) {
      const std::string& encoding = options.encodings[i];
      const Shape shape = shape_of(encoding);
      Random random(static_cast<std::uint64_t>(seed), 1000 + i);
      Json losses = Json::array();
      for (int step = 0; step < 300; ++step) {
        const double fall = std::exp(-step / 28.0), slow = 0.55 * std::exp(-step / 120.0);
        losses.push_back(
            {step, std::log(shape.home) + (5.55 - std::log(shape.home) - 0.55) * fall + slow + 0.03 * random.normal()});
      }
      Json run = {{"encoding", encoding},
                  {"seed", seed},
                  {"status", "ok"},
                  {"parameters", 819840 + static_cast<std::int64_t>(shape.parameters)}};
      const double rate = 17600 * shape.speed * (1 + 0.006 * random.normal());
      run["train"] = {{"steps", 300},
                      {"tokens", 614400},
                      {"seconds", 614400 / rate},
                      {"tokens_per_second", rate},
                      {"losses", losses}};
      run["peak_memory_bytes"] = 327155712 + 40000000 * (1 - shape.speed);
      run["decode_tokens_per_second"] = shape.decode * (1 + 0.004 * random.normal());
      Json evals = Json::array();
      for (const std::int64_t length : options.lengths) evals.push_back(eval_of(encoding, length, seed, options, i));
      run["eval"] = evals;
      runs.push_back(run);
    }
  }
  document["runs"] = runs;
  if (options.effects) document["effects"] = effects_of(options);
  return document;
}

}  // namespace torsor::report
