// torsor syntax train, parse, gate, advise: from a small treebank to a gate.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/cli/program.h"

namespace torsor::testing {
namespace {

/// Sentences "the NOUN VERB the NOUN ." as CoNLL-U, `count` of them.
std::string small_treebank(int count) {
  const std::vector<std::string> nouns = {"dog", "cat", "boy", "girl", "bird"};
  const std::vector<std::string> verbs = {"sees", "likes", "hears"};
  std::string text;
  for (int i = 0; i < count; ++i) {
    const std::string one = nouns[i % 5], other = nouns[(i / 5 + 2) % 5], verb = verbs[i % 3];
    text += str("# sent_id = weblog-", i, "\n# text = the ", one, " ", verb, " the ", other, ".\n",
                "1\tthe\tthe\tDET\tDT\t_\t2\tdet\t_\t_\n2\t", one, "\t_\tNOUN\tNN\t_\t3\tnsubj\t_\t_\n3\t", verb,
                "\t_\tVERB\tVBZ\t_\t0\troot\t_\t_\n4\tthe\tthe\tDET\tDT\t_\t5\tdet\t_\t_\n5\t", other,
                "\t_\tNOUN\tNN\t_\t3\tobj\t_\tSpaceAfter=No\n6\t.\t.\tPUNCT\t.\t_\t3\tpunct\t_\t_\n\n");
  }
  return text;
}

class CliSyntaxParsers : public ::testing::Test {
 protected:
  CliSyntaxParsers() {
    train_ = folder_.put("train.conllu", small_treebank(60));
    gold_ = folder_.put("gold.conllu", small_treebank(90));
    text_ = folder_.put("text.txt", "the dog likes the bird. the girl sees the boy.\n");
  }

  std::vector<std::string> train(const std::string& parser, const std::string& out,
                                 const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {
        "syntax",        "train", "--parser",        parser, "--conllu",  train_, "--epochs", "6",
        "--batch-words", "60",    "--learning-rate", "0.01", "--threads", "1",    "--out",    folder_ / out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  const TestFolder folder_;
  std::string train_, gold_, text_;
};

TEST_F(CliSyntaxParsers, FromATreebankToAGate) {
  for (const std::string parser : {"native", "incremental"}) {
    const Ran trained = run(train(parser, parser, {"--dev", gold_}));
    ASSERT_EQ(trained.code, 0) << trained;
    EXPECT_TRUE(contains(trained.out, "UAS 100")) << trained;
    EXPECT_TRUE(contains(trained.err, "pass 6 of 6")) << trained;

    const Ran parsed = run({"syntax", "parse", "--parser", folder_ / parser, text_});
    ASSERT_EQ(parsed.code, 0) << parsed;
    EXPECT_TRUE(contains(parsed.out, "# text = the dog likes the bird.\n1\tthe\t")) << parsed;
    EXPECT_TRUE(contains(parsed.out, "2\tdog\t_\tNOUN\tNN\t_\t3\tnsubj\t")) << parsed;
    EXPECT_TRUE(contains(parsed.err, "2 sentences, 12 words")) << parsed;
    const std::string file = folder_.put("parsed.conllu", parsed.out);
    const Ran again = run({"syntax", "parse", "--parser", "conllu:" + file, text_});
    EXPECT_EQ(again.out, parsed.out) << again;

    const Ran gate =
        run({"syntax", "gate", "--parser", folder_ / parser, gold_, "--out", folder_ / (parser + ".json")});
    ASSERT_EQ(gate.code, 0) << gate;
    EXPECT_TRUE(contains(gate.out, "weblog")) << gate;
    EXPECT_TRUE(contains(gate.out, "pass")) << gate;
    const Json json = parse_json(slurp(folder_ / (parser + ".json")), "gate");
    EXPECT_EQ(json.at("domains").at(0).at("verdict"), "pass");
    EXPECT_EQ(json.at("parser").at("prefix_safe"), parser == "incremental");
  }
  const Ran advice = run({"syntax", "advise", "--encoding", "alibi", "--gate", folder_ / "native.json"});
  ASSERT_EQ(advice.code, 0) << advice;
  EXPECT_TRUE(contains(advice.out, "sipe(alibi, mode=incremental")) << advice;
  EXPECT_TRUE(contains(advice.out, "not prefix safe")) << advice;
}

TEST_F(CliSyntaxParsers, TokensComeFromLinesOrConllu) {
  const std::string lines = folder_.put("words.txt", "the dog sees the cat .\n\nthe boy likes the girl .\n");
  for (const std::string& file : {lines, gold_}) {
    const Ran ran = run({"syntax", "parse", "--parser", "conllu:" + gold_, "--tokenized", file, "--json"});
    ASSERT_EQ(ran.code, 0) << ran;
    const Json json = parse_json(ran.out, "parse");
    EXPECT_EQ(json.at("sentences"), file == lines ? 2 : 90);
    EXPECT_TRUE(json.at("unparsed").is_number_integer());
    if (file == gold_) {
      EXPECT_EQ(json.at("unparsed"), 0);
    }
  }
}

TEST_F(CliSyntaxParsers, AFileIsItsOwnParse) {
  const Ran ran = run({"syntax", "parse", "--parser", "conllu", gold_});
  ASSERT_EQ(ran.code, 0) << ran;
  EXPECT_EQ(ran.out, slurp(gold_));
}

TEST_F(CliSyntaxParsers, TrainingStopsAndResumesToTheSameModel) {
  ASSERT_EQ(run(train("native", "whole")).code, 0);
  std::vector<std::string> arguments = train("native", "stopped", {"--save-every", "5"});
  {
    Program program(arguments);
    EXPECT_TRUE(program.wait_until([&] { return count_events(folder_ / "stopped/log.jsonl", "save") >= 1; }));
    program.send(SIGINT);
    const Ran stopped = program.finish();
    EXPECT_TRUE(stopped.code == 130 || stopped.code == 0) << stopped;  // 0: it was quicker than the signal
  }
  expect_refusal(run(arguments), 1, {"already holds a run", "--resume"});
  arguments.push_back("--resume");
  ASSERT_EQ(run(arguments).code, 0);
  EXPECT_EQ(slurp(folder_ / "whole/model.safetensors"), slurp(folder_ / "stopped/model.safetensors"));
}

TEST_F(CliSyntaxParsers, RefusalsAreOneLine) {
  expect_refusal(run({"syntax", "train", "--parser", "native", "--conllu", train_}), 2, {"--out"});
  expect_refusal(run({"syntax", "train", "--parser", "chart", "--conllu", train_, "--out", folder_ / "x"}), 2,
                 {"--parser"});
  expect_refusal(run(train("native", "x", {"--dropout", "1"})), 2, {"dropout"});
  expect_refusal(run({"syntax", "parse", "--parser", "nowhere", text_}), 2, {"a parser is the folder"});
  expect_refusal(run({"syntax", "parse", "--parser", "process:/nonexistent/parser", text_}), 1, {"cannot start"});
  expect_refusal(run({"syntax", "parse", "--parser", "conllu:" + gold_, folder_.put("bad.txt", "\xFF")}), 1, {"UTF-8"});
  expect_refusal(run({"syntax", "gate", "--parser", "conllu:" + gold_, folder_ / "none.conllu"}), 1, {"none.conllu"});
  expect_refusal(run({"syntax", "advise", "--encoding", "rope + t5"}), 2, {"takes one term"});
  expect_refusal(run({"syntax", "advise", "--encoding", "rope", "--perplexities", "1"}), 2, {"two numbers"});
  expect_refusal(run({"syntax"}), 2, {"subcommand"});
}

TEST_F(CliSyntaxParsers, AdviceWithoutAnEncodingIsTheTree) {
  const Ran ran = run({"syntax", "advise"});
  ASSERT_EQ(ran.code, 0) << ran;
  EXPECT_TRUE(contains(ran.out, "tag_align")) << ran;
}

}  // namespace
}  // namespace torsor::testing
