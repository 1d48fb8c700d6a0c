#include "torsor/lab/glue.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "torsor/base/file.h"
#include "torsor/lab/evaluate.h"

namespace torsor {
namespace {

void cut(std::vector<GlueExample>& examples, std::int64_t most) {
  if (most > 0 && static_cast<std::int64_t>(examples.size()) > most) examples.resize(static_cast<std::size_t>(most));
}

// The examples of one step: a function of (seed, step). Every epoch has an order of its own.
std::vector<const GlueExample*> batch_of(const std::vector<GlueExample>& examples, std::int64_t batch,
                                         const std::string& name, std::uint64_t seed, std::int64_t step) {
  std::vector<const GlueExample*> chosen;
  const auto count = static_cast<std::int64_t>(examples.size());
  std::int64_t epoch = -1;
  std::vector<std::size_t> order(examples.size());
  for (std::int64_t n = step * batch; n < (step + 1) * batch; ++n) {
    if (n / count != epoch) {
      epoch = n / count;
      std::iota(order.begin(), order.end(), std::size_t{0});
      Random random(seed, stream_of("glue/" + name) + static_cast<std::uint64_t>(epoch));
      random.shuffle(order);
    }
    chosen.push_back(&examples[order[static_cast<std::size_t>(n % count)]]);
  }
  return chosen;
}

// What the model answers, one row an example.
at::Tensor answers(const Encoder& encoder, const std::vector<GlueExample>& examples, std::int64_t length,
                   at::ScalarType dtype, const SyntaxFeed* feed, const std::atomic<bool>* stop) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  const auto rows = static_cast<std::size_t>(std::max<std::int64_t>(1, kTokensAtOnce / length));
  for (std::size_t first = 0; first < examples.size(); first += rows) {
    if (stop != nullptr && stop->load()) throw Interrupted("stopped during evaluation");
    std::vector<const GlueExample*> some;
    for (std::size_t n = first; n < std::min(first + rows, examples.size()); ++n) some.push_back(&examples[n]);
    const EncoderBatch batch = glue_rows(some, length, encoder.encoding(), feed);
    parts.push_back(encoder.class_logits(encoder.hidden(batch, false, dtype), false, dtype).to(at::kDouble));
  }
  return at::cat(parts);
}

GlueScore score(const GlueData& data, const std::vector<GlueExample>& examples, const at::Tensor& logits) {
  if (glue_info(data.task).regression()) {
    const at::Tensor values = logits.squeeze(1).contiguous();
    std::vector<double> gold;
    for (const GlueExample& example : examples) gold.push_back(example.score);
    const double* predicted = values.const_data_ptr<double>();
    return score_glue(data.task, std::vector<double>(predicted, predicted + values.numel()), gold);
  }
  const at::Tensor best = logits.argmax(1).contiguous();
  std::vector<std::int64_t> gold;
  for (const GlueExample& example : examples) gold.push_back(example.label);
  const std::int64_t* predicted = best.const_data_ptr<std::int64_t>();
  return score_glue(data.task, std::vector<std::int64_t>(predicted, predicted + best.numel()), gold);
}

}  // namespace

EncoderBatch glue_rows(const std::vector<const GlueExample*>& examples, std::int64_t length, const Encoding& encoding,
                       const SyntaxFeed* feed) {
  if (length < 5) throw UsageError(str("glue: rows hold at least 5 tokens, found ", length));
  struct Row {
    std::vector<std::int64_t> tokens, segments;
    FeedRow fed;
  };
  std::vector<Row> rows;
  std::size_t longest = 0;
  for (const GlueExample* example : examples) {
    Row row;
    const bool pair = !example->second.empty();
    std::string first = example->first, second = example->second;
    const auto room = static_cast<std::size_t>(length) - (pair ? 3 : 2);
    while (first.size() + second.size() > room) (first.size() >= second.size() ? first : second).pop_back();
    const auto special = [&](std::int64_t token, std::int64_t segment) {
      row.tokens.push_back(token);
      row.segments.push_back(segment);
      row.fed.tokens.push_back({row.fed.text.size(), row.fed.text.size()});
    };
    const auto sentence = [&](const std::string& text, std::int64_t segment) {
      row.fed.parts.push_back({row.fed.text.size(), row.fed.text.size() + text.size()});
      for (const char c : text) {
        row.tokens.push_back(static_cast<unsigned char>(c));
        row.segments.push_back(segment);
        row.fed.tokens.push_back({row.fed.text.size(), row.fed.text.size() + 1});
        row.fed.text += c;
      }
      special(EncoderTokens::kSeparator, segment);
    };
    special(EncoderTokens::kFirst, 0);
    sentence(first, 0);
    if (pair) sentence(second, 1);
    longest = std::max(longest, row.tokens.size());
    rows.push_back(std::move(row));
  }
  const auto count = static_cast<std::int64_t>(rows.size()), width = static_cast<std::int64_t>(longest);
  EncoderBatch batch;
  std::vector<std::int64_t> tokens, segments, documents;
  std::vector<FeedRow> fed;
  for (Row& row : rows) {
    documents.insert(documents.end(), row.tokens.size(), 0);
    row.tokens.resize(longest, EncoderTokens::kPadding);
    row.segments.resize(longest, 0);
    documents.resize(tokens.size() + longest, -1);
    tokens.insert(tokens.end(), row.tokens.begin(), row.tokens.end());
    segments.insert(segments.end(), row.segments.begin(), row.segments.end());
    fed.push_back(std::move(row.fed));
  }
  batch.tokens = at::tensor(tokens, at::kLong).view({count, width});
  batch.segments = at::tensor(segments, at::kLong).view({count, width});
  batch.documents = at::tensor(documents, at::kLong).view({count, width});
  batch.named = feed_rows(feed, encoding, fed, width);
  return batch;
}

GlueTaskResult fine_tune(const Encoder& pretrained, const GlueData& data, const FineTunePlan& plan, std::uint64_t seed,
                         std::int64_t length, const std::string& dtype_name, const RunControl& control,
                         const SyntaxFeed* feed) {
  const GlueInfo& info = glue_info(data.task);
  const at::ScalarType dtype = dtype_named(dtype_name);
  const std::int64_t labels = info.regression() ? 1 : static_cast<std::int64_t>(info.labels.size());
  Encoder encoder = pretrained.with_labels(labels, seed);
  encoder.require_gradients();
  RunPlan run;
  run.batch = plan.batch;
  run.length = length;
  run.learning_rate = plan.learning_rate;
  run.weight_decay = plan.weight_decay;
  run.seed = seed;
  const double all = plan.epochs * static_cast<double>(data.train.size()) / static_cast<double>(plan.batch);
  run.steps = std::max<std::int64_t>(1, std::llround(std::ceil(all)));
  if (plan.most_steps > 0) run.steps = std::min(run.steps, plan.most_steps);
  run.warmup_steps = std::llround(plan.warmup * static_cast<double>(run.steps));
  make_directories(control.folder);
  TrainOptions options = train_options(run, control);
  options.configuration = {{"task", data.name},   {"layout", info.name}, {"examples", data.train.size()},
                           {"batch", plan.batch}, {"length", length},    {"dtype", dtype_name}};
  std::vector<NamedParameter> parameters;
  for (const ModelParameter& parameter : encoder.parameters())
    parameters.push_back({parameter.name, parameter.tensor, parameter.decay});
  GlueTaskResult result;
  result.losses = train(std::move(parameters), options, [&](std::int64_t step, std::int64_t) {
                    const auto chosen = batch_of(data.train, plan.batch, data.name, seed, step);
                    const EncoderBatch batch = glue_rows(chosen, length, encoder.encoding(), feed);
                    const at::Tensor logits = encoder.class_logits(encoder.hidden(batch, true, dtype), true, dtype);
                    if (info.regression()) {
                      std::vector<float> gold;
                      for (const GlueExample* one : chosen) gold.push_back(static_cast<float>(one->score));
                      return at::mse_loss(logits.squeeze(1), at::tensor(gold));
                    }
                    std::vector<std::int64_t> gold;
                    for (const GlueExample* one : chosen) gold.push_back(one->label);
                    return at::cross_entropy_loss(logits, at::tensor(gold, at::kLong));
                  }).losses;
  save_encoder(control.folder, encoder, {{"name", data.name}, {"layout", info.name}, {"labels", info.labels}},
               feed != nullptr ? feed->embedder() : std::string());
  result.name = data.name;
  result.train = data.train.size();
  result.examples = data.dev.size();
  result.dev = score(data, data.dev, answers(encoder, data.dev, length, dtype, feed, control.stop));
  if (!data.dev_mismatched.empty())
    result.dev_mismatched =
        score(data, data.dev_mismatched, answers(encoder, data.dev_mismatched, length, dtype, feed, control.stop));
  return result;
}

std::vector<GlueData> load_glue_tasks(const std::string& folder, const std::vector<std::string>& tasks,
                                      const FineTunePlan& plan) {
  std::vector<std::string> wanted = tasks;
  if (wanted.empty())
    for (std::size_t t = 0; t < kGlueTasks; ++t)
      if (const std::string& name = glue_info(static_cast<GlueTask>(t)).name;
          std::filesystem::is_directory(std::filesystem::path(folder) / name))
        wanted.push_back(name);
  if (wanted.empty())
    throw Error(str("glue: '", folder, "' holds no folder of a GLUE task; name others with --glue-tasks"));
  std::vector<GlueData> all;
  for (const std::string& one : wanted) {
    const std::size_t colon = one.rfind(':');
    GlueData data;
    data.name = one.substr(0, colon);
    data.task = glue_task_of(colon == std::string::npos ? one : one.substr(colon + 1));
    if (colon == std::string::npos) data.name = glue_info(data.task).name;
    for (const GlueData& other : all)
      if (other.name == data.name) throw UsageError(str("glue: the task ", data.name, " is given twice"));
    const std::string path = folder + "/" + data.name;
    data.train = load_glue(data.task, GlueSplit::Train, path);
    data.dev = load_glue(data.task, GlueSplit::Dev, path);
    const std::string mismatched = path + "/dev_mismatched.tsv";
    if (data.task == GlueTask::MNLI && std::filesystem::exists(mismatched))
      data.dev_mismatched = load_glue(data.task, GlueSplit::DevMismatched, path);
    cut(data.train, plan.most_train);
    cut(data.dev, plan.most_dev);
    cut(data.dev_mismatched, plan.most_dev);
    all.push_back(std::move(data));
  }
  return all;
}

}  // namespace torsor
