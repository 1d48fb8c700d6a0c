// Calls of fused attention as plain numbers in float64, and how they are drawn. What they mean is in definition.h, how
// the kernel is fed with them in call.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "torsor/kernel/attention.h"

namespace torsor::kernel {

/// Numbers (batch, head, token, channel), contiguous. An extent of 1 is shared by all, and fewer heads than asked for
/// are shared by `group` neighbours each.
struct Tensor {
  std::array<std::int64_t, 4> extent{};
  std::int64_t group = 1;
  std::vector<double> data;

  Tensor() = default;
  Tensor(std::int64_t batch, std::int64_t heads, std::int64_t tokens, std::int64_t width, std::int64_t heads_a_row = 1)
      : extent{batch, heads, tokens, width},
        group(heads_a_row),
        data(static_cast<std::size_t>(batch * heads * tokens * width)) {}

  bool empty() const { return data.empty(); }
  /// Where a number lies, or the one that stands for it.
  std::size_t place(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t c) const {
    const auto of = [&](std::size_t axis, std::int64_t n) { return extent[axis] == 1 ? 0 : n; };
    return static_cast<std::size_t>(((of(0, b) * extent[1] + of(1, h / group)) * extent[2] + of(2, t)) * extent[3] +
                                    of(3, c));
  }
  const double* row(std::int64_t b, std::int64_t h, std::int64_t t) const { return data.data() + place(b, h, t, 0); }
  double* row(std::int64_t b, std::int64_t h, std::int64_t t) { return data.data() + place(b, h, t, 0); }
  double operator()(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t c) const {
    return data[place(b, h, t, c)];
  }
  double& operator()(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t c) { return data[place(b, h, t, c)]; }
};

/// The numbers of a bias that have gradients, and, in the shapes that the kernel writes, those gradients.
struct Parameters {
  Tensor table, slope, level, c, reach, r1, r2, alpha, query, key, left, right, beta;

  using Member = Tensor Parameters::*;
  /// With the pointer that the kernel writes the gradient to.
  struct Name {
    const char* name;
    Member member;
    double* BiasGradient::*gradient;
  };
  static const std::vector<Name>& all();
};

enum class Form { DistanceTable, DistanceLookup, Slope, Log, Power, Piecewise, Potential, Gated, Path, Product };
constexpr std::array<Form, 10> every_form = {Form::DistanceTable, Form::DistanceLookup, Form::Slope,     Form::Log,
                                             Form::Power,         Form::Piecewise,      Form::Potential, Form::Gated,
                                             Form::Path,          Form::Product};
const char* name_of(Form form);
const char* name_of(Factor::Kind kind);

struct FactorNumbers {
  Factor::Kind kind = Factor::Kind::Tag;
  double bound = 2;
  std::vector<std::int64_t> tags, query_groups, key_groups;  ///< (batch, tokens)
};

/// Heads count from first_head in all arrays.
struct BiasNumbers {
  Form form = Form::Slope;
  std::int64_t first_head = 0, last_head = 0;
  Parameters is;
  std::int64_t most = 0;                     ///< the distance of a table's first entry
  std::vector<std::int64_t> first_distance;  ///< (batch)
  Tensor query_positions, key_positions;     ///< (batch, 1, tokens, 1)
  std::vector<double> breaks;                ///< (pieces - 1)
  std::optional<FactorNumbers> factor;

  std::int64_t heads() const { return last_head - first_head; }
  bool has_factor(Factor::Kind kind) const { return factor && factor->kind == kind; }
};

struct Shape {
  std::int64_t batch = 1, heads = 1, key_heads = 1, queries = 1, keys = 1, width = 8, value_width = 8;
};
std::string describe(const Shape& s);

/// A call. The numbers that the kernel reads as float32 or bf16 are such numbers.
struct Problem {
  Shape shape;
  bool half = false;        ///< q, k, v and what comes of them are bf16
  bool half_cache = false;  ///< k and v alone are bf16
  bool wide_out = false;    ///< but for the result, which is float32
  double scale = 1;         ///< 1 / sqrt(width)
  Tensor q, k, v;           ///< (batch | 1, heads or key heads, tokens, width)
  Tensor query_scale;       ///< (batch, heads, queries, 1) or empty
  Tensor carried;           ///< (batch | 1, heads / group, keys, width) or empty
  bool causal = true;
  std::int64_t window = 0;
  std::vector<std::int64_t> lengths, offsets, query_documents, key_documents;
  std::vector<BiasNumbers> biases;

  std::int64_t length(std::int64_t b) const {
    return lengths.empty() ? shape.keys : lengths[static_cast<std::size_t>(b)];
  }
  /// Index of a row's first query among its tokens.
  std::int64_t offset(std::int64_t b) const {
    return offsets.empty() ? length(b) - shape.queries : offsets[static_cast<std::size_t>(b)];
  }
  bool sees(std::int64_t b, std::int64_t i, std::int64_t j) const;
};

/// What the gradients are of: sum(dout out) + sum(dlse lse) + sum(daverages averages); what is empty counts as 0.
struct Incoming {
  Tensor dout, dlse, daverages;
};

// ---------------------------------------------------------------------------------------------------------------------
// How they are drawn

using Random = std::mt19937;

/// Rounds to the type that the kernel reads.
void round_to_float(Tensor& tensor);
void round_to_half(Tensor& tensor);

/// Normal numbers times `size`, rounded to float32.
Tensor normal(Random& random, const std::array<std::int64_t, 4>& extent, double size = 1, std::int64_t group = 1);
/// Even numbers in [least, most], rounded to float32.
Tensor uniform(Random& random, const std::array<std::int64_t, 4>& extent, double least, double most);

/// q, k and v, unit normal.
Problem draw(const Shape& shape, bool causal = true, unsigned seed = 1);
/// Rounds q, k and v to bf16.
void make_half(Problem& p);
/// The same of k and v, beside queries in float32.
void make_half_cache(Problem& p);
/// Values to carry, for groups of `group` query heads; `shared` by the batch.
void carry(Problem& p, std::int64_t width, std::int64_t group, bool shared = false);
/// Documents of random lengths, now and then a token of none. Queries are the last tokens of a row.
void divide_into_documents(Problem& p, unsigned seed = 5);

/// Where the tokens of a row stand: a token's number times step, from `start` on, 7 more for each row of the batch.
struct Places {
  enum class Kind {
    Steps,
    Gaps,     ///< keys were evicted: some steps are longer
    Shuffled  ///< the keys lie in any order
  };
  Kind kind = Kind::Steps;
  double start = 0, step = 1;
};

/// A bias for heads [first_head, last_head), such that the logits stay moderate. It fits the problem as it is: masks
/// come first. `shared`: one row of what may be shared by the batch.
BiasNumbers draw_bias(const Problem& p, Form form, std::int64_t first_head, std::int64_t last_head,
                      const Places& places = {}, std::int64_t width = 8, unsigned seed = 2, bool shared = false);
/// A factor for it, with tokens that have no tag and groups that differ.
void draw_factor(const Problem& p, BiasNumbers& bias, Factor::Kind kind, std::int64_t width, bool groups,
                 unsigned seed = 3);
/// Every form once, over different ranges of heads.
void add_every_form(Problem& p, const Places& places = {}, unsigned seed = 4);
void scale_queries(Problem& p);

Incoming incoming(const Problem& p, bool with_out = true, bool with_lse = true, bool with_averages = true);

}  // namespace torsor::kernel
