#include "torsor/syntax/treebank.h"

#include <iterator>

#include "torsor/base/error.h"

namespace torsor::syntax {

TaggedTree tagged_tree(const Sentence& sentence) {
  TaggedTree tagged;
  tagged.tree = tree_of(sentence);
  for (std::string& relation : tagged.tree.relations) relation = std::string(base_relation(relation));
  for (const Word& word : sentence.words) {
    tagged.upos.push_back(word.upos);
    tagged.xpos.push_back(word.xpos);
  }
  return tagged;
}

std::vector<TaggedTree> tagged_trees(const std::vector<Sentence>& sentences) {
  std::vector<TaggedTree> trees;
  for (const Sentence& sentence : sentences) trees.push_back(tagged_tree(sentence));
  return trees;
}

void put_tree(const TaggedTree& tagged, Sentence& sentence) {
  if (tagged.tree.size() != sentence.size())
    throw Error(str("put_tree: expected ", sentence.size(), " words, got ", tagged.tree.size()));
  for (std::size_t i = 0; i < sentence.size(); ++i) {
    Word& word = sentence.words[i];
    if (word.form != tagged.tree.words[i])
      throw Error(str("put_tree: expected word ", i + 1, " to be '", word.form, "', got '", tagged.tree.words[i], "'"));
    word.upos = tagged.upos[i];
    word.xpos = tagged.xpos[i];
    word.head = tagged.tree.heads[i];
    word.deprel = tagged.tree.relations[i];
  }
}

std::vector<Sentence> read_treebank(const std::vector<std::string>& paths) {
  std::vector<Sentence> sentences;
  for (const std::string& path : paths) {
    std::vector<Sentence> more = read_conllu_file(path).sentences;
    sentences.insert(sentences.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  return sentences;
}

}  // namespace torsor::syntax
