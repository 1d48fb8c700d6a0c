// Through a whole model, however tokens come (at once, by steps, in chunks, left-padded, packed, in rows of their own
// lengths), they get the same states: every kind of block, every ratio of heads, every name of the registry, in
// float64, where nothing but the order of sums differs, and with a cache in bfloat16.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "tests/model/parsed.h"
#include "tests/model/tokens.h"
#include "torsor/encoding/registry.h"
#include "torsor/model/encoder_decoder.h"

namespace torsor {
namespace {

struct Family {
  const char* name;
  std::function<void(ModelConfig&)> apply;
};

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"llama", [](ModelConfig&) {}},
      {"falcon",
       [](ModelConfig& c) {
         c.block.norm = NormKind::Layer, c.block.mlp = MlpKind::Gelu, c.block.parallel = Parallel::OneNorm;
       }},
      {"gpt-neox",
       [](ModelConfig& c) {
         c.block.norm = NormKind::Layer, c.block.mlp = MlpKind::GeluTanh, c.block.parallel = Parallel::TwoNorms;
         c.block.qkv_bias = c.block.output_bias = c.block.mlp_bias = true;
       }},
      {"bloom",
       [](ModelConfig& c) {
         c.block.norm = NormKind::Layer, c.block.mlp = MlpKind::GeluTanh, c.block.embedding_norm = true;
         c.block.qkv_bias = c.block.output_bias = c.block.mlp_bias = true;
       }},
      {"t5",
       [](ModelConfig& c) { c.block.mlp = MlpKind::Relu, c.block.attention_scale = 1, c.cross_attention = true; }},
      {"qwen3", [](ModelConfig& c) { c.qk_norm = QkNorm::Before, c.block.qkv_bias = true; }},
      {"norms behind the rotation", [](ModelConfig& c) { c.qk_norm = QkNorm::After; }},
      {"window",
       [](ModelConfig& c) {
         c.window = {4, 0}, c.block.mlp = MlpKind::GeGlu;
       }},
      {"kv_shift", [](ModelConfig& c) { c.kv_shift = true, c.block.mlp = MlpKind::GeGluTanh; }},
  };
  return all;
}

const std::vector<std::string>& encodings() {
  static const std::vector<std::string> all = {
      "none",
      "sinusoidal",
      "learned",
      "rope",
      "rope(layout=interleaved, dim=4)",
      "xpos",
      "linear(rope, factor=2)",
      "ntk(rope, factor=2)",
      "ntk-by-parts(rope, factor=2)",
      "dynamic(rope, factor=2, train_length=8)",
      "yarn(rope, factor=4)",
      "longrope(rope, short=[1, 1.1, 1.3, 2], long=[1.5, 4, 9, 30], train_length=8, factor=4)",
      "llama3(rope, train_length=16)",
      "rope + logn(train_length=4)",
      "llama4-scale(length=4)",
      "alibi",
      "t5(buckets=8, max_distance=16)",
      "t5(shared=true)",
      "kerple",
      "sandwich",
      "fire",
      "cope",
      "txl",
      "fox",
      "grape-a(gate=qk)",
      "grape-ap",
      "grape-ap(tie=q)",
      "grape-m",
      "grape-m(context=true)",
      "grape-m(rank=4)",
      "tape(rope)",
      "tape(rope, gqa=shared)",
      "sipe(rope)",
      "sipe(alibi, coupling=sparse, mode=incremental)",
      "sipe(txl, inject=combined)",
      "sipe(sinusoidal, fuse=mix)",
      "heads(rope * 4, alibi * 4)",
      "layers(rope, fox)",
  };
  return all;
}

/// Tokens of rows with what they bring.
struct Text {
  at::Tensor tokens;
  NamedTensors named;

  Text slice(std::int64_t first, std::int64_t count) const {
    Text part{tokens.narrow(1, first, count), {}};
    for (const auto& [name, tensor] : named) part.named[name] = tensor.narrow(1, first, count);
    return part;
  }
};

Text joined(const std::vector<Text>& parts, std::int64_t axis) {
  std::vector<at::Tensor> tokens;
  for (const Text& one : parts) tokens.push_back(one.tokens);
  Text all{at::cat(tokens, axis), {}};
  for (const auto& [name, first] : parts.front().named) {
    std::vector<at::Tensor> of_parts;
    for (const Text& one : parts) of_parts.push_back(one.named.at(name));
    all.named[name] = at::cat(of_parts, axis);
  }
  return all;
}

at::Tensor counting(std::int64_t count) { return at::arange(count, at::kDouble).view({1, count, 1}); }

/// A model away from its start, where scalars and tables that begin as constants would hide what they do.
Decoder shaken(const ModelConfig& config) {
  Decoder model(config, 3);
  for (const ModelParameter& parameter : model.parameters()) {
    const std::int64_t count = parameter.tensor.numel();
    parameter.tensor.add_((at::arange(count, at::kFloat) * 1.7).sin().mul_(0.15).view(parameter.tensor.sizes()));
  }
  model.to(at::kDouble);
  return model;
}

/// A model and the ways to bring it tokens. Every way is compared with `alone`: one row at once, into a cache of
/// `kept`.
class Ways {
 public:
  Ways(const ModelConfig& config, at::ScalarType kept) : model_(shaken(config)), kept_(kept) {
    at::manual_seed(5);
    // Two encoder outputs for a model that reads some; that of row 1 is shorter and padded with what would be seen.
    if (!config.cross_attention) return;
    const at::Tensor longer = at::randn({1, 6, config.width}, at::kDouble), shorter = longer.narrow(1, 1, 3) * 0.7;
    const at::Tensor documents = at::zeros({2, 6}, at::kLong);
    documents[1].narrow(0, 0, 2).fill_(-1);
    documents[1].narrow(0, 5, 1).fill_(-1);
    const auto strange = [&](std::int64_t count) { return at::full({1, count, config.width}, 30.0, at::kDouble); };
    memories_.push_back(model_.remember(longer, {}, at::kDouble));
    memories_.push_back(model_.remember(shorter, {}, at::kDouble));
    memories_.push_back(
        model_.remember(at::cat({longer, at::cat({strange(2), shorter, strange(1)}, 1)}, 0), documents, at::kDouble));
  }

  const Decoder& model() const { return model_; }

  Text draw(std::int64_t count, std::int64_t first) const {
    Text text{random_tokens(1, count + first).narrow(1, first, count), {}};
    for (auto& [name, tensor] : parsed(text.tokens))
      if (const auto names = model_.encoding().inputs(); std::find(names.begin(), names.end(), name) != names.end())
        text.named[name] = tensor;
    return text;
  }

  /// `who` reads the memory of row 0, of row 1 or (2) both.
  at::Tensor run(const Text& text, KvCache* cache, std::size_t who, const at::Tensor& positions = {},
                 const at::Tensor& documents = {}, const at::Tensor& counts = {}) const {
    TokenBatch batch;
    batch.tokens = text.tokens;
    batch.named = text.named;
    batch.positions = positions, batch.documents = documents, batch.counts = counts;
    if (!memories_.empty()) batch.memory = &memories_.at(who);
    return model_.hidden(batch, cache, at::kDouble);
  }
  KvCache cache(std::int64_t rows, std::int64_t capacity) const { return model_.make_cache(rows, capacity, kept_); }

  at::Tensor through(const Text& text, const std::vector<std::int64_t>& chunks, std::size_t who,
                     const at::Tensor& positions = {}, const at::Tensor& documents = {}) const {
    const std::int64_t tokens = text.tokens.size(1);
    KvCache held = cache(text.tokens.size(0), tokens);
    std::vector<at::Tensor> outs;
    std::size_t turn = 0;
    for (std::int64_t first = 0; first < tokens;) {
      const std::int64_t count = std::min(chunks[std::min(turn++, chunks.size() - 1)], tokens - first);
      const auto part = [&](const at::Tensor& all) { return all.defined() ? all.narrow(1, first, count) : all; };
      outs.push_back(run(text.slice(first, count), &held, who, part(positions), part(documents)));
      first += count;
    }
    return at::cat(outs, 1);
  }

 private:
  Decoder model_;
  at::ScalarType kept_;
  std::vector<Memory> memories_;
};

double apart(const at::Tensor& found, const at::Tensor& wanted) {
  return (found - wanted).abs().max().item<double>() / wanted.abs().max().item<double>();
}

void check_ways(const ModelConfig& config, at::ScalarType kept) {
  // In float64 the order of sums alone tells ways apart. A cache in bfloat16 stores the same bits whichever way tokens
  // come, as long as what arrives differs by so little: what is read back is the same.
  constexpr double kBound = 1e-10;
  const Ways ways(config, kept);
  const bool depends = ways.model().encoding().traits().length_dependent;
  constexpr std::int64_t kA = 7, kB = 11, kPadding = kB - kA;
  const Text a = ways.draw(kA, 0), b = ways.draw(kB, 3), padding = ways.draw(kPadding, 17);
  const at::Tensor alone_a = ways.through(a, {kA}, 0), alone_b = ways.through(b, {kB}, 1);
  const at::Tensor as_a = ways.through(b, {kB}, 0);  // b beside the memory of row 0
  EXPECT_LE(apart(alone_a, ways.run(a, nullptr, 0)), kept == at::kDouble ? kBound : 5e-2) << "beside no cache";

  // Packed: both documents read one memory.
  const at::Tensor documents = at::cat({at::full({1, kA}, 3, at::kLong), at::full({1, kB}, 1, at::kLong)}, 1);
  const at::Tensor places = at::cat({counting(kA), counting(kB)}, 1);
  const at::Tensor both = at::cat({alone_a, as_a}, 1);
  const Text packed = joined({a, b}, 1);
  EXPECT_LE(apart(ways.through(packed, {kA, kB}, 0, places, documents), both), kBound) << "a document at a time";
  if (kept == at::kDouble) {
    EXPECT_LE(apart(ways.run(packed, nullptr, 0, places, documents), both), kBound) << "packed";
  }

  // Left-padded: b stands without padding beside a.
  const Text padded = joined({joined({padding, a}, 1), b}, 0);
  const Text swapped = joined({b, joined({padding, a}, 1)}, 0);
  at::Tensor there = at::zeros({2, kB}, at::kLong);
  there[0].narrow(0, 0, kPadding).fill_(-1);
  const at::Tensor counted = (there.ge(0).cumsum(1) - 1).clamp_min(0).to(at::kDouble).unsqueeze(2);
  const auto check_padded = [&](const at::Tensor& out, const char* how) {
    EXPECT_LE(apart(out.narrow(0, 0, 1).narrow(1, kPadding, kA), alone_a), kBound) << "left-padded " << how;
    EXPECT_LE(apart(out.narrow(0, 1, 1), alone_b), kBound) << "beside padding " << how;
  };
  check_padded(ways.through(padded, {kB}, 2, counted, there), "at once");
  if (kept == at::kDouble) check_padded(ways.run(padded, nullptr, 2, counted, there), "without a cache");
  if (depends) return;  // frequencies of a shorter text: a model crosses a boundary by reading again (generate)

  for (const std::vector<std::int64_t>& chunks : {std::vector<std::int64_t>{1}, {4}, {2, 5, 1}}) {
    SCOPED_TRACE(::testing::Message() << "chunks of " << chunks[0]);
    EXPECT_LE(apart(ways.through(a, chunks, 0), alone_a), kBound);
    EXPECT_LE(apart(ways.through(b, chunks, 1), alone_b), kBound);
    EXPECT_LE(apart(ways.through(packed, chunks, 0, places, documents), both), kBound) << "packed";
    check_padded(ways.through(padded, chunks, 2, counted, there), "in chunks");
  }

  // Rows of their own lengths, row 1 ahead of row 0: what lies past a row's count is not there.
  KvCache cache = ways.cache(2, kB);
  std::int64_t of_a = 0, of_b = 0;
  for (const auto& [count_a, count_b] : {std::pair<std::int64_t, std::int64_t>{1, 4}, {3, 1}, {0, 3}, {3, 3}}) {
    const std::int64_t most = std::max(count_a, count_b);
    const Text tail = ways.draw(most, 23);
    const Text part = joined({joined({a.slice(of_a, count_a), tail.slice(0, most - count_a)}, 1),
                              joined({b.slice(of_b, count_b), tail.slice(0, most - count_b)}, 1)},
                             0);
    const at::Tensor out =
        ways.run(part, &cache, 2, {}, {}, at::tensor(std::vector<std::int64_t>{count_a, count_b}, at::kLong));
    if (count_a > 0) {
      EXPECT_LE(apart(out.narrow(0, 0, 1).narrow(1, 0, count_a), alone_a.narrow(1, of_a, count_a)), kBound);
    }
    EXPECT_LE(apart(out.narrow(0, 1, 1).narrow(1, 0, count_b), alone_b.narrow(1, of_b, count_b)), kBound);
    of_a += count_a, of_b += count_b;
  }
}

TEST(Ways, EveryKindOfBlockAndEveryNameInTheRegistry) {
  const at::NoGradGuard no_grad;
  std::set<std::string> names;
  const std::function<void(const Expression&)> collect = [&](const Expression& expression) {
    for (const Term& term : expression.terms) {
      names.insert(term.name);
      for (const Item& item : term.operands) collect(item.expression);
    }
  };
  std::size_t turn = 0;
  int seen = 0;
  for (const std::string& encoding : encodings()) {
    collect(parse(encoding));
    for (const Family& family : families()) {
      // One query head a key head, two, four, eight; every family and every encoding comes by all of them.
      constexpr std::int64_t kKeyHeads[] = {8, 4, 2, 1};
      const std::int64_t key_heads = kKeyHeads[turn++ % 4];
      ModelConfig config;
      config.width = 24;
      config.layers = 2;
      config.heads = 8;
      config.kv_heads = key_heads;
      config.head_dim = 8;
      config.mlp_width = 16;
      config.vocabulary_size = 50;
      config.train_length = 32;
      config.encoding = encoding;
      family.apply(config);
      config.complete();
      std::unique_ptr<Decoder> made;
      try {
        made = std::make_unique<Decoder>(config, 3);
      } catch (const UsageError&) {
        // A mixture that cuts a group of heads.
        EXPECT_TRUE(encoding.starts_with("heads") && key_heads == 1) << encoding << " " << family.name;
        continue;
      }
      for (const at::ScalarType kept : {at::kDouble, at::kBFloat16}) {
        // Plain blocks with both, the others with one or the other.
        if (&family != &families().front() && (turn / 4 % 2 == 0) != (kept == at::kDouble)) continue;
        SCOPED_TRACE(::testing::Message() << encoding << ", " << family.name << ", " << key_heads
                                          << " key heads, kept in " << c10::toString(kept));
        check_ways(config, kept);
        ++seen;
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_GE(seen, 370);
  for (const NameInfo& info : registry()) EXPECT_TRUE(names.contains(info.name)) << "no line uses " << info.name;
}

// huggingface/candle#899 and transformers#22161, in the logits themselves: an encoder's padding, before its tokens and
// behind them, and a decoder's steps and chunks.
TEST(Ways, AnEncoderBesideItsDecoder) {
  const at::NoGradGuard no_grad;
  struct Pair {
    const char *reads, *writes;
    std::int64_t key_heads;
  };
  for (const Pair& pair : {Pair{"t5(bidirectional=true, shared=true)", "t5(shared=true)", 4},
                           {"t5(bidirectional=true)", "t5", 2},
                           {"learned", "alibi", 4},
                           {"sinusoidal", "tape(rope)", 4},
                           {"rope + logn(train_length=2)", "rope", 2},
                           {"fire", "fox", 1}}) {
    SCOPED_TRACE(::testing::Message() << pair.reads << ", " << pair.writes);
    EncoderDecoderConfig config;
    for (ModelConfig* stack : {&config.encoder, &config.decoder}) {
      stack->width = 24, stack->layers = 2, stack->heads = 4, stack->kv_heads = pair.key_heads, stack->head_dim = 6;
      stack->vocabulary_size = 50, stack->train_length = 32;
      stack->block.mlp = MlpKind::Relu, stack->block.attention_scale = 1;
    }
    config.encoder.encoding = pair.reads, config.decoder.encoding = pair.writes;
    const EncoderDecoder model(config, 5);
    for (const ModelParameter& parameter : model.parameters()) {
      const std::int64_t count = parameter.tensor.numel();
      parameter.tensor.add_((at::arange(count, at::kFloat) * 1.7).sin().mul_(0.3).view(parameter.tensor.sizes()));
    }
    const std::int64_t lengths[] = {11, 4, 7}, before[] = {0, 7, 2};  // of eleven places
    at::Tensor tokens = at::full({3, 11}, 9, at::kLong), documents = at::full({3, 11}, -1, at::kLong);
    std::vector<at::Tensor> wanted;
    const at::Tensor texts = random_tokens(3, 11), targets = random_tokens(3, 13).add(1).remainder(50);
    for (std::int64_t row = 0; row < 3; ++row) {
      const at::Tensor source = texts[row].narrow(0, 0, lengths[row]);
      tokens[row].narrow(0, before[row], lengths[row]).copy_(source);
      documents[row].narrow(0, before[row], lengths[row]).zero_();
      wanted.push_back(model.logits(targets.narrow(0, row, 1), model.read(source.view({1, -1}))));
    }
    const at::Tensor alone = at::cat(wanted, 0);
    constexpr double kBound = 1e-5;  // float32: sums in another order, relative to the largest logit
    const Memory memory = model.read(tokens, documents);
    EXPECT_LE(apart(model.logits(targets, memory), alone), kBound);
    for (const std::int64_t chunk : {1, 5}) {
      KvCache cache = model.decoder().make_cache(3, 13);
      for (std::int64_t first = 0; first < 13; first += chunk) {
        const std::int64_t count = std::min<std::int64_t>(chunk, 13 - first);
        TokenBatch part = batch_of(targets.narrow(1, first, count));
        part.memory = &memory;
        const at::Tensor logits = model.decoder().logits(model.decoder().hidden(part, &cache));
        EXPECT_LE(apart(logits, alone.narrow(1, first, count)), kBound) << "chunks of " << chunk;
      }
    }
  }
}

}  // namespace
}  // namespace torsor
