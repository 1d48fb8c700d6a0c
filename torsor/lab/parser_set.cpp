#include "torsor/lab/parser_set.h"

#include <algorithm>
#include <set>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/hash.h"
#include "torsor/base/utf8.h"
#include "torsor/syntax/child_process.h"
#include "torsor/syntax/incremental_text.h"
#include "torsor/syntax/make_parser.h"

namespace torsor {
namespace {

using syntax::Parse;
using syntax::ParseMode;

std::string about(const syntax::ParserInfo& info) {
  return str(info.backend, " ", info.name, info.model_sha256.empty() ? "" : " " + info.model_sha256.substr(0, 12));
}

std::string identity_of(const syntax::ParserInfo& info) {
  return str(info.backend, "\t", info.name, "\t", info.version, "\t",
             info.model_sha256.empty() ? info.model : info.model_sha256);
}

void claim(std::string& name, const std::string& spec, const char* kind) {
  if (!name.empty()) throw UsageError(str("two parsers that ", kind, " were given: ", name, " and ", spec));
  name = spec;
}

constexpr double kTellEvery = 10;         // seconds
constexpr std::size_t kFailuresTold = 3;  // a parser that fails everywhere would fill the screen
constexpr const char* kWhole = "read whole sentences";
constexpr const char* kCausal = "are safe for prefixes";

}  // namespace

ParserSet::ParserSet(const ParseSources& given, GoldParses gold, TextDomains domains,
                     std::function<void(const std::string&)> on_message, std::function<bool()> stop)
    : make_gold_(std::move(gold)),
      make_domains_(std::move(domains)),
      on_message_(std::move(on_message)),
      stop_(std::move(stop)),
      store_(given.cache),
      gate_(given.gate) {
  for (const std::string& spec : given.parsers) {
    if (spec == kGold) {
      claim(whole_name_, spec, kWhole);
      continue;
    }
    std::shared_ptr<syntax::Parser> parser = syntax::make_parser(spec, {.stop = stop_});
    if (parser->info().prefix_safe) {
      claim(causal_name_, spec, kCausal);
      causal_ = std::move(parser);
      if (!causal_->tokenizer()) throw Error(str(spec, ": this parser knows no raw text"));
    } else {
      claim(whole_name_, spec, kWhole);
      whole_ = std::move(parser);
    }
  }
  if (!given.arcs.empty()) arcs_.emplace(syntax::load_arc_embedder(given.arcs));
  load_gates();
}

void ParserSet::load_gates() {
  if (gate_.reports.empty()) {
    if (gate_.allow_unverified || gate_.strict || !gate_.domain.empty())
      throw UsageError("--domain, --allow-unverified-domain and --strict-gate go with --gate");
    return;
  }
  Sha256 hash;
  hash.update(gate_.domain).update(gate_.strict ? "\nstrict\n" : "\n");
  for (const std::string& path : gate_.reports) {
    const Json json = read_json(path);
    syntax::GateReport report = syntax::gate_from_json(json, path);
    const auto fits = [&](const std::shared_ptr<syntax::Parser>& parser) {
      return parser && identity_of(parser->info()) == identity_of(report.parser);
    };
    const bool causal = fits(causal_);
    if (!causal && !fits(whole_))
      throw UsageError(str(path, ": a report on the parser ", about(report.parser), ", which is none of those given: ",
                           description().empty() ? std::string("none") : description()));
    std::optional<syntax::GateReport>& place = causal ? causal_gate_ : whole_gate_;
    if (place) throw UsageError(str(path, ": a second report on the parser ", about(report.parser)));
    hash.update(json_text(json));
    place = std::move(report);
  }
  gate_identity_ = hash.hex();
}

std::string ParserSet::description() const {
  std::string text;
  const auto add = [&](const std::string& one) { text += (text.empty() ? "" : ", ") + one; };
  if (!whole_name_.empty()) add(str("trees of ", whole_ ? about(whole_->info()) : "the data itself"));
  if (causal_) add(str("causal trees of ", about(causal_->info())));
  if (arcs_) add(str("arcs embedded by ", arcs_->sha256().substr(0, 12)));
  return text;
}

std::string ParserSet::identity() const {
  Sha256 hash;
  hash.update(whole_ ? identity_of(whole_->info()) : whole_name_).update("\n");
  hash.update(causal_ ? identity_of(causal_->info()) : "").update("\n");
  hash.update(arcs_ ? arcs_->sha256() : "");
  // Which domains are fed decides the inputs as well.
  if (gated()) hash.update("\n").update(gate_identity_);
  return hash.hex();
}

void ParserSet::require(ParseMode mode, bool bare_texts) const {
  if (mode == ParseMode::kIncremental && !causal_)
    throw UsageError(
        "mode incremental needs a parser that is safe for prefixes (--parser FOLDER of one trained with 'torsor "
        "syntax train --parser incremental')");
  if (mode != ParseMode::kIncremental && whole_name_.empty())
    throw UsageError("modes oracle and oracle_revealed need trees of whole sentences (--parser gold, or a parser)");
  if (mode != ParseMode::kIncremental && !whole_ && bare_texts)
    throw UsageError(str("mode ", syntax::mode_name(mode),
                         " is asked of sentences that bring no trees (suites from files, BLiMP, tasks), and --parser "
                         "gold has none for them; give a parser of whole sentences in its place"));
}

std::shared_ptr<const Parse> ParserSet::parse_of(const std::string& text, const std::string& hash, ParseMode mode,
                                                 const Parse* tree, bool large) {
  const std::lock_guard lock(mutex_);
  const auto key = std::pair(hash, mode);
  if (const auto found = parses_.find(key); found != parses_.end()) return found->second;
  auto made = std::make_shared<const Parse>(make(text, hash, mode, tree, large));
  parses_.emplace(key, made);
  return made;
}

std::unique_ptr<syntax::TextStream> ParserSet::stream(const syntax::FeatureOptions& options) const {
  require(ParseMode::kIncremental);
  return std::make_unique<syntax::TextStream>(causal_->tokenizer(), causal_->word_parser(),
                                              syntax::backend_id(causal_->info()), options);
}

Parse ParserSet::make(const std::string& text, const std::string& hash, ParseMode mode, const Parse* tree, bool large) {
  require(mode);
  if (mode == ParseMode::kIncremental)
    return stored(large, hash, identity_of(causal_->info()), mode, [&] {
      const std::unique_ptr<syntax::WordParser> words = causal_->word_parser();
      return Made{syntax::incremental_parse(
          text, syntax::read_text(text, causal_->tokenizer(), *words, [this] { ask_to_stop(); }),
          syntax::backend_id(causal_->info()))};
    });
  Parse parse = whole(text, hash, tree, large);
  syntax::set_mode(parse, mode);
  return parse;
}

Parse ParserSet::whole(const std::string& text, const std::string& hash, const Parse* tree, bool large) {
  if (!whole_) {
    if (tree != nullptr) return *tree;
    if (const auto found = gold().find(hash); found != gold().end()) return found->second;
    throw Error(str("no gold trees for a text of ", text.size(), " bytes that begins ", quote(text, 40),
                    ": only whole documents of a treebank (*.conllu) or of generated text, and generated suites, have "
                    "some, not one that was cut to set a part apart for validation"));
  }
  return stored(large, hash, identity_of(whole_->info()), ParseMode::kOracle, [&] {
    std::vector<syntax::Sentence> sentences;
    std::size_t failed = 0;
    std::string reason;
    for (syntax::ParsedSentence& one : whole_->parse_text(text)) {
      if (!one.parsed) {
        if (failed++ == 0) reason = one.reason;
        one.sentence.words.clear();
      }
      sentences.push_back(std::move(one.sentence));
    }
    // A parser that fails today may be well tomorrow: what it failed at is not kept.
    if (failed > 0 && failures_++ < kFailuresTold)
      tell(str(failed, " of ", sentences.size(), sentences.size() == 1 ? " sentence" : " sentences", " of a text of ",
               text.size(), " bytes could not be parsed and have no syntax: ", reason,
               failures_ == kFailuresTold ? "; further texts are counted and not told" : ""));
    syntax::ParseOptions options;
    options.backend = syntax::backend_id(whole_->info());
    return Made{syntax::make_parse(sentences, text, options), failed == 0};
  });
}

Parse ParserSet::stored(bool large, const std::string& hash, const std::string& parser, ParseMode mode,
                        const std::function<Made()>& make_it) {
  if (!large) return make_it().parse;
  if (std::optional<Parse> found = store_.find(hash, parser, mode)) return *std::move(found);
  ask_to_stop();
  if (documents_ == 0) tell("parsing texts as they are needed"), told_ = syntax::steady_seconds();
  const Made made = make_it();
  if (made.keep) store_.put(made.parse, parser);
  parsed_ += made.parse.word_count();
  ++documents_;
  if (const double now = syntax::steady_seconds(); now - told_ >= kTellEvery) {
    tell(str("parsed ", documents_, documents_ == 1 ? " document, " : " documents, ", parsed_, " words"));
    told_ = now;
  }
  return made.parse;
}

void ParserSet::ask_to_stop() const {
  if (stop_ && stop_()) throw Interrupted("stopped while texts were parsed; those that are done are kept");
}

const std::map<std::string, Parse>& ParserSet::gold() {
  if (!gold_) {
    gold_.emplace();
    if (make_gold_)
      for (Parse& parse : make_gold_()) gold_->emplace(parse.text_sha256, std::move(parse));
  }
  return *gold_;
}

const std::map<std::string, std::string>& ParserSet::domains() const {
  const std::lock_guard lock(domains_mutex_);
  if (!domains_) domains_ = make_domains_ ? make_domains_() : std::map<std::string, std::string>();
  return *domains_;
}

DomainVerdict ParserSet::judge(ParseMode mode, const std::string& domain) const {
  DomainVerdict result{domain, "not asked"};
  if (!gated()) return result;
  const bool causal = mode == ParseMode::kIncremental;
  if (!causal && !whole_) {
    result.verdict = kGold;
    return result;
  }
  const std::optional<syntax::GateReport>& report = causal ? causal_gate_ : whole_gate_;
  syntax::GateVerdict verdict = syntax::GateVerdict::kUnverified;
  if (report) result.threshold = report->options.threshold;
  if (report && !domain.empty()) {
    // A document of several domains is fed when none of them is closed.
    const auto rank = [](syntax::GateVerdict one) {
      return one == syntax::GateVerdict::kPass ? 0 : one == syntax::GateVerdict::kUnverified ? 1 : 2;
    };
    bool first = true;
    for (std::size_t begin = 0; begin <= domain.size();) {
      const std::size_t end = std::min(domain.find('+', begin), domain.size());
      const auto one = syntax::verdict_of(*report, domain.substr(begin, end - begin), gate_.strict);
      if (first || rank(one) > rank(verdict)) verdict = one;
      first = false;
      begin = end + 1;
    }
    for (const syntax::DomainGate& one : report->domains)
      if (one.domain == domain) result.figures = &one;
  }
  result.verdict = syntax::verdict_name(verdict);
  if (verdict == syntax::GateVerdict::kUnverified && !gate_.allow_unverified)
    throw UsageError(
        str("the gate's reports do not tell how ", about(causal ? causal_->info() : whole_->info()), " does on ",
            domain.empty() ? std::string("texts without a domain; name one with --domain") : "domain '" + domain + "'",
            ", or say --allow-unverified-domain"));
  result.open = verdict == syntax::GateVerdict::kPass || verdict == syntax::GateVerdict::kUnverified;
  return result;
}

DomainVerdict ParserSet::verdict(ParseMode mode, const std::string& hash) const {
  if (!gated()) return {gate_.domain, "not asked"};
  const auto found = domains().find(hash);
  return judge(mode, found == domains().end() ? gate_.domain : found->second);
}

std::vector<DomainVerdict> ParserSet::verdicts(ParseMode mode, bool others) const {
  std::vector<DomainVerdict> all;
  if (!gated()) return all;
  std::set<std::string> names;
  for (const auto& [hash, domain] : domains()) names.insert(domain);
  if (others || names.empty()) names.insert(gate_.domain);
  for (const std::string& name : names) all.push_back(judge(mode, name));
  return all;
}

Json ParserSet::parser_to_json(ParseMode mode) const {
  const std::shared_ptr<syntax::Parser>& parser = mode == ParseMode::kIncremental ? causal_ : whole_;
  if (!parser) return {{"backend", kGold}, {"name", "trees of the data itself"}, {"prefix_safe", false}};
  const syntax::ParserInfo& info = parser->info();
  return {
      {"backend", info.backend}, {"name", info.name},
      {"version", info.version}, {"model_sha256", info.model_sha256.empty() ? Json(nullptr) : Json(info.model_sha256)},
      {"scheme", info.scheme},   {"prefix_safe", info.prefix_safe}};
}

}  // namespace torsor
