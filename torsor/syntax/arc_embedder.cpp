#include "torsor/syntax/arc_embedder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "torsor/base/error.h"
#include "torsor/syntax/relations.h"

namespace torsor::syntax {
namespace {

// Numbers of a column lie below these; one more row of each table stands for a hidden arc.
constexpr std::int64_t kRelationRows = static_cast<std::int64_t>(kRelations.size()) + 1;
constexpr std::int64_t kDirectionRows = 4, kBucketRows = 8, kCountRows = 5;
constexpr std::array<std::int64_t, ArcFeatures::kColumns> kRows = {kRelationRows, kDirectionRows, kBucketRows,
                                                                   kCountRows,    kRelationRows,  kRelationRows,
                                                                   kRelationRows, kBucketRows,    2};
constexpr std::array<const char*, ArcFeatures::kColumns> kNames = {
    "relation",          "direction",         "distance", "left_count", "left_relations[0]",
    "left_relations[1]", "left_relations[2]", "waiting",  "valid"};
enum Column { kRelation, kDirection, kDistance, kLeftCount, kLeft, kWaiting = 7, kValid };

void check_arcs(const at::Tensor& arcs) {
  const auto columns = static_cast<std::int64_t>(ArcFeatures::kColumns);
  if (!arcs.defined() || arcs.dim() < 2 || arcs.size(-1) != columns || arcs.scalar_type() != at::kLong)
    throw Error(str("arc embedder: expected arcs (..., T, ", columns, ") int64, found ",
                    arcs.defined() ? str(arcs.scalar_type(), " ", arcs.sizes()) : std::string("none")));
  if (arcs.numel() == 0) return;
  const at::Tensor flat = arcs.reshape({-1, columns});
  const at::Tensor least = std::get<0>(flat.min(0)).to(at::kCPU).contiguous();
  const at::Tensor most = std::get<0>(flat.max(0)).to(at::kCPU).contiguous();
  for (std::int64_t c = 0; c < columns; ++c) {
    const std::int64_t low = least.const_data_ptr<std::int64_t>()[c], high = most.const_data_ptr<std::int64_t>()[c];
    const auto at = static_cast<std::size_t>(c);
    if (low < 0 || high >= kRows[at])
      throw Error(str("arc embedder: expected ", kNames[at], " in [0, ", kRows[at], "), found ", low < 0 ? low : high));
  }
}

at::Tensor table(const std::string& name, std::int64_t rows, std::int64_t width, Weights& weights) {
  return weights.take(name, {rows + 1, width}, 1);  // the last row: hidden
}

ArcEmbedderSizes arc_sizes_of(const NativeModel& model) {
  const std::string where = model.source + "/config.json";
  if (model.kind != "arcs") throw Error(str(where, ": expected a model of kind 'arcs', found '", model.kind, "'"));
  JsonObject object(model.sizes, where + ": sizes", JsonObject::Blame::data);
  ArcEmbedderSizes sizes;
  sizes.relation = read_size(object, "relation");
  sizes.direction = read_size(object, "direction");
  sizes.distance = read_size(object, "distance");
  sizes.hidden = read_size(object, "hidden");
  sizes.incremental = object.get<bool>("incremental");
  sizes.exchange = object.get<bool>("exchange");
  object.finish();
  JsonObject vocabulary(model.vocabulary, where + ": vocabulary", JsonObject::Blame::data);
  const auto relations = vocabulary.get<std::vector<std::string>>("relations");
  vocabulary.finish();
  if (!std::equal(relations.begin(), relations.end(), kRelations.begin(), kRelations.end()))
    throw Error(str(where, ": its ", relations.size(), " relations are not the ", kRelations.size(),
                    " that arcs are numbered by here; train it again"));
  return sizes;
}

}  // namespace

ArcEmbedder::ArcEmbedder(const ArcEmbedderSizes& sizes, Weights weights) : sizes_(sizes), weights_(std::move(weights)) {
  if (sizes.incremental && sizes.exchange)
    throw UsageError("arc embedder: an exchange along the arcs reads words ahead; incremental features have none");
  const std::int64_t counts = sizes.incremental ? sizes.relation + 2 * sizes.distance : 0;
  const std::int64_t inputs = sizes.relation + sizes.direction + sizes.distance + counts;
  relation_ = table("relation", kRelationRows, sizes.relation, weights_);
  direction_ = table("direction", kDirectionRows, sizes.direction, weights_);
  distance_ = table("distance", kBucketRows, sizes.distance, weights_);
  if (sizes.incremental) {
    count_ = table("left_count", kCountRows, sizes.distance, weights_);
    waiting_ = table("waiting", kBucketRows, sizes.distance, weights_);
  }
  first_ = Affine("first", inputs, sizes.hidden, weights_);
  second_ = Affine("second", sizes.hidden, ArcEmbedderSizes::kOut, weights_);
  gain_ = weights_.take("norm.gain", {ArcEmbedderSizes::kOut}, 0);  // what is learned is added to 1
  bias_ = weights_.take("norm.bias", {ArcEmbedderSizes::kOut}, 0);
  if (sizes.exchange) exchange_ = weights_.matrix("exchange", ArcEmbedderSizes::kOut, 2 * ArcEmbedderSizes::kOut);
  weights_.finish();
}

ArcEmbedder::ArcEmbedder(const NativeModel& model)
    : ArcEmbedder(arc_sizes_of(model), Weights(model.tensors, model.source + "/model.safetensors")) {
  sha256_ = model.sha256;
}

NativeModel ArcEmbedder::to_model() const {
  NativeModel model;
  model.kind = "arcs";
  model.sizes = {{"relation", sizes_.relation}, {"direction", sizes_.direction},     {"distance", sizes_.distance},
                 {"hidden", sizes_.hidden},     {"incremental", sizes_.incremental}, {"exchange", sizes_.exchange}};
  model.vocabulary = {{"relations", kRelations}};
  model.tensors = weights_.tensors();
  return model;
}

at::Tensor ArcEmbedder::operator()(const at::Tensor& arcs, const at::Tensor& heads, const at::Tensor& hidden) const {
  check_arcs(arcs);
  const auto shape_of_tokens = arcs.sizes().slice(0, static_cast<std::size_t>(arcs.dim()) - 1);
  const auto look_up = [&](const at::Tensor& rows, int column) {
    at::Tensor ids = arcs.select(-1, column);
    if (hidden.defined()) ids = ids.masked_fill(hidden, rows.size(0) - 1);
    return at::embedding(rows, ids);
  };
  std::vector<at::Tensor> parts = {look_up(relation_, kRelation), look_up(direction_, kDirection),
                                   look_up(distance_, kDistance)};
  if (sizes_.incremental) {
    parts.push_back(look_up(count_, kLeftCount));
    parts.push_back((look_up(relation_, kLeft) + look_up(relation_, kLeft + 1) + look_up(relation_, kLeft + 2)) / 3);
    parts.push_back(look_up(waiting_, kWaiting));
  }
  const at::Tensor inner = second_(at::gelu(first_(at::cat(parts, -1))));
  at::Tensor s = at::layer_norm(inner, {ArcEmbedderSizes::kOut}, 1 + gain_, bias_);
  const at::Tensor valid = arcs.select(-1, kValid).unsqueeze(-1);
  s = s * valid;
  if (!sizes_.exchange) return s;
  if (!heads.defined() || heads.scalar_type() != at::kLong || heads.sizes() != shape_of_tokens)
    throw Error(str("arc embedder: the exchange reads heads (..., T) int64 of shape ", shape_of_tokens, ", found ",
                    heads.defined() ? str(heads.scalar_type(), " ", heads.sizes()) : std::string("none")));
  const std::int64_t tokens = heads.size(-1), width = ArcEmbedderSizes::kOut;
  if (tokens > 0 && (heads.lt(-1).any().item<bool>() || heads.ge(tokens).any().item<bool>()))
    throw Error(str("arc embedder: heads must lie in [-1, ", tokens, ")"));
  const at::Tensor rows = s.reshape({-1, tokens, width});
  const at::Tensor has = heads.ge(0).reshape({-1, tokens, 1}).to(rows.scalar_type());
  const at::Tensor at_head = heads.clamp_min(0).reshape({-1, tokens, 1}).expand({rows.size(0), tokens, width});
  const at::Tensor of_head = rows.gather(1, at_head) * has;
  const at::Tensor sum = at::zeros_like(rows).scatter_add(1, at_head, rows * has);
  const at::Tensor count = at::zeros_like(has).scatter_add(1, heads.clamp_min(0).reshape({-1, tokens, 1}), has);
  const at::Tensor exchanged = at::linear(at::cat({of_head, sum / count.clamp_min(1)}, -1), exchange_);
  return s + exchanged.view_as(s) * valid;
}

ArcEmbedder load_arc_embedder(const std::string& folder) { return ArcEmbedder(read_native_model(folder)); }

}  // namespace torsor::syntax
