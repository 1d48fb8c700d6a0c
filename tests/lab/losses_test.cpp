// Ten losses of a short training run for every encoding, recorded. Those of none, rope, alibi and t5 were computed by
// the same model in eager PyTorch 2.15 from the same weights on the same batches (bench/eager.py losses); the others
// are this library's own, a regression test of everything between the expression and the optimiser.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "torsor/data/grammar.h"
#include "torsor/lab/run.h"

namespace torsor {
namespace {

using Losses = std::vector<double>;

const std::map<std::string, Losses>& pytorch_losses() {
  static const std::map<std::string, Losses> losses = {
      {"none", {5.573164, 5.479583, 5.380115, 5.291252, 5.186525, 5.044191, 4.922099, 4.787614, 4.598361, 4.417832}},
      {"rope", {5.580285, 5.486422, 5.384975, 5.297676, 5.194647, 5.052567, 4.928871, 4.795368, 4.607442, 4.426685}},
      {"alibi", {5.573243, 5.485394, 5.383173, 5.281474, 5.174172, 5.030441, 4.911199, 4.775331, 4.582053, 4.402947}},
      {"t5", {5.573068, 5.479494, 5.379998, 5.291265, 5.18654, 5.044124, 4.922028, 4.787574, 4.598298, 4.417768}},
  };
  return losses;
}

const std::map<std::string, Losses>& own_losses() {
  static const std::map<std::string, Losses> losses = {
#include "tests/lab/recorded_losses.inc"
  };
  return losses;
}

Losses losses_of(const std::string& encoding) {
  RunPlan plan;
  plan.encoding = print(parse(encoding));
  plan.steps = 10;
  plan.batch = 4;
  plan.length = 64;
  plan.warmup_steps = 10;
  plan.model.width = 64;
  plan.model.layers = 2;
  plan.model.heads = 4;
  plan.model.kv_heads = 2;
  plan.model.complete();
  const Corpus corpus = generate_corpus(400'000, 0);
  Decoder model = make_model(plan, corpus.vocabulary_size);
  return train_model(model, plan, corpus, {}).losses;
}

void expect_losses(const std::string& encoding, const Losses& expected) {
  const Losses found = losses_of(encoding);
  ASSERT_EQ(found.size(), expected.size()) << encoding;
  std::string text;
  for (const double loss : found) text += str(text.empty() ? "" : ", ", std::round(loss * 1e6) / 1e6);
  for (std::size_t step = 0; step < found.size(); ++step)
    EXPECT_NEAR(found[step], expected[step], 1e-4) << encoding << " step " << step << "; found {" << text << "}";
}

TEST(Losses, EqualEagerPyTorch) {
  for (const auto& [encoding, losses] : pytorch_losses()) expect_losses(encoding, losses);
}

TEST(Losses, EqualTheRecordedOnes) {
  for (const auto& [encoding, losses] : own_losses()) expect_losses(encoding, losses);
}

TEST(Losses, EveryNameIsRecorded) {
  for (const NameInfo& info : registry()) {
    bool found = pytorch_losses().count(info.name) > 0;
    for (const auto& [encoding, losses] : own_losses()) found = found || encoding.find(info.name) != std::string::npos;
    EXPECT_TRUE(found) << info.name << " has no recorded losses";
  }
}

}  // namespace
}  // namespace torsor
