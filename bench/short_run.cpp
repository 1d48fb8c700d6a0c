// A short training run for comparisons with the same model elsewhere: prints the losses and the speed, and leaves the
// first weights and every batch in a safetensors file for the other side to start from.
//
//   short_run ENCODING [--steps N] [--batch B] [--length T] [--width C] [--layers L] [--heads H] [--kv-heads K]
//             [--dump FILE] [--decode N [--prompt P]]
//
// --decode: and how fast N tokens are then generated, one at a time, behind a prompt of P (the length) tokens.
#include <ATen/Parallel.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <vector>

#include "torsor/base/error.h"
#include "torsor/base/memory.h"
#include "torsor/data/batches.h"
#include "torsor/data/grammar.h"
#include "torsor/lab/run.h"
#include "torsor/model/generate.h"
#include "torsor/train/state.h"

namespace {

int run(int argc, char** argv) {
  using namespace torsor;
  std::map<std::string, std::string> options;
  if (argc < 2)
    throw UsageError("usage: short_run ENCODING [--steps N] [--batch B] [--length T] [--width C] ... [--dump FILE]");
  for (int i = 2; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  const auto number = [&](const char* key, std::int64_t fallback) {
    return options.count(key) ? std::stoll(options[key]) : fallback;
  };
  RunPlan plan;
  plan.encoding = print(parse(argv[1]));
  plan.steps = number("--steps", 10);
  plan.batch = number("--batch", 16);
  plan.length = number("--length", 128);
  plan.warmup_steps = std::min<std::int64_t>(30, plan.steps);
  plan.model.width = number("--width", 128);
  plan.model.layers = number("--layers", 4);
  plan.model.heads = number("--heads", 4);
  plan.model.kv_heads = number("--kv-heads", 0);
  plan.model.complete();
  if (options.count("--threads")) at::set_num_threads(static_cast<int>(number("--threads", 1)));

  LmData data;
  data.train = generate_corpus(400'000, 0);
  data.sha256 = data.train.sha256();
  const BatchSampler sampler(data.train, static_cast<std::size_t>(plan.batch), static_cast<std::size_t>(plan.length),
                             plan.seed);
  Decoder model = make_model(plan, data.train.vocabulary_size);
  if (options.count("--dump")) {
    std::map<std::string, at::Tensor> tensors;
    for (const ModelParameter& parameter : model.parameters()) tensors[parameter.name] = parameter.tensor.clone();
    std::vector<at::Tensor> batches;
    for (std::int64_t step = 0; step < plan.steps; ++step)
      batches.push_back(at::tensor(sampler.at(static_cast<std::uint64_t>(step)).tokens, at::kLong)
                            .view({plan.batch, plan.length + 1}));
    tensors["batches"] = at::stack(batches);
    save_tensors(options["--dump"], tensors);
  }
  // The middle step of all but the first: other programs on the machine cost single steps.
  std::vector<double> speeds;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) { speeds.push_back(report.tokens_per_second); };
  const TrainResult result = train_model(model, plan, data.train, {}, callbacks);
  Json json;
  json["encoding"] = plan.encoding;
  json["losses"] = result.losses;
  if (speeds.size() > 1) {
    std::sort(speeds.begin() + 1, speeds.end());
    json["tokens_per_second"] = speeds[1 + (speeds.size() - 1) / 2];
  }
  if (options.count("--decode")) {
    std::vector<std::int64_t> prompt;  // any tokens: the speed is the same
    for (std::int64_t n = 0; n < number("--prompt", plan.length); ++n) prompt.push_back(n % data.train.vocabulary_size);
    GenerateOptions greedy;
    greedy.max_tokens = number("--decode", 0);
    const Generated generated = generate(model, {prompt}, greedy);
    json["decode_tokens_per_second"] = static_cast<double>(generated.tokens[0].size()) / generated.seconds;
  }
  json["threads"] = at::get_num_threads();
  std::cout << json_text(json) << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  torsor::keep_freed_memory();
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "short_run: " << error.what() << std::endl;
    return 1;
  }
}
