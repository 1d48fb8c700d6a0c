#include "torsor/syntax/native.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

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

TrainResult train_native(const Weights& weights, const BatchPlan& plan, const NativeTraining& training,
                         const Json& configuration,
                         const std::function<at::Tensor(const std::vector<std::size_t>&, Random& drops)>& loss_of,
                         const std::function<std::string()>& score) {
  TrainOptions options;
  options.steps = plan.steps();
  options.learning_rate = training.learning_rate;
  options.warmup_steps = std::min<std::int64_t>(50, plan.steps());
  options.final_ratio = 0.01;
  options.adamw.weight_decay = 0.01;
  options.adamw.epsilon = 1e-8;
  options.clip_norm = 5;
  options.seed = training.seed;
  options.tokens_per_step = training.batch_words;
  options.configuration = configuration;
  options.save_every = training.save_every;
  options.resume = training.resume;
  options.stop = training.stop;
  options.progress = training.progress;
  std::optional<FolderClaim> claim;
  if (!training.folder.empty()) {
    make_directories(training.folder);
    claim.emplace(training.folder);
    options.state = training.folder + "/state.safetensors";
    options.log = training.folder + "/log.jsonl";
    std::error_code ignored;
    if (!training.resume) std::filesystem::remove(options.log, ignored);
  }
  const auto require = [&](bool required) {
    for (const NamedParameter& parameter : weights.parameters()) {
      at::Tensor tensor = parameter.tensor;
      tensor.requires_grad_(required);
    }
  };
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) {
    const std::int64_t pass = plan.pass_ended(report.step);
    if (pass == 0 || !training.on_message) return;
    require(false);
    const std::string line = score ? score() : "";
    require(true);
    training.on_message(str("pass ", pass, " of ", training.epochs, ", ", static_cast<std::int64_t>(report.seconds),
                            " s: loss ", report.loss, line.empty() ? "" : ", " + line));
  };
  require(true);
  const auto loss = [&](std::int64_t step, std::int64_t) {
    Random drops(random_at(training.seed, stream_of("drops"), static_cast<std::uint64_t>(step)));
    return loss_of(plan.at(step), drops);
  };
  try {
    const TrainResult result = train(weights.parameters(), options, loss, callbacks);
    require(false);
    return result;
  } catch (...) {
    require(false);
    throw;
  }
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
