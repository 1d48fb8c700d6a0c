// Where the per-token inputs of an encoding (Encoding::inputs(): tags, sentences, links, vectors) come from: the door
// between whoever knows the parses of a text and whoever runs a model on pieces of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "torsor/data/batches.h"
#include "torsor/data/syntaxgym.h"
#include "torsor/encoding/encoding.h"
#include "torsor/lab/data.h"

namespace torsor {

/// One row of a batch: a text and the tokens that it became.
struct FeedRow {
  /// The bytes that the tokens stand for; empty where the tokens are no bytes and only `place` says what they are.
  std::string text;
  std::vector<ByteRange> tokens;  ///< of every token in `text`, rising; special tokens have an empty range

  /// Where tokens [first, first + count) of the row are a window of a corpus, which must outlive the call.
  struct Place {
    const Corpus* corpus = nullptr;
    Window window;  ///< document and token of the corpus
    std::size_t first = 0, count = 0;
  };
  std::optional<Place> place;

  /// Parts of the text that are sentences, or texts, of their own and are parsed by themselves; empty = all of it is
  /// one.
  std::vector<ByteRange> parts;

  /// The gold tree of the sentence that begins at byte `tree_begin` of the text, where there is one.
  const SuiteTree* tree = nullptr;
  std::size_t tree_begin = 0;
};

class SyntaxFeed {
 public:
  virtual ~SyntaxFeed() = default;

  /// Who parses, in which mode: for records and people.
  virtual std::string description() const = 0;
  /// Identity of everything that decides the inputs: a run is not gone on with under another one.
  virtual std::string sha256() const = 0;

  /// The same feed under a control ("none", "shuffled", "random_tree", "right_chain": controls.h). Throws UsageError
  /// for a control that it does not have.
  virtual std::shared_ptr<const SyntaxFeed> under(const std::string& control) const = 0;

  /// The encoding's inputs(), (B, `tokens`, ...) each; a row of fewer tokens is filled up with "none" on the right.
  virtual NamedTensors inputs(const std::vector<FeedRow>& rows, std::int64_t tokens,
                              const Encoding& encoding) const = 0;
};

/// Makes the feed of a comparison from its data, which outlive it.
using SyntaxFeedFactory = std::function<std::shared_ptr<const SyntaxFeed>(const LmData& data)>;

/// The inputs of rows, checked: every declared one is there in the right shape. Empty for an encoding that declares
/// none, whoever feeds. Throws UsageError when an encoding declares some and nobody feeds.
NamedTensors feed_rows(const SyntaxFeed* feed, const Encoding& encoding, const std::vector<FeedRow>& rows,
                       std::int64_t tokens);

/// The same for the first `batch.length` tokens of each row of a batch of windows of `corpus`; with `targets` for one
/// more, the last that is only a target.
NamedTensors feed_windows(const SyntaxFeed* feed, const Encoding& encoding, const Corpus& corpus, const Batch& batch,
                          bool targets = false);

/// Whether an encoding's inputs tell of later tokens, so that what it assigns to a text is no probability (sipe.md 3).
bool leaks(const Encoding& encoding);

}  // namespace torsor
