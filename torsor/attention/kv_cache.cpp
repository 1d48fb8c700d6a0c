#include "torsor/attention/kv_cache.h"

#include <algorithm>
#include <cmath>

#include "torsor/attention/large_tensor.h"
#include "torsor/base/error.h"

namespace torsor {
namespace {

/// Storage with room for `slots` tokens on `axis`, old content kept.
at::Tensor grown(const at::Tensor& old, std::vector<std::int64_t> shape, std::int64_t axis, std::int64_t slots,
                 const at::TensorOptions& options) {
  shape[static_cast<std::size_t>(axis)] = slots;
  at::Tensor fresh = large_empty(shape, options).zero_();
  if (old.defined() && old.size(axis) > 0) fresh.narrow(axis, 0, old.size(axis)).copy_(old);
  return fresh;
}

/// Writes the first counts[b] of `arriving` into slots lengths[b] ... of row b; `axis` is the token axis.
void place(const at::Tensor& storage, const at::Tensor& arriving, std::int64_t axis,
           const std::vector<std::int64_t>& lengths, const std::vector<std::int64_t>& counts) {
  const bool alike = std::equal(lengths.begin() + 1, lengths.end(), lengths.begin()) &&
                     std::equal(counts.begin() + 1, counts.end(), counts.begin());
  if (alike) {
    storage.narrow(axis, lengths[0], counts[0]).copy_(arriving.narrow(axis, 0, counts[0]));
    return;
  }
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    if (counts[b] == 0) continue;
    const std::int64_t row = static_cast<std::int64_t>(b);
    storage.select(0, row)
        .narrow(axis - 1, lengths[b], counts[b])
        .copy_(arriving.select(0, row).narrow(axis - 1, 0, counts[b]));
  }
}

at::Tensor as_tensor(const std::vector<std::int64_t>& values, at::Device device) {
  return at::tensor(values, at::TensorOptions(at::kLong)).to(device);
}

void check_floating(const at::Tensor& tensor, const char* name) {
  const at::ScalarType dtype = tensor.scalar_type();
  if (dtype != at::kDouble && dtype != at::kFloat && dtype != at::kBFloat16)
    throw Error(str("cache: ", name, " must be float64, float32 or bfloat16, found ", dtype));
}

std::vector<std::int64_t> counts_of(const at::Tensor& counts, std::int64_t batch, std::int64_t arriving) {
  if (!counts.defined()) return std::vector<std::int64_t>(static_cast<std::size_t>(batch), arriving);
  if (counts.dim() != 1 || counts.size(0) != batch || !at::isIntegralType(counts.scalar_type(), false))
    throw Error(str("cache: counts must be integers of shape (", batch, "), found ", counts.scalar_type(), " ",
                    counts.sizes()));
  const at::Tensor plain = counts.to(at::TensorOptions(at::kLong).device(at::kCPU)).contiguous();
  std::vector<std::int64_t> result(plain.data_ptr<std::int64_t>(), plain.data_ptr<std::int64_t>() + batch);
  for (const std::int64_t count : result)
    if (count < 0 || count > arriving) throw Error(str("cache: counts must lie in [0, ", arriving, "], found ", count));
  return result;
}

}  // namespace

KvCache::KvCache(const Encoding& encoding, const CacheOptions& options)
    : KvCache(std::shared_ptr<const Encoding>(&encoding, [](const Encoding*) {}), options) {}

KvCache::KvCache(std::shared_ptr<const Encoding> encoding, const CacheOptions& options)
    : encoding_(std::move(encoding)), options_(options) {
  if (options_.capacity < 1 || options_.batch < 1 || options_.layers < 1)
    throw UsageError(str("cache: capacity, batch and layers must be at least 1, found ", options_.capacity, ", ",
                         options_.batch, ", ", options_.layers));
  if (options_.dtype != at::kDouble && options_.dtype != at::kFloat && options_.dtype != at::kBFloat16)
    throw UsageError(str("cache: dtype must be float64, float32 or bfloat16, found ", options_.dtype));
  if (options_.value_dim < 0)
    throw UsageError(str("cache: value_dim must not be negative, found ", options_.value_dim));
  if (options_.value_dim == 0) options_.value_dim = encoding_->dimensions().head_dim;
  if (options_.raw_keys && encoding_->traits().carries)
    throw UsageError("cache: raw_keys is not for an encoding whose moves read a position state");
  if (options_.rollback < 0) throw UsageError(str("cache: rollback must not be negative, found ", options_.rollback));
  const std::size_t windows = options_.window.size();
  if (windows > 1 && windows != static_cast<std::size_t>(options_.layers))
    throw UsageError(str("cache: window must have one entry or one a layer (", options_.layers, "), found ", windows));
  layers_.resize(static_cast<std::size_t>(options_.layers));
  for (std::size_t n = 0; n < layers_.size(); ++n) {
    const std::int64_t index = static_cast<std::int64_t>(n);
    by_layer_.push_back(layer_encoding(encoding_, index));
    Layer& layer = layers_[n];
    layer.lengths.assign(static_cast<std::size_t>(options_.batch), 0);
    layer.forgotten = layer.sinks = layer.lengths;
    layer.window = windows == 0 ? 0 : options_.window[windows == 1 ? 0 : n];
    if (layer.window < 0) throw UsageError(str("cache: window must not be negative, found ", layer.window));
    if (!CacheContract::exact(by_layer_[n]->cache(index).oldest())) layer.window = 0;
  }
}

std::vector<std::int64_t> KvCache::Layer::held() const {
  std::vector<std::int64_t> result = lengths;
  for (std::size_t b = 0; b < result.size(); ++b) result[b] -= forgotten[b];
  return result;
}

std::vector<std::int64_t> KvCache::held(std::int64_t layer) const {
  of_layer(layer);
  return layers_[static_cast<std::size_t>(layer)].held();
}

const Encoding& KvCache::of_layer(std::int64_t layer) const {
  if (layer < 0 || layer >= options_.layers) throw Error(str("cache: layer ", layer, " of ", options_.layers));
  return *by_layer_[static_cast<std::size_t>(layer)];
}

const std::vector<std::int64_t>& KvCache::lengths(std::int64_t layer) const {
  of_layer(layer);
  return layers_[static_cast<std::size_t>(layer)].lengths;
}

std::int64_t KvCache::bytes() const {
  std::int64_t sum = 0;
  const auto count = [&](const at::Tensor& tensor) {
    if (tensor.defined()) sum += static_cast<std::int64_t>(tensor.nbytes());
  };
  for (const Layer& layer : layers_) {
    count(layer.keys), count(layer.values), count(layer.positions), count(layer.documents);
    count(layer.origin), count(layer.offsets), count(layer.arrived);
    for (const auto& [name, tensor] : layer.kept) count(tensor);
    for (const auto& [name, tensor] : layer.state) count(tensor);
    sum += layer.recent.bytes();
  }
  return sum;
}

void KvCache::check_arrival(const Layer& layer, const at::Tensor& k, const at::Tensor& v, const AttendOptions& options,
                            const std::vector<std::int64_t>& counts) const {
  const Dimensions& dimensions = encoding_->dimensions();
  if (!k.defined() || !v.defined()) throw Error("cache: k and v must be given");
  check_floating(k, "k");
  check_floating(v, "v");
  if (k.dim() != 4 || k.size(0) != options_.batch || k.size(1) != dimensions.kv_heads ||
      k.size(3) != dimensions.head_dim)
    throw Error(str("cache: k must have shape (", options_.batch, ", ", dimensions.kv_heads, ", n, ",
                    dimensions.head_dim, "), found ", k.sizes()));
  if (v.dim() != 4 || v.size(0) != options_.batch || v.size(1) != dimensions.kv_heads || v.size(2) != k.size(2) ||
      v.size(3) != options_.value_dim)
    throw Error(str("cache: v must have shape (", options_.batch, ", ", dimensions.kv_heads, ", ", k.size(2), ", ",
                    options_.value_dim, "), found ", v.sizes()));
  if (!options.causal) throw Error("cache: arriving tokens attend causally; append all of them first and use read()");
  const std::vector<std::int64_t> held = layer.held();
  for (std::size_t b = 0; b < counts.size() && layer.window == 0; ++b)
    if (held[b] + counts[b] > options_.capacity)
      throw Error(
          str("cache: row ", b, " would hold ", held[b] + counts[b], " tokens, the capacity is ", options_.capacity));
  const bool has_documents = layer.documents.defined();
  if (!is_empty(layer) && options.documents.defined() != has_documents)
    throw Error(str("cache: documents were ", has_documents ? "" : "not ", "given for the earlier tokens"));
}

bool KvCache::is_empty(const Layer& layer) {
  return std::all_of(layer.lengths.begin(), layer.lengths.end(), [](std::int64_t length) { return length == 0; });
}

at::Tensor KvCache::next_of(const Layer& layer) const {
  at::Tensor next = at::zeros({options_.batch, 1, 1}, at::TensorOptions(at::kDouble).device(options_.device));
  const std::vector<std::int64_t> held = layer.held();
  for (std::int64_t b = 0; b < options_.batch; ++b) {
    const std::int64_t slots = held[static_cast<std::size_t>(b)];
    if (slots == 0) continue;
    at::Tensor newest = layer.positions[b][slots - 1].narrow(0, 0, 1);
    if (layer.offsets.defined()) newest = newest + layer.offsets[b][slots - 1].narrow(0, 0, 1);
    if (layer.origin.defined()) newest = newest + layer.origin[b][0].narrow(0, 0, 1);
    next[b] = newest + 1;
  }
  return next;
}

at::Tensor KvCache::next_positions(std::int64_t layer) const {
  of_layer(layer);
  return next_of(layers_[static_cast<std::size_t>(layer)]);
}

Sides KvCache::arriving_sides(const Layer& layer, const at::Tensor& k, const AttendOptions& options,
                              const at::Tensor& counts) const {
  const Traits traits = encoding_->traits();
  AttendOptions arriving = options;
  if (!arriving.positions.defined()) {
    if (traits.axes != 1)
      throw Error(str("cache: the encoding reads ", traits.axes, " position axes; positions must be given"));
    const at::Tensor next = next_of(layer);
    const at::Tensor count = at::arange(k.size(2), next.options()).view({1, -1, 1});
    const bool alike = options_.batch > 1 && next.eq(next[0]).all().item<bool>();
    arriving.positions = alike ? (next.narrow(0, 0, 1) + count).expand({options_.batch, k.size(2), 1}) : next + count;
  }
  if (layer.origin.defined() && arriving.positions.dim() == 3 && arriving.positions.size(2) == traits.axes)
    arriving.positions = arriving.positions.to(at::kDouble) - layer.origin;
  arriving.query_positions = arriving.positions;
  arriving.query_documents = arriving.documents;
  arriving.query_offsets = at::Tensor();
  arriving.key_lengths = counts;
  return resolve_sides(k, k, arriving, traits);
}

at::Tensor KvCache::asking_positions(const Layer& layer, const at::Tensor& arriving,
                                     const std::vector<std::int64_t>& counts) const {
  const std::int64_t tokens = arriving.size(1);
  if (std::all_of(counts.begin(), counts.end(), [&](std::int64_t count) { return count == tokens; })) return arriving;
  // Queries past a row's count have no token and no meaning; at the row's newest position they cannot be refused for
  // it.
  at::Tensor positions = arriving.clone();
  const std::vector<std::int64_t> held = layer.held();
  for (std::int64_t b = 0; b < options_.batch; ++b) {
    const std::int64_t count = counts[static_cast<std::size_t>(b)], length = held[static_cast<std::size_t>(b)];
    const at::Tensor further = positions.select(0, b).narrow(0, count, tokens - count);
    if (count > 0)
      further.copy_(positions.select(0, b).narrow(0, count - 1, 1).expand_as(further));
    else if (length > 0)
      further.copy_((layer.offsets.defined() ? layer.positions.select(0, b) + layer.offsets.select(0, b)
                                             : layer.positions.select(0, b))
                        .narrow(0, length - 1, 1)
                        .expand_as(further));
    else
      further.zero_();
  }
  return positions;
}

void KvCache::reserve(Layer& layer, std::int64_t slots, std::int64_t axes, bool documents) {
  const std::int64_t have = layer.keys.defined() ? layer.keys.size(2) : 0;
  if (slots > have) {
    // Doubling keeps the cost of growing linear, and half as much again lets the tokens behind a prompt come without
    // a copy of it; never past the capacity, or what a window's layer comes to hold.
    const std::int64_t most = layer.window > 0 ? room(layer) : options_.capacity;
    const std::int64_t wanted =
        std::max(slots, std::min(most, std::max({2 * have, slots + slots / 2, std::int64_t{16}})));
    const Dimensions& dimensions = encoding_->dimensions();
    const at::TensorOptions stored = at::TensorOptions(options_.dtype).device(options_.device);
    const std::int64_t batch = options_.batch, heads = dimensions.kv_heads;
    layer.keys = grown(layer.keys, {batch, heads, 0, dimensions.head_dim}, 2, wanted, stored);
    layer.values = grown(layer.values, {batch, heads, 0, options_.value_dim}, 2, wanted, stored);
    layer.positions = grown(layer.positions, {batch, 0, axes}, 1, wanted, stored.dtype(at::kDouble));
    if (layer.documents.defined())
      layer.documents = grown(layer.documents, {batch, 0}, 1, wanted, stored.dtype(at::kLong));
    if (layer.offsets.defined())
      layer.offsets = grown(layer.offsets, {batch, 0, axes}, 1, wanted, stored.dtype(at::kDouble));
    for (auto& [name, tensor] : layer.kept) tensor = grown(tensor, tensor.sizes().vec(), 2, wanted, tensor.options());
  }
  if (documents && !layer.documents.defined())
    layer.documents =
        at::zeros({options_.batch, layer.keys.size(2)}, at::TensorOptions(at::kLong).device(options_.device));
}

void KvCache::forget(Layer& layer, std::int64_t arriving) {
  if (layer.window == 0 || !layer.keys.defined()) return;
  std::vector<std::int64_t> held = layer.held();
  const std::int64_t longest = *std::max_element(held.begin(), held.end());
  if (longest + arriving <= room(layer)) return;
  std::vector<std::int64_t> gap(held.size());
  std::int64_t stays = 0;
  for (std::size_t b = 0; b < held.size(); ++b) {
    gap[b] = std::max<std::int64_t>(0, held[b] - needed(layer));
    stays = std::max(stays, held[b] - gap[b]);
  }
  drop(layer, layer.sinks, gap, std::max(stays + arriving, std::min(room(layer), layer.keys.size(2))));
}

void KvCache::drop(Layer& layer, const std::vector<std::int64_t>& sinks, const std::vector<std::int64_t>& gap,
                   std::int64_t slots) {
  const std::vector<std::int64_t> held = layer.held();
  const auto moved = [&](at::Tensor& storage, std::int64_t axis) {
    if (!storage.defined()) return;
    std::vector<std::int64_t> shape = storage.sizes().vec();
    shape[static_cast<std::size_t>(axis)] = slots;
    const at::Tensor fresh = large_empty(shape, storage.options()).zero_();
    for (std::size_t b = 0; b < held.size(); ++b) {
      const auto row = static_cast<std::int64_t>(b);
      const at::Tensor to = fresh.select(0, row), from = storage.select(0, row);
      const std::int64_t first = std::min(sinks[b], held[b]), behind = held[b] - first - gap[b];
      to.narrow(axis - 1, 0, first).copy_(from.narrow(axis - 1, 0, first));
      to.narrow(axis - 1, first, behind).copy_(from.narrow(axis - 1, first + gap[b], behind));
    }
    storage = fresh;
  };
  if (layer.arrived.defined()) {
    const std::int64_t turned = layer.arrived.size(2);
    at::Tensor all = at::cat({layer.arrived, layer.keys.narrow(2, turned, layer.keys.size(2) - turned)}, 2);
    moved(all, 2);
    layer.arrived = all.narrow(2, 0, std::min(turned, slots)).clone();
  }
  moved(layer.keys, 2), moved(layer.values, 2), moved(layer.positions, 1), moved(layer.documents, 1);
  moved(layer.offsets, 1);
  for (auto& [name, tensor] : layer.kept) moved(tensor, 2);
  for (std::size_t b = 0; b < held.size(); ++b) {
    layer.forgotten[b] += gap[b];
    if (gap[b] > 0) layer.sinks[b] = sinks[b];
  }
}

void KvCache::append(const at::Tensor& k, const at::Tensor& v, const AttendOptions& options, const at::Tensor& counts) {
  arrive({}, k, v, options, counts, nullptr);
}

void KvCache::arrive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttendOptions& given,
                     const at::Tensor& given_counts, const Sides* known) {
  const Encoding& encoding = of_layer(given.layer);
  Layer& layer = layers_[static_cast<std::size_t>(given.layer)];
  AttendOptions options = given;
  options.layers = options_.layers;
  const std::vector<std::int64_t> counts =
      counts_of(given_counts, options_.batch, k.defined() && k.dim() == 4 ? k.size(2) : 0);
  check_arrival(layer, k, v, options, counts);
  check_call(encoding, options, options_.batch, k.size(2));
  const Sides sides = known
                          ? *known
                          : arriving_sides(layer, k, options,
                                           given_counts.defined() ? as_tensor(counts, options_.device) : at::Tensor());
  const Side& arriving = sides.key;

  Question question = arrival_question(q, k, v, sides, options);
  NamedTensors state = layer.state;
  const NamedTensors kept = encoding.arrive(question, state);
  question.kept = &kept;
  at::Tensor keys = question.k;
  if (key_kind(options.layer) == CacheContract::Key::Rotated) keys = move_keys(keys, encoding, question, options);

  // Nothing has changed so far: what follows cannot fail for the caller's reasons.
  if (is_empty(layer)) layer.documents = at::Tensor();  // an emptied cache may go on without documents
  forget(layer, *std::max_element(counts.begin(), counts.end()));
  const std::vector<std::int64_t> held = layer.held();
  std::int64_t longest = 0;
  for (std::size_t b = 0; b < counts.size(); ++b) longest = std::max(longest, held[b] + counts[b]);
  if (longest == 0) return;
  reserve(layer, longest, arriving.positions.size(2), arriving.documents.defined());
  place(layer.keys, keys.detach(), 2, held, counts);
  place(layer.values, question.v.detach(), 2, held, counts);
  place(layer.positions, arriving.positions, 1, held, counts);
  // A slot that a dropped token left may still have its offset.
  if (layer.offsets.defined()) place(layer.offsets, at::zeros_like(arriving.positions), 1, held, counts);
  if (layer.arrived.defined())
    for (std::size_t b = 0; b < counts.size(); ++b) {
      const std::int64_t count = std::min(counts[b], layer.arrived.size(2) - held[b]);
      const auto row = static_cast<std::int64_t>(b);
      if (count > 0) layer.arrived[row].narrow(1, held[b], count).copy_(keys.detach()[row].narrow(1, 0, count));
    }
  if (arriving.documents.defined()) place(layer.documents, arriving.documents, 1, held, counts);
  for (const auto& [name, tensor] : kept) {
    at::Tensor& storage = layer.kept[name];
    if (!storage.defined()) storage = grown({}, tensor.sizes().vec(), 2, layer.keys.size(2), tensor.options());
    place(storage, tensor.detach(), 2, held, counts);
  }
  for (auto& [name, tensor] : state) tensor = tensor.detach();
  layer.state = std::move(state);
  for (std::size_t b = 0; b < counts.size(); ++b) layer.lengths[b] += counts[b];
}

CacheView KvCache::seen(std::int64_t index, const AttendOptions& options) const {
  const Encoding& encoding = of_layer(index);
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  const std::vector<std::int64_t> held = layer.held();
  const std::int64_t longest = *std::max_element(held.begin(), held.end());
  const Dimensions& dimensions = encoding.dimensions();
  CacheView view;
  view.lengths = as_tensor(held, options_.device);
  if (longest == 0) {
    const at::TensorOptions stored = at::TensorOptions(options_.dtype).device(options_.device);
    view.keys = at::zeros({options_.batch, dimensions.kv_heads, 0, dimensions.head_dim}, stored);
    view.values = at::zeros({options_.batch, dimensions.kv_heads, 0, options_.value_dim}, stored);
    view.positions = at::zeros({options_.batch, 0, encoding_->traits().axes}, stored.dtype(at::kDouble));
    // What is kept of no token has its names and shapes all the same: the encoding looks for them.
    AttendOptions nothing;
    nothing.parameters = options.parameters;
    nothing.layer = index;
    nothing.layers = options_.layers;
    nothing.x = at::zeros({options_.batch, 0, dimensions.width}, stored);
    // Their further shape comes from the question, where one was asked.
    for (const std::string& name : encoding.inputs()) {
      const auto found = options.named.find(name);
      nothing.named[name] = found != options.named.end() && found->second.dim() >= 2
                                ? found->second.narrow(1, 0, 0)
                                : at::zeros({options_.batch, 0}, stored);
    }
    Sides sides;
    sides.key.positions = view.positions;
    const at::Tensor q = at::zeros({options_.batch, dimensions.heads, 0, dimensions.head_dim}, stored);
    NamedTensors state;
    view.kept = encoding.arrive(arrival_question(q, view.keys, view.values, sides, nothing), state);
    return view;
  }
  const bool raw = key_kind(index) == CacheContract::Key::Raw;
  if (!raw) turn_keys(index, options);
  view.keys = layer.keys.narrow(2, 0, longest);
  view.values = layer.values.narrow(2, 0, longest);
  view.positions = layer.positions.narrow(1, 0, longest);
  if (layer.offsets.defined()) view.positions = view.positions + layer.offsets.narrow(1, 0, longest);
  if (layer.origin.defined() && !sees_frame()) view.positions = view.positions + layer.origin;
  if (layer.documents.defined()) view.documents = layer.documents.narrow(1, 0, longest);
  view.kept = seen_kept(index, longest);
  if (raw) {
    AttendOptions holding;
    holding.parameters = options.parameters;
    holding.layer = index;
    holding.layers = options_.layers;
    Sides sides;
    sides.key = {view.positions, view.documents, view.lengths};
    Question question = arrival_question({}, view.keys, view.values, sides, holding);
    question.kept = &view.kept;
    view.keys = move_keys(view.keys, encoding, question, options);
  }
  return view;
}

CacheView KvCache::view(std::int64_t index, const AttendOptions& options) const {
  CacheView all = seen(index, options);
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  if (layer.origin.defined() && sees_frame()) all.positions = all.positions + layer.origin;
  return all;
}

void KvCache::check_query(const at::Tensor& q) const {
  const Dimensions& dimensions = encoding_->dimensions();
  if (!q.defined() || q.dim() != 4 || q.size(0) != options_.batch || q.size(1) != dimensions.heads ||
      q.size(3) != dimensions.head_dim)
    throw Error(str("cache: q must have shape (", options_.batch, ", ", dimensions.heads, ", n, ", dimensions.head_dim,
                    "), found ", q.defined() ? str(q.sizes()) : std::string("none")));
  check_floating(q, "q");
}

Attended KvCache::read(const at::Tensor& q, const AttendOptions& options) const {
  of_layer(options.layer);
  check_query(q);
  const at::Tensor& asked = options.query_positions;
  if (!asked.defined()) throw Error("cache: read() needs query_positions");
  const at::Tensor& origin = layers_[static_cast<std::size_t>(options.layer)].origin;
  const bool fits = asked.dim() == 3 && asked.size(2) == encoding_->traits().axes;  // ask() says what is wrong
  return ask(q, options, origin.defined() && fits ? asked.to(at::kDouble) - origin : asked);
}

Attended KvCache::ask(const at::Tensor& q, const AttendOptions& options, const at::Tensor& frame) const {
  const Encoding& encoding = of_layer(options.layer);
  const Layer& layer = layers_[static_cast<std::size_t>(options.layer)];
  AttendOptions complete = options;
  complete.layers = options_.layers;
  check_call(encoding, complete, options_.batch, q.size(2));
  const CacheView held = seen(options.layer, options);
  if (layer.window > 0 && (!options.window || *options.window > layer.window))
    throw Error(str("cache: layer ", options.layer, " was made for a window of ", layer.window,
                    " and holds no more; found ",
                    options.window ? str("a window of ", *options.window) : std::string("no window")));
  complete.query_positions = frame;
  if (layer.origin.defined() && !sees_frame() && frame.dim() == 3) {
    complete.query_positions = frame + layer.origin;
    turn_back(complete, q, options.layer);
  }
  complete.positions = held.positions;
  complete.documents = held.documents;
  if (!held.documents.defined())
    complete.query_documents = at::Tensor();
  else if (!complete.query_documents.defined())
    throw Error("cache: read() needs query_documents, the cache holds documents");
  // Rows of one length need no lengths: the call stays as plain as one without a cache.
  const std::vector<std::int64_t> row_lengths = layer.held();
  const bool alike = std::equal(row_lengths.begin() + 1, row_lengths.end(), row_lengths.begin());
  complete.key_lengths = alike ? at::Tensor() : held.lengths;
  const Sides sides = resolve_sides(q, held.keys, complete, encoding.traits());

  const Question question = query_question(q, sides, held.kept, encoding, complete);
  // What is kept in bfloat16 is widened on the way, not written out again for every token.
  const bool widens = q.scalar_type() == at::kFloat && options_.dtype == at::kBFloat16;
  const at::ScalarType read = widens ? at::kBFloat16 : q.scalar_type();
  return ask_and_run(encoding, question, held.keys.to(read), held.values.to(read), complete);
}

Attended KvCache::attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttendOptions& options,
                         const at::Tensor& given_counts) {
  of_layer(options.layer);
  Layer& layer = layers_[static_cast<std::size_t>(options.layer)];
  check_query(q);
  if (!k.defined() || k.dim() != 4 || q.size(2) != k.size(2))
    throw Error(str("cache: q and k must hold the same new tokens, found q ", q.sizes(), ", k ",
                    k.defined() ? str(k.sizes()) : std::string("none")));
  const std::vector<std::int64_t> counts = counts_of(given_counts, options_.batch, k.size(2));
  check_arrival(layer, k, v, options, counts);
  // Nothing is written where a held token lies, so this is the layer as it is now.
  const Layer before = layer;
  AttendOptions reading = options;
  const Sides all = arriving_sides(layer, k, options, {});  // of all n tokens, those past a row's count too
  const at::Tensor frame = asking_positions(layer, all.key.positions, counts);
  reading.query_documents = options.documents;
  arrive(q, k, v, options, given_counts, given_counts.defined() ? nullptr : &all);
  const std::vector<std::int64_t>& after = layer.lengths;
  std::vector<std::int64_t> first = before.lengths;  // slot of each row's first query
  for (std::size_t b = 0; b < first.size(); ++b) first[b] -= layer.forgotten[b];
  const std::vector<std::int64_t> held = layer.held();
  const bool alike = std::equal(held.begin() + 1, held.end(), held.begin()) &&
                     std::equal(first.begin() + 1, first.end(), first.begin()) &&
                     after[0] - before.lengths[0] == k.size(2);
  reading.query_offsets = alike ? at::Tensor() : as_tensor(first, options_.device);
  try {
    return ask(q, reading, frame);
  } catch (...) {
    // The encoding refuses these tokens (a gated slope and a falling position): they never arrived.
    layer = before;
    throw;
  }
}

void KvCache::truncate(std::int64_t length) {
  truncate(std::vector<std::int64_t>(static_cast<std::size_t>(options_.batch), length));
}

void KvCache::truncate(const std::vector<std::int64_t>& lengths) {
  if (static_cast<std::int64_t>(lengths.size()) != options_.batch)
    throw Error(str("cache: truncate expects ", options_.batch, " lengths, found ", lengths.size()));
  for (const Layer& layer : layers_)
    for (std::size_t b = 0; b < lengths.size(); ++b)
      if (lengths[b] < 0 || lengths[b] > layer.lengths[b])
        throw Error(str("cache: row ", b, " holds ", layer.lengths[b], " tokens and cannot keep ", lengths[b]));
  for (std::size_t n = 0; n < layers_.size(); ++n)
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      const Layer& layer = layers_[n];
      if (layer.forgotten[b] == 0 || lengths[b] == layer.lengths[b] || lengths[b] <= layer.sinks[b]) continue;
      const bool gone = lengths[b] <= layer.sinks[b] + layer.forgotten[b];
      const std::int64_t seen = std::min(layer.window - 1, lengths[b]);  // earlier tokens that the next one sees
      if (layer.window > 0 && (gone || lengths[b] - layer.forgotten[b] < seen))
        throw Refusal(str("cache: layer ", n, " has a window of ", layer.window, " and has forgotten the first ",
                          layer.forgotten[b], " tokens of row ", b, "; it cannot go back from ", layer.lengths[b],
                          " to ", lengths[b], "; start a new cache"));
      if (gone)
        throw Refusal(str("cache: the tokens ", layer.sinks[b], " to ", layer.sinks[b] + layer.forgotten[b] - 1,
                          " of row ", b, " of layer ", n, " were dropped; it cannot go back from ", layer.lengths[b],
                          " to ", lengths[b], "; start a new cache"));
    }
  // All layers' states first: one that refuses must leave the others as they are.
  std::vector<NamedTensors> states;
  for (std::size_t n = 0; n < layers_.size(); ++n)
    states.push_back(rewound(layers_[n], static_cast<std::int64_t>(n), lengths));
  for (const Layer& layer : layers_)
    for (std::size_t b = 0; b < lengths.size(); ++b)
      if (!layer.recent.reaches(b, lengths[b]))
        throw Refusal(str("cache: the model remembers the last ", RecentTokens::kLength, " tokens of a row; row ", b,
                          " cannot go back from ", layer.lengths[b], " to ", lengths[b], "; start a new cache"));
  for (std::size_t n = 0; n < layers_.size(); ++n) {
    Layer& layer = layers_[n];
    layer.lengths = lengths;
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      if (lengths[b] <= layer.sinks[b]) layer.forgotten[b] = layer.sinks[b] = 0;
      if (lengths[b] == 0 && layer.origin.defined()) layer.origin[static_cast<std::int64_t>(b)].zero_();
    }
    layer.state = std::move(states[n]);
    layer.recent.truncate(lengths);
  }
}

void KvCache::remember(std::int64_t index, const NamedTensors& arriving, const at::Tensor& given_counts) {
  of_layer(index);
  Layer& layer = layers_[static_cast<std::size_t>(index)];
  std::int64_t tokens = 0;
  for (const auto& [name, tensor] : arriving) {
    if (tensor.dim() < 3 || tensor.size(0) != options_.batch || (tokens != 0 && tensor.size(2) != tokens))
      throw Error(str("cache: what is remembered must have shape (", options_.batch, ", heads, n, ...), found ", name,
                      " ", tensor.sizes()));
    tokens = tensor.size(2);
  }
  const std::vector<std::int64_t> counts = counts_of(given_counts, options_.batch, tokens);
  for (std::size_t b = 0; b < counts.size(); ++b) {
    const std::int64_t before = layer.recent.lengths().empty() ? 0 : layer.recent.lengths()[b];
    if (before + counts[b] != layer.lengths[b])
      throw Error(str("cache: row ", b, " of layer ", index, " holds ", layer.lengths[b],
                      " tokens, remembered would be ", before + counts[b]));
  }
  layer.recent.push(arriving, counts);
}

NamedTensors KvCache::newest(std::int64_t layer) const {
  of_layer(layer);
  return layers_[static_cast<std::size_t>(layer)].recent.newest();
}

NamedTensors KvCache::rewound(const Layer& layer, std::int64_t index, const std::vector<std::int64_t>& lengths) const {
  if (layer.state.empty() || lengths == layer.lengths) return layer.state;
  std::vector<std::int64_t> slots = lengths;
  for (std::size_t b = 0; b < slots.size(); ++b) slots[b] = slot_of(layer, b, lengths[b]);
  const std::int64_t longest = *std::max_element(slots.begin(), slots.end());
  Side tokens;
  tokens.positions = layer.positions.narrow(1, 0, longest);
  if (layer.documents.defined()) tokens.documents = layer.documents.narrow(1, 0, longest);
  tokens.lengths = as_tensor(slots, options_.device);
  NamedTensors kept;
  for (const auto& [name, tensor] : layer.kept) kept.emplace(name, tensor.narrow(2, 0, longest));
  NamedTensors state = of_layer(index).rewind(tokens, kept);
  for (const auto& [name, tensor] : layer.state)
    if (state.find(name) == state.end())
      throw Refusal(str("cache: the encoding cannot take its running state '", name, "' back; start a new cache"));
  return state;
}

}  // namespace torsor
