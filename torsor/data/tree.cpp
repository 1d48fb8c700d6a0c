#include "torsor/data/tree.h"

#include <algorithm>

#include "torsor/base/error.h"

namespace torsor {

std::string HeadDefect::reason(std::span<const int> heads) const {
  switch (kind) {
    case Kind::kNoWords:
      return "expected words, got none";
    case Kind::kOutside:
      return str("expected a head from 0 to ", heads.size(), ", got ", heads[static_cast<std::size_t>(word) - 1]);
    case Kind::kSelf:
      return "expected another word as the head, got the word itself";
    case Kind::kTwoRoots:
      return str("expected one root, got words ", other, " and ", word);
    case Kind::kNoRoot:
      return "expected a root, got none";
    case Kind::kCycle:
      return "expected no cycle, got one through this word";
  }
  return "";
}

std::optional<HeadDefect> find_defect(std::span<const int> heads) {
  using Kind = HeadDefect::Kind;
  const int n = static_cast<int>(heads.size());
  if (n == 0) return HeadDefect{Kind::kNoWords};
  int root = 0;
  for (int i = 1; i <= n; ++i) {
    const int head = heads[static_cast<std::size_t>(i) - 1];
    if (head < 0 || head > n) return HeadDefect{Kind::kOutside, i};
    if (head == i) return HeadDefect{Kind::kSelf, i};
    if (head != 0) continue;
    if (root != 0) return HeadDefect{Kind::kTwoRoots, i, root};
    root = i;
  }
  if (root == 0) return HeadDefect{Kind::kNoRoot};

  // Climbing from each word until a word that is known to lead to the root: linear in all.
  std::vector<int> seen_by(heads.size() + 1, 0);
  for (int i = 1; i <= n; ++i) {
    int at = i;
    while (at != 0 && seen_by[static_cast<std::size_t>(at)] == 0) {
      seen_by[static_cast<std::size_t>(at)] = i;
      at = heads[static_cast<std::size_t>(at) - 1];
    }
    if (at != 0 && seen_by[static_cast<std::size_t>(at)] == i) return HeadDefect{Kind::kCycle, at};
  }
  return std::nullopt;
}

void check_tree(const Tree& tree) {
  const std::size_t n = tree.words.size();
  if (n == 0) throw Error("tree: expected words, got none");
  if (tree.heads.size() != n || tree.relations.size() != n) {
    throw Error(
        str("tree: expected ", n, " heads and relations, got ", tree.heads.size(), " and ", tree.relations.size()));
  }
  const auto where = [&](std::size_t word) { return str(" for word ", word, " '", tree.words[word - 1], "'"); };
  if (const auto defect = find_defect(tree.heads)) {
    throw Error(str("tree: ", defect->reason(tree.heads),
                    defect->word > 0 ? where(static_cast<std::size_t>(defect->word)) : std::string()));
  }
  for (std::size_t i = 1; i <= n; ++i) {
    if ((tree.heads[i - 1] == 0) == (tree.relations[i - 1] == "root")) continue;
    throw Error(str("tree: expected the relation root with head 0 and only there, got ", tree.relations[i - 1],
                    " with head ", tree.heads[i - 1], where(i)));
  }
}

bool is_projective(const Tree& tree) { return is_projective(tree.heads); }

bool is_projective(std::span<const int> heads) {
  const auto descends_from = [&](int word, int ancestor) {
    while (word != 0 && word != ancestor) word = heads[static_cast<std::size_t>(word) - 1];
    return word == ancestor;
  };
  for (int i = 1; i <= static_cast<int>(heads.size()); ++i) {
    const int head = heads[static_cast<std::size_t>(i) - 1];
    if (head == 0) continue;
    for (int between = std::min(i, head) + 1; between < std::max(i, head); ++between) {
      if (!descends_from(between, head)) return false;
    }
  }
  return true;
}

}  // namespace torsor
