// Parts of networks that the native parsers share: named weights, words as vectors, LSTM layers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "torsor/base/random.h"
#include "torsor/syntax/vocabulary.h"
#include "torsor/train/optimizer.h"

namespace torsor::syntax {

inline constexpr double kNever = -1e9;               ///< a score: finite, so that a softmax over nothing else exists
inline constexpr std::int64_t kIgnored = -100;       ///< a target that no loss counts
inline constexpr std::int64_t kReadingWords = 4000;  ///< of a batch when parsing: small enough to stay in the caches

/// The tensors of a network by name: drawn from a seed, each from a stream of its own named after it, or taken from a
/// file. float32 on the CPU.
class Weights {
 public:
  explicit Weights(std::uint64_t seed) : seed_(seed) {}
  /// `source` names the file in messages.
  Weights(std::map<std::string, at::Tensor> loaded, std::string source);

  /// The tensor `name`: uniform in [-limit, limit] when it is drawn (0 = zeros). Throws Error when the file has none of
  /// this shape.
  at::Tensor take(const std::string& name, const std::vector<std::int64_t>& shape, double limit);
  /// Limit sqrt(6 / (rows + columns)) for a matrix that is multiplied from the right (Glorot and Bengio 2010).
  at::Tensor matrix(const std::string& name, std::int64_t rows, std::int64_t columns);

  /// Throws Error when the file holds tensors that nobody took.
  void finish() const;

  /// All tensors in the order of taking; biases do not decay.
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  std::map<std::string, at::Tensor> tensors() const;

 private:
  std::uint64_t seed_ = 0;
  bool loaded_ = false;
  std::map<std::string, at::Tensor> file_;
  std::string source_;
  std::vector<NamedParameter> parameters_;
};

/// Sizes of the part that turns words into vectors.
struct WordSizes {
  std::int64_t word = 100;      ///< width of a word's own vector
  std::int64_t character = 32;  ///< width of a character's vector
  std::int64_t spelling = 100;  ///< width of what is read from the characters
  std::int64_t width() const { return word + spelling; }
};

/// Sentences as numbers, padded to the longest.
struct WordBatch {
  at::Tensor words;      ///< (B, T) int64
  at::Tensor spellings;  ///< (U, L) int64: the characters of each different form
  at::Tensor forms;      ///< (B, T) int64: rows of `spellings`
  at::Tensor reversed;   ///< (B * T) int64: flat places of each sentence's words in backward order
  at::Tensor mask;       ///< (B, T) bool: true where a word stands
};

/// Word vectors beside what a convolution over the characters finds (kernel 3, ReLU, maximum over the places).
class WordEncoder {
 public:
  WordEncoder() = default;
  WordEncoder(std::shared_ptr<const Vocabulary> vocabulary, const WordSizes& sizes, Weights& weights);

  /// The batch of sentences of forms; `root` puts the artificial root before each. With `dropping`, a word of c
  /// occurrences is read as unknown with probability 1/4 / (1/4 + c) (Kiperwasser and Goldberg 2016).
  WordBatch batch(const std::vector<const std::vector<std::string>*>& sentences, bool root, Random* dropping) const;

  /// (B, T, width)
  at::Tensor operator()(const WordBatch& batch) const;

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  at::Tensor words_, characters_, kernel_, kernel_bias_;
};

/// One direction of one LSTM layer.
struct Lstm {
  at::Tensor input, hidden, bias;  ///< (4H, I), (4H, H), (4H); gates in, forget, cell, out

  Lstm() = default;
  Lstm(const std::string& name, std::int64_t inputs, std::int64_t width, Weights& weights);

  std::int64_t width() const { return hidden.size(1); }
  /// (B, T, I) -> (B, T, H) from a state of zeros. `drop` of the weights between outputs and gates are left out, the
  /// same at all places (Merity, Keskar and Socher, "Regularizing and optimizing LSTM language models", ICLR 2018).
  at::Tensor operator()(const at::Tensor& inputs, double drop = 0) const;
  /// One step: (I) and the state (2, H: output and cell) -> the next state.
  at::Tensor step(const at::Tensor& inputs, const at::Tensor& state) const;
};

/// Backward and forward beside each other: (B, T, I) -> (B, T, 2H). Padding does not reach the words.
at::Tensor both_ways(const Lstm& forward, const Lstm& backward, const at::Tensor& inputs, const WordBatch& batch);

/// Drops the same channels at all places of a sentence: (B, T, C). `rate` 0 gives `x` itself.
at::Tensor drop_channels(const at::Tensor& x, double rate);

/// An affine map, with the rectifier max(x, 0.1 x) behind it when `bent`.
struct Affine {
  at::Tensor weight, bias;  ///< (out, in), (out)

  Affine() = default;
  Affine(const std::string& name, std::int64_t inputs, std::int64_t outputs, Weights& weights);
  at::Tensor operator()(const at::Tensor& x) const;
  at::Tensor bent(const at::Tensor& x) const;
};

}  // namespace torsor::syntax
