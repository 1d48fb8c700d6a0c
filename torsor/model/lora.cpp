#include "torsor/model/lora.h"

#include <algorithm>
#include <cmath>

#include "torsor/base/random.h"
#include "torsor/model/project.h"

namespace torsor {
namespace {

constexpr std::int64_t kLargestRank = 1 << 16;
constexpr const char* kModules[] = {"q", "k", "v", "o"};

}  // namespace

void check_lora(const LoraOptions& options) {
  if (options.rank < 1 || options.rank > kLargestRank)
    throw UsageError(str("rank must be from 1 to ", kLargestRank, ", found ", options.rank));
  if (!(options.alpha > 0) || !std::isfinite(options.alpha))
    throw UsageError(str("alpha must be a finite number above 0, found ", options.alpha));
  if (options.modules.empty()) throw UsageError("modules must name at least one of q, k, v, o");
  for (std::size_t n = 0; n < options.modules.size(); ++n) {
    const std::string& module = options.modules[n];
    if (std::find(std::begin(kModules), std::end(kModules), module) == std::end(kModules))
      throw UsageError(str("modules must be among q, k, v, o, found '", module, "'"));
    if (std::find(options.modules.begin(), options.modules.begin() + static_cast<std::ptrdiff_t>(n), module) !=
        options.modules.begin() + static_cast<std::ptrdiff_t>(n))
      throw UsageError(str("modules names '", module, "' twice"));
  }
}

std::vector<LoraPlace> lora_places(const ModelConfig& config, const LoraOptions& options) {
  check_lora(options);
  const std::int64_t q_width = config.heads * config.head_dim, k_width = config.kv_heads * config.head_dim;
  std::vector<LoraPlace> places;
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    for (const char* name : kModules) {
      const std::string module = name;
      if (std::find(options.modules.begin(), options.modules.end(), module) == options.modules.end()) continue;
      LoraPlace place;
      place.projection = str("model.layers.", layer, ".self_attn.", module, "_proj");
      place.module = module;
      place.layer = layer;
      place.inputs = module == "o" ? q_width : config.width;
      place.outputs = module == "o" ? config.width : module == "q" ? q_width : k_width;
      places.push_back(std::move(place));
    }
  return places;
}

LowRank initial_low_rank(const LoraPlace& place, const LoraOptions& options, std::uint64_t seed) {
  LowRank term;
  term.a = at::empty({options.rank, place.inputs}, at::kFloat);
  fill_normal(term.a.data_ptr<float>(), static_cast<std::size_t>(term.a.numel()), 0,
              1 / std::sqrt(static_cast<double>(place.inputs)), seed, stream_of(place.a_name()));
  term.b = at::zeros({place.outputs, options.rank}, at::kFloat);
  term.scale = options.alpha / static_cast<double>(options.rank);
  return term;
}

LowRank& low_rank_of(LayerLowRank& layer, const std::string& module) {
  if (module == "q") return layer.q;
  if (module == "k") return layer.k;
  if (module == "v") return layer.v;
  if (module == "o") return layer.o;
  throw UsageError(str("modules must be among q, k, v, o, found '", module, "'"));
}

at::Tensor merged(const at::Tensor& weight, const LowRank& low_rank) {
  const at::Tensor term = low_rank.b.detach().to(at::kDouble).matmul(low_rank.a.detach().to(at::kDouble));
  return (weight.detach().to(at::kDouble) + low_rank.scale * term).to(weight.scalar_type());
}

at::Tensor with_low_rank(const at::Tensor& full, const at::Tensor& x, const LowRank& low_rank, at::ScalarType dtype) {
  if (!low_rank.a.defined()) return full;
  return full + low_rank.scale * project(project(x, low_rank.a, dtype), low_rank.b, dtype);
}

}  // namespace torsor
