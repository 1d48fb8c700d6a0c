// Controls: parses that look like syntax and are none. A gain that one of them keeps is not due to syntax.
#pragma once

#include <cstdint>
#include <string_view>

#include "torsor/syntax/parse.h"

namespace torsor::syntax {

enum class Control : std::uint8_t {
  kNone,        ///< the parse itself
  kShuffled,    ///< tags and arcs of the same kinds at other words
  kRandomTree,  ///< a random projective tree over as many words
  kRightChain,  ///< every word hangs from the one on its left
};

/// "none", "shuffled", "random_tree", "right_chain", and back; control_named throws UsageError for another word.
std::string_view control_name(Control control);
Control control_named(std::string_view name);

/// `parse` under a control, a pure function of it, the seed and its doc_id. Spans, modes and hashes stay.
///
/// Whole sentences: kShuffled gives the sentence's tags and, apart from them, the nodes of its tree a random order
/// (relations travel with their words' nodes); kRandomTree draws heads that are projectivised, with the sentence's
/// relations in a random order and tags of the new tree.
/// Incremental parses stay causal, word by word: kShuffled takes the tag of one of the 64 newest words at random and
/// links each word with other earlier words, as many as it had; kRandomTree takes possible transitions at random, in
/// the proportions of arc-eager derivations of English. Relations come from earlier words of the document.
Parse controlled(const Parse& parse, Control control, std::uint64_t seed);

}  // namespace torsor::syntax
