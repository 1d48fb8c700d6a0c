// Windows of tokens for training and for evaluation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "torsor/data/corpus.h"

namespace torsor {

/// A place in a corpus: the token `begin` of `documents[document]`.
struct Window {
  std::size_t document = 0;
  std::size_t begin = 0;
  bool operator==(const Window&) const = default;
};

/// Rows of length + 1 tokens: a row's inputs are its first `length` tokens, its targets the last `length`.
struct Batch {
  std::size_t rows = 0;
  std::size_t length = 0;
  std::vector<std::int64_t> tokens;  // (rows, length + 1), row-major
  std::vector<Window> windows;       // (rows) where each row begins
};

/// The rows at `windows`. Throws Error when a window of length + 1 tokens leaves its document.
Batch gather(const Corpus& corpus, std::span<const Window> windows, std::size_t length);

/// Draws training batches: every place in the corpus where length + 1 tokens fit inside a document is equally likely,
/// with replacement. A batch depends on (seed, step) alone, so the step is all that has to be saved to go on.
class BatchSampler {
 public:
  /// Keeps a copy of `corpus` (cheap: the tokens are shared). Throws UsageError when `batch` or `length` is 0, Error
  /// when no document holds length + 1 tokens.
  BatchSampler(Corpus corpus, std::size_t batch, std::size_t length, std::uint64_t seed);

  /// The batch of `step` = 0, 1, ...; safe to call from several threads.
  Batch at(std::uint64_t step) const;

  std::size_t batch() const { return batch_; }
  std::size_t length() const { return length_; }

  /// The number of places that a window can begin at.
  std::uint64_t window_count() const { return first_.back(); }

  /// The window_count() places in order; `index` < window_count(), else Error.
  Window window(std::uint64_t index) const;

 private:
  Corpus corpus_;
  std::size_t batch_;
  std::size_t length_;
  std::uint64_t seed_;
  std::vector<std::uint64_t> first_;  // (documents + 1) how many places lie before each document
};

/// Which tokens an evaluation scores: spans of the largest length, laid end to end from each document's start. A
/// shorter length cuts the same spans into more windows, so that every length predicts exactly the same targets once.
struct EvaluationPlan {
  std::size_t span_length = 0;          // the largest evaluation length, in targets
  std::vector<Window> spans;            // in the order of the documents
  std::size_t documents_used = 0;       // documents that hold at least one chosen span
  std::size_t documents_too_short = 0;  // documents that cannot hold a span

  /// The number of targets, the same for every length.
  std::size_t target_count() const { return spans.size() * span_length; }

  /// The windows of `length` targets that together make the spans, in order. Throws UsageError unless `length` divides
  /// span_length.
  std::vector<Window> windows(std::size_t length) const;
};

/// Plans the evaluation of `corpus` at `lengths` (any order). At most `limit` spans are taken (0: all), shared as
/// evenly between documents as they allow and spaced evenly inside each. Throws UsageError when there are no lengths,
/// one is 0, or one does not divide the largest; Error when no document holds the largest length + 1 tokens.
EvaluationPlan evaluation_windows(const Corpus& corpus, const std::vector<std::size_t>& lengths, std::size_t limit = 0);

}  // namespace torsor
