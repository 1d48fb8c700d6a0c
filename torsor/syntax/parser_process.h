// A parser in a child process, spoken to in JSON lines (process_protocol.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "torsor/syntax/child_process.h"
#include "torsor/syntax/parser.h"
#include "torsor/syntax/process_protocol.h"

namespace torsor::syntax {

struct ProcessOptions {
  std::vector<std::string> arguments;  ///< program and arguments; no shell is asked
  std::string language = "en";
  std::string log;             ///< the child's standard error is appended to it; empty = thrown away
  double hello_seconds = 300;  ///< for the hello: models take their time to load
  double reply_seconds = 30;   ///< of silence, after which the oldest request is given up
  int most_restarts = 3;       ///< after a crash; then everything is unparsed
  std::size_t in_flight = 8;   ///< requests sent before their replies are in
  std::size_t line_limit = kLongestLine;
  std::function<bool()> stop = {};  ///< asked while the child is waited for; true = Interrupted is thrown
};

/// What went wrong so far.
struct ProcessTrouble {
  std::int64_t restarts = 0;
  std::int64_t timeouts = 0;
  std::int64_t bad_lines = 0;    ///< lines that were no reply, or to no open request: passed over
  std::int64_t bad_replies = 0;  ///< replies whose content did not fit the request
};

/// - A request is given up when the child has answered no open request for `reply_seconds`; its late reply is passed
///   over. After three given up in a row the child counts as hung, which is a crash.
/// - A crash (the child ends, hangs, or writes a line beyond the limit) makes the oldest open request unparsed, since
/// it
///   is the likely cause, and a fresh child gets the others again; after `most_restarts` of them the parser is off and
///   all that follows is unparsed.
/// - Replies may come in any order.
class ProcessParser final : public Parser {
 public:
  /// Starts the child and reads its hello. Throws Error when it cannot be started or says none in time.
  explicit ProcessParser(ProcessOptions options);
  ~ProcessParser() override;

  const ParserInfo& info() const override { return hello_.info; }
  const ProcessTrouble& trouble() const { return trouble_; }
  std::vector<ParsedSentence> parse_tokens(const std::vector<std::vector<std::string>>& sentences) override;
  /// A request for each stretch between blank lines.
  std::vector<ParsedSentence> parse_text(const std::string& text) override;
  /// Speaks to a child of its own.
  std::unique_ptr<WordParser> word_parser() override;

 private:
  struct Open {
    std::size_t index;
    std::string line;
  };
  using Accept = std::function<void(std::size_t index, const Reply& reply)>;
  using Fail = std::function<void(std::size_t index, const std::string& reason)>;

  void start();
  void restart(const std::string& why);
  /// Brings `count` requests to an end: each is either accepted (which may throw Error, making it failed) or failed.
  void converse(std::size_t count, const std::function<std::string(std::size_t index, std::int64_t id)>& request,
                const Accept& accept, const Fail& fail);
  void take(const std::string& line, std::map<std::int64_t, Open>& open, bool& answered, const Accept& accept,
            const Fail& fail);

  ProcessOptions options_;
  Hello hello_;
  ProcessTrouble trouble_;
  std::unique_ptr<ChildProcess> child_;
  std::string off_;  ///< why the parser is off; empty while it is on
  std::int64_t next_id_ = 1;
};

}  // namespace torsor::syntax
