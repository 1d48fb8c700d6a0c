// What a classifier of arc-eager transitions looks at.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "torsor/syntax/arc_eager.h"

namespace torsor::syntax {

/// Words by their places (0 = none, 1 = the root, i + 1 = word i) and small facts. Models of the first design look at
/// the first few of each, those of the second at all.
struct TransitionFeatures {
  /// Stack 0, 1, 2; front; leftmost of front; leftmost and rightmost of stack 0; then stack 3; nearest of front's
  /// dependents; leftmost and rightmost of stack 1.
  static constexpr std::size_t kWords = 11;
  /// Three labels, distance, depth of the stack, what is known and done; then four more labels, numbers of dependents,
  /// distance and state of stack 1.
  static constexpr std::size_t kFacts = 15;
  static constexpr int kDesigns = 2;
  static std::int64_t words_of(std::int64_t design) { return design == 1 ? 7 : kWords; }
  static std::int64_t facts_of(std::int64_t design) { return design == 1 ? 6 : kFacts; }

  std::array<std::int16_t, kWords> words{};
  std::array<std::int16_t, kFacts> facts{};  ///< rows of one table
  std::uint8_t allowed = 0;                  ///< bit a: Action a is possible

  /// Rows of the table of facts for so many relations.
  static std::int64_t rows(std::int64_t relations, std::int64_t design);
  /// Of a state that waits for an action; the labels in it are numbers of relations.
  TransitionFeatures(const ArcEager& state, std::int64_t relations);

  bool allows(Action action) const { return (allowed >> static_cast<int>(action) & 1) != 0; }
};

}  // namespace torsor::syntax
