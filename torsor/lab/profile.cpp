#include "torsor/lab/profile.h"

#include <algorithm>
#include <numeric>

namespace torsor {
namespace {

// The sizes of the full profile, for real hardware.
void make_large(ComparePlan& plan) {
  plan.run.model.width = 768;
  plan.run.model.layers = 12;
  plan.run.model.heads = 12;
  plan.run.steps = 20000;
  plan.run.learning_rate = 1e-3;
  plan.run.warmup_steps = 1000;
  plan.seeds = {0, 1, 2, 3, 4};
}

std::vector<std::int64_t> up_to(std::int64_t longest) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(longest));
  std::iota(lengths.begin(), lengths.end(), 1);
  return lengths;
}

void text_profile(ComparePlan& plan) {
  if (plan.profile == "quick") {
    // evaluation.md: enough to see a direction in five to eight minutes on two cores.
    plan.eval_lengths = {128, 256, 512, 1024, 2048};
  } else if (plan.profile == "standard") {
    plan.run.length = 256;
    plan.run.steps = 400;
    plan.eval_lengths = {256, 512, 1024, 2048, 4096};
  } else {
    make_large(plan);
    plan.run.length = 1024;
    plan.run.batch = 64;
    plan.eval_lengths = {1024, 2048, 4096, 8192, 16384};
    plan.eval_spans = 128;
    plan.data.generated_bytes = 400'000'000;
  }
}

// What a sentence needs lies inside the training length, so little is asked beyond it; grammar is learned later than
// spelling, so there are more steps than for a perplexity.
void syntax_profile(ComparePlan& plan) {
  plan.encodings = {"none", "rope", "alibi", "t5"};
  plan.eval_lengths = {plan.run.length, 4 * plan.run.length};
  if (plan.profile == "quick") plan.run.steps = 1000;
  if (plan.profile == "standard") plan.run.steps = 3000;
}

// Of the tasks' settings `quick` is measured (docs/tasks.md); `standard` and `full` are larger by judgement.
void addition_profile(ComparePlan& plan) {
  if (plan.profile == "quick") {
    // Many small steps: what they need to learn is a number of updates, not of sums.
    plan.run.length = 4;
    plan.run.batch = 64;
    plan.run.steps = 3500;
    plan.run.warmup_steps = 100;
    plan.problems = 20;
  } else if (plan.profile == "standard") {
    plan.run.length = 6;
    plan.run.batch = 128;
    plan.run.steps = 6000;
    plan.run.warmup_steps = 100;
    plan.problems = 40;
  } else {
    make_large(plan);
    plan.run.length = 40;
    plan.run.batch = 512;
    plan.problems = 100;
  }
  plan.eval_lengths = up_to(2 * plan.run.length);
}

void passkey_profile(ComparePlan& plan) {
  if (plan.profile == "quick") {
    plan.run.length = 128;
    plan.run.batch = 16;
    plan.run.steps = 1000;
    plan.run.warmup_steps = 50;
    plan.problems = 20;
  } else if (plan.profile == "standard") {
    plan.run.length = 256;
    plan.run.batch = 16;
    plan.run.steps = 2000;
    plan.run.warmup_steps = 100;
    plan.problems = 40;
  } else {
    make_large(plan);
    plan.run.length = 1024;
    plan.run.batch = 64;
    plan.problems = 100;
  }
  const std::int64_t length = plan.run.length;
  plan.eval_lengths = {length / 2, length, 2 * length, 4 * length, 8 * length};
}

}  // namespace

ComparePlan profile_plan(const std::string& name, const std::string& task) {
  if (name != "quick" && name != "standard" && name != "full")
    throw UsageError(str("profile must be quick, standard or full, found ", name));
  check_task(task);
  ComparePlan plan;
  plan.profile = name;
  plan.task = task;
  plan.encodings = {"none", "sinusoidal", "learned", "rope", "alibi", "t5", "kerple", "fire"};
  plan.seeds = {0};
  if (name == "standard") plan.seeds = {0, 1, 2};
  if (learns_from_text(task)) {
    text_profile(plan);
    if (task == "syntax") syntax_profile(plan);
    return plan;
  }
  plan.encodings = {"none", "learned", "rope", "alibi", "t5", "fox", "grape-ap", "rope + grape-ap"};
  if (task == "addition")
    addition_profile(plan);
  else
    passkey_profile(plan);
  return plan;
}

void set_length(ComparePlan& plan, std::int64_t length) {
  if (plan.task == "addition")
    plan.eval_lengths = up_to(plan.eval_lengths.back() / plan.run.length * length);
  else
    for (std::int64_t& one : plan.eval_lengths) one = one * length / plan.run.length;
  plan.run.length = length;
}

}  // namespace torsor
