#include "torsor/group/planes.h"

#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "torsor/base/error.h"
#include "torsor/group/heads.h"

namespace torsor::group {
namespace {

/// (B, G, heads of a group, T, blocks, planes) of both channels.
PlaneView grouped_planes(const at::Tensor& x, std::int64_t groups, Layout layout, std::int64_t blocks) {
  return split_planes(split_heads(x, groups), layout, blocks);
}

/// cos or sin of the angles, once rounded, as (B|1, G|1, 1, T, blocks, planes of a block)
at::Tensor fitted(const at::Tensor& table, std::int64_t blocks, at::ScalarType type) {
  return table.unsqueeze(2).unflatten(-1, {blocks, -1}).to(type);
}

struct PlanesTurn : public torch::autograd::Function<PlanesTurn> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& angle,
                            Layout layout, std::int64_t blocks) {
    const at::Tensor wide = angle.to(at::kDouble);
    const at::Tensor cosine = fitted(wide.cos(), blocks, x.scalar_type()),
                     sine = fitted(wide.sin(), blocks, x.scalar_type());
    const PlaneView of_x = grouped_planes(x, angle.size(1), layout, blocks);
    const at::Tensor y =
        join_planes(of_x.a * cosine - of_x.b * sine, of_x.b * cosine + of_x.a * sine, layout).flatten(1, 2);
    context->save_for_backward({y, angle});
    context->saved_data["half"] = layout == Layout::Half;
    context->saved_data["blocks"] = blocks;
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &y = saved[0], &angle = saved[1];
    const Layout layout = context->saved_data["half"].toBool() ? Layout::Half : Layout::Interleaved;
    const std::int64_t blocks = context->saved_data["blocks"].toInt();
    at::Tensor of_angle;
    if (context->needs_input_grad(1)) {
      const PlaneView of_y = grouped_planes(y, angle.size(1), layout, blocks),
                      of_gradient = grouped_planes(gradients[0], angle.size(1), layout, blocks);
      of_angle = (of_gradient.b * of_y.a - of_gradient.a * of_y.b)
                     .to(at::kDouble)
                     .sum(2)
                     .flatten(-2)
                     .sum_to_size(angle.sizes())
                     .to(angle.scalar_type());
    }
    return {PlanesTurn::apply(gradients[0], -angle, layout, blocks), of_angle, {}, {}};
  }
};

}  // namespace

PlaneView split_planes(const at::Tensor& span, Layout layout, std::int64_t blocks) {
  const std::int64_t planes = span.size(-1) / 2 / blocks;
  std::vector<std::int64_t> shape = span.sizes().vec();
  shape.pop_back();
  const bool half = layout == Layout::Half;
  shape.push_back(blocks);
  shape.push_back(half ? 2 : planes);
  shape.push_back(half ? planes : 2);
  const at::Tensor view = span.reshape(shape);
  return {view.select(half ? -2 : -1, 0), view.select(half ? -2 : -1, 1)};
}

at::Tensor join_planes(const at::Tensor& a, const at::Tensor& b, Layout layout) {
  return at::stack({a, b}, layout == Layout::Half ? -2 : -1).flatten(-3);
}

at::Tensor turn_planes(const at::Tensor& x, const at::Tensor& angle, Layout layout, std::int64_t blocks) {
  if (x.dim() != 4 || angle.dim() != 4 || blocks < 1 || x.size(3) % (2 * blocks) != 0 ||
      angle.size(3) * 2 != x.size(3) || angle.size(2) != x.size(2) || angle.size(1) < 1 ||
      x.size(1) % angle.size(1) != 0 || (angle.size(0) != 1 && angle.size(0) != x.size(0)))
    throw Error(str("turn_planes: x (batch, heads, tokens, width) in ", blocks,
                    " blocks of pairs needs angles (1 or batch, a divisor of heads, tokens, width / 2); found ",
                    x.sizes(), " and ", angle.sizes()));
  return PlanesTurn::apply(x, angle, layout, blocks);
}

std::vector<double> log_spectrum(double base, std::int64_t width) {
  std::vector<double> all;
  for (std::int64_t i = 0; i < width / 2; ++i)
    all.push_back(-2.0 * static_cast<double>(i) / static_cast<double>(width) * std::log(base));
  return all;
}

}  // namespace torsor::group
