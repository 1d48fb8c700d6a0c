#include "torsor/lab/parsed_feed.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/hash.h"
#include "torsor/base/utf8.h"
#include "torsor/encoding/registry.h"
#include "torsor/encoding/syntax/sipe.h"
#include "torsor/lab/parse_store.h"
#include "torsor/syntax/arc_embedder.h"
#include "torsor/syntax/controls.h"
#include "torsor/syntax/features.h"
#include "torsor/syntax/incremental_text.h"
#include "torsor/syntax/make_parser.h"
#include "torsor/syntax/relations.h"

namespace torsor {
namespace {

using syntax::Parse;
using syntax::ParseMode;

constexpr const char* kGold = "gold";
constexpr std::uint64_t kControlSeed = 20261130;  // a control is the same in every run
constexpr std::size_t kLinksPerToken = 8;         // arcs that find no room go to later tokens

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

/// Everything that parses texts, and what it has parsed.
class Sources {
 public:
  Sources(const ParseSources& given, GoldParses gold, std::function<void(const std::string&)> on_message)
      : make_gold_(std::move(gold)), on_message_(std::move(on_message)), store_(given.cache) {
    for (const std::string& spec : given.parsers) {
      if (spec == kGold) {
        claim(whole_name_, spec, "reads whole sentences");
        continue;
      }
      std::shared_ptr<syntax::Parser> parser = syntax::make_parser(spec);
      const syntax::ParserInfo& info = parser->info();
      if (info.prefix_safe) {
        claim(causal_name_, spec, "is safe for prefixes");
        causal_ = std::move(parser);
        if (!causal_->tokenizer()) throw Error(str(spec, ": this parser knows no raw text"));
      } else {
        claim(whole_name_, spec, "reads whole sentences");
        whole_ = std::move(parser);
      }
    }
    if (!given.arcs.empty()) arcs_.emplace(syntax::load_arc_embedder(given.arcs));
  }

  std::string description() const {
    std::string text;
    const auto add = [&](const std::string& one) { text += (text.empty() ? "" : ", ") + one; };
    if (!whole_name_.empty()) add(str("trees of ", whole_ ? about(whole_->info()) : "the data itself"));
    if (causal_) add(str("causal trees of ", about(causal_->info())));
    if (arcs_) add(str("arcs embedded by ", arcs_->sha256().substr(0, 12)));
    return text;
  }

  std::string identity() const {
    Sha256 hash;
    hash.update(whole_ ? identity_of(whole_->info()) : whole_name_).update("\n");
    hash.update(causal_ ? identity_of(causal_->info()) : "").update("\n");
    hash.update(arcs_ ? arcs_->sha256() : "");
    return hash.hex();
  }

  const syntax::ArcEmbedder* arcs() const { return arcs_ ? &*arcs_ : nullptr; }

  /// The parse of a text in a mode; `tree` is its gold tree where it is a single sentence that brings one.
  std::shared_ptr<const Parse> parse_of(const std::string& text, const std::string& hash, ParseMode mode,
                                        const Parse* tree, bool large) {
    const std::lock_guard lock(mutex_);
    const auto key = std::pair(hash, mode);
    if (const auto found = parses_.find(key); found != parses_.end()) return found->second;
    auto made = std::make_shared<const Parse>(make(text, hash, mode, tree, large));
    parses_.emplace(key, made);
    return made;
  }

 private:
  static void claim(std::string& name, const std::string& spec, const char* what) {
    if (!name.empty())
      throw UsageError(
          str("two parsers that ",
              what == std::string("reads whole sentences") ? "read whole sentences" : "are safe for prefixes",
              " were given: ", name, " and ", spec));
    name = spec;
  }
  static std::string about(const syntax::ParserInfo& info) {
    return str(info.backend, " ", info.name, info.model_sha256.empty() ? "" : " " + info.model_sha256.substr(0, 12));
  }
  static std::string identity_of(const syntax::ParserInfo& info) {
    return str(info.backend, "\t", info.name, "\t", info.version, "\t",
               info.model_sha256.empty() ? info.model : info.model_sha256);
  }
  void tell(const std::string& line) const {
    if (on_message_) on_message_(line);
  }

  Parse make(const std::string& text, const std::string& hash, ParseMode mode, const Parse* tree, bool large) {
    if (mode == ParseMode::kIncremental) {
      if (!causal_)
        throw UsageError(
            "mode incremental needs a parser that is safe for prefixes (--parser FOLDER of one trained with 'torsor "
            "syntax train --parser incremental')");
      return stored(large, hash, identity_of(causal_->info()), mode, [&] {
        const std::unique_ptr<syntax::WordParser> words = causal_->word_parser();
        return syntax::incremental_parse(text, syntax::read_text(text, causal_->tokenizer(), *words),
                                         syntax::backend_id(causal_->info()));
      });
    }
    Parse parse = whole(text, hash, tree, large);
    syntax::set_mode(parse, mode);
    return parse;
  }

  Parse whole(const std::string& text, const std::string& hash, const Parse* tree, bool large) {
    if (whole_name_.empty())
      throw UsageError("modes oracle and oracle_revealed need trees of whole sentences (--parser gold, or a parser)");
    if (!whole_) {
      if (tree != nullptr) return *tree;
      if (const auto found = gold().find(hash); found != gold().end()) return found->second;
      throw Error(
          str("no gold trees for a text of ", text.size(), " bytes that begins ", quote(text, 40),
              ": only whole documents of a treebank (*.conllu) or of generated text, and generated suites, have "
              "some"));
    }
    return stored(large, hash, identity_of(whole_->info()), ParseMode::kOracle, [&] {
      std::vector<syntax::Sentence> sentences;
      for (syntax::ParsedSentence& one : whole_->parse_text(text)) {
        if (!one.parsed) one.sentence.words.clear();
        sentences.push_back(std::move(one.sentence));
      }
      syntax::ParseOptions options;
      options.backend = syntax::backend_id(whole_->info());
      return syntax::make_parse(sentences, text, options);
    });
  }

  Parse stored(bool large, const std::string& hash, const std::string& parser, ParseMode mode,
               const std::function<Parse()>& make_it) {
    if (!large) return make_it();
    if (std::optional<Parse> found = store_.find(hash, parser, mode)) return *std::move(found);
    Parse made = make_it();
    store_.put(made, parser);
    parsed_ += made.word_count();
    if (++told_ % 100 == 0) tell(str("parsed ", told_, " documents, ", parsed_, " words"));
    return made;
  }

  const std::map<std::string, Parse>& gold() {
    if (!gold_) {
      gold_.emplace();
      if (make_gold_)
        for (Parse& parse : make_gold_()) gold_->emplace(parse.text_sha256, std::move(parse));
    }
    return *gold_;
  }

  GoldParses make_gold_;
  std::function<void(const std::string&)> on_message_;
  ParseStore store_;
  std::string whole_name_, causal_name_;
  std::shared_ptr<syntax::Parser> whole_, causal_;
  std::optional<syntax::ArcEmbedder> arcs_;
  std::optional<std::map<std::string, Parse>> gold_;
  std::map<std::pair<std::string, ParseMode>, std::shared_ptr<const Parse>> parses_;
  std::size_t told_ = 0, parsed_ = 0;
  std::mutex mutex_;
};

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

class ParsedFeed final : public SyntaxFeed, public std::enable_shared_from_this<ParsedFeed> {
 public:
  ParsedFeed(std::shared_ptr<Sources> sources, bool causal, syntax::Control control)
      : sources_(std::move(sources)), causal_(causal), control_(control) {}

  std::string description() const override {
    const std::string all = sources_->description();
    return control_ == syntax::Control::kNone ? all : str(all, ", ", syntax::control_name(control_));
  }
  std::string sha256() const override {
    return sha256_hex(str(sources_->identity(), causal_ ? "causal" : "both ways", syntax::control_name(control_)));
  }
  std::shared_ptr<const SyntaxFeed> under(const std::string& control) const override {
    const syntax::Control named = syntax::control_named(control.empty() ? "none" : control);
    return named == control_ ? shared_from_this() : std::make_shared<const ParsedFeed>(sources_, causal_, named);
  }

  NamedTensors inputs(const std::vector<FeedRow>& rows, std::int64_t tokens, const Encoding& encoding) const override {
    const SipeSettings settings = settings_of(encoding, causal_);
    const ParseMode mode = parse_mode_of(settings.mode_in(causal_));
    const syntax::FeatureOptions options = options_of(settings, causal_);
    const auto count = static_cast<std::int64_t>(rows.size());
    const auto length = static_cast<std::size_t>(tokens);
    const auto columns = static_cast<std::int64_t>(syntax::ArcFeatures::kColumns);
    NamedTensors named;
    at::Tensor arcs;
    for (const std::string& name : encoding.inputs()) {
      if (name == kSyntaxTags)
        named[name] = at::zeros({count, tokens, 2}, at::kLong);
      else if (name == kSyntaxSentences)
        named[name] = at::full({count, tokens}, -1, at::kLong);
      else if (name == kSyntaxLinks)
        named[name] = at::full({count, tokens, static_cast<std::int64_t>(kLinksPerToken), 2}, -1, at::kLong);
      else if (name == kSyntaxVectors)
        arcs = at::zeros({count, tokens, columns}, at::kLong);
      else
        throw UsageError(str("'", encoding.expression(), "' reads '", name, "', which parses do not give"));
    }
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto [features, begin] = features_of(rows[r], mode, options);
      const std::size_t room = std::min(length, features->size() - begin);
      const auto row = static_cast<std::int64_t>(r);
      const auto at = [&](const at::Tensor& tensor) { return tensor.select(0, row).mutable_data_ptr<std::int64_t>(); };
      for (auto& [name, tensor] : named) {
        if (name == kSyntaxTags)
          features->write_tags(begin, room, at(tensor));
        else if (name == kSyntaxSentences)
          features->write_sentences(begin, room, at(tensor));
        else
          features->write_links(begin, room, kLinksPerToken, at(tensor));
      }
      if (arcs.defined()) features->write_arcs(begin, room, at(arcs));
    }
    if (arcs.defined()) {
      const syntax::ArcEmbedder* embedder = sources_->arcs();
      if (embedder == nullptr)
        throw UsageError(
            str("'", encoding.expression(), "': prior=fsyn needs the folder of a structure embedder (--arcs)"));
      if (embedder->sizes().exchange)
        throw UsageError(
            "--arcs: an embedder with an exchange along the arcs is for encoders of whole sentences and is not fed "
            "here");
      if (embedder->sizes().incremental != (mode == ParseMode::kIncremental))
        throw UsageError(str("--arcs: the structure embedder was trained on ",
                             embedder->sizes().incremental ? "incremental" : "whole-sentence", " arcs, and '",
                             encoding.expression(), "' reads those of mode ", syntax::mode_name(mode)));
      const at::NoGradGuard frozen;
      named[kSyntaxVectors] = (*embedder)(arcs);
    }
    return named;
  }

 private:
  using Key = std::tuple<std::string, ParseMode, syntax::SubwordRule, bool>;
  using Found = std::pair<std::shared_ptr<const syntax::SyntaxFeatures>, std::size_t>;

  /// The features that hold the row's tokens, and where they begin in them.
  Found features_of(const FeedRow& row, ParseMode mode, const syntax::FeatureOptions& options) const {
    if (row.place && row.place->first == 0 && row.place->corpus->tokenizer == "bytes") {
      const Document& document = row.place->corpus->documents.at(row.place->window.document);
      return {of_document(document, mode, options), row.place->window.begin};
    }
    if (row.text.empty() && !row.tokens.empty()) throw UsageError("parses are of text; these tokens are no text");
    std::vector<syntax::ByteSpan> spans;
    for (const ByteRange& token : row.tokens)
      spans.push_back({static_cast<std::uint32_t>(token.begin), static_cast<std::uint32_t>(token.end)});
    const std::string hash = sha256_hex(row.text);
    std::optional<Parse> tree;
    if (row.tree != nullptr) tree = parse_of_tree(*row.tree, row.tree_begin, row.text, hash);
    std::string key = hash;
    for (const syntax::ByteSpan& span : spans) key += str(' ', span.begin, '-', span.end);
    return {of_text(row.text, hash, sha256_hex(key), spans, mode, options, tree ? &*tree : nullptr, false), 0};
  }

  std::shared_ptr<const syntax::SyntaxFeatures> of_document(const Document& document, ParseMode mode,
                                                            const syntax::FeatureOptions& options) const {
    // A document is known by where its bytes lie: hashing it for every window would cost more than the model.
    const std::string_view bytes = document.tokens.bytes();
    const auto place =
        std::tuple(static_cast<const void*>(bytes.data()), bytes.size(), mode, options.rule, options.repeat);
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = documents_.find(place); found != documents_.end()) return found->second.features;
    }
    const std::string text(bytes);
    std::vector<syntax::ByteSpan> spans(text.size());
    for (std::uint32_t t = 0; t < spans.size(); ++t) spans[t] = {t, t + 1};
    const std::string hash = sha256_hex(text);
    auto features = of_text(text, hash, hash, spans, mode, options, nullptr, true);
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
    const std::shared_ptr<const Parse> parse = sources_->parse_of(text, hash, mode, tree, large);
    auto made = std::make_shared<const syntax::SyntaxFeatures>(
        control_ == syntax::Control::kNone
            ? syntax::syntax_features(*parse, text, spans, options)
            : syntax::syntax_features(syntax::controlled(*parse, control_, kControlSeed), text, spans, options));
    const std::lock_guard lock(mutex_);
    features_.emplace(key, made);
    return made;
  }

  struct Kept {
    TokenArray bytes;  ///< keeps the place from being given to another document
    std::shared_ptr<const syntax::SyntaxFeatures> features;
  };

  std::shared_ptr<Sources> sources_;
  bool causal_;
  syntax::Control control_;
  mutable std::mutex mutex_;
  mutable std::map<Key, std::shared_ptr<const syntax::SyntaxFeatures>> features_;
  mutable std::map<std::tuple<const void*, std::size_t, ParseMode, syntax::SubwordRule, bool>, Kept> documents_;
};

}  // namespace

Json sources_to_json(const ParseSources& sources) { return {{"parsers", sources.parsers}, {"arcs", sources.arcs}}; }

ParseSources sources_from_json(const Json& json, const std::string& where) {
  JsonObject object(json, where, JsonObject::Blame::data);
  ParseSources sources;
  sources.parsers = object.get<std::vector<std::string>>("parsers");
  sources.arcs = object.get<std::string>("arcs");
  object.finish();
  return sources;
}

std::shared_ptr<const SyntaxFeed> make_parsed_feed(const ParseSources& sources, bool causal, GoldParses gold,
                                                   std::function<void(const std::string&)> on_message) {
  return std::make_shared<const ParsedFeed>(std::make_shared<Sources>(sources, std::move(gold), std::move(on_message)),
                                            causal, syntax::Control::kNone);
}

}  // namespace torsor
