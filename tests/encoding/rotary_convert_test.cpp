// Conversion between channel layouts and orientations: there and back bit for bit, equal scores.
#include <gtest/gtest.h>

#include "tests/encoding/rotary_case.h"
#include "torsor/encoding/rotary/convert.h"

namespace torsor::rotary_test {
namespace {

const RotaryForm kForms[] = {
    {Layout::Half, false}, {Layout::Half, true}, {Layout::Interleaved, false}, {Layout::Interleaved, true}};

TEST(RotaryConvert, PermutationOfOneHead) {
  using Channels = std::vector<std::int64_t>;
  // half[i] = interleaved[2i], half[i + d/2] = interleaved[2i + 1]
  EXPECT_EQ(rotary_permutation(6, {0, 6, 1}, kForms[2], kForms[0]), (Channels{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(rotary_permutation(6, {0, 6, 1}, kForms[0], kForms[2]), (Channels{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(rotary_permutation(7, {2, 4, 1}, kForms[2], kForms[0]), (Channels{0, 1, 2, 4, 3, 5, 6}));
  EXPECT_EQ(rotary_permutation(8, {0, 8, 2}, kForms[2], kForms[0]), (Channels{0, 2, 1, 3, 4, 6, 5, 7}));
  EXPECT_EQ(rotary_permutation(4, {0, 4, 1}, kForms[0], kForms[1]), (Channels{2, 3, 0, 1}));
}

TEST(RotaryConvert, ThereAndBackBitForBit) {
  at::manual_seed(1);
  for (const auto& [heads, head_dim] : {std::pair<std::int64_t, std::int64_t>{8, 16}, {2, 16}, {1, 18}})
    for (const RotarySpan span : {RotarySpan{0, 16, 1}, RotarySpan{4, 8, 1}, RotarySpan{0, 12, 3}, RotarySpan{0, 0, 1}})
      for (const RotaryForm from : kForms)
        for (const RotaryForm to : kForms) {
          const at::Tensor weight = at::randn({heads * head_dim, 5}).to(at::kBFloat16),
                           bias = at::randn({heads * head_dim});
          const at::Tensor there = convert_rotary_rows(weight, head_dim, span, from, to);
          EXPECT_TRUE(convert_rotary_rows(there, head_dim, span, to, from).equal(weight));
          EXPECT_TRUE(convert_rotary_rows(convert_rotary_rows(bias, head_dim, span, from, to), head_dim, span, to, from)
                          .equal(bias));
          EXPECT_EQ(there.equal(weight), from == to || span.width == 0);
        }
}

// jzhang38/TinyLlama#24: position 0 hides a wrong layout, every other one shows it. Eight query heads on two key heads,
// with bias, gain and a low-rank update, all converted alike.
TEST(RotaryConvert, ScoresStayEqual) {
  const std::int64_t heads = 8, key_heads = 2, head_dim = 16, width = 12, tokens = 4;
  at::manual_seed(2);
  const auto random = [](std::vector<std::int64_t> shape) { return at::randn(shape, at::kDouble); };
  const at::Tensor x = random({tokens, width});
  struct Projection {
    at::Tensor weight, bias, lora_a, lora_b, gain;
  };
  const auto projection = [&](std::int64_t count) {
    return Projection{random({count * head_dim, width}), random({count * head_dim}), random({3, width}),
                      random({count * head_dim, 3}), random({head_dim})};
  };
  const Projection q = projection(heads), k = projection(key_heads);
  const auto project = [&](const Projection& one, std::int64_t count) {
    const at::Tensor y = at::matmul(x, (one.weight + at::matmul(one.lora_b, one.lora_a)).t()) + one.bias;
    const at::Tensor split = y.view({1, tokens, count, head_dim}).transpose(1, 2);
    return split / split.square().mean(3, true).sqrt() * one.gain;
  };
  const auto name = [](const RotaryForm& form) {
    return std::string("layout=") + (form.layout == Layout::Half ? "half" : "interleaved") +
           ", orientation=" + (form.minus ? "minus" : "plus");
  };
  struct Span {
    const char* keys;
    RotarySpan span;
  };
  for (const Span& span :
       {Span{"", {0, 16, 1}}, Span{"dim=8, part=suffix, ", {8, 8, 1}}, Span{"axes=2, ", {0, 16, 2}}}) {
    const std::int64_t axes = span.span.blocks;
    const auto product = [&](const Projection& one_q, const Projection& one_k, const RotaryForm& form) {
      Call call;
      call.encoding = make_encoding(std::string("rope(") + span.keys + name(form) + ")",
                                    {.heads = heads, .kv_heads = key_heads, .head_dim = head_dim});
      call.q = project(one_q, heads);
      call.k = call.v = project(one_k, key_heads);
      call.query.positions = call.key.positions =
          at::arange(tokens, at::kDouble).view({1, tokens, 1}).repeat({1, 1, axes});
      return call.product();
    };
    for (const RotaryForm from : kForms)
      for (const RotaryForm to : kForms) {
        SCOPED_TRACE(name(from) + " to " + name(to) + " " + span.keys);
        const auto converted = [&](const Projection& one) {
          const auto rows = [&](const at::Tensor& tensor) {
            return convert_rotary_rows(tensor, head_dim, span.span, from, to);
          };
          return Projection{rows(one.weight), rows(one.bias), one.lora_a, rows(one.lora_b), rows(one.gain)};
        };
        const at::Tensor before = product(q, k, from);
        EXPECT_LT(error_of(product(converted(q), converted(k), to), before), 1e-13);
        if (from == to) continue;
        const at::Tensor unconverted = product(q, k, to);
        EXPECT_LT(error_of(unconverted.narrow(2, 0, 1).narrow(3, 0, 1), before.narrow(2, 0, 1).narrow(3, 0, 1)), 1e-13);
        EXPECT_GT(error_of(unconverted, before), 1e-2);
      }
  }
}

TEST(RotaryConvert, Refusals) {
  const at::Tensor rows = at::zeros({16, 2});
  EXPECT_THROW(convert_rotary_rows(rows, 6, {0, 6, 1}, kForms[0], kForms[2]), Error);
  EXPECT_THROW(convert_rotary_rows(rows, 8, {4, 6, 1}, kForms[0], kForms[2]), Error);
  EXPECT_THROW(convert_rotary_rows(rows, 8, {0, 5, 1}, kForms[0], kForms[2]), Error);
  EXPECT_THROW(convert_rotary_rows(rows, 8, {0, 6, 2}, kForms[0], kForms[2]), Error);
  EXPECT_THROW(convert_rotary_rows(at::zeros({}), 8, {0, 8, 1}, kForms[0], kForms[2]), Error);
}

}  // namespace
}  // namespace torsor::rotary_test
