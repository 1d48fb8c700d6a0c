// The part of native_incremental.h that learns.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "torsor/base/error.h"
#include "torsor/syntax/hexatags.h"
#include "torsor/syntax/native_incremental.h"

namespace torsor::syntax {
namespace {

// Shares of what is learned beside actions, labels and ends of sentences.
constexpr double kTags = 0.5, kNext = 0.3, kRole = 0.5;
// How often the own next action is followed in the end; the rest keeps the good ways in sight.
constexpr double kMostOwn = 0.9;

/// None in the first twelfth of the training, when the network's own ways lead nowhere, then more and more up to a
/// third of it.
double exploration(double done) { return kMostOwn * std::clamp((done - 1.0 / 12) / (1.0 / 4), 0.0, 1.0); }

at::Tensor ids(const std::vector<std::int64_t>& values) { return at::tensor(values, at::kLong); }

at::Tensor entropy(const at::Tensor& scores, const at::Tensor& targets) {
  return at::cross_entropy_loss(scores, targets, {}, at::Reduction::Mean, kIgnored);
}

/// One action drawn from the softmax of the allowed ones.
Action drawn(const TransitionFeatures& features, const float* scores, Random& random) {
  float most = scores[static_cast<int>(Action::kShift)];
  for (int a = 0; a < kActions; ++a)
    if (features.allows(static_cast<Action>(a))) most = std::max(most, scores[a]);
  std::array<double, kActions> weights{};
  double total = 0;
  for (int a = 0; a < kActions; ++a)
    if (features.allows(static_cast<Action>(a)))
      total += weights[static_cast<std::size_t>(a)] = std::exp(double{scores[a]} - most);
  double left = random.uniform() * total;
  for (int a = 0; a < kActions; ++a) {
    left -= weights[static_cast<std::size_t>(a)];
    if (left < 0 && features.allows(static_cast<Action>(a))) return static_cast<Action>(a);
  }
  return Action::kShift;  // rounding
}

}  // namespace

IncrementalNetwork::Example IncrementalNetwork::example(const TaggedTree& tagged) const {
  Example result{&tagged, projectivise(tagged.tree.heads), {}};
  for (const std::string& relation : tagged.tree.relations)
    result.relations.push_back(vocabulary_->relations().find(relation, 0));
  return result;
}

at::Tensor IncrementalNetwork::loss(const std::vector<Example>& examples, const std::vector<std::size_t>& chosen,
                                    double dropout, double explore, Random& drops) const {
  std::vector<const std::vector<std::string>*> forms;
  std::vector<std::size_t> sizes;
  for (const std::size_t i : chosen) {
    forms.push_back(&examples[i].tagged->tree.words);
    sizes.push_back(forms.back()->size());
  }
  const WordBatch batch = encoder_.batch(forms, /*root=*/false, dropout > 0 ? &drops : nullptr);
  const std::int64_t length = batch.words.size(1), relations = vocabulary_->relations().size();
  const at::Tensor x = outputs(batch, dropout).flatten(0, 1);
  const at::Tensor places = project(at::cat({no_word_, x}));

  // What every word learns.
  std::vector<std::int64_t> upos(static_cast<std::size_t>(x.size(0)), kIgnored), xpos = upos, ends = upos, next = upos,
                                                                                 roles = upos;
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    const Example& one = examples[chosen[row]];
    const std::size_t first = row * static_cast<std::size_t>(length);
    for (std::size_t word = 0; word < sizes[row]; ++word) {
      upos[first + word] = vocabulary_->upos().find(one.tagged->upos[word], kIgnored);
      xpos[first + word] = vocabulary_->xpos().find(one.tagged->xpos[word], kIgnored);
      if (word > 0) next[first + word - 1] = upos[first + word];
      ends[first + word] = word + 1 == sizes[row];
      const bool ahead = one.heads[word] > static_cast<int>(word) + 1;
      roles[first + word] = one.relations[word] + (ahead ? relations : 0);
    }
    if (sizes[row] > 0) next[first + sizes[row] - 1] = vocabulary_->upos().size();
  }

  // The states that the sentences are led through, and what is right in each.
  std::vector<std::int64_t> slots, facts, labels;
  std::vector<float> barred, dear;
  walk(places.detach(), length, sizes,
       [&](std::size_t row, ArcEager& state, const TransitionFeatures& features, const float* action_scores,
           const float* label_scores) {
         const Example& one = examples[chosen[row]];
         gather(features, static_cast<std::int64_t>(row) * length, slots, facts);
         const std::array<int, kActions> cost = action_costs(state, one.heads);
         const int top = state.top(), front = state.front();
         const auto head = [&](int word) { return one.heads[static_cast<std::size_t>(word) - 1]; };
         const auto relation = [&](int word) { return one.relations[static_cast<std::size_t>(word) - 1]; };
         const bool left = features.allows(Action::kLeftArc) && head(top) == front;
         const bool right = top != 0 && head(front) == top;  // under the root there is nothing to choose
         labels.push_back(left ? relation(top) : right ? relations + relation(front) : kIgnored);
         Action best = Action::kShift;
         float most = static_cast<float>(2 * kNever);
         for (int a = 0; a < kActions; ++a) {
           const int lost = cost[static_cast<std::size_t>(a)];
           barred.push_back(lost < 0 ? static_cast<float>(kNever) : 0.0f);
           dear.push_back(lost != 0 ? static_cast<float>(kNever) : 0.0f);
           if (lost == 0 && action_scores[a] > most) {
             best = static_cast<Action>(a);
             most = action_scores[a];
           }
         }
         const bool own = explore > 0 && drops.uniform() < explore;
         const Action action = own ? drawn(features, action_scores, drops) : best;
         std::int64_t made = -1;
         if (action == Action::kRightArc && top == 0) {
           made = vocabulary_->relations().find("root", -1);
         } else if (action == Action::kLeftArc) {
           made = own || !left ? best_label(true, label_scores) : relation(top);
         } else if (action == Action::kRightArc) {
           made = own || !right ? best_label(false, label_scores) : relation(front);
         }
         state.take(action, static_cast<int>(made));
       });

  const auto count = static_cast<std::int64_t>(labels.size());
  at::Tensor hidden = combine(places, ids(slots).view({count, -1}), ids(facts).view({count, -1}));
  if (dropout > 0) hidden = at::dropout(hidden, dropout, /*train=*/true);
  const auto by_action = [&](const std::vector<float>& values) { return at::tensor(values).view({count, kActions}); };
  const at::Tensor logs = at::log_softmax(actions_(hidden) + by_action(barred), 1);
  at::Tensor total = -at::logsumexp(logs + by_action(dear), {1}).mean() + entropy(end_(x), ids(ends)) +
                     kTags * (entropy(upos_(x), ids(upos)) + entropy(xpos_(x), ids(xpos)));
  if (sizes_.design > 1) total = total + kNext * entropy(next_(x), ids(next)) + kRole * entropy(role_(x), ids(roles));
  // Sentences of one word have no label to learn, and a mean over none is not a number.
  const bool labelled = std::any_of(labels.begin(), labels.end(), [](std::int64_t label) { return label >= 0; });
  return labelled ? total + entropy(labels_(hidden), ids(labels)) : total;
}

std::shared_ptr<const IncrementalNetwork> train_incremental(const std::vector<TaggedTree>& trees,
                                                            const std::vector<TaggedTree>& development,
                                                            const IncrementalSizes& sizes,
                                                            const NativeTraining& training, const Json& tokenizer) {
  check_native_training(training);
  const auto vocabulary = std::make_shared<const Vocabulary>(trees, /*least=*/2);
  const auto network = std::make_shared<IncrementalNetwork>(vocabulary, sizes, Weights(training.seed));
  std::vector<IncrementalNetwork::Example> examples;
  for (const TaggedTree& tagged : trees) examples.push_back(network->example(tagged));
  const auto loss = [&](const std::vector<std::size_t>& chosen, double done, Random& drops) {
    return network->loss(examples, chosen, training.dropout, exploration(done), drops);
  };
  const auto parse = [&](const std::vector<std::vector<std::string>>& sentences) { return network->parse(sentences); };
  run_native_training({"incremental", network->sizes_to_json(), vocabulary->to_json(), tokenizer}, trees, development,
                      network->weights(), training, loss, parse);
  return network;
}

}  // namespace torsor::syntax
