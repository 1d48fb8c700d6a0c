// What is measured of a checkpoint, against models whose attention is known and against plain loops.
#include "torsor/lab/diagnosis_model.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "tests/base/test_folder.h"
#include "tests/lab/tiny_lab.h"
#include "torsor/lab/diagnosis.h"
#include "torsor/lab/diagnosis_findings.h"
#include "torsor/model/checkpoint.h"

namespace torsor {
namespace {

using testing::contains;
using testing::edited_model;
using testing::message_of;
using testing::shared_path;
using testing::tiny_config;
using testing::tiny_text;

const Corpus& corpus() {
  static const Corpus one = text_corpus(tiny_text(900), "text");
  return one;
}

/// On the first window of the text alone where `first`, else on two.
Measures measured(const Decoder& model, std::int64_t length, bool first = false, at::ScalarType dtype = at::kFloat) {
  MeasureRequest request;
  request.length = length;
  request.train_length = model.config().train_length;
  request.windows = 2;
  request.text = "a text";
  request.dtype = dtype;
  if (!first) return measure(model, corpus(), request);
  const std::string text = tiny_text(900).substr(0, static_cast<std::size_t>(length) + 1);
  return measure(model, text_corpus(text, "its beginning"), request);
}

void silence(const std::string& name, at::Tensor& tensor) {
  if (name.find("q_proj") != std::string::npos) tensor.zero_();  // every logit is its bias
}

TEST(DiagnosisBins, AreEighthsOfTheTrainingLength) {
  EXPECT_EQ(bin_edges(32, 16),
            (std::vector<std::int64_t>{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32}));
  EXPECT_EQ(bin_edges(20, 17), (std::vector<std::int64_t>{0, 3, 6, 9, 12, 15, 17, 20}));
  EXPECT_EQ(bin_edges(20, 512), (std::vector<std::int64_t>{0, 3, 6, 9, 12, 15, 18, 20}));
  EXPECT_EQ(bin_edges(3, 1), (std::vector<std::int64_t>{0, 1, 2, 3}));
  const std::vector<std::int64_t> many = bin_edges(100'000, 16);
  EXPECT_LE(many.size(), 67u);
  EXPECT_NE(std::find(many.begin(), many.end(), 16), many.end());
}

TEST(DiagnosisModel, EvenAttentionHasTheEntropyOfAsManyKeys) {
  Decoder model = edited_model(tiny_config("none", 16), 3, silence);
  model.to(at::kDouble);
  const Measures found = measured(model, 64, false, at::kDouble);
  ASSERT_EQ(found.bins.size(), 32u);
  EXPECT_EQ(found.windows, 2);
  const LayerMeasures& layer = found.layers.at(0);
  for (std::size_t bin = 0; bin < found.bins.size(); ++bin) {
    double entropy = 0, first = 0, distance = 0;
    const double from = static_cast<double>(found.bins[bin].from), count = 2;
    for (double p = from; p < from + count; ++p) {
      entropy += std::log(p + 1) / count;
      first += 1 / (p + 1) / count;
      distance += p / 2 / count;
    }
    EXPECT_NEAR(layer.entropy[bin], entropy, 1e-13) << bin;
    EXPECT_NEAR(layer.first_token[bin], first, 1e-15) << bin;
    EXPECT_NEAR(layer.distance[bin], distance, 1e-13) << bin;
    EXPECT_NEAR(layer.relative_entropy[bin].value(), 1, 1e-13) << bin;
    EXPECT_EQ(layer.largest_logit[bin], 0) << bin;
  }
  // Queries 0 to 15 and 16 to 63.
  double inside = 0, beyond = 0;
  for (int p = 0; p < 64; ++p) (p < 16 ? inside : beyond) += std::log(p + 1) / (p < 16 ? 16 : 48);
  for (const HeadMeasures& head : layer.heads) {
    EXPECT_NEAR(head.entropy.inside, inside, 1e-13);
    EXPECT_NEAR(head.entropy.beyond.value(), beyond, 1e-13);
    EXPECT_NEAR(head.relative_entropy.beyond.value(), 1, 1e-13);
  }
}

TEST(DiagnosisModel, AWindowCountsTheKeysThatItShows) {
  ModelConfig config = tiny_config("none", 16);
  config.window = {4};
  const Measures found = measured(edited_model(config, 3, silence), 64);
  EXPECT_NEAR(found.layers[0].entropy.back(), std::log(4), 1e-6);
  EXPECT_NEAR(found.layers[0].relative_entropy.back().value(), 1, 1e-6);
  EXPECT_EQ(found.layers[0].first_token.back(), 0);
  EXPECT_NEAR(found.layers[0].distance.back(), 1.5, 1e-6);
  EXPECT_EQ(found.layers[0].window, 4);
}

TEST(DiagnosisModel, ASlopeThatHidesAllButOneKey) {
  const Decoder model =
      edited_model(tiny_config("alibi(learn=true)", 16), 3, [](const std::string& name, at::Tensor& tensor) {
        silence(name, tensor);
        if (name.ends_with("alibi.slopes")) tensor.fill_(1000);
      });
  const Measures found = measured(model, 64);
  for (std::size_t bin = 0; bin < found.bins.size(); ++bin) {
    EXPECT_EQ(found.layers[0].entropy[bin], 0) << bin;
    EXPECT_EQ(found.layers[0].distance[bin], 0) << bin;
    EXPECT_EQ(found.layers[0].first_token[bin], bin == 0 ? 0.5 : 0) << bin;  // query 0 of queries 0 and 1
  }
}

TEST(DiagnosisModel, LossesAreThoseOfTheModelAndOfShortWindows) {
  const at::NoGradGuard no_gradient;
  const Decoder model = edited_model(tiny_config("rope", 16), 3, [](const std::string& name, at::Tensor& tensor) {
    if (name == "model.embed_tokens.weight") tensor *= 40;
  });
  const std::string text = tiny_text(900);
  const auto losses = [&](std::int64_t begin, std::int64_t length) {
    at::Tensor tokens = at::empty({1, length + 1}, at::kLong);
    for (std::int64_t i = 0; i <= length; ++i)
      tokens[0][i] = static_cast<int>(text[static_cast<std::size_t>(begin + i)]);
    return model.token_losses(tokens)[0].to(at::kDouble);
  };
  const Measures found = measured(model, 41, true);
  EXPECT_EQ(found.stride, 8);
  const at::Tensor whole = losses(0, 41);
  // Windows [0, 16), [8, 24), [16, 32), [24, 40), [32, 41), each scoring what stands behind its first 8 tokens.
  at::Tensor inside = at::empty({41}, at::kDouble);
  inside.narrow(0, 0, 16).copy_(losses(0, 16));
  for (std::int64_t begin = 8; begin < 32; begin += 8)
    inside.narrow(0, begin + 8, 8).copy_(losses(begin, 16).narrow(0, 8, 8));
  inside.narrow(0, 40, 1).copy_(losses(32, 9).narrow(0, 8, 1));
  for (const BinMeasures& bin : found.bins) {
    const auto mean = [&](const at::Tensor& all) {
      return all.narrow(0, bin.from, bin.to - bin.from).mean().item<double>();
    };
    EXPECT_NEAR(bin.loss, mean(whole), 1e-5) << bin.from;
    EXPECT_NEAR(bin.inside, mean(inside), 1e-5) << bin.from;
    EXPECT_NEAR(bin.difference, bin.loss - bin.inside, 1e-12);
    if (bin.to <= 16) {
      EXPECT_NEAR(bin.difference, 0, 1e-5) << "the same tokens with the same context";
    }
    if (bin.targets > 1) {
      const at::Tensor difference = (whole - inside).narrow(0, bin.from, bin.to - bin.from);
      EXPECT_NEAR(bin.error.value(), difference.std().item<double>() / std::sqrt(static_cast<double>(bin.targets)),
                  1e-5);
    } else {
      EXPECT_FALSE(bin.error);
    }
  }
  EXPECT_NEAR(found.loss, whole.mean().item<double>(), 1e-5);
}

TEST(DiagnosisModel, FrequenciesOfALongTextChangeItsFirstTokens) {
  const auto embolden = [](const std::string& name, at::Tensor& tensor) {
    if (name == "model.embed_tokens.weight") tensor *= 40;
    if (name.find("q_proj") != std::string::npos) tensor *= 5;
  };
  double moved = 0;
  for (const BinMeasures& bin :
       measured(edited_model(tiny_config("dynamic(rope, factor=8)", 16), 3, embolden), 64).bins)
    if (bin.to <= 16) moved = std::max(moved, std::abs(bin.difference));
  EXPECT_GT(moved, 1e-3);
}

TEST(DiagnosisModel, TheStreamIsThatOfTheEmbeddingAtFirst) {
  const Decoder model(tiny_config("rope", 16), 3);
  at::Tensor embedding;
  for (const ModelParameter& parameter : model.parameters())
    if (parameter.name == "model.embed_tokens.weight") embedding = parameter.tensor.detach().to(at::kDouble);
  const std::string text = tiny_text(900);
  const Measures found = measured(model, 32, true);
  for (std::size_t bin = 0; bin < found.bins.size(); ++bin) {
    double rms = 0;
    at::Tensor magnitude = at::zeros({16}, at::kDouble);
    const std::int64_t from = found.bins[bin].from, to = found.bins[bin].to;
    for (std::int64_t p = from; p < to; ++p) {
      const at::Tensor row = embedding[static_cast<int>(text[static_cast<std::size_t>(p)])];
      rms += row.square().mean().sqrt().item<double>() / static_cast<double>(to - from);
      magnitude += row.abs() / static_cast<double>(to - from);
    }
    EXPECT_NEAR(found.layers[0].rms[bin], rms, 1e-9);
    EXPECT_EQ(found.layers[0].largest_channel[bin], magnitude.argmax().item<std::int64_t>());
    EXPECT_NEAR(found.layers[0].largest_channel_mean[bin], magnitude.max().item<double>(), 1e-9);
  }
  EXPECT_EQ(found.last_rms.size(), found.bins.size());
  EXPECT_GT(std::abs(found.last_rms[0] - found.layers[0].rms[0]), 1e-6);
}

TEST(DiagnosisModel, StopsAndRefuses) {
  const Decoder model(tiny_config("rope", 16), 1);
  MeasureRequest request{.length = 64, .train_length = 16};
  int asked = 0;
  request.stop = [&] { return ++asked == 2; };
  EXPECT_THROW(measure(model, corpus(), request), Interrupted);
  request.stop = {};
  std::int64_t last = 0, total = 0;
  request.progress = [&](std::int64_t done, std::int64_t all) {
    EXPECT_EQ(done, ++last);
    total = all;
  };
  request.windows = 3;
  EXPECT_EQ(measure(model, corpus(), request).windows, 3);
  EXPECT_EQ(last, total);
  request.length = 5000;
  EXPECT_TRUE(contains(message_of<Error>([&] { measure(model, corpus(), request); }), "5001"))
      << "tokens that are needed";
  request.length = 64;
  EXPECT_THROW(measure(Decoder(tiny_config("learned", 16), 1), corpus(), request), Refusal);
  EXPECT_TRUE(
      contains(message_of<Error>([&] { measure(Decoder(tiny_config("sipe(alibi)", 16), 1), corpus(), request); }),
               "per-token input"));
}

Measures made_up(const std::vector<double>& differences, double error) {
  // Two bins within 16 positions, the others beyond.
  Measures measures;
  measures.length = static_cast<std::int64_t>(differences.size()) * 8;
  measures.windows = 1;
  measures.text = "a text";
  for (std::size_t i = 0; i < differences.size(); ++i) {
    BinMeasures bin;
    bin.from = static_cast<std::int64_t>(i) * 8, bin.to = bin.from + 8, bin.targets = 8;
    bin.inside = 3, bin.loss = 3 + differences[i], bin.difference = differences[i], bin.error = error;
    measures.bins.push_back(bin);
  }
  return measures;
}

Diagnosis judged(const Measures& measures) {
  Diagnosis diagnosis;
  const ModelConfig config = tiny_config("rope", 16);
  diagnosis.checkpoint = "run";
  diagnosis.layers = 1;
  diagnosis.facts = facts_of({"rope", config.dimensions(), {measures.length}, nullptr, true});
  diagnosis.measures = measures;
  judge(diagnosis);
  return diagnosis;
}

const Finding& loss_of(const Diagnosis& diagnosis) {
  for (const Finding& finding : diagnosis.findings)
    if (finding.topic == "loss") return finding;
  throw Error("no finding about the loss");
}

TEST(DiagnosisVerdict, SaysWhetherTheLossRises) {
  const Diagnosis broken = judged(made_up({0, 0, 0.01, 0.4, 0.9, 1.3}, 0.05));
  EXPECT_EQ(broken.findings.front().topic, "loss") << "measured stands before expected";
  EXPECT_EQ(broken.findings.front().severity, Severity::Breaks);
  EXPECT_EQ(broken.findings.front().from, 25) << "the first bin whose rise is shown";
  EXPECT_TRUE(contains(broken.findings.front().what, "rises by 0.653 nats")) << broken.findings.front().what;
  EXPECT_TRUE(contains(broken.findings.front().advice.at(0), "torsor extend run --encoding 'yarn(rope, factor=3)'"));
  EXPECT_TRUE(contains(broken.verdict[0], "breaks from 25 tokens on")) << broken.verdict[0];
  EXPECT_FALSE(contains(broken.verdict[0], "expected"));

  const Diagnosis worse = judged(made_up({0, 0, 0.06, 0.07, 0.08, 0.08}, 0.01));
  EXPECT_EQ(worse.findings.front().topic, "loss");
  EXPECT_EQ(worse.findings.front().severity, Severity::Degrades);
  for (const Finding& finding : worse.findings)
    if (finding.topic == "angles") {
      EXPECT_EQ(finding.severity, Severity::Degrades) << "expected to break, and the text tells by how much";
      EXPECT_TRUE(contains(finding.why, "the loss changes by 0.0725 nats")) << finding.why;
      EXPECT_TRUE(finding.advice.empty()) << "given above";
    }
  const Diagnosis unknown = judged(made_up({0, 0, 0.06, -0.05, 0.08, -0.07}, 0.6));
  EXPECT_EQ(loss_of(unknown).severity, Severity::Note);
  EXPECT_TRUE(contains(loss_of(unknown).what, "no rise of the loss"));
  const Diagnosis better = judged(made_up({0, 0, -0.1, -0.1, -0.2, -0.2}, 0.01));
  EXPECT_TRUE(contains(loss_of(better).what, "helps: the loss falls by 0.15 nats"));
  // What the angles let one expect is not what was seen.
  for (const Finding& finding : better.findings) EXPECT_NE(finding.severity, Severity::Breaks) << finding.what;
  for (const Finding& finding : unknown.findings)
    if (finding.topic == "angles") {
      EXPECT_EQ(finding.severity, Severity::Breaks) << "too little text to tell";
    }

  Measures wild = made_up({0, 0, 1, 1}, 0.1);
  wild.bins.back().loss = std::nan("");
  EXPECT_TRUE(contains(judged(wild).verdict[0], "the loss is not finite"));
}

TEST(DiagnosisVerdict, SaysWhatAttentionDoes) {
  Measures measures = made_up({0, 0, 0, 0}, 0.01);
  LayerMeasures still, moves;
  still.entropy = still.distance = still.largest_logit = still.rms = {1, 1, 1, 1};
  still.relative_entropy = {0.5, 0.5, 0.5, 0.5};
  still.first_token = {0.2, 0.2, 0.2, 0.2};
  moves = still;
  moves.relative_entropy = {0.9, 0.5, 0.6, 0.75};
  moves.first_token = {0.2, 0.4, 0.3, 0.1};
  moves.distance = {2, 5, 12, 20};
  moves.rms = {1, 2, 3, 4};
  moves.heads = {{{1, 2}, {0.5, 0.6}, {0.1, 0.1}, {3, 4}}, {{1, 2}, {0.5, 0.7}, {0.5, 0.1}, {3, 25}}};
  measures.layers = {still, moves};
  const Diagnosis diagnosis = judged(measures);
  const auto find = [&](const std::string& topic) {
    for (const Finding& finding : diagnosis.findings)
      if (finding.topic == topic) {
        EXPECT_TRUE(finding.measured);
        return finding.what + " / " + finding.why;
      }
    return std::string();
  };
  EXPECT_TRUE(contains(find("attention"), "spreads past the training length, most in layer 1")) << find("attention");
  EXPECT_TRUE(
      contains(find("attention"), "layer 1 0.5 to 0.75; most by head: layer 1 head 1, 0.5 inside and 0.7 beyond"));
  EXPECT_TRUE(contains(find("first token"), "falls past the training length, most in layer 1")) << find("first token");
  EXPECT_TRUE(contains(find("distance"), "layer 1 attends farther back than training showed: 20 tokens"));
  EXPECT_TRUE(contains(find("activations"), "grows past the training length, most where it enters layer 1"));
  EXPECT_TRUE(contains(find("activations"), "2 to 4"));
  measures.layers = {still};
  for (const Finding& finding : judged(measures).findings)
    EXPECT_TRUE(finding.topic == "loss" || !finding.measured) << finding.what;
}

// --------------------------------------------------------------------------------------------------------------------
// A pretrained model at four times its training length

struct Stories {
  LoadedModel loaded;
  Json cases;
  Corpus corpus;
};

/// The text's first tokens alone: one window.
Stories stories(const std::string& folder, std::size_t tokens) {
  Stories one{
      load_checkpoint(folder + "/stories260K.bin"), read_json(folder + "/expected/long_2048_rope_variants.json"), {}};
  auto ids = one.cases.at("tokens").get<std::vector<TokenId>>();
  ids.resize(tokens);
  one.corpus.tokenizer = "tokens";
  one.corpus.vocabulary_size = 512;
  one.corpus.documents.push_back({"alice", TokenArray::pack(ids, 512), 0});
  return one;
}

TEST(DiagnosisStories, LossesAreThoseOfTheOtherPrograms) {
  const std::string folder = shared_path("data/models/stories260K");
  if (folder.empty()) GTEST_SKIP() << "the shared data are not here";
  const Stories one = stories(folder, 2048);
  MeasureRequest request{.length = 2047, .train_length = 512, .windows = 1, .text = "Alice"};
  const Measures found = measure(one.loaded.model, one.corpus, request);
  const Json& wanted = one.cases.at("variants").at("default");
  EXPECT_NEAR(found.loss, wanted.at("mean_nll").get<double>(), 2e-5);
  const auto parts = wanted.at("mean_nll_by_256_tokens").get<std::vector<double>>();
  ASSERT_EQ(parts.size(), 8u);
  for (std::size_t part = 0; part < 8; ++part) {
    double sum = 0, count = 0;
    for (const BinMeasures& bin : found.bins)
      if (bin.from / 256 == static_cast<std::int64_t>(part)) {
        sum += bin.loss * static_cast<double>(bin.targets);
        count += static_cast<double>(bin.targets);
      }
    EXPECT_EQ(count, part == 7 ? 255 : 256);
    EXPECT_NEAR(sum / count, parts[part], 1e-3) << part;
  }
}

// Layer 0 from the embedding on, in plain float64 loops: norm, projections, rotation of interleaved pairs, softmax.
TEST(DiagnosisStories, EntropyOfAHeadByPlainLoops) {
  const std::string folder = shared_path("data/models/stories260K");
  if (folder.empty()) GTEST_SKIP() << "the shared data are not here";
  constexpr std::int64_t tokens = 700, head = 5, width = 64, dim = 8;
  const Stories one = stories(folder, tokens + 1);
  std::map<std::string, at::Tensor> weights;
  for (const ModelParameter& parameter : one.loaded.model.parameters())
    weights[parameter.name] = parameter.tensor.detach().to(at::kDouble).contiguous();
  constexpr std::size_t key_head = 2;  // of 8 heads and 4 key heads
  const auto ids = one.cases.at("tokens").get<std::vector<std::int64_t>>();
  const double* embedding = weights.at("model.embed_tokens.weight").const_data_ptr<double>();
  const double* gain = weights.at("model.layers.0.input_layernorm.weight").const_data_ptr<double>();
  const double* wq = weights.at("model.layers.0.self_attn.q_proj.weight").const_data_ptr<double>() + head * dim * width;
  const double* wk =
      weights.at("model.layers.0.self_attn.k_proj.weight").const_data_ptr<double>() + key_head * dim * width;
  std::vector<std::array<double, dim>> q(tokens), k(tokens);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const double* x = embedding + ids[static_cast<std::size_t>(t)] * width;
    double square = 0;
    for (std::int64_t c = 0; c < width; ++c) square += x[c] * x[c] / width;
    const double scale = 1 / std::sqrt(square + 1e-5);
    for (const bool key : {false, true}) {
      std::array<double, dim> raw{};
      for (std::int64_t d = 0; d < dim; ++d)
        for (std::int64_t c = 0; c < width; ++c)
          raw[static_cast<std::size_t>(d)] += (key ? wk : wq)[d * width + c] * x[c] * scale * gain[c];
      auto& turned = (key ? k : q)[static_cast<std::size_t>(t)];
      for (std::size_t i = 0; i < dim / 2; ++i) {
        const double angle = static_cast<double>(t) * std::pow(10.0, -static_cast<double>(i));
        turned[2 * i] = raw[2 * i] * std::cos(angle) - raw[2 * i + 1] * std::sin(angle);
        turned[2 * i + 1] = raw[2 * i] * std::sin(angle) + raw[2 * i + 1] * std::cos(angle);
      }
    }
  }
  double entropy[2] = {0, 0}, relative[2] = {0, 0}, first[2] = {0, 0}, distance[2] = {0, 0};
  for (std::size_t i = 0; i < tokens; ++i) {
    std::vector<double> weight(i + 1);
    double sum = 0;
    for (std::size_t j = 0; j <= i; ++j) {
      double product = 0;
      for (std::size_t d = 0; d < dim; ++d) product += q[i][d] * k[j][d];
      sum += weight[j] = std::exp(product / std::sqrt(8.0));
    }
    double own = 0, mean = 0;
    for (std::size_t j = 0; j <= i; ++j) {
      weight[j] /= sum;
      own -= weight[j] * std::log(weight[j]);
      mean += weight[j] * static_cast<double>(i - j);
    }
    const std::size_t side = i < 512 ? 0 : 1;
    const double count = side == 0 ? 512 : tokens - 512;
    entropy[side] += own / count;
    relative[side] += i == 0 ? 0 : own / std::log(static_cast<double>(i + 1)) / (side == 0 ? 511 : count);
    first[side] += weight[0] / count;
    distance[side] += mean / count;
  }
  MeasureRequest request{.length = tokens, .train_length = 512, .windows = 1, .text = "Alice"};
  const HeadMeasures found = measure(one.loaded.model, one.corpus, request).layers.at(0).heads.at(head);
  // float32 against float64.
  EXPECT_NEAR(found.entropy.inside, entropy[0], 2e-5);
  EXPECT_NEAR(found.entropy.beyond.value(), entropy[1], 2e-5);
  EXPECT_NEAR(found.relative_entropy.inside, relative[0], 1e-5);
  EXPECT_NEAR(found.relative_entropy.beyond.value(), relative[1], 1e-5);
  EXPECT_NEAR(found.first_token.inside, first[0], 1e-6);
  EXPECT_NEAR(found.first_token.beyond.value(), first[1], 1e-6);
  EXPECT_NEAR(found.distance.inside, distance[0], 1e-3);
  EXPECT_NEAR(found.distance.beyond.value(), distance[1], 5e-3);
}

}  // namespace
}  // namespace torsor
