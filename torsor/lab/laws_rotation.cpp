#include <algorithm>
#include <cmath>
#include <variant>

#include "torsor/attention/moves.h"
#include "torsor/group/laws.h"
#include "torsor/lab/law_measures.h"

namespace torsor::law {

Turns turns_at(const Tester& t, const std::vector<double>& positions) {
  const std::int64_t axes = t.whole->traits().axes, count = static_cast<std::int64_t>(positions.size());
  const Dimensions& d = t.layer->dimensions();
  const auto moves_of = [&](const at::Tensor& at_positions) {
    const std::int64_t batch = at_positions.size(0), tokens = at_positions.size(1);
    Question question;
    question.parameters = &t.parameters;
    question.layer = t.number;
    question.layers = t.number + 1;
    question.q = at::zeros({batch, d.heads, tokens, d.head_dim}, at::kDouble);
    question.k = at::zeros({batch, d.kv_heads, 1, d.head_dim}, at::kDouble);
    question.x = at::zeros({batch, tokens, d.width}, at::kDouble);
    question.query.positions = at_positions;
    question.key.positions = at::full({batch, 1, axes}, 2 * kFar, at::kDouble);
    return t.layer->moves(question, Role::Query);
  };
  const at::Tensor column = at::tensor(positions, at::kDouble);
  Turns turns;
  bool free = false;
  for (const Move& move : moves_of(column.view({1, -1, 1}).expand({1, count, axes}).contiguous())) {
    if (const Planes* planes = std::get_if<Planes>(&move))
      turns.planes.push_back(
          at::complex(planes->cosine[0].to(at::kDouble).contiguous(), planes->sine[0].to(at::kDouble).contiguous()));
    turns.adds |= std::holds_alternative<AddedVector>(move);
    free |= std::holds_alternative<RankTurn>(move);
  }
  if (!free) return turns;
  // A row a position, a token a channel: what becomes of the unit vectors.
  std::vector<Move> all = moves_of(column.view({-1, 1, 1}).expand({count, d.head_dim, axes}).contiguous());
  std::erase_if(all, [](const Move& move) { return !std::holds_alternative<RankTurn>(move); });
  const at::Tensor unit = at::eye(d.head_dim, at::kDouble).expand({count, d.heads, d.head_dim, d.head_dim});
  turns.matrices = apply_moves(unit, all, Role::Query, t.layer->group(), d.precision).transpose(2, 3);
  return turns;
}

namespace {

std::vector<double> some_positions(Tester& t) {
  std::vector<double> positions = {0, 1, 2, 0.5, -1, -3.5, 100, 12345.5, kFar, -kFar};
  for (int i = 0; i < 6; ++i) positions.push_back(std::round((t.random.uniform() - 0.5) * 4000) / 2);
  return positions;
}

}  // namespace

double identity_error(Tester& t) {
  double worst = 0;
  const Turns zero = turns_at(t, {0});
  for (const at::Tensor& z : zero.planes) worst = std::max(worst, at::imag(z).abs().max().item<double>());
  if (zero.matrices.defined()) worst = std::max(worst, group::identity_error(zero.matrices));
  // Products at equal positions are those at position 0.
  ConformanceCase c = t.attention_case(1, 1);
  const Dimensions& d = t.layer->dimensions();
  const auto product = [&](double position) {
    Question question;
    question.parameters = &t.parameters;
    question.layer = t.number;
    question.layers = c.layers;
    question.q = c.q;
    question.k = c.k;
    question.x = c.x;
    question.query.positions = at::full_like(c.positions_q, position);
    // A second key keeps the length of the document, and with it the frequencies.
    question.key.positions = at::cat({question.query.positions, at::full_like(c.positions_q, 2 * kFar)}, 1);
    question.k = at::cat({c.k, c.k}, 2);
    const auto moved = [&](const at::Tensor& x, Role role) {
      const at::Tensor y = apply_moves(x, t.layer->moves(question, role), role, t.layer->group(), d.precision);
      return t.norm == QkNorm::After ? t.normalised(y, role) : y;
    };
    const at::Tensor queries = moved(question.q, Role::Query), keys = moved(question.k, Role::Key).narrow(2, 0, 1);
    return (queries * keys.repeat_interleave(queries.size(1) / keys.size(1), 1)).sum(-1);
  };
  const at::Tensor at_zero = product(0);
  for (const double position : some_positions(t)) worst = std::max(worst, distance(at_zero, product(position)));
  return worst;
}

double group_error(Tester& t, const GroupLaw& law) {
  std::vector<double> a = some_positions(t), b = some_positions(t), both, minus_a;
  std::reverse(b.begin(), b.end());
  for (std::size_t i = 0; i < a.size(); ++i) {
    both.push_back(a[i] + b[i]);
    minus_a.push_back(-a[i]);
  }
  const Turns of_a = turns_at(t, a), of_b = turns_at(t, b), of_both = turns_at(t, both),
              of_minus = turns_at(t, minus_a), zero = turns_at(t, {0});
  double worst = 0;
  for (std::size_t i = 0; i < of_a.planes.size(); ++i) {
    const at::Tensor magnitude = zero.planes[i].abs();
    const at::Tensor error =
        law.planes(of_a.planes[i], of_b.planes[i], of_both.planes[i], of_minus.planes[i], magnitude);
    worst = std::max(worst, (error.abs() / magnitude.square().clamp_min(1e-300)).max().item<double>());
  }
  if (of_a.matrices.defined())
    worst = std::max(worst, law.matrices(of_a.matrices, of_b.matrices, of_both.matrices, of_minus.matrices));
  return worst;
}

}  // namespace torsor::law
