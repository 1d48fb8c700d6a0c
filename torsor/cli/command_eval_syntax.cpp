// torsor eval --task syntax and blimp, and the options that compare shares with them
#include <iostream>

#include "torsor/base/utf8.h"
#include "torsor/cli/syntax_options.h"
#include "torsor/lab/syntax_eval.h"
#include "torsor/lab/workload.h"
#include "torsor/model/checkpoint.h"
#include "torsor/model/structure_embedder.h"
#include "torsor/report/numbers.h"
#include "torsor/report/table.h"

namespace torsor {
namespace {

std::string unescaped(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      result += text[i];
      continue;
    }
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (next != 'n' && next != 't' && next != '\\')
      throw UsageError(str("--separator knows \\n, \\t and \\\\, found ", quote(text)));
    result += next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
    ++i;
  }
  return result;
}

std::string percent(const Json& value) {
  return value.is_number() ? report::format_decimals(100 * value.get<double>(), 1) : "-";
}

// The parts of an entry as a table: groups, and what they are made of.
void print_entry(const Json& entry, const char* parts, const char* title) {
  if (entry.at("status") != "ok") {
    std::cout << title << " refused: " << entry.at("reason").get<std::string>() << "\n";
    return;
  }
  std::vector<std::vector<std::string>> rows = {{title, "", "%"}};
  for (const Json& group : entry.at("groups"))
    rows.push_back({group.at("name").get<std::string>(), str(group.at("count").get<std::int64_t>()),
                    percent(group.at("accuracy"))});
  rows.push_back({"mean of all that count", "", percent(entry.at("accuracy"))});
  std::cout << report::align_columns(rows) << "\n";
  rows = {{parts, "items", "%"}};
  for (const Json& part : entry.at(parts))
    rows.push_back({part.at("name").get<std::string>() + (part.at("counted").get<bool>() ? "" : " (not counted)"),
                    str(part.at("items").get<std::int64_t>()), percent(part.at("accuracy"))});
  std::cout << report::align_columns(rows);
  if (entry.value("leaks", false))
    std::cout << "The encoding's inputs tell of later words: not comparable with scores that come without.\n";
}

}  // namespace

void add_syntax_options(Command* command, SyntaxOptions& options) {
  command->add_option("--suites", options.suites,
                      "SyntaxGym suites: *.json files or folders; left out: suites from the generated corpus");
  command->add_option("--suite-items", options.items, "items of each generated suite; left out: 40")
      ->check(whole_number(1, 1000));
  command->add_option("--blimp", options.blimp, "BLiMP paradigms: a *.jsonl file or a folder of them");
  command->add_option("--separator", options.separator,
                      "what stands before every sentence, \\n for a new line; left out: \\n\\n");
  command->add_flag("--sg-final-period", options.final_period, "end the sentences of suites with a '.'");
}

const char* given_syntax_option(const SyntaxOptions& options) {
  if (!options.suites.empty()) return "--suites";
  if (options.items > 0) return "--suite-items";
  if (!options.blimp.empty()) return "--blimp";
  if (!options.separator.empty()) return "--separator";
  return options.final_period ? "--sg-final-period" : nullptr;
}

SyntaxPlan syntax_plan(const SyntaxOptions& options) {
  if (options.items > 0 && !options.suites.empty())
    throw UsageError("--suite-items is for generated suites, and --suites names others");
  SyntaxPlan plan;
  plan.suites = options.suites;
  if (options.items > 0) plan.items = options.items;
  plan.blimp = options.blimp;
  if (!options.separator.empty()) plan.separator = unescaped(options.separator);
  plan.final_period = options.final_period;
  return plan;
}

int run_syntax_eval(const SyntaxEvalArguments& arguments, const CommonOptions& common) {
  SyntaxPlan plan = syntax_plan(arguments.syntax);
  plan.suite_seed = static_cast<std::int64_t>(common.seed);
  if (!arguments.suites && plan.blimp.empty()) throw UsageError("eval --task blimp needs --blimp");
  if (!arguments.suites && (!plan.suites.empty() || arguments.syntax.items > 0))
    throw UsageError("--suites and --suite-items are for --task syntax");
  const LoadedModel loaded =
      load_checkpoint(arguments.checkpoint, arguments.encoding, arguments.precision, arguments.base);
  if (!loaded.reader) throw Error(str(arguments.checkpoint, ": the model reads '", loaded.tokenizer, "', no text"));
  std::vector<Suite> suites;
  if (arguments.suites) suites = suites_of(plan);
  std::vector<Paradigm> paradigms;
  if (!plan.blimp.empty()) paradigms = load_blimp(plan.blimp);
  const ModelConfig& config = loaded.model.config();
  const auto feed = feed_of(arguments.feed, /*causal=*/true, {}, {}, "", common);
  require_embedder(loaded.model.encoding(), loaded.embedder, feed ? feed->embedder() : std::string(),
                   arguments.checkpoint);
  check_feed(feed.get(), loaded.model.encoding(), true, common, !paradigms.empty() || any_bare(suites));
  const SentenceOptions options{
      plan.separator, plan.final_period, dtype_named(arguments.dtype), feed.get(), [] { return stop_requested.load(); },
      loaded.reader};
  Json json;
  json["checkpoint"] = arguments.checkpoint;
  json["encoding"] = config.encoding;
  json["separator"] = plan.separator;
  json["final_period"] = plan.final_period;
  json["eval"] = Json::array();
  say(common, str(config.encoding, ": each sentence after ", quote(plan.separator),
                  plan.final_period ? ", with a final period" : ", without a final period of its own"));
  if (arguments.suites) {
    json["eval"].push_back(
        suite_evaluation_to_json(evaluate_suites(loaded.model, suites, options), config.train_length));
    if (!common.json) print_entry(json["eval"].back(), "suites", "circuit");
  }
  if (!plan.blimp.empty()) {
    json["eval"].push_back(
        blimp_evaluation_to_json(evaluate_blimp(loaded.model, paradigms, options), config.train_length));
    if (!common.json) {
      if (arguments.suites) std::cout << "\n";
      print_entry(json["eval"].back(), "paradigms", "linguistic term");
    }
  }
  if (feed)
    if (Json account = feed->account(loaded.model.encoding()); !account.is_null()) json["syntax"] = std::move(account);
  if (common.json) std::cout << json_text(json, 1) << "\n";
  return 0;
}

}  // namespace torsor
