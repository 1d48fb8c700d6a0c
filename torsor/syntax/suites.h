// The gold trees of generated suites as a treebank.
#pragma once

#include <vector>

#include "torsor/data/syntaxgym.h"
#include "torsor/syntax/conllu.h"

namespace torsor::syntax {

/// One sentence a condition, in the suite's order, with "# sent_id = SUITE/ITEM/CONDITION" and "# text". Throws Error
/// for a condition without a tree.
std::vector<Sentence> suite_sentences(const Suite& suite);

}  // namespace torsor::syntax
