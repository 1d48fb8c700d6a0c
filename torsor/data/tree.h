// A dependency tree over the words of a sentence.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace torsor {

/// Word i (counted from 1) is words[i - 1]; its head is a word's number, or 0 for the root. The relations are those of
/// Universal Dependencies ("nsubj", "acl:relcl").
struct Tree {
  std::vector<std::string> words;
  std::vector<int> heads;
  std::vector<std::string> relations;

  std::size_t size() const { return words.size(); }
};

/// Throws Error naming the word when `tree` is none: no words, lists of different sizes, a head outside 0..n, a word
/// that is its own head, no root or several, a cycle, the relation "root" elsewhere than at the root.
void check_tree(const Tree& tree);

/// Why a list of heads is no tree.
struct HeadDefect {
  enum class Kind { kNoWords, kOutside, kSelf, kTwoRoots, kNoRoot, kCycle };
  Kind kind;
  int word = 0;   ///< the word at fault, from 1; 0 where none is (kNoWords, kNoRoot)
  int other = 0;  ///< kTwoRoots: the first root

  /// What was expected and what came, without the place: "expected a head from 0 to 4, got 7".
  std::string reason(std::span<const int> heads) const;
};

/// The first defect of heads (heads[i - 1] belongs to word i), or nothing when they form a tree with one root. Linear.
std::optional<HeadDefect> find_defect(std::span<const int> heads);

/// Whether every word strictly between a word and its head descends from that head. Arcs from 0 always count as such.
/// `tree` must be valid in the sense of check_tree, `heads` in that of find_defect.
bool is_projective(const Tree& tree);
bool is_projective(std::span<const int> heads);

}  // namespace torsor
