// Per-token inputs from parses: gold trees, parsers, treebanks' files; for windows of corpora and for single sentences.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/lab/data.h"
#include "torsor/lab/syntax_feed.h"

namespace torsor {

/// Which domains are fed, by what `torsor syntax gate` found of the parsers (gate.h). Without reports all are.
struct GateSettings {
  std::vector<std::string> reports;  ///< files, at most one a parser
  std::string domain;                ///< of text that no treebank brings; empty = none is known, so it is unverified
  bool allow_unverified = false;     ///< feed domains that no report tells of; otherwise they are refused
  bool strict = false;               ///< the lower end of the interval must be above the threshold
};

/// Where parses come from.
struct ParseSources {
  /// What make_parser takes, or "gold": the trees of treebanks (*.conllu) given as text, of generated text and of
  /// generated suites. At most one that reads whole sentences (for mode oracle and oracle_revealed) and one that is
  /// safe for prefixes (for incremental).
  std::vector<std::string> parsers;
  std::string arcs;   ///< folder of f_syn (arc_embedder.h), for prior=fsyn
  std::string cache;  ///< folder in which parses of a corpus are kept; empty = parsed anew each time
  GateSettings gate;

  bool empty() const { return parsers.empty() && arcs.empty(); }
};

Json sources_to_json(const ParseSources& sources);
ParseSources sources_from_json(const Json& json, const std::string& where);

/// A feed for any text. `causal` is whether models are; `gold` gives the parses that "gold" stands for (LmData::gold)
/// and `domains` the domains of treebanks' documents (LmData::domains). Parsers and reports are loaded at once, texts
/// are parsed when they are first needed. Texts of a domain that failed its gate, or has too few gold words, have no
/// syntax at all. Throws UsageError for parsers that do not go together and for reports on other parsers, Error for one
/// that does not serve. Of its inputs(): UsageError where the encoding's mode has no parser, and for a domain that no
/// report tells of unless that is allowed. `stop` as for ParserSet.
std::shared_ptr<const SyntaxFeed> make_parsed_feed(const ParseSources& sources, bool causal, GoldParses gold,
                                                   std::function<void(const std::string&)> on_message = {},
                                                   TextDomains domains = {}, std::function<bool()> stop = {});

}  // namespace torsor
