// Calls of fused attention with their numbers, and what they mean, pair by pair in float64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "torsor/kernel/attention.h"

namespace torsor::kernel {

struct Shape {
  std::int64_t batch = 1, heads = 1, key_heads = 1, queries = 1, keys = 1, width = 8, value_width = 8;
};

inline std::string describe(const Shape& s, bool causal, bool token_major) {
  std::ostringstream text;
  text << s.batch << " x " << s.heads << "/" << s.key_heads << " x " << s.queries << "/" << s.keys << " x " << s.width
       << "/" << s.value_width << (causal ? ", causal" : "") << (token_major ? ", tokens before heads" : "");
  return text.str();
}

/// The last worker first, so that tiles are done in another order than with one.
inline Run workers(std::int64_t threads) {
  Run run;
  run.threads = threads;
  if (threads > 1)
    run.executor = [](std::int64_t begin, std::int64_t end, std::int64_t, const auto& body) {
      for (std::int64_t n = end - 1; n >= begin; --n) body(n, n + 1);
    };
  return run;
}

/// A call with its numbers, and what it means.
struct Problem {
  Shape shape;
  Attention call;
  std::vector<float> q, k, v, query_scale;
  std::vector<std::int64_t> lengths, offsets, query_documents, key_documents, first_distance;
  std::vector<float> table, slope;
  std::vector<double> query_positions, key_positions, query_sums, key_sums;
  bool token_major = false;

  std::int64_t length(std::int64_t b) const {
    return lengths.empty() ? shape.keys : lengths[static_cast<std::size_t>(b)];
  }
  bool sees(std::int64_t b, std::int64_t i, std::int64_t j) const {
    if (j >= length(b)) return false;
    const std::int64_t index = i + (offsets.empty() ? length(b) - shape.queries : offsets[static_cast<std::size_t>(b)]);
    if (call.visible.causal && j > index) return false;
    const std::int64_t w = call.visible.window;
    if (w > 0 && index - j >= w) return false;
    if (w > 0 && !call.visible.causal && j - index >= w) return false;
    if (!query_documents.empty()) {
      const std::int64_t own = query_documents[static_cast<std::size_t>(b * shape.queries + i)];
      if (own == -1 || own != key_documents[static_cast<std::size_t>(b * shape.keys + j)]) return false;
    }
    return true;
  }
  std::size_t place(std::int64_t heads, std::int64_t tokens, std::int64_t width, std::int64_t b, std::int64_t h,
                    std::int64_t t) const {
    return static_cast<std::size_t>(token_major ? ((b * tokens + t) * heads + h) * width
                                                : ((b * heads + h) * tokens + t) * width);
  }
  std::array<std::int64_t, 3> strides(std::int64_t heads, std::int64_t tokens, std::int64_t width) const {
    if (token_major) return {tokens * heads * width, width, heads * width};
    return {heads * tokens * width, tokens * width, width};
  }
};

inline Problem draw(const Shape& s, unsigned seed = 1, bool token_major = false) {
  Problem p;
  p.shape = s;
  p.token_major = token_major;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<float>& values, std::int64_t count) {
    values.resize(static_cast<std::size_t>(count));
    for (float& value : values) value = normal(random);
  };
  fill(p.q, s.batch * s.heads * s.queries * s.width);
  fill(p.k, s.batch * s.key_heads * s.keys * s.width);
  fill(p.v, s.batch * s.key_heads * s.keys * s.value_width);
  return p;
}

inline void connect(Problem& p) {
  const Shape& s = p.shape;
  Attention& c = p.call;
  c.batch = s.batch, c.heads = s.heads, c.key_heads = s.key_heads, c.queries = s.queries, c.keys = s.keys;
  c.width = s.width, c.value_width = s.value_width;
  c.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(s.width)));
  c.q = {p.q.data(), p.strides(s.heads, s.queries, s.width)};
  c.k = {p.k.data(), p.strides(s.key_heads, s.keys, s.width)};
  c.v = {p.v.data(), p.strides(s.key_heads, s.keys, s.value_width)};
  if (!p.query_scale.empty()) c.query_scale = p.query_scale.data();
  if (!p.lengths.empty()) c.visible.key_lengths = p.lengths.data();
  if (!p.offsets.empty()) c.visible.offsets = p.offsets.data();
  if (!p.query_documents.empty()) {
    c.visible.query_documents = p.query_documents.data();
    c.visible.key_documents = p.key_documents.data();
  }
}

inline double bias_of(const Problem& p, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  double sum = 0;
  for (const Bias& bias : p.call.biases) {
    if (h < bias.first_head || h >= bias.last_head) continue;
    const std::int64_t own = h - bias.first_head;
    if (bias.kind == Bias::Kind::DistanceTable) {
      const std::int64_t n = p.first_distance[static_cast<std::size_t>(b)] + i - j;
      sum += p.table[static_cast<std::size_t>(own * bias.distance_table.count + bias.distance_table.most - n)];
    } else if (bias.kind == Bias::Kind::Slope) {
      sum -= p.slope[static_cast<std::size_t>(own)] *
             std::abs(p.query_positions[static_cast<std::size_t>(b * p.shape.queries + i)] -
                      p.key_positions[static_cast<std::size_t>(b * p.shape.keys + j)]);
    } else {
      const std::int64_t heads = bias.last_head - bias.first_head;
      sum += p.query_sums[static_cast<std::size_t>((b * heads + own) * p.shape.queries + i)] -
             p.key_sums[static_cast<std::size_t>((b * heads + own) * p.shape.keys + j)];
    }
  }
  return sum;
}

struct Result {
  std::vector<double> out, lse;
  double largest_logit = 0;
};

inline Result define(const Problem& p) {
  const Shape& s = p.shape;
  Result result;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t i = 0; i < s.queries; ++i) {
        const std::int64_t kh = h / (s.heads / s.key_heads);
        std::vector<double> logits;
        std::vector<std::int64_t> seen;
        double most = -std::numeric_limits<double>::infinity();
        for (std::int64_t j = 0; j < s.keys; ++j) {
          if (!p.sees(b, i, j)) continue;
          double dot = 0;
          for (std::int64_t c = 0; c < s.width; ++c)
            dot += double(p.q[p.place(s.heads, s.queries, s.width, b, h, i) + static_cast<std::size_t>(c)]) *
                   p.k[p.place(s.key_heads, s.keys, s.width, b, kh, j) + static_cast<std::size_t>(c)];
          if (!p.query_scale.empty()) dot *= p.query_scale[static_cast<std::size_t>((h * s.batch + b) * s.queries + i)];
          logits.push_back(dot * p.call.scale + bias_of(p, b, h, i, j));
          seen.push_back(j);
          most = std::isnan(most) || std::isnan(logits.back()) ? std::numeric_limits<double>::quiet_NaN()
                                                               : std::max(most, logits.back());
          if (std::isfinite(logits.back()))
            result.largest_logit = std::max(result.largest_logit, std::abs(logits.back()));
        }
        double total = 0;
        std::vector<double> row(static_cast<std::size_t>(s.value_width));
        for (std::size_t n = 0; n < seen.size(); ++n) {
          const double weight = std::exp(logits[n] - most);
          total += weight;
          for (std::size_t c = 0; c < row.size(); ++c)
            row[c] += weight * p.v[p.place(s.key_heads, s.keys, s.value_width, b, kh, seen[n]) + c];
        }
        for (double& value : row) result.out.push_back(seen.empty() ? 0 : value / total);
        result.lse.push_back(seen.empty() ? -std::numeric_limits<double>::infinity() : most + std::log(total));
      }
  return result;
}

/// A problem with every bias, over ranges of heads.
inline Problem biased(const Shape& s, bool causal) {
  Problem p = draw(s, 11);
  p.call.visible.causal = causal;
  std::mt19937 random(2);
  std::normal_distribution<double> normal;
  for (std::int64_t b = 0; b < s.batch; ++b) p.first_distance.push_back(s.keys - s.queries + 3 * b);
  const std::int64_t most = s.keys - s.queries + 3 * s.batch + s.queries, count = most + s.keys + 1;
  for (std::int64_t n = 0; n < (s.heads - 1) * count; ++n) p.table.push_back(static_cast<float>(normal(random)));
  for (std::int64_t h = 0; h < s.heads; ++h) p.slope.push_back(static_cast<float>(std::exp2(-h - 1)));
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t i = 0; i < s.queries; ++i)
      p.query_positions.push_back(1e5 + static_cast<double>(s.keys - s.queries + i) * 0.5);
    for (std::int64_t j = 0; j < s.keys; ++j) p.key_positions.push_back(1e5 + static_cast<double>(j) * 0.5);
  }
  for (std::int64_t h = 0; h < s.batch * s.heads; ++h) {
    double sum = 0;
    std::vector<double> sums;
    for (std::int64_t j = 0; j < s.keys; ++j) sums.push_back(sum += -std::abs(normal(random)));
    p.key_sums.insert(p.key_sums.end(), sums.begin(), sums.end());
    p.query_sums.insert(p.query_sums.end(), sums.end() - s.queries, sums.end());
  }
  Bias table, slope, potential;
  table.kind = Bias::Kind::DistanceTable;
  table.first_head = 1, table.last_head = s.heads;
  table.distance_table = {p.table.data(), most, count, p.first_distance.data()};
  slope.kind = Bias::Kind::Slope;
  slope.last_head = s.heads;
  slope.slope = {p.slope.data(), p.query_positions.data(), p.key_positions.data()};
  potential.kind = Bias::Kind::Potential;
  potential.last_head = s.heads;
  potential.potential = {
      p.query_sums.data(), p.key_sums.data(), {s.heads * s.queries, s.queries}, {s.heads * s.keys, s.keys}};
  p.call.biases = {table, slope, potential};
  for (std::int64_t n = 0; n < s.batch * s.heads * s.queries; ++n)
    p.query_scale.push_back(1 + 0.5F * static_cast<float>(normal(random)));
  connect(p);
  return p;
}

}  // namespace torsor::kernel
