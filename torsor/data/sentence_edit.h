// Changes to sentences of the generated grammar that keep words and tree together: for minimal pairs. Internal to the
// grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "torsor/data/grammar.h"
#include "torsor/data/lexicon.h"
#include "torsor/data/sentence_writer.h"
#include "torsor/data/syntaxgym.h"

namespace torsor::grammar {

/// A word of a draft. Words are numbered from 0; the root's head is -1.
struct DraftWord {
  std::string form;  ///< the first word too is in lower case here
  std::string lemma;
  std::string upos;
  bool space = true;  ///< before it
  int head = -1;
  std::string relation;
  std::int64_t region = 1;  ///< of the suite; never falls from left to right
};

class Draft {
 public:
  explicit Draft(const SingleSentence& sentence);

  const DraftWord& word(int index) const { return words_[static_cast<std::size_t>(index)]; }
  DraftWord& word(int index) { return words_[static_cast<std::size_t>(index)]; }
  int size() const { return static_cast<int>(words_.size()); }
  int root() const;

  /// The first dependent of `head` under one of these relations, or -1.
  int dependent(int head, std::initializer_list<std::string_view> relations) const;
  /// The first word of the subtree of `word`.
  int leftmost(int word) const;
  bool descends(int word, int ancestor) const;
  /// The word of the clause headed by `clause` that would show its number: the first auxiliary or copula, else itself.
  int finite_word(int clause) const;

  /// Takes away all words that `gone` marks; what they head must go too or have been attached elsewhere.
  void remove(const std::vector<bool>& gone);
  void remove(int word);
  /// Puts a word before the one at `index`; its head counts as of after the insertion.
  void insert(int index, DraftWord word);

  /// Gives the noun at `noun` and every verb that it is the subject of the other number. False, with the draft
  /// undefined, where that takes more than words of their own: determiners that show a number, coordination, names.
  bool change_number(int noun);
  std::optional<Number> number_of(int noun) const;
  /// Gives a verb form that shows a number the other one; false for a form that shows none.
  bool change_verb(int verb);

  /// Words before `critical` to region `before`, it and the word behind it to the next, the rest to the one after that.
  /// The word behind comes along because "limps" begins with "limp": only what follows tells that a word has ended.
  void mark_critical(int critical, std::int64_t before = 1);

  /// The sentence as a condition with regions 1 to `regions`, and its tree.
  SuiteCondition condition(const std::string& name, std::int64_t regions) const;

 private:
  std::vector<DraftWord> words_;
};

/// The noun of the lexicon with this singular, or null.
const Noun* find_noun(std::string_view singular);

}  // namespace torsor::grammar
