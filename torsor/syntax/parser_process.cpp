#include "torsor/syntax/parser_process.h"

#include <algorithm>
#include <set>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"

namespace torsor::syntax {
namespace {

constexpr int kHungAfter = 3;  // requests given up in a row

/// ChildProcess::wait, looking now and then whether the user wants to stop. Throws Interrupted.
ChildProcess::Outcome await_line(ChildProcess& child, const ProcessOptions& options, double seconds,
                                 std::string& line) {
  constexpr double kLook = 0.1;
  for (const double begun = steady_seconds();;) {
    if (options.stop && options.stop()) throw Interrupted("stopped while a parser was asked");
    const double left = seconds - (steady_seconds() - begun);
    const ChildProcess::Outcome outcome = child.wait(options.stop ? std::min(left, kLook) : left, line);
    if (outcome != ChildProcess::Outcome::timeout || left <= kLook || !options.stop) return outcome;
  }
}

/// A child that has said hello.
std::unique_ptr<ChildProcess> started(const ProcessOptions& options, Hello& hello) {
  auto child = std::make_unique<ChildProcess>(options.arguments, options.log, options.line_limit);
  const std::string name = quote(options.arguments.front());
  std::string line;
  switch (await_line(*child, options, options.hello_seconds, line)) {
    case ChildProcess::Outcome::line:
      break;
    case ChildProcess::Outcome::timeout:
      throw Error(str("parser ", name, " said no hello within ", options.hello_seconds, " s"));
    case ChildProcess::Outcome::ended:
      throw Error(str("parser ", name, " ", child->fate(), " before its hello",
                      options.log.empty() ? "" : str("; see ", options.log)));
    case ChildProcess::Outcome::too_long:
      throw Error(str("parser ", name, " began with a line of more than ", options.line_limit, " bytes"));
  }
  try {
    hello = read_hello(line);
  } catch (const Error& error) {
    throw Error(str("parser ", name, " said no proper hello: ", error.what()));
  }
  return child;
}

/// Word by word, with a child of its own.
class ProcessWordParser final : public WordParser {
 public:
  explicit ProcessWordParser(ProcessOptions options) : options_(std::move(options)) {
    Hello hello;
    child_ = started(options_, hello);
    if (!hello.info.prefix_safe) throw Error(str("parser ", quote(hello.info.name), " is not safe for prefixes"));
    child_->send(reset_request());
  }

  void reset() override {
    history_.clear();
    ends_.clear();
    in_sentence_ = 0;
    child_->send(reset_request());
  }

  // The protocol has no word for it: a reset has the same effect on what follows.
  void end_sentence() override {
    if (in_sentence_ == 0) return;
    ends_.insert(history_.size());
    in_sentence_ = 0;
    child_->send(reset_request());
  }

  WordStep read(const std::string& form) override {
    child_->send(word_request(form));
    std::string line;
    const ChildProcess::Outcome outcome = await_line(*child_, options_, options_.reply_seconds, line);
    if (outcome != ChildProcess::Outcome::line)
      throw Error(str("parser ", quote(options_.arguments.front()), " gave no answer to word ", history_.size() + 1,
                      outcome == ChildProcess::Outcome::timeout ? str(" within ", options_.reply_seconds, " s") : "",
                      outcome == ChildProcess::Outcome::ended ? str(": it ", child_->fate()) : ""));
    WordStep step = read_word_reply(line, in_sentence_ + 1);
    history_.push_back(form);
    in_sentence_ = step.sentence_end ? 0 : in_sentence_ + 1;
    return step;
  }

  std::size_t words() const override { return history_.size(); }

  void roll_back(std::size_t words) override {
    if (words > history_.size())
      throw Error(str("roll_back: expected at most ", history_.size(), " words, got ", words));
    const std::vector<std::string> kept(history_.begin(), history_.begin() + static_cast<std::ptrdiff_t>(words));
    const std::set<std::size_t> ends = ends_;
    reset();
    replay(kept, ends);
  }

  std::unique_ptr<WordParser> fork() const override {
    auto copy = std::make_unique<ProcessWordParser>(options_);
    copy->replay(history_, ends_);
    return copy;
  }

 private:
  void replay(const std::vector<std::string>& forms, const std::set<std::size_t>& ends) {
    for (const std::string& form : forms) {
      read(form);
      if (ends.count(history_.size()) > 0) end_sentence();
    }
  }

  ProcessOptions options_;
  std::unique_ptr<ChildProcess> child_;
  std::vector<std::string> history_;
  std::set<std::size_t> ends_;  // words read when the text ended a sentence
  int in_sentence_ = 0;         // words of the present sentence
};

/// The sentence with "# text", as its tokens spell it where the child wrote none.
Sentence with_text(Sentence sentence) {
  if (!sentence.comment("text")) sentence.comments.push_back("# text = " + spelled_text(sentence));
  return sentence;
}

}  // namespace

ProcessParser::ProcessParser(ProcessOptions options) : options_(std::move(options)) {
  if (options_.arguments.empty()) throw UsageError("a parser in a process needs a command");
  if (options_.in_flight < 1) throw UsageError("in_flight must be at least 1, got 0");
  start();
}

ProcessParser::~ProcessParser() = default;

void ProcessParser::start() {
  Hello hello;
  child_ = started(options_, hello);
  hello_ = std::move(hello);
}

void ProcessParser::restart(const std::string& why) {
  child_.reset();
  if (trouble_.restarts >= options_.most_restarts) {
    off_ = str("the parser ", why, " and had been restarted ", trouble_.restarts, " times");
    return;
  }
  ++trouble_.restarts;
  try {
    const ParserInfo before = hello_.info;
    start();
    // Another model behind the same command would mix two parsers in one set of parses.
    if (hello_.info.name != before.name || hello_.info.version != before.version || hello_.info.model != before.model ||
        hello_.info.scheme != before.scheme)
      throw Error("it came back as another parser");
  } catch (const Error& error) {
    child_.reset();
    off_ = str("the parser ", why, ", and its restart failed: ", error.what());
  }
}

void ProcessParser::take(const std::string& line, std::map<std::int64_t, Open>& open, bool& answered,
                         const Accept& accept, const Fail& fail) {
  Reply reply;
  try {
    reply = read_reply(line);
  } catch (const Error&) {
    ++trouble_.bad_lines;
    return;
  }
  const auto found = open.find(reply.id);
  if (found == open.end()) {
    ++trouble_.bad_lines;
    return;
  }
  answered = true;
  const std::size_t index = found->second.index;
  open.erase(found);
  if (!reply.error.empty()) {
    fail(index, str("the parser says: ", quote(reply.error)));
    return;
  }
  try {
    accept(index, reply);
  } catch (const Error& error) {
    ++trouble_.bad_replies;
    fail(index, error.what());
  }
}

void ProcessParser::converse(std::size_t count,
                             const std::function<std::string(std::size_t index, std::int64_t id)>& request,
                             const Accept& accept, const Fail& fail) {
  std::map<std::int64_t, Open> open;
  std::size_t next = 0;
  int silent = 0;  // requests given up since the last reply
  double left = options_.reply_seconds;
  const auto crash = [&](const std::string& why) {
    if (!open.empty()) {
      fail(open.begin()->second.index, str("the parser ", why));
      open.erase(open.begin());
    }
    restart(why);
    silent = 0;
    left = options_.reply_seconds;
    if (child_)
      for (const auto& [id, one] : open) child_->send(one.line);
  };
  while (next < count || !open.empty()) {
    if (!off_.empty()) {
      for (const auto& [id, one] : open) fail(one.index, off_);
      for (open.clear(); next < count; ++next) fail(next, off_);
      return;
    }
    while (next < count && open.size() < options_.in_flight) {
      const std::int64_t id = next_id_++;
      std::string line = request(next, id);
      if (line.size() > options_.line_limit) {
        fail(next++, str("the request has ", line.size(), " bytes, at most ", options_.line_limit, " go in a line"));
        continue;
      }
      if (open.empty()) left = options_.reply_seconds;
      child_->send(line);
      open.emplace(id, Open{next++, std::move(line)});
    }
    if (open.empty()) continue;
    std::string line;
    // Lines that answer nothing do not buy time: what remains is counted over all of them.
    const double begun = steady_seconds();
    const ChildProcess::Outcome outcome = await_line(*child_, options_, left, line);
    left -= steady_seconds() - begun;
    bool answered = false;
    switch (outcome) {
      case ChildProcess::Outcome::line:
        take(line, open, answered, accept, fail);
        if (answered) {
          silent = 0;
          left = options_.reply_seconds;
        }
        break;
      case ChildProcess::Outcome::timeout:
        ++trouble_.timeouts;
        if (++silent >= kHungAfter) {
          crash("hangs");
          break;
        }
        fail(open.begin()->second.index, str("no reply within ", options_.reply_seconds, " s"));
        open.erase(open.begin());
        left = options_.reply_seconds;
        break;
      case ChildProcess::Outcome::ended:
        crash(child_->fate());
        break;
      case ChildProcess::Outcome::too_long:
        crash(str("wrote a line of more than ", options_.line_limit, " bytes"));
        break;
    }
  }
}

std::vector<ParsedSentence> ProcessParser::parse_tokens(const std::vector<std::vector<std::string>>& sentences) {
  std::vector<ParsedSentence> results(sentences.size());
  converse(
      sentences.size(),
      [&](std::size_t index, std::int64_t id) { return tokens_request(id, options_.language, sentences[index]); },
      [&](std::size_t index, const Reply& reply) {
        results[index].sentence = with_text(sentence_of(reply, sentences[index]));
      },
      [&](std::size_t index, const std::string& reason) {
        results[index] = {bare_sentence(sentences[index]), false, reason};
      });
  return results;
}

std::vector<ParsedSentence> ProcessParser::parse_text(const std::string& text) {
  const std::vector<std::string> pieces = paragraphs(text);
  std::vector<std::vector<ParsedSentence>> parts(pieces.size());
  converse(
      pieces.size(),
      [&](std::size_t index, std::int64_t id) { return text_request(id, options_.language, pieces[index]); },
      [&](std::size_t index, const Reply& reply) {
        for (Sentence& sentence : sentences_of(reply, pieces[index]))
          parts[index].push_back({with_text(std::move(sentence))});
      },
      [&](std::size_t index, const std::string& reason) { parts[index] = {unparsed(pieces[index], reason)}; });
  std::vector<ParsedSentence> results;
  for (auto& part : parts)
    for (ParsedSentence& sentence : part) results.push_back(std::move(sentence));
  return results;
}

std::unique_ptr<WordParser> ProcessParser::word_parser() {
  if (!hello_.info.prefix_safe) return nullptr;
  return std::make_unique<ProcessWordParser>(options_);
}

}  // namespace torsor::syntax
