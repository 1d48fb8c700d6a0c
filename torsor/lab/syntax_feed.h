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

#include "torsor/base/json.h"
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
  /// Tokens whose syntax must not show, not even in that of other words; empty = none.
  std::vector<bool> withheld;

  /// Parts of the text that are sentences, or texts, of their own and are parsed by themselves; empty = all of it is
  /// one.
  std::vector<ByteRange> parts;

  /// The gold tree of the sentence that begins at byte `tree_begin` of the text, where there is one.
  const SuiteTree* tree = nullptr;
  std::size_t tree_begin = 0;
};

/// Per-token inputs of texts that grow at their ends, row by row, for generation. What a token once had it keeps.
class SyntaxStream {
 public:
  virtual ~SyntaxStream() = default;

  /// The next tokens of a row: the bytes that each adds to the row's text, none for a special token. The work for a
  /// token does not grow with the text ahead of it.
  virtual void read(std::size_t row, const std::vector<std::string>& tokens) = 0;
  /// Tokens of a row that were read.
  virtual std::size_t size(std::size_t row) const = 0;
  /// The encoding's inputs() of the tokens from first[b] on of rows b = 0, 1, ...: (B, longest rest, ...) each, what
  /// stands past a row's end is "none". Throws Error where first[b] lies behind the row's end.
  virtual NamedTensors inputs(const std::vector<std::int64_t>& first) const = 0;
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

  /// Throws what inputs() would throw of an encoding whatever the texts: no parser for its mode, a domain that no gate
  /// tells of, no tree. `other_texts` is whether texts that no treebank brings will be asked for, `bare_texts` whether
  /// some of these have no tree of their own.
  virtual void check(const Encoding& /*encoding*/, bool /*other_texts*/, bool /*bare_texts*/ = false) const {}

  /// Reads the documents of a corpus that training will draw from, so that their parses are no part of its time.
  virtual void prepare(const Encoding& /*encoding*/, const Corpus& /*corpus*/) const {}

  /// What a report must say of an encoding's syntax (sipe.md 4), as counted so far: {"mode", "leaks", "prior",
  /// "parser", "gate", "domains", "coverage", ...}, see docs/syntax.md; null where nothing is known.
  virtual Json account(const Encoding& /*encoding*/) const { return nullptr; }

  /// The hash of the structure embedder that makes syntax.vectors; empty without one.
  virtual std::string embedder() const { return ""; }

  /// The same inputs for texts that grow, as inputs() would give them for the whole texts. Throws Refusal where a
  /// token's inputs change with what comes behind it, and for a feed that only knows texts that are there.
  virtual std::unique_ptr<SyntaxStream> stream(const Encoding& encoding) const;
};

/// What generation asks for its per-token inputs (GenerateOptions::inputs), tokens being those of `reader`. The stream
/// is used from its start; rows only grow.
std::function<NamedTensors(const std::vector<std::vector<std::int64_t>>& rows, const std::vector<std::int64_t>& first)>
stream_inputs(std::shared_ptr<SyntaxStream> stream, std::shared_ptr<const Tokenizer> reader);

/// For people, of SyntaxFeed::account: a line a domain that has no syntax, or has it unverified. Empty without any.
std::vector<std::string> gate_lines(const Json& account);

/// Makes the feed of a comparison from its data, which outlive it.
using SyntaxFeedFactory = std::function<std::shared_ptr<const SyntaxFeed>(const LmData& data)>;

/// The row of `count` tokens of a corpus from a place on, with their text where there is some.
FeedRow window_row(const Corpus& corpus, const Window& window, std::size_t count);

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
