// How well a parse agrees with a gold one, as the CoNLL 2018 shared task counts it: tokenisations may differ, and then
// precision and recall do.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "torsor/syntax/conllu.h"

namespace torsor::syntax {

/// A measure in shares of 1. Nothing gives 0, nothing asked for included.
struct Agreement {
  std::size_t correct = 0;
  std::size_t gold = 0;
  std::size_t system = 0;

  double precision() const;
  double recall() const;
  double f1() const;  ///< 2 correct / (gold + system)
  bool operator==(const Agreement&) const = default;
};

/// Counts of one gold sentence. System words are counted where they begin.
struct SentenceScore {
  std::size_t gold_words = 0;
  std::size_t system_words = 0;
  std::size_t uas = 0;  ///< gold words with the right head
  std::size_t las = 0;  ///< and the right relation

  bool operator==(const SentenceScore&) const = default;
};

struct Score {
  Agreement tokens;                        ///< surface tokens with equal bounds
  Agreement sentences;                     ///< sentences with equal bounds
  Agreement words;                         ///< words that are aligned
  Agreement uas;                           ///< words whose head is aligned with the gold head
  Agreement las;                           ///< and whose relation is the same without its subtype
  Agreement clas;                          ///< the same of content words alone: no function words, no punctuation
  std::vector<SentenceScore> by_sentence;  ///< of every gold sentence, for confidence intervals and domains
};

/// Compares `system` with `gold`. Both must spell the same text when white space is left out, else Error naming the
/// first place. Words that belong to no multiword token on either side are aligned when their characters are the same;
/// where one does, within the smallest stretch that no multiword token leaves, by the longest common subsequence of
/// lower-case forms. All words count, punctuation included. Heads that are missing (kNoHead) are never right.
Score score(std::span<const Sentence> gold, std::span<const Sentence> system);

}  // namespace torsor::syntax
