// What a generated document is about: its people, the words it prefers, and what has been said so far.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <vector>

#include "torsor/base/random.h"
#include "torsor/data/grammar.h"
#include "torsor/data/lexicon.h"

namespace torsor::grammar {

/// The nouns behind an entity's values.
struct EntityNouns {
  const Noun* trade = nullptr;
  const Noun* possession = nullptr;
  const Noun* workplace = nullptr;
  const Noun* food = nullptr;
  const Noun* pet = nullptr;
};

/// Fixed for a document. Lists are in the order of this document's preference: the first words are used far more often,
/// so what a text is about shows in its words.
struct World {
  std::vector<Entity> entities;
  std::vector<EntityNouns> nouns_of;
  std::array<std::vector<const Noun*>, 7> nouns;  // by the number of the NounClass bit
  std::vector<const Verb*> verbs;
  std::vector<const Adjective*> adjectives;
  bool past = false;  // the tense of the document
};

/// Grows with each sentence that is kept.
struct Discourse {
  std::size_t introduced = 0;                        // entities that may be spoken of: the first ones
  std::vector<std::bitset<kAttributeCount>> stated;  // by entity
  int focus = -1;                                    // the entity that the paragraph is mostly about
  int last = -1;                                     // the only entity of the last sentence: who "she" is
};

/// Draws the world of a document with `entities` people (0 for single sentences).
World make_world(Random& random, std::size_t entities);

/// The place in a list of `size` > 0 words of descending preference: half of the draws fall into the first quarter.
std::size_t preferred(Random& random, std::size_t size);

/// True with the given probability.
bool chance(Random& random, double probability);

}  // namespace torsor::grammar
