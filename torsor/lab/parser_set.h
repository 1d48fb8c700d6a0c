// Everything that parses texts for a feed, what it has parsed, and for which domains it is good enough.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "torsor/lab/parse_store.h"
#include "torsor/lab/parsed_feed.h"
#include "torsor/syntax/arc_embedder.h"
#include "torsor/syntax/gate.h"
#include "torsor/syntax/parse.h"
#include "torsor/syntax/parser.h"
#include "torsor/syntax/text_stream.h"

namespace torsor {

/// Stands in place of a parser for the trees of the data itself.
inline constexpr const char* kGold = "gold";

/// What the gate says of a text's domain.
struct DomainVerdict {
  std::string domain;   ///< several with '+' between where a document's sentences are of several; "" = none is known
  std::string verdict;  ///< a verdict's name; "gold" for trees that no parser made, "not asked" without reports
  bool open = true;     ///< whether the domain is fed
  const syntax::DomainGate* figures = nullptr;  ///< the report's, of a single domain that it knows
  std::optional<double> threshold = {};         ///< UAS that the report asked for
};

class ParserSet {
 public:
  /// Loads the parsers, the structure embedder and the gates' reports. Throws UsageError for parsers that do not go
  /// together, and for a report of none of them. `stop` is asked between texts, and between words where the parser
  /// reads them one by one; when it answers true, Interrupted is thrown.
  ParserSet(const ParseSources& given, GoldParses gold, TextDomains domains,
            std::function<void(const std::string&)> on_message, std::function<bool()> stop = {});

  std::string description() const;
  std::string identity() const;
  const syntax::ArcEmbedder* arcs() const { return arcs_ ? &*arcs_ : nullptr; }
  bool gated() const { return !gate_.reports.empty(); }

  /// Throws UsageError where no parser serves the mode.
  void require(syntax::ParseMode mode, bool bare_texts = false) const;

  /// The parse of a text in a mode; `tree` is its gold tree where it is a single sentence that brings one. Those of
  /// `large` texts are kept in files.
  std::shared_ptr<const syntax::Parse> parse_of(const std::string& text, const std::string& hash,
                                                syntax::ParseMode mode, const syntax::Parse* tree, bool large);

  /// Reads a text that grows, with a parser of its own. Throws UsageError without a parser that is safe for prefixes.
  std::unique_ptr<syntax::TextStream> stream(const syntax::FeatureOptions& options) const;

  /// The verdict on the text of a hash, or on texts that no treebank brings (an empty hash). Throws UsageError where it
  /// is unverified and that was not allowed.
  DomainVerdict verdict(syntax::ParseMode mode, const std::string& hash) const;
  /// The verdicts on every domain that treebanks name, and on other texts where `others`. Throws as verdict() does.
  std::vector<DomainVerdict> verdicts(syntax::ParseMode mode, bool others) const;

  /// {"backend", "name", "version", "model_sha256", "scheme", "prefix_safe"} of who serves a mode.
  Json parser_to_json(syntax::ParseMode mode) const;

 private:
  void load_gates();
  DomainVerdict judge(syntax::ParseMode mode, const std::string& domain) const;
  const std::map<std::string, std::string>& domains() const;
  syntax::Parse make(const std::string& text, const std::string& hash, syntax::ParseMode mode,
                     const syntax::Parse* tree, bool large);
  syntax::Parse whole(const std::string& text, const std::string& hash, const syntax::Parse* tree, bool large);
  struct Made {
    syntax::Parse parse;
    bool keep = true;  ///< in files
  };
  syntax::Parse stored(bool large, const std::string& hash, const std::string& parser, syntax::ParseMode mode,
                       const std::function<Made()>& make_it);
  const std::map<std::string, syntax::Parse>& gold();
  void ask_to_stop() const;
  void tell(const std::string& line) const {
    if (on_message_) on_message_(line);
  }

  GoldParses make_gold_;
  TextDomains make_domains_;
  std::function<void(const std::string&)> on_message_;
  std::function<bool()> stop_;
  ParseStore store_;
  GateSettings gate_;
  std::string whole_name_, causal_name_;
  std::shared_ptr<syntax::Parser> whole_, causal_;
  std::optional<syntax::GateReport> whole_gate_, causal_gate_;
  std::string gate_identity_;
  std::optional<syntax::ArcEmbedder> arcs_;
  std::optional<std::map<std::string, syntax::Parse>> gold_;
  mutable std::optional<std::map<std::string, std::string>> domains_;  ///< by the text's hash
  mutable std::mutex domains_mutex_;
  std::map<std::pair<std::string, syntax::ParseMode>, std::shared_ptr<const syntax::Parse>> parses_;
  std::size_t documents_ = 0, parsed_ = 0;
  double told_ = 0;           // when somebody was told of them
  std::size_t failures_ = 0;  // texts of which a part could not be parsed
  std::mutex mutex_;
};

}  // namespace torsor
