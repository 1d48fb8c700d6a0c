// The answers that an encoding gives: what moves q and k, what scales a logit, what is added to it.
//
// The attention core (torsor/attention) and the model know these structs and nothing else about an encoding.
// Shapes: B batch, Hq query heads, Hk key heads, Tq queries, Tk keys, D head width. Where a leading extent is written
// "B|1" a 1 stands for every row; "H" is the number of heads in the answer's own range.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "torsor/group/planes.h"

namespace torsor {

/// Query heads [begin, end) that an answer holds for. For key-side answers the range is that of the groups that the
/// query heads read (the begin and end divided by the group size; an encoding never cuts a group).
struct HeadRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};

enum class Role { Query, Key };

// ---------------------------------------------------------------------------------------------------------------------
// How q and k move

/// Planes with one complex number a token, not necessarily of length 1: (x_a + i x_b) * (cosine + i sine).
/// Planes are numbered block by block (Layout has the channels); cosine and sine already carry the magnitude.
struct Planes {
  HeadRange heads;
  Layout layout = Layout::Half;
  std::int64_t offset = 0;  ///< first channel of the span
  std::int64_t width = 0;   ///< channels of the span; planes = width / 2
  std::int64_t blocks = 1;
  at::Tensor cosine;  ///< (B|1, G, T, planes); G = 1 or the number of *key heads* in the range, for either side
  at::Tensor sine;    ///< as cosine
};

/// A magnitude per plane that depends on the distance only: the product of plane i is multiplied by
/// exp(rate_i * (p_q - p_k)). It is applied tile by tile from the positions, because a factor exp(rate * p) a token
/// overflows (xPos, encodings.md C11); a cache keeps its keys without it.
struct Decay {
  HeadRange heads;
  Layout layout = Layout::Half;
  std::int64_t offset = 0;
  std::int64_t width = 0;
  std::int64_t blocks = 1;
  at::Tensor rate;  ///< (planes) float64
};

/// A vector a head that is added to every query (or key), before any plane turns (Transformer-XL's u): one for all
/// tokens, or one a token.
struct AddedVector {
  HeadRange heads;
  at::Tensor vector;  ///< (H, D), or (B|1, H, T, D) for the tokens of the side; of keys, H counts key heads
};

/// exp(turn L) with L = sum_i frequency_i (a_i b_i^T - b_i a_i^T): a rotation in the span of the generator, the
/// identity across it (GRAPE). The planes need not be orthogonal to each other, so there are no cosines and sines to
/// hand over: generator and turn are what gradients reach.
struct RankTurn {
  HeadRange heads;
  at::Tensor generator;  ///< (G, D, r) float64, columns a_0 b_0 a_1 b_1 ...; G = 1 or the *key heads* of the range
  at::Tensor frequency;  ///< (G, r / 2) float64, radians a unit of turn where a and b are orthonormal
  at::Tensor turn;       ///< (B|1, 1 or G, T) float64: positions, or what stands for them
};

/// Every vector, as a row, times a matrix of its head. Queries and keys are given the same orthogonal one: what turns
/// after it turns in the basis of its columns, and the way back cancels in the product.
struct Basis {
  HeadRange heads;
  at::Tensor matrix;  ///< (G, D, D) float64; G = 1 or the *key heads* of the range
};

/// Every key head once for each query head that reads it, so that later moves of the same list may move these apart;
/// queries stay. Where a later answer speaks of key heads, it means one a query head.
struct Widen {
  HeadRange heads;  ///< all of them
};

/// Every plane's pair of channels, as a row, times a block of its own token: (x_a, x_b) E, R numbers a plane, so that
/// the width of the span becomes planes * R. With E = [[cos, sin], [-sin, cos]] it is Planes, in another order of
/// channels; an E that reflects or has R > 2 columns is not (TAPE's general form, arXiv:2501.00712).
struct PairBlocks {
  HeadRange heads;  ///< all of them where R is not 2: heads of one tensor are equally wide
  Layout layout = Layout::Half;
  std::int64_t offset = 0;
  std::int64_t width = 0;
  std::int64_t blocks = 1;
  at::Tensor block;  ///< (B|1, G, T, planes, 2, R); G as in Planes
};

using Move = std::variant<AddedVector, Planes, RankTurn, Basis, Widen, PairBlocks>;

// ---------------------------------------------------------------------------------------------------------------------
// What scales the logit

/// Multiplies q.k (and nothing else).
struct LogitScale {
  HeadRange heads;
  at::Tensor query;  ///< (B|1, Tq) float64, one factor a query
};

// ---------------------------------------------------------------------------------------------------------------------
// What is added to the logit. n is the distance p_q - p_k; |n| where a form says distance.

/// -slope_h * |n|
struct LinearForm {
  at::Tensor slope;  ///< (H)
};

/// How a real distance becomes a row of a table. The nearest whole distance is taken, halves to even.
struct Buckets {
  enum class Far { Clamp, Wrap, Log };
  std::int64_t buckets = 32;
  std::int64_t max_distance = 128;
  bool bidirectional = false;
  Far far = Far::Clamp;
};

/// table[h][bucket(n)]
struct TableForm {
  Buckets rule;
  at::Tensor table;  ///< (buckets, H)
};

/// -r1 ln(1 + r2 |n|)
struct LogForm {
  at::Tensor r1, r2;  ///< (H)
};

/// -r1 |n|^r2
struct PowerForm {
  at::Tensor r1, r2;  ///< (H)
};

/// sum_i cos(n w_i) * weight_h
struct CosineForm {
  at::Tensor frequency;  ///< (F) float64
  at::Tensor weight;     ///< (H) float64
};

/// A ReLU network of one input, ln(1 + |c n|) / (ln(1 + |c max(p_q, |mu length|)|) + epsilon): piecewise linear.
struct PiecewiseForm {
  at::Tensor w1, b1;  ///< (hidden)
  at::Tensor w2;      ///< (H, hidden)
  at::Tensor b2;      ///< (H)
  at::Tensor c, mu;   ///< (1)
  double length = 512;
  double epsilon = 1e-6;
};

/// query_i - key_j: a difference of running sums (FoX)
struct PotentialForm {
  at::Tensor query;  ///< (B|1, H, Tq) float64
  at::Tensor key;    ///< (B|1, H, Tk) float64
};

/// -n * omega_h * (query_i + key_j); refuses a negative distance between tokens that see each other
struct GatedForm {
  at::Tensor omega;  ///< (H)
  at::Tensor query;  ///< (B|1, H, Tq) or undefined
  at::Tensor key;    ///< (B|1, H, Tk) or undefined
};

/// alpha_h * sum over keys l in (j, i] of logsigmoid(<query_i, key_l> / P): an integral along token order
struct PathForm {
  at::Tensor query;  ///< (B, H, Tq, P)
  at::Tensor key;    ///< (B, H, Tk, P)
  at::Tensor alpha;  ///< (H)
};

/// <query_i, key_j>: any product of per-token vectors. Real distances come through angle addition (Transformer-XL).
struct ProductForm {
  at::Tensor query;  ///< (B|1, H, Tq, W)
  at::Tensor key;    ///< (B|1, G, Tk, W); G = 1, the key heads of the range, or H
};

/// Interpolated table at a cumulative gate count (CoPE): gates are sigmoids of the finished logit, counted from the key
/// to the query and clamped to length - 1.
struct ContentForm {
  at::Tensor query;  ///< (B, H, Tq, D): q unscaled, before any move
  at::Tensor table;  ///< (length, D)
};

struct BiasForm;

/// A multiplier of one form, exactly 1 where a token has no tag or the groups (sentences) differ. The kinds from
/// Product on are computed on the reference path alone.
struct FactorForm {
  enum class Kind {
    Tag,      ///< 1 + left[i, tag_j]
    Tanh,     ///< 1 + beta tanh <left_i, right_j>
    Exp,      ///< exp(clamp(<left_i, right_j>, -bound, bound))
    Product,  ///< shape of z = <left_i, right_j>
    Network,  ///< shape of z = <weight, gelu(left_i + right_j)> + level
    Pairs     ///< 1 + pair_value where the pair is listed, else 1
  };
  /// What becomes of a pair's z.
  enum class Shape {
    Linear,      ///< 1 + beta z
    Tanh,        ///< 1 + beta tanh z
    Exp,         ///< exp(clamp(beta z, -bound, bound))
    Clamp,       ///< max(1 + beta z, 0)
    ClampedTanh  ///< max(1 + beta tanh z, 0)
  };
  Kind kind = Kind::Tag;
  Shape shape = Shape::Linear;  ///< for Product and Network
  std::shared_ptr<const BiasForm> base;
  at::Tensor left;           ///< (B, H|1, Tq, tags or R)
  at::Tensor right;          ///< (B, H|1, Tk, R) for all but Tag and Pairs
  at::Tensor tag;            ///< (B, Tk) int64, -1 where there is none; for Tag
  at::Tensor beta;           ///< (H) for Tanh, Product and Network; undefined = 1 (not for Tanh)
  double bound = 2;          ///< for Exp
  at::Tensor weight, level;  ///< (R), (1) for Network
  at::Tensor pair_start;     ///< (B, Tq + 1) int64: query i of row b has the pairs from [b, i] to [b, i + 1], for Pairs
  at::Tensor pair_key;       ///< (pairs) int64: their keys, each once a query
  at::Tensor pair_value;     ///< (pairs)
  at::Tensor group_query, group_key;  ///< (B, T) int64, -1 = none; undefined = all tokens are of one group
};

/// What <q_i, k_j> gains when each plane's angle n w becomes n w F_ij, F a factor (which has no base):
///   weight * sum over planes (q_a k_a + q_b k_b)(cos(n w F) - cos(n w)) + (q_a k_b - q_b k_a)(sin(n w F) - sin(n w))
/// F does not fall into a part of the query and one of the key, so this costs a number a pair and plane.
struct StretchForm {
  at::Tensor query;      ///< (B, H, Tq, D) before any plane turns
  at::Tensor key;        ///< (B, G, Tk, D), G the key heads of the range
  at::Tensor frequency;  ///< (1 or G, planes) float64, radians a position
  Layout layout = Layout::Half;
  std::int64_t offset = 0, width = 0, blocks = 1;  ///< as in Planes
  double weight = 1;
  std::shared_ptr<const FactorForm> factor;
};

struct BiasForm {
  HeadRange heads;
  std::variant<LinearForm, TableForm, LogForm, PowerForm, CosineForm, PiecewiseForm, PotentialForm, GatedForm, PathForm,
               ProductForm, ContentForm, FactorForm, StretchForm>
      form;
};

// ---------------------------------------------------------------------------------------------------------------------
// What attention carries along

/// Values that attention averages with the same weights in the same pass.
struct Carried {
  at::Tensor values;  ///< (B|1, Hw, Tk, Dw) float32 (float64 on the float64 path); Hw in {1, Hk, Hq}
};

}  // namespace torsor
