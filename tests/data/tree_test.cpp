#include "torsor/data/tree.h"

#include <gtest/gtest.h>

#include "tests/data/test_files.h"
#include "torsor/base/error.h"

namespace torsor {
namespace {

using namespace data_test;

Tree tree_of(const std::vector<int>& heads) {
  Tree tree;
  for (const int head : heads) {
    tree.words.push_back("w" + std::to_string(tree.words.size() + 1));
    tree.heads.push_back(head);
    tree.relations.emplace_back(head == 0 ? "root" : "dep");
  }
  return tree;
}

std::string defect(const Tree& tree) {
  return message_of<Error>([&] { check_tree(tree); });
}

TEST(CheckTree, AcceptsTrees) {
  EXPECT_NO_THROW(check_tree(tree_of({0})));
  EXPECT_NO_THROW(check_tree(tree_of({2, 0, 4, 2})));
  EXPECT_NO_THROW(check_tree(tree_of({3, 4, 0, 3})));
}

TEST(CheckTree, NamesTheDefect) {
  EXPECT_TRUE(contains(defect({}), "no"));
  EXPECT_TRUE(contains(defect(tree_of({2, 1})), "root"));
  EXPECT_TRUE(contains(defect(tree_of({0, 0})), "words 1 and 2"));
  EXPECT_TRUE(contains(defect(tree_of({0, 3})), "got 3 for word 2"));
  EXPECT_TRUE(contains(defect(tree_of({0, -1})), "got -1 for word 2"));
  EXPECT_TRUE(contains(defect(tree_of({0, 2})), "word 2"));
  EXPECT_TRUE(contains(defect(tree_of({0, 4, 2, 3, 1})), "cycle"));
  EXPECT_TRUE(contains(defect(tree_of({3, 0, 1})), "cycle"));
  Tree tree = tree_of({0, 1});
  tree.relations[1] = "root";
  EXPECT_TRUE(contains(defect(tree), "word 2"));
  tree = tree_of({0, 1});
  tree.relations[0] = "dep";
  EXPECT_TRUE(contains(defect(tree), "word 1"));
  tree = tree_of({0, 1});
  tree.heads.pop_back();
  EXPECT_TRUE(contains(defect(tree), "expected 2"));
  tree = tree_of({0, 1});
  tree.relations.push_back("dep");
  EXPECT_TRUE(contains(defect(tree), "expected 2"));
}

TEST(IsProjective, FindsCrossingArcs) {
  EXPECT_TRUE(is_projective(tree_of({0})));
  EXPECT_TRUE(is_projective(tree_of({2, 0, 4, 2})));
  EXPECT_FALSE(is_projective(tree_of({0, 4, 1, 1})));  // word 3 lies inside the arc 4 -> 2 and hangs on 1
  EXPECT_FALSE(is_projective(tree_of({3, 0, 2})));     // the root lies inside the arc 3 -> 1
  EXPECT_TRUE(is_projective(tree_of({3, 3, 0})));
  EXPECT_FALSE(is_projective(tree_of({2, 0, 5, 2, 2, 3})));
}

}  // namespace
}  // namespace torsor
