// Learning the merges of a byte-level BPE from texts.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "torsor/base/progress.h"
#include "torsor/data/bpe.h"

namespace torsor {

struct BpeTraining {
  const std::atomic<bool>* stop = nullptr;      ///< set = Interrupted is thrown
  const Progress::Options* progress = nullptr;  ///< counts tokens of the vocabulary; the total is filled in
};

/// Ids 0 to 255 are the bytes in GPT-2's order. Then the pair of neighbours that occurs most often in the pieces of all
/// texts becomes a token, of equal ones that of the smaller ids (left first), until there are `vocabulary_size` tokens
/// or no pair occurs twice. "aaa" has the pair (a, a) twice; merging goes from left to right. Should a pair make bytes
/// that have a token already, the merge leads to that token. The result depends on nothing but texts and size; one
/// thread works. Throws UsageError for a size below 256.
std::shared_ptr<const BpeTokenizer> train_bpe(const std::vector<std::string_view>& texts, std::uint32_t vocabulary_size,
                                              const BpeTraining& training = {});

}  // namespace torsor
