// How long a token's document is: what the frequencies of `dynamic` and `longrope` depend on.
#pragma once

#include <ATen/ATen.h>

#include "torsor/encoding/encoding.h"

namespace torsor {

/// T of the document of each token of `asked`: the largest key position of that document in the same row, plus 1. Keys
/// past their row's length and padding (document -1) do not count; with several axes the largest axis does. Float64,
/// (B|1, tokens|1): an extent of 1 stands for all. -inf where the document has no key.
at::Tensor document_lengths(const Side& asked, const Side& key);

}  // namespace torsor
