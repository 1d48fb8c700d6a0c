#include "torsor/lab/surprisal.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <numbers>
#include <numeric>
#include <span>

#include "torsor/data/tokenizer.h"

namespace torsor {
namespace {

// Tokens of one call of the model, as in the evaluation on text.
constexpr std::size_t kTokensAtOnce = 8192;

}  // namespace

double Surprisals::sum() const { return std::accumulate(bits.begin(), bits.end(), 0.0); }

std::vector<Surprisals> surprisals_of(const Decoder& model, const std::vector<ScoredText>& texts,
                                      const SentenceOptions& options) {
  if (options.separator.empty()) throw UsageError("the separator before sentences must not be empty");
  if (model.config().vocabulary_size < ByteTokenizer().vocabulary_size())
    throw Error(str("surprisals: expected a model of bytes, found one of ", model.config().vocabulary_size, " tokens"));
  at::NoGradGuard no_grad;
  const std::size_t before = options.separator.size();
  std::map<std::size_t, std::vector<std::size_t>> by_size;
  for (std::size_t n = 0; n < texts.size(); ++n) {
    if (texts[n].text.empty()) throw Error("surprisals: expected a sentence, found an empty text");
    by_size[texts[n].text.size()].push_back(n);
  }
  std::vector<Surprisals> result(texts.size());
  for (const auto& [size, places] : by_size) {
    const std::size_t length = before + size - 1;  // inputs: the last token is only a target
    const std::size_t at_once = std::max<std::size_t>(1, kTokensAtOnce / length);
    for (std::size_t first = 0; first < places.size(); first += at_once) {
      if (options.stop && options.stop()) throw Interrupted("stopped during evaluation");
      const auto some = std::span(places).subspan(first, std::min(at_once, places.size() - first));
      std::vector<std::int64_t> tokens;
      std::vector<FeedRow> rows;
      for (const std::size_t place : some) {
        FeedRow row;
        row.text = options.separator + texts[place].text;
        for (std::size_t t = 0; t < row.text.size(); ++t) {
          tokens.push_back(static_cast<unsigned char>(row.text[t]));
          if (t < length) row.tokens.push_back({t, t + 1});
        }
        row.tree = texts[place].tree;
        row.tree_begin = before;
        rows.push_back(std::move(row));
      }
      const at::Tensor windows =
          at::tensor(tokens, at::kLong)
              .view({static_cast<std::int64_t>(some.size()), static_cast<std::int64_t>(length) + 1});
      const NamedTensors named = feed_rows(options.feed, model.encoding(), rows, static_cast<std::int64_t>(length));
      const at::Tensor losses = model.token_losses(windows, options.dtype, named)
                                    .to(at::kDouble)
                                    .narrow(1, static_cast<std::int64_t>(before) - 1, static_cast<std::int64_t>(size))
                                    .div(std::numbers::ln2)
                                    .contiguous();
      const double* bits = losses.const_data_ptr<double>();
      for (std::size_t r = 0; r < some.size(); ++r) {
        Surprisals& one = result[some[r]];
        one.bits.assign(bits + r * size, bits + (r + 1) * size);
        for (std::size_t t = 0; t < size; ++t) one.tokens.push_back({t, t + 1});
      }
    }
  }
  return result;
}

}  // namespace torsor
