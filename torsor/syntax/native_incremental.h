// The native parser that reads from left to right: an LSTM over the words so far and a classifier of arc-eager
// transitions without look-ahead (arc_eager.h). Nothing that it says is ever taken back, and all of it depends on the
// words read so far alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "torsor/syntax/arc_eager.h"
#include "torsor/syntax/native.h"
#include "torsor/syntax/network.h"
#include "torsor/syntax/parser.h"
#include "torsor/syntax/treebank.h"

namespace torsor::syntax {

/// Sizes of the network.
struct IncrementalSizes {
  WordSizes words;
  std::int64_t lstm = 300;    ///< width of a layer
  std::int64_t layers = 2;    ///< at least 1
  std::int64_t hidden = 200;  ///< of the classifier
};

/// What the classifier looks at: words by their places (0 = none, 1 = the root, i + 1 = word i) and small facts.
struct TransitionFeatures {
  static constexpr std::size_t kWords = 7;  ///< stack 0, 1, 2; front; leftmost of front; leftmost, rightmost of stack 0
  static constexpr std::size_t kFacts = 6;  ///< three labels, distance, depth of the stack, what is known and done
  std::array<std::int16_t, kWords> words{};
  std::array<std::int16_t, kFacts> facts{};  ///< rows of one table
  std::uint8_t allowed = 0;                  ///< bit a: Action a is possible

  /// Rows of the table of facts for so many relations.
  static std::int64_t rows(std::int64_t relations);
  /// Of a state that waits for an action; the labels in it are numbers of relations.
  TransitionFeatures(const ArcEager& state, std::int64_t relations);
};

class IncrementalNetwork {
 public:
  IncrementalNetwork(std::shared_ptr<const Vocabulary> vocabulary, const IncrementalSizes& sizes, Weights weights);
  /// Of a model folder of kind "incremental". Throws Error.
  explicit IncrementalNetwork(const NativeModel& model);

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const Weights& weights() const { return weights_; }
  Json sizes_to_json() const;

  /// A tree with the static oracle's way to it.
  struct Example {
    const TaggedTree* tagged;
    std::vector<TransitionFeatures> features;
    std::vector<std::int64_t> actions;
    std::vector<std::int64_t> labels;  ///< of the arc that the action makes: relation, + relations() for right arcs
  };
  /// The tree is made projective first.
  Example example(const TaggedTree& tagged) const;

  /// The mean loss of some examples with dropout: actions + labels + ends of sentences + half of each tag's.
  at::Tensor loss(const std::vector<Example>& examples, const std::vector<std::size_t>& chosen, double dropout,
                  Random& drops) const;

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
  /// (N, 4), (N, 2 relations) of states: `slots` (N, kWords) are rows of `places`.
  std::pair<at::Tensor, at::Tensor> classify(const at::Tensor& places, const at::Tensor& slots,
                                             const at::Tensor& facts) const;
  at::Tensor project(const at::Tensor& outputs) const;
  /// Takes the allowed action of the highest score: (4) and (2 relations) numbers. The arc that it makes, if any.
  std::optional<WordArc> take_best(ArcEager& transitions, std::uint8_t allowed, const float* actions,
                                   const float* labels) const;
  void parse_batch(const std::vector<std::vector<std::string>>& sentences, const std::vector<std::size_t>& chosen,
                   std::vector<TaggedTree>& trees) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  IncrementalSizes sizes_;
  Weights weights_;
  WordEncoder encoder_;
  std::vector<Lstm> layers_;
  Affine upos_, xpos_, end_, actions_, labels_;
  at::Tensor no_word_;  // (2, width): what stands for none and for the root
  at::Tensor slots_;    // (kWords * hidden, width)
  at::Tensor facts_;    // (rows, hidden)
  at::Tensor bias_;     // (hidden)
};

/// Trains a network; as train_biaffine. Where the sentences are given, the end of each is known when it is parsed.
std::shared_ptr<const IncrementalNetwork> train_incremental(const std::vector<TaggedTree>& trees,
                                                            const std::vector<TaggedTree>& development,
                                                            const IncrementalSizes& sizes,
                                                            const NativeTraining& training, const Json& tokenizer);

/// A reader with the network. Sentences end where the network says so, and after `most_words` words.
class NativeWordParser final : public WordParser {
 public:
  explicit NativeWordParser(std::shared_ptr<const IncrementalNetwork> network, std::size_t most_words = 200);

  void reset() override;
  WordStep read(const std::string& form) override;
  void end_sentence() override;
  std::size_t words() const override { return history_.size(); }
  /// Reads the present sentence again up to there: the same steps, to the bit.
  void roll_back(std::size_t words) override;
  std::unique_ptr<WordParser> fork() const override { return std::make_unique<NativeWordParser>(*this); }

 private:
  std::shared_ptr<const IncrementalNetwork> network_;
  std::size_t most_words_;
  IncrementalNetwork::State state_;
  std::vector<std::string> history_;
  std::vector<std::size_t> starts_;  // words read before each sentence
};

}  // namespace torsor::syntax
