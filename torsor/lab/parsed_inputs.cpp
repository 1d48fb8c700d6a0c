#include "torsor/lab/parsed_inputs.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/encoding/syntax/sipe.h"

namespace torsor {
namespace {

constexpr auto kColumns = static_cast<std::int64_t>(syntax::ArcFeatures::kColumns);
constexpr auto kLinks = static_cast<std::int64_t>(kLinksPerToken);

class ParsedStream final : public SyntaxStream {
 public:
  ParsedStream(std::vector<std::string> names, std::shared_ptr<const ParserSet> parsers,
               const syntax::FeatureOptions& options, const syntax::ArcEmbedder* embedder)
      : names_(std::move(names)), parsers_(std::move(parsers)), options_(options), embedder_(embedder) {
    // A text that is being written is of no treebank: what the settings say of such texts holds.
    open_ = parsers_->verdict(syntax::ParseMode::kIncremental, "").open;
  }

  void read(std::size_t row, const std::vector<std::string>& tokens) override {
    while (rows_.size() <= row) rows_.emplace_back();
    Row& one = rows_[row];
    if (open_ && one.text == nullptr) one.text = parsers_->stream(options_);
    for (const std::string& token : tokens) {
      const auto number = static_cast<std::uint32_t>(one.sentences.size());
      const syntax::FeatureStream::Token found = open_ ? one.text->read(token) : syntax::FeatureStream::Token{};
      one.tags.push_back(found.shown.tag.tau);
      one.tags.push_back(found.shown.tag.nu);
      one.labels.push_back(found.shown.arc.relation);
      one.sentences.push_back(found.sentence);
      const auto columns = found.shown.arc.columns();
      one.arcs.insert(one.arcs.end(), columns.begin(), columns.end());
      one.waiting.insert(one.waiting.end(), found.links.begin(), found.links.end());
      for (std::size_t place = 0; place < kLinksPerToken; ++place) {
        if (one.waiting.empty()) {
          one.links.insert(one.links.end(), {-1, -1});
          continue;
        }
        const syntax::Link link = one.waiting.front();
        one.waiting.pop_front();
        one.links.insert(one.links.end(), {static_cast<std::int32_t>(number - link.one),
                                           static_cast<std::int32_t>(number - link.other)});
      }
    }
  }

  std::size_t size(std::size_t row) const override { return row < rows_.size() ? rows_[row].sentences.size() : 0; }

  NamedTensors inputs(const std::vector<std::int64_t>& first) const override {
    std::int64_t longest = 0;
    for (std::size_t b = 0; b < first.size(); ++b) {
      const auto there = static_cast<std::int64_t>(size(b));
      if (first[b] < 0 || first[b] > there)
        throw Error(str("row ", b, " has ", there, " tokens, and those from ", first[b], " on were asked for"));
      longest = std::max(longest, there - first[b]);
    }
    const auto count = static_cast<std::int64_t>(first.size());
    NamedTensors named = empty_inputs(names_, count, longest);
    at::Tensor arcs;
    if (embedder_ != nullptr) arcs = at::zeros({count, longest, kColumns}, at::kLong);
    for (std::size_t b = 0; b < first.size() && b < rows_.size(); ++b) {
      const Row& row = rows_[b];
      const auto at = static_cast<std::int64_t>(b);
      const auto fill = [&](const at::Tensor& tensor, const auto& values, std::int64_t width) {
        std::copy(values.begin() + static_cast<std::ptrdiff_t>(first[b] * width), values.end(),
                  tensor.select(0, at).template mutable_data_ptr<std::int64_t>());
      };
      for (auto& [name, tensor] : named) {
        if (name == kSyntaxTags) fill(tensor, row.tags, 2);
        if (name == kSyntaxLabels) fill(tensor, row.labels, 1);
        if (name == kSyntaxSentences) fill(tensor, row.sentences, 1);
        if (name == kSyntaxLinks) fill(tensor, row.links, kLinks * 2);
      }
      if (arcs.defined()) fill(arcs, row.arcs, kColumns);
    }
    if (arcs.defined()) {
      const at::NoGradGuard frozen;
      named[kSyntaxVectors] = (*embedder_)(arcs);
    }
    return named;
  }

 private:
  /// A row's numbers, which only grow at their ends.
  struct Row {
    std::unique_ptr<syntax::TextStream> text;
    std::vector<std::uint8_t> tags, labels, arcs;
    std::vector<std::int32_t> sentences, links;
    std::deque<syntax::Link> waiting;  // links that found no room yet
  };

  std::vector<std::string> names_;
  std::shared_ptr<const ParserSet> parsers_;
  syntax::FeatureOptions options_;
  const syntax::ArcEmbedder* embedder_;
  bool open_ = true;
  std::vector<Row> rows_;
};

}  // namespace

NamedTensors empty_inputs(const std::vector<std::string>& names, std::int64_t rows, std::int64_t tokens) {
  NamedTensors named;
  for (const std::string& name : names) {
    if (name == kSyntaxTags)
      named[name] = at::zeros({rows, tokens, 2}, at::kLong);
    else if (name == kSyntaxLabels)
      named[name] = at::zeros({rows, tokens}, at::kLong);
    else if (name == kSyntaxSentences)
      named[name] = at::full({rows, tokens}, -1, at::kLong);
    else if (name == kSyntaxLinks)
      named[name] = at::full({rows, tokens, kLinks, 2}, -1, at::kLong);
    else if (name == kSyntaxVectors)
      named[name] = at::zeros({rows, tokens, kSyntaxVectorWidth}, at::kFloat);
    else
      throw UsageError(str("an encoding reads '", name, "', which parses do not give"));
  }
  return named;
}

at::Tensor exchanged_vectors(const syntax::ArcEmbedder& embedder, const syntax::SyntaxFeatures& features,
                             TokenRange range, const std::vector<bool>& withheld) {
  at::Tensor vectors = at::zeros({static_cast<std::int64_t>(range.count), kSyntaxVectorWidth}, at::kFloat);
  const std::size_t end = range.begin + range.count;
  // Every sentence that the range touches, whole.
  std::int32_t least = -1, most = -1;
  for (std::size_t t = range.begin; t < end; ++t) {
    if (features.sentences[t] < 0) continue;
    if (least < 0) least = features.sentences[t];
    most = features.sentences[t];
  }
  if (least < 0 || features.word_tokens.empty()) return vectors;
  std::size_t from = range.begin, to = end;
  while (from > 0 && (features.sentences[from - 1] < 0 || features.sentences[from - 1] >= least)) --from;
  while (to < features.size() && (features.sentences[to] < 0 || features.sentences[to] <= most)) ++to;

  std::map<std::int32_t, std::int64_t> words;  // first token to place
  std::vector<bool> hidden;
  for (std::size_t t = from; t < to; ++t) {
    const std::int32_t first = features.word_tokens[t];
    if (first < 0) continue;
    const auto [found, added] = words.emplace(first, static_cast<std::int64_t>(words.size()));
    if (added) hidden.push_back(false);
    if (t >= range.begin && t < end && withheld[t - range.begin])
      hidden[static_cast<std::size_t>(found->second)] = true;
  }
  const auto count = static_cast<std::int64_t>(words.size());
  at::Tensor arcs = at::zeros({count, kColumns}, at::kLong), heads = at::full({count}, -1, at::kLong);
  for (const auto& [token, place] : words) {
    if (hidden[static_cast<std::size_t>(place)]) continue;
    features.write_arcs(static_cast<std::size_t>(token), 1, arcs[place].mutable_data_ptr<std::int64_t>());
    const auto head = words.find(features.head_tokens[static_cast<std::size_t>(token)]);
    if (head != words.end()) heads.mutable_data_ptr<std::int64_t>()[place] = head->second;
  }
  const at::NoGradGuard frozen;
  const at::Tensor made = embedder(arcs, heads);
  std::vector<std::int64_t> tokens, places;
  for (std::size_t t = range.begin; t < end; ++t) {
    if (features.arcs[t].valid == 0) continue;
    tokens.push_back(static_cast<std::int64_t>(t - range.begin));
    places.push_back(words.at(features.word_tokens[t]));
  }
  return vectors.index_copy_(0, at::tensor(tokens, at::kLong), made.index_select(0, at::tensor(places, at::kLong)));
}

std::unique_ptr<SyntaxStream> make_parsed_stream(std::vector<std::string> names,
                                                 std::shared_ptr<const ParserSet> parsers,
                                                 const syntax::FeatureOptions& options,
                                                 const syntax::ArcEmbedder* embedder) {
  return std::make_unique<ParsedStream>(std::move(names), std::move(parsers), options, embedder);
}

}  // namespace torsor
