// A corpus and a model small enough that a test trains them in a moment.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <functional>
#include <map>
#include <sstream>
#include <string>

#include "torsor/base/progress.h"
#include "torsor/base/random.h"
#include "torsor/lab/run.h"

namespace torsor::testing {

/// `bytes` lower-case letters and spaces: words of a few letters that repeat.
inline std::string tiny_text(std::size_t bytes, std::uint64_t seed = 1) {
  Random random(seed, 0);
  std::string text;
  while (text.size() < bytes) {
    const std::uint64_t word = random.below(40);
    for (std::uint64_t i = 0; i < 2 + word % 5; ++i) text += static_cast<char>('a' + (word * 7 + i * (word + 3)) % 26);
    text += ' ';
  }
  text.resize(bytes);
  return text;
}

inline ModelConfig tiny_config(const std::string& encoding = "none", std::int64_t train_length = 16) {
  ModelConfig config;
  config.width = 16;
  config.layers = 1;
  config.heads = 2;
  config.encoding = encoding;
  config.train_length = train_length;
  config.complete();
  return config;
}

/// The model with tensors replaced: `edit` is asked for every tensor of a model drawn from `seed`.
inline Decoder edited_model(const ModelConfig& config, std::uint64_t seed,
                            const std::function<void(const std::string&, at::Tensor&)>& edit) {
  at::NoGradGuard no_grad;
  const Decoder drawn(config, seed);
  std::map<std::string, at::Tensor> weights;
  for (const ModelParameter& parameter : drawn.parameters()) {
    at::Tensor tensor = parameter.tensor.clone();
    edit(parameter.name, tensor);
    weights[parameter.name] = tensor;
  }
  return Decoder(config, weights, "test");
}

inline RunPlan tiny_plan(const std::string& encoding = "none") {
  RunPlan plan;
  plan.encoding = encoding;
  plan.model = tiny_config();
  plan.model.train_length = 0;
  plan.length = 16;
  plan.batch = 2;
  plan.steps = 3;
  plan.warmup_steps = 1;
  return plan;
}

/// A results.json without what may differ from one time to the next.
inline Json timeless(Json document) {
  document.erase("machine");
  for (Json& run : document["runs"]) {
    for (const char* key : {"peak_memory_bytes", "decode_tokens_per_second"}) run.erase(key);
    for (const char* key : {"seconds", "tokens_per_second"}) run["train"].erase(key);
  }
  return document;
}

/// A reporter that writes nowhere visible and calls `seen` with the number of reports so far, once a finished step.
class StepWatch {
 public:
  explicit StepWatch(std::function<void(int)> seen) : seen_(std::move(seen)) {}

  Progress::Options options() {
    Progress::Options options{.out = out_};
    // The reporter asks for the time when it is made and at every step.
    options.clock = [this, calls = 0]() mutable {
      if (calls > 0) seen_(calls);
      return static_cast<double>(calls++);
    };
    return options;
  }

 private:
  std::ostringstream out_;
  std::function<void(int)> seen_;
};

}  // namespace torsor::testing
