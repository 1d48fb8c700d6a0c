#include "torsor/syntax/transition_features.h"

#include <algorithm>
#include <numeric>

#include "torsor/syntax/hexatags.h"

namespace torsor::syntax {
namespace {

constexpr std::int64_t kDistances = 8, kDepths = 6, kKnown = 16, kCounts = 4, kStates = 3;

/// How many values each fact has.
std::array<std::int64_t, TransitionFeatures::kFacts> counts_of(std::int64_t relations) {
  const std::int64_t labels = relations + 1;
  return {labels, labels, labels,  kDistances, kDepths, kKnown,     labels, labels,
          labels, labels, kCounts, kCounts,    kCounts, kDistances, kStates};
}

/// Arms of a distance in words: 1, 2, 3, 4-6, 7-10, more; 0 = no word there, 7 = the root.
std::int64_t distance_bucket(int word, int front) {
  if (word == 0) return 7;
  if (word < 0) return 0;
  const int distance = front - word;
  return distance <= 3 ? distance : distance <= 6 ? 4 : distance <= 10 ? 5 : 6;
}

}  // namespace

std::int64_t TransitionFeatures::rows(std::int64_t relations, std::int64_t design) {
  const auto counts = counts_of(relations);
  return std::accumulate(counts.begin(), counts.begin() + facts_of(design), std::int64_t{0});
}

TransitionFeatures::TransitionFeatures(const ArcEager& state, std::int64_t relations) {
  const auto stack = state.stack();
  const auto below = [&](std::size_t depth) {  // -1 = none
    return depth < stack.size() ? stack[stack.size() - 1 - depth] : -1;
  };
  const int top = state.top(), front = state.front(), second = below(1);
  const auto leftmost = [&](int word) { return word > 0 ? state.leftmost(word) : 0; };
  const auto rightmost = [&](int word) { return word > 0 ? state.rightmost(word) : 0; };
  const auto place = [](int word) { return static_cast<std::int16_t>(word + 1); };  // of a word; the root's is 1
  const auto none_or = [&](int word) { return word == 0 ? std::int16_t{0} : place(word); };
  const int nearest = state.taken().empty() ? 0 : state.taken().front();
  words = {place(top),
           place(second),
           place(below(2)),
           place(front),
           none_or(leftmost(front)),
           none_or(leftmost(top)),
           none_or(rightmost(top)),
           place(below(3)),
           none_or(nearest),
           none_or(leftmost(second)),
           none_or(rightmost(second))};

  const auto counts = counts_of(relations);
  std::int64_t begin = 0;
  std::size_t next = 0;
  const auto fact = [&](std::int64_t value) {
    facts[next] = static_cast<std::int16_t>(begin + std::min(value, counts[next] - 1));
    begin += counts[next++];
  };
  const auto label = [&](int word) { return word <= 0 ? 0 : std::int64_t{state.label(word)} + 1; };
  const auto attached = [&](int word) { return word > 0 && state.head(word) != kNoHead; };
  fact(label(top));
  fact(label(rightmost(top)));
  fact(label(leftmost(front)));
  fact(distance_bucket(top, front));
  fact(static_cast<std::int64_t>(stack.size()) - 1);
  const CausalTag tag = state.tag();  // of the front word so far: what has been popped
  fact((attached(top) ? 8 : 0) + (state.has_root() ? 4 : 0) + tag.nu - 1);
  fact(label(leftmost(top)));
  fact(label(nearest));
  fact(label(second));
  fact(label(rightmost(second)));
  fact(top > 0 ? state.lefts(top) : 0);
  fact(top > 0 ? state.rights(top) : 0);
  fact(static_cast<std::int64_t>(state.taken().size()));
  fact(distance_bucket(second, front));
  fact(second <= 0 ? 0 : attached(second) ? 1 : 2);

  for (int action = 0; action < kActions; ++action)
    if (state.allows(static_cast<Action>(action))) allowed |= static_cast<std::uint8_t>(1 << action);
}

}  // namespace torsor::syntax
