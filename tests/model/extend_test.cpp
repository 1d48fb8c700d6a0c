// What a scaling that is asked for means for a checkpoint that has positions already.
#include "torsor/model/extend.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "tests/base/test_folder.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;

ModelConfig config_of(const std::string& encoding, std::int64_t trained = 16) {
  ModelConfig config;
  config.width = 32, config.layers = 2, config.heads = 4, config.vocabulary_size = 50, config.train_length = trained;
  config.encoding = print(parse(encoding));
  config.complete();
  return config;
}

Extension of(const std::string& encoding, const std::string& asked, std::int64_t length = 0) {
  return plan_extension(config_of(encoding), {asked, "", length});
}

Extension by(const std::string& encoding, const std::string& method, std::int64_t length) {
  return plan_extension(config_of(encoding), {"", method, length});
}

using Words = std::vector<std::string>;

TEST(Extend, RopeKeepsWhatTheCheckpointHas) {
  Extension one = of("rope(base=500000)", "yarn(rope, factor=4)");
  EXPECT_EQ(one.encoding, "yarn(rope(base=500000), factor=4, train_length=16)");
  EXPECT_EQ(one.kept, Words{"base=500000"});
  EXPECT_EQ(one.filled, Words{"train_length=16"});
  EXPECT_EQ(one.trained, 16);
  EXPECT_EQ(one.length, 64);
  // What is named is taken.
  one = of("rope(base=500000)", "yarn(rope(base=20000), factor=4, train_length=8)");
  EXPECT_EQ(one.encoding, "yarn(rope(base=20000), factor=4, train_length=8)");
  EXPECT_EQ(one.kept, Words{});
  EXPECT_EQ(one.length, 32);
  EXPECT_EQ(of("rope(layout=interleaved, dim=4)", "linear(rope, factor=2)").encoding,
            "linear(rope(layout=interleaved, dim=4), factor=2)");
  EXPECT_EQ(of("rope(learn=true)", "yarn(rope, factor=2)").encoding,
            "yarn(rope(learn=true), factor=2, train_length=16)");
  EXPECT_EQ(of("rope", "rope(base=40000)", 64).encoding, "rope(base=40000)");
  // A scaling that was there is replaced, and the length that it tells is the checkpoint's.
  one = of("yarn(rope(base=500), factor=4, train_length=8)", "linear(rope, factor=4)");
  EXPECT_EQ(one.encoding, "linear(rope(base=500), factor=4)");
  EXPECT_EQ(one.trained, 8);
  EXPECT_EQ(one.length, 32);
  // Inside others, beside others.
  EXPECT_EQ(of("tape(rope(base=500))", "tape(yarn(rope, factor=2))").encoding,
            "tape(yarn(rope(base=500), factor=2, train_length=16))");
  EXPECT_EQ(of("rope(base=500) + t5", "linear(rope, factor=2) + t5").encoding, "linear(rope(base=500), factor=2) + t5");
  EXPECT_EQ(of("rope", "linear(rope, factor=2) + logn").encoding, "linear(rope, factor=2) + logn");
  EXPECT_EQ(of("layers(rope, rope(base=500))", "layers(linear(rope, factor=2), linear(rope, factor=2))").encoding,
            "layers(linear(rope, factor=2), linear(rope(base=500), factor=2))");
}

TEST(Extend, AMethodTakesTheRotationAsItStands) {
  EXPECT_EQ(by("rope(base=500)", "linear", 64).encoding, "linear(rope(base=500), factor=4)");
  EXPECT_EQ(by("rope(base=500)", "ntk", 40).encoding, "ntk(rope(base=500), factor=2.5)");
  EXPECT_EQ(by("rope + t5", "dynamic", 32).encoding, "dynamic(rope, factor=2, train_length=16) + t5");
  EXPECT_EQ(by("linear(rope(base=500), factor=2)", "yarn", 64).encoding,
            "yarn(rope(base=500), factor=4, train_length=16)");
  EXPECT_EQ(by("rope", "llama3", 64).encoding, "llama3(rope, factor=4, train_length=16)");
  EXPECT_EQ(by("layers(rope * 3, none)", "linear", 32).encoding, "layers(linear(rope, factor=2) * 3, none)");
  EXPECT_EQ(by("rope", "linear", 32).kept, Words{});
  EXPECT_EQ(by("rope", "linear", 32).filled, Words{"factor=2"});
  // Four planes: factor^(2i/(d - 2)) = 8^(i/3).
  EXPECT_EQ(print(parse(by("rope", "longrope", 128).encoding)).substr(0, 36), "longrope(rope, short=[1, 1, 1, 1], l");
  const auto made = make_encoding(by("rope", "longrope", 128).encoding, config_of("rope").dimensions());
  const auto plain = make_encoding("rope", config_of("rope").dimensions());
  const auto slow = made->rotation(17, {}), fast = made->rotation(16, {}), base = plain->rotation(16, {});
  const double wanted[] = {1, 2, 4, 8};
  for (std::size_t plane = 0; plane < 4; ++plane) {
    EXPECT_NEAR(base->inv_freq[0][plane] / slow->inv_freq[0][plane], wanted[plane], 1e-12);
    EXPECT_EQ(fast->inv_freq[0][plane], base->inv_freq[0][plane]);
  }
  EXPECT_NEAR(slow->magnitude, 1.3228756555322954, 1e-12);  // sqrt(1 + ln 8 / ln 16) = sqrt(1.75)
  EXPECT_EQ(of("rope", "longrope(rope, factor=8)").encoding, by("rope", "longrope", 128).encoding);
}

TEST(Extend, WhatCannotBeIsSaid) {
  const auto refused = [](const std::string& encoding, const ExtendRequest& request, const char* part) {
    const std::string message = message_of<Refusal>([&] { plan_extension(config_of(encoding), request); });
    EXPECT_TRUE(contains(message, part)) << message;
  };
  refused("alibi", {"yarn(rope, factor=4)", "", 0}, "'alibi' has no rope");
  refused("none", {"", "yarn", 64}, "'none' has no rope");
  refused("grape-m", {"", "yarn", 64}, "'grape-m' has no rope");
  refused("xpos", {"", "yarn", 64}, "'xpos' has no rope");
  refused("rope", {"alibi", "", 64}, "'alibi' has no rope");
  refused("rope + t5", {"yarn(rope, factor=4)", "", 0}, "changes more");
  refused("rope", {"yarn(rope, factor=4) + alibi", "", 0}, "changes more");
  refused("rope", {"yarn(rope(dim=4), factor=4)", "", 0}, "changes more");
  refused("rope", {"yarn(rope, factor=4) + sandwich", "", 0}, "changes more");
  const auto wrong = [](const std::string& encoding, const ExtendRequest& request, const char* part) {
    const std::string message = message_of<UsageError>([&] { plan_extension(config_of(encoding), request); });
    EXPECT_TRUE(contains(message, part)) << message;
  };
  wrong("rope", {"", "", 64}, "one of them");
  wrong("rope", {"yarn(rope, factor=4)", "yarn", 64}, "one of them");
  wrong("rope", {"", "xpos", 64}, "found xpos");
  wrong("rope", {"", "yarn", 0}, "--length");
  wrong("rope", {"", "yarn", 16}, "no longer than");
  wrong("rope", {"yarn(rope, factor=1)", "", 0}, "16 tokens is no longer");
  wrong("rope", {"rope(base=20000)", "", 0}, "--length");
  wrong("rope", {"yarn(rope, factor=4, beta_fats=3)", "", 0}, "beta_fats");
  wrong("rope", {"yarn(rope, factr=4)", "", 64}, "factr");
  wrong("rope", {"yarn(rope, factor=0.5)", "", 0}, "factor");
  wrong("rope", {"yarn(rope,, factor=2)", "", 0}, "column");
  wrong("rope", {"longrope(rope, short=[1], long=[2], factor=4)", "", 0}, "one a plane");
  wrong("layers(rope, rope(base=500))", {"linear(rope, factor=2)", "", 0}, "rotations that differ");
  ModelConfig untold = config_of("rope", 0);
  EXPECT_TRUE(contains(message_of<UsageError>([&] { plan_extension(untold, {"", "yarn", 64}); }), "training length"));
  EXPECT_EQ(plan_extension(untold, {"", "yarn", 64, 32}).encoding, "yarn(rope, factor=2, train_length=32)");
}

TEST(Extend, WeightsAreShared) {
  const Decoder model(config_of("rope(base=500)"), 3);
  const Decoder longer = extended(model, by("rope(base=500)", "yarn", 64));
  EXPECT_EQ(longer.config().encoding, "yarn(rope(base=500), factor=4, train_length=16)");
  EXPECT_EQ(longer.config().train_length, 16);
  // A length that is told where the checkpoint's is wrong.
  EXPECT_EQ(extended(model, plan_extension(model.config(), {"", "ntk", 64, 32})).config().train_length, 32);
  ASSERT_EQ(longer.parameters().size(), model.parameters().size());
  for (std::size_t n = 0; n < model.parameters().size(); ++n)
    EXPECT_EQ(longer.parameters()[n].tensor.data_ptr(), model.parameters()[n].tensor.data_ptr());
}

}  // namespace
}  // namespace torsor
