// Arc-eager parsing without look-ahead: a tree that grows from left to right, so that what is known at a word depends
// on the words up to it alone. Transitions after Nivre ("An Efficient Algorithm for Projective Dependency Parsing",
// 2003), with the root at the bottom of the stack, which may become the head of one word.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "torsor/syntax/conllu.h"

namespace torsor::syntax {

enum class Action : std::uint8_t {
  kLeftArc,   ///< the front word becomes the head of the stack's top, which is popped
  kReduce,    ///< pops the top, which has a head
  kRightArc,  ///< the top, or the root once, becomes the head of the front word, which is pushed
  kShift,     ///< pushes the front word; its head is pending
};
inline constexpr int kActions = 4;

/// The causal tags of a word; they index the same tables as hexatags and are likewise part of checkpoints.
struct CausalTag {
  std::uint8_t tau = 0;  ///< 0 none, 1 head on the left or root known (right arc), 2 pending (shift)
  std::uint8_t nu = 0;   ///< 0 none, 1 no pop, 2 left arcs only, 3 reductions only, 4 both, 5 sentence start

  bool operator==(const CausalTag&) const = default;
};
/// What stands for the words read so far where there are none.
inline constexpr CausalTag kSentenceStart{2, 5};

/// The state of one sentence. For each word: read(), any number of left arcs and reductions, then one shift or right
/// arc. A copy is independent, so a generation that forks or rolls back keeps copies.
class ArcEager {
 public:
  /// Back to the state before the first word.
  void reset() { *this = ArcEager(); }

  /// The next word comes to the front. Throws Error while the one before still needs its shift or right arc.
  void read();
  /// Whether `action` is possible.
  bool allows(Action action) const;
  /// Carries it out; `label` is any number that stands for the arc's relation, -1 for none. Throws Error where it is
  /// not allowed.
  void take(Action action, int label = -1);

  int words() const { return static_cast<int>(heads_.size()); }  ///< words read, the front word included
  int front() const { return words(); }                          ///< the front word's number, 0 before the first
  bool waiting() const { return waiting_; }                      ///< the front word still needs its shift or right arc

  std::span<const int> stack() const { return stack_; }    ///< 0 (the root) at the bottom, then numbers of words
  int top() const { return stack_.back(); }                ///< 0 where only the root is left
  bool has_root() const { return root_ != 0; }             ///< a word has the root as its head
  std::span<const int> heads() const { return heads_; }    ///< by word; 0 for the root, kNoHead where pending
  std::span<const int> labels() const { return labels_; }  ///< by word; -1 where none was given
  int head(int word) const { return heads_[static_cast<std::size_t>(word) - 1]; }
  int label(int word) const { return labels_[static_cast<std::size_t>(word) - 1]; }
  int leftmost(int word) const;   ///< leftmost dependent to the left of `word` so far, 0 = none
  int rightmost(int word) const;  ///< rightmost dependent to the right of `word` so far, 0 = none
  int lefts(int word) const;      ///< dependents to the left of `word` so far
  int rights(int word) const;     ///< dependents to the right of `word` so far

  /// The dependents that the front word has taken from the stack, nearest first.
  std::span<const int> taken() const { return taken_; }
  /// Tags of the front word, final once it waits no more.
  CausalTag tag() const;

 private:
  std::vector<int> stack_ = {0};
  std::vector<int> heads_, labels_;
  std::vector<int> leftmost_, rightmost_;
  std::vector<int> lefts_, rights_;
  std::vector<int> taken_;
  int root_ = 0;
  bool waiting_ = false;
  bool left_arc_ = false, reduced_ = false, right_arc_ = false;  // of the front word
};

/// The action that leads to the projective tree `heads` (static oracle). Right after a state that it led to.
Action oracle_action(const ArcEager& state, std::span<const int> heads);

/// What each action costs: the number of arcs of the projective tree `heads` that can still be made before it and no
/// longer after it; -1 where it is not allowed. One that is allowed always costs 0, and the arcs that the best
/// continuation misses are the costs of its actions together (dynamic oracle: Goldberg and Nivre, "A Dynamic Oracle for
/// Arc-Eager Dependency Parsing", COLING 2012; here with one word under the root). For any state that waits for an
/// action of a word of the tree.
std::array<int, kActions> action_costs(const ArcEager& state, std::span<const int> heads);

struct Step {
  Action action;
  int word;  ///< at the front, from 1
  int arc;   ///< the dependent whose head it sets; 0 for a reduction or shift
};

/// All actions for a projective tree, in order. Throws Error when `heads` is no tree or not projective.
std::vector<Step> oracle_steps(std::span<const int> heads);

/// The tags of every word under the oracle. Throws Error as oracle_steps.
std::vector<CausalTag> oracle_tags(std::span<const int> heads);

}  // namespace torsor::syntax
