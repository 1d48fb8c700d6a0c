#include "torsor/data/blimp.h"

#include <gtest/gtest.h>

#include "tests/data/test_files.h"
#include "torsor/base/error.h"

namespace torsor {
namespace {

using namespace data_test;

const std::string kLine =
    R"({"sentence_good": "Who left?", "sentence_bad": "Who leave?", "field": "syntax", "linguistics_term": "t", "UID": "u", "one_prefix_method": false, "pairID": "0"})";

TEST(Blimp, Lines) {
  const Paradigm paradigm = paradigm_from_lines(kLine + "\n\n" + kLine + "\r\n", "u.jsonl");
  EXPECT_EQ(paradigm.uid, "u");
  EXPECT_EQ(paradigm.field, "syntax");
  EXPECT_EQ(paradigm.term, "t");
  ASSERT_EQ(paradigm.pairs.size(), 2U);
  EXPECT_EQ(paradigm.pairs[1].good, "Who left?");
  EXPECT_EQ(paradigm.pairs[1].bad, "Who leave?");
}

TEST(Blimp, WhatIsNoPairIsRefusedWithItsLine) {
  const auto refused = [](const std::string& from, const std::string& to, const std::string& part) {
    std::string line = kLine;
    line.replace(line.find(from), from.size(), to);
    const std::string message = message_of<Error>([&] { paradigm_from_lines(kLine + "\n" + line, "u.jsonl"); });
    EXPECT_TRUE(contains(message, "u.jsonl:2:") && contains(message, part)) << message;
  };
  refused("\"UID\": \"u\"", "\"UID\": \"w\"", "pairs of 'u' ('syntax', 't') alone, found one of 'w'");
  refused("Who leave?", "  ", "a sentence under 'sentence_bad'");
  refused("\"pairID\": \"0\"", "\"pairID\": 0", "text under 'pairID'");
  refused("\"UID\": \"u\"", "\"uid\": \"u\"", "text under 'UID'");
  refused("{", "[", "");
  EXPECT_TRUE(contains(message_of<Error>([] { paradigm_from_lines("\n", "x"); }), "at least one pair"));
  EXPECT_TRUE(contains(message_of<Error>([] { paradigm_from_lines("[]", "x"); }), "x:1: expected an object"));
}

TEST(Blimp, ParadigmsCountAlike) {
  const std::vector<ParadigmResult> results = {{"a", "syntax", "island", {true, true, false, false}},
                                               {"b", "syntax", "npi", {true}},
                                               {"c", "semantics", "npi", {false}}};
  const BlimpSummary summary = summarize_blimp(results);
  EXPECT_EQ(summary.all.paradigms, 3U);
  EXPECT_EQ(summary.all.mean, 0.5);
  EXPECT_EQ(summary.terms.at("island").mean, 0.5);
  EXPECT_EQ(summary.terms.at("npi").mean, 0.5);
  EXPECT_EQ(summary.fields.at("syntax").mean, 0.75);
  EXPECT_THROW(summarize_blimp(std::vector<ParadigmResult>{{"a", "s", "t", {}}}), Error);
}

TEST(Blimp, SharedFiles) {
  const auto folder = shared_data("blimp/data");
  if (!folder) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  const std::vector<Paradigm> paradigms = load_blimp(*folder);
  EXPECT_EQ(paradigms.size(), 67U);
  std::size_t pairs = 0;
  std::vector<ParadigmResult> results;
  for (const Paradigm& paradigm : paradigms) {
    pairs += paradigm.pairs.size();
    results.push_back({paradigm.uid, paradigm.field, paradigm.term, std::vector<bool>(paradigm.pairs.size(), true)});
  }
  EXPECT_EQ(pairs, 6700U);
  const BlimpSummary summary = summarize_blimp(results);
  EXPECT_EQ(summary.terms.size(), 13U);  // 12 in the paper; "s-selection" is counted with argument structure there
  EXPECT_EQ(summary.all.mean, 1);
}

TEST(Blimp, Folders) {
  TemporaryFolder folder;
  EXPECT_THROW(load_blimp(folder.path()), Error);
  folder.write("a.jsonl", kLine);
  EXPECT_EQ(load_blimp(folder.path("a.jsonl")).size(), 1U);
  folder.write("b.jsonl", kLine);
  EXPECT_TRUE(contains(message_of<Error>([&] { load_blimp(folder.path()); }), "is in two files"));
}

}  // namespace
}  // namespace torsor
