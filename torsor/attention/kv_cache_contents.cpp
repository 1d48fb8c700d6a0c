// A KV cache as named tensors, and back.
#include <algorithm>
#include <utility>

#include "torsor/attention/kv_cache.h"
#include "torsor/base/json.h"

namespace torsor {
namespace {

constexpr std::int64_t kVersion = 1;

const std::pair<const char*, at::ScalarType> kTypes[] = {
    {"float32", at::kFloat}, {"float64", at::kDouble}, {"bfloat16", at::kBFloat16}};

std::string type_name(at::ScalarType type) {
  for (const auto& [name, one] : kTypes)
    if (one == type) return name;
  throw Error(str("cache: no name for ", type));
}

/// What a cache must be made for to read the contents of another.
Json identity(const Encoding& encoding) {
  const Dimensions& d = encoding.dimensions();
  return {{"expression", encoding.expression()},
          {"heads", d.heads},
          {"kv_heads", d.kv_heads},
          {"head_dim", d.head_dim},
          {"width", d.width},
          {"train_length", d.train_length},
          {"layers", d.layers},
          {"precision", d.precision == Precision::Exact ? "exact" : "hf"}};
}

}  // namespace

CacheContents KvCache::contents() const {
  CacheContents all;
  Json layers = Json::array();
  for (std::size_t n = 0; n < layers_.size(); ++n) {
    const Layer& layer = layers_[n];
    const std::vector<std::int64_t> held = layer.held();
    const std::int64_t longest = *std::max_element(held.begin(), held.end());
    const std::string prefix = str("layers.", n, ".");
    const auto put = [&](const std::string& name, const at::Tensor& tensor, std::int64_t axis, std::int64_t count) {
      if (tensor.defined()) all.tensors[prefix + name] = (axis < 0 ? tensor : tensor.narrow(axis, 0, count)).clone();
    };
    if (longest > 0) {
      put("keys", layer.keys, 2, longest), put("values", layer.values, 2, longest);
      put("positions", layer.positions, 1, longest), put("documents", layer.documents, 1, longest);
      put("offsets", layer.offsets, 1, longest);
      if (layer.arrived.defined()) put("arrived", layer.arrived, 2, std::min(longest, layer.arrived.size(2)));
      for (const auto& [name, tensor] : layer.kept) put("kept." + name, tensor, 2, longest);
    }
    put("origin", layer.origin, -1, 0);
    for (const auto& [name, tensor] : layer.state) put("state." + name, tensor, -1, 0);
    for (const auto& [name, tensor] : layer.recent.ring()) put("recent." + name, tensor, -1, 0);
    layers.push_back({{"window", layer.window},
                      {"lengths", layer.lengths},
                      {"forgotten", layer.forgotten},
                      {"sinks", layer.sinks},
                      {"turned", layer.turned},
                      {"remembered", layer.recent.lengths()},
                      {"oldest", layer.recent.oldest()}});
  }
  const Json about = {{"version", kVersion},
                      {"encoding", identity(*encoding_)},
                      {"capacity", options_.capacity},
                      {"rollback", options_.rollback},
                      {"batch", options_.batch},
                      {"value_dim", options_.value_dim},
                      {"dtype", type_name(options_.dtype)},
                      {"raw_keys", options_.raw_keys},
                      {"layers", std::move(layers)}};
  all.about = json_text(about);
  return all;
}

KvCache KvCache::restore(std::shared_ptr<const Encoding> encoding, const CacheContents& contents,
                         const std::string& source, at::Device device) {
  const Json json = parse_json(contents.about, source + ": cache");
  JsonObject about(json, source + ": cache", JsonObject::Blame::data);
  if (const auto version = about.get<std::int64_t>("version"); version != kVersion)
    about.fail(str("version ", version, " is not known here, which writes ", kVersion));
  const Json made_for = about.get<Json>("encoding"), asked = identity(*encoding);
  if (made_for != asked)
    about.fail(str("written for another encoding: ", json_text(made_for), ", asked for ", json_text(asked)));
  const auto layers = about.get<std::vector<Json>>("layers");
  CacheOptions options;
  options.capacity = about.get<std::int64_t>("capacity");
  options.rollback = about.get<std::int64_t>("rollback");
  options.batch = about.get<std::int64_t>("batch");
  options.value_dim = about.get<std::int64_t>("value_dim");
  options.raw_keys = about.get<bool>("raw_keys");
  options.layers = static_cast<std::int64_t>(layers.size());
  options.device = device;
  const auto dtype = about.get<std::string>("dtype");
  const auto* type =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& one) { return dtype == one.first; });
  if (type == std::end(kTypes)) about.fail("dtype must be float32, float64 or bfloat16, found " + dtype);
  options.dtype = type->second;
  about.finish();
  constexpr std::int64_t kMostRows = std::int64_t{1} << 24;
  if (options.batch < 1 || options.batch > kMostRows) about.fail(str("batch must be 1 to 2^24, found ", options.batch));
  for (const Json& layer : layers) {
    JsonObject one(layer, source + ": cache: layers", JsonObject::Blame::data);
    options.window.push_back(one.get<std::int64_t>("window"));
    // Every row is told of, before memory is asked for so many.
    if (one.get<std::vector<std::int64_t>>("lengths").size() != static_cast<std::size_t>(options.batch))
      one.fail(str("lengths must have ", options.batch, " numbers"));
  }
  KvCache cache = [&] {
    try {
      return KvCache(std::move(encoding), options);
    } catch (const UsageError& error) {
      throw Error(str(source, ": ", error.what()));
    }
  }();

  std::map<std::string, at::Tensor> left = contents.tensors;
  const std::int64_t batch = options.batch, axes = cache.encoding_->traits().axes;
  const Dimensions& d = cache.encoding_->dimensions();
  for (std::size_t n = 0; n < layers.size(); ++n) {
    const std::string prefix = str("layers.", n, ".");
    JsonObject object(layers[n], source + ": cache: layers", JsonObject::Blame::data);
    Layer& layer = cache.layers_[n];
    const auto numbers = [&](const char* key) {
      auto list = object.get<std::vector<std::int64_t>>(key);
      if (list.size() != static_cast<std::size_t>(batch))
        object.fail(str(key, " must have ", batch, " numbers, found ", list.size()));
      return list;
    };
    object.allow("window");
    layer.lengths = numbers("lengths"), layer.forgotten = numbers("forgotten"), layer.sinks = numbers("sinks");
    layer.turned = object.get<bool>("turned");
    std::int64_t longest = 0;
    for (std::size_t b = 0; b < layer.lengths.size(); ++b) {
      const std::int64_t held = layer.lengths[b] - layer.forgotten[b];
      if (layer.lengths[b] < 0 || layer.forgotten[b] < 0 || held < 0 || layer.sinks[b] < 0 || layer.sinks[b] > held ||
          (layer.window == 0 && held > options.capacity))
        object.fail(str("row ", b, " has had ", layer.lengths[b], " tokens, lost ", layer.forgotten[b], ", keeps ",
                        layer.sinks[b], " sinks; the capacity is ", options.capacity));
      longest = std::max(longest, held);
    }
    const auto take = [&](const std::string& name, const std::vector<std::int64_t>& shape, at::ScalarType wanted,
                          bool needed) {
      const auto found = left.find(prefix + name);
      if (found == left.end()) {
        if (needed) throw Error(str(source, ": tensor '", prefix, name, "' is missing"));
        return at::Tensor();
      }
      const at::Tensor tensor = found->second;
      left.erase(found);
      bool fits = tensor.dim() == static_cast<std::int64_t>(shape.size()) && tensor.scalar_type() == wanted;
      for (std::size_t axis = 0; fits && axis < shape.size(); ++axis)
        fits = shape[axis] < 0 || tensor.size(static_cast<std::int64_t>(axis)) == shape[axis];
      if (!fits)
        throw Error(str(source, ": tensor '", prefix, name, "' must be ", wanted, " ", at::IntArrayRef(shape),
                        ", found ", tensor.scalar_type(), " ", tensor.sizes()));
      return tensor.to(device);
    };
    const bool some = longest > 0;
    layer.keys = take("keys", {batch, d.kv_heads, longest, d.head_dim}, options.dtype, some);
    layer.values = take("values", {batch, d.kv_heads, longest, cache.options_.value_dim}, options.dtype, some);
    layer.positions = take("positions", {batch, longest, axes}, at::kDouble, some);
    layer.documents = take("documents", {batch, longest}, at::kLong, false);
    layer.offsets = take("offsets", {batch, longest, axes}, at::kDouble, false);
    layer.arrived = take("arrived", {batch, d.kv_heads, -1, d.head_dim}, options.dtype, false);
    layer.origin = take("origin", {batch, 1, axes}, at::kDouble, false);
    if (layer.arrived.defined() && (layer.arrived.size(2) > longest || !layer.offsets.defined()))
      throw Error(str(source, ": tensor '", prefix, "arrived' does not fit the tokens that are held"));
    const bool kept_moved = cache.key_kind(static_cast<std::int64_t>(n)) == CacheContract::Key::Rotated;
    if (layer.offsets.defined() && kept_moved && !layer.arrived.defined())
      throw Error(str(source, ": tensor '", prefix, "arrived' is missing"));
    NamedTensors ring;
    for (auto it = left.lower_bound(prefix); it != left.end() && it->first.starts_with(prefix);) {
      const std::string name = it->first.substr(prefix.size());
      const at::Tensor tensor = it->second.to(device);
      const auto under = [&](const char* group) { return name.starts_with(group); };
      const bool rows = tensor.dim() > 0 && tensor.size(0) == batch;
      const bool tokens = rows && tensor.dim() >= 3;
      if (under("kept.") && tokens && tensor.size(2) == longest)
        layer.kept[name.substr(5)] = tensor;
      else if (under("state.") && rows)
        layer.state[name.substr(6)] = tensor;
      else if (under("recent.") && tokens && tensor.size(2) == RecentTokens::kLength)
        ring[name.substr(7)] = tensor;
      else
        throw Error(str(source, ": tensor '", it->first, "' ", tensor.sizes(), " does not fit a cache of ", batch,
                        " rows with ", longest, " tokens"));
      it = left.erase(it);
    }
    auto remembered = object.get<std::vector<std::int64_t>>("remembered");
    auto oldest = object.get<std::vector<std::int64_t>>("oldest");
    object.finish();
    if (ring.empty()) continue;
    if (remembered.size() != static_cast<std::size_t>(batch) || oldest.size() != remembered.size())
      object.fail(str("remembered and oldest must have ", batch, " numbers"));
    for (std::size_t b = 0; b < remembered.size(); ++b)
      if (remembered[b] != layer.lengths[b] || oldest[b] < 0 || oldest[b] > remembered[b])
        object.fail(str("row ", b, " has had ", layer.lengths[b], " tokens, remembered are those from ", oldest[b],
                        " to ", remembered[b]));
    layer.recent = RecentTokens::of(std::move(ring), std::move(remembered), std::move(oldest));
  }
  if (!left.empty()) throw Error(str(source, ": tensor '", left.begin()->first, "' belongs to no layer"));
  return cache;
}

}  // namespace torsor
