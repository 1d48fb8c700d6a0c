// Attention of few queries over many keys: bound by reading k and v, which are read once and where they lie.
#pragma once

#include <cstdint>

#include "torsor/kernel/attention.h"

namespace torsor::kernel {

/// Calls of so few queries are decoded: packing the keys would cost more than it saves.
constexpr std::int64_t most_decoded_queries = 4;

/// attention_forward for call.queries <= most_decoded_queries. Keys are cut into runs of a fixed length, whose results
/// are merged by their log-sum-exp: threads find work where there are few heads, and the bits do not depend on them.
void attention_decode(const Attention& call, const Run& run, const Results& results);

}  // namespace torsor::kernel
