// Sentences that parsers are trained and measured on.
#pragma once

#include <string>
#include <vector>

#include "torsor/data/tree.h"

namespace torsor::syntax {

/// A gold tree with its tags. The relations carry no subtype ("acl", not "acl:relcl").
struct TaggedTree {
  Tree tree;
  std::vector<std::string> upos;  ///< one a word
  std::vector<std::string> xpos;  ///< one a word, "_" where the treebank has none
};

}  // namespace torsor::syntax
