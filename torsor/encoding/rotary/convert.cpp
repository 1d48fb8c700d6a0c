#include "torsor/encoding/rotary/convert.h"

#include <numeric>
#include <utility>

#include "torsor/base/error.h"

namespace torsor {
namespace {

// Channels of a plane inside its block of `each` channels, in the order that turns by plus the angle.
std::pair<std::int64_t, std::int64_t> pair_of(std::int64_t plane, std::int64_t each, RotaryForm form) {
  std::pair<std::int64_t, std::int64_t> channels =
      form.layout == Layout::Half ? std::pair(plane, plane + each / 2) : std::pair(2 * plane, 2 * plane + 1);
  if (form.minus) std::swap(channels.first, channels.second);
  return channels;
}

}  // namespace

std::vector<std::int64_t> rotary_permutation(std::int64_t head_dim, RotarySpan span, RotaryForm from, RotaryForm to) {
  if (span.blocks < 1 || span.width < 0 || span.width % (2 * span.blocks) != 0)
    throw Error(str("a rotary span of ", span.width, " channels cannot be cut into ", span.blocks, " blocks of pairs"));
  if (span.offset < 0 || span.offset + span.width > head_dim)
    throw Error(
        str("the rotary span ", span.offset, "-", span.offset + span.width - 1, " does not fit head_dim ", head_dim));
  std::vector<std::int64_t> source(static_cast<std::size_t>(head_dim));
  std::iota(source.begin(), source.end(), std::int64_t{0});
  const std::int64_t each = span.width / span.blocks;
  for (std::int64_t block = 0; block < span.blocks; ++block) {
    const std::int64_t first = span.offset + block * each;
    for (std::int64_t plane = 0; plane < each / 2; ++plane) {
      const auto [from_a, from_b] = pair_of(plane, each, from);
      const auto [to_a, to_b] = pair_of(plane, each, to);
      source[static_cast<std::size_t>(first + to_a)] = first + from_a;
      source[static_cast<std::size_t>(first + to_b)] = first + from_b;
    }
  }
  return source;
}

at::Tensor convert_rotary_rows(const at::Tensor& rows, std::int64_t head_dim, RotarySpan span, RotaryForm from,
                               RotaryForm to) {
  if (rows.dim() < 1 || head_dim < 1 || rows.size(0) % head_dim != 0)
    throw Error(str("rows to convert must have a first extent that is a multiple of head_dim ", head_dim, ", found ",
                    rows.sizes()));
  const std::vector<std::int64_t> one = rotary_permutation(head_dim, span, from, to);
  std::vector<std::int64_t> all;
  all.reserve(static_cast<std::size_t>(rows.size(0)));
  for (std::int64_t head = 0; head < rows.size(0) / head_dim; ++head)
    for (const std::int64_t channel : one) all.push_back(head * head_dim + channel);
  return rows.index_select(0, at::tensor(all, at::kLong).to(rows.device()));
}

}  // namespace torsor
