#include "torsor/attention/moves.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <tuple>
#include <utility>

#include "torsor/attention/plain.h"
#include "torsor/group/mixture.h"
#include "torsor/group/planes.h"
#include "torsor/group/rank2.h"
#include "torsor/kernel/rotate.h"

namespace torsor {
namespace {

using group::join_planes;
using group::PlaneView;
using group::split_planes;

/// (B|1, G, T, planes) to (B|1, G, T, blocks, planes / blocks), with G brought to the heads of this side.
at::Tensor fit_table(const at::Tensor& table, const Planes& planes, Role role, std::int64_t group,
                     at::ScalarType dtype) {
  at::Tensor fitted = table.to(dtype);
  if (fitted.size(1) != 1 && role == Role::Query && group != 1) fitted = fitted.repeat_interleave(group, 1);
  return fitted.unflatten(-1, {planes.blocks, -1});
}

HeadRange side_range(const HeadRange& heads, Role role, std::int64_t group) {
  if (role == Role::Query) return heads;
  return {heads.begin / group, heads.end / group};
}

at::Tensor turn_span(const at::Tensor& span, const Planes& planes, Role role, std::int64_t group, Precision precision) {
  const at::ScalarType dtype = span.scalar_type();
  if (precision == Precision::HuggingFace) {
    // x * cos + rotate_half(x) * sin, each product rounded in the dtype of x.
    const at::Tensor cosine = fit_table(planes.cosine, planes, role, group, dtype);
    const at::Tensor sine = fit_table(planes.sine, planes, role, group, dtype);
    const PlaneView x = split_planes(span, planes.layout, planes.blocks);
    return join_planes(x.a * cosine + (-x.b) * sine, x.b * cosine + x.a * sine, planes.layout);
  }
  const at::ScalarType compute = dtype == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor cosine = fit_table(planes.cosine, planes, role, group, compute);
  const at::Tensor sine = fit_table(planes.sine, planes, role, group, compute);
  const PlaneView x = split_planes(span.to(compute), planes.layout, planes.blocks);
  return join_planes(x.a * cosine - x.b * sine, x.a * sine + x.b * cosine, planes.layout).to(dtype);
}

/// Replaces x[:, heads, :, offset:offset+width] by change(of it), out of place.
template <class Change>
at::Tensor change_span(const at::Tensor& x, const HeadRange& heads, std::int64_t offset, std::int64_t width,
                       Change change) {
  const std::int64_t all_heads = x.size(1), channels = x.size(3);
  const at::Tensor own = heads.size() == all_heads ? x : x.narrow(1, heads.begin, heads.size());
  at::Tensor changed;
  if (width == channels) {
    changed = change(own);
  } else {
    std::vector<at::Tensor> pieces;
    if (offset > 0) pieces.push_back(own.narrow(3, 0, offset));
    pieces.push_back(change(own.narrow(3, offset, width)));
    if (offset + width < channels) pieces.push_back(own.narrow(3, offset + width, channels - offset - width));
    changed = at::cat(pieces, 3);
  }
  if (heads.size() == all_heads) return changed;
  std::vector<at::Tensor> pieces;
  if (heads.begin > 0) pieces.push_back(x.narrow(1, 0, heads.begin));
  pieces.push_back(changed);
  if (heads.end < all_heads) pieces.push_back(x.narrow(1, heads.end, all_heads - heads.end));
  return at::cat(pieces, 1);
}

/// What a kernel needs to know of `planes` for one side; the sizes and pointers are filled in later.
kernel::Rotation rotation_of(const Planes& planes, Role role, std::int64_t group) {
  const HeadRange heads = side_range(planes.heads, role, group);
  kernel::Rotation rotation;
  rotation.first_head = heads.begin;
  rotation.last_head = heads.end;
  // One row for all heads has the stride 0, whatever stands here.
  rotation.heads_a_row = role == Role::Query ? group : 1;
  rotation.offset = planes.offset;
  rotation.width = planes.width;
  rotation.blocks = planes.blocks;
  rotation.interleaved = planes.layout == Layout::Interleaved;
  return rotation;
}

using Strides = std::array<std::int64_t, 3>;

/// Of batch, heads and tokens; 0 where one entry serves all.
Strides leading_strides(const at::Tensor& tensor) {
  const auto of = [&](std::int64_t axis) { return tensor.size(axis) == 1 ? 0 : tensor.stride(axis); };
  return {of(0), of(1), of(2)};
}

at::Tensor with_dense_channels(const at::Tensor& x) {
  return x.stride(-1) == 1 || x.size(-1) == 1 ? x : x.contiguous();
}

/// Rows of tokens, so that a task is worth its start.
void for_rows(const at::Tensor& x, const std::function<void(std::int64_t first, std::int64_t last)>& work) {
  const std::int64_t grain = std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, x.size(1) * x.size(3)));
  at::parallel_for(0, x.size(0) * x.size(2), grain, work);
}

/// Carries out `rotation` in one pass over x, and one over its gradient. The tables (B|1, rows|1, T, planes) lie alike
/// in memory.
struct FusedTurn : public torch::autograd::Function<FusedTurn> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& cosine,
                            const at::Tensor& sine, kernel::Rotation rotation) {
    const bool trained = cosine.requires_grad() || sine.requires_grad();
    context->save_for_backward({trained ? x : at::Tensor(), cosine, sine});
    context->saved_data["rotation"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(rotation));
    return turned(x, cosine, sine, rotation);
  }

  static at::Tensor turned(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine,
                           kernel::Rotation rotation) {
    const at::Tensor input = with_dense_channels(x);
    at::Tensor out = at::empty_like(input);  // dense, in the order of x, so its gradient needs no copy
    fill_in(rotation, input);
    rotation.out = out.data_ptr();
    rotation.out_strides = leading_strides(out);
    rotation.cosine = cosine.const_data_ptr();
    rotation.sine = sine.const_data_ptr();
    rotation.table_strides = leading_strides(cosine);
    for_rows(x, [&](std::int64_t first, std::int64_t last) { kernel::rotate(rotation, first, last); });
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &cosine = saved[1], &sine = saved[2], &g = gradients[0];
    kernel::Rotation rotation = static_cast<Held*>(context->saved_data["rotation"].toCapsule().get())->rotation;
    torch::autograd::variable_list answer(4);
    if (x.defined() && (context->needs_input_grad(1) || context->needs_input_grad(2))) {
      std::tie(answer[1], answer[2]) =
          at::GradMode::is_enabled() ? differentiable(x, g, rotation, cosine) : of_tables(x, g, rotation, cosine);
    }
    rotation.back = !rotation.back;
    if (context->needs_input_grad(0)) answer[0] = FusedTurn::apply(g, cosine, sine, rotation);
    return answer;
  }

  struct Held : public torch::CustomClassHolder {
    explicit Held(const kernel::Rotation& held) : rotation(held) {}
    kernel::Rotation rotation;
  };

 private:
  static void fill_in(kernel::Rotation& rotation, const at::Tensor& x) {
    rotation.element = element_of(x.scalar_type());
    rotation.x = x.const_data_ptr();
    rotation.sizes = {x.size(0), x.size(1), x.size(2)};
    rotation.channels = x.size(3);
    rotation.x_strides = leading_strides(x);
  }

  static std::pair<at::Tensor, at::Tensor> of_tables(const at::Tensor& x, const at::Tensor& g,
                                                     kernel::Rotation rotation, const at::Tensor& table) {
    const at::Tensor input = with_dense_channels(x), upstream = with_dense_channels(g);
    fill_in(rotation, input);
    kernel::TableGradients to;
    to.gradient = upstream.const_data_ptr();
    to.gradient_strides = leading_strides(upstream);
    to.rows = table.size(1);
    const at::Tensor cosine = at::empty({x.size(0), to.rows, x.size(2), table.size(3)}, table.options());
    const at::Tensor sine = at::empty_like(cosine);
    to.cosine = cosine.data_ptr();
    to.sine = sine.data_ptr();
    for_rows(x, [&](std::int64_t first, std::int64_t last) { kernel::rotate_tables_back(rotation, to, first, last); });
    return {cosine.sum_to_size(table.sizes()), sine.sum_to_size(table.sizes())};
  }

  /// For a gradient of the gradient: the same through plain operations.
  static std::pair<at::Tensor, at::Tensor> differentiable(const at::Tensor& x, const at::Tensor& g,
                                                          const kernel::Rotation& r, const at::Tensor& table) {
    const Layout layout = r.interleaved ? Layout::Interleaved : Layout::Half;
    const auto planes = [&](const at::Tensor& tensor) {
      return split_planes(tensor.narrow(1, r.first_head, r.last_head - r.first_head)
                              .narrow(3, r.offset, r.width)
                              .to(table.scalar_type())
                              .unflatten(1, {table.size(1), -1}),
                          layout, r.blocks);
    };
    const PlaneView of_x = planes(x), of_g = planes(g);
    const auto summed = [&](const at::Tensor& shares) { return shares.sum(2).flatten(-2).sum_to_size(table.sizes()); };
    const at::Tensor sine = summed(of_x.a * of_g.b - of_x.b * of_g.a);
    return {summed(of_x.a * of_g.a + of_x.b * of_g.b), r.back ? sine.neg() : sine};
  }
};

/// Whether one pass serves: memory that kernels read, and an arithmetic that is the kernel's (in float32 and float64
/// the order of Hugging Face is the same; in bfloat16 it rounds in between).
bool fused_turn_applies(const at::Tensor& x, const Planes& planes, Precision precision) {
  return is_plain(x) && is_plain(planes.cosine) && is_plain(planes.sine) && x.size(3) > 0 &&
         (precision == Precision::Exact || x.scalar_type() != at::kBFloat16);
}

at::Tensor fused_turn(const at::Tensor& x, const Planes& planes, Role role, std::int64_t group) {
  const at::ScalarType wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto table = [&](const at::Tensor& given) {
    return given.to(wide).expand({-1, -1, x.size(2), planes.width / 2});
  };
  at::Tensor cosine = table(planes.cosine), sine = table(planes.sine);
  // Columns of one tensor (a position state) are read where they are.
  const bool alike = cosine.stride(3) == 1 && sine.stride(3) == 1 && cosine.sizes() == sine.sizes() &&
                     cosine.strides() == sine.strides();
  if (!alike) cosine = cosine.contiguous(), sine = sine.contiguous();
  const kernel::Rotation rotation = rotation_of(planes, role, group);
  // A node of a graph that nobody keeps costs as much as turning a token does.
  return at::GradMode::is_enabled() ? FusedTurn::apply(x, cosine, sine, rotation)
                                    : FusedTurn::turned(x, cosine, sine, rotation);
}

/// float32 at least, rounded once to the dtype of x.
template <class Change>
at::Tensor in_wide(const at::Tensor& x, Change change) {
  return change(x.scalar_type() == at::kDouble ? x : x.to(at::kFloat)).to(x.scalar_type());
}

/// One side's move of all its heads.
struct Mover {
  const at::Tensor& x;
  Role role;
  std::int64_t group;
  Precision precision;

  HeadRange range(const HeadRange& heads) const { return side_range(heads, role, group); }
  /// G rows for the heads of this side; of queries, neighbouring heads share one.
  at::Tensor for_heads(const at::Tensor& table) const {
    return table.size(1) != 1 && role == Role::Query && group != 1 ? table.repeat_interleave(group, 1) : table;
  }
  template <class Change>
  at::Tensor whole_width(const HeadRange& heads, Change change) const {
    return change_span(x, range(heads), 0, x.size(3), change);
  }

  at::Tensor operator()(const AddedVector& added) const {
    return whole_width(added.heads, [&](const at::Tensor& own) {
      return in_wide(own, [&](const at::Tensor& wide) {
        const at::Tensor vector = added.vector.to(wide.scalar_type());
        return wide + (vector.dim() == 4 ? vector : vector.unsqueeze(1));
      });
    });
  }

  at::Tensor operator()(const Planes& planes) const {
    if (planes.width == 0) return x;
    if (fused_turn_applies(x, planes, precision)) return fused_turn(x, planes, role, group);
    return change_span(x, range(planes.heads), planes.offset, planes.width,
                       [&](const at::Tensor& own) { return turn_span(own, planes, role, group, precision); });
  }

  at::Tensor operator()(const Widen&) const {
    return role == Role::Key && group != 1 ? x.repeat_interleave(group, 1) : x;
  }

  at::Tensor operator()(const PairBlocks& pairs) const {
    return change_span(x, range(pairs.heads), pairs.offset, pairs.width, [&](const at::Tensor& own) {
      return in_wide(own, [&](const at::Tensor& wide) {
        const PlaneView planes = split_planes(wide, pairs.layout, pairs.blocks);
        const at::Tensor block = for_heads(pairs.block.to(wide.scalar_type()));
        const auto row = [&](const at::Tensor& channel, std::int64_t index) {
          return channel.flatten(-2).unsqueeze(-1) * block.select(-2, index);  // (B, H, T, planes, R)
        };
        return (row(planes.a, 0) + row(planes.b, 1)).flatten(-2);
      });
    });
  }

  at::Tensor operator()(const RankTurn& turn) const {
    return whole_width(turn.heads, [&](const at::Tensor& own) {
      return in_wide(own, [&](const at::Tensor& wide) {
        if (turn.generator.size(2) != 2) return group::turn_mixture(wide, turn.generator, turn.frequency, turn.turn);
        return group::turn_in_plane(wide, turn.generator.select(2, 0), turn.generator.select(2, 1),
                                    turn.turn * turn.frequency.view({1, -1, 1}));
      });
    });
  }

  at::Tensor operator()(const Basis& basis) const {
    return whole_width(basis.heads, [&](const at::Tensor& own) {
      return in_wide(own, [&](const at::Tensor& wide) {
        const std::int64_t groups = basis.matrix.size(0);
        const at::Tensor grouped = wide.unflatten(1, {groups, wide.size(1) / groups});
        return at::matmul(grouped, basis.matrix.to(wide.scalar_type()).unsqueeze(1)).flatten(1, 2);
      });
    });
  }
};

}  // namespace

at::Tensor apply_moves(const at::Tensor& x, const std::vector<Move>& moves, Role role, std::int64_t group,
                       Precision precision) {
  at::Tensor moved = x;
  for (const Move& move : moves) {
    moved = std::visit(Mover{moved, role, group, precision}, move);
    if (std::holds_alternative<Widen>(move)) group = 1;
  }
  return moved;
}

at::Tensor apply_decays(const at::Tensor& x, const std::vector<Decay>& decays, const at::Tensor& turn, Role role,
                        std::int64_t group) {
  at::Tensor decayed = x;
  // exp stays finite: beyond this exponent the true product has left the dtype's range as well. Small factors may
  // vanish.
  const double most = x.scalar_type() == at::kDouble ? 700 : 80;
  for (const Decay& decay : decays) {
    const at::Tensor factor = (turn.unsqueeze(-1) * decay.rate.to(turn.device()))
                                  .clamp_max(most)
                                  .exp()
                                  .to(x.scalar_type())
                                  .unsqueeze(1)
                                  .unflatten(-1, {decay.blocks, -1});
    decayed = change_span(decayed, side_range(decay.heads, role, group), decay.offset, decay.width,
                          [&](const at::Tensor& own) {
                            const PlaneView planes = split_planes(own, decay.layout, decay.blocks);
                            return join_planes(planes.a * factor, planes.b * factor, decay.layout);
                          });
  }
  return decayed;
}

}  // namespace torsor
