// Parsers in child processes, against a child that misbehaves in every way.
#include "torsor/syntax/parser_process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "tests/base/test_folder.h"
#include "torsor/base/error.h"

namespace torsor::syntax {
namespace {

using testing::contains;
using testing::message_of;
using testing::TestFolder;
using Forms = std::vector<std::vector<std::string>>;

ProcessOptions fake(std::vector<std::string> faults) {
  ProcessOptions options;
  options.arguments = {TORSOR_FAKE_PARSER};
  options.arguments.insert(options.arguments.end(), faults.begin(), faults.end());
  options.reply_seconds = 10;  // only tests of time-outs may wait, and set less
  options.hello_seconds = 10;
  return options;
}

const Forms kThree = {{"He", "left", "."}, {"She", "stayed", "."}, {"Why", "?"}};

/// Indices of the sentences that were not parsed.
std::vector<std::size_t> failures(const std::vector<ParsedSentence>& results) {
  std::vector<std::size_t> failed;
  for (std::size_t i = 0; i < results.size(); ++i)
    if (!results[i].parsed) failed.push_back(i);
  return failed;
}

void expect_chain(const ParsedSentence& result, const std::vector<std::string>& forms) {
  ASSERT_TRUE(result.parsed) << result.reason;
  ASSERT_EQ(result.sentence.size(), forms.size());
  for (std::size_t i = 0; i < forms.size(); ++i) {
    EXPECT_EQ(result.sentence.words[i].form, forms[i]);
    EXPECT_EQ(result.sentence.words[i].head, static_cast<int>(i));
  }
}

TEST(ParserProcess, ParsesTokensAndText) {
  ProcessParser parser(fake({}));
  EXPECT_EQ(parser.info().name, "fake");
  EXPECT_EQ(parser.info().backend, "process");
  EXPECT_FALSE(parser.info().prefix_safe);
  EXPECT_EQ(parser.word_parser(), nullptr);
  const auto results = parser.parse_tokens(kThree);
  ASSERT_EQ(results.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) expect_chain(results[i], kThree[i]);
  const auto text = parser.parse_text("He left . She\nstayed .\n\n  \nWhy ?\n");
  ASSERT_EQ(text.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) expect_chain(text[i], kThree[i]);
  EXPECT_EQ(results[1].sentence.comment("text"), "She stayed .");  // the child says none
  EXPECT_EQ(text[1].sentence.comment("text"), "She stayed .");
  EXPECT_TRUE(parser.parse_text(" \n").empty());
  EXPECT_TRUE(parser.parse_tokens({}).empty());
}

TEST(ParserProcess, RepliesOutOfOrderAndJunkBetweenThem) {
  Forms many;
  for (int i = 0; i < 40; ++i) many.push_back({str("w", i), "."});
  ProcessParser parser(fake({"reverse:4", "junk", "two-answers"}));
  const auto results = parser.parse_tokens(many);
  for (std::size_t i = 0; i < many.size(); ++i) expect_chain(results[i], many[i]);
  // Three lines of junk before each reply and a second reply behind each, the last of which need not be read.
  EXPECT_GE(parser.trouble().bad_lines, 40 * 3 + 30);
  EXPECT_EQ(parser.trouble().restarts, 0);
}

TEST(ParserProcess, WrongAnswersLeaveTheirSentenceUnparsed) {
  struct Case {
    std::string fault, reason;
  };
  for (const Case& one : {Case{"error-on:stayed", "the parser says: 'no\\nparse'"},
                          Case{"other-text-on:stayed", "expected token 1 to be 'She', found 'Shex'"},
                          Case{"bad-conllu-on:stayed", "columns"}}) {
    ProcessParser parser(fake({one.fault}));
    const auto results = parser.parse_tokens(kThree);
    EXPECT_EQ(failures(results), std::vector<std::size_t>{1}) << one.fault;
    EXPECT_TRUE(contains(results[1].reason, one.reason)) << results[1].reason;
    EXPECT_EQ(results[1].sentence.words.size(), 3u);
    expect_chain(results[2], kThree[2]);
  }
  ProcessParser parser(fake({"other-text-on:stayed"}));
  const auto results = parser.parse_text("He left .\n\nShe stayed .\n");
  EXPECT_EQ(failures(results), std::vector<std::size_t>{1});
  EXPECT_TRUE(contains(results[1].reason, "found 'x")) << results[1].reason;
  EXPECT_EQ(results[1].sentence.comment("text"), "She stayed .");
}

TEST(ParserProcess, SilenceGivesUpTheOldestRequestAlone) {
  ProcessOptions options = fake({"silent-on:stayed"});
  options.reply_seconds = 0.3;
  ProcessParser parser(options);
  const auto results = parser.parse_tokens(kThree);
  EXPECT_EQ(failures(results), std::vector<std::size_t>{1});
  EXPECT_TRUE(contains(results[1].reason, "no reply within 0.3 s")) << results[1].reason;
  EXPECT_EQ(parser.trouble().timeouts, 1);
  EXPECT_EQ(parser.trouble().restarts, 0);
}

TEST(ParserProcess, JunkBuysNoTime) {
  ProcessOptions options = fake({"flood-on:stayed"});
  options.reply_seconds = 0.3;
  options.most_restarts = 0;
  ProcessParser parser(options);
  const double begun = steady_seconds();
  EXPECT_EQ(failures(parser.parse_tokens({{"stayed"}})), std::vector<std::size_t>{0});
  EXPECT_LT(steady_seconds() - begun, 8);  // 0.3 s and what a loaded machine takes
  EXPECT_GT(parser.trouble().bad_lines, 0);
}

TEST(ParserProcess, CrashesCostOneSentenceEach) {
  for (const std::string fault : {"die-on:stayed", "partial-on:stayed", "long-on:stayed"}) {
    ProcessOptions options = fake({fault});
    options.line_limit = 100000;
    ProcessParser parser(options);
    const auto results = parser.parse_tokens(kThree);
    EXPECT_EQ(failures(results), std::vector<std::size_t>{1}) << fault;
    EXPECT_EQ(parser.trouble().restarts, 1) << fault;
    expect_chain(results[2], kThree[2]);
  }
}

TEST(ParserProcess, AfterThreeRestartsTheParserIsOff) {
  Forms many;
  for (int i = 0; i < 7; ++i) many.push_back({str("w", i), i % 2 == 1 ? "stayed" : "left"});
  many.push_back({"last", "stayed"});
  many.push_back({"never", "asked"});
  ProcessParser parser(fake({"die-on:stayed"}));
  const auto results = parser.parse_tokens(many);
  EXPECT_EQ(failures(results), (std::vector<std::size_t>{1, 3, 5, 7, 8}));
  EXPECT_EQ(parser.trouble().restarts, 3);
  EXPECT_TRUE(contains(results[7].reason, "ended with 7")) << results[7].reason;
  EXPECT_TRUE(contains(results[8].reason, "had been restarted 3 times")) << results[8].reason;
  EXPECT_EQ(failures(parser.parse_tokens(kThree)).size(), 3u);
}

TEST(ParserProcess, AChildThatHangsIsRestarted) {
  ProcessOptions options = fake({"hang-after:1"});
  options.reply_seconds = 0.2;
  options.most_restarts = 1;
  ProcessParser parser(options);
  const auto results = parser.parse_tokens({{"a"}, {"b"}, {"c"}, {"d"}, {"e"}, {"f"}});
  // The first child answers a and hangs: b, c and d are given up. The second answers e and hangs: f is given up.
  EXPECT_EQ(failures(results), (std::vector<std::size_t>{1, 2, 3, 5}));
  EXPECT_EQ(parser.trouble().restarts, 1);
}

TEST(ParserProcess, AnotherParserAfterARestartIsRefused) {
  const TestFolder folder;
  ProcessParser parser(fake({"die-on:stayed", "other-hello-after:" + (folder / "mark")}));
  const auto results = parser.parse_tokens({{"stayed"}, {"left"}});
  EXPECT_EQ(failures(results), (std::vector<std::size_t>{0, 1}));
  EXPECT_TRUE(contains(results[1].reason, "came back as another parser")) << results[1].reason;
}

TEST(ParserProcess, BadStartsAreErrors) {
  ProcessOptions silent = fake({"no-hello"});
  silent.hello_seconds = 0.2;
  EXPECT_TRUE(contains(message_of<Error>([&] { ProcessParser{silent}; }), "said no hello within 0.2 s"));
  EXPECT_TRUE(contains(message_of<Error>([&] { ProcessParser{fake({"bad-hello"})}; }), "expected version 1"));
  ProcessOptions missing;
  missing.arguments = {"/nonexistent/parser"};
  EXPECT_EQ(message_of<Error>([&] { ProcessParser{missing}; }),
            "cannot start '/nonexistent/parser': No such file or directory");
  ProcessOptions ends;
  ends.arguments = {"/bin/sh", "-c", "exit 3"};
  EXPECT_TRUE(contains(message_of<Error>([&] { ProcessParser{ends}; }), "ended with 3 before its hello"));
  EXPECT_THROW(ProcessParser{ProcessOptions{}}, UsageError);
}

TEST(ParserProcess, StandardErrorGoesToTheLog) {
  const TestFolder folder;
  ProcessOptions options = fake({});
  options.log = folder / "log";
  { ProcessParser parser(options); }
  EXPECT_EQ(testing::slurp(folder / "log"), "fake parser started\n");
}

TEST(ParserProcess, WordsAreReadOneByOne) {
  ProcessParser parser(fake({"prefix"}));
  const auto reader = parser.word_parser();
  ASSERT_NE(reader, nullptr);
  EXPECT_EQ(reader->read("He"), (WordStep{{}, false}));
  EXPECT_EQ(reader->read("left"), (WordStep{{{2, 1, "dep"}}, false}));
  const auto copy = reader->fork();
  EXPECT_EQ(reader->read("."), (WordStep{{{3, 2, "dep"}}, true}));
  EXPECT_EQ(reader->read("So"), (WordStep{{}, false}));
  EXPECT_EQ(reader->words(), 4u);
  EXPECT_EQ(copy->words(), 2u);
  EXPECT_EQ(copy->read("early"), (WordStep{{{3, 2, "dep"}}, false}));
  reader->roll_back(1);
  EXPECT_EQ(reader->read("came"), (WordStep{{{2, 1, "dep"}}, false}));
  EXPECT_THROW(reader->roll_back(9), Error);
  reader->reset();
  EXPECT_EQ(reader->words(), 0u);
  EXPECT_EQ(reader->read("He"), (WordStep{{}, false}));
}

TEST(ParserProcess, AnArcThatComesTooLateIsRefused) {
  ProcessParser parser(fake({"prefix", "late-arc"}));
  const auto reader = parser.word_parser();
  reader->read("a");
  reader->read("b");
  EXPECT_TRUE(contains(message_of<Error>([&] { reader->read("c"); }), "comes too late"));
}

TEST(ChildProcess, EndsWithEverythingItStarted) {
  pid_t id = 0;
  {
    ChildProcess child({"/bin/sh", "-c", "sleep 1000 & echo $!; wait"}, "", 1000);
    std::string line;
    ASSERT_EQ(child.wait(10, line), ChildProcess::Outcome::line);
    id = std::stoi(line);
    EXPECT_EQ(::kill(id, 0), 0);
  }
  // The orphan dies of the signal and is reaped by init, sooner or later; it must come to be no longer running.
  std::string status;
  for (int turn = 0; turn < 500; ++turn) {
    status = testing::slurp(str("/proc/", id, "/stat"));
    if (status.empty() || contains(status, ") Z ")) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(status.empty() || contains(status, ") Z ")) << status;
}

TEST(ParserProcess, AStopIsHeardWhileTheChildIsSilent) {
  int asked = 0;
  ProcessOptions options = fake({"hang-after:1"});
  options.reply_seconds = 600;
  options.stop = [&] { return ++asked > 4; };
  ProcessParser parser(options);
  asked = 0;
  EXPECT_THROW(parser.parse_tokens({{"One"}, {"Two"}, {"Three"}}), Interrupted);
  EXPECT_EQ(asked, 5);
  options.arguments = fake({"no-hello"}).arguments;
  options.hello_seconds = 600;
  asked = 0;
  EXPECT_THROW(ProcessParser{options}, Interrupted);
}

TEST(ChildProcess, LongRequestsDoNotBlock) {
  // The child echoes 8 MiB while we still write: neither side may wait for the other for ever.
  ChildProcess child({"/bin/cat"}, "", std::size_t{16} << 20);
  const std::string long_line(std::size_t{8} << 20, 'x');
  child.send(long_line);
  std::string line;
  ASSERT_EQ(child.wait(30, line), ChildProcess::Outcome::line);
  EXPECT_EQ(line, long_line);
  EXPECT_EQ(child.wait(0.05, line), ChildProcess::Outcome::timeout);
  EXPECT_EQ(child.fate(), "is running");
}

TEST(ChildProcess, CommandsAreSplitWithoutAShell) {
  EXPECT_EQ(split_command("python3 'my parser.py'  --a \"b c\" d\\ e '' $HOME"),
            (std::vector<std::string>{"python3", "my parser.py", "--a", "b c", "d e", "", "$HOME"}));
  EXPECT_EQ(split_command("a'b'\"c\""), std::vector<std::string>{"abc"});
  for (const char* bad : {"", "  ", "a 'b", "a \"b", "a\\", "''"}) EXPECT_THROW(split_command(bad), UsageError) << bad;
}

}  // namespace
}  // namespace torsor::syntax
