// The best dependency tree under a score for every arc.
#pragma once

#include <vector>

namespace torsor::syntax {

/// Heads of words 1..n (0 = the root) of the tree with the largest sum of scores in which exactly one word hangs from
/// the root. `scores` has n rows of n + 1 finite numbers: row i - 1, column h is the score of h as the head of word i
/// (column i is not read). Equal sums are decided the same way every time. Throws Error for lists of other sizes and
/// numbers that are not finite.
///
/// The best head of each word is tried first, and Chu and Liu's and Edmonds' algorithm only where these form no tree.
/// O(n^3) at worst, O(n^2) as a rule.
std::vector<int> best_tree(const std::vector<std::vector<double>>& scores);

}  // namespace torsor::syntax
