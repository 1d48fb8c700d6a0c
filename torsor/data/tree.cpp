#include "torsor/data/tree.h"

#include <algorithm>

#include "torsor/base/error.h"

namespace torsor {

void check_tree(const Tree& tree) {
  const std::size_t n = tree.words.size();
  if (n == 0) throw Error("tree: expected words, got none");
  if (tree.heads.size() != n || tree.relations.size() != n) {
    throw Error(
        str("tree: expected ", n, " heads and relations, got ", tree.heads.size(), " and ", tree.relations.size()));
  }
  std::size_t root = 0;
  for (std::size_t i = 1; i <= n; ++i) {
    const int head = tree.heads[i - 1];
    const std::string where = str(" for word ", i, " '", tree.words[i - 1], "'");
    if (head < 0 || static_cast<std::size_t>(head) > n) {
      throw Error(str("tree: expected a head from 0 to ", n, ", got ", head, where));
    }
    if (static_cast<std::size_t>(head) == i) throw Error(str("tree: expected another word as the head", where));
    if ((head == 0) != (tree.relations[i - 1] == "root")) {
      throw Error(str("tree: expected the relation root with head 0 and only there, got ", tree.relations[i - 1],
                      " with head ", head, where));
    }
    if (head != 0) continue;
    if (root != 0) throw Error(str("tree: expected one root, got words ", root, " and ", i));
    root = i;
  }
  if (root == 0) throw Error("tree: expected a root, got none");

  // Climbing from each word until a word that is known to lead to the root: linear in all.
  std::vector<std::size_t> seen_by(n + 1, 0);
  for (std::size_t i = 1; i <= n; ++i) {
    std::size_t at = i;
    while (at != 0 && seen_by[at] == 0) {
      seen_by[at] = i;
      at = static_cast<std::size_t>(tree.heads[at - 1]);
    }
    if (at != 0 && seen_by[at] == i) {
      throw Error(str("tree: expected no cycle, got one through word ", at, " '", tree.words[at - 1], "'"));
    }
  }
}

bool is_projective(const Tree& tree) {
  const auto descends_from = [&](int word, int ancestor) {
    while (word != 0 && word != ancestor) word = tree.heads[static_cast<std::size_t>(word) - 1];
    return word == ancestor;
  };
  for (int i = 1; i <= static_cast<int>(tree.size()); ++i) {
    const int head = tree.heads[static_cast<std::size_t>(i) - 1];
    if (head == 0) continue;
    for (int between = std::min(i, head) + 1; between < std::max(i, head); ++between) {
      if (!descends_from(between, head)) return false;
    }
  }
  return true;
}

}  // namespace torsor
