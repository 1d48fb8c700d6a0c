// The gradients of fused attention against their definition, pair by pair in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/kernel/problem.h"
#include "tests/kernel/targets.h"

namespace torsor::kernel {
namespace {

/// Gradients of sum(dout * out) + sum(dlse * lse), and for those of the biases the sum of the terms' magnitudes.
struct Expected {
  std::vector<double> q, k, v;
  double q_scale = 0, k_scale = 0;  ///< Euclidean size of q and k if nothing cancelled in the slope of a logit
  std::vector<std::vector<double>> table, slope, query, key;  ///< a bias each
  std::vector<std::vector<double>> table_size, slope_size, query_size, key_size;
};

struct Upstream {
  std::vector<float> dout, dlse;
};

Upstream upstream(const Shape& s, bool with_lse) {
  std::mt19937 random(77);
  std::normal_distribution<float> normal;
  Upstream up;
  for (std::int64_t n = 0; n < s.batch * s.heads * s.queries * s.value_width; ++n) up.dout.push_back(normal(random));
  if (with_lse)
    for (std::int64_t n = 0; n < s.batch * s.heads * s.queries; ++n) up.dlse.push_back(normal(random));
  return up;
}

Expected define_gradients(const Problem& p, const Upstream& up) {
  const Shape& s = p.shape;
  Expected e;
  e.q.assign(p.q.size(), 0), e.k.assign(p.k.size(), 0), e.v.assign(p.v.size(), 0);
  for (const Bias& bias : p.call.biases) {
    const auto heads = static_cast<std::size_t>(bias.last_head - bias.first_head),
               batch = static_cast<std::size_t>(s.batch);
    for (auto* sums : {&e.table, &e.table_size})
      sums->emplace_back(heads * static_cast<std::size_t>(bias.distance_table.count));
    for (auto* sums : {&e.slope, &e.slope_size}) sums->emplace_back(heads);
    for (auto* sums : {&e.query, &e.query_size})
      sums->emplace_back(batch * heads * static_cast<std::size_t>(s.queries));
    for (auto* sums : {&e.key, &e.key_size}) sums->emplace_back(batch * heads * static_cast<std::size_t>(s.keys));
  }
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t i = 0; i < s.queries; ++i) {
        const std::int64_t kh = h / (s.heads / s.key_heads);
        const std::size_t q = p.place(s.heads, s.queries, s.width, b, h, i);
        const auto row = static_cast<std::size_t>((b * s.heads + h) * s.queries + i);
        double factor = p.call.scale;
        if (!p.query_scale.empty())
          factor *= p.query_scale[static_cast<std::size_t>((h * s.batch + b) * s.queries + i)];
        std::vector<std::int64_t> seen;
        std::vector<double> weights, slopes;
        for (std::int64_t j = 0; j < s.keys; ++j) {
          if (!p.sees(b, i, j)) continue;
          const std::size_t k = p.place(s.key_heads, s.keys, s.width, b, kh, j);
          double dot = 0;
          for (std::size_t c = 0; c < static_cast<std::size_t>(s.width); ++c) dot += double(p.q[q + c]) * p.k[k + c];
          seen.push_back(j);
          weights.push_back(dot * factor + bias_of(p, b, h, i, j));
        }
        double most = -std::numeric_limits<double>::infinity(), total = 0, mean = 0;
        for (const double logit : weights) most = std::max(most, logit);
        for (double& weight : weights) total += weight = std::exp(weight - most);
        for (std::size_t n = 0; n < seen.size(); ++n) {
          weights[n] /= total;
          const std::size_t v = p.place(s.key_heads, s.keys, s.value_width, b, kh, seen[n]);
          double dot = 0;
          for (std::size_t c = 0; c < static_cast<std::size_t>(s.value_width); ++c) {
            const double up_here = up.dout[row * static_cast<std::size_t>(s.value_width) + c];
            dot += up_here * p.v[v + c];
            e.v[v + c] += weights[n] * up_here;
          }
          slopes.push_back(dot);
          mean += weights[n] * dot;
        }
        for (std::size_t n = 0; n < seen.size(); ++n) {
          const std::int64_t j = seen[n];
          const double ds = weights[n] * (slopes[n] - mean + (up.dlse.empty() ? 0.0 : double(up.dlse[row])));
          const std::size_t k = p.place(s.key_heads, s.keys, s.width, b, kh, j);
          const double uncancelled = weights[n] * (std::abs(slopes[n]) + std::abs(mean)) * factor;
          for (std::size_t c = 0; c < static_cast<std::size_t>(s.width); ++c) {
            e.q_scale += std::pow(uncancelled * p.k[k + c], 2);
            e.k_scale += std::pow(uncancelled * p.q[q + c], 2);
            e.q[q + c] += ds * factor * p.k[k + c];
            e.k[k + c] += ds * factor * p.q[q + c];
          }
          for (std::size_t m = 0; m < p.call.biases.size(); ++m) {
            const Bias& bias = p.call.biases[m];
            if (h < bias.first_head || h >= bias.last_head) continue;
            const std::int64_t own = h - bias.first_head, heads = bias.last_head - bias.first_head;
            // The slope of a logit is itself a difference; a term's magnitude is that of its parts.
            const double parts = uncancelled / factor + (up.dlse.empty() ? 0.0 : std::abs(weights[n] * up.dlse[row]));
            const auto put = [&](std::vector<double>& sum, std::vector<double>& size, std::int64_t place,
                                 double of_slope) {
              sum[static_cast<std::size_t>(place)] += of_slope * ds;
              size[static_cast<std::size_t>(place)] += std::abs(of_slope) * parts;
            };
            if (bias.kind == Bias::Kind::DistanceTable) {
              const std::int64_t distance = p.first_distance[static_cast<std::size_t>(b)] + i - j;
              put(e.table[m], e.table_size[m], own * bias.distance_table.count + bias.distance_table.most - distance,
                  1);
            } else if (bias.kind == Bias::Kind::Slope) {
              put(e.slope[m], e.slope_size[m], own,
                  -std::abs(p.query_positions[static_cast<std::size_t>(b * s.queries + i)] -
                            p.key_positions[static_cast<std::size_t>(b * s.keys + j)]));
            } else {
              put(e.query[m], e.query_size[m], (b * heads + own) * s.queries + i, 1);
              put(e.key[m], e.key_size[m], (b * heads + own) * s.keys + j, -1);
            }
          }
        }
      }
  e.q_scale = std::sqrt(e.q_scale), e.k_scale = std::sqrt(e.k_scale);
  return e;
}

struct FoundGradients {
  std::vector<float> q, k, v;
  std::vector<std::vector<double>> table, slope, query, key;
};

FoundGradients run(const Problem& p, const Upstream& up, std::int64_t threads = 1) {
  const Shape& s = p.shape;
  std::vector<float> out(static_cast<std::size_t>(s.batch * s.heads * s.queries * s.value_width));
  std::vector<float> lse(static_cast<std::size_t>(s.batch * s.heads * s.queries));
  const std::array<std::int64_t, 3> of_out = {s.heads * s.queries * s.value_width, s.queries * s.value_width,
                                              s.value_width};
  const Run how = workers(threads);
  attention_forward(p.call, how, {out.data(), of_out}, lse.data());
  FoundGradients f;
  f.q.assign(p.q.size(), 7), f.k.assign(p.k.size(), 7), f.v.assign(p.v.size(), 7);
  Gradients g;
  g.q = {f.q.data(), p.call.q.strides};
  g.k = {f.k.data(), p.call.k.strides};
  g.v = {f.v.data(), p.call.v.strides};
  for (const Bias& bias : p.call.biases) {
    const auto heads = static_cast<std::size_t>(bias.last_head - bias.first_head),
               batch = static_cast<std::size_t>(s.batch);
    f.table.emplace_back(heads * static_cast<std::size_t>(bias.distance_table.count), 7);
    f.slope.emplace_back(heads, 7);
    f.query.emplace_back(batch * heads * static_cast<std::size_t>(s.queries), 0);
    f.key.emplace_back(batch * heads * static_cast<std::size_t>(s.keys), 7);
    g.biases.push_back({f.table.back().data(), f.slope.back().data(), f.query.back().data(), f.key.back().data()});
  }
  attention_backward(p.call, how, {out.data(), of_out}, lse.data(), {up.dout.data(), of_out},
                     up.dlse.empty() ? nullptr : up.dlse.data(), g);
  return f;
}

template <class T>
void expect_tensor(const char* name, const std::vector<T>& found, const std::vector<double>& expected, double bound,
                   double scale = 0) {
  double error = 0, size = 0;
  for (std::size_t n = 0; n < expected.size(); ++n) {
    error += std::pow(found[n] - expected[n], 2);
    size += std::pow(expected[n], 2);
  }
  // A gradient that is zero (one key seen: its weight cannot change) is compared with what had to cancel.
  const bool zero = std::sqrt(size) < 1e-12 * scale;
  EXPECT_LE(std::sqrt(error), bound * (zero ? scale : std::sqrt(size))) << name;
}

/// Weights below exp(-87) are 0 in float32.
void expect_terms(const char* name, const std::vector<double>& found, const std::vector<double>& expected,
                  const std::vector<double>& sizes, double bound) {
  for (std::size_t n = 0; n < expected.size(); ++n)
    EXPECT_NEAR(found[n], expected[n], bound * sizes[n] + 1e-35) << name << " " << n;
}

void expect_close(const Problem& p, const FoundGradients& found, const Upstream& up) {
  const Expected e = define_gradients(p, up);
  const double slack = std::max(1.0, define(p).largest_logit / 8);
  expect_tensor("q", found.q, e.q, 1e-6 * slack, e.q_scale);
  expect_tensor("k", found.k, e.k, 1e-6 * slack, e.k_scale);
  expect_tensor("v", found.v, e.v, 1e-6 * slack);
  for (std::size_t m = 0; m < p.call.biases.size(); ++m) {
    if (p.call.biases[m].kind == Bias::Kind::DistanceTable)
      expect_terms("table", found.table[m], e.table[m], e.table_size[m], 1e-6 * slack);
    if (p.call.biases[m].kind == Bias::Kind::Slope)
      expect_terms("slope", found.slope[m], e.slope[m], e.slope_size[m], 1e-6 * slack);
    if (p.call.biases[m].kind == Bias::Kind::Potential) {
      expect_terms("query", found.query[m], e.query[m], e.query_size[m], 1e-6 * slack);
      expect_terms("key", found.key[m], e.key[m], e.key_size[m], 1e-6 * slack);
    }
  }
}

void expect_close(const Problem& p, bool with_lse = false) {
  const Upstream up = upstream(p.shape, with_lse);
  testing::on_every_target([&] { expect_close(p, run(p, up), up); });
}

TEST(FusedBackward, ShapesOfEveryKind) {
  const std::vector<Shape> shapes = {
      {1, 1, 1, 2, 3, 2, 1},    {2, 4, 2, 17, 17, 32, 32},     {1, 2, 1, 1, 300, 64, 64},  {1, 6, 2, 49, 49, 72, 72},
      {2, 1, 1, 5, 70, 16, 24}, {1, 2, 2, 130, 130, 128, 128}, {1, 2, 2, 97, 600, 40, 65}, {1, 1, 1, 300, 300, 64, 64}};
  for (const Shape& shape : shapes)
    for (const bool causal : {true, false})
      for (const bool token_major : {false, true}) {
        SCOPED_TRACE(describe(shape, causal, token_major));
        Problem p = draw(shape, 3, token_major);
        p.call.visible.causal = causal;
        connect(p);
        expect_close(p, token_major);
      }
}

TEST(FusedBackward, MasksAndDocuments) {
  for (const bool causal : {true, false})
    for (const std::int64_t window : {0, 1, 7}) {
      SCOPED_TRACE(::testing::Message() << "causal " << causal << ", window " << window);
      Problem p = draw({3, 2, 1, 65, 200, 16, 16});
      p.call.visible.causal = causal;
      p.call.visible.window = window;
      p.lengths = {200, 65, 3};
      connect(p);
      expect_close(p);
      p.lengths = {0, 1, 200};
      for (int n = 0; n < 3 * 200; ++n) p.key_documents.push_back(n % 13 == 0 ? -1 : n / 50);
      for (int n = 0; n < 3 * 65; ++n) p.query_documents.push_back(n % 11 == 0 ? -1 : n / 17);
      connect(p);
      expect_close(p, true);
    }
}

TEST(FusedBackward, BiasesEachAndTogether) {
  for (const bool causal : {true, false})
    for (const Shape& shape : {Shape{2, 3, 1, 70, 333, 16, 16}, Shape{2, 3, 3, 200, 200, 16, 16}}) {
      SCOPED_TRACE(::testing::Message() << "causal " << causal << ", key heads " << shape.key_heads);
      expect_close(biased(shape, causal), true);
    }
}

TEST(FusedBackward, TwoThousandKeys) {
  Problem p = draw({1, 1, 1, 200, 2048, 64, 64});
  connect(p);
  expect_close(p);
}

TEST(FusedBackward, AnyNumberOfThreadsIsCloseAndOneNumberGivesOneResult) {
  const Problem p = biased({1, 3, 3, 400, 400, 24, 24}, true);
  const Upstream up = upstream(p.shape, true);
  for (const std::int64_t threads : {2, 5}) {  // heads are dealt out among the threads
    const FoundGradients once = run(p, up, threads), again = run(p, up, threads);
    expect_close(p, once, up);
    EXPECT_EQ(once.q, again.q);
    EXPECT_EQ(once.k, again.k);
    EXPECT_EQ(once.v, again.v);
    EXPECT_EQ(once.table, again.table);
    EXPECT_EQ(once.key, again.key);
  }
}

TEST(FusedBackward, EmptyExtents) {
  Problem p = draw({1, 2, 1, 3, 0, 8, 8});
  connect(p);
  for (const float value : run(p, upstream(p.shape, false)).q) EXPECT_EQ(value, 0);
  Problem none = draw({1, 2, 1, 0, 5, 8, 8});
  connect(none);
  const FoundGradients found = run(none, upstream(none.shape, false));
  for (const float value : found.k) EXPECT_EQ(value, 0);
  for (const float value : found.v) EXPECT_EQ(value, 0);
}

}  // namespace
}  // namespace torsor::kernel
