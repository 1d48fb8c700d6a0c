#include "torsor/cli/feed_options.h"

#include <utility>

namespace torsor {

void add_feed_options(Command* command, FeedArguments& arguments) {
  command
      ->add_option(
          "--parser", arguments.parsers,
          "who parses the text, for sipe: the folder of a parser, udpipe:MODEL, process:'COMMAND', or gold for "
          "the trees of treebanks and generated text; one of whole sentences and one that is safe for prefixes")
      ->take_all();
  command->add_option("--parses", arguments.parses, "CoNLL-U files that hold the trees of the text")->take_all();
  command->add_option("--arcs", arguments.arcs, "the folder of a structure embedder, for sipe(prior=fsyn)");
  command->add_option("--parse-cache", arguments.cache, "a folder in which parses are kept; left out: in the results'");
  command
      ->add_option(
          "--gate", arguments.gate.reports,
          "what `torsor syntax gate --out` wrote of a parser given here: domains that it failed have no syntax")
      ->take_all();
  command->add_option("--domain", arguments.gate.domain, "with --gate: the domain of text that no treebank brings");
  command->add_flag("--allow-unverified-domain", arguments.gate.allow_unverified,
                    "with --gate: feed domains that no report tells of");
  command->add_flag("--strict-gate", arguments.gate.strict,
                    "with --gate: the lower end of the interval must be above the threshold");
}

void add_tag_loss(Command* command, double& weight) {
  command
      ->add_option("--tag-loss", weight,
                   "weight of the loss of the next token's tags, where the model predicts them (\"tag_heads\")")
      ->check(real_number(true))
      ->capture_default_str();
}

ParseSources sources_of(const FeedArguments& arguments) {
  ParseSources sources;
  sources.parsers = arguments.parsers;
  for (const std::string& path : arguments.parses) sources.parsers.push_back("conllu:" + path);
  sources.arcs = arguments.arcs;
  sources.cache = arguments.cache;
  sources.gate = arguments.gate;
  const GateSettings& gate = arguments.gate;
  if (!gate.reports.empty() && sources.empty()) throw UsageError("--gate goes with --parser");
  if (gate.reports.empty() && (!gate.domain.empty() || gate.allow_unverified || gate.strict))
    throw UsageError(str(!gate.domain.empty()    ? "--domain"
                         : gate.allow_unverified ? "--allow-unverified-domain"
                                                 : "--strict-gate",
                         " goes with --gate"));
  return sources;
}

void check_feed(const SyntaxFeed* feed, const Encoding& encoding, bool other_texts, const CommonOptions& common,
                bool bare_texts) {
  if (feed == nullptr || encoding.inputs().empty()) return;
  feed->check(encoding, other_texts, bare_texts);
  for (const std::string& line : gate_lines(feed->account(encoding))) say(common, line);
}

std::shared_ptr<const SyntaxFeed> feed_of(const FeedArguments& arguments, bool causal, GoldParses gold,
                                          TextDomains domains, const std::string& cache, const CommonOptions& common) {
  ParseSources sources = sources_of(arguments);
  if (sources.empty()) return nullptr;
  if (sources.cache.empty()) sources.cache = cache;
  return make_parsed_feed(
      sources, causal, std::move(gold), [&common](const std::string& line) { say(common, line); }, std::move(domains),
      [] { return stop_requested.load(); });
}

}  // namespace torsor
