#include "torsor/attention/moves.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

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

/// Carries out `rotation` in one pass over x. Fixed tables: their gradients are not asked for.
struct FusedTurn : public torch::autograd::Function<FusedTurn> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& cosine,
                            const at::Tensor& sine, kernel::Rotation rotation) {
    context->save_for_backward({cosine, sine});
    context->saved_data["rotation"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(rotation));
    const at::Tensor input = x.stride(-1) == 1 || x.size(-1) == 1 ? x : x.contiguous();
    at::Tensor out = at::empty_like(input);  // dense, in the order of x, so its gradient needs no copy
    const auto strides = [](const at::Tensor& tensor) {
      const auto of = [&](std::int64_t axis) { return tensor.size(axis) == 1 ? 0 : tensor.stride(axis); };
      return std::array<std::int64_t, 3>{of(0), of(1), of(2)};
    };
    rotation.element = element_of(x.scalar_type());
    rotation.x = input.const_data_ptr();
    rotation.out = out.data_ptr();
    rotation.sizes = {x.size(0), x.size(1), x.size(2)};
    rotation.channels = x.size(3);
    rotation.x_strides = strides(input);
    rotation.out_strides = strides(out);
    rotation.cosine = cosine.const_data_ptr();
    rotation.sine = sine.const_data_ptr();
    rotation.table_strides = strides(cosine);
    const std::int64_t rows = x.size(0) * x.size(2);
    const std::int64_t grain = std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, x.size(1) * x.size(3)));
    at::parallel_for(0, rows, grain,
                     [&](std::int64_t first, std::int64_t last) { kernel::rotate(rotation, first, last); });
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    kernel::Rotation rotation = static_cast<Held*>(context->saved_data["rotation"].toCapsule().get())->rotation;
    rotation.back = !rotation.back;
    return {FusedTurn::apply(gradients[0], saved[0], saved[1], rotation), at::Tensor(), at::Tensor(), at::Tensor()};
  }

  struct Held : public torch::CustomClassHolder {
    explicit Held(const kernel::Rotation& held) : rotation(held) {}
    kernel::Rotation rotation;
  };
};

/// Whether one pass serves: memory that kernels read, tables that are not trained, and an arithmetic that is the
/// kernel's (in float32 and float64 the order of Hugging Face is the same; in bfloat16 it rounds in between).
bool fused_turn_applies(const at::Tensor& x, const Planes& planes, Precision precision) {
  const bool trained = at::GradMode::is_enabled() && (planes.cosine.requires_grad() || planes.sine.requires_grad());
  return !trained && is_plain(x) && is_plain(planes.cosine) && is_plain(planes.sine) && x.size(3) > 0 &&
         (precision == Precision::Exact || x.scalar_type() != at::kBFloat16);
}

at::Tensor fused_turn(const at::Tensor& x, const Planes& planes, Role role, std::int64_t group) {
  const at::ScalarType wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto table = [&](const at::Tensor& given) {
    return given.detach().to(wide).expand({-1, -1, x.size(2), planes.width / 2}).contiguous();
  };
  return FusedTurn::apply(x, table(planes.cosine), table(planes.sine), rotation_of(planes, role, group));
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
  template <class Change>
  at::Tensor whole_width(const HeadRange& heads, Change change) const {
    return change_span(x, range(heads), 0, x.size(3), change);
  }

  at::Tensor operator()(const AddedVector& added) const {
    return whole_width(added.heads,
                       [&](const at::Tensor& own) { return own + added.vector.to(own.scalar_type()).unsqueeze(1); });
  }

  at::Tensor operator()(const Planes& planes) const {
    if (planes.width == 0) return x;
    if (fused_turn_applies(x, planes, precision)) return fused_turn(x, planes, role, group);
    return change_span(x, range(planes.heads), planes.offset, planes.width,
                       [&](const at::Tensor& own) { return turn_span(own, planes, role, group, precision); });
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
  for (const Move& move : moves) moved = std::visit(Mover{moved, role, group, precision}, move);
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
