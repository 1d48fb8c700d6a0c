#include "torsor/lab/perplexity.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace torsor {
namespace {

// Tokens of one call of the model, as in the evaluation by length.

// A window and how many of its last targets it scores.
struct Piece {
  Window window;
  std::size_t length = 0, scored = 0;
};

std::vector<Piece> pieces_of(const Corpus& corpus, std::size_t length, std::size_t stride) {
  std::vector<Piece> pieces;
  for (std::size_t d = 0; d < corpus.documents.size(); ++d) {
    const std::size_t targets = corpus.documents[d].tokens.size() - 1;
    if (targets == 0) continue;
    std::size_t done = std::min(length, targets);
    pieces.push_back({{d, 0}, done, done});
    while (done < targets) {
      const std::size_t fresh = std::min(stride, targets - done);
      done += fresh;
      pieces.push_back({{d, done - length}, length, fresh});
    }
  }
  return pieces;
}

Json measured(double nats, std::size_t count) {
  const double value = count > 0 ? std::exp(nats / static_cast<double>(count)) : HUGE_VAL;
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

}  // namespace

TextPerplexity sliding_perplexity(const Decoder& model, const Corpus& corpus, const SlidingOptions& options) {
  if (options.length < 1 || options.stride < 1 || options.stride > options.length)
    throw UsageError(
        str("a stride from 1 to the length is needed, found ", options.stride, " at length ", options.length));
  at::NoGradGuard no_grad;
  std::vector<Piece> pieces =
      pieces_of(corpus, static_cast<std::size_t>(options.length), static_cast<std::size_t>(options.stride));
  if (pieces.empty()) throw Error("perplexity: no document has two tokens");
  // Windows of one length run together; the short ones are those of short documents.
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.length < b.length; });
  TextPerplexity result;
  result.leaks = leaks(model.encoding());
  double joint = 0;
  for (std::size_t first = 0; first < pieces.size();) {
    if (options.stop && options.stop()) throw Interrupted("stopped during evaluation");
    const std::size_t length = pieces[first].length;
    std::size_t end = first;
    std::vector<Window> windows;
    for (; end < pieces.size() && pieces[end].length == length && (end - first) * length < kTokensAtOnce; ++end)
      windows.push_back(pieces[end].window);
    const Batch batch = gather(corpus, windows, length);
    const at::Tensor tokens = at::tensor(batch.tokens, at::kLong)
                                  .view({static_cast<std::int64_t>(batch.rows), static_cast<std::int64_t>(length) + 1});
    const WindowLosses losses = window_losses(model, corpus, batch, tokens, options.feed, options.dtype);
    for (std::size_t row = 0; row < batch.rows; ++row) {
      const Piece& piece = pieces[first + row];
      const auto sum_of = [&](const at::Tensor& all) {
        return all[static_cast<std::int64_t>(row)]
            .narrow(0, static_cast<std::int64_t>(length - piece.scored), static_cast<std::int64_t>(piece.scored))
            .sum()
            .item<double>();
      };
      result.nats += sum_of(losses.tokens);
      if (losses.tags.defined()) {
        joint += sum_of(losses.tokens) + sum_of(losses.tags);
        if (piece.window.begin == 0) joint += model.tag_heads().first_token();
      }
      result.tokens += piece.scored;
      result.words +=
          text_among(corpus.reader.get(), batch.tokens.data() + row * (length + 1), length - piece.scored + 1, length)
              .words;
    }
    first = end;
  }
  if (model.tag_heads().there()) result.joint_nats = joint;
  return result;
}

Json perplexity_to_json(const TextPerplexity& perplexity) {
  Json json;
  json["tokens"] = perplexity.tokens;
  json["words"] = perplexity.words;
  if (perplexity.leaks) {
    json["leaks"] = true;
    json["cond_ppl"] = measured(perplexity.nats, perplexity.tokens);
    json["joint_ppl"] = perplexity.joint_nats ? measured(*perplexity.joint_nats, perplexity.tokens) : Json(nullptr);
    return json;
  }
  json["token_ppl"] = measured(perplexity.nats, perplexity.tokens);
  json["word_ppl"] = perplexity.words > 0 ? measured(perplexity.nats, perplexity.words) : Json(nullptr);
  return json;
}

}  // namespace torsor
