// Training of f_syn on a treebank: arcs of half the words are hidden and have to be told from those of the others.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "torsor/base/progress.h"
#include "torsor/syntax/arc_embedder.h"
#include "torsor/syntax/conllu.h"

namespace torsor::syntax {

/// A sentence as it is trained on.
struct ArcSentence {
  std::vector<std::string> forms;
  std::vector<int> heads;                ///< from 1, 0 = the root
  std::vector<std::uint16_t> relations;  ///< relation_id
  std::vector<ArcFeatures> arcs;         ///< by word
};

/// Sentences of a treebank with their arcs: of the whole tree, or with `incremental` what is known at each word when
/// arc-eager transitions without look-ahead go to the projectivised tree. Sentences without words are left out. Throws
/// Error for a sentence whose heads are no tree.
std::vector<ArcSentence> arc_sentences(const std::vector<Sentence>& sentences, bool incremental);

/// A run; the first block decides the result. The defaults are those of sipe.md 1.7.
struct ArcTraining {
  std::int64_t epochs = 20;   ///< passes at most
  std::int64_t patience = 3;  ///< ends after as many passes without a lower loss on the development set
  std::int64_t batch = 32;    ///< sentences of a step
  double learning_rate = 1e-3;
  std::int64_t warmup_steps = 200;
  double hidden = 0.5;    ///< share of the words whose arcs are hidden
  bool shuffled = false;  ///< a control: each sentence's arcs stand at random words, so they tell nothing
  std::uint64_t seed = 0;

  std::string folder;  ///< where the best network so far, state and log are kept; empty = nothing is written
  bool resume = false;
  const std::atomic<bool>* stop = nullptr;
  const Progress::Options* progress = nullptr;
  std::function<void(const std::string&)> on_message;  ///< a line for people after each pass
};

/// How well hidden arcs are told, on a set whose hidden words are the same at every call. These are no accuracies of a
/// parser: the arcs of the other words are given.
struct ArcScore {
  double loss = 0;  ///< mean nats of head and relation of a hidden word
  double uas = 0, las = 0;
  std::int64_t words = 0;  ///< hidden ones
};

struct TrainedArcs {
  ArcEmbedder embedder;     ///< of the pass with the lowest loss on the development set
  ArcScore development;     ///< of that pass
  std::int64_t passes = 0;  ///< that were made
};

/// Trains an embedder together with a context that is thrown away afterwards, so that it cannot leak into a model: one
/// layer of attention in both directions (2 heads, width 64) over s, words and places, a biaffine product for heads and
/// a bilinear one for relations (sipe.md 1.7). Throws UsageError for options out of range, Error for sets without
/// words, and as train().
TrainedArcs train_arcs(const std::vector<ArcSentence>& sentences, const std::vector<ArcSentence>& development,
                       const ArcEmbedderSizes& sizes, const ArcTraining& training);

}  // namespace torsor::syntax
