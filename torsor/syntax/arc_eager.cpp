#include "torsor/syntax/arc_eager.h"

#include <algorithm>

#include "torsor/base/error.h"
#include "torsor/data/tree.h"
#include "torsor/syntax/hexatags.h"
#include "torsor/syntax/words.h"

namespace torsor::syntax {
namespace {

const char* action_name(Action action) {
  switch (action) {
    case Action::kLeftArc:
      return "left arc";
    case Action::kReduce:
      return "reduction";
    case Action::kRightArc:
      return "right arc";
    case Action::kShift:
      return "shift";
  }
  return "";
}

}  // namespace

void ArcEager::read() {
  if (waiting_) throw Error(str("arc-eager: expected a shift or right arc of word ", front(), " before the next word"));
  heads_.push_back(kNoHead);
  labels_.push_back(-1);
  leftmost_.push_back(0);
  rightmost_.push_back(0);
  lefts_.push_back(0);
  rights_.push_back(0);
  taken_.clear();
  waiting_ = true;
  left_arc_ = reduced_ = right_arc_ = false;
}

bool ArcEager::allows(Action action) const {
  if (!waiting_) return false;
  if (action == Action::kShift) return true;
  if (action == Action::kRightArc) return top() != 0 || !has_root();
  return top() != 0 && (head(top()) == kNoHead) == (action == Action::kLeftArc);
}

void ArcEager::take(Action action, int label) {
  if (!allows(action))
    throw Error(
        str("arc-eager: expected an action that is possible at word ", front(), ", got a ", action_name(action)));
  const int word = front();
  switch (action) {
    case Action::kLeftArc: {
      const int dependent = top();
      heads_[index(dependent)] = word;
      labels_[index(dependent)] = label;
      leftmost_[index(word)] = dependent;
      ++lefts_[index(word)];
      taken_.push_back(dependent);
      left_arc_ = true;
      stack_.pop_back();
      break;
    }
    case Action::kReduce:
      reduced_ = true;
      stack_.pop_back();
      break;
    case Action::kRightArc:
      heads_[index(word)] = top();
      labels_[index(word)] = label;
      if (top() == 0) {
        root_ = word;
      } else {
        rightmost_[index(top())] = word;
        ++rights_[index(top())];
      }
      right_arc_ = true;
      stack_.push_back(word);
      waiting_ = false;
      break;
    case Action::kShift:
      stack_.push_back(word);
      waiting_ = false;
      break;
  }
}

int ArcEager::leftmost(int word) const { return leftmost_[index(word)]; }
int ArcEager::rightmost(int word) const { return rightmost_[index(word)]; }
int ArcEager::lefts(int word) const { return lefts_[index(word)]; }
int ArcEager::rights(int word) const { return rights_[index(word)]; }

CausalTag ArcEager::tag() const {
  const int pops = 1 + (left_arc_ ? 1 : 0) + (reduced_ ? 2 : 0);
  return {static_cast<std::uint8_t>(right_arc_ ? 1 : 2), static_cast<std::uint8_t>(pops)};
}

Action oracle_action(const ArcEager& state, std::span<const int> heads) {
  const int word = state.front(), top = state.top();
  if (top != 0 && heads[index(top)] == word && state.allows(Action::kLeftArc)) return Action::kLeftArc;
  if (heads[index(word)] == top && state.allows(Action::kRightArc)) return Action::kRightArc;
  if (!state.allows(Action::kReduce)) return Action::kShift;
  // Something below has to be linked with this word; nothing later can reach across that arc to the top.
  const bool reach = std::any_of(state.stack().begin(), state.stack().end(), [&](int below) {
    return heads[index(word)] == below || (below != 0 && heads[index(below)] == word);
  });
  return reach ? Action::kReduce : Action::kShift;
}

std::array<int, kActions> action_costs(const ArcEager& state, std::span<const int> heads) {
  const int front = state.front(), top = state.top();
  // An arc can still be made when its dependent has no head and one of its ends at least has not left the front, the
  // other being there too or on the stack. Since the tree is projective, all such arcs can be made together.
  const auto dependents_ahead = [&](int word) {  // from the front word on
    return static_cast<int>(std::count(heads.begin() + front - 1, heads.end(), word));
  };
  int dependents_behind = 0;  // of the front word, on the stack and without a head
  bool head_behind = false;   // the front word's head is on the stack and may take it
  for (const int word : state.stack()) {
    if (word != 0 && state.head(word) == kNoHead && heads[index(word)] == front) ++dependents_behind;
    if (heads[index(front)] == word) head_behind = word != 0 || !state.has_root();
  }
  const bool head_ahead = heads[index(front)] > front;

  std::array<int, kActions> costs;
  costs.fill(-1);
  const auto cost = [&](Action action) -> int& { return costs[static_cast<std::size_t>(action)]; };
  if (state.allows(Action::kLeftArc)) cost(Action::kLeftArc) = dependents_ahead(top) + (heads[index(top)] > front);
  if (state.allows(Action::kReduce)) cost(Action::kReduce) = dependents_ahead(top);
  if (state.allows(Action::kRightArc)) {
    const bool wrong = heads[index(front)] != top;
    const bool root_ahead = top == 0 && std::count(heads.begin() + front, heads.end(), 0) > 0;
    cost(Action::kRightArc) = dependents_behind + (wrong && (head_behind || head_ahead)) + root_ahead;
  }
  if (state.allows(Action::kShift)) cost(Action::kShift) = dependents_behind + head_behind;
  return costs;
}

namespace {

template <class Visit>
void follow_oracle(std::span<const int> heads, const Visit& visit) {
  if (count_nonprojective(heads) != 0) throw Error("arc-eager: expected a projective tree, got one with crossing arcs");
  ArcEager state;
  for (std::size_t i = 0; i < heads.size(); ++i) {
    state.read();
    while (state.waiting()) {
      const Action action = oracle_action(state, heads);
      visit(state, action);
      state.take(action);
    }
    visit(state, std::nullopt);
  }
}

}  // namespace

std::vector<Step> oracle_steps(std::span<const int> heads) {
  std::vector<Step> steps;
  follow_oracle(heads, [&](const ArcEager& state, std::optional<Action> action) {
    if (!action) return;
    const int arc = *action == Action::kLeftArc ? state.top() : *action == Action::kRightArc ? state.front() : 0;
    steps.push_back({*action, state.front(), arc});
  });
  return steps;
}

std::vector<CausalTag> oracle_tags(std::span<const int> heads) {
  std::vector<CausalTag> tags;
  follow_oracle(heads, [&](const ArcEager& state, std::optional<Action> action) {
    if (!action) tags.push_back(state.tag());
  });
  return tags;
}

}  // namespace torsor::syntax
