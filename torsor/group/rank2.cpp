#include "torsor/group/rank2.h"

#include <torch/csrc/autograd/custom_function.h>

#include "torsor/base/error.h"
#include "torsor/group/coefficients.h"
#include "torsor/group/heads.h"

namespace torsor::group {
namespace {

// Coefficients of one call, (B|1, G, 1, T) float64, and what they multiply.
struct Closed {
  PlaneGauge gauge;
  at::Tensor eta, c1, c2;
  Coefficients g;
};

at::Tensor by_group(const at::Tensor& of_groups) { return of_groups.view({1, -1, 1, 1}); }

Closed closed_form(const at::Tensor& a, const at::Tensor& b, const at::Tensor& eta, bool slopes) {
  Closed closed;
  closed.gauge = fix_gauge(a, b);
  closed.eta = eta.to(at::kDouble).unsqueeze(2);  // (B|1, G|1, 1, T)
  const at::Tensor area = by_group(closed.gauge.alpha * closed.gauge.beta);
  closed.g = coefficients(closed.eta * closed.eta * area, slopes);
  closed.c1 = closed.eta * closed.g.g1;
  closed.c2 = closed.eta * closed.eta * closed.g.g2;
  return closed;
}

/// (a.x, b.x) of every token, (B, G, heads of a group, T) float64 each.
std::pair<at::Tensor, at::Tensor> dots(const at::Tensor& grouped, const PlaneGauge& gauge) {
  const at::Tensor frame = at::stack({gauge.a, gauge.b}, 2).to(grouped.scalar_type()).unsqueeze(1);  // (G, 1, D, 2)
  const at::Tensor both = at::matmul(grouped, frame).to(at::kDouble);
  return {both.select(-1, 0), both.select(-1, 1)};
}

/// grouped + a p + b q
at::Tensor add_frame(const at::Tensor& grouped, const PlaneGauge& gauge, const at::Tensor& p, const at::Tensor& q) {
  const at::Tensor frame = at::stack({gauge.a, gauge.b}, 1).to(grouped.scalar_type()).unsqueeze(1);  // (G, 1, 2, D)
  return grouped + at::matmul(at::stack({p, q}, -1).to(grouped.scalar_type()), frame);
}

struct PlaneTurn : public torch::autograd::Function<PlaneTurn> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& a,
                            const at::Tensor& b, const at::Tensor& eta) {
    context->save_for_backward({x, a, b, eta});
    const Closed closed = closed_form(a, b, eta, false);
    const at::Tensor grouped = split_heads(x, a.size(0));
    const auto [u, v] = dots(grouped, closed.gauge);
    const at::Tensor p = closed.c1 * v - closed.c2 * by_group(closed.gauge.beta) * u;
    const at::Tensor q = -(closed.c1 * u + closed.c2 * by_group(closed.gauge.alpha) * v);
    return add_frame(grouped, closed.gauge, p, q).flatten(1, 2);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &a = saved[1], &b = saved[2], &eta = saved[3];
    const Closed closed = closed_form(a, b, eta, true);
    const PlaneGauge& gauge = closed.gauge;
    const at::Tensor alpha = by_group(gauge.alpha), beta = by_group(gauge.beta);
    const at::Tensor of_x = split_heads(x, a.size(0)), of_y = split_heads(gradients[0], a.size(0));
    const auto [u, v] = dots(of_x, gauge);
    const auto [r, t] = dots(of_y, gauge);
    const at::Tensor &c1 = closed.c1, &c2 = closed.c2;
    const at::Tensor du = -c2 * beta * r - c1 * t, dv = c1 * r - c2 * alpha * t;
    const at::Tensor dx = add_frame(of_y, gauge, du, dv).flatten(1, 2);
    torch::autograd::variable_list answer = {dx, {}, {}, {}};
    const at::Tensor p = c1 * v - c2 * beta * u, q = -(c1 * u + c2 * alpha * v);

    if (context->needs_input_grad(1) || context->needs_input_grad(2)) {
      const at::Tensor cubed = closed.eta * closed.eta * closed.eta;
      const at::Tensor darea = (r * v - t * u) * cubed * closed.g.slope1 -
                               (r * beta * u + t * alpha * v) * cubed * closed.eta * closed.g.slope2;
      const auto over_tokens = [](const at::Tensor& one) { return one.sum({0, 2, 3}).unsqueeze(1); };  // (G, 1)
      const at::Tensor dalpha = over_tokens(beta * darea - c2 * t * v), dbeta = over_tokens(alpha * darea - c2 * r * u),
                       dgamma = over_tokens(c2 * (r * v + t * u));
      // The two vectors p gy + du x and q gy + dv x, summed over tokens in one product each.
      const auto weighted = [](const at::Tensor& first, const at::Tensor& second, const at::Tensor& grouped) {
        const at::Tensor weights = at::stack({first, second}, -2).to(grouped.scalar_type());  // (B, G, h, 2, T)
        return at::matmul(weights, grouped).sum({0, 2}).to(at::kDouble);                      // (G, 2, D)
      };
      const at::Tensor sums = weighted(p, q, of_y) + weighted(du, dv, of_x);
      const at::Tensor db = sums.select(1, 1) + 2 * dbeta * gauge.b + dgamma * gauge.a;
      const at::Tensor da = sums.select(1, 0) + 2 * dalpha * gauge.a + dgamma * gauge.b;
      // The gauge only moved b along a: its shear is a constant that needs no gradient of its own.
      answer[1] = (da - gauge.shear.unsqueeze(1) * db).to(a.scalar_type());
      answer[2] = db.to(b.scalar_type());
    }
    if (context->needs_input_grad(3)) {
      // In the frame y is (u + alpha p, v + beta q).
      const at::Tensor deta = r * (v + beta * q) - t * (u + alpha * p);
      answer[3] = sum_to_tokens(deta, eta);
    }
    return answer;
  }
};

}  // namespace

PlaneGauge fix_gauge(const at::Tensor& a, const at::Tensor& b) {
  PlaneGauge gauge;
  gauge.a = a.to(at::kDouble);
  const at::Tensor wide = b.to(at::kDouble);
  gauge.alpha = (gauge.a * gauge.a).sum(1);
  const at::Tensor divisor = gauge.alpha.masked_fill(gauge.alpha.eq(0), 1).unsqueeze(1);
  gauge.shear = (gauge.a * wide).sum(1) / divisor.squeeze(1);
  gauge.b = wide - gauge.shear.unsqueeze(1) * gauge.a;
  // Once more, for what rounding left along a.
  gauge.b = gauge.b - (gauge.a * gauge.b).sum(1, true) / divisor * gauge.a;
  gauge.beta = (gauge.b * gauge.b).sum(1);
  return gauge;
}

at::Tensor turn_in_plane(const at::Tensor& x, const at::Tensor& a, const at::Tensor& b, const at::Tensor& eta) {
  check_heads("turn_in_plane", x, a, eta);
  if (b.sizes() != a.sizes())
    throw Error(str("turn_in_plane: a and b must have one shape, found ", a.sizes(), " and ", b.sizes()));
  return PlaneTurn::apply(x, a, b, eta);
}

at::Tensor quarter_turn(const at::Tensor& a, bool interleaved) {
  const std::int64_t width = a.size(-1);
  if (width % 2 != 0) throw Error(str("quarter_turn: the width must be even, found ", width));
  if (!interleaved) return at::cat({-a.narrow(-1, width / 2, width / 2), a.narrow(-1, 0, width / 2)}, -1);
  const at::Tensor pairs = a.unflatten(-1, {width / 2, 2});
  return at::stack({-pairs.select(-1, 1), pairs.select(-1, 0)}, -1).flatten(-2);
}

at::Tensor plane_generator(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor product = a.unsqueeze(-1) * b.unsqueeze(-2);
  return product - product.transpose(-1, -2);
}

}  // namespace torsor::group
