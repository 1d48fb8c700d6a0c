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

  /// A comparison of two steps on the gold trees' text.
  std::vector<std::string> tiny_comparison(const std::string& encodings, const std::string& out,
                                           const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"compare",
                                          "--encodings",
                                          encodings,
                                          "--text",
                                          gold_,
                                          "--valid",
                                          gold_,
                                          "--length",
                                          "16",
                                          "--eval-lengths",
                                          "16",
                                          "--eval-spans",
                                          "2",
                                          "--steps",
                                          "2",
                                          "--batch",
                                          "2",
                                          "--seeds",
                                          "0",
                                          "--model",
                                          put_tiny_model(folder_),
                                          "--threads",
                                          "1",
                                          "--out",
                                          folder_ / out};
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

TEST_F(CliSyntaxParsers, GatesWhereModelsAreTrainedAndJudged) {
  ASSERT_EQ(run(train("incremental", "causal", {"--dev", gold_})).code, 0);
  const std::string report = folder_ / "gate.json";
  ASSERT_EQ(run({"syntax", "gate", "--parser", folder_ / "causal", gold_, "--out", report}).code, 0);
  const auto compare = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.end(), {"--parser", folder_ / "causal"});
    return run(tiny_comparison("sipe(alibi); alibi", out, more));
  };
  const Ran watched = compare("watched", {"--gate", report, "--gate-every", "1", "--gate-warn-only"});
  ASSERT_EQ(watched.code, 0) << watched;
  EXPECT_TRUE(contains(watched.out, "native incremental")) << watched;
  const Json results = read_json(folder_ / "watched/results.json");
  EXPECT_EQ(results.at("runs")[0].at("encoding"), "alibi");  // the base goes first
  const Json& syntax = results.at("runs")[1];
  EXPECT_EQ(syntax.at("syntax").at("gate"), "asked");
  EXPECT_EQ(syntax.at("perplexity_gate").at("evaluations").size(), 2U);
  EXPECT_TRUE(contains(slurp(folder_ / "watched/report.html"), "Parser by domain"));
  // Again, from its own results.
  const Ran again = run({"compare", "--from", folder_ / "watched/results.json", "--out", folder_ / "again"});
  ASSERT_EQ(again.code, 0) << again;
  EXPECT_EQ(read_json(folder_ / "again/results.json").at("runs")[1].at("eval"), syntax.at("eval"));
  const Ran plain = compare("plain", {});
  ASSERT_EQ(plain.code, 0) << plain;
  EXPECT_TRUE(contains(plain.out, "gate: not asked")) << plain;

  std::string checkpoint;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "watched/runs"))
    if (contains(entry.path().filename(), "sipe")) checkpoint = entry.path();
  const auto judge = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"eval",   checkpoint, "--text", text_, "--parser", folder_ / "causal",
                                          "--gate", report,     "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  const Ran judged = judge({"--domain", "weblog"});
  ASSERT_EQ(judged.code, 0) << judged;
  EXPECT_EQ(parse_json(judged.out, "eval").at("syntax").at("domains").at(0).at("verdict"), "pass");
  const Ran unverified = judge({});
  EXPECT_EQ(unverified.code, 2) << unverified;
  EXPECT_TRUE(contains(unverified.err, "--allow-unverified-domain")) << unverified;
  const Ran allowed = judge({"--allow-unverified-domain"});
  EXPECT_EQ(allowed.code, 0) << allowed;
  EXPECT_TRUE(contains(allowed.err, "unverified, has syntax all the same")) << allowed;

  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"--strict-gate"}, {"--gate-warn-only"}, {"--domain", "weblog"}}) {
    const Ran ran = compare("wrong", wrong);
    EXPECT_EQ(ran.code, 2) << ran;
  }
  EXPECT_EQ(run({"eval", checkpoint, "--text", text_, "--gate", report}).code, 2);
}

// What leaks is never called a perplexity, and logits can be looked at with their syntax: those of incremental tags do
// not know what follows, those of whole trees do.
TEST_F(CliSyntaxParsers, EvaluationsTellWhatLeaks) {
  ASSERT_EQ(run(train("incremental", "causal")).code, 0);
  const Ran made =
      run(tiny_comparison("sipe(t5, mode=oracle, start=random, beta_init=0.8); sipe(t5, start=random, beta_init=0.8)",
                          "two", {"--parser", folder_ / "causal", "--parser", "gold"}));
  ASSERT_EQ(made.code, 0) << made;
  std::string oracle, incremental;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "two/runs"))
    (contains(entry.path().string(), "oracle") ? oracle : incremental) = entry.path().string();
  ASSERT_FALSE(oracle.empty() || incremental.empty());
  // The same beginning, another end: "the dog likes the bird." against trees in which the last noun is the subject's.
  const std::string one = folder_.put("one.conllu", small_treebank(1));
  std::string turned = small_treebank(1);
  const auto change = [&](const std::string& from, const std::string& to) {
    const std::size_t at = turned.find(from);
    ASSERT_NE(at, std::string::npos) << from << " in " << turned;
    turned.replace(at, from.size(), to);
  };
  change("\t5\tdet\t", "\t3\tdet\t");
  const std::string other = folder_.put("other.conllu", turned);
  const auto dumped = [&](const std::string& model, const std::string& parser, const std::string& text,
                          const std::string& name) {
    const Ran ran = run({"eval", model, "--text", text, "--parser", parser, "--lengths", "16", "--threads", "1",
                         "--dump-logits", folder_ / name});
    EXPECT_EQ(ran.code, 0) << ran;
    return ran;
  };
  const Ran told = dumped(oracle, "gold", one, "a.safetensors");
  EXPECT_TRUE(contains(told.out, "cond_ppl") && contains(told.out, "joint_ppl")) << told;
  EXPECT_TRUE(contains(told.out, "no perplexity")) << told;
  EXPECT_FALSE(contains(told.out, "bits/byte")) << told;
  dumped(oracle, "gold", other, "b.safetensors");
  EXPECT_NE(slurp(folder_ / "a.safetensors"), slurp(folder_ / "b.safetensors"));  // the trees alone differ
  const Ran valid = dumped(incremental, folder_ / "causal", one, "c.safetensors");
  EXPECT_TRUE(contains(valid.out, "perplexity")) << valid;
  dumped(incremental, folder_ / "causal", other, "d.safetensors");
  EXPECT_EQ(slurp(folder_ / "c.safetensors"), slurp(folder_ / "d.safetensors"));  // the text is the same
  expect_refusal(run({"eval", incremental, "--text", one, "--lengths", "16"}), 2, {"syntax."});
  // The base of the oracle's weights: what no encoding reads is left out.
  const Ran base = run({"eval", oracle, "--text", one, "--lengths", "16", "--encoding",
                        "sipe(t5, mode=none, start=random, beta_init=0.8)"});
  EXPECT_EQ(base.code, 0) << base;
  EXPECT_TRUE(contains(base.out, "bits/byte")) << base;
}

// A report that was edited contradicts its own numbers; what was refused leaves nothing in the way.
TEST_F(CliSyntaxParsers, EditedReportsAndRefusedRuns) {
  ASSERT_EQ(run(train("incremental", "causal")).code, 0);
  const std::string report = folder_ / "gate.json";
  ASSERT_EQ(run({"syntax", "gate", "--parser", folder_ / "causal", gold_, "--threshold", "100", "--out", report}).code,
            0);
  std::string edited = slurp(report);
  const std::size_t at = edited.find("\"fail\"");
  ASSERT_NE(at, std::string::npos) << edited;
  edited.replace(at, 6, "\"pass\"");
  const std::vector<std::string> tail = {"--text",
                                         gold_,
                                         "--parser",
                                         folder_ / "causal",
                                         "--steps",
                                         "2",
                                         "--length",
                                         "16",
                                         "--batch",
                                         "2",
                                         "--quiet",
                                         "--model",
                                         put_tiny_model(folder_),
                                         "--out",
                                         folder_ / "run"};
  std::vector<std::string> arguments = {"train", "--encoding", "sipe(t5)", "--gate",
                                        folder_.put("edited.json", edited)};
  arguments.insert(arguments.end(), tail.begin(), tail.end());
  expect_refusal(run(arguments), 1, {"weblog", "pass", "threshold of 100"});
  arguments = {"train", "--encoding", "sipe(t5, mode=oracle)"};
  arguments.insert(arguments.end(), tail.begin(), tail.end());
  expect_refusal(run(arguments), 2, {"oracle"});  // nobody reads whole sentences
  // One document is cut for validation, and what is cut has lost its name.
  arguments = {"train", "--encoding", "sipe(t5)", "--gate", report, "--domain", "weblog"};
  arguments.insert(arguments.end(), tail.begin(), tail.end());
  const Ran done = run(arguments);
  EXPECT_EQ(done.code, 0) << done;
  expect_refusal(run({"syntax", "gate", "--parser", folder_ / "causal", folder_.put("empty.conllu", "")}), 1,
                 {"no sentence"});
  for (const char* wrong : {"nan,24", "24,0", "-1,2"})
    EXPECT_EQ(run({"syntax", "advise", "--encoding", "alibi", "--perplexities", wrong}).code, 2) << wrong;
}

TEST(CliCells, AreListedAndNamed) {
  const Ran cells = run({"syntax", "cells", "depth", "--layers", "16"});
  ASSERT_EQ(cells.code, 0) << cells;
  EXPECT_TRUE(contains(cells.out, "sipe(txl, mode=incremental, inject_from=12)")) << cells;
  const Ran list = run({"compare", "--grid", "decoder", "--list"});
  ASSERT_EQ(list.code, 0) << list;
  EXPECT_TRUE(contains(list.out, "42 encodings") && contains(list.out, "not sayable")) << list;
  EXPECT_EQ(parse_json(run({"syntax", "cells", "fusion", "--json"}).out, "cells").at("cells").size(), 5U);
  EXPECT_EQ(run({"syntax", "cells", "widths"}).code, 2);
  EXPECT_EQ(run({"compare", "--list"}).code, 2);
  EXPECT_EQ(run({"compare", "--grid", "encoder"}).code, 2);  // of encoders
  EXPECT_EQ(run({"compare", "--grid", "depth", "--encodings", "rope"}).code, 2);
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
