// What a KV cache can do with the tokens that it holds: shift, evict, fork.
#include <algorithm>
#include <cmath>
#include <utility>

#include "torsor/attention/kv_cache.h"
#include "torsor/attention/moves.h"
#include "torsor/base/error.h"

namespace torsor {
namespace {

at::Tensor selected(const at::Tensor& tensor, const at::Tensor& rows) {
  return tensor.defined() ? tensor.index_select(0, rows.to(tensor.device())) : tensor;
}

}  // namespace

CacheContract::Key KvCache::key_kind(std::int64_t layer) const {
  return options_.raw_keys ? CacheContract::Key::Raw : of_layer(layer).cache(layer).key;
}

// ---------------------------------------------------------------------------------------------------------------------
// Reading what stands elsewhere than it arrived

at::Tensor KvCache::positions(std::int64_t index) const {
  of_layer(index);
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  const std::vector<std::int64_t> held = layer.held();
  const std::int64_t longest = *std::max_element(held.begin(), held.end());
  if (longest == 0) return {};
  at::Tensor all = layer.positions.narrow(1, 0, longest);
  if (layer.offsets.defined()) all = all + layer.offsets.narrow(1, 0, longest);
  return layer.origin.defined() ? all + layer.origin : all.clone();
}

NamedTensors KvCache::seen_kept(std::int64_t index, std::int64_t slots) const {
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  NamedTensors kept;
  for (const auto& [name, tensor] : layer.kept) kept.emplace(name, tensor.narrow(2, 0, slots));
  const bool by_origin = layer.origin.defined() && !sees_frame();
  if (kept.empty() || (!layer.offsets.defined() && !by_origin)) return kept;
  at::Tensor offsets = at::zeros({options_.batch, slots}, layer.positions.options());
  if (layer.offsets.defined()) offsets = offsets + layer.offsets.narrow(1, 0, slots).select(2, 0);
  if (by_origin) offsets = offsets + layer.origin.select(2, 0);
  return of_layer(index).shift_kept(kept, offsets);
}

void KvCache::turn_keys(std::int64_t index, const AttendOptions& options) const {
  Layer& layer = layers_[static_cast<std::size_t>(index)];
  if (layer.turned) return;
  const Encoding& encoding = of_layer(index);
  const std::int64_t slots = layer.arrived.size(2);
  Question question;
  question.parameters = &options.parameters;
  question.layer = index;
  question.layers = options_.layers;
  question.k = layer.arrived;
  const std::vector<Move> moves = encoding.shift_moves(question, layer.offsets.narrow(1, 0, slots));
  if (!moves.empty() && options.after_moves)
    throw Refusal(
        "cache: keys were changed behind their moves (QK-norm after rotation), so they cannot be turned further; make "
        "the cache with raw_keys");
  const at::Tensor turned =
      apply_moves(layer.arrived, moves, Role::Key, encoding.group(), encoding.dimensions().precision);
  layer.keys.narrow(2, 0, slots).copy_(turned);
  layer.turned = true;
}

// <R(p + o) q, R(s + o) k> with k kept as R(s) k: the query goes back by o, for all keys at once.
void KvCache::turn_back(AttendOptions& options, const at::Tensor& q, std::int64_t index) const {
  if (key_kind(index) == CacheContract::Key::Raw) return;
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  const Encoding& encoding = of_layer(index);
  Question question;
  question.parameters = &options.parameters;
  question.layer = index;
  question.layers = options_.layers;
  question.k = question.q = q;
  const at::Tensor back = layer.origin.neg().expand({options_.batch, q.size(2), layer.origin.size(2)});
  std::vector<Move> moves = encoding.shift_moves(question, back);
  if (moves.empty()) return;
  if (options.after_moves)
    throw Refusal(
        "cache: queries are changed behind their moves (QK-norm after rotation), so a row cannot be moved as a whole; "
        "make the cache with raw_keys");
  const std::int64_t group = encoding.group();
  const Precision precision = encoding.dimensions().precision;
  options.after_moves = [moves = std::move(moves), group, precision](const at::Tensor& moved, Role role) {
    return role == Role::Query ? apply_moves(moved, moves, role, group, precision) : moved;
  };
}

// ---------------------------------------------------------------------------------------------------------------------
// Shift

at::Tensor KvCache::checked_offsets(const at::Tensor& given) const {
  const std::int64_t batch = options_.batch, axes = encoding_->traits().axes;
  if (!given.defined() || given.is_complex() || given.scalar_type() == at::kBool)
    throw Error(str("cache: offsets must be real numbers, found ",
                    given.defined() ? str(given.scalar_type()) : std::string("none")));
  const auto rows = [&](std::int64_t size) { return size == batch || size == 1; };
  const bool plain = axes == 1 && given.dim() == 1 && rows(given.size(0));
  if (!plain && !(given.dim() == 2 && rows(given.size(0)) && given.size(1) == axes))
    throw Error(str("cache: offsets must have shape ", axes == 1 ? str("(", batch, ") or (1) or ") : "", "(", batch,
                    " or 1, ", axes, "), found ", given.sizes()));
  const at::Tensor offsets = given.to(at::TensorOptions(at::kDouble).device(options_.device));
  if (!at::isfinite(offsets).all().item<bool>()) throw Error("cache: offsets must be finite");
  return offsets.view({given.size(0), 1, axes}).expand({batch, 1, axes});
}

void KvCache::check_shift() const {
  for (std::int64_t layer = 0; layer < options_.layers; ++layer) {
    const std::string why = of_layer(layer).cache(layer).shift;
    if (!is_empty(layers_[static_cast<std::size_t>(layer)]) && !CacheContract::exact(why))
      throw Refusal(str("cache: positions cannot be shifted: ", why));
  }
}

void KvCache::shift(double offset) {
  shift(at::full({1, encoding_->traits().axes}, offset, at::TensorOptions(at::kDouble)));
}

void KvCache::shift(const at::Tensor& given, double from, double to) {
  const at::Tensor offsets = checked_offsets(given);
  if (std::isnan(from) || std::isnan(to)) throw Error("cache: the ends of what is shifted must be numbers");
  check_shift();
  for (std::int64_t index = 0; index < options_.layers; ++index) {
    const at::Tensor now = positions(index);
    if (!now.defined()) continue;
    const at::Tensor first = now.select(2, 0);
    move_tokens(index, offsets, first.ge(from).logical_and(first.lt(to)));
  }
}

void KvCache::move_tokens(std::int64_t index, const at::Tensor& offsets, const at::Tensor& which) {
  Layer& layer = layers_[static_cast<std::size_t>(index)];
  const std::vector<std::int64_t> held = layer.held();
  const std::int64_t slots = which.size(1);
  const at::Tensor none = at::zeros_like(offsets);
  if (!layer.origin.defined()) layer.origin = none.clone();
  at::Tensor own = at::zeros({options_.batch, slots, offsets.size(2)}, offsets.options());
  bool some = false;
  for (std::int64_t b = 0; b < options_.batch; ++b) {
    const std::int64_t count = held[static_cast<std::size_t>(b)];
    if (count == 0) continue;
    const at::Tensor moved = which[b].narrow(0, 0, count);
    // The row follows its newest token; who stays behind is moved the other way.
    const bool follows = moved[count - 1].item<bool>();
    if (follows) layer.origin[b] += offsets[b];
    const at::Tensor apart = follows ? moved.logical_not() : moved;
    if (!apart.any().item<bool>()) continue;
    own[b].narrow(0, 0, count) += apart.unsqueeze(1).to(at::kDouble) * (follows ? -offsets[b] : offsets[b]);
    some = true;
  }
  if (!some) return;
  if (!layer.offsets.defined())
    layer.offsets = at::zeros({options_.batch, layer.positions.size(1), offsets.size(2)}, layer.positions.options());
  layer.offsets.narrow(1, 0, slots) += own;
  if (key_kind(index) == CacheContract::Key::Raw) return;
  // Slots from the first to the last one that is moved keep what arrived.
  const at::Tensor elsewhere = layer.offsets.narrow(1, 0, slots).ne(0).any(2).any(0).nonzero();
  const std::int64_t last = elsewhere.numel() == 0 ? 0 : elsewhere.max().item<std::int64_t>() + 1;
  const std::int64_t before = layer.arrived.defined() ? layer.arrived.size(2) : 0;
  if (last > before) {
    const at::Tensor further = layer.keys.narrow(2, before, last - before);
    layer.arrived = before == 0 ? further.clone() : at::cat({layer.arrived, further}, 2);
  }
  layer.turned = !layer.arrived.defined();
}

// ---------------------------------------------------------------------------------------------------------------------
// Evict

void KvCache::evict(std::int64_t sinks, std::int64_t newest, bool close) {
  evict_rows(sinks, std::vector<std::int64_t>(static_cast<std::size_t>(options_.batch), newest), close);
}

void KvCache::evict_rows(std::int64_t sinks, const std::vector<std::int64_t>& newest, bool close) {
  const std::size_t rows = static_cast<std::size_t>(options_.batch);
  if (newest.size() != rows)
    throw Error(str("cache: evict expects ", rows, " numbers of tokens, found ", newest.size()));
  for (const std::int64_t one : newest)
    if (sinks < 0 || one < 1)
      throw Error(str("cache: evict keeps 0 or more sinks and at least the newest token, found ", sinks, " and ", one,
                      "; truncate(0) empties a cache"));
  std::vector<std::vector<std::int64_t>> gaps;
  for (std::int64_t index = 0; index < options_.layers; ++index) {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    const std::vector<std::int64_t> held = layer.held();
    gaps.emplace_back(rows, 0);
    bool any = false;
    for (std::size_t b = 0; b < rows; ++b) {
      gaps.back()[b] = std::max<std::int64_t>(0, held[b] - sinks - newest[b]);
      if (gaps.back()[b] == 0) continue;
      any = true;
      if (layer.forgotten[b] > 0 && sinks > layer.sinks[b])
        throw Refusal(str("cache: row ", b, " of layer ", index, " has lost tokens behind its first ", layer.sinks[b],
                          "; it cannot keep ", sinks, " sinks any more"));
      // Dropped tokens lie in one place, behind the sinks: truncate() counts on it.
      if (layer.forgotten[b] > 0 && sinks + gaps.back()[b] < layer.sinks[b])
        throw Refusal(str("cache: row ", b, " of layer ", index, " has lost tokens behind its first ", layer.sinks[b],
                          "; dropping ", gaps.back()[b], " of those would leave a second gap; drop all but ", sinks,
                          " of them or none"));
    }
    if (!any) continue;
    const CacheContract contract = of_layer(index).cache(index);
    const std::string& why = sinks > 0 ? contract.evict : contract.oldest();
    if (!CacheContract::exact(why)) throw Refusal(str("cache: tokens cannot be dropped: ", why));
    if (sinks > 0 && layer.window > 0)
      throw Refusal(str("cache: layer ", index, " has a window of ", layer.window,
                        ", in which it counts tokens; sinks would come into it from outside"));
    if (close && encoding_->traits().axes != 1)
      throw Refusal(str("cache: positions of ", encoding_->traits().axes,
                        " axes have no order to close a gap in; shift() them by numbers of your own"));
  }
  if (close) check_shift();
  for (std::int64_t index = 0; index < options_.layers; ++index) {
    Layer& layer = layers_[static_cast<std::size_t>(index)];
    const std::vector<std::int64_t>& gap = gaps[static_cast<std::size_t>(index)];
    if (std::all_of(gap.begin(), gap.end(), [](std::int64_t one) { return one == 0; })) continue;
    const at::Tensor before = positions(index);
    std::vector<std::int64_t> first = layer.held();
    for (std::int64_t& one : first) one = std::min(one, sinks);
    drop(layer, first, gap, layer.keys.size(2));
    if (!close) continue;
    const at::Tensor after = positions(index);
    if (!after.defined()) continue;
    at::Tensor offsets = at::zeros({options_.batch, 1, 1}, before.options());
    at::Tensor which = at::zeros({options_.batch, after.size(1)}, before.options().dtype(at::kBool));
    for (std::int64_t b = 0; b < options_.batch; ++b) {
      const std::int64_t kept = first[static_cast<std::size_t>(b)], held = layer.held()[static_cast<std::size_t>(b)];
      if (gap[static_cast<std::size_t>(b)] == 0 || held == kept) continue;
      const at::Tensor aim = kept == 0 ? before[b][0][0] : before[b][kept - 1][0] + 1;
      offsets[b][0][0] = aim - after[b][kept][0];
      which[b].narrow(0, kept, held - kept).fill_(true);
    }
    move_tokens(index, offsets, which);
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Fork

KvCache KvCache::fork(const std::vector<std::int64_t>& rows) const {
  if (rows.empty()) throw Error("cache: fork expects at least one row");
  for (const std::int64_t row : rows)
    if (row < 0 || row >= options_.batch)
      throw Error(str("cache: fork of row ", row, ", the rows are ", options_.batch));
  CacheOptions options = options_;
  options.batch = static_cast<std::int64_t>(rows.size());
  KvCache copy(encoding_, options);
  const at::Tensor index = at::tensor(rows, at::TensorOptions(at::kLong));
  for (std::size_t n = 0; n < layers_.size(); ++n) {
    const Layer& from = layers_[n];
    Layer& to = copy.layers_[n];
    for (std::size_t b = 0; b < rows.size(); ++b) {
      const std::size_t row = static_cast<std::size_t>(rows[b]);
      to.lengths[b] = from.lengths[row];
      to.forgotten[b] = from.forgotten[row];
      to.sinks[b] = from.sinks[row];
    }
    for (at::Tensor Layer::*tensor : {&Layer::keys, &Layer::values, &Layer::documents, &Layer::positions,
                                      &Layer::origin, &Layer::offsets, &Layer::arrived})
      to.*tensor = selected(from.*tensor, index);
    to.turned = from.turned;
    for (const auto& [name, tensor] : from.kept) to.kept[name] = selected(tensor, index);
    for (const auto& [name, tensor] : from.state) to.state[name] = selected(tensor, index);
    to.recent = from.recent.of_rows(rows);
  }
  return copy;
}

}  // namespace torsor
