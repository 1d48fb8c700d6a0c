// The gold trees of generated suites and generated text as treebanks.
#pragma once

#include <string>
#include <vector>

#include "torsor/data/grammar.h"
#include "torsor/data/syntaxgym.h"
#include "torsor/syntax/conllu.h"

namespace torsor::syntax {

/// One sentence a condition, in the suite's order, with "# sent_id = SUITE/ITEM/CONDITION" and "# text". Throws Error
/// for a condition without a tree.
std::vector<Sentence> suite_sentences(const Suite& suite);

/// A generated document as a treebank's: "# newdoc id" and "# newpar" where they begin, "# sent_id = ID-1" and so on,
/// "# text". treebank_texts() gives the document's text back.
std::vector<Sentence> document_sentences(const GeneratedDocument& document, const std::string& id);

}  // namespace torsor::syntax
