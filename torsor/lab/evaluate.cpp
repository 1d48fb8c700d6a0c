#include "torsor/lab/evaluate.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace torsor {
namespace {

// Tokens of one call of the model: enough rows to keep two cores busy, few enough that logits stay small.
constexpr std::int64_t kMostBuckets = 32;

bool is_space(std::int64_t byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }

}  // namespace

TextAmount text_among(const Tokenizer* reader, const std::int64_t* tokens, std::size_t first, std::size_t last) {
  TextAmount amount;
  if (reader == nullptr) return amount;
  const auto text_of = [&](std::size_t t) { return reader->text_of(static_cast<TokenId>(tokens[t])); };
  // A token without bytes (a special one) hides nothing of what stands before it.
  bool behind_space = false;
  for (std::size_t t = first; t-- > 0;)
    if (const std::string before = text_of(t); !before.empty()) {
      behind_space = is_space(before.back());
      break;
    }
  for (std::size_t t = first; t <= last; ++t)
    for (const char byte : text_of(t)) {
      ++amount.bytes;
      amount.words += behind_space && !is_space(byte) ? 1 : 0;
      behind_space = is_space(byte);
    }
  return amount;
}

WindowLosses window_losses(const Decoder& model, const Corpus& corpus, const Batch& batch, const at::Tensor& windows,
                           const SyntaxFeed* feed, at::ScalarType dtype) {
  const bool heads = model.tag_heads().there();
  const NamedTensors named = feed_windows(feed, model.encoding(), corpus, batch, heads);
  if (!heads) return {model.token_losses(windows, dtype, named).to(at::kDouble), {}};
  const Decoder::JointLosses losses = model.joint_losses(windows, named, dtype);
  return {losses.tokens.to(at::kDouble), losses.tags.to(at::kDouble)};
}

LmEvaluation evaluate_lm(const Decoder& model, const Corpus& corpus, const EvaluationPlan& plan, std::int64_t length,
                         at::ScalarType dtype, const std::function<bool()>& stop, const SyntaxFeed* feed) {
  at::NoGradGuard no_grad;
  LmEvaluation result;
  result.length = length;
  result.leaks = leaks(model.encoding());
  double joint = 0;
  const std::vector<Window> windows = plan.windows(static_cast<std::size_t>(length));
  const std::size_t rows = static_cast<std::size_t>(std::max<std::int64_t>(1, kTokensAtOnce / length));
  at::Tensor by_position = at::zeros({length}, at::kDouble);
  try {
    for (std::size_t first = 0; first < windows.size(); first += rows) {
      if (stop && stop()) throw Interrupted("stopped during evaluation");
      const std::size_t count = std::min(rows, windows.size() - first);
      const Batch batch = gather(corpus, std::span(windows).subspan(first, count), static_cast<std::size_t>(length));
      const at::Tensor tokens =
          at::tensor(batch.tokens, at::kLong).view({static_cast<std::int64_t>(count), length + 1});
      const WindowLosses both = window_losses(model, corpus, batch, tokens, feed, dtype);
      const at::Tensor& losses = both.tokens;
      if (both.tags.defined()) {
        joint += (losses + both.tags).sum().item<double>();
        for (std::size_t n = first; n < first + count; ++n)
          if (n == 0 || windows[n].document != windows[n - 1].document ||
              windows[n].begin != windows[n - 1].begin + static_cast<std::size_t>(length))
            joint += model.tag_heads().first_token();
      }
      for (std::size_t row = 0; row < batch.rows; ++row) {
        const TextAmount amount =
            text_among(corpus.reader.get(), batch.tokens.data() + row * (batch.length + 1), 1, batch.length);
        result.words += amount.words, result.bytes += amount.bytes;
      }
      by_position += losses.sum(0);
      const at::Tensor means = losses.mean(1);
      for (std::int64_t row = 0; row < means.size(0); ++row) result.windows.push_back(means[row].item<double>());
    }
  } catch (const Refusal& refusal) {
    result.refused = true;
    result.reason = refusal.what();
    result.windows.clear();
    return result;
  }
  by_position /= static_cast<double>(windows.size());
  result.loss = by_position.mean().item<double>();
  if (model.tag_heads().there())
    result.joint = joint / (static_cast<double>(windows.size()) * static_cast<double>(length));
  const std::int64_t buckets = std::min(kMostBuckets, length);
  for (std::int64_t n = 0; n < buckets; ++n) {
    const std::int64_t from = n * length / buckets, to = (n + 1) * length / buckets;
    result.positions.push_back({from, to, by_position.narrow(0, from, to - from).mean().item<double>()});
  }
  return result;
}

Json evaluation_to_json(const LmEvaluation& evaluation) {
  Json json;
  json["task"] = "lm";
  json["length"] = evaluation.length;
  if (evaluation.refused) {
    json["status"] = "refused";
    json["reason"] = evaluation.reason;
    json["loss"] = json["perplexity"] = json["bits_per_byte"] = nullptr;
    json["position_loss"] = json["windows"] = Json::array();
    return json;
  }
  json["status"] = "ok";
  const double perplexity = std::exp(evaluation.loss);
  const bool finite = std::isfinite(perplexity);
  if (evaluation.leaks) {
    const auto measured = [](double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); };
    json["leaks"] = true;
    const auto shown = [](double value) { return std::round(value * 100) / 100; };  // for people
    json["reason"] = str("its tags tell of later words, so this is no perplexity: cond_ppl ", shown(perplexity),
                         evaluation.joint ? str(", joint_ppl ", shown(std::exp(*evaluation.joint))) : "");
    json["loss"] = json["perplexity"] = json["bits_per_byte"] = nullptr;
    json["cond_ppl"] = measured(perplexity);
    json["joint_ppl"] = evaluation.joint ? measured(std::exp(*evaluation.joint)) : Json(nullptr);
    json["position_loss"] = json["windows"] = Json::array();
    return json;
  }
  json["reason"] = finite ? "" : "the perplexity is not finite";
  json["loss"] = finite ? Json(evaluation.loss) : Json(nullptr);
  json["perplexity"] = finite ? Json(perplexity) : Json(nullptr);
  const double targets = static_cast<double>(evaluation.windows.size()) * static_cast<double>(evaluation.length);
  json["bits_per_byte"] =
      finite && evaluation.bytes > 0
          ? Json(evaluation.loss * (targets / static_cast<double>(evaluation.bytes)) / std::numbers::ln2)
          : Json(nullptr);
  if (evaluation.words > 0) {
    const double words = std::exp(evaluation.loss * targets / static_cast<double>(evaluation.words));
    json["word_ppl"] = std::isfinite(words) ? Json(words) : Json(nullptr);
    json["words"] = evaluation.words;
  }
  Json positions = Json::array();
  for (const LmEvaluation::Bucket& bucket : evaluation.positions)
    if (std::isfinite(bucket.loss)) positions.push_back({bucket.from, bucket.to, bucket.loss});
  json["position_loss"] = positions;
  json["windows"] = finite ? Json(evaluation.windows) : Json::array();
  return json;
}

}  // namespace torsor
