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

/// Where parses come from.
struct ParseSources {
  /// What make_parser takes, or "gold": the trees of treebanks (*.conllu) given as text, of generated text and of
  /// generated suites. At most one that reads whole sentences (for mode oracle and oracle_revealed) and one that is
  /// safe for prefixes (for incremental).
  std::vector<std::string> parsers;
  std::string arcs;   ///< folder of f_syn (arc_embedder.h), for prior=fsyn
  std::string cache;  ///< folder in which parses of a corpus are kept; empty = parsed anew each time

  bool empty() const { return parsers.empty() && arcs.empty(); }
};

Json sources_to_json(const ParseSources& sources);
ParseSources sources_from_json(const Json& json, const std::string& where);

/// A feed for any text. `causal` is whether models are; `gold` gives the parses that "gold" stands for (LmData::gold).
/// Parsers are loaded at once, texts are parsed when they are first needed. Throws UsageError for parsers that do not
/// go together, Error for one that does not serve. Of its inputs(): UsageError where the encoding's mode has no parser.
std::shared_ptr<const SyntaxFeed> make_parsed_feed(const ParseSources& sources, bool causal, GoldParses gold,
                                                   std::function<void(const std::string&)> on_message = {});

}  // namespace torsor
