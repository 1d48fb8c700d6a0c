// What the native parsers share around their networks: the training run and the folder of a model.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/base/progress.h"
#include "torsor/base/random.h"
#include "torsor/syntax/network.h"
#include "torsor/train/loop.h"

namespace torsor::syntax {

/// A training run of a native parser. The first block decides the result.
struct NativeTraining {
  std::int64_t epochs = 12;         ///< passes over the treebank; at least 1
  std::int64_t batch_words = 1000;  ///< words of a step, about; at least 1
  double learning_rate = 2e-3;      ///< peak; a tenth of a tenth is left at the end
  double dropout = 0.33;            ///< in [0, 1)
  std::uint64_t seed = 0;

  std::string folder;           ///< where state, log and model are kept; empty = nothing is written
  std::int64_t save_every = 0;  ///< steps between saved states; 0 = only at the end and on a stop
  bool resume = false;          ///< go on from the folder's state
  const std::atomic<bool>* stop = nullptr;
  const Progress::Options* progress = nullptr;
  std::function<void(const std::string&)> on_message;  ///< a line for people after each pass; empty = nobody is told
};

/// Throws UsageError naming the option that is out of range.
void check_native_training(const NativeTraining& training);

/// The steps of a run: which sentences go together. Sentences of about the same length share a batch, in an order and
/// a mixture that are new in every pass.
class BatchPlan {
 public:
  /// `lengths` are the words of each sentence.
  BatchPlan(const std::vector<std::size_t>& lengths, const NativeTraining& training);

  std::int64_t steps() const { return static_cast<std::int64_t>(batches_.size()); }
  const std::vector<std::size_t>& at(std::int64_t step) const { return batches_.at(static_cast<std::size_t>(step)); }
  /// The passes that are complete after `steps` steps, where a pass ends just there; 0 elsewhere.
  std::int64_t pass_ended(std::int64_t steps) const;

 private:
  std::vector<std::vector<std::size_t>> batches_;
  std::vector<std::int64_t> ends_;
};

/// The same mixture for reading: batches of about `words` words, longest first, every sentence once.
std::vector<std::vector<std::size_t>> reading_batches(const std::vector<std::size_t>& lengths, std::int64_t words);

/// The content of a model folder: config.json (format torsor-parser-1) and model.safetensors.
struct NativeModel {
  std::string kind;  ///< "biaffine" or "incremental"
  Json sizes;        ///< of the network
  Json vocabulary;
  Json tokenizer;  ///< null = no raw text
  Json training;   ///< how it was made, for people; read by nobody
  std::map<std::string, at::Tensor> tensors;
  std::string sha256;  ///< over both files, filled in by reading
  std::string source;  ///< the folder, filled in by reading
};

/// Writes both files, weights first. Throws Error.
void write_native_model(const std::string& folder, const NativeModel& model);
/// Throws Error naming the file and what is wrong.
NativeModel read_native_model(const std::string& folder);

/// The vocabulary of a model folder. Throws Error.
std::shared_ptr<const Vocabulary> vocabulary_of(const NativeModel& model);
/// A size of at least 1 and at most 100000 under `key`. Throws Error otherwise.
std::int64_t read_size(JsonObject& object, const char* key);
WordSizes word_sizes_from_json(JsonObject& object);
Json word_sizes_to_json(const WordSizes& sizes);

/// Words whose head, and whose head and relation, agree with the gold tree of the same words.
struct Attachment {
  std::int64_t words = 0, heads = 0, labelled = 0;
  double uas() const { return words > 0 ? static_cast<double>(heads) / static_cast<double>(words) : 0; }
  double las() const { return words > 0 ? static_cast<double>(labelled) / static_cast<double>(words) : 0; }
};
/// Throws Error when the sentences or their words differ.
Attachment attachment(const std::vector<TaggedTree>& gold, const std::vector<TaggedTree>& parsed);

/// `done` is the share of the training's steps that are finished, in [0, 1).
using SentenceLoss = std::function<at::Tensor(const std::vector<std::size_t>& chosen, double done, Random& drops)>;
using SentenceParser = std::function<std::vector<TaggedTree>(const std::vector<std::vector<std::string>>& sentences)>;

/// A whole training: plan, loop, score after each pass, and, with a folder, the model at the end. `model` brings kind,
/// sizes, vocabulary and tokenizer. Throws Error for a tree that is none, and as train().
void run_native_training(NativeModel model, const std::vector<TaggedTree>& trees,
                         const std::vector<TaggedTree>& development, const Weights& weights,
                         const NativeTraining& training, const SentenceLoss& loss, const SentenceParser& parse);

}  // namespace torsor::syntax
