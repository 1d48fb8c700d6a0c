// Parts of the parsed feed: tensors of an encoding's inputs, vectors with an exchange, texts that grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "torsor/encoding/encoding.h"
#include "torsor/lab/parser_set.h"
#include "torsor/lab/syntax_feed.h"
#include "torsor/syntax/arc_embedder.h"
#include "torsor/syntax/features.h"

namespace torsor {

inline constexpr std::size_t kLinksPerToken = 8;  ///< arcs that find no room go to later tokens

/// Inputs of tokens that have no syntax, by their names (Encoding::inputs). Throws UsageError for one that parses do
/// not give.
NamedTensors empty_inputs(const std::vector<std::string>& names, std::int64_t rows, std::int64_t tokens);

/// Tokens [begin, begin + count).
struct TokenRange {
  std::size_t begin = 0, count = 0;
};

/// syntax.vectors (count, 64) of a range of tokens under an embedder with an exchange along the arcs, made from the
/// whole sentences that the range touches. The arcs of words with a token that `withheld` marks, one a token of the
/// range, show nowhere: not in their own vectors, nor in those of their heads and dependents.
at::Tensor exchanged_vectors(const syntax::ArcEmbedder& embedder, const syntax::SyntaxFeatures& features,
                             TokenRange range, const std::vector<bool>& withheld);

/// Streams of the inputs `names` in mode incremental. `embedder` is null unless the encoding reads vectors; it must
/// outlive the stream, as `parsers` keeps it.
std::unique_ptr<SyntaxStream> make_parsed_stream(std::vector<std::string> names,
                                                 std::shared_ptr<const ParserSet> parsers,
                                                 const syntax::FeatureOptions& options,
                                                 const syntax::ArcEmbedder* embedder);

}  // namespace torsor
