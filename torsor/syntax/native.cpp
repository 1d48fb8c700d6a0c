#include "torsor/syntax/native.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <optional>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/hash.h"
#include "torsor/train/state.h"

namespace torsor::syntax {
namespace {

constexpr const char* kFormat = "torsor-parser-1";

/// Cuts `order` into batches of about `words` words.
std::vector<std::vector<std::size_t>> cut(const std::vector<std::size_t>& order,
                                          const std::vector<std::size_t>& lengths, std::int64_t words) {
  std::vector<std::vector<std::size_t>> batches;
  std::size_t longest = 0;
  for (const std::size_t sentence : order) {
    const std::size_t length = std::max(longest, lengths[sentence]);
    // Padding counts: it costs as much as words do.
    if (batches.empty() || length * (batches.back().size() + 1) > static_cast<std::size_t>(words)) {
      batches.emplace_back();
      longest = lengths[sentence];
    } else {
      longest = length;
    }
    batches.back().push_back(sentence);
  }
  return batches;
}

}  // namespace

void check_native_training(const NativeTraining& training) {
  if (training.epochs < 1) throw UsageError(str("epochs must be at least 1, got ", training.epochs));
  if (training.batch_words < 1) throw UsageError(str("batch_words must be at least 1, got ", training.batch_words));
  if (!(training.learning_rate > 0) || !std::isfinite(training.learning_rate))
    throw UsageError(str("learning_rate must be above 0, got ", training.learning_rate));
  if (!(training.dropout >= 0 && training.dropout < 1))
    throw UsageError(str("dropout must lie in [0, 1), got ", training.dropout));
}

BatchPlan::BatchPlan(const std::vector<std::size_t>& lengths, const NativeTraining& training) {
  check_native_training(training);
  if (lengths.empty()) throw Error("training needs sentences, got none");
  for (std::int64_t pass = 0; pass < training.epochs; ++pass) {
    Random random(training.seed, stream_of(str("batches.", pass)));
    // Lengths that are moved by up to a tenth and a word, so that neighbours in the order change.
    std::vector<double> rank(lengths.size());
    for (std::size_t i = 0; i < lengths.size(); ++i)
      rank[i] = static_cast<double>(lengths[i]) * (1 + 0.1 * random.uniform()) + random.uniform();
    std::vector<std::size_t> order(lengths.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return rank[a] > rank[b]; });
    std::vector<std::vector<std::size_t>> batches = cut(order, lengths, training.batch_words);
    random.shuffle(batches);
    for (auto& batch : batches) batches_.push_back(std::move(batch));
    ends_.push_back(steps());
  }
}

std::int64_t BatchPlan::pass_ended(std::int64_t steps) const {
  const auto found = std::lower_bound(ends_.begin(), ends_.end(), steps);
  return found != ends_.end() && *found == steps ? found - ends_.begin() + 1 : 0;
}

std::vector<std::vector<std::size_t>> reading_batches(const std::vector<std::size_t>& lengths, std::int64_t words) {
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return lengths[a] > lengths[b]; });
  return cut(order, lengths, words);
}

std::shared_ptr<const Vocabulary> vocabulary_of(const NativeModel& model) {
  return std::make_shared<const Vocabulary>(
      Vocabulary::from_json(model.vocabulary, model.source + "/config.json: vocabulary"));
}

std::int64_t read_size(JsonObject& object, const char* key) {
  const auto size = object.get<std::int64_t>(key);
  if (size < 1 || size > 100000) object.fail(str(key, " must lie in 1..100000, found ", size));
  return size;
}

WordSizes word_sizes_from_json(JsonObject& object) {
  return {read_size(object, "word"), read_size(object, "character"), read_size(object, "spelling")};
}

Json word_sizes_to_json(const WordSizes& sizes) {
  return {{"word", sizes.word}, {"character", sizes.character}, {"spelling", sizes.spelling}};
}

Attachment attachment(const std::vector<TaggedTree>& gold, const std::vector<TaggedTree>& parsed) {
  if (gold.size() != parsed.size())
    throw Error(str("attachment: expected ", gold.size(), " sentences, got ", parsed.size()));
  Attachment result;
  for (std::size_t s = 0; s < gold.size(); ++s) {
    const Tree &want = gold[s].tree, &have = parsed[s].tree;
    if (want.words != have.words) throw Error(str("attachment: sentence ", s + 1, " has other words"));
    for (std::size_t i = 0; i < want.size(); ++i) {
      const bool head = want.heads[i] == have.heads[i];
      ++result.words;
      result.heads += head;
      result.labelled += head && want.relations[i] == have.relations[i];
    }
  }
  return result;
}

namespace {

/// What stands in a treebank, for the identity of a run.
std::string content_hash(const std::vector<TaggedTree>& trees) {
  Sha256 content;
  for (const TaggedTree& tagged : trees) {
    for (std::size_t i = 0; i < tagged.tree.size(); ++i)
      content.update(str(tagged.tree.words[i], '\t', tagged.upos[i], '\t', tagged.xpos[i], '\t', tagged.tree.heads[i],
                         '\t', tagged.tree.relations[i], '\n'));
    content.update("\n");
  }
  return content.hex();
}

TrainOptions loop_options(const NativeTraining& training, std::int64_t steps) {
  TrainOptions options;
  options.steps = steps;
  options.learning_rate = training.learning_rate;
  options.warmup_steps = std::min<std::int64_t>(50, steps);
  options.final_ratio = 0.01;
  options.adamw.weight_decay = 0.01;
  options.clip_norm = 5;
  options.seed = training.seed;
  options.tokens_per_step = training.batch_words;
  options.save_every = training.save_every;
  options.resume = training.resume;
  options.stop = training.stop;
  options.progress = training.progress;
  return options;
}

void require_gradients(const Weights& weights, bool required) {
  for (const NamedParameter& parameter : weights.parameters()) {
    at::Tensor tensor = parameter.tensor;
    tensor.requires_grad_(required);
  }
}

}  // namespace

void run_native_training(NativeModel model, const std::vector<TaggedTree>& trees,
                         const std::vector<TaggedTree>& development, const Weights& weights,
                         const NativeTraining& training, const SentenceLoss& loss, const SentenceParser& parse) {
  std::vector<std::size_t> lengths;
  for (const TaggedTree& tagged : trees) {
    check_tree(tagged.tree);
    lengths.push_back(tagged.tree.size() + 1);
  }
  const BatchPlan plan(lengths, training);
  TrainOptions options = loop_options(training, plan.steps());
  options.configuration = {{"kind", model.kind},
                           {"sizes", model.sizes},
                           {"epochs", training.epochs},
                           {"batch_words", training.batch_words},
                           {"dropout", training.dropout},
                           {"sentences", trees.size()},
                           {"data_sha256", content_hash(trees)}};
  std::optional<FolderClaim> claim;
  if (!training.folder.empty()) {
    make_directories(training.folder);
    claim.emplace(training.folder);
    options.state = training.folder + "/state.safetensors";
    options.log = training.folder + "/log.jsonl";
    std::error_code ignored;
    if (!training.resume) std::filesystem::remove(options.log, ignored);  // a run that starts anew has its own log
  }
  std::vector<std::vector<std::string>> forms;
  for (const TaggedTree& tagged : development) forms.push_back(tagged.tree.words);
  Json scores = nullptr;  // on the development set after the last pass
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) {
    const std::int64_t pass = plan.pass_ended(report.step);
    const bool last = report.step == plan.steps();
    if (pass == 0 || (!training.on_message && !last)) return;
    char line[160];
    std::snprintf(line, sizeof line, "pass %lld of %lld, %.0f s: loss %.4g", static_cast<long long>(pass),
                  static_cast<long long>(training.epochs), report.seconds, report.loss);
    std::string text = line;
    if (!forms.empty()) {
      require_gradients(weights, false);  // the layers choose their inference path by it
      const Attachment found = attachment(development, parse(forms));
      require_gradients(weights, true);
      std::snprintf(line, sizeof line, ", UAS %.2f, LAS %.2f", 100 * found.uas(), 100 * found.las());
      text += line;
      scores = {{"uas", found.uas()}, {"las", found.las()}, {"words", found.words}};
    }
    if (training.on_message) training.on_message(text);
  };
  require_gradients(weights, true);
  TrainResult result;
  try {
    result = train(
        weights.parameters(), options,
        [&](std::int64_t step, std::int64_t) {
          Random drops(random_at(training.seed, stream_of("drops"), static_cast<std::uint64_t>(step)));
          return loss(plan.at(step), static_cast<double>(step) / static_cast<double>(plan.steps()), drops);
        },
        callbacks);
  } catch (...) {
    require_gradients(weights, false);
    throw;
  }
  require_gradients(weights, false);
  if (training.folder.empty()) return;
  model.training = options.configuration;
  model.training["learning_rate"] = training.learning_rate;
  model.training["seed"] = training.seed;
  model.training["seconds"] = result.seconds;
  model.training["development"] = scores;
  model.tensors = weights.tensors();
  write_native_model(training.folder, model);
}

void write_native_model(const std::string& folder, const NativeModel& model) {
  make_directories(folder);
  save_tensors(folder + "/model.safetensors", model.tensors, {{"format", "pt"}});
  Json json;
  json["format"] = kFormat;
  json["kind"] = model.kind;
  json["sizes"] = model.sizes;
  json["training"] = model.training;
  json["tokenizer"] = model.tokenizer;
  json["vocabulary"] = model.vocabulary;
  write_file_atomic(folder + "/config.json", json_text(json) + "\n");
}

NativeModel read_native_model(const std::string& folder) {
  const std::string config = folder + "/config.json", weights = folder + "/model.safetensors";
  const std::string text = read_file(config);
  const Json json = parse_json(text, config);
  JsonObject object(json, config, JsonObject::Blame::data);
  const auto format = object.get<std::string>("format");
  if (format != kFormat) object.fail(str("expected format ", kFormat, ", found ", format));
  NativeModel model;
  model.kind = object.get<std::string>("kind");
  model.sizes = object.get<Json>("sizes");
  model.training = object.get<Json>("training");
  model.tokenizer = object.get<Json>("tokenizer");
  model.vocabulary = object.get<Json>("vocabulary");
  object.finish();
  model.tensors = load_tensors(weights).tensors;
  model.sha256 = Sha256().update(sha256_hex(text)).update(sha256_hex(MappedFile(weights).bytes())).hex();
  model.source = folder;
  return model;
}

}  // namespace torsor::syntax
