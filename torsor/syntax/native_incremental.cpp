#include "torsor/syntax/native_incremental.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "torsor/base/error.h"
#include "torsor/syntax/hexatags.h"
#include "torsor/syntax/repair.h"

namespace torsor::syntax {
namespace {

IncrementalSizes incremental_sizes_of(const NativeModel& model) {
  JsonObject object(model.sizes, model.source + "/config.json: sizes", JsonObject::Blame::data);
  IncrementalSizes sizes;
  sizes.words = word_sizes_from_json(object);
  sizes.lstm = read_size(object, "lstm");
  sizes.layers = read_size(object, "layers");
  sizes.hidden = read_size(object, "hidden");
  sizes.design = object.has("design") ? read_size(object, "design") : 1;
  if (sizes.design > TransitionFeatures::kDesigns)
    object.fail(
        str("design ", sizes.design, " is newer than this torsor, which knows 1..", TransitionFeatures::kDesigns));
  object.finish();
  return sizes;
}

}  // namespace

IncrementalNetwork::IncrementalNetwork(std::shared_ptr<const Vocabulary> vocabulary, const IncrementalSizes& sizes,
                                       Weights weights)
    : vocabulary_(std::move(vocabulary)), sizes_(sizes), weights_(std::move(weights)) {
  encoder_ = WordEncoder(vocabulary_, sizes_.words, weights_);
  for (std::int64_t layer = 0; layer < sizes_.layers; ++layer)
    layers_.emplace_back(str("layer.", layer), layer == 0 ? sizes_.words.width() : sizes_.lstm, sizes_.lstm, weights_);
  const std::int64_t relations = vocabulary_->relations().size();
  upos_ = Affine("upos", sizes_.lstm, vocabulary_->upos().size(), weights_);
  xpos_ = Affine("xpos", sizes_.lstm, vocabulary_->xpos().size(), weights_);
  end_ = Affine("end", sizes_.lstm, 2, weights_);
  no_word_ = weights_.take("no_word", {2, sizes_.lstm}, 0.1);
  if (sizes_.design > 1) {
    next_ = Affine("next", sizes_.lstm, vocabulary_->upos().size() + 1, weights_);
    role_ = Affine("role", sizes_.lstm, 2 * relations, weights_);
  }
  const std::int64_t words = TransitionFeatures::words_of(sizes_.design);
  slots_ = weights_.take("slots", {words * sizes_.hidden, sizes_.lstm},
                         std::sqrt(6.0 / static_cast<double>(words * sizes_.lstm + sizes_.hidden)));
  facts_ = weights_.take("facts", {TransitionFeatures::rows(relations, sizes_.design), sizes_.hidden}, 0.1);
  bias_ = weights_.take("bias", {sizes_.hidden}, 0);
  actions_ = Affine("actions", sizes_.hidden, kActions, weights_);
  labels_ = Affine("labels", sizes_.hidden, 2 * relations, weights_);
  weights_.finish();
}

IncrementalNetwork::IncrementalNetwork(const NativeModel& model)
    : IncrementalNetwork(vocabulary_of(model), incremental_sizes_of(model),
                         Weights(model.tensors, model.source + "/model.safetensors")) {}

Json IncrementalNetwork::sizes_to_json() const {
  Json json = word_sizes_to_json(sizes_.words);
  json["lstm"] = sizes_.lstm;
  json["layers"] = sizes_.layers;
  json["hidden"] = sizes_.hidden;
  if (sizes_.design > 1) json["design"] = sizes_.design;
  return json;
}

at::Tensor IncrementalNetwork::outputs(const WordBatch& batch, double dropout) const {
  at::Tensor x = drop_channels(encoder_(batch), dropout);
  for (const Lstm& layer : layers_) x = drop_channels(layer(x, dropout), dropout);
  return x;
}

at::Tensor IncrementalNetwork::project(const at::Tensor& outputs) const { return at::matmul(outputs, slots_.t()); }

at::Tensor IncrementalNetwork::combine(const at::Tensor& places, const at::Tensor& slots,
                                       const at::Tensor& facts) const {
  // Row (place, slot) of the projections: one sum of gathered rows stands for a product with all words side by side.
  const std::int64_t words = slots.size(1);
  const at::Tensor rows = slots * words + at::arange(words, at::kLong);
  return at::relu(at::embedding(places.reshape({-1, sizes_.hidden}), rows).sum(1) +
                  at::embedding(facts_, facts).sum(1) + bias_);
}

void IncrementalNetwork::gather(const TransitionFeatures& features, std::int64_t first,
                                std::vector<std::int64_t>& slots, std::vector<std::int64_t>& facts) const {
  const auto words = static_cast<std::size_t>(TransitionFeatures::words_of(sizes_.design));
  for (std::size_t i = 0; i < words; ++i) {
    const std::int64_t place = features.words[i];
    slots.push_back(place < 2 ? place : place + first);
  }
  facts.insert(facts.end(), features.facts.begin(),
               features.facts.begin() + TransitionFeatures::facts_of(sizes_.design));
}

void IncrementalNetwork::walk(const at::Tensor& places, std::int64_t length, const std::vector<std::size_t>& sizes,
                              const Take& take) const {
  const at::NoGradGuard no_grad;
  const std::int64_t relations = vocabulary_->relations().size();
  std::vector<ArcEager> states(sizes.size());
  std::vector<std::size_t> open;
  for (std::size_t row = 0; row < sizes.size(); ++row) {
    if (sizes[row] == 0) continue;
    states[row].read();
    open.push_back(row);
  }
  std::vector<TransitionFeatures> features;
  std::vector<std::int64_t> slots, facts;
  while (!open.empty()) {  // an action of each sentence that has not come to its end
    features.clear();
    slots.clear();
    facts.clear();
    for (const std::size_t row : open) {
      features.emplace_back(states[row], relations);
      gather(features.back(), static_cast<std::int64_t>(row) * length, slots, facts);
    }
    const auto count = static_cast<std::int64_t>(open.size());
    const at::Tensor hidden =
        combine(places, at::tensor(slots, at::kLong).view({count, -1}), at::tensor(facts, at::kLong).view({count, -1}));
    const at::Tensor actions = actions_(hidden).contiguous(), labels = labels_(hidden).contiguous();
    std::vector<std::size_t> still;
    for (std::size_t i = 0; i < open.size(); ++i) {
      const std::size_t row = open[i];
      const auto at = static_cast<std::int64_t>(i);
      take(row, states[row], features[i], actions.const_data_ptr<float>() + at * kActions,
           labels.const_data_ptr<float>() + at * 2 * relations);
      if (!states[row].waiting()) {
        if (static_cast<std::size_t>(states[row].words()) == sizes[row]) continue;
        states[row].read();
      }
      still.push_back(row);
    }
    open = std::move(still);
  }
}

IncrementalNetwork::State IncrementalNetwork::start() const {
  const at::NoGradGuard no_grad;
  State state;
  for (const Lstm& layer : layers_) state.layers.push_back(at::zeros({2, layer.width()}, at::kFloat));
  state.places = project(no_word_);
  return state;
}

std::int64_t IncrementalNetwork::best_label(bool left, const float* labels) const {
  const Names& relations = vocabulary_->relations();
  const std::int64_t root = relations.find("root", -1);
  const float* scores = labels + (left ? 0 : relations.size());
  std::int64_t best = root == 0 && relations.size() > 1 ? 1 : 0;
  for (std::int64_t one = 0; one < relations.size(); ++one)
    if (one != root && scores[one] > scores[best]) best = one;
  return best;
}

std::optional<WordArc> IncrementalNetwork::take_best(ArcEager& transitions, const TransitionFeatures& features,
                                                     const float* actions, const float* labels) const {
  Action best = Action::kShift;  // always possible
  for (int action = 0; action < kActions; ++action)
    if (features.allows(static_cast<Action>(action)) && actions[action] > actions[static_cast<int>(best)])
      best = static_cast<Action>(action);
  if (best == Action::kReduce || best == Action::kShift) {
    transitions.take(best);
    return std::nullopt;
  }
  const bool left = best == Action::kLeftArc;
  WordArc arc{left ? transitions.top() : transitions.front(), left ? transitions.front() : transitions.top(), "root"};
  std::int64_t label = vocabulary_->relations().find("root", -1);
  if (arc.head != 0) {
    label = best_label(left, labels);
    arc.relation = vocabulary_->relations()[label];
  }
  transitions.take(best, static_cast<int>(label));
  return arc;
}

WordStep IncrementalNetwork::read(State& state, const std::string& form) const {
  const at::NoGradGuard no_grad;
  const std::vector<std::string> forms = {form};
  at::Tensor x = encoder_(encoder_.batch({&forms}, /*root=*/false, nullptr)).flatten();
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    state.layers[layer] = layers_[layer].step(x, state.layers[layer]);
    x = state.layers[layer][0];
  }
  state.places = at::cat({state.places, project(x.unsqueeze(0))});

  WordStep step;
  ArcEager& transitions = state.transitions;
  transitions.read();
  while (transitions.waiting()) {
    const TransitionFeatures features(transitions, vocabulary_->relations().size());
    std::vector<std::int64_t> slots, facts;
    gather(features, 0, slots, facts);
    const at::Tensor hidden =
        combine(state.places, at::tensor(slots, at::kLong).unsqueeze(0), at::tensor(facts, at::kLong).unsqueeze(0));
    const at::Tensor actions = actions_(hidden).contiguous(), labels = labels_(hidden).contiguous();
    if (auto arc = take_best(transitions, features, actions.const_data_ptr<float>(), labels.const_data_ptr<float>()))
      step.arcs.push_back(std::move(*arc));
  }
  step.tag = transitions.tag();
  step.upos = vocabulary_->upos()[upos_(x).argmax().item<std::int64_t>()];
  step.xpos = vocabulary_->xpos()[xpos_(x).argmax().item<std::int64_t>()];
  const at::Tensor end = end_(x).contiguous();
  step.sentence_end = end.const_data_ptr<float>()[1] > end.const_data_ptr<float>()[0];
  return step;
}

void IncrementalNetwork::parse_batch(const std::vector<std::vector<std::string>>& sentences,
                                     const std::vector<std::size_t>& chosen, std::vector<TaggedTree>& trees) const {
  std::vector<const std::vector<std::string>*> forms;
  for (const std::size_t i : chosen) forms.push_back(&sentences[i]);
  const WordBatch batch = encoder_.batch(forms, /*root=*/false, nullptr);
  const at::Tensor x = outputs(batch, 0);
  const at::Tensor upos_ids = upos_(x).argmax(2), xpos_ids = xpos_(x).argmax(2);
  const auto upos = upos_ids.accessor<std::int64_t, 2>(), xpos = xpos_ids.accessor<std::int64_t, 2>();

  std::vector<std::size_t> sizes;
  for (const auto* words : forms) sizes.push_back(words->size());
  walk(project(at::cat({no_word_, x.flatten(0, 1)})), batch.words.size(1), sizes,
       [&](std::size_t row, ArcEager& state, const TransitionFeatures& features, const float* actions,
           const float* labels) {
         const auto arc = take_best(state, features, actions, labels);
         if (!arc) return;
         Tree& tree = trees[chosen[row]].tree;
         tree.heads[static_cast<std::size_t>(arc->dependent) - 1] = arc->head;
         tree.relations[static_cast<std::size_t>(arc->dependent) - 1] = arc->relation;
       });
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    TaggedTree& tagged = trees[chosen[row]];
    for (std::size_t word = 0; word < forms[row]->size(); ++word) {
      const auto r = static_cast<std::int64_t>(row), w = static_cast<std::int64_t>(word);
      tagged.upos.push_back(vocabulary_->upos()[upos[r][w]]);
      tagged.xpos.push_back(vocabulary_->xpos()[xpos[r][w]]);
    }
  }
}

std::vector<TaggedTree> IncrementalNetwork::parse(const std::vector<std::vector<std::string>>& sentences) const {
  const at::NoGradGuard no_grad;
  std::vector<TaggedTree> trees(sentences.size());
  std::vector<std::size_t> lengths;
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    trees[i].tree.words = sentences[i];
    trees[i].tree.heads.assign(sentences[i].size(), kNoHead);
    trees[i].tree.relations.assign(sentences[i].size(), "dep");
    lengths.push_back(sentences[i].size() + 1);
  }
  for (const auto& chosen : reading_batches(lengths, kReadingWords)) parse_batch(sentences, chosen, trees);
  for (TaggedTree& tagged : trees)
    if (tagged.tree.size() > 0) repair(tagged.tree.heads, tagged.tree.relations);
  return trees;
}

}  // namespace torsor::syntax
