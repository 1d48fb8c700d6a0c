// Sentences that parsers are trained and measured on.
#pragma once

#include <string>
#include <vector>

#include "torsor/data/tree.h"
#include "torsor/syntax/conllu.h"

namespace torsor::syntax {

/// A gold tree with its tags. The relations carry no subtype ("acl", not "acl:relcl").
struct TaggedTree {
  Tree tree;
  std::vector<std::string> upos;  ///< one a word
  std::vector<std::string> xpos;  ///< one a word, "_" where the treebank has none
};

/// Throws Error for a sentence without a tree.
TaggedTree tagged_tree(const Sentence& sentence);
std::vector<TaggedTree> tagged_trees(const std::vector<Sentence>& sentences);

/// Puts the tags, heads and relations of a tree into a sentence of the same words. Throws Error for others.
void put_tree(const TaggedTree& tagged, Sentence& sentence);

/// The sentences of CoNLL-U files, one after another. Throws Error for a file that is not sound.
std::vector<Sentence> read_treebank(const std::vector<std::string>& paths);

}  // namespace torsor::syntax
