#include "torsor/encoding/syntax/sample.h"

#include "torsor/encoding/syntax/sipe.h"

namespace torsor {

NamedTensors sample_syntax(const std::vector<std::string>& names, std::int64_t rows, std::int64_t tokens,
                           Random& random) {
  const auto below = [&](const std::vector<std::int64_t>& shape, std::uint64_t end) {
    const at::Tensor tensor = at::empty(shape, at::kLong);
    std::int64_t* values = tensor.data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < tensor.numel(); ++i) values[i] = static_cast<std::int64_t>(random.below(end));
    return tensor;
  };
  NamedTensors named;
  for (const std::string& name : names) {
    if (name == kSyntaxTags) {
      named[name] = at::stack({below({rows, tokens}, 3), below({rows, tokens}, 6)}, 2);
    } else if (name == kSyntaxLabels) {
      named[name] = below({rows, tokens}, kSyntaxLabelCount + 1);
    } else if (name == kSyntaxVectors) {
      const at::Tensor vectors = at::empty({rows, tokens, kSyntaxVectorWidth}, at::kFloat);
      float* values = vectors.data_ptr<float>();
      for (std::int64_t i = 0; i < vectors.numel(); ++i) values[i] = static_cast<float>(random.normal());
      named[name] = vectors * below({rows, tokens, 1}, 4).clamp_max(1);
    } else if (name == kSyntaxSentences) {
      named[name] = below({rows, tokens}, 4).eq(0).to(at::kLong).cumsum(1);
    } else {
      const at::Tensor reach = at::arange(tokens, at::kLong).clamp_max(5).view({1, tokens, 1});
      named[name] =
          at::stack({at::zeros({rows, tokens, 1}, at::kLong), at::minimum(below({rows, tokens, 1}, 6), reach)}, 3);
    }
  }
  return named;
}

}  // namespace torsor
