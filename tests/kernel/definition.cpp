#include "tests/kernel/definition.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace torsor::kernel {
namespace {

std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

double log_sigmoid(double z) { return std::min(z, 0.0) - std::log1p(std::exp(-std::abs(z))); }
double sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

double dot(const double* left, const double* right, std::int64_t width) {
  double sum = 0;
  for (std::int64_t c = 0; c < width; ++c) sum += left[c] * right[c];
  return sum;
}

/// One pair of a query and a key; h counts from the bias's first head.
struct Pair {
  std::int64_t b, h, i, j;
};

// The value of a bias at a pair. put(parameter, b, h, t, c, derivative) is told how it depends on each number.

template <class Put>
double plain_bias(const BiasNumbers& bias, const Pair& at, const Put& put) {
  const Parameters& is = bias.is;
  const auto [b, h, i, j] = at;
  const auto distance = [&, b = b, i = i, j = j] {
    return bias.query_positions(b, 0, i, 0) - bias.key_positions(b, 0, j, 0);
  };
  switch (bias.form) {
    case Form::DistanceTable:
    case Form::DistanceLookup: {
      std::int64_t entry;
      if (bias.form == Form::DistanceTable) {
        entry = bias.most - (bias.first_distance[index(b)] + i - j);
      } else {  // the nearest whole distance, halves to even, and the nearest entry of it
        entry = std::clamp<std::int64_t>(bias.most - std::llrint(distance()), 0, is.table.extent[3] - 1);
      }
      put(&Parameters::table, 0, h, 0, entry, 1);
      return is.table(0, h, 0, entry);
    }
    case Form::Slope: {
      const double n = std::abs(distance());
      put(&Parameters::slope, 0, h, 0, 0, -n);
      return -is.slope(0, h, 0, 0) * n;
    }
    case Form::Log: {
      const double n = std::abs(distance()), r1 = is.r1(0, h, 0, 0), r2 = is.r2(0, h, 0, 0);
      put(&Parameters::r1, 0, h, 0, 0, -std::log1p(r2 * n));
      put(&Parameters::r2, 0, h, 0, 0, -r1 * n / (1 + r2 * n));
      return -r1 * std::log1p(r2 * n);
    }
    case Form::Power: {
      const double n = std::abs(distance()), r1 = is.r1(0, h, 0, 0), r2 = is.r2(0, h, 0, 0);
      if (n == 0) return 0;
      const double power = std::pow(n, r2);
      put(&Parameters::r1, 0, h, 0, 0, -power);
      put(&Parameters::r2, 0, h, 0, 0, -r1 * power * std::log(n));
      return -r1 * power;
    }
    case Form::Piecewise: {
      const double n = distance(), c = is.c(0, 0, 0, 0), reach = is.reach(b, 0, i, 0);
      const double u = std::log1p(std::abs(c * n)) / reach;
      std::int64_t piece = 0;
      while (piece < static_cast<std::int64_t>(bias.breaks.size()) && u > bias.breaks[index(piece)]) ++piece;
      const double slope = is.slope(0, h, 0, piece), sign = c > 0 ? 1 : c < 0 ? -1 : 0;
      put(&Parameters::slope, 0, h, 0, piece, u);
      put(&Parameters::level, 0, h, 0, piece, 1);
      put(&Parameters::c, 0, h, 0, 0, slope * sign * std::abs(n) / (1 + std::abs(c * n)) / reach);
      put(&Parameters::reach, b, h, i, 0, -slope * u / reach);
      return slope * u + is.level(0, h, 0, piece);
    }
    case Form::Potential:
      put(&Parameters::query, b, h, i, 0, 1);
      put(&Parameters::key, b, h, j, 0, -1);
      return is.query(b, h, i, 0) - is.key(b, h, j, 0);
    case Form::Gated: {
      const double n = distance();
      double rate = 0;
      if (!is.query.empty()) {
        rate += is.query(b, h, i, 0);
        put(&Parameters::query, b, h, i, 0, -n);
      }
      if (!is.key.empty()) {
        rate += is.key(b, h, j, 0);
        put(&Parameters::key, b, h, j, 0, -n);
      }
      return -n * rate;
    }
    case Form::Product: {
      const std::int64_t width = is.query.extent[3];
      const double *query = is.query.row(b, h, i), *key = is.key.row(b, h, j);
      for (std::int64_t c = 0; c < width; ++c) {
        put(&Parameters::query, b, h, i, c, key[c]);
        put(&Parameters::key, b, h, j, c, query[c]);
      }
      return dot(query, key, width);
    }
    case Form::Path:
      break;  // needs the whole row
  }
  return 0;
}

/// The factor of a bias whose value without it is `base`.
template <class Put>
double factor_of(const BiasNumbers& bias, const Pair& at, double base, const Put& put) {
  const FactorNumbers& factor = *bias.factor;
  const Parameters& is = bias.is;
  const auto [b, h, i, j] = at;
  if (!factor.query_groups.empty()) {
    const std::int64_t own = factor.query_groups[index(b * bias.query_positions.extent[2] + i)],
                       other = factor.key_groups[index(b * bias.key_positions.extent[2] + j)];
    if (own == -1 || own != other) return 1;
  }
  if (factor.kind == Factor::Kind::Tag) {
    const std::int64_t tag = factor.tags[index(b * bias.key_positions.extent[2] + j)];
    if (tag == -1) return 1;
    put(&Parameters::left, b, h, i, tag, base);
    return 1 + is.left(b, h, i, tag);
  }
  const std::int64_t width = is.left.extent[3];
  const double *left = is.left.row(b, h, i), *right = is.right.row(b, h, j);
  const double inner = dot(left, right, width);
  double value, slope;
  if (factor.kind == Factor::Kind::Tanh) {
    const double beta = is.beta(0, h, 0, 0), bent = std::tanh(inner);
    value = 1 + beta * bent;
    slope = beta * (1 - bent * bent);
    put(&Parameters::beta, 0, h, 0, 0, base * bent);
  } else {
    value = std::exp(std::clamp(inner, -factor.bound, factor.bound));
    slope = std::abs(inner) > factor.bound ? 0 : value;
  }
  for (std::int64_t c = 0; c < width; ++c) {
    put(&Parameters::left, b, h, i, c, base * slope * right[c]);
    put(&Parameters::right, b, h, j, c, base * slope * left[c]);
  }
  return value;
}

template <class Put>
double pair_bias(const BiasNumbers& bias, const Pair& at, const Put& put) {
  if (!bias.factor) return plain_bias(bias, at, put);
  const auto nothing = [](auto&&...) {};
  const double factor = factor_of(bias, at, 0, nothing);
  const double base = plain_bias(bias, at,
                                 [&](Parameters::Member which, std::int64_t b, std::int64_t h, std::int64_t t,
                                     std::int64_t c, double slope) { put(which, b, h, t, c, slope * factor); });
  factor_of(bias, at, base, put);
  return base * factor;
}

/// One query of one head, and the keys that it sees.
struct Row {
  std::int64_t b = 0, h = 0, i = 0;
  std::vector<std::int64_t> seen;  ///< ascending
  std::vector<double> logits;
  double most = -std::numeric_limits<double>::infinity(), total = 0;  ///< sum of exp(logit - most)
};

bool holds(const BiasNumbers& bias, std::int64_t head) { return head >= bias.first_head && head < bias.last_head; }

void add_path(const BiasNumbers& bias, Row& row) {
  const Parameters& is = bias.is;
  const std::int64_t h = row.h - bias.first_head, width = is.query.extent[3];
  double sum = 0;
  for (std::size_t n = row.seen.size(); n-- > 0;) {
    row.logits[n] += is.alpha(0, h, 0, 0) * sum;
    sum += log_sigmoid(dot(is.query.row(row.b, h, row.i), is.key.row(row.b, h, row.seen[n]), width) /
                       static_cast<double>(width));
  }
}

double query_scale(const Problem& p, const Row& row) {
  return p.query_scale.empty() ? p.scale : p.scale * p.query_scale(row.b, row.h, row.i, 0);
}

Row define_row(const Problem& p, std::int64_t b, std::int64_t h, std::int64_t i) {
  Row row{b, h, i, {}, {}};
  const double scale = query_scale(p, row);
  for (std::int64_t j = 0; j < p.shape.keys; ++j) {
    if (!p.sees(b, i, j)) continue;
    row.seen.push_back(j);
    row.logits.push_back(scale * dot(p.q.row(b, h, i), p.k.row(b, h, j), p.shape.width));
    for (const BiasNumbers& bias : p.biases)
      if (bias.form != Form::Path && holds(bias, h))
        row.logits.back() += pair_bias(bias, {b, h - bias.first_head, i, j}, [](auto&&...) {});
  }
  for (const BiasNumbers& bias : p.biases)
    if (bias.form == Form::Path && holds(bias, h)) add_path(bias, row);
  for (const double logit : row.logits)
    row.most = std::isnan(row.most) || std::isnan(logit) ? std::numeric_limits<double>::quiet_NaN()
                                                         : std::max(row.most, logit);
  for (const double logit : row.logits) row.total += std::exp(logit - row.most);
  return row;
}

void average(const Row& row, const Tensor& values, Tensor& to, Tensor& sizes) {
  double *sum = to.row(row.b, row.h, row.i), *size = sizes.row(row.b, row.h, row.i);
  for (std::size_t n = 0; n < row.seen.size(); ++n) {
    const double weight = std::exp(row.logits[n] - row.most) / row.total;
    const double* value = values.row(row.b, row.h, row.seen[n]);
    for (std::int64_t c = 0; c < values.extent[3]; ++c) {
      sum[c] += weight * value[c];
      size[c] += std::abs(weight * value[c]);
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Gradients

/// The slope of the result in the logit of a pair, and the sum of the magnitudes of its parts.
struct Slope {
  double value, parts;
};

void add_path_gradients(const BiasNumbers& bias, const Row& row, const std::vector<Slope>& slopes, Parameters& sum,
                        Parameters& size) {
  const Parameters& is = bias.is;
  const std::int64_t b = row.b, h = row.h - bias.first_head, i = row.i, width = is.query.extent[3];
  const double alpha = is.alpha(0, h, 0, 0), *query = is.query.row(b, h, i);
  // The edge of key l counts for every key in front of it.
  Slope before{0, 0};
  double along = 0;
  std::vector<double> edges;
  for (std::size_t n = 0; n < row.seen.size(); ++n) {
    const double* key = is.key.row(b, h, row.seen[n]);
    const double z = dot(query, key, width) / static_cast<double>(width);
    edges.push_back(log_sigmoid(z));
    const double slope = alpha * sigmoid(-z) / static_cast<double>(width);
    for (std::int64_t c = 0; c < width; ++c) {
      sum.query(b, h, i, c) += slope * before.value * key[c];
      size.query(b, h, i, c) += std::abs(slope * key[c]) * before.parts;
      sum.key(b, h, row.seen[n], c) += slope * before.value * query[c];
      size.key(b, h, row.seen[n], c) += std::abs(slope * query[c]) * before.parts;
    }
    before.value += slopes[n].value;
    before.parts += slopes[n].parts;
  }
  for (std::size_t n = row.seen.size(); n-- > 0;) {
    sum.alpha(0, h, 0, 0) += slopes[n].value * along;
    size.alpha(0, h, 0, 0) += slopes[n].parts * std::abs(along);
    along += edges[n];
  }
}

void add_bias_gradients(const BiasNumbers& bias, const Row& row, const std::vector<Slope>& slopes, Parameters& sum,
                        Parameters& size) {
  if (bias.form == Form::Path) return add_path_gradients(bias, row, slopes, sum, size);
  for (std::size_t n = 0; n < row.seen.size(); ++n)
    pair_bias(bias, {row.b, row.h - bias.first_head, row.i, row.seen[n]},
              [&](Parameters::Member which, std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t c,
                  double of_number) {
                (sum.*which)(b, h, t, c) += of_number * slopes[n].value;
                (size.*which)(b, h, t, c) += std::abs(of_number) * slopes[n].parts;
              });
}

/// Adds what comes through the averages of `values` with gradient `in` to the slopes of the weights.
void pull_average(const Row& row, const Tensor& values, const Tensor& in, const std::vector<double>& weights,
                  Tensor& sum, Tensor& size, std::int64_t head, std::vector<double>& slopes) {
  const double* pull = in.row(row.b, row.h, row.i);
  const std::int64_t width = values.extent[3];
  for (std::size_t n = 0; n < row.seen.size(); ++n) {
    slopes[n] += dot(pull, values.row(row.b, row.h, row.seen[n]), width);
    double *sums = sum.row(row.b, head, row.seen[n]), *sizes = size.row(row.b, head, row.seen[n]);
    for (std::int64_t c = 0; c < width; ++c) {
      sums[c] += weights[n] * pull[c];
      sizes[c] += std::abs(weights[n] * pull[c]);
    }
  }
}

void add_gradients(const Problem& p, const Incoming& in, const Row& row, Defined& found) {
  const auto [b, h, i] = std::array{row.b, row.h, row.i};
  const std::int64_t key_head = h / (p.shape.heads / p.shape.key_heads);
  std::vector<double> weights, pulls(row.seen.size());
  for (const double logit : row.logits) weights.push_back(std::exp(logit - row.most) / row.total);
  if (!in.dout.empty()) pull_average(row, p.v, in.dout, weights, found.sums.v, found.sizes.v, key_head, pulls);
  if (!in.daverages.empty())
    pull_average(row, p.carried, in.daverages, weights, found.sums.carried, found.sizes.carried, h, pulls);
  double mean = 0;
  for (std::size_t n = 0; n < row.seen.size(); ++n) mean += weights[n] * pulls[n];
  const double of_lse = in.dlse.empty() ? 0 : in.dlse(b, h, i, 0);
  std::vector<Slope> slopes;
  for (std::size_t n = 0; n < row.seen.size(); ++n)
    slopes.push_back({weights[n] * (pulls[n] - mean + of_lse),
                      weights[n] * (std::abs(pulls[n]) + std::abs(mean) + std::abs(of_lse))});

  const double scale = query_scale(p, row);
  const double* q = p.q.row(b, h, i);
  for (std::size_t n = 0; n < row.seen.size(); ++n) {
    const std::int64_t j = row.seen[n];
    const double* k = p.k.row(b, h, j);
    double *dq = found.sums.q.row(b, h, i), *dk = found.sums.k.row(b, key_head, j);
    double *q_size = found.sizes.q.row(b, h, i), *k_size = found.sizes.k.row(b, key_head, j);
    for (std::int64_t c = 0; c < p.shape.width; ++c) {
      dq[c] += slopes[n].value * scale * k[c];
      dk[c] += slopes[n].value * scale * q[c];
      q_size[c] += slopes[n].parts * std::abs(scale * k[c]);
      k_size[c] += slopes[n].parts * std::abs(scale * q[c]);
    }
  }
  for (std::size_t m = 0; m < p.biases.size(); ++m)
    if (holds(p.biases[m], h))
      add_bias_gradients(p.biases[m], row, slopes, found.sums.biases[m], found.sizes.biases[m]);
}

}  // namespace

GradientNumbers gradient_shapes(const Problem& p) {
  const Shape& s = p.shape;
  GradientNumbers zero;
  zero.q = Tensor(s.batch, s.heads, s.queries, s.width);
  zero.k = Tensor(s.batch, s.key_heads, s.keys, s.width);
  zero.v = Tensor(s.batch, s.key_heads, s.keys, s.value_width);
  if (!p.carried.empty()) zero.carried = Tensor(s.batch, s.heads, s.keys, p.carried.extent[3]);
  for (const BiasNumbers& bias : p.biases) {
    const std::int64_t heads = bias.heads();
    const auto for_heads = [&](const Tensor& of) { return of.empty() ? of : Tensor(1, heads, 1, of.extent[3]); };
    const auto for_tokens = [&](const Tensor& of, std::int64_t tokens) {
      return of.empty() ? of : Tensor(s.batch, heads, tokens, of.extent[3]);
    };
    Parameters of;
    for (const Parameters::Member member : {&Parameters::table, &Parameters::slope, &Parameters::level, &Parameters::c,
                                            &Parameters::r1, &Parameters::r2, &Parameters::alpha, &Parameters::beta})
      of.*member = for_heads(bias.is.*member);
    for (const Parameters::Member member : {&Parameters::reach, &Parameters::query, &Parameters::left})
      of.*member = for_tokens(bias.is.*member, s.queries);
    for (const Parameters::Member member : {&Parameters::key, &Parameters::right})
      of.*member = for_tokens(bias.is.*member, s.keys);
    zero.biases.push_back(of);
  }
  return zero;
}

Result define(const Problem& p) {
  const Shape& s = p.shape;
  Result result;
  result.out = result.out_sizes = Tensor(s.batch, s.heads, s.queries, s.value_width);
  result.lse = Tensor(s.batch, s.heads, s.queries, 1);
  if (!p.carried.empty())
    result.averages = result.averages_sizes = Tensor(s.batch, s.heads, s.queries, p.carried.extent[3]);
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t i = 0; i < s.queries; ++i) {
        const Row row = define_row(p, b, h, i);
        for (const double logit : row.logits)
          if (std::isfinite(logit)) result.largest_logit = std::max(result.largest_logit, std::abs(logit));
        result.lse(b, h, i, 0) =
            row.seen.empty() ? -std::numeric_limits<double>::infinity() : row.most + std::log(row.total);
        average(row, p.v, result.out, result.out_sizes);
        if (!p.carried.empty()) average(row, p.carried, result.averages, result.averages_sizes);
      }
  return result;
}

Defined define_gradients(const Problem& p, const Incoming& in) {
  Defined found{gradient_shapes(p), gradient_shapes(p)};
  for (std::int64_t b = 0; b < p.shape.batch; ++b)
    for (std::int64_t h = 0; h < p.shape.heads; ++h)
      for (std::int64_t i = 0; i < p.shape.queries; ++i) add_gradients(p, in, define_row(p, b, h, i), found);
  return found;
}

}  // namespace torsor::kernel
