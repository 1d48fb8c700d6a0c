// Sub-commands and their options. CLI11 reads them; only command_line.cpp sees its headers, which would cost every
// command as much compilation as all the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace torsor {

/// What the text of an option's value must be.
struct Check {
  std::string name;                                      ///< stands in the help
  std::function<std::string(const std::string&)> fault;  ///< what is wrong with a text; empty = nothing
  std::vector<std::string> words;                        ///< instead: it is one of these
};

/// A whole number from `least` to `most`.
Check whole_number(std::int64_t least, std::int64_t most = std::int64_t{1} << 40);
/// A finite number above 0, or 0 too.
Check real_number(bool zero_too);
Check one_of(std::vector<std::string> words);

/// An option, or a positional argument, of a command, which owns it.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option* option) : option_(option) {}

  CommandOption* required();
  /// Of several checks all must hold, for every value.
  CommandOption* check(const Check& check);
  /// What separates the values of a list.
  CommandOption* delimiter(char separator);
  /// The option may come several times, and all its values count.
  CommandOption* take_all();
  /// The help shows the value that the variable has now.
  CommandOption* capture_default_str();
  /// Runs for every value that was given.
  CommandOption* each(const std::function<void(const std::string&)>& run);

  /// "--name", or the name of a positional argument.
  std::string name() const;
  /// How many values were given.
  std::size_t count() const;

 private:
  CLI::Option* option_;
};

/// A command with its options and sub-commands.
class Command {
 public:
  explicit Command(CLI::App* app);
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  virtual ~Command();

  Command* add_subcommand(const std::string& name, const std::string& description);
  /// `value` keeps what it holds where the option is left out. For std::string, int, std::int64_t, std::uint64_t,
  /// double, float, and vectors of strings, integers and numbers.
  template <class Value>
  CommandOption* add_option(const std::string& name, Value& value, const std::string& description);
  CommandOption* add_flag(const std::string& name, bool& value, const std::string& description);
  /// The lines under the help.
  void footer(const std::string& text);
  std::string footer() const;
  /// Runs when the command was read.
  void callback(const std::function<void()>& run);
  void require_subcommand();

  std::vector<const CommandOption*> options() const;
  /// How many values were given to the option of this name.
  std::size_t count(const std::string& name) const;
  std::vector<Command*> subcommands() const;

 private:
  CLI::App* app_;
  std::vector<std::unique_ptr<CommandOption>> options_;
  std::vector<std::unique_ptr<Command>> subcommands_;
};

/// The whole command line.
class CommandLine : public Command {
 public:
  CommandLine(const std::string& name, const std::string& description, const std::string& version);
  ~CommandLine() override;

  /// Reads the arguments, sets the variables and runs the callbacks. False where --help or --version was asked, and
  /// printed. Throws UsageError saying what is wrong.
  bool parse(int argc, char** argv);

 private:
  explicit CommandLine(std::unique_ptr<CLI::App> app);

  std::unique_ptr<CLI::App> app_;
};

}  // namespace torsor
