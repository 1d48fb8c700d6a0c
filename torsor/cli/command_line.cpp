#include "torsor/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "torsor/base/error.h"

namespace torsor {

// ---- checks ---------------------------------------------------------------------------------------------------------

Check whole_number(std::int64_t least, std::int64_t most) {
  return {"INT",
          [least, most](const std::string& text) -> std::string {
            std::int64_t value = 0;
            const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (failed == std::errc() && end == text.data() + text.size() && value >= least && value <= most) return {};
            const bool large = failed == std::errc::result_out_of_range || value > most;
            const std::string range = large || most < (std::int64_t{1} << 40) ? str("from ", least, " to ", most)
                                                                              : str("of at least ", least);
            return str("expected a whole number ", range, ", found ", text);
          },
          {}};
}

Check real_number(bool zero_too) {
  return {"FLOAT",
          [zero_too](const std::string& text) -> std::string {
            char* end = nullptr;
            const double value = std::strtod(text.c_str(), &end);
            if (!text.empty() && *end == '\0' && std::isfinite(value) && (zero_too ? value >= 0 : value > 0)) return {};
            return str("expected a number ", zero_too ? "of at least" : "above", " 0, found ", text);
          },
          {}};
}

Check one_of(std::vector<std::string> words) { return {"", {}, std::move(words)}; }

// ---- options --------------------------------------------------------------------------------------------------------

CommandOption* CommandOption::required() {
  option_->required();
  return this;
}

CommandOption* CommandOption::check(const Check& check) {
  if (!check.words.empty()) {
    option_->check(CLI::IsMember(check.words));
    return this;
  }
  CLI::Validator validator;
  validator.name(check.name).operation([fault = check.fault](std::string& text) { return fault(text); });
  option_->check(std::move(validator));
  return this;
}

CommandOption* CommandOption::delimiter(char separator) {
  option_->delimiter(separator);
  return this;
}

CommandOption* CommandOption::take_all() {
  option_->take_all();
  return this;
}

CommandOption* CommandOption::capture_default_str() {
  option_->capture_default_str();
  return this;
}

CommandOption* CommandOption::each(const std::function<void(const std::string&)>& run) {
  option_->each(run);
  return this;
}

std::string CommandOption::name() const { return option_->get_name(); }
std::size_t CommandOption::count() const { return option_->count(); }

// ---- commands -------------------------------------------------------------------------------------------------------

Command::Command(CLI::App* app) : app_(app) {}
Command::~Command() = default;

Command* Command::add_subcommand(const std::string& name, const std::string& description) {
  subcommands_.push_back(std::make_unique<Command>(app_->add_subcommand(name, description)));
  return subcommands_.back().get();
}

template <class Value>
CommandOption* Command::add_option(const std::string& name, Value& value, const std::string& description) {
  options_.push_back(std::make_unique<CommandOption>(app_->add_option(name, value, description)));
  return options_.back().get();
}

template CommandOption* Command::add_option(const std::string&, std::string&, const std::string&);
template CommandOption* Command::add_option(const std::string&, int&, const std::string&);
template CommandOption* Command::add_option(const std::string&, std::int64_t&, const std::string&);
template CommandOption* Command::add_option(const std::string&, std::uint64_t&, const std::string&);
template CommandOption* Command::add_option(const std::string&, double&, const std::string&);
template CommandOption* Command::add_option(const std::string&, float&, const std::string&);
template CommandOption* Command::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template CommandOption* Command::add_option(const std::string&, std::vector<std::int64_t>&, const std::string&);
template CommandOption* Command::add_option(const std::string&, std::vector<std::uint64_t>&, const std::string&);
template CommandOption* Command::add_option(const std::string&, std::vector<double>&, const std::string&);

CommandOption* Command::add_flag(const std::string& name, bool& value, const std::string& description) {
  options_.push_back(std::make_unique<CommandOption>(app_->add_flag(name, value, description)));
  return options_.back().get();
}

void Command::footer(const std::string& text) { app_->footer(text); }
std::string Command::footer() const { return app_->get_footer(); }
void Command::callback(const std::function<void()>& run) { app_->callback(run); }
void Command::require_subcommand() { app_->require_subcommand(1); }

std::vector<const CommandOption*> Command::options() const {
  std::vector<const CommandOption*> all;
  for (const auto& option : options_) all.push_back(option.get());
  return all;
}

std::size_t Command::count(const std::string& name) const { return app_->count(name); }

std::vector<Command*> Command::subcommands() const {
  std::vector<Command*> all;
  for (const auto& command : subcommands_) all.push_back(command.get());
  return all;
}

// ---- the whole line -------------------------------------------------------------------------------------------------

namespace {

/// What was wrong with the command line. The parser asks for a sub-command where one was misspelt.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  const auto any = [](const CLI::App*) { return true; };
  const CLI::App* group = &app;
  while (!group->get_subcommands().empty()) group = group->get_subcommands().front();
  const std::vector<std::string> rest = app.remaining(true);
  const std::vector<const CLI::App*> commands = group->get_subcommands(any);
  // What follows an unknown option is most likely its value.
  const bool strange = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (rest.empty() || (commands.empty() && !strange)) return std::string(error.what()) + "; see torsor --help";
  const auto option =
      std::find_if(rest.begin(), rest.end(), [](const std::string& one) { return one.starts_with('-'); });
  std::string path = group->get_name();
  for (const CLI::App* above = group->get_parent(); above != nullptr; above = above->get_parent())
    path = above->get_name() + " " + path;
  const std::string of = group == &app ? "" : " of " + path;
  if (option != rest.end() && (commands.empty() || option == rest.begin()))
    return str("unknown option '", option->substr(0, option->find('=')), "'", of, "; see ", path, " --help");
  if (commands.empty()) return str("unexpected argument '", rest.front(), "'", of, "; see ", path, " --help");
  std::string names;
  for (const CLI::App* command : commands) names += (names.empty() ? "" : ", ") + command->get_name();
  return str("unknown command '", rest.front(), "'", of, "; there are ", names);
}

}  // namespace

CommandLine::CommandLine(const std::string& name, const std::string& description, const std::string& version)
    : CommandLine(std::make_unique<CLI::App>(description, name)) {
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
  app_->fallthrough();
}

CommandLine::CommandLine(std::unique_ptr<CLI::App> app) : Command(app.get()), app_(std::move(app)) {}
CommandLine::~CommandLine() = default;

bool CommandLine::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& asked) {
    app_->exit(asked);  // --help and --version print and end well
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(usage_message(*app_, error));
  }
  return true;
}

}  // namespace torsor
