// Links lead somewhere, and the commands that the pages show exist and, where they are quick, run.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

#include "tests/docs/pages.h"
#include "torsor/base/error.h"

namespace torsor {
namespace {

struct Ran {
  int code = -1;
  std::string output;  ///< both streams
};

Ran run(const std::string& command) {
  const auto file = std::filesystem::temp_directory_path() / str("torsor-docs-", ::getpid());
  const int status = std::system(str(command, " > '", file.string(), "' 2>&1").c_str());
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  std::filesystem::remove(file);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text.str()};
}

/// A shown command from its first word `torsor` on, or nothing.
std::string arguments_of(const std::string& line) {
  for (const std::string& start : {std::string("torsor "), std::string("build/release/bin/torsor ")})
    if (line.rfind(start, 0) == 0) return line.substr(start.size());
  return "";
}

std::string program(const std::string& arguments) { return str("'", TORSOR_PROGRAM, "' ", arguments); }

/// The command of a command line: its first word, or two where the first is a group of commands.
std::string command_of(const std::string& arguments) {
  const std::size_t space = arguments.find(' ');
  const std::string first = arguments.substr(0, space);
  if ((first != "syntax" && first != "tokenizer") || space == std::string::npos) return first;
  return arguments.substr(0, arguments.find(' ', space + 1));
}

/// --words of a command line, outside quotes.
std::set<std::string> options_of(const std::string& arguments) {
  std::set<std::string> options;
  bool inside = false;
  std::string word;
  for (const char c : arguments + " ") {
    if (c == '\'') inside = !inside;
    if (c != ' ' || inside) {
      word += c;
      continue;
    }
    if (word.rfind("--", 0) == 0) options.insert(word);
    word.clear();
  }
  return options;
}

/// Commands that take no longer than starting the program.
const std::set<std::string> kQuick = {"encodings", "values", "laws", "--help", "--version"};

TEST(DocsCommands, ShownCommandsExistAndQuickOnesRun) {
  const Ran help = run(program("--help"));
  ASSERT_EQ(help.code, 0) << help.output;
  std::size_t shown = 0;
  for (const DocsPage& page : all_pages())
    for (const std::string& line : code_lines(page)) {
      const std::string arguments = arguments_of(line);
      if (arguments.empty()) continue;
      ++shown;
      const std::string command = command_of(arguments);
      if (kQuick.count(command) || arguments.find("--help") != std::string::npos) {
        const Ran ran = run(program(arguments));
        EXPECT_EQ(ran.code, 0) << page.path << ": " << line << "\n" << ran.output;
        EXPECT_FALSE(ran.output.empty()) << page.path << ": " << line;
        continue;
      }
      const Ran own = run(program(command + " --help"));
      ASSERT_EQ(own.code, 0) << page.path << ": " << line << "\n" << own.output;
      for (const std::string& option : options_of(arguments))
        EXPECT_NE((own.output + help.output).find(option), std::string::npos)
            << page.path << ": " << line << " uses " << option;
    }
  EXPECT_GE(shown, 10u);
}

TEST(DocsCommands, RefusalsEndAsShown) {
  const auto rows = table_rows(read_page("docs/getting-started.md"), "| command | exit | message |");
  EXPECT_GE(rows.size(), 3u);
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 3u);
    const std::string command = quoted(row[0]).at(0);
    const Ran ran = run(program(arguments_of(command)));
    EXPECT_EQ(std::to_string(ran.code), row[1]) << command;
    EXPECT_EQ(ran.output, row[2] + "\n") << command;
  }
}

TEST(DocsCommands, LinksLeadToFiles) {
  std::size_t links = 0;
  for (const DocsPage& page : all_pages()) {
    bool fenced = false;
    for (const std::string& line : page.lines) {
      if (line.rfind("```", 0) == 0) fenced = !fenced;
      if (fenced || line.rfind("    ", 0) == 0) continue;
      for (std::size_t at = line.find("]("); at != std::string::npos; at = line.find("](", at + 2)) {
        std::string target = line.substr(at + 2, line.find(')', at) - at - 2);
        target = target.substr(0, target.find('#'));
        if (target.empty() || target.find("://") != std::string::npos) continue;
        ++links;
        const auto file = docs_root() / std::filesystem::path(page.path).parent_path() / target;
        EXPECT_TRUE(std::filesystem::exists(file)) << page.path << " links to " << target;
      }
    }
  }
  EXPECT_GE(links, 20u);
}

}  // namespace
}  // namespace torsor
