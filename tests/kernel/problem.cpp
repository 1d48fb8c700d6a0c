#include "tests/kernel/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

namespace torsor::kernel {
namespace {

std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

double even(Random& random, double least, double most) {
  return std::uniform_real_distribution<double>(least, most)(random);
}

/// Both sides' positions.
void place(const Problem& p, BiasNumbers& bias, const Places& places, Random& random) {
  const Shape& s = p.shape;
  bias.query_positions = Tensor(s.batch, 1, s.queries, 1);
  bias.key_positions = Tensor(s.batch, 1, s.keys, 1);
  for (std::int64_t b = 0; b < s.batch; ++b) {
    // Tokens of the row in their order; keys first, so that queries stand at or behind what they see.
    const std::int64_t tokens = std::max(s.keys, p.offset(b) + s.queries) + 1;
    std::vector<double> at;
    double now = places.start + 7.0 * static_cast<double>(b);
    for (std::int64_t t = 0; t < tokens; ++t) {
      at.push_back(now);
      const bool gap = places.kind != Places::Kind::Steps && random() % 8 == 0;
      now += places.step * (gap ? static_cast<double>(1 + random() % 5) : 1.0);
    }
    for (std::int64_t i = 0; i < s.queries; ++i) {
      const std::int64_t t = p.offset(b) + i;  // below 0 where a row has fewer keys than queries
      bias.query_positions(b, 0, i, 0) = t >= 0 ? at[index(t)] : at[0] + places.step * static_cast<double>(t);
    }
    std::vector<double> of_keys(at.begin(), at.begin() + s.keys);
    if (places.kind == Places::Kind::Shuffled) std::shuffle(of_keys.begin(), of_keys.end(), random);
    for (std::int64_t j = 0; j < s.keys; ++j) bias.key_positions(b, 0, j, 0) = of_keys[index(j)];
  }
}

/// The largest distance between any two tokens that may meet, at least 1.
double farthest(const BiasNumbers& bias) {
  double most = 1;
  for (std::int64_t b = 0; b < bias.query_positions.extent[0]; ++b)
    for (std::int64_t i = 0; i < bias.query_positions.extent[2]; ++i)
      for (std::int64_t j = 0; j < bias.key_positions.extent[2]; ++j)
        most = std::max(most, std::abs(bias.query_positions(b, 0, i, 0) - bias.key_positions(b, 0, j, 0)));
  return most;
}

void draw_table(const Problem& p, BiasNumbers& bias, Random& random) {
  const Shape& s = p.shape;
  std::int64_t most = std::numeric_limits<std::int64_t>::min(), least = std::numeric_limits<std::int64_t>::max();
  const auto reach = [&](std::int64_t distance) { most = std::max(most, distance), least = std::min(least, distance); };
  if (bias.form == Form::DistanceTable) {
    // Exactly what occurs, so that a number read in front of the table or behind it is noticed.
    for (std::int64_t b = 0; b < s.batch; ++b) {
      bias.first_distance.push_back(p.offset(b) + 3 * b);
      reach(bias.first_distance.back() + s.queries - 1), reach(bias.first_distance.back() - s.keys + 1);
    }
  } else {
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t i = 0; i < s.queries; ++i)
        for (std::int64_t j = 0; j < s.keys; ++j)
          if (p.sees(b, i, j)) reach(std::llrint(bias.query_positions(b, 0, i, 0) - bias.key_positions(b, 0, j, 0)));
  }
  if (most < least) most = least = 0;  // nobody sees anything
  bias.most = most;
  bias.is.table = normal(random, {1, bias.heads(), 1, most - least + 1});
}

void draw_pieces(const Problem& p, BiasNumbers& bias, const Places& places, double distance, Random& random) {
  const Shape& s = p.shape;
  const std::int64_t pieces = 5;
  Parameters& is = bias.is;
  is.c = Tensor(1, 1, 1, 1);
  is.c.data[0] = 0.37;
  is.reach = Tensor(s.batch, 1, s.queries, 1);
  for (double& value : is.reach.data) value = std::log1p(0.37 * distance) * even(random, 0.8, 1.6);
  for (std::int64_t piece = 0; piece + 1 < pieces; ++piece)
    bias.breaks.push_back((static_cast<double>(piece) + even(random, 0.3, 1)) / static_cast<double>(pieces));
  is.slope = normal(random, {1, bias.heads(), 1, pieces}, 1.5);
  is.level = normal(random, {1, bias.heads(), 1, pieces});
  for (std::int64_t h = 0; h < bias.heads(); ++h)
    for (std::int64_t piece = 1; piece < pieces; ++piece)  // continuous
      is.level(0, h, 0, piece) =
          is.level(0, h, 0, piece - 1) +
          (is.slope(0, h, 0, piece - 1) - is.slope(0, h, 0, piece)) * bias.breaks[index(piece - 1)];
  if (places.kind != Places::Kind::Steps || places.step != 1) return;
  for (std::int64_t b = 0; b < s.batch; ++b)
    bias.first_distance.push_back(
        s.queries > 0 && s.keys > 0
            ? static_cast<std::int64_t>(bias.query_positions(b, 0, 0, 0) - bias.key_positions(b, 0, 0, 0))
            : 0);
}

/// Running sums that start far from 0, as they do late in a long sequence.
void draw_sums(const Problem& p, BiasNumbers& bias, std::int64_t batch, Random& random) {
  const Shape& s = p.shape;
  bias.is.query = Tensor(batch, bias.heads(), s.queries, 1);
  bias.is.key = Tensor(batch, bias.heads(), s.keys, 1);
  const double size = 4.0 / static_cast<double>(std::max<std::int64_t>(s.keys, 8));
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < bias.heads(); ++h) {
      double sum = -12345.678;
      std::vector<double> sums;
      for (std::int64_t t = 0; t < std::max(s.keys, p.offset(b) + s.queries); ++t)
        sums.push_back(sum -= even(random, 0, 2 * size));
      for (std::int64_t j = 0; j < s.keys; ++j) bias.is.key(b, h, j, 0) = sums[index(j)];
      for (std::int64_t i = 0; i < s.queries; ++i)
        bias.is.query(b, h, i, 0) = sums[index(std::max<std::int64_t>(0, p.offset(b) + i))];
    }
}

}  // namespace

const std::vector<Parameters::Name>& Parameters::all() {
  using P = Parameters;
  using G = BiasGradient;
  static const std::vector<Name> names = {{"table", &P::table, &G::table}, {"slope", &P::slope, &G::slope},
                                          {"level", &P::level, &G::level}, {"c", &P::c, &G::c},
                                          {"reach", &P::reach, &G::reach}, {"r1", &P::r1, &G::r1},
                                          {"r2", &P::r2, &G::r2},          {"alpha", &P::alpha, &G::alpha},
                                          {"query", &P::query, &G::query}, {"key", &P::key, &G::key},
                                          {"left", &P::left, &G::left},    {"right", &P::right, &G::right},
                                          {"beta", &P::beta, &G::beta}};
  return names;
}

const char* name_of(Form form) {
  static const std::array<const char*, 10> names = {"distance table", "distance lookup", "slope", "log",  "power",
                                                    "piecewise",      "potential",       "gated", "path", "product"};
  return names[static_cast<std::size_t>(form)];
}

const char* name_of(Factor::Kind kind) {
  static const std::array<const char*, 3> names = {"tag", "tanh", "exp"};
  return names[static_cast<std::size_t>(kind)];
}

std::string describe(const Shape& s) {
  std::ostringstream text;
  text << s.batch << " x " << s.heads << "/" << s.key_heads << " x " << s.queries << "/" << s.keys << " x " << s.width
       << "/" << s.value_width;
  return text.str();
}

bool Problem::sees(std::int64_t b, std::int64_t i, std::int64_t j) const {
  if (j >= length(b)) return false;
  const std::int64_t at = offset(b) + i;
  if (causal && j > at) return false;
  if (window > 0 && at - j >= window) return false;
  if (window > 0 && !causal && j - at >= window) return false;
  if (query_documents.empty()) return true;
  const std::int64_t own = query_documents[index(b * shape.queries + i)];
  return own != -1 && own == key_documents[index(b * shape.keys + j)];
}

void round_to_float(Tensor& tensor) {
  for (double& value : tensor.data) value = static_cast<float>(value);
}

void round_to_half(Tensor& tensor) {
  for (double& value : tensor.data) {
    BFloat16 half;
    narrow(static_cast<float>(value), half);
    value = widen(half);
  }
}

Tensor normal(Random& random, const std::array<std::int64_t, 4>& extent, double size, std::int64_t group) {
  Tensor tensor(extent[0], extent[1], extent[2], extent[3], group);
  std::normal_distribution<double> distribution(0, size);
  for (double& value : tensor.data) value = distribution(random);
  round_to_float(tensor);
  return tensor;
}

Tensor uniform(Random& random, const std::array<std::int64_t, 4>& extent, double least, double most) {
  Tensor tensor(extent[0], extent[1], extent[2], extent[3]);
  for (double& value : tensor.data) value = even(random, least, most);
  round_to_float(tensor);
  return tensor;
}

Problem draw(const Shape& s, bool causal, unsigned seed) {
  Problem p;
  p.shape = s;
  p.causal = causal;
  p.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(s.width)));
  Random random(seed);
  p.q = normal(random, {s.batch, s.heads, s.queries, s.width});
  p.k = normal(random, {s.batch, s.key_heads, s.keys, s.width}, 1, s.heads / s.key_heads);
  p.v = normal(random, {s.batch, s.key_heads, s.keys, s.value_width}, 1, s.heads / s.key_heads);
  return p;
}

void make_half(Problem& p) {
  p.half = true;
  for (Tensor* tensor : {&p.q, &p.k, &p.v}) round_to_half(*tensor);
}

void make_half_cache(Problem& p) {
  p.half_cache = true;
  for (Tensor* tensor : {&p.k, &p.v}) round_to_half(*tensor);
}

void carry(Problem& p, std::int64_t width, std::int64_t group, bool shared) {
  Random random(21);
  p.carried = normal(random, {shared ? 1 : p.shape.batch, p.shape.heads / group, p.shape.keys, width}, 1, group);
}

void divide_into_documents(Problem& p, unsigned seed) {
  Random random(seed);
  p.key_documents.clear(), p.query_documents.clear();
  for (std::int64_t b = 0; b < p.shape.batch; ++b) {
    std::vector<std::int64_t> documents;
    std::int64_t document = 0;
    for (std::int64_t t = 0; t < std::max(p.shape.keys, p.offset(b) + p.shape.queries); ++t) {
      if (random() % 40 == 0) ++document;
      documents.push_back(random() % 17 == 0 ? -1 : document);
    }
    p.key_documents.insert(p.key_documents.end(), documents.begin(), documents.begin() + p.shape.keys);
    for (std::int64_t i = 0; i < p.shape.queries; ++i) {
      const std::int64_t t = p.offset(b) + i;
      p.query_documents.push_back(t < 0 ? -1 : documents[index(t)]);
    }
  }
}

BiasNumbers draw_bias(const Problem& p, Form form, std::int64_t first_head, std::int64_t last_head,
                      const Places& places, std::int64_t width, unsigned seed, bool shared) {
  const Shape& s = p.shape;
  BiasNumbers bias;
  bias.form = form;
  bias.first_head = first_head, bias.last_head = last_head;
  Parameters& is = bias.is;
  Random random(seed * 101 + static_cast<unsigned>(form));
  const std::int64_t heads = bias.heads(), batch = shared ? 1 : s.batch;
  place(p, bias, places, random);
  const double distance = farthest(bias), keys = static_cast<double>(std::max<std::int64_t>(s.keys, 8));
  switch (form) {
    case Form::DistanceTable:
    case Form::DistanceLookup:
      draw_table(p, bias, random);
      break;
    case Form::Slope:
      is.slope = uniform(random, {1, heads, 1, 1}, 2 / distance, 4 / distance);
      break;
    case Form::Log:
      is.r1 = uniform(random, {1, heads, 1, 1}, 0.5, 1.5);
      is.r2 = uniform(random, {1, heads, 1, 1}, 0.05, 1);
      break;
    case Form::Power:
      is.r2 = uniform(random, {1, heads, 1, 1}, 0.3, 1.2);
      is.r1 = uniform(random, {1, heads, 1, 1}, 1, 4);
      for (std::int64_t h = 0; h < heads; ++h) is.r1(0, h, 0, 0) /= std::pow(distance, is.r2(0, h, 0, 0));
      round_to_float(is.r1);
      break;
    case Form::Piecewise:
      draw_pieces(p, bias, places, distance, random);
      break;
    case Form::Potential:
      draw_sums(p, bias, batch, random);
      break;
    case Form::Gated:
      is.query = uniform(random, {batch, heads, s.queries, 1}, 0.5 / distance, 2 / distance);
      is.key = uniform(random, {batch, heads, s.keys, 1}, 0.5 / distance, 2 / distance);
      break;
    case Form::Path:
      is.query = normal(random, {batch, heads, s.queries, width});
      is.key = normal(random, {batch, heads, s.keys, width});
      is.alpha = uniform(random, {1, heads, 1, 1}, 3 / keys, 6 / keys);
      break;
    case Form::Product:
      is.query = normal(random, {batch, heads, s.queries, width}, 1 / std::sqrt(static_cast<double>(width)));
      is.key = normal(random, {batch, heads, s.keys, width});
      break;
  }
  return bias;
}

void draw_factor(const Problem& p, BiasNumbers& bias, Factor::Kind kind, std::int64_t width, bool groups,
                 unsigned seed) {
  const Shape& s = p.shape;
  Random random(seed);
  FactorNumbers factor;
  factor.kind = kind;
  const std::int64_t heads = bias.heads();
  if (kind == Factor::Kind::Tag) {
    bias.is.left = normal(random, {s.batch, heads, s.queries, width}, 0.5);
    for (std::int64_t n = 0; n < s.batch * s.keys; ++n)
      factor.tags.push_back(random() % 5 == 0 ? -1
                                              : static_cast<std::int64_t>(random() % static_cast<unsigned>(width)));
  } else {
    // A product of size 1: tanh bends and some of the exponentials reach their bound.
    factor.bound = 1;
    const double size = 1 / std::sqrt(static_cast<double>(width));
    bias.is.left = normal(random, {s.batch, heads, s.queries, width}, size);
    bias.is.right = normal(random, {s.batch, heads, s.keys, width});
    if (kind == Factor::Kind::Tanh) bias.is.beta = normal(random, {1, heads, 1, 1}, 0.5);
  }
  if (groups) {
    const auto draw_groups = [&](std::int64_t tokens, std::vector<std::int64_t>& to) {
      for (std::int64_t n = 0; n < s.batch * tokens; ++n) {
        const std::int64_t sentence = n % std::max<std::int64_t>(tokens, 1) / 23;
        to.push_back(random() % 9 == 0 ? -1 : sentence % 3);
      }
    };
    draw_groups(s.queries, factor.query_groups);
    draw_groups(s.keys, factor.key_groups);
  }
  bias.factor = factor;
}

void add_every_form(Problem& p, const Places& places, unsigned seed) {
  const std::int64_t heads = p.shape.heads;
  std::int64_t first = 0;
  for (const Form form : every_form) {
    // A range starts at every head in turn.
    p.biases.push_back(
        draw_bias(p, form, first, form == Form::Slope ? heads : std::min(heads, first + 2), places, 6, seed));
    first = (first + 1) % heads;
  }
}

void scale_queries(Problem& p) {
  Random random(31);
  p.query_scale = uniform(random, {p.shape.batch, p.shape.heads, p.shape.queries, 1}, 0.5, 1.5);
}

Incoming incoming(const Problem& p, bool with_out, bool with_lse, bool with_averages) {
  const Shape& s = p.shape;
  Random random(77);
  Incoming in;
  if (with_out) in.dout = normal(random, {s.batch, s.heads, s.queries, s.value_width});
  if (p.half) round_to_half(in.dout);
  if (with_lse) in.dlse = normal(random, {s.batch, s.heads, s.queries, 1});
  if (with_averages && !p.carried.empty())
    in.daverages = normal(random, {s.batch, s.heads, s.queries, p.carried.extent[3]});
  return in;
}

}  // namespace torsor::kernel
