// The native parser that reads from left to right: an LSTM over the words so far and a classifier of arc-eager
// transitions without look-ahead (arc_eager.h). Nothing that it says is ever taken back, and all of it depends on the
// words read so far alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "torsor/syntax/arc_eager.h"
#include "torsor/syntax/native.h"
#include "torsor/syntax/network.h"
#include "torsor/syntax/parser.h"
#include "torsor/syntax/transition_features.h"
#include "torsor/syntax/treebank.h"

namespace torsor::syntax {

/// Sizes of the network.
struct IncrementalSizes {
  WordSizes words;
  std::int64_t lstm = 400;    ///< width of a layer
  std::int64_t layers = 2;    ///< at least 1
  std::int64_t hidden = 300;  ///< of the classifier
  /// 1 = the features of the first models (folders without this number); 2 = all of them (transition_features.h), and
  /// the states also learn the next word's tag and the relation and side of the head, known or not.
  std::int64_t design = 2;
};

class IncrementalNetwork {
 public:
  IncrementalNetwork(std::shared_ptr<const Vocabulary> vocabulary, const IncrementalSizes& sizes, Weights weights);
  /// Of a model folder of kind "incremental". Throws Error.
  explicit IncrementalNetwork(const NativeModel& model);

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const Weights& weights() const { return weights_; }
  Json sizes_to_json() const;

  /// A tree as it is learned: made projective, in numbers.
  struct Example {
    const TaggedTree* tagged;
    std::vector<int> heads;
    std::vector<std::int64_t> relations;
  };
  Example example(const TaggedTree& tagged) const;

  /// The mean loss of some examples with dropout, over the states that the sentences are led through: with probability
  /// `explore` (in [0, 1]) the next action is drawn from the network's own, else it is the one of highest score that
  /// costs nothing (action_costs). Learned are, in every state, the sum over the probabilities of all actions that cost
  /// nothing and the label of the arc that is right there; for every word its tags, the end of the sentence, and what
  /// `design` names.
  at::Tensor loss(const std::vector<Example>& examples, const std::vector<std::size_t>& chosen, double dropout,
                  double explore, Random& drops) const;

  /// What has been read of a sentence. A copy goes on independently.
  struct State {
    ArcEager transitions;
    std::vector<at::Tensor> layers;  ///< (2, width) each: output and cell
    at::Tensor places;               ///< (words + 2, kWords * hidden): what each place gives to each slot
  };
  State start() const;
  /// Reads the next word: which arcs it brings, its tag, and whether it ends the sentence. No gradients.
  WordStep read(State& state, const std::string& form) const;
  /// Trees of sentences whose ends are given; what is pending at an end is repaired (repair.h). Many at a time, and so
  /// quicker than read(), with sums in another order: a close decision may fall the other way.
  std::vector<TaggedTree> parse(const std::vector<std::vector<std::string>>& sentences) const;

 private:
  /// Takes an action in the state of sentence `row` that waits for one: (4) and (2 relations) scores.
  using Take = std::function<void(std::size_t row, ArcEager& state, const TransitionFeatures& features,
                                  const float* actions, const float* labels)>;

  /// (B, T, width): what the layers say of each word; `dropout` 0 when reading.
  at::Tensor outputs(const WordBatch& batch, double dropout) const;
  /// (N, width) -> (N, words of the features * hidden)
  at::Tensor project(const at::Tensor& outputs) const;
  /// (N, hidden) of states: `slots` (N, words of the features) are rows of `places`.
  at::Tensor combine(const at::Tensor& places, const at::Tensor& slots, const at::Tensor& facts) const;
  /// Numbers of a state's features; `first` is the row of the sentence's first word among all words.
  void gather(const TransitionFeatures& features, std::int64_t first, std::vector<std::int64_t>& slots,
              std::vector<std::int64_t>& facts) const;
  /// Leads sentences of `sizes` words from start to end, all together. No gradients.
  void walk(const at::Tensor& places, std::int64_t length, const std::vector<std::size_t>& sizes,
            const Take& take) const;
  /// The best relation of an arc that is no root's.
  std::int64_t best_label(bool left, const float* labels) const;
  /// Takes the allowed action of the highest score. The arc that it makes, if any.
  std::optional<WordArc> take_best(ArcEager& transitions, const TransitionFeatures& features, const float* actions,
                                   const float* labels) const;
  void parse_batch(const std::vector<std::vector<std::string>>& sentences, const std::vector<std::size_t>& chosen,
                   std::vector<TaggedTree>& trees) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  IncrementalSizes sizes_;
  Weights weights_;
  WordEncoder encoder_;
  std::vector<Lstm> layers_;
  Affine upos_, xpos_, end_, next_, role_, actions_, labels_;
  at::Tensor no_word_;  // (2, width): what stands for none and for the root
  at::Tensor slots_;    // (words of the features * hidden, width)
  at::Tensor facts_;    // (rows, hidden)
  at::Tensor bias_;     // (hidden)
};

/// Trains a network; as train_biaffine. Where the sentences are given, the end of each is known when it is parsed.
std::shared_ptr<const IncrementalNetwork> train_incremental(const std::vector<TaggedTree>& trees,
                                                            const std::vector<TaggedTree>& development,
                                                            const IncrementalSizes& sizes,
                                                            const NativeTraining& training, const Json& tokenizer);

}  // namespace torsor::syntax
