// Where QK-norm stands beside gates: before them when it stands before the rotation, behind them when behind it.
#include <gtest/gtest.h>

#include "tests/model/tokens.h"
#include "torsor/model/attention_layer.h"

namespace torsor {
namespace {

// A norm takes the size of a projection away, and with it what a gate behind it could read of the size.
TEST(QkNorm, GatesReadNormalisedHeadsOnlyWhereTheNormStandsBeforeTheRotation) {
  for (const char* encoding :
       {"grape-a(gate=k)", "grape-a(gate=q)", "grape-a(gate=qk)", "grape-ap(tie=k)", "rope + grape-a(gate=qk)"})
    for (const QkNorm norm : {QkNorm::Before, QkNorm::After}) {
      ModelConfig config;
      config.heads = 2, config.head_dim = 8, config.width = 16, config.layers = 1;
      config.qk_norm = norm;
      config.norm_eps = 1e-30;
      config.encoding = encoding;
      config.complete();
      const auto made = make_encoding(config.encoding, config.dimensions());
      at::manual_seed(3);
      const auto normal = [](std::vector<std::int64_t> shape) { return at::randn(shape, at::kDouble); };
      AttentionWeights weights;
      weights.q = normal({16, 16}), weights.k = normal({16, 16}), weights.v = normal({16, 16});
      weights.o = normal({16, 16});
      weights.q_norm = normal({8}).exp(), weights.k_norm = normal({8}).exp();
      AttendOptions options;
      for (const ParameterInfo& info : made->parameters(0)) weights.position[info.name] = normal(info.shape);
      const at::Tensor x = normal({1, 9, 16});
      const auto out = [&] {
        return attention_layer(config, weights, *made, 0, x, options, {}, nullptr, at::kDouble).mixed;
      };
      const at::Tensor once = out();
      weights.q = weights.q * 8, weights.k = weights.k * 8;
      const double change = largest_difference(out(), once);
      if (norm == QkNorm::Before)
        EXPECT_LE(change, 1e-11) << encoding;
      else
        EXPECT_GT(change, 1e-3) << encoding;
    }
}

}  // namespace
}  // namespace torsor
