#include "torsor/report/syntax_table.h"

#include <gtest/gtest.h>

#include "torsor/base/error.h"
#include "torsor/report/grid_table.h"
#include "torsor/report/html.h"
#include "torsor/report/statistics.h"
#include "torsor/report/table.h"

namespace torsor::report {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Json run_of(const std::string& encoding, std::int64_t seed) {
  Json eval = {{"task", "lm"}, {"length", 16},       {"status", "ok"},   {"reason", ""},
               {"loss", 1.0},  {"perplexity", 2.72}, {"windows", {1.0}}, {"position_loss", Json::array()}};
  return {{"encoding", encoding}, {"seed", seed}, {"status", "ok"}, {"reason", ""}, {"eval", {eval}}};
}

Json syntax_of(const std::string& mode, const std::string& gate) {
  return {{"mode", mode},
          {"leaks", mode == "oracle"},
          {"prior", "hexatags"},
          {"parser",
           {{"backend", "native"}, {"name", "incremental"}, {"version", "1"}, {"model_sha256", std::string(64, 'c')}}},
          {"gate", gate},
          {"domains", Json::array()},
          {"coverage", 0.951},
          {"tokens", 1000},
          {"sentences", 50},
          {"unparsed", 2},
          {"repaired", 3},
          {"multi_word_tokens", 0}};
}

Json document() {
  Json asked = run_of("sipe(alibi)", 0), plain = run_of("sipe(t5, mode=oracle)", 0), stopped = run_of("sipe(rope)", 1);
  asked["syntax"] = syntax_of("incremental", "asked");
  asked["syntax"]["domains"] = {
      {{"domain", "email"},
       {"verdict", "fail"},
       {"fed", false},
       {"uas", 80.2},
       {"low", 79.0},
       {"high", 81.5},
       {"las", 75.0},
       {"words", 900},
       {"threshold", 85}},
      {{"domain", "chat"}, {"verdict", "unverified"}, {"fed", true}, {"uas", nullptr}, {"words", nullptr}}};
  asked["perplexity_gate"] = {{"status", "warned"}, {"rise", 0.0123}, {"evaluations", Json::array()}};
  plain["syntax"] = syntax_of("oracle", "not asked");
  stopped["syntax"] = syntax_of("incremental", "not asked");
  stopped["status"] = "stopped";
  stopped["reason"] = "perplexity rose";
  stopped["eval"] = Json::array();
  stopped["perplexity_gate"] = {{"status", "stopped"}, {"rise", 0.04}, {"evaluations", Json::array()}};
  return {{"format", "torsor-results-1"}, {"runs", {run_of("alibi", 0), asked, plain, stopped}}};
}

TEST(SyntaxTable, TellsWhereSyntaxCameFrom) {
  const Results results = parse_results(document());
  const SyntaxTable table = syntax_table(results);
  ASSERT_EQ(table.rows.size(), 4u);  // the base has none
  EXPECT_EQ(table.rows[1], (std::vector<std::string>{"sipe(alibi)", "incremental", "hexatags",
                                                     "native incremental 1 cccccccccccc", "1 of 2 domains fed",
                                                     "95.1 %", "3 of 50, 2 unparsed", "0", "seed 0 warned +1.2 %"}));
  EXPECT_EQ(table.rows[2][1], "oracle (leaks)");
  EXPECT_EQ(table.rows[2][4], "gate: not asked");
  EXPECT_EQ(table.rows[2][8], "not asked");
  ASSERT_EQ(table.domains.size(), 3u);
  EXPECT_EQ(table.domains[1], (std::vector<std::string>{"sipe(alibi)", "email", "80.2", "79.0 to 81.5", "75.0", "900",
                                                        "above 85.0", "fail: no syntax"}));
  EXPECT_EQ(table.domains[2][6], "-");
  EXPECT_EQ(table.domains[2][7], "unverified");
  std::string notes;
  for (const std::string& note : table.notes) notes += note + "\n";
  for (const char* part : {"cond_ppl", "more than one sentence in a hundred", "chat: it was allowed unverified",
                           "sipe(rope) seed 1 was stopped: perplexity rose"})
    EXPECT_TRUE(contains(notes, part)) << notes;
  EXPECT_EQ(results.runs[3].status, Status::stopped);
}

TEST(SyntaxTable, StandsInBothReports) {
  Results results = parse_results(document());
  summarize(results);
  for (const std::string& text : {text_table(results), html_report(results)})
    for (const char* part : {"gate: not asked", "fail: no syntax", "was stopped"}) EXPECT_TRUE(contains(text, part));
  std::string verdict;
  for (const std::string& sentence : results.verdict) verdict += sentence;
  EXPECT_TRUE(contains(verdict, "Stopped by the perplexity gate: sipe(rope) with seed 1.")) << verdict;
  Json plain = document();
  plain["runs"] = {run_of("alibi", 0)};
  results = parse_results(plain);
  summarize(results);
  EXPECT_EQ(syntax_text(results), "");
  EXPECT_FALSE(contains(html_report(results), "<h2>Syntax"));
}

TEST(GridTable, PutsFiguresInTheirCells) {
  Json grid = document();
  grid["config"] = {{"length", 16},
                    {"grid",
                     {{"name", "decoder"},
                      {"title", "where"},
                      {"cells",
                       {{{"row", "none"}, {"column", "alibi"}, {"encoding", "alibi"}},
                        {{"row", "times"}, {"column", "alibi"}, {"encoding", "sipe(alibi)"}},
                        {{"row", "times"}, {"column", "rope"}, {"encoding", "sipe(rope)"}},
                        {{"row", "joint"}, {"column", "rope"}, {"encoding", "sipe(rope, inject=joint)"}}}},
                      {"unsaid", {"plus on rope"}}}}};
  Results results = parse_results(grid);
  summarize(results);
  const std::vector<GridTable> tables = grid_tables(results);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].title, "where: lm, perplexity at 16");
  EXPECT_EQ(
      tables[0].rows,
      (std::vector<std::vector<std::string>>{
          {"cell", "alibi", "rope"}, {"none", "2.72", "-"}, {"times", "2.72", "stopped"}, {"joint", "-", "not run"}}));
  for (const std::string& text : {text_table(results), html_report(results)})
    EXPECT_TRUE(contains(text, "plus on rope")) << text;
  EXPECT_EQ(grid_text(parse_results(document())), "");
  grid["config"]["grid"]["cells"][0].erase("row");
  EXPECT_THROW(grid_tables(parse_results(grid)), Error);
}

TEST(SyntaxTable, DamagedBlocksAreRefused) {
  Json broken = document();
  broken["runs"][1]["syntax"]["coverage"] = "much";
  EXPECT_THROW(parse_results(broken), Error);
  broken = document();
  broken["runs"][1]["syntax"]["domains"][0].erase("verdict");
  EXPECT_THROW(parse_results(broken), Error);
}

}  // namespace
}  // namespace torsor::report
