// Generation beyond the most probable token: drawing, ends, pieces, windows with sinks; caches in files.
#include "torsor/model/generate.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "tests/base/test_folder.h"
#include "torsor/base/file.h"
#include "torsor/model/cache_file.h"
#include "torsor/model/text_output.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;
using testing::TestFolder;
using Rows = std::vector<std::vector<std::int64_t>>;

ModelConfig small(const std::string& encoding, std::int64_t train_length = 8) {
  ModelConfig config;
  config.width = 16;
  config.layers = 2;
  config.heads = 2;
  config.kv_heads = 1;
  config.vocabulary_size = 24;
  config.train_length = train_length;
  config.encoding = encoding;
  config.complete();
  return config;
}

at::Tensor numbers(const std::vector<double>& values) { return at::tensor(values, at::TensorOptions(at::kDouble)); }

std::map<std::int64_t, double> shares(const Sampling& sampling, const at::Tensor& logits, int draws = 20000) {
  Sampler sampler(sampling, 0);
  std::map<std::int64_t, double> counts;
  for (int i = 0; i < draws; ++i) counts[sampler.choose(logits)] += 1.0 / draws;
  return counts;
}

TEST(Sampling, DrawsWhatTheSoftmaxSays) {
  const at::Tensor logits = numbers({0, std::log(3.0), std::log(6.0), -std::numeric_limits<double>::infinity()});
  // Shares 0.1, 0.3, 0.6; five standard deviations of 20,000 draws are 0.018.
  auto found = shares({.temperature = 1, .seed = 5}, logits);
  EXPECT_NEAR(found[0], 0.1, 0.018);
  EXPECT_NEAR(found[1], 0.3, 0.018);
  EXPECT_NEAR(found[2], 0.6, 0.018);
  EXPECT_EQ(found.count(3), 0u);
  // Squares of the shares at half the temperature: 1, 9 and 36 of 46.
  found = shares({.temperature = 0.5, .seed = 5}, logits);
  EXPECT_NEAR(found[1], 9.0 / 46, 0.018);
  // The two most probable: 1 and 2 of 3.
  found = shares({.temperature = 1, .top_k = 2, .seed = 5}, logits);
  EXPECT_EQ(found.size(), 2u);
  EXPECT_NEAR(found[1], 1.0 / 3, 0.018);
  // 0.6 does not reach 0.7, 0.9 does.
  found = shares({.temperature = 1, .top_p = 0.7, .seed = 5}, logits);
  EXPECT_EQ(found.size(), 2u);
  EXPECT_NEAR(found[2], 2.0 / 3, 0.018);
  EXPECT_EQ(shares({.temperature = 1, .top_p = 0.59, .seed = 5}, logits, 100).size(), 1u);
  // k first, then p of what is left: 2 of 3 reach 0.66.
  EXPECT_EQ(shares({.temperature = 1, .top_k = 2, .top_p = 0.66, .seed = 5}, logits, 100).size(), 1u);
}

TEST(Sampling, OfEqualLogitsTheSmallerTokenCountsAsMoreProbable) {
  const at::Tensor flat = at::zeros({5}, at::kDouble);
  Sampler greedy({}, 0);
  EXPECT_EQ(greedy.choose(flat), 0);
  EXPECT_EQ(greedy.choose(numbers({-1, 2, 2})), 1);
  const auto found = shares({.temperature = 1, .top_k = 2, .seed = 1}, flat, 200);
  EXPECT_EQ(found.size(), 2u);
  EXPECT_EQ(found.rbegin()->first, 1);
}

TEST(Sampling, RefusesWhatHasNoMeaning) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  EXPECT_THROW(Sampler({.temperature = -1}, 0), UsageError);
  EXPECT_THROW(Sampler({.temperature = nan}, 0), UsageError);
  EXPECT_THROW(Sampler({.top_k = -1}, 0), UsageError);
  EXPECT_THROW(Sampler({.top_p = 0}, 0), UsageError);
  EXPECT_THROW(Sampler({.top_p = 1.5}, 0), UsageError);
  Sampler sampler({.temperature = 1}, 0);
  EXPECT_TRUE(contains(message_of<Error>([&] { sampler.choose(numbers({0, nan})); }), "token 1"));
  EXPECT_THROW(sampler.choose(numbers({-inf, -inf})), Error);
  EXPECT_THROW(sampler.choose(numbers({0, inf})), Error);
  EXPECT_THROW(sampler.choose(at::zeros({2, 2})), Error);
}

TEST(TextOutput, ShowsWhatIsFinal) {
  TextOutput plain;
  EXPECT_EQ(plain.add("ab"), "ab");
  EXPECT_EQ(plain.add("\xC3"), "");  // half of an umlaut
  EXPECT_EQ(plain.add("\xA4!"), "\xC3\xA4!");
  EXPECT_EQ(plain.add("\xF0\x9F\x98"), "");
  EXPECT_EQ(plain.rest(), "\xF0\x9F\x98");
  EXPECT_EQ(plain.add("\xFF\x80"), "\xFF\x80");  // no UTF-8: shown as it is

  TextOutput stops({"END", "\n\n"});
  EXPECT_EQ(stops.add("the E"), "the ");
  EXPECT_EQ(stops.add("N"), "");
  EXPECT_EQ(stops.add("T\n"), "ENT");
  EXPECT_FALSE(stops.ended());
  EXPECT_EQ(stops.add("\nmore"), "");
  EXPECT_TRUE(stops.ended());
  EXPECT_EQ(stops.add("x"), "");
  EXPECT_EQ(stops.rest(), "");

  // The one that is complete first ends the text, though another began before it.
  TextOutput race({"abcd", "bc"});
  EXPECT_EQ(race.add("xabcd"), "xa");
  EXPECT_TRUE(race.ended());
  // Of those that end together the longest.
  TextOutput longest({"c", "abc"});
  EXPECT_EQ(longest.add("xab"), "x");
  EXPECT_EQ(longest.add("c"), "");
  EXPECT_TRUE(longest.ended());
  EXPECT_THROW(TextOutput({""}), UsageError);
}

// Bytes come one at a time or all at once: what is shown is the same, and it is the text before the first stop string.
TEST(TextOutput, PiecesMakeNoDifference) {
  Random random(3, 0);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (int i = 0; i < 20; ++i) text += static_cast<char>('a' + random.below(3));
    std::vector<std::string> stops;
    for (int i = 0; i < 2; ++i) {
      std::string stop;
      for (std::uint64_t n = 0; n < 1 + random.below(4); ++n) stop += static_cast<char>('a' + random.below(3));
      stops.push_back(stop);
    }
    std::size_t end = text.size() + 1, begin = text.size();
    for (const std::string& stop : stops)
      if (const std::size_t at = text.find(stop); at != std::string::npos && at + stop.size() <= end) {
        begin = at + stop.size() < end ? at : std::min(begin, at);
        end = at + stop.size();
      }
    TextOutput whole(stops), pieces(stops);
    std::string shown = whole.add(text);
    if (!whole.ended()) shown += whole.rest();
    EXPECT_EQ(shown, text.substr(0, begin)) << text << " " << stops[0] << " " << stops[1];
    std::string slowly;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t count = std::min<std::size_t>(1 + random.below(3), text.size() - at);
      slowly += pieces.add(std::string_view(text).substr(at, count));
      at += count;
    }
    if (!pieces.ended()) slowly += pieces.rest();
    EXPECT_EQ(slowly, shown) << text << " " << stops[0] << " " << stops[1];
  }
}

TEST(Generate, ARowIsContinuedAlikeWhateverStandsBeside) {
  for (const char* encoding : {"rope", "alibi", "fox", "tape(rope)"}) {
    const Decoder model(small(encoding), 4);
    const Rows prompts = {{1, 2, 3}, {4, 5, 6, 7, 8, 9, 10}, {11}};
    GenerateOptions options;
    options.max_tokens = 9;
    options.sampling = {.temperature = 1.5, .top_k = 9, .top_p = 0.95, .seed = 7};
    const Generated together = generate(model, prompts, options);
    EXPECT_EQ(together.decoded, 24);
    for (const std::int64_t chunk : {1, 3}) {
      options.chunk = chunk;
      EXPECT_EQ(generate(model, prompts, options).tokens, together.tokens) << encoding << " chunk " << chunk;
    }
    options.chunk = 0;
    // The first row has the first row's numbers.
    EXPECT_EQ(generate(model, {prompts[0]}, options).tokens[0], together.tokens[0]) << encoding;
    options.sampling.seed = 8;
    EXPECT_NE(generate(model, prompts, options).tokens, together.tokens);
    EXPECT_EQ(together.ended, std::vector<Ending>(3, Ending::Length));
  }
}

TEST(Generate, LeavesTrainingAsItWas) {
  // What an encoding remembers of a generation is used by the training behind it.
  for (const char* encoding : {"rope", "alibi", "tape(rope)", "grape-m(basis=cayley)", "sinusoidal"}) {
    const auto gradients = [&](bool generates) {
      Decoder model(small(encoding), 4);
      model.require_gradients();
      if (generates) generate(model, {{1, 2, 3, 4, 5, 6, 7, 8}}, {.max_tokens = 3});
      const at::Tensor windows = at::arange(1, 10, at::kLong).unsqueeze(0);
      model.token_losses(windows).sum().backward();
      std::vector<at::Tensor> all;
      for (const ModelParameter& one : model.parameters()) all.push_back(one.tensor.grad());
      return all;
    };
    const std::vector<at::Tensor> wanted = gradients(false), found = gradients(true);
    for (std::size_t n = 0; n < wanted.size(); ++n) {
      ASSERT_EQ(found[n].defined(), wanted[n].defined()) << encoding;
      EXPECT_TRUE(!wanted[n].defined() || found[n].equal(wanted[n])) << encoding;
    }
  }
}

TEST(Generate, RowsEndByThemselves) {
  const Decoder model(small("rope"), 4);
  const Rows prompts = {{1, 2, 3}, {4, 5, 6, 7, 8}, {9}};
  GenerateOptions options;
  options.max_tokens = 12;
  options.sampling = {.temperature = 2, .seed = 3};
  const Rows free = generate(model, prompts, options).tokens;
  // A token that the second row writes as its fifth and no row before that step.
  options.end_tokens = {free[1][4]};
  Rows expected = free;
  for (auto& row : expected) row.erase(std::find(row.begin(), row.end(), free[1][4]), row.end());
  std::vector<std::int64_t> told(3, 0);
  options.on_token = [&](std::int64_t row, std::int64_t) { return ++told[static_cast<std::size_t>(row)] == 8; };
  for (auto& row : expected) row.resize(std::min<std::size_t>(row.size(), 8));
  const Generated made = generate(model, prompts, options);
  EXPECT_EQ(made.tokens, expected);
  for (std::size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(told[row], static_cast<std::int64_t>(expected[row].size()));
    EXPECT_EQ(made.ended[row], expected[row].size() == 8 ? Ending::Asked : Ending::End) << row;
  }
  int steps = 0;
  GenerateOptions stopping;
  stopping.stop = [&] { return ++steps == 3; };
  const Generated stopped = generate(model, prompts, stopping);
  EXPECT_EQ(stopped.tokens[0].size(), 3u);
  EXPECT_EQ(stopped.ended[2], Ending::Stopped);
  EXPECT_STREQ(ending_name(Ending::End), "end token");
}

TEST(Generate, RefusesBeforeItWrites) {
  const auto says = [](const char* encoding, const GenerateOptions& options, const char* word) {
    const Decoder model(small(encoding), 4);
    const std::string message = message_of<Error>([&] { generate(model, {{1, 2}}, options); });
    EXPECT_TRUE(contains(message, word)) << encoding << ": " << message;
  };
  says("rope", {.sampling = {.temperature = -1}}, "temperature");
  says("rope", {.window = 5, .sinks = 4}, "two tokens more");
  says("rope", {.window = 5, .sinks = -1}, "sinks");
  says("rope", {.chunk = -1}, "chunk");
  says("cope", {.window = 8, .sinks = 2}, "cope counts");
  says("grape-ap", {.window = 8, .sinks = 2}, "sinks");
  says("learned", {.window = 8, .sinks = 2}, "shifted");
  says("tape(rope)", {.window = 8, .sinks = 2}, "use no sinks");
  const Decoder model(small("rope"), 4);
  EXPECT_TRUE(contains(message_of<UsageError>([&] { generate(model, {{24}}); }), "[0, 24)"));
}

/// Logits of the newest token when all that a window leaves is read afresh, layer by layer, is not what a window
/// writes; with one layer it is.
TEST(Generate, AWindowOfOneLayerEqualsAFreshPassOverWhatItHolds) {
  for (const char* encoding :
       {"rope", "alibi", "rope + t5", "fire", "xpos", "grape-m", "none", "dynamic(rope, factor=2)"}) {
    ModelConfig config = small(encoding, 64);
    config.layers = 1;
    const Decoder model(config, 4);
    GenerateOptions options;
    options.max_tokens = 40;
    options.window = 12;
    options.sinks = 3;
    Rows rows = {{1, 2, 3, 4, 5}, {6, 7}};
    std::vector<std::int64_t> held;
    options.watch = [&](const KvCache& cache) {
      held = cache.held();
      for (std::size_t b = 0; b < rows.size(); ++b) {
        const at::Tensor positions = cache.positions()[static_cast<std::int64_t>(b)].narrow(0, 0, held[b]).flatten();
        ASSERT_TRUE(at::equal(positions, at::arange(held[b], at::TensorOptions(at::kDouble)))) << encoding;
        ASSERT_LE(held[b], 12);
      }
    };
    const Generated made = generate(model, rows, options);
    for (std::size_t b = 0; b < rows.size(); ++b) {
      std::vector<std::int64_t> all = rows[b];
      all.insert(all.end(), made.tokens[b].begin(), made.tokens[b].end() - 1);
      // The sinks and the newest of the rest, as many as were held at the end.
      std::vector<std::int64_t> seen(all.begin(), all.begin() + 3);
      seen.insert(seen.end(), all.end() - (held[b] - 3), all.end());
      TokenBatch batch;
      batch.tokens = at::tensor(seen, at::kLong).view({1, -1});
      const at::NoGradGuard no_grad;
      const at::Tensor logits = model.logits(model.hidden(batch)).select(1, static_cast<std::int64_t>(seen.size()) - 1);
      EXPECT_EQ(logits.argmax().item<std::int64_t>(), made.tokens[b].back()) << encoding << " row " << b;
    }
  }
}

TEST(Generate, AWindowDropsWhatARowItselfDoesNotHold) {
  for (const char* encoding : {"rope", "dynamic(rope, factor=2, train_length=8)", "fox"}) {
    const Decoder model(small(encoding), 4);
    GenerateOptions options;
    options.max_tokens = 25;
    options.window = 14;
    options.sinks = 2;
    const Rows prompts = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {6, 7}, {8, 9, 10, 11}};
    const Generated together = generate(model, prompts, options);
    for (std::size_t row = 0; row < prompts.size(); ++row)
      EXPECT_EQ(generate(model, {prompts[row]}, options).tokens[0], together.tokens[row]) << encoding << row;
  }
}

// Keys are normed behind the rotation: they cannot be turned any more, and are kept as they were before.
TEST(Generate, WindowsServeNormsBehindTheRotation) {
  ModelConfig config = small("rope", 64);
  config.layers = 1;
  config.qk_norm = QkNorm::After;
  const at::NoGradGuard no_grad;
  const Decoder model(config, 4);
  for (const ModelParameter& parameter : model.parameters())
    if (parameter.name.find("_norm.weight") != std::string::npos && parameter.tensor.numel() == 8)
      parameter.tensor.copy_(at::linspace(0.5, 2, 8));
  GenerateOptions options;
  options.max_tokens = 30;
  options.window = 10;
  options.sinks = 2;
  std::int64_t held = 0;
  options.watch = [&](const KvCache& cache) { held = cache.held()[0]; };
  const std::vector<std::int64_t> written = generate(model, {{1, 2, 3}}, options).tokens[0];
  std::vector<std::int64_t> all = {1, 2, 3};
  all.insert(all.end(), written.begin(), written.end() - 1);
  std::vector<std::int64_t> seen(all.begin(), all.begin() + 2);
  seen.insert(seen.end(), all.end() - (held - 2), all.end());
  TokenBatch batch;
  batch.tokens = at::tensor(seen, at::kLong).view({1, -1});
  EXPECT_EQ(model.logits(model.hidden(batch))[0][held - 1].argmax().item<std::int64_t>(), written.back());
}

TEST(Generate, GoesOnWithoutAnEndInConstantMemory) {
  for (const char* encoding : {"rope", "alibi", "fox"}) {
    const Decoder model(small(encoding), 4);
    GenerateOptions options;
    options.max_tokens = 3000;
    options.window = 32;
    std::int64_t most = 0, steps = 0;
    options.watch = [&](const KvCache& cache) {
      ++steps;
      if (steps == 200) most = cache.bytes();
      if (steps > 200) {
        ASSERT_LE(cache.bytes(), most) << encoding << " step " << steps;
      }
      const std::int64_t held = cache.held()[0];
      ASSERT_TRUE(
          at::equal(cache.positions().flatten().narrow(0, 0, held), at::arange(held, at::TensorOptions(at::kDouble))));
    };
    const Generated made = generate(model, {{1, 2, 3}}, options);
    EXPECT_EQ(made.tokens[0].size(), 3000u);
    EXPECT_GT(most, 0);
  }
}

// Nothing drifts: behind a hundred thousand tokens the cache stands where a fresh one would.
TEST(Generate, AHundredThousandTokensLeaveNoTrace) {
  ModelConfig config = small("rope");
  config.layers = 1;  // so that a token's state depends on what the cache holds alone
  const Decoder model(config, 4);
  GenerateOptions options;
  options.max_tokens = 100000;
  options.window = 32;
  options.sampling.temperature = 1;
  std::int64_t steps = 0, most = 0, held = 0, compared = 0;
  std::vector<std::int64_t> all = {1, 2, 3};
  const at::Tensor wanted = at::arange(options.window, at::TensorOptions(at::kDouble));
  options.watch = [&](const KvCache& cache) {
    ++steps;
    if (steps == 200) most = cache.bytes();
    held = cache.held()[0];
    ASSERT_LE(held, options.window);
    if (steps >= 200) {
      ASSERT_LE(cache.bytes(), most) << "step " << steps;
    }
    ASSERT_TRUE(at::equal(cache.positions().flatten().narrow(0, 0, held), wanted.narrow(0, 0, held))) << steps;
    if (steps % 9973 != 0 && steps != options.max_tokens) return;
    // Keys and values as they are read, against those of a cache that begins with the same tokens.
    std::vector<std::int64_t> seen(all.begin(), all.begin() + options.sinks);
    seen.insert(seen.end(), all.end() - 1 - (held - options.sinks), all.end() - 1);
    TokenBatch batch;
    batch.tokens = at::tensor(seen, at::kLong).view({1, -1});
    KvCache fresh = model.make_cache(1, options.window);
    model.hidden(batch, &fresh);
    const CacheView found = cache.view(0, {}), wished = fresh.view(0, {});
    // Keys may have a turn in common, which no product with a query sees.
    const auto products = [](const at::Tensor& keys) { return at::matmul(keys, keys.transpose(-1, -2)); };
    EXPECT_LE((products(found.keys) - products(wished.keys)).abs().max().item<double>(), 1e-4) << steps;
    EXPECT_LE((found.values - wished.values).abs().max().item<double>(), 1e-5) << steps;
    ++compared;
  };
  options.on_token = [&](std::int64_t, std::int64_t token) {
    all.push_back(token);
    return false;
  };
  const std::vector<std::int64_t> written = generate(model, {{1, 2, 3}}, options).tokens[0];
  ASSERT_EQ(written.size(), 100000u);
  EXPECT_EQ(steps, 100000);
  EXPECT_EQ(compared, 11);
  EXPECT_GT(most, 0);
}

TEST(Generate, ReadsPromptsLongerThanTheWindow) {
  const Decoder model(small("alibi"), 4);
  std::vector<std::int64_t> prompt;
  for (std::int64_t t = 0; t < 100; ++t) prompt.push_back(t * 7 % 24);
  GenerateOptions options;
  options.max_tokens = 5;
  options.window = 20;
  options.watch = [&](const KvCache& cache) { EXPECT_LE(cache.held()[0], 20); };
  EXPECT_EQ(generate(model, {prompt, {1}}, options).tokens[1].size(), 5u);
  // Without sinks, encodings that only take the oldest tokens away do as well.
  options.sinks = 0;
  for (const char* encoding : {"cope", "grape-ap", "tape(rope)", "sinusoidal"})
    EXPECT_EQ(generate(Decoder(small(encoding), 4), {prompt}, options).tokens[0].size(), 5u) << encoding;
}

TEST(CacheFile, APromptIsReadOnce) {
  const TestFolder folder;
  const at::NoGradGuard no_grad;
  for (const char* encoding : {"rope", "fox", "tape(rope)", "cope", "grape-m(context=true)"}) {
    ModelConfig config = small(encoding);
    config.kv_shift = true;
    const Decoder model(config, 4);
    KvCache cache = model.make_cache(2, 20);
    TokenBatch prompt, next;
    prompt.tokens = at::tensor(std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8}, at::kLong).view({2, 4});
    prompt.counts = at::tensor(std::vector<std::int64_t>{4, 2}, at::kLong);
    next.tokens = at::tensor(std::vector<std::int64_t>{9, 10}, at::kLong).view({2, 1});
    model.hidden(prompt, &cache);
    save_cache(folder / "a.cache", cache);
    KvCache again = load_cache(folder / "a.cache", model.shared_encoding());
    const at::Tensor expected = model.hidden(next, &cache);
    EXPECT_TRUE(at::equal(model.hidden(next, &again), expected)) << encoding;
    // Forks too: rows change places.
    KvCache fork = load_cache(folder / "a.cache", model.shared_encoding()).fork({1, 0});
    TokenBatch swapped;
    swapped.tokens = next.tokens.flip(0);
    EXPECT_LE((model.hidden(swapped, &fork).flip(0) - expected).abs().max().item<double>(), 1e-5) << encoding;
    const auto other = Decoder(small("alibi"), 4).shared_encoding();
    EXPECT_TRUE(contains(message_of<Error>([&] { load_cache(folder / "a.cache", other); }), "another encoding"));
  }
  const std::string whole = read_file(folder / "a.cache");
  write_file_atomic(folder / "cut.cache", whole.substr(0, whole.size() / 2));
  const auto encoding = Decoder(small("rope"), 4).shared_encoding();
  EXPECT_TRUE(contains(message_of<Error>([&] { load_cache(folder / "cut.cache", encoding); }), "cut.cache"));
  EXPECT_THROW(load_cache(folder / "none.cache", encoding), Error);
}

}  // namespace
}  // namespace torsor
