// torsor syntax suites
#include <filesystem>
#include <iostream>
#include <memory>

#include "torsor/base/file.h"
#include "torsor/base/json.h"
#include "torsor/cli/command_syntax.h"
#include "torsor/data/minimal_suites.h"
#include "torsor/syntax/suites.h"

namespace torsor {
namespace {

struct SuitesArguments {
  std::int64_t items = 40;
  std::vector<std::string> names;
};

int run_suites(const SuitesArguments& arguments, const CommonOptions& common) {
  if (common.out.empty()) throw UsageError("syntax suites needs --out, the folder that the suites are written to");
  MinimalSuiteOptions options;
  options.seed = common.seed;
  options.items = static_cast<std::size_t>(arguments.items);
  std::vector<MinimalSuite> suites;
  for (const std::string& name : arguments.names.empty() ? minimal_suite_names() : arguments.names)
    suites.push_back(minimal_suite(name, options));
  const auto path = [&](const MinimalSuite& one, const char* ending) {
    return common.out + "/" + one.suite.name + ending;
  };
  if (!common.force)
    for (const MinimalSuite& one : suites)
      for (const char* ending : {".json", ".conllu"})
        if (std::filesystem::exists(path(one, ending)))
          throw Error(str("'", path(one, ending), "' exists; replace it with --force"));
  make_directories(common.out);
  Json list = Json::array();
  for (const MinimalSuite& one : suites) {
    write_file_atomic(path(one, ".json"), json_text(suite_to_json(one.suite), 1) + "\n");
    write_file_atomic(path(one, ".conllu"), syntax::conllu_text(syntax::suite_sentences(one.suite)));
    list.push_back({{"suite", one.suite.name},
                    {"circuit", circuit_of(one.suite)},
                    {"items", one.suite.items.size()},
                    {"from", construction_name(one.source)},
                    {"grammatical", one.grammatical}});
  }
  if (common.json)
    std::cout << json_text(list, 1) << "\n";
  else
    std::cout << suites.size() << " suites of " << arguments.items << " items with their trees in " << common.out
              << "\n";
  return 0;
}

}  // namespace

void add_syntax_suites(Command& syntax, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<SuitesArguments>();
  Command* command =
      syntax.add_subcommand("suites", "write the minimal-pair suites of the generated corpus, with their gold trees");
  command->footer("Example: torsor syntax suites --items 40 --seed 0 --out my-suites");
  command->add_option("--items", arguments->items, "items of each suite")
      ->check(whole_number(1, 1000))
      ->capture_default_str();
  command->add_option("--names", arguments->names, "some of the suites, separated by commas; left out: all")
      ->delimiter(',');
  command->callback(
      [&common, &chosen, arguments] { chosen = [&common, arguments] { return run_suites(*arguments, common); }; });
}

}  // namespace torsor
