// Hexatags: a projective dependency tree as two tags a word, and back (Amini, Liu, Cotterell, "Hexatagging: Projective
// Dependency Parsing as Tagging", ACL 2023).
//
// The tree becomes a binary one over the words: a head takes its left dependents, nearest first, then its right ones,
// nearest first. Read from left to right, every word says whether it is a left or a right child, and every inner node,
// which lies in the gap between two words, whether it is a left or a right child (the root counts as a left one) and
// which of its two children holds the head. A word carries its own mark and that of the gap behind it.
//
//     she watches funny videos     heads 2 0 4 2
//     she (left; left child, head on the right)  watches (right; left, left)  funny (left; right, right)
//     videos (right; end)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace torsor::syntax {

/// The ids that index the tables of tags; 0 is no tag and has a zero row. The numbers are part of checkpoints.
enum class Terminal : std::uint8_t { kNone = 0, kLeftChild = 1, kRightChild = 2 };
enum class NonTerminal : std::uint8_t {
  kNone = 0,
  kLeftChildRightHead = 1,
  kLeftChildLeftHead = 2,
  kRightChildRightHead = 3,
  kRightChildLeftHead = 4,
  kEnd = 5,  ///< behind the last word
};

struct Hexatag {
  Terminal terminal = Terminal::kNone;
  NonTerminal nonterminal = NonTerminal::kNone;

  bool operator==(const Hexatag&) const = default;
};

/// The number of arcs that are not projective: words strictly between their ends do not descend from the head. `heads`
/// must form a tree (find_defect); so must those of the functions below, which throw Error otherwise.
int count_nonprojective(std::span<const int> heads);

/// The projective tree nearest to `heads`: while an arc is not projective, the shortest such (the leftmost dependent
/// of equals) is lifted to the head of its head. A projective tree comes back unchanged.
std::vector<int> projectivise(std::span<const int> heads);

/// The tags of a projective tree. Throws Error when it is not projective. Linear.
std::vector<Hexatag> hexatags_of(std::span<const int> heads);

/// The heads of the tree that the tags stand for. Throws Error naming the word when they stand for none.
std::vector<int> heads_of(std::span<const Hexatag> tags);

/// Which tags may follow so that the sentence becomes a tree: all that matters is how many trees wait for their right
/// part and how many words are left.
class HexatagAutomaton {
 public:
  /// For a sentence of `words` words, at least 1.
  explicit HexatagAutomaton(int words) : left_(words) {}

  /// Asked in turn: the word's own mark, then the mark of the gap behind it.
  bool allows(Terminal terminal) const;
  bool allows(NonTerminal nonterminal) const;
  /// Throws Error for what is not allowed.
  void take(Terminal terminal);
  void take(NonTerminal nonterminal);

  int open() const { return open_; }        ///< trees that wait for their right part
  int words_left() const { return left_; }  ///< words whose own mark has not been taken
  bool done() const { return left_ == 0 && !in_word_ && open_ == 0; }

 private:
  int left_;
  int open_ = 0;
  bool in_word_ = false;  // the word's own mark has been taken, the gap's has not
};

/// The tags of a tree with the largest sum of scores, for taggers: `terminals` (n, 2) in the order of Terminal without
/// kNone, `nonterminals` (n, 5) likewise. Scores must be finite. Time and memory grow with n times the depth, at most
/// n * n / 2. Throws Error when the sizes do not fit.
std::vector<Hexatag> best_hexatags(std::span<const float> terminals, std::span<const float> nonterminals);

/// "L:LR" as in the golden files: the word is a Left or Right child; the gap is a Left or Right child with the head on
/// its Left or Right, or E at the end.
std::string hexatag_text(const Hexatag& tag);
/// Back from hexatag_text. Throws Error for anything else.
Hexatag parse_hexatag(std::string_view text);

}  // namespace torsor::syntax
