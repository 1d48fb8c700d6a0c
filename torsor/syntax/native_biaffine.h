// The native parser of whole sentences: LSTM layers in both directions, arcs and labels by biaffine products
// (Dozat and Manning, "Deep biaffine attention for neural dependency parsing", ICLR 2017).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "torsor/syntax/native.h"
#include "torsor/syntax/network.h"
#include "torsor/syntax/treebank.h"

namespace torsor::syntax {

/// Sizes of the network.
struct BiaffineSizes {
  WordSizes words;
  std::int64_t lstm = 200;  ///< width of one direction of a layer
  std::int64_t layers = 3;  ///< at least 1; the tags are read behind the first and shown to the second
  std::int64_t arc = 200;   ///< width in which heads and dependents meet
  std::int64_t label = 80;  ///< the same for the labels
};

/// The network: sentences of words to trees with tags.
class BiaffineNetwork {
 public:
  BiaffineNetwork(std::shared_ptr<const Vocabulary> vocabulary, const BiaffineSizes& sizes, Weights weights);
  /// Of a model folder of kind "biaffine". Throws Error.
  explicit BiaffineNetwork(const NativeModel& model);

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const Weights& weights() const { return weights_; }
  Json sizes_to_json() const;

  /// Trees of sentences of forms; relations are those of the vocabulary, "root" at the root and only there. No
  /// gradients. An empty sentence gives an empty tree.
  std::vector<TaggedTree> parse(const std::vector<std::vector<std::string>>& sentences) const;

  /// The mean loss of some trees with dropout: arcs + labels + half of each tag's.
  at::Tensor loss(const std::vector<TaggedTree>& trees, const std::vector<std::size_t>& chosen, double dropout,
                  Random& drops) const;

 private:
  struct Scores {
    at::Tensor upos, xpos;       ///< (B, T, tags)
    at::Tensor arcs;             ///< (B, T, T): dependent, head; minus infinity-like where no head can be
    at::Tensor dependent, head;  ///< (B, T, label width)
  };

  Scores score(const WordBatch& batch, double dropout) const;
  /// (B, T, relations) for each word under the head given by `heads` (B, T).
  at::Tensor labels(const Scores& scores, const at::Tensor& heads) const;
  void parse_batch(const std::vector<std::vector<std::string>>& sentences, const std::vector<std::size_t>& chosen,
                   std::vector<TaggedTree>& trees) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  BiaffineSizes sizes_;
  Weights weights_;
  WordEncoder encoder_;
  std::vector<Lstm> forward_, backward_;
  Affine upos_, xpos_, arc_dependent_, arc_head_, label_dependent_, label_head_, label_alone_;
  at::Tensor arc_product_, arc_alone_, label_product_;
};

/// Trains a network on `trees`; `development` (may be empty) is parsed after each pass. With a folder in `training`,
/// the model is written there at the end, with `tokenizer` in it. Throws as train().
BiaffineNetwork train_biaffine(const std::vector<TaggedTree>& trees, const std::vector<TaggedTree>& development,
                               const BiaffineSizes& sizes, const NativeTraining& training, const Json& tokenizer);

}  // namespace torsor::syntax
