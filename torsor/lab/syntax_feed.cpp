#include "torsor/lab/syntax_feed.h"

#include <cstdio>
#include <utility>

#include "torsor/base/error.h"

namespace torsor {
namespace {

std::string names_of(const Encoding& encoding) {
  std::string all;
  for (const std::string& name : encoding.inputs()) all += (all.empty() ? "" : ", ") + name;
  return all;
}

}  // namespace

std::unique_ptr<SyntaxStream> SyntaxFeed::stream(const Encoding& encoding) const {
  throw Refusal(str("'", encoding.expression(), "' reads ", names_of(encoding), " of every token, and ", description(),
                    " gives them for texts that are there alone, not for one that is being written"));
}

std::function<NamedTensors(const std::vector<std::vector<std::int64_t>>&, const std::vector<std::int64_t>&)>
stream_inputs(std::shared_ptr<SyntaxStream> stream, std::shared_ptr<const Tokenizer> reader) {
  return [stream = std::move(stream), reader = std::move(reader)](const std::vector<std::vector<std::int64_t>>& rows,
                                                                  const std::vector<std::int64_t>& first) {
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const std::size_t read = stream->size(row);
      if (rows[row].size() < read)
        throw Error(
            str("generate: row ", row, " had ", read, " tokens and has ", rows[row].size(), "; rows only grow"));
      std::vector<std::string> fresh;
      for (std::size_t t = read; t < rows[row].size(); ++t) {
        const std::int64_t token = rows[row][t];
        if (token < 0 || token >= reader->vocabulary_size())
          throw Error(str("generate: tokens must be those of '", reader->name(), "' to be parsed, found ", token));
        fresh.push_back(reader->text_of(static_cast<TokenId>(token)));
      }
      stream->read(row, fresh);
    }
    return stream->inputs(first);
  };
}

std::vector<std::string> gate_lines(const Json& account) {
  std::vector<std::string> lines;
  if (!account.is_object()) return lines;
  for (const Json& one : account.at("domains")) {
    const auto verdict = one.at("verdict").get<std::string>();
    const bool fed = one.at("fed").get<bool>();
    if (fed && verdict != "unverified") continue;
    const auto name = one.at("domain").get<std::string>();
    char uas[32] = "";
    if (one.at("uas").is_number()) std::snprintf(uas, sizeof uas, " (UAS %.1f)", one.at("uas").get<double>());
    lines.push_back(str("gate: ", name.empty() ? "text without a domain" : name, ": ", verdict, uas,
                        fed ? ", has syntax all the same" : ", has no syntax"));
  }
  return lines;
}

FeedRow window_row(const Corpus& corpus, const Window& window, std::size_t count) {
  FeedRow row;
  row.place = FeedRow::Place{&corpus, window, 0, count};
  if (!corpus.reader) return row;
  const TokenArray tokens = corpus.documents.at(window.document).tokens.slice(window.begin, count);
  row.tokens.reserve(count);
  for (std::size_t t = 0; t < count; ++t) {
    const std::size_t begin = row.text.size();
    row.text += corpus.reader->text_of(tokens[t]);
    row.tokens.push_back({begin, row.text.size()});
  }
  return row;
}

NamedTensors feed_rows(const SyntaxFeed* feed, const Encoding& encoding, const std::vector<FeedRow>& rows,
                       std::int64_t tokens) {
  const std::vector<std::string> names = encoding.inputs();
  if (names.empty()) return {};
  if (feed == nullptr)
    throw UsageError(str("the encoding reads ", names_of(encoding), " of every token, and no parses were given"));
  NamedTensors inputs = feed->inputs(rows, tokens, encoding);
  for (const std::string& name : names) {
    const auto found = inputs.find(name);
    if (found == inputs.end() || !found->second.defined())
      throw Error(str(feed->description(), " gives no ", name, ", which the encoding reads"));
    const at::Tensor& given = found->second;
    if (given.dim() < 2 || given.size(0) != static_cast<std::int64_t>(rows.size()) || given.size(1) != tokens)
      throw Error(str(name, " must have shape (", rows.size(), ", ", tokens, ", ...), found ", given.sizes()));
  }
  return inputs;
}

NamedTensors feed_windows(const SyntaxFeed* feed, const Encoding& encoding, const Corpus& corpus, const Batch& batch,
                          bool targets) {
  if (encoding.inputs().empty()) return {};
  const std::size_t count = batch.length + (targets ? 1 : 0);
  std::vector<FeedRow> rows;
  for (const Window& window : batch.windows) rows.push_back(window_row(corpus, window, count));
  return feed_rows(feed, encoding, rows, static_cast<std::int64_t>(count));
}

bool leaks(const Encoding& encoding) { return encoding.traits().leaks; }

}  // namespace torsor
