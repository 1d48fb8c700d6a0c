#include "torsor/syntax/repair.h"

#include <gtest/gtest.h>

#include "tests/syntax/treebanks.h"
#include "torsor/base/error.h"

namespace torsor::syntax {
namespace {

using namespace testing;

struct Case {
  const char* name;
  std::vector<int> heads, mended;
  RepairCounts counts;
};

TEST(Repair, EachDefectInItsOrder) {
  for (const Case& one : {
           Case{"a tree", {2, 0, 4, 2}, {2, 0, 4, 2}, {}},
           Case{"outside", {2, 0, 9}, {2, 0, 2}, {.outside = 1, .unattached = 1}},
           Case{"negative", {2, 0, -5}, {2, 0, 2}, {.outside = 1, .unattached = 1}},
           Case{"self-loop", {2, 0, 3}, {2, 0, 2}, {.self_loops = 1, .unattached = 1}},
           Case{"unknown", {2, 0, kNoHead}, {2, 0, 2}, {.unattached = 1}},
           Case{"no root", {2, kNoHead, 2, kNoHead}, {2, 0, 2, 2}, {.no_root = 1, .unattached = 1}},
           Case{"all unknown", {kNoHead, kNoHead}, {0, 1}, {.no_root = 1, .unattached = 1}},
           // 3 -> 4 -> 6 -> 3: the arc of 3 (to 4) has length 1, of 4 (to 6) 2, of 6 (to 3) 3, which is cut.
           Case{"cycle", {0, 1, 4, 6, 4, 3}, {0, 1, 4, 6, 4, 1}, {.cycles = 1, .unattached = 1}},
           // Of arcs of equal length the rightmost dependent's is cut.
           Case{"cycle of equals", {0, 3, 2}, {0, 3, 1}, {.cycles = 1, .unattached = 1}},
           Case{"two cycles, no root", {2, 1, 4, 3}, {2, 0, 4, 2}, {.cycles = 2, .no_root = 1, .unattached = 1}},
           Case{"several roots", {2, 0, 0, 3, 0}, {2, 0, 2, 3, 2}, {.extra_roots = 2}},
           Case{"everything",
                {9, 2, 4, 3, 0, 0},
                {5, 5, 4, 5, 0, 5},
                {.outside = 1, .self_loops = 1, .cycles = 1, .unattached = 3, .extra_roots = 1}},
       }) {
    SCOPED_TRACE(one.name);
    std::vector<int> heads = one.heads;
    std::vector<std::string> relations(heads.size(), "x");
    EXPECT_EQ(repair(heads, relations), one.counts);
    EXPECT_EQ(heads, one.mended);
    EXPECT_FALSE(find_defect(heads));
    for (std::size_t i = 0; i < heads.size(); ++i) EXPECT_EQ(relations[i] == "root", heads[i] == 0);
  }
}

TEST(Repair, RelationsOfWhatIsAttached) {
  std::vector<int> heads = {2, 0, 0, 9};
  std::vector<std::string> relations = {"nsubj", "root", "root", "obj"};
  repair(heads, relations);
  EXPECT_EQ(relations, (std::vector<std::string>{"nsubj", "root", "dep", "dep"}));
  relations.pop_back();
  EXPECT_TRUE(contains(message_of<Error>([&] { repair(heads, relations); }), "relations"));
  heads.clear();
  EXPECT_TRUE(contains(message_of<Error>([&] { repair(heads, relations); }), "words"));
}

TEST(RepairProperty, AnyHeadsBecomeATreeAndTreesStay) {
  Random random(7);
  for (int round = 0; round < 10000; ++round) {
    const int n = 1 + static_cast<int>(random.below(20));
    std::vector<int> heads;
    for (int i = 0; i < n; ++i) heads.push_back(static_cast<int>(random.below(static_cast<std::uint64_t>(n) + 5)) - 2);
    std::vector<std::string> relations(heads.size(), "dep");
    const bool sound = !find_defect(heads);
    EXPECT_EQ(repair(heads, relations).total() == 0, sound);
    ASSERT_FALSE(find_defect(heads)) << round;
    const std::vector<int> again = heads;
    EXPECT_EQ(repair(heads, relations).total(), 0u);
    EXPECT_EQ(heads, again);
  }
}

Document damaged() {
  return read_conllu(rows({"1 a _ _ _ _ 0 root _ _"}) +
                         rows({"# text = b c", "1 b _ _ _ _ 2 x _ _", "2 c _ _ _ _ 1 y _ _"}) + rows({"1 bad"}) +
                         rows({"1 d _ _ _ _ 0 root _ _"}),
                     "x", {.lenient = true, .check_trees = false});
}

TEST(Repair, DocumentsAreMendedAndCounted) {
  Document document = damaged();
  const RepairReport report = repair(document);
  EXPECT_EQ(report.sentences, 3u);
  EXPECT_EQ(report.repaired, 1u);
  EXPECT_TRUE(report.too_many());
  EXPECT_EQ(report.text(), "1 of 3 sentences repaired: 1 cycle, 1 sentence without a root");
  ASSERT_EQ(document.sentences.size(), 3u);
  EXPECT_EQ(document.sentences[1].heads(), (std::vector<int>{2, 0}));
  EXPECT_EQ(document.sentences[1].words[1].deprel, "root");
  ASSERT_EQ(document.skipped.size(), 1u);
  EXPECT_EQ(document.skipped[0].before, 2u);
}

TEST(Repair, StrictLeavesDefectsOut) {
  Document document = damaged();
  const RepairReport report = repair(document, RepairPolicy::kStrict);
  EXPECT_EQ(report.unparsed, 1u);
  EXPECT_EQ(report.repaired, 0u);
  EXPECT_FALSE(report.too_many());
  ASSERT_EQ(document.sentences.size(), 2u);
  ASSERT_EQ(document.skipped.size(), 2u);
  EXPECT_EQ(document.skipped[0].text, "b c");
  EXPECT_EQ(document.skipped[0].before, 1u);
  EXPECT_EQ(document.skipped[1].before, 1u);
}

}  // namespace
}  // namespace torsor::syntax
