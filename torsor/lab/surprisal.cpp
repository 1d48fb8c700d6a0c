#include "torsor/lab/surprisal.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <numbers>
#include <numeric>
#include <span>

#include "torsor/data/tokenizer.h"
#include "torsor/lab/evaluate.h"

namespace torsor {
namespace {

// Tokens of one call of the model, as in the evaluation on text.

/// A separator and a sentence as tokens, those from `before` on being the sentence's.
struct Sentence {
  std::vector<std::int64_t> ids;
  std::vector<ByteRange> tokens;  // in separator + sentence
  std::size_t before = 0;
};

Sentence read_sentence(const SentenceOptions& options, const std::string& text) {
  Sentence sentence;
  std::size_t end = 0;
  for (const TokenId id : options.reader->encode(options.separator + text)) {
    const std::size_t begin = end;
    end += options.reader->text_of(id).size();
    if (end <= options.separator.size()) ++sentence.before;
    sentence.ids.push_back(id);
    sentence.tokens.push_back({begin, end});
  }
  if (end != options.separator.size() + text.size())
    throw Error(str("surprisals: '", options.reader->name(), "' does not give a sentence back byte for byte"));
  if (sentence.before == 0)
    throw UsageError(
        "the separator before sentences must be a token of its own: nothing tells the first token's surprisal");
  return sentence;
}

}  // namespace

double Surprisals::sum() const { return std::accumulate(bits.begin(), bits.end(), 0.0); }

std::vector<Surprisals> surprisals_of(const Decoder& model, const std::vector<ScoredText>& texts,
                                      const SentenceOptions& options) {
  if (options.separator.empty()) throw UsageError("the separator before sentences must not be empty");
  if (model.config().vocabulary_size < options.reader->vocabulary_size())
    throw Error(str("surprisals: expected a model of '", options.reader->name(), "', found one of ",
                    model.config().vocabulary_size, " tokens"));
  at::NoGradGuard no_grad;
  std::vector<Sentence> sentences;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::size_t>> by_size;
  for (std::size_t n = 0; n < texts.size(); ++n) {
    if (texts[n].text.empty()) throw Error("surprisals: expected a sentence, found an empty text");
    sentences.push_back(read_sentence(options, texts[n].text));
    by_size[{sentences.back().ids.size(), sentences.back().before}].push_back(n);
  }
  std::vector<Surprisals> result(texts.size());
  for (const auto& [size, places] : by_size) {
    const auto [count, before] = size;
    const std::size_t length = count - 1;  // inputs: the last token is only a target
    const std::size_t at_once = std::max<std::size_t>(1, kTokensAtOnce / length);
    for (std::size_t first = 0; first < places.size(); first += at_once) {
      if (options.stop && options.stop()) throw Interrupted("stopped during evaluation");
      const auto some = std::span(places).subspan(first, std::min(at_once, places.size() - first));
      std::vector<std::int64_t> tokens;
      std::vector<FeedRow> rows;
      for (const std::size_t place : some) {
        const Sentence& one = sentences[place];
        tokens.insert(tokens.end(), one.ids.begin(), one.ids.end());
        FeedRow row;
        row.text = options.separator + texts[place].text;
        row.tokens.assign(one.tokens.begin(), one.tokens.end() - 1);
        row.tree = texts[place].tree;
        row.tree_begin = options.separator.size();
        rows.push_back(std::move(row));
      }
      const at::Tensor windows =
          at::tensor(tokens, at::kLong)
              .view({static_cast<std::int64_t>(some.size()), static_cast<std::int64_t>(length) + 1});
      const NamedTensors named = feed_rows(options.feed, model.encoding(), rows, static_cast<std::int64_t>(length));
      const std::size_t scored = count - before;
      const at::Tensor losses = model.token_losses(windows, options.dtype, named)
                                    .to(at::kDouble)
                                    .narrow(1, static_cast<std::int64_t>(before) - 1, static_cast<std::int64_t>(scored))
                                    .div(std::numbers::ln2)
                                    .contiguous();
      const double* bits = losses.const_data_ptr<double>();
      for (std::size_t r = 0; r < some.size(); ++r) {
        Surprisals& one = result[some[r]];
        one.bits.assign(bits + r * scored, bits + (r + 1) * scored);
        for (std::size_t t = before; t < count; ++t) {
          const ByteRange& range = sentences[some[r]].tokens[t];
          const std::size_t ahead = options.separator.size();
          one.tokens.push_back({std::max(range.begin, ahead) - ahead, range.end - ahead});
        }
      }
    }
  }
  return result;
}

}  // namespace torsor
