#include "torsor/lab/encoder_run.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "torsor/base/file.h"
#include "torsor/encoding/syntax/sipe.h"
#include "torsor/lab/evaluate.h"

namespace torsor {
namespace {

constexpr std::int64_t kIgnored = -100;
// The words of the validation text that are masked must not change with the run's seed: every run is judged on the
// same.
constexpr std::uint64_t kValidSeed = 20250102;

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.flatten(0, -2), targets.flatten(), {}, at::Reduction::Mean, kIgnored);
}

}  // namespace

MaskingOptions EncoderPlan::default_masking() {
  MaskingOptions options;
  options.mask_token = EncoderTokens::kMask;
  return options;
}

Json encoder_plan_to_json(const EncoderPlan& plan) {
  Json json = plan_to_json(plan.run);
  json["model"] = encoder_to_json(plan.encoder);
  json["masking"] = {{"rate", plan.masking.rate}, {"masked", plan.masking.masked}, {"random", plan.masking.random}};
  json["tau_weight"] = plan.tau_weight;
  json["nu_weight"] = plan.nu_weight;
  return json;
}

Encoder make_encoder(const EncoderPlan& plan) {
  EncoderConfig config = plan.encoder;
  config.model.encoding = plan.run.encoding;
  config.model.train_length = plan.run.length;
  config.model.vocabulary_size = EncoderTokens::kCount;
  return Encoder(config, plan.run.seed);
}

NamedTensors withheld(const NamedTensors& named, const at::Tensor& chosen) {
  NamedTensors result = named;
  for (auto& [name, tensor] : result) {
    if (name == kSyntaxTags || name == kSyntaxVectors) {
      tensor = tensor.masked_fill(chosen.unsqueeze(-1), 0);
    } else if (name == kSyntaxLabels) {
      tensor = tensor.masked_fill(chosen, 0);
    } else if (name == kSyntaxLinks) {
      // An arc is as telling from its other end: it goes when either end is chosen.
      const std::int64_t rows = tensor.size(0), tokens = tensor.size(1), links = tensor.size(2);
      const at::Tensor own = at::arange(tokens, at::kLong).view({1, tokens, 1, 1});
      const at::Tensor ends = own - tensor;
      const at::Tensor there = tensor.ge(0).logical_and(ends.ge(0));
      const at::Tensor places = ends.clamp(0, tokens - 1).view({rows, tokens * links * 2});
      const at::Tensor marked = chosen.gather(1, places).view({rows, tokens, links, 2}).logical_and(there);
      tensor = tensor.masked_fill(marked.any(-1, true), -1);
    }
  }
  return result;
}

MaskedBatch masked_batch(const Corpus& corpus, const std::vector<Window>& windows, std::int64_t length,
                         const MaskingOptions& masking, std::uint64_t seed, std::uint64_t index,
                         const Encoding& encoding, const SyntaxFeed* feed) {
  if (length < 3) throw UsageError(str("an encoder's windows hold at least 3 tokens, found ", length));
  const auto bytes = static_cast<std::size_t>(length) - 2;
  const auto rows = static_cast<std::int64_t>(windows.size());
  Random random(seed, stream_of("encoder/masking") + index);
  std::vector<std::int64_t> read, targets;
  std::vector<std::uint8_t> chosen;
  std::vector<FeedRow> fed;
  for (const Window& window : windows) {
    std::vector<std::int64_t> tokens(bytes + 2);
    tokens.front() = EncoderTokens::kFirst;
    tokens.back() = EncoderTokens::kSeparator;
    corpus.documents.at(window.document).tokens.copy(window.begin, bytes, tokens.data() + 1);
    const MaskedTokens masked = mask_words(tokens, byte_words(tokens), masking, random);
    read.insert(read.end(), masked.tokens.begin(), masked.tokens.end());
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      targets.push_back(masked.chosen[t] ? tokens[t] : kIgnored);
      chosen.push_back(masked.chosen[t] ? 1 : 0);
    }
    if (encoding.inputs().empty()) continue;
    FeedRow row;
    row.tokens.push_back({0, 0});
    for (std::size_t t = 0; t < bytes; ++t) {
      row.text += static_cast<char>(tokens[t + 1]);
      row.tokens.push_back({t, t + 1});
    }
    row.tokens.push_back({bytes, bytes});
    row.place = FeedRow::Place{&corpus, window, 1, bytes};
    row.withheld = masked.chosen;
    fed.push_back(std::move(row));
  }
  MaskedBatch batch;
  batch.inputs.tokens = at::tensor(read, at::kLong).view({rows, length});
  batch.targets = at::tensor(targets, at::kLong).view({rows, length});
  const NamedTensors named = feed_rows(feed, encoding, fed, length);
  const at::Tensor marked = at::tensor(chosen, at::kByte).view({rows, length}).to(at::kBool);
  batch.inputs.named = withheld(named, marked);
  if (const auto tags = named.find(kSyntaxTags); tags != named.end()) {
    const at::Tensor told = marked.unsqueeze(-1).logical_and(tags->second.gt(0).any(-1, true));
    batch.tags = at::where(told, tags->second, kIgnored);
  }
  return batch;
}

at::Tensor masked_loss(const Encoder& encoder, const MaskedBatch& batch, const EncoderPlan& plan, bool training) {
  const at::ScalarType dtype = dtype_named(plan.run.dtype);
  const at::Tensor hidden = encoder.hidden(batch.inputs, training, dtype);
  // Only places that count reach the output projection.
  const at::Tensor places = batch.targets.flatten().ne(kIgnored).nonzero().squeeze(1);
  const at::Tensor picked = hidden.flatten(0, 1).index_select(0, places);
  at::Tensor loss = cross_entropy(encoder.token_logits(picked, dtype), batch.targets.flatten().index_select(0, places));
  if (!encoder.config().tag_heads || !batch.tags.defined()) return loss;
  const at::Tensor tags = batch.tags.flatten(0, 1).index_select(0, places);
  if (!tags.ne(kIgnored).any().item<bool>()) return loss;
  const Encoder::TagLogits logits = encoder.tag_logits(picked, dtype);
  return loss + plan.tau_weight * cross_entropy(logits.tau, tags.select(-1, 0)) +
         plan.nu_weight * cross_entropy(logits.nu, tags.select(-1, 1));
}

EncoderResult train_encoder(const EncoderPlan& plan, const LmData& data, const RunControl& control,
                            std::shared_ptr<const SyntaxFeed> feed) {
  if (!data.train.of_bytes()) throw UsageError("an encoder is trained on text as bytes, not on tokens");
  dtype_named(plan.run.dtype);
  Encoder encoder = make_encoder(plan);
  if (!encoder.encoding().inputs().empty() && feed == nullptr)
    throw UsageError(str("'", plan.run.encoding, "' reads ", encoder.encoding().inputs().front(),
                         " of every token, and no parses of the text were given"));
  // A row's bytes are two fewer than its tokens, and the sampler's windows one more than their length.
  const BatchSampler sampler(data.train, static_cast<std::size_t>(plan.run.batch),
                             static_cast<std::size_t>(std::max<std::int64_t>(plan.run.length, 4)) - 3, plan.run.seed);
  make_directories(control.folder);
  const FolderClaim claim(control.folder);
  std::error_code ignored;
  if (!control.resume) std::filesystem::remove(control.folder + "/log.jsonl", ignored);
  TrainOptions options = train_options(plan.run, control);
  options.configuration = encoder_plan_to_json(plan);
  options.configuration["data_sha256"] = data.sha256;
  if (feed) options.configuration["feed_sha256"] = feed->sha256();
  encoder.require_gradients();
  std::vector<NamedParameter> parameters;
  for (const ModelParameter& parameter : encoder.parameters())
    // A class head has nothing to learn here.
    if (parameter.name.rfind("head.classes.", 0) != 0)
      parameters.push_back({parameter.name, parameter.tensor, parameter.decay});
  const TrainResult result = train(std::move(parameters), options, [&](std::int64_t step, std::int64_t micro) {
    const auto index = static_cast<std::uint64_t>(step * plan.run.accumulation + micro);
    const MaskedBatch batch = masked_batch(data.train, sampler.at(index).windows, plan.run.length, plan.masking,
                                           plan.run.seed, index, encoder.encoding(), feed.get());
    return masked_loss(encoder, batch, plan, true);
  });
  save_encoder(control.folder, encoder, nullptr, feed ? feed->embedder() : std::string());
  return {std::move(encoder), result};
}

Json evaluate_masked(const Encoder& encoder, const Corpus& corpus, const EncoderPlan& plan, std::int64_t most_windows,
                     const SyntaxFeed* feed, const std::function<bool()>& stop) {
  at::NoGradGuard no_grad;
  const std::int64_t length = plan.run.length;
  const auto bytes = static_cast<std::size_t>(length) - 2;
  std::vector<Window> windows;
  for (std::size_t d = 0; d < corpus.documents.size(); ++d)
    for (std::size_t begin = 0; begin + bytes <= corpus.documents[d].tokens.size(); begin += bytes)
      windows.push_back({d, begin});
  if (windows.empty()) throw Error(str("mlm: no document for validation holds ", bytes, " bytes"));
  // Spread over the text when there are too many.
  if (most_windows > 0 && static_cast<std::int64_t>(windows.size()) > most_windows) {
    std::vector<Window> some;
    for (std::int64_t n = 0; n < most_windows; ++n)
      some.push_back(windows[static_cast<std::size_t>(n) * windows.size() / static_cast<std::size_t>(most_windows)]);
    windows = std::move(some);
  }
  Json json = {{"task", "mlm"}, {"length", length}, {"status", "ok"}, {"reason", ""}};
  double sum = 0, count = 0;
  json["windows"] = Json::array();
  const auto rows = static_cast<std::size_t>(std::max<std::int64_t>(1, kTokensAtOnce / length));
  for (std::size_t first = 0; first < windows.size(); first += rows) {
    if (stop && stop()) throw Interrupted("stopped during evaluation");
    const std::vector<Window> some(
        windows.begin() + static_cast<std::ptrdiff_t>(first),
        windows.begin() + static_cast<std::ptrdiff_t>(std::min(first + rows, windows.size())));
    const MaskedBatch batch =
        masked_batch(corpus, some, length, plan.masking, kValidSeed, first, encoder.encoding(), feed);
    const at::ScalarType dtype = dtype_named(plan.run.dtype);
    const at::Tensor logits = encoder.token_logits(encoder.hidden(batch.inputs, false, dtype), dtype);
    const at::Tensor losses =
        at::cross_entropy_loss(logits.flatten(0, 1), batch.targets.flatten(), {}, at::Reduction::None, kIgnored)
            .view(batch.targets.sizes())
            .to(at::kDouble)
            .sum(1);
    const at::Tensor counts = batch.targets.ne(kIgnored).sum(1).to(at::kDouble);
    for (std::int64_t row = 0; row < losses.size(0); ++row) {
      const double loss = losses[row].item<double>(), targets = counts[row].item<double>();
      sum += loss, count += targets;
      if (targets > 0) json["windows"].push_back(loss / targets);
    }
  }
  const double loss = sum / count, perplexity = std::exp(loss);
  const bool finite = count > 0 && std::isfinite(perplexity);
  if (!finite) json["reason"] = "the pseudo-perplexity is not finite", json["windows"] = Json::array();
  json["loss"] = finite ? Json(loss) : Json(nullptr);
  json["perplexity"] = finite ? Json(perplexity) : Json(nullptr);
  return json;
}

}  // namespace torsor
