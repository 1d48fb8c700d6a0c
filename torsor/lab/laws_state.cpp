#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include "torsor/base/error.h"
#include "torsor/lab/law_measures.h"

namespace torsor::law {
namespace {

/// A state (.., W) as blocks (.., F, 2, R). Cosines and sines of F planes are blocks (c, s), (-s, c).
at::Tensor as_blocks(const at::Tensor& state, std::int64_t columns) {
  if (columns > 0) return state.unflatten(3, {-1, 2, columns});
  const std::int64_t planes = state.size(3) / 2;
  const at::Tensor c = state.narrow(3, 0, planes), s = state.narrow(3, planes, planes);
  return at::stack({at::stack({c, s}, -1), at::stack({s.neg(), c}, -1)}, -2);
}

at::Tensor as_planes(const at::Tensor& blocks) {  // of what is no reflection
  return at::cat({blocks.select(-2, 0).select(-1, 0), blocks.select(-2, 0).select(-1, 1)}, 3);
}

/// An orthogonal matrix (F, R, R) a plane, of determinant 1 or -1: reflections by drawn vectors, two or one.
at::Tensor orthogonal(Tester& t, std::int64_t planes, std::int64_t columns, bool reflecting) {
  at::Tensor matrix = at::eye(columns, at::kDouble).expand({planes, columns, columns});
  for (int turn = 0; turn < (reflecting ? 1 : 2); ++turn) {
    const at::Tensor v = t.normal({planes, columns, 1});
    const at::Tensor along = at::matmul(v, v.transpose(1, 2)) / v.square().sum({1, 2}, true);
    matrix = at::matmul(matrix, at::eye(columns, at::kDouble) - 2 * along);
  }
  return matrix;
}

/// R where a plane of the layer's states is a block, 0 where it is a cosine and a sine.
std::int64_t block_columns(const Tester& t, const ConformanceCase& c) {
  Question question;
  question.parameters = &t.parameters;
  question.layer = c.layer;
  question.layers = c.layers;
  question.q = c.q;
  question.k = c.k;
  question.query.positions = question.key.positions = c.positions_k;
  question.state = c.state;
  question.x = c.x;
  for (const Move& move : t.layer->moves(question, Role::Query))
    if (const PairBlocks* pairs = std::get_if<PairBlocks>(&move)) return pairs->block.size(-1);
  return 0;
}

/// "out" and "lse" of a and b, and "carried" and "state" of a after `turn` beside those of b.
double turned_distance(const NamedTensors& a, const NamedTensors& b,
                       const std::function<at::Tensor(const at::Tensor&)>& turn) {
  double worst = 0;
  for (const auto& [name, tensor] : a) {
    const bool turns = name == "carried" || name == "state";
    worst = std::max(worst, distance(turns ? turn(tensor) : tensor, b.at(name)));
  }
  return worst;
}

/// The trained tensor whose name ends with `end`, or undefined.
at::Tensor tensor_of(const Tester& t, const std::string& end) {
  for (const auto& [name, tensor] : t.parameters)
    if (name.ends_with(end)) return tensor;
  return {};
}

}  // namespace

std::string order_is_needed(Tester& t) {
  ConformanceCase c = t.attention_case(1, 3);
  c.causal = false;
  try {
    t.full(c);
  } catch (const Refusal& refusal) {
    return refusal.what();
  }
  return "";
}

double permutation_error(Tester& t) {
  ConformanceCase c = t.attention_case(2, kTokens);
  c.causal = false;
  const at::Tensor order = at::argsort(t.normal({kTokens}));
  ConformanceCase other = c;
  for (at::Tensor* tensor : {&other.q, &other.k, &other.v, &other.state})
    if (tensor->defined()) *tensor = tensor->index_select(2, order);
  for (at::Tensor* tensor : {&other.x, &other.mlp_out, &other.positions_q, &other.positions_k})
    if (tensor->defined()) *tensor = tensor->index_select(1, order);
  NamedTensors expected = t.full(c);
  for (auto& [name, tensor] : expected) tensor = tensor.index_select(name == "embedding" ? 1 : 2, order);
  return distance(expected, t.full(other));
}

double phase_error(Tester& t) {
  const ConformanceCase c = t.attention_case(1, kTokens);
  if (!c.state.defined()) return 0;
  const std::int64_t columns = block_columns(t, c), width = columns > 0 ? columns : 2;
  const at::Tensor blocks = as_blocks(c.state, columns);
  const at::Tensor omega = orthogonal(t, blocks.size(3), width, false);
  const auto turned = [&](const at::Tensor& state) {
    const at::Tensor moved = at::matmul(as_blocks(state, columns), omega);
    return columns > 0 ? moved.flatten(3) : as_planes(moved);
  };
  ConformanceCase other = c;
  other.state = turned(c.state);
  return turned_distance(t.full(c), t.full(other), turned);
}

double reflection_error(Tester& t) {
  const ConformanceCase c = t.attention_case(1, kTokens);
  if (!c.state.defined()) return 0;
  const std::int64_t columns = block_columns(t, c), width = columns > 0 ? columns : 2;
  const at::Tensor omega = orthogonal(t, as_blocks(c.state, columns).size(3), width, true);
  const auto turned = [&](const at::Tensor& state) { return at::matmul(as_blocks(state, columns), omega).flatten(3); };
  ConformanceCase other = c;
  other.state = turned(c.state);
  return turned_distance(t.full(c), t.full(other), turned);
}

double bound_error(Tester& t) {
  const ConformanceCase c = t.attention_case(2, kTokens);
  if (!c.state.defined()) return 0;
  const NamedTensors outputs = t.full(c);
  const std::int64_t columns = block_columns(t, c);
  const auto largest = [&](const at::Tensor& state) {
    return as_blocks(state, columns).square().sum({-2, -1}).sqrt().max().item<double>();
  };
  const double before = largest(c.state);
  double worst = 0;
  if (outputs.count("carried")) worst = std::max(worst, largest(outputs.at("carried")) / before - 1);
  if (!outputs.count("state")) return worst;
  double most = before;
  if (const at::Tensor post = tensor_of(t, ".post_attention"); post.defined())
    most *= 1 + (post.dim() == 1 ? post.abs() : post.abs().sum(1)).max().item<double>();
  if (const at::Tensor up = tensor_of(t, ".up_proj"), down = tensor_of(t, ".down_proj"); up.defined()) {
    if (up.dim() != 2 || up.size(1) != c.state.size(1)) return worst;  // a map of other axes has no such bound
    const at::Tensor gate = at::silu(at::matmul(c.mlp_out, tensor_of(t, ".x_proj").t()));
    const at::Tensor matrix = at::einsum("hi,bti,ie->bthe", {down, gate, up}) + at::eye(up.size(1), at::kDouble);
    most *= matrix.abs().sum(-1).max().item<double>();
  }
  return std::max(worst, largest(outputs.at("state")) / most - 1);
}

}  // namespace torsor::law
