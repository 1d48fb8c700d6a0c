// Which structure embedder (f_syn, torsor/syntax/arc_embedder.h) a checkpoint was trained with. The network is frozen
// and lies in a folder of its own; its vectors mean nothing to a model that learned from another's.
#pragma once

#include <string>

#include "torsor/encoding/encoding.h"

namespace torsor {

/// Whether an encoding reads syntax.vectors.
bool reads_vectors(const Encoding& encoding);

/// Throws Error unless `given` is the embedder that a checkpoint was trained with, of which `stored` is the hash.
/// Nothing is asked of an encoding that reads no vectors, or of a checkpoint that does not tell.
void require_embedder(const Encoding& encoding, const std::string& stored, const std::string& given,
                      const std::string& where);

}  // namespace torsor
