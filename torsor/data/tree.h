// A dependency tree over the words of a sentence.
#pragma once

#include <cstddef>
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

/// Whether every word strictly between a word and its head descends from that head. Arcs from 0 always count as such.
/// `tree` must be valid in the sense of check_tree.
bool is_projective(const Tree& tree);

}  // namespace torsor
