#include "torsor/lab/parsed_feed.h"

#include <ATen/core/grad_mode.h>
#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/hash.h"
#include "torsor/encoding/registry.h"
#include "torsor/encoding/syntax/sipe.h"
#include "torsor/lab/parsed_inputs.h"
#include "torsor/lab/parser_set.h"
#include "torsor/syntax/controls.h"
#include "torsor/syntax/features.h"
#include "torsor/syntax/relations.h"

namespace torsor {
namespace {

using syntax::Parse;
using syntax::ParseMode;

constexpr std::uint64_t kControlSeed = 20261130;  // a control is the same in every run

ParseMode parse_mode_of(SipeMode mode) {
  switch (mode) {
    case SipeMode::Oracle:
      return ParseMode::kOracle;
    case SipeMode::OracleRevealed:
      return ParseMode::kOracleRevealed;
    case SipeMode::Incremental:
      return ParseMode::kIncremental;
    default:
      return ParseMode::kNone;
  }
}

syntax::FeatureOptions options_of(const SipeSettings& settings, bool causal) {
  syntax::FeatureOptions options;
  switch (settings.subword_in(causal)) {
    case SipeSubword::All:
      options.rule = syntax::SubwordRule::kAll;
      break;
    case SipeSubword::Delayed:
      options.rule = syntax::SubwordRule::kDelayed;
      options.repeat = settings.rotary;
      break;
    default:
      options.rule = syntax::SubwordRule::kFirst;
  }
  return options;
}

/// What an expression asks for; all its terms must ask for the same.
SipeSettings settings_of(const Encoding& encoding, bool causal) {
  const std::vector<SipeSettings> all = sipe_settings(parse(encoding.expression()));
  std::optional<SipeSettings> found;
  for (const SipeSettings& one : all) {
    if (one.mode_in(causal) == SipeMode::None) continue;
    if (found && (found->mode_in(causal) != one.mode_in(causal) || found->subword_in(causal) != one.subword_in(causal)))
      throw UsageError(str("'", encoding.expression(),
                           "': its sipe terms ask for different modes or subword rules, and a token has one"));
    if (!found || one.rotary) found = one;
  }
  if (!found) throw UsageError(str("'", encoding.expression(), "' reads inputs that parses do not give"));
  return *found;
}

/// A sentence of a suite with its gold tree as a parse of the row's text.
Parse parse_of_tree(const SuiteTree& tree, std::size_t begin, const std::string& text, const std::string& hash) {
  Parse parse;
  parse.text_sha256 = hash;
  parse.backend = {.name = kGold};
  syntax::ParseSentence sentence;
  for (std::size_t i = 0; i < tree.words.size(); ++i) {
    const std::size_t first = begin + tree.words[i].begin, last = begin + tree.words[i].end;
    if (last > text.size() || tree.words[i].begin >= tree.words[i].end)
      throw Error(str("a suite's tree has a word at bytes ", first, " to ", last, " of a text of ", text.size()));
    sentence.words.push_back({.byte_begin = static_cast<std::uint32_t>(first),
                              .byte_end = static_cast<std::uint32_t>(last),
                              .head = tree.tree.heads[i],
                              .relation = syntax::relation_id(tree.tree.relations[i]),
                              .number = static_cast<std::int32_t>(i) + 1});
  }
  sentence.byte_begin = sentence.words.empty() ? 0 : sentence.words.front().byte_begin;
  sentence.byte_end = sentence.words.empty() ? 0 : sentence.words.back().byte_end;
  parse.sentences.push_back(std::move(sentence));
  return parse;
}

/// Counts of the documents that were read under one rule.
struct Tally {
  std::size_t documents = 0, closed = 0, text_tokens = 0, parsed_tokens = 0, multi_word_tokens = 0;
  std::size_t sentences = 0, unparsed = 0, repaired = 0;
};

class ParsedFeed final : public SyntaxFeed, public std::enable_shared_from_this<ParsedFeed> {
 public:
  ParsedFeed(std::shared_ptr<ParserSet> parsers, bool causal, syntax::Control control)
      : parsers_(std::move(parsers)), causal_(causal), control_(control) {}

  std::string description() const override {
    const std::string all = parsers_->description();
    return control_ == syntax::Control::kNone ? all : str(all, ", ", syntax::control_name(control_));
  }
  std::string sha256() const override {
    return sha256_hex(str(parsers_->identity(), causal_ ? "causal" : "both ways", syntax::control_name(control_)));
  }
  std::shared_ptr<const SyntaxFeed> under(const std::string& control) const override {
    const syntax::Control named = syntax::control_named(control.empty() ? "none" : control);
    return named == control_ ? shared_from_this() : std::make_shared<const ParsedFeed>(parsers_, causal_, named);
  }
  std::string embedder() const override { return parsers_->arcs() ? parsers_->arcs()->sha256() : std::string(); }

  NamedTensors inputs(const std::vector<FeedRow>& rows, std::int64_t tokens, const Encoding& encoding) const override {
    const Asked asked = asked_by(encoding);
    const auto count = static_cast<std::int64_t>(rows.size());
    NamedTensors named = empty_inputs(encoding.inputs(), count, tokens);
    at::Tensor arcs, vectors;
    if (const auto found = named.find(kSyntaxVectors); found != named.end()) {
      vectors = found->second;
      const auto columns = static_cast<std::int64_t>(syntax::ArcFeatures::kColumns);
      if (!embedder_of(encoding, asked.mode).sizes().exchange) arcs = at::zeros({count, tokens, columns}, at::kLong);
    }
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const Cut cut = cut_of(rows[r], static_cast<std::size_t>(tokens), asked.mode, asked.options);
      const auto row = static_cast<std::int64_t>(r), at = static_cast<std::int64_t>(cut.offset);
      const auto place = [&](const at::Tensor& tensor) {
        return tensor.select(0, row)
            .narrow(0, at, static_cast<std::int64_t>(cut.count))
            .mutable_data_ptr<std::int64_t>();
      };
      for (auto& [name, tensor] : named) {
        if (name == kSyntaxTags)
          cut.features->write_tags(cut.begin, cut.count, place(tensor));
        else if (name == kSyntaxLabels)
          cut.features->write_labels(cut.begin, cut.count, place(tensor));
        else if (name == kSyntaxSentences)
          cut.features->write_sentences(cut.begin, cut.count, place(tensor));
        else if (name == kSyntaxLinks)
          cut.features->write_links(cut.begin, cut.count, kLinksPerToken, place(tensor));
      }
      if (arcs.defined()) {
        cut.features->write_arcs(cut.begin, cut.count, place(arcs));
      } else if (vectors.defined() && cut.count > 0) {
        vectors.select(0, row)
            .narrow(0, at, static_cast<std::int64_t>(cut.count))
            .copy_(
                exchanged_vectors(*parsers_->arcs(), *cut.features, {cut.begin, cut.count}, withheld_of(rows[r], cut)));
      }
    }
    if (arcs.defined()) {
      const at::NoGradGuard frozen;
      named[kSyntaxVectors] = (*parsers_->arcs())(arcs);
    }
    return named;
  }

  void check(const Encoding& encoding, bool other_texts, bool bare_texts) const override {
    if (encoding.inputs().empty()) return;
    const Asked asked = asked_by(encoding);
    parsers_->require(asked.mode, bare_texts);
    for (const std::string& name : encoding.inputs())
      if (name == kSyntaxVectors) embedder_of(encoding, asked.mode);
    parsers_->verdicts(asked.mode, other_texts);
    const std::lock_guard lock(mutex_);
    other_texts_ = other_texts_ || other_texts;
  }

  void prepare(const Encoding& encoding, const Corpus& corpus) const override {
    if (encoding.inputs().empty() || !corpus.reader) return;
    const Asked asked = asked_by(encoding);
    for (std::size_t d = 0; d < corpus.documents.size(); ++d) of_document(corpus, d, asked.mode, asked.options);
  }

  std::unique_ptr<SyntaxStream> stream(const Encoding& encoding) const override {
    const Asked asked = asked_by(encoding);
    if (asked.mode != ParseMode::kIncremental)
      throw Refusal(str("'", encoding.expression(), "': the tags of mode ", syntax::mode_name(asked.mode),
                        " come from trees of whole sentences and change as a text grows, so nothing can be generated "
                        "with them; mode=incremental can"));
    if (control_ != syntax::Control::kNone)
      throw Refusal(str("the control ", syntax::control_name(control_), " knows texts that are there alone"));
    const syntax::ArcEmbedder* embedder = nullptr;
    for (const std::string& name : encoding.inputs())
      if (name == kSyntaxVectors) embedder = &embedder_of(encoding, asked.mode);
    return make_parsed_stream(encoding.inputs(), parsers_, asked.options, embedder);
  }

  Json account(const Encoding& encoding) const override;

 private:
  struct Asked {
    ParseMode mode;
    syntax::FeatureOptions options;
  };
  Asked asked_by(const Encoding& encoding) const {
    const SipeSettings settings = settings_of(encoding, causal_);
    return {parse_mode_of(settings.mode_in(causal_)), options_of(settings, causal_)};
  }

  const syntax::ArcEmbedder& embedder_of(const Encoding& encoding, ParseMode mode) const {
    const syntax::ArcEmbedder* embedder = parsers_->arcs();
    if (embedder == nullptr)
      throw UsageError(
          str("'", encoding.expression(), "': prior=fsyn needs the folder of a structure embedder (--arcs)"));
    if (embedder->sizes().exchange && (causal_ || mode != ParseMode::kOracle))
      throw UsageError(
          str("--arcs: an embedder with an exchange along the arcs reads words ahead; it is for encoders "
              "with trees of whole sentences, not for '",
              encoding.expression(), "'"));
    if (embedder->sizes().incremental != (mode == ParseMode::kIncremental))
      throw UsageError(str("--arcs: the structure embedder was trained on ",
                           embedder->sizes().incremental ? "incremental" : "whole-sentence", " arcs, and '",
                           encoding.expression(), "' reads those of mode ", syntax::mode_name(mode)));
    return *embedder;
  }

  using Key = std::tuple<std::string, ParseMode, syntax::SubwordRule, bool>;

  /// Features [begin, begin + count) stand at the row's tokens from `offset` on.
  struct Cut {
    std::shared_ptr<const syntax::SyntaxFeatures> features;
    std::size_t begin = 0, offset = 0, count = 0;
  };

  Cut cut_of(const FeedRow& row, std::size_t length, ParseMode mode, const syntax::FeatureOptions& options) const {
    Cut cut;
    if (row.place && row.place->corpus->reader) {
      cut = {of_document(*row.place->corpus, row.place->window.document, mode, options), row.place->window.begin,
             row.place->first, row.place->count};
    } else {
      if (row.text.empty() && !row.tokens.empty()) throw UsageError("parses are of text; these tokens are no text");
      cut = {of_row(row, mode, options), 0, 0, row.tokens.size()};
    }
    if (cut.offset > length)
      throw Error(str("a row of ", length, " tokens has its text from token ", cut.offset, " on"));
    cut.count =
        std::min({cut.count, length - cut.offset, cut.features->size() - std::min(cut.begin, cut.features->size())});
    return cut;
  }

  static std::vector<bool> withheld_of(const FeedRow& row, const Cut& cut) {
    std::vector<bool> result(cut.count);
    for (std::size_t t = 0; t < cut.count && cut.offset + t < row.withheld.size(); ++t)
      result[t] = row.withheld[cut.offset + t];
    return result;
  }

  static std::vector<syntax::ByteSpan> spans_of(const FeedRow& row) {
    std::vector<syntax::ByteSpan> spans;
    spans.reserve(row.tokens.size());
    for (const ByteRange& token : row.tokens)
      spans.push_back({static_cast<std::uint32_t>(token.begin), static_cast<std::uint32_t>(token.end)});
    return spans;
  }

  std::shared_ptr<const syntax::SyntaxFeatures> of_row(const FeedRow& row, ParseMode mode,
                                                       const syntax::FeatureOptions& options) const {
    const std::vector<syntax::ByteSpan> spans = spans_of(row);
    const std::string hash = sha256_hex(row.text);
    std::optional<Parse> tree;
    if (row.tree != nullptr) tree = parse_of_tree(*row.tree, row.tree_begin, row.text, hash);
    std::string key = hash;
    for (const syntax::ByteSpan& span : spans) key += str(' ', span.begin, '-', span.end);
    return of_text(row.text, hash, sha256_hex(key), spans, mode, options, tree ? &*tree : nullptr, false);
  }

  std::shared_ptr<const syntax::SyntaxFeatures> of_document(const Corpus& corpus, std::size_t index, ParseMode mode,
                                                            const syntax::FeatureOptions& options) const {
    const Document& document = corpus.documents.at(index);
    // A document is known by where its bytes lie: hashing it for every window would cost more than the model.
    const std::string_view bytes = document.tokens.bytes();
    const auto place =
        std::tuple(static_cast<const void*>(bytes.data()), bytes.size(), mode, options.rule, options.repeat);
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = documents_.find(place); found != documents_.end()) return found->second.features;
    }
    const FeedRow row = window_row(corpus, {index, 0}, document.tokens.size());
    const std::string hash = sha256_hex(row.text);
    const std::string name = corpus.of_bytes() ? hash : sha256_hex(hash + corpus.tokenizer);
    auto features = of_text(row.text, hash, name, spans_of(row), mode, options, nullptr, true);
    const std::lock_guard lock(mutex_);
    documents_.emplace(place, Kept{document.tokens, features});
    return features;
  }

  std::shared_ptr<const syntax::SyntaxFeatures> of_text(const std::string& text, const std::string& hash,
                                                        const std::string& name,
                                                        const std::vector<syntax::ByteSpan>& spans, ParseMode mode,
                                                        const syntax::FeatureOptions& options, const Parse* tree,
                                                        bool large) const {
    const Key key{name, mode, options.rule, options.repeat};
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = features_.find(key); found != features_.end()) return found->second;
    }
    Tally added{.documents = 1};
    syntax::SyntaxFeatures made;
    if (parsers_->verdict(mode, hash).open) {
      const std::shared_ptr<const Parse> parse = parsers_->parse_of(text, hash, mode, tree, large);
      made = control_ == syntax::Control::kNone
                 ? syntax::syntax_features(*parse, text, spans, options)
                 : syntax::syntax_features(syntax::controlled(*parse, control_, kControlSeed), text, spans, options);
      for (const syntax::ParseSentence& sentence : parse->sentences) {
        ++added.sentences;
        added.unparsed += sentence.parsed ? 0 : 1;
        added.repaired += sentence.repairs > 0 ? 1 : 0;
      }
    } else {
      // The parser is not good enough here: the text has no syntax at all, which is the encoding inside, bit for bit.
      Parse nothing;
      nothing.text_sha256 = hash;
      made = syntax::syntax_features(nothing, text, spans, options);
      added.closed = 1;
    }
    added.text_tokens = made.text_tokens;
    added.parsed_tokens =
        static_cast<std::size_t>(std::llround(made.coverage() * static_cast<double>(made.text_tokens)));
    added.multi_word_tokens = made.multi_word_tokens;
    auto kept = std::make_shared<const syntax::SyntaxFeatures>(std::move(made));
    const std::lock_guard lock(mutex_);
    if (!features_.emplace(key, kept).second || !large) return kept;
    Tally& tally = tallies_[{mode, options.rule, options.repeat}];
    for (const auto member : {&Tally::documents, &Tally::closed, &Tally::text_tokens, &Tally::parsed_tokens,
                              &Tally::multi_word_tokens, &Tally::sentences, &Tally::unparsed, &Tally::repaired})
      tally.*member += added.*member;
    return kept;
  }

  struct Kept {
    TokenArray bytes;  ///< keeps the place from being given to another document
    std::shared_ptr<const syntax::SyntaxFeatures> features;
  };

  std::shared_ptr<ParserSet> parsers_;
  bool causal_;
  syntax::Control control_;
  mutable std::mutex mutex_;
  mutable bool other_texts_ = false;  ///< some were announced that no treebank brings
  mutable std::map<Key, std::shared_ptr<const syntax::SyntaxFeatures>> features_;
  mutable std::map<std::tuple<const void*, std::size_t, ParseMode, syntax::SubwordRule, bool>, Kept> documents_;
  mutable std::map<std::tuple<ParseMode, syntax::SubwordRule, bool>, Tally> tallies_;
};

Json ParsedFeed::account(const Encoding& encoding) const {
  if (encoding.inputs().empty()) return nullptr;
  const SipeSettings settings = settings_of(encoding, causal_);
  const Asked asked = asked_by(encoding);
  Json json;
  json["mode"] = syntax::mode_name(asked.mode);
  json["leaks"] = syntax::leaks(asked.mode);
  json["prior"] = settings.prior == SipePrior::Fsyn ? "fsyn" : "hexatags";
  json["coupling"] = settings.coupling.empty() ? "input" : settings.coupling;
  json["control"] = syntax::control_name(control_);
  json["parser"] = parsers_->parser_to_json(asked.mode);
  json["gate"] = parsers_->gated() ? "asked" : "not asked";
  json["domains"] = Json::array();
  const std::lock_guard lock(mutex_);
  for (const DomainVerdict& one : parsers_->verdicts(asked.mode, other_texts_)) {
    Json domain = {{"domain", one.domain}, {"verdict", one.verdict}, {"fed", one.open}};
    for (const char* figure : {"uas", "las", "low", "high", "words"}) domain[figure] = nullptr;
    domain["threshold"] = one.threshold ? Json(*one.threshold) : Json(nullptr);
    if (one.figures != nullptr) {
      domain["uas"] = one.figures->uas, domain["las"] = one.figures->las;
      domain["low"] = one.figures->low, domain["high"] = one.figures->high;
      domain["words"] = one.figures->words;
    }
    json["domains"].push_back(std::move(domain));
  }
  const auto found = tallies_.find({asked.mode, asked.options.rule, asked.options.repeat});
  const Tally tally = found == tallies_.end() ? Tally{} : found->second;
  json["documents"] = tally.documents;
  json["closed_documents"] = tally.closed;
  json["tokens"] = tally.text_tokens;
  json["coverage"] = tally.text_tokens == 0
                         ? Json(nullptr)
                         : Json(static_cast<double>(tally.parsed_tokens) / static_cast<double>(tally.text_tokens));
  json["sentences"] = tally.sentences;
  json["unparsed"] = tally.unparsed;
  json["repaired"] = tally.repaired;
  json["multi_word_tokens"] = tally.multi_word_tokens;
  return json;
}

}  // namespace

Json sources_to_json(const ParseSources& sources) {
  Json json = {{"parsers", sources.parsers}, {"arcs", sources.arcs}};
  const GateSettings& gate = sources.gate;
  if (!gate.reports.empty())
    json["gate"] = {{"reports", gate.reports},
                    {"domain", gate.domain},
                    {"allow_unverified", gate.allow_unverified},
                    {"strict", gate.strict}};
  return json;
}

ParseSources sources_from_json(const Json& json, const std::string& where) {
  JsonObject object(json, where, JsonObject::Blame::data);
  ParseSources sources;
  sources.parsers = object.get<std::vector<std::string>>("parsers");
  sources.arcs = object.get<std::string>("arcs");
  if (object.has("gate")) {
    JsonObject gate = object.object("gate");
    sources.gate.reports = gate.get<std::vector<std::string>>("reports");
    sources.gate.domain = gate.get<std::string>("domain");
    sources.gate.allow_unverified = gate.get<bool>("allow_unverified");
    sources.gate.strict = gate.get<bool>("strict");
    gate.finish();
  }
  object.finish();
  return sources;
}

std::shared_ptr<const SyntaxFeed> make_parsed_feed(const ParseSources& sources, bool causal, GoldParses gold,
                                                   std::function<void(const std::string&)> on_message,
                                                   TextDomains domains, std::function<bool()> stop) {
  return std::make_shared<const ParsedFeed>(
      std::make_shared<ParserSet>(sources, std::move(gold), std::move(domains), std::move(on_message), std::move(stop)),
      causal, syntax::Control::kNone);
}

}  // namespace torsor
