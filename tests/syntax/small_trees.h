// A small treebank of generated sentences with gold trees, for tests that train.
#pragma once

#include <string>
#include <vector>

#include "torsor/base/random.h"
#include "torsor/syntax/treebank.h"

namespace torsor::syntax::testing {

/// Sentences of a toy grammar: (the) (adjective) noun verb (the) noun (quickly) full stop, some with a relative clause
/// "that verb" on the first noun. Every word has one tag, and trees are projective.
inline std::vector<TaggedTree> small_trees(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  const std::vector<std::string> nouns = {"dog", "cat", "boy", "girl", "bird", "horse", "queen", "king"};
  const std::vector<std::string> verbs = {"sees", "likes", "hears", "finds", "chases", "knows"};
  const std::vector<std::string> adjectives = {"big", "old", "red", "sad"};
  const auto any = [&](const std::vector<std::string>& words) { return words[random.below(words.size())]; };
  std::vector<TaggedTree> trees;
  for (std::size_t i = 0; i < count; ++i) {
    TaggedTree tagged;
    const auto add = [&](const std::string& form, const std::string& tag, const std::string& relation) {
      tagged.tree.words.push_back(form);
      tagged.tree.heads.push_back(0);
      tagged.tree.relations.push_back(relation);
      tagged.upos.push_back(tag);
      tagged.xpos.push_back("_");
      return static_cast<int>(tagged.tree.size());
    };
    const auto attach = [&](int word, int head) { tagged.tree.heads[static_cast<std::size_t>(word) - 1] = head; };
    const auto phrase = [&](const std::string& relation) {
      std::vector<int> before;
      if (random.below(4) > 0) before.push_back(add("the", "DET", "det"));
      if (random.below(3) == 0) before.push_back(add(any(adjectives), "ADJ", "amod"));
      const int noun = add(any(nouns), "NOUN", relation);
      for (const int word : before) attach(word, noun);
      return noun;
    };
    const int subject = phrase("nsubj");
    int clause = 0;
    if (random.below(4) == 0) {
      const int that = add("that", "PRON", "nsubj");
      clause = add(any(verbs), "VERB", "acl");
      attach(that, clause);
      attach(clause, subject);
      attach(phrase("obj"), clause);
    }
    const int verb = add(any(verbs), "VERB", "root");
    attach(subject, verb);
    attach(phrase("obj"), verb);
    if (random.below(3) == 0) attach(add("quickly", "ADV", "advmod"), verb);
    attach(add(".", "PUNCT", "punct"), verb);
    trees.push_back(std::move(tagged));
  }
  return trees;
}

inline std::vector<std::vector<std::string>> forms_of(const std::vector<TaggedTree>& trees) {
  std::vector<std::vector<std::string>> forms;
  for (const TaggedTree& tagged : trees) forms.push_back(tagged.tree.words);
  return forms;
}

/// The same as CoNLL-U sentences with the full stop glued to the word before it.
inline std::vector<Sentence> sentences_of(const std::vector<TaggedTree>& trees) {
  std::vector<Sentence> sentences;
  for (const TaggedTree& tagged : trees) {
    Sentence sentence = syntax::sentence_of(tagged.tree);
    put_tree(tagged, sentence);
    sentence.words[sentence.size() - 2].misc = "SpaceAfter=No";
    sentence.comments.clear();
    sentence.comments.push_back("# text = " + spelled_text(sentence));
    sentences.push_back(std::move(sentence));
  }
  return sentences;
}

}  // namespace torsor::syntax::testing
