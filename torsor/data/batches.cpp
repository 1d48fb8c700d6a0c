#include "torsor/data/batches.h"

#include <algorithm>
#include <string>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/random.h"

namespace torsor {

namespace {

[[noreturn]] void throw_too_short(const char* who, const Corpus& corpus, std::size_t length) {
  const Document* longest = nullptr;
  for (const Document& document : corpus.documents) {
    if (longest == nullptr || document.tokens.size() > longest->tokens.size()) longest = &document;
  }
  if (longest == nullptr) throw Error(str(who, ": expected documents, got none"));
  throw Error(str(who, ": expected a document of at least ", length + 1, " tokens (length ", length,
                  " and one more), the longest has ", longest->tokens.size(), ": ", longest->name));
}

// How many of `limit` spans each document gets when it has room for `capacity`: one each in turn until none is left.
// The last, incomplete turn goes to documents evenly spaced among those that still have room.
std::vector<std::size_t> share(const std::vector<std::size_t>& capacity, std::size_t limit) {
  std::vector<std::size_t> quota(capacity.size(), 0);
  while (limit > 0) {
    std::vector<std::size_t> open;
    std::size_t least = 0;
    for (std::size_t d = 0; d < capacity.size(); ++d) {
      const std::size_t room = capacity[d] - quota[d];
      if (room == 0) continue;
      least = open.empty() ? room : std::min(least, room);
      open.push_back(d);
    }
    if (open.empty()) break;
    const std::size_t turns = std::min(least, limit / open.size());
    if (turns > 0) {
      for (const std::size_t d : open) quota[d] += turns;
      limit -= turns * open.size();
      continue;
    }
    for (std::size_t k = 0; k < limit; ++k) ++quota[open[(2 * k + 1) * open.size() / (2 * limit)]];
    break;
  }
  return quota;
}

}  // namespace

Batch gather(const Corpus& corpus, std::span<const Window> windows, std::size_t length) {
  Batch batch;
  batch.rows = windows.size();
  batch.length = length;
  batch.windows.assign(windows.begin(), windows.end());
  batch.tokens.resize(batch.rows * (length + 1));
  for (std::size_t r = 0; r < batch.rows; ++r) {
    if (windows[r].document >= corpus.documents.size()) {
      throw Error(str("batch: expected a document below ", corpus.documents.size(), ", got ", windows[r].document));
    }
    corpus.documents[windows[r].document].tokens.copy(windows[r].begin, length + 1,
                                                      batch.tokens.data() + r * (length + 1));
  }
  return batch;
}

BatchSampler::BatchSampler(Corpus corpus, std::size_t batch, std::size_t length, std::uint64_t seed)
    : corpus_(std::move(corpus)), batch_(batch), length_(length), seed_(seed) {
  if (batch == 0) throw UsageError("batch: expected at least 1 row, got 0");
  if (length == 0) throw UsageError("batch: expected a length of at least 1, got 0");
  first_.push_back(0);
  for (const Document& document : corpus_.documents) {
    const std::size_t n = document.tokens.size();
    first_.push_back(first_.back() + (n > length ? n - length : 0));
  }
  if (first_.back() == 0) throw_too_short("batch", corpus_, length);
}

Window BatchSampler::window(std::uint64_t index) const {
  if (index >= window_count()) throw Error(str("batch: expected a window below ", window_count(), ", got ", index));
  // upper_bound skips the documents without a place: theirs begin where the next one's do.
  const auto after = std::upper_bound(first_.begin(), first_.end(), index);
  const auto document = static_cast<std::size_t>(after - first_.begin()) - 1;
  return {document, static_cast<std::size_t>(index - first_[document])};
}

Batch BatchSampler::at(std::uint64_t step) const {
  Random random(seed_, stream_of("data/batches") + step);
  std::vector<Window> windows(batch_);
  for (Window& place : windows) place = window(random.below(window_count()));
  return gather(corpus_, windows, length_);
}

std::vector<Window> EvaluationPlan::windows(std::size_t length) const {
  if (length == 0 || span_length % length != 0) {
    throw UsageError(str("evaluation: expected a length that divides ", span_length, ", got ", length));
  }
  std::vector<Window> result;
  result.reserve(spans.size() * (span_length / length));
  for (const Window& span : spans) {
    for (std::size_t at = 0; at < span_length; at += length) result.push_back({span.document, span.begin + at});
  }
  return result;
}

EvaluationPlan evaluation_windows(const Corpus& corpus, const std::vector<std::size_t>& lengths, std::size_t limit) {
  if (lengths.empty()) throw UsageError("evaluation: expected at least one length, got none");
  const std::size_t largest = *std::max_element(lengths.begin(), lengths.end());
  std::string misfits;
  for (const std::size_t length : lengths) {
    if (length == 0) throw UsageError("evaluation: expected lengths of at least 1, got 0");
    if (largest % length != 0) misfits += str(misfits.empty() ? "" : ", ", length);
  }
  if (!misfits.empty()) {
    throw UsageError(str("evaluation: expected lengths that divide the largest, ", largest,
                         ", so that each scores the same text; got ", misfits));
  }

  EvaluationPlan plan;
  plan.span_length = largest;
  std::vector<std::size_t> capacity;
  std::size_t total = 0;
  for (const Document& document : corpus.documents) {
    const std::size_t n = document.tokens.size();
    capacity.push_back(n == 0 ? 0 : (n - 1) / largest);  // the last target needs one token beyond the inputs
    total += capacity.back();
    if (capacity.back() == 0) ++plan.documents_too_short;
  }
  if (total == 0) throw_too_short("evaluation", corpus, largest);

  const std::vector<std::size_t> quota = share(capacity, limit == 0 ? total : limit);
  for (std::size_t d = 0; d < capacity.size(); ++d) {
    if (quota[d] > 0) ++plan.documents_used;
    for (std::size_t k = 0; k < quota[d]; ++k) {
      // The middles of equal shares: distinct since there are no more shares than spans.
      plan.spans.push_back({d, (2 * k + 1) * capacity[d] / (2 * quota[d]) * largest});
    }
  }
  return plan;
}

}  // namespace torsor
