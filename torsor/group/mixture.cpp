#include "torsor/group/mixture.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/group/heads.h"

namespace torsor::group {
namespace {

// Angles below this share of the largest are zero: the eigenvectors of zero are any, and their planes stand still.
constexpr double kStill = 1e-12;
// Numbers of r x r matrices that the backward pass holds at a time (complex128: 16 MiB).
constexpr std::int64_t kBlockNumbers = std::int64_t{1} << 20;

/// The planes with positive angles, and how far tokens turn in them.
struct Turning {
  at::Tensor plane;       ///< (G, D, 2 m) x_0 ... x_m-1 y_0 ... y_m-1 in D channels
  at::Tensor angle;       ///< (G, m), at least 0
  at::Tensor less, sine;  ///< cos - 1 and sin of the turns, (B|1, G, 1, T, m)
};

Turning turning_of(const MixturePlanes& planes, const at::Tensor& turn) {
  const std::int64_t size = planes.values.size(1), count = size / 2;
  Turning turning;
  const at::Tensor largest = planes.values.abs().amax(1, true);
  const at::Tensor top = planes.values.narrow(1, size - count, count);
  turning.angle = top.masked_fill(top.le(kStill * largest), 0);
  const at::Tensor vectors = planes.vectors.narrow(2, size - count, count) * std::sqrt(2.0);
  turning.plane = at::matmul(planes.frame, at::cat({at::real(vectors), at::imag(vectors)}, 2));
  const at::Tensor turned = turn.to(at::kDouble).unsqueeze(-1) * turning.angle.unsqueeze(1).unsqueeze(0);
  const at::Tensor half = (turned * 0.5).sin();
  turning.less = (-2 * half * half).unsqueeze(2);
  turning.sine = turned.sin().unsqueeze(2);
  return turning;
}

at::Tensor as(const at::Tensor& of_groups, const at::Tensor& like) {
  return of_groups.to(like.scalar_type()).unsqueeze(1);  // (G, 1, .., ..), against (B, G, h, T, ..)
}

/// x turned; `back` the other way.
at::Tensor turned(const at::Tensor& grouped, const Turning& turning, bool back) {
  const std::int64_t count = turning.angle.size(1);
  const at::Tensor both = at::matmul(grouped, as(turning.plane, grouped)).to(at::kDouble);
  const at::Tensor first = both.narrow(-1, 0, count), second = both.narrow(-1, count, count);
  const at::Tensor sine = back ? -turning.sine : turning.sine;
  const at::Tensor change = at::cat({turning.less * first + sine * second, turning.less * second - sine * first}, -1)
                                .to(grouped.scalar_type());
  return grouped + at::matmul(change, as(turning.plane, grouped).transpose(-1, -2));
}

at::Tensor sine_over(const at::Tensor& u) {
  const at::Tensor zero = u.eq(0);
  return at::where(zero, at::ones_like(u), u.sin() / u.masked_fill(zero, 1));
}

/// exp(i phase)
at::Tensor unit(const at::Tensor& phase) { return at::polar(at::ones_like(phase), phase); }

/// The gradient of the skew generator times A, summed over tokens: dLs A (G, D, r).
///
/// With x = E x_r + x_o and g = E g_r + g_o (the parts inside and outside the span of E), and V, lambda the r x r
/// eigenproblem: inside, Phi_ab = n exp(i n (lambda_a + lambda_b)/2) sine_over(n (lambda_a - lambda_b)/2) are the
/// divided differences of exp(n .); outside, one side has the eigenvalue 0. What leaves the span would be lost without
/// the last two terms of dLs b = E (M - M^T) E^T b + g_o (h.b) - x_o (k.b).
at::Tensor generator_gradient(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& turn,
                              const MixturePlanes& planes) {
  const std::int64_t batch = x.size(0), groups = x.size(1), heads = x.size(2), tokens = x.size(3),
                     size = planes.values.size(1);
  const at::Tensor frame = as(planes.frame, x), adjoint = planes.vectors.conj().transpose(-1, -2).unsqueeze(1);
  const at::Tensor vectors = planes.vectors.unsqueeze(1), values = planes.values.view({1, groups, 1, 1, size});
  at::Tensor inside = at::zeros({groups, size, size}, planes.vectors.options());
  at::Tensor outside = at::zeros({groups, x.size(4), size}, planes.frame.options());
  const std::int64_t block =
      std::max<std::int64_t>(1, kBlockNumbers / std::max<std::int64_t>(1, batch * groups * heads * size * size));
  for (std::int64_t first = 0; first < tokens; first += block) {
    const std::int64_t count = std::min(block, tokens - first);
    const auto part = [&](const at::Tensor& one) { return one.narrow(3, first, count); };
    const at::Tensor n =
        turn.to(at::kDouble).narrow(2, first, count).unsqueeze(2).unsqueeze(-1);  // (B|1, G|1, 1, t, 1)
    const auto parts = [&](const at::Tensor& one) {
      const at::Tensor own = part(one), projected = at::matmul(own, frame);
      const at::Tensor rest = own - at::matmul(projected, frame.transpose(-1, -2));
      // Rows times conj(V) are V^H applied to columns.
      const at::Tensor modes = at::matmul(projected.to(at::kComplexDouble), adjoint.transpose(-1, -2));
      return std::pair(modes, rest);
    };
    const auto [of_x, rest_of_x] = parts(x);
    const auto [of_g, rest_of_g] = parts(gradient);

    const at::Tensor a = values.unsqueeze(-1), b = values.unsqueeze(-2), clock = n.unsqueeze(-1);
    const at::Tensor phi = unit(clock * (a + b) * 0.5) * (clock * sine_over(clock * (a - b) * 0.5));
    inside = inside + (of_g.unsqueeze(-1) * of_x.conj().unsqueeze(-2) * phi.conj()).sum({0, 2, 3});

    const at::Tensor reach = unit(n * values * 0.5) * (n * sine_over(n * values * 0.5));
    const auto lifted = [&](const at::Tensor& modes) {
      return at::real(at::matmul(modes, vectors.transpose(-1, -2))).to(x.scalar_type());
    };
    const auto crossed = [](const at::Tensor& rest, const at::Tensor& coordinates) {
      return at::matmul(rest.transpose(-1, -2), coordinates).sum({0, 2}).to(at::kDouble);  // (G, D, r')
    };
    outside = outside + crossed(rest_of_g, lifted(reach * of_x)) - crossed(rest_of_x, lifted(reach.conj() * of_g));
  }
  const at::Tensor m =
      at::real(at::matmul(at::matmul(planes.vectors, inside), planes.vectors.conj().transpose(-1, -2)));
  return at::matmul(at::matmul(planes.frame, m - m.transpose(-1, -2)) + outside, planes.upper);
}

struct MixtureTurn : public torch::autograd::Function<MixtureTurn> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& mix,
                            const at::Tensor& theta, const at::Tensor& turn) {
    context->save_for_backward({x, mix, theta, turn});
    return turned(split_heads(x, mix.size(0)), turning_of(mixture_planes(mix, theta), turn), false).flatten(1, 2);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &mix = saved[1], &theta = saved[2], &turn = saved[3];
    const MixturePlanes planes = mixture_planes(mix, theta);
    const Turning turning = turning_of(planes, turn);
    const at::Tensor of_x = split_heads(x, mix.size(0)), of_y = split_heads(gradients[0], mix.size(0));
    const at::Tensor back = turned(of_y, turning, true);
    torch::autograd::variable_list answer = {back.flatten(1, 2), {}, {}, {}};

    if (context->needs_input_grad(1) || context->needs_input_grad(2)) {
      const at::Tensor turned_a = generator_gradient(of_x, of_y, turn, planes);
      const at::Tensor wide = mix.to(at::kDouble), rate = theta.to(at::kDouble).unsqueeze(1);
      const auto column = [](const at::Tensor& all, std::int64_t which) {
        return all.unflatten(2, {-1, 2}).select(3, which);  // (G, D, r / 2)
      };
      const at::Tensor of_a = column(turned_a, 0), of_b = column(turned_a, 1);
      answer[1] = at::stack({rate * of_b, -rate * of_a}, 3).flatten(2).to(mix.scalar_type());
      answer[2] = (column(wide, 0) * of_b).sum(1).to(theta.scalar_type());
    }
    if (context->needs_input_grad(3)) {
      // gy . L y = (exp(-n L) gy) . L x, in the planes.
      const std::int64_t count = turning.angle.size(1);
      const auto modes = [&](const at::Tensor& one) { return at::matmul(one, as(turning.plane, one)).to(at::kDouble); };
      const at::Tensor g = modes(back), p = modes(of_x);
      const at::Tensor crossed =
          g.narrow(-1, 0, count) * p.narrow(-1, count, count) - g.narrow(-1, count, count) * p.narrow(-1, 0, count);
      const at::Tensor rate = turning.angle.view({1, -1, 1, 1, count});
      answer[3] = sum_to_tokens((crossed * rate).sum(-1), turn);
    }
    return answer;
  }
};

/// sum_i theta_i (a_i b_i^T - b_i a_i^T) of columns a_0 b_0 a_1 ...; skew to the last bit.
at::Tensor skew_product(const at::Tensor& columns, const at::Tensor& theta) {
  const at::Tensor pairs = columns.unflatten(2, {-1, 2});
  const at::Tensor product = at::matmul(pairs.select(3, 0) * theta.unsqueeze(1), pairs.select(3, 1).transpose(-1, -2));
  return product - product.transpose(-1, -2);
}

void check_mixture(const char* function, const at::Tensor& mix, const at::Tensor& theta) {
  if (mix.dim() != 3 || mix.size(2) < 2 || mix.size(2) % 2 != 0 || theta.dim() != 2 || theta.size(0) != mix.size(0) ||
      theta.size(1) * 2 != mix.size(2))
    throw Error(str(function, ": a mix (groups, width, r) with even r needs theta (groups, r / 2), found ", mix.sizes(),
                    " and ", theta.sizes()));
}

}  // namespace

MixturePlanes mixture_planes(const at::Tensor& mix, const at::Tensor& theta) {
  check_mixture("mixture_planes", mix, theta);
  MixturePlanes planes;
  std::tie(planes.frame, planes.upper) = at::linalg_qr(mix.to(at::kDouble));
  const at::Tensor small = skew_product(planes.upper, theta.to(at::kDouble));  // R K R^T
  std::tie(planes.values, planes.vectors) = at::linalg_eigh(at::complex(at::zeros_like(small), -small));
  return planes;
}

at::Tensor turn_mixture(const at::Tensor& x, const at::Tensor& mix, const at::Tensor& theta, const at::Tensor& turn) {
  check_mixture("turn_mixture", mix, theta);
  check_heads("turn_mixture", x, mix, turn);
  return MixtureTurn::apply(x, mix, theta, turn);
}

at::Tensor mixture_generator(const at::Tensor& mix, const at::Tensor& theta) {
  check_mixture("mixture_generator", mix, theta);
  return skew_product(mix, theta);
}

}  // namespace torsor::group
