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

constexpr double kNever = -1e9;  // finite, so that a softmax over nothing else exists
constexpr std::int64_t kIgnored = -100;
constexpr std::int64_t kReadingWords = 4000;  // of a batch when parsing: small enough to stay in the caches
constexpr std::int64_t kDistances = 8, kDepths = 6, kKnown = 16;

/// Arms of a distance in words: 1, 2, 3, 4-6, 7-10, more; 0 = no word there, 7 = the root.
std::int64_t distance_bucket(const ArcEager& state) {
  if (state.top() == 0) return 7;
  const int distance = state.front() - state.top();
  return distance <= 3 ? distance : distance <= 6 ? 4 : distance <= 10 ? 5 : 6;
}

template <std::size_t N>
at::Tensor row_of(const std::array<std::int16_t, N>& values) {
  return at::tensor(std::vector<std::int64_t>(values.begin(), values.end()), at::kLong);
}

IncrementalSizes sizes_of(const NativeModel& model) {
  JsonObject object(model.sizes, model.source + "/config.json: sizes", JsonObject::Blame::data);
  IncrementalSizes sizes;
  sizes.words = word_sizes_from_json(object);
  sizes.lstm = read_size(object, "lstm");
  sizes.layers = read_size(object, "layers");
  sizes.hidden = read_size(object, "hidden");
  object.finish();
  return sizes;
}

}  // namespace

std::int64_t TransitionFeatures::rows(std::int64_t relations) {
  return 3 * (relations + 1) + kDistances + kDepths + kKnown;
}

TransitionFeatures::TransitionFeatures(const ArcEager& state, std::int64_t relations) {
  const auto stack = state.stack();
  const auto place = [](int word) { return static_cast<std::int16_t>(word + 1); };  // of a word; the root's is 1
  const auto none_or = [&](int word) { return word == 0 ? std::int16_t{0} : place(word); };
  const auto below = [&](std::size_t depth) {
    return depth < stack.size() ? place(stack[stack.size() - 1 - depth]) : std::int16_t{0};
  };
  const int top = state.top(), front = state.front();
  const int left_of_front = state.leftmost(front);
  const int left = top == 0 ? 0 : state.leftmost(top), right = top == 0 ? 0 : state.rightmost(top);
  words = {below(0), below(1), below(2), place(front), none_or(left_of_front), none_or(left), none_or(right)};

  std::int64_t begin = 0;
  std::size_t next = 0;
  const auto fact = [&](std::int64_t value, std::int64_t count) {
    facts[next++] = static_cast<std::int16_t>(begin + value);
    begin += count;
  };
  const auto label = [&](int word) { return word == 0 ? 0 : std::int64_t{state.label(word)} + 1; };
  fact(label(top), relations + 1);
  fact(label(right), relations + 1);
  fact(label(left_of_front), relations + 1);
  fact(distance_bucket(state), kDistances);
  fact(std::min<std::int64_t>(static_cast<std::int64_t>(stack.size()) - 1, kDepths - 1), kDepths);
  const CausalTag tag = state.tag();  // of the front word so far: what has been popped
  fact((top != 0 && state.head(top) != kNoHead ? 8 : 0) + (state.has_root() ? 4 : 0) + tag.nu - 1, kKnown);

  for (int action = 0; action < kActions; ++action)
    if (state.allows(static_cast<Action>(action))) allowed |= static_cast<std::uint8_t>(1 << action);
}

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
  constexpr auto words = static_cast<std::int64_t>(TransitionFeatures::kWords);
  slots_ = weights_.take("slots", {words * sizes_.hidden, sizes_.lstm},
                         std::sqrt(6.0 / static_cast<double>(words * sizes_.lstm + sizes_.hidden)));
  facts_ = weights_.take("facts", {TransitionFeatures::rows(relations), sizes_.hidden}, 0.1);
  bias_ = weights_.take("bias", {sizes_.hidden}, 0);
  actions_ = Affine("actions", sizes_.hidden, kActions, weights_);
  labels_ = Affine("labels", sizes_.hidden, 2 * relations, weights_);
  weights_.finish();
}

IncrementalNetwork::IncrementalNetwork(const NativeModel& model)
    : IncrementalNetwork(vocabulary_of(model), sizes_of(model),
                         Weights(model.tensors, model.source + "/model.safetensors")) {}

Json IncrementalNetwork::sizes_to_json() const {
  Json json = word_sizes_to_json(sizes_.words);
  json["lstm"] = sizes_.lstm;
  json["layers"] = sizes_.layers;
  json["hidden"] = sizes_.hidden;
  return json;
}

IncrementalNetwork::Example IncrementalNetwork::example(const TaggedTree& tagged) const {
  const std::vector<int> heads = projectivise(tagged.tree.heads);
  const std::int64_t relations = vocabulary_->relations().size();
  const auto relation = [&](int word) {
    return vocabulary_->relations().find(tagged.tree.relations[static_cast<std::size_t>(word) - 1], 0);
  };
  Example result{&tagged, {}, {}, {}};
  ArcEager state;
  for (std::size_t i = 0; i < heads.size(); ++i) {
    state.read();
    while (state.waiting()) {
      const Action action = oracle_action(state, heads);
      result.features.emplace_back(state, relations);
      result.actions.push_back(static_cast<std::int64_t>(action));
      std::int64_t label = kIgnored;
      int made = -1;
      if (action == Action::kLeftArc) label = made = static_cast<int>(relation(state.top()));
      if (action == Action::kRightArc) {
        made = static_cast<int>(relation(state.front()));
        if (state.top() != 0) label = relations + made;  // under the root there is nothing to choose
      }
      result.labels.push_back(label);
      state.take(action, made);
    }
  }
  return result;
}

at::Tensor IncrementalNetwork::project(const at::Tensor& outputs) const { return at::matmul(outputs, slots_.t()); }

std::pair<at::Tensor, at::Tensor> IncrementalNetwork::classify(const at::Tensor& places, const at::Tensor& slots,
                                                               const at::Tensor& facts) const {
  constexpr auto words = static_cast<std::int64_t>(TransitionFeatures::kWords);
  // Row (place, slot) of the projections: one sum of gathered rows stands for a product with seven words side by side.
  const at::Tensor rows = slots * words + at::arange(words, at::kLong);
  const at::Tensor hidden = at::relu(at::embedding(places.reshape({-1, sizes_.hidden}), rows).sum(1) +
                                     at::embedding(facts_, facts).sum(1) + bias_);
  return {actions_(hidden), labels_(hidden)};
}

at::Tensor IncrementalNetwork::loss(const std::vector<Example>& examples, const std::vector<std::size_t>& chosen,
                                    double dropout, Random& drops) const {
  std::vector<const std::vector<std::string>*> forms;
  for (const std::size_t i : chosen) forms.push_back(&examples[i].tagged->tree.words);
  const WordBatch batch = encoder_.batch(forms, /*root=*/false, dropout > 0 ? &drops : nullptr);
  const std::int64_t length = batch.words.size(1);
  at::Tensor x = drop_channels(encoder_(batch), dropout);
  for (const Lstm& layer : layers_) x = drop_channels(layer(x), dropout);

  std::vector<std::int64_t> upos(static_cast<std::size_t>(batch.words.numel()), kIgnored), xpos = upos, ends = upos;
  std::vector<std::int64_t> slots, facts, actions, labels;
  std::vector<float> barred;
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    const Example& one = examples[chosen[row]];
    const std::size_t first = row * static_cast<std::size_t>(length), size = forms[row]->size();
    for (std::size_t word = 0; word < size; ++word) {
      upos[first + word] = vocabulary_->upos().find(one.tagged->upos[word], kIgnored);
      xpos[first + word] = vocabulary_->xpos().find(one.tagged->xpos[word], kIgnored);
      ends[first + word] = word + 1 == size;
    }
    for (const TransitionFeatures& features : one.features) {
      for (const std::int16_t place : features.words)
        slots.push_back(place < 2 ? place : place + static_cast<std::int64_t>(first));
      facts.insert(facts.end(), features.facts.begin(), features.facts.end());
      for (int action = 0; action < kActions; ++action)
        barred.push_back(features.allowed >> action & 1 ? 0.0f : static_cast<float>(kNever));
    }
    actions.insert(actions.end(), one.actions.begin(), one.actions.end());
    labels.insert(labels.end(), one.labels.begin(), one.labels.end());
  }
  const auto ids = [](const std::vector<std::int64_t>& values) { return at::tensor(values, at::kLong); };
  const auto entropy = [](const at::Tensor& scores, const at::Tensor& targets) {
    return at::cross_entropy_loss(scores, targets, {}, at::Reduction::Mean, kIgnored);
  };
  const at::Tensor outputs = x.flatten(0, 1);
  const auto count = static_cast<std::int64_t>(actions.size());
  const auto [action_scores, label_scores] =
      classify(project(at::cat({no_word_, outputs})), ids(slots).view({count, -1}), ids(facts).view({count, -1}));
  at::Tensor total = entropy(action_scores + at::tensor(barred).view({count, kActions}), ids(actions)) +
                     entropy(end_(outputs), ids(ends)) + 0.5 * entropy(upos_(outputs), ids(upos)) +
                     0.5 * entropy(xpos_(outputs), ids(xpos));
  // Sentences of one word have no label to learn, and a mean over none is not a number.
  const bool labelled = std::any_of(labels.begin(), labels.end(), [](std::int64_t label) { return label >= 0; });
  return labelled ? total + entropy(label_scores, ids(labels)) : total;
}

IncrementalNetwork::State IncrementalNetwork::start() const {
  const at::NoGradGuard no_grad;
  State state;
  for (const Lstm& layer : layers_) state.layers.push_back(at::zeros({2, layer.width()}, at::kFloat));
  state.places = project(no_word_);
  return state;
}

std::optional<WordArc> IncrementalNetwork::take_best(ArcEager& transitions, std::uint8_t allowed, const float* actions,
                                                     const float* labels) const {
  int best = static_cast<int>(Action::kShift);  // always possible
  for (int action = 0; action < kActions; ++action)
    if (allowed >> action & 1 && actions[action] > actions[best]) best = action;
  const auto action = static_cast<Action>(best);
  if (action == Action::kReduce || action == Action::kShift) {
    transitions.take(action);
    return std::nullopt;
  }
  const Names& relations = vocabulary_->relations();
  const bool left = action == Action::kLeftArc;
  WordArc arc{left ? transitions.top() : transitions.front(), left ? transitions.front() : transitions.top(), "root"};
  const std::int64_t root = relations.find("root", -1);
  std::int64_t label = root;
  if (arc.head != 0) {
    const float* scores = labels + (left ? 0 : relations.size());
    label = root == 0 && relations.size() > 1 ? 1 : 0;
    for (std::int64_t one = 0; one < relations.size(); ++one)
      if (one != root && scores[one] > scores[label]) label = one;
    arc.relation = relations[label];
  }
  transitions.take(action, static_cast<int>(label));
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
    const auto [action_scores, label_scores] =
        classify(state.places, row_of(features.words).unsqueeze(0), row_of(features.facts).unsqueeze(0));
    const at::Tensor actions = action_scores.contiguous(), labels = label_scores.contiguous();
    if (auto arc =
            take_best(transitions, features.allowed, actions.const_data_ptr<float>(), labels.const_data_ptr<float>()))
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
  const std::int64_t length = batch.words.size(1), relations = vocabulary_->relations().size();
  at::Tensor x = encoder_(batch);
  for (const Lstm& layer : layers_) x = layer(x);
  const at::Tensor places = project(at::cat({no_word_, x.flatten(0, 1)}));
  const at::Tensor upos_ids = upos_(x).argmax(2), xpos_ids = xpos_(x).argmax(2);
  const auto upos = upos_ids.accessor<std::int64_t, 2>(), xpos = xpos_ids.accessor<std::int64_t, 2>();

  std::vector<ArcEager> states(chosen.size());
  for (std::size_t word = 0; word < static_cast<std::size_t>(length); ++word) {
    std::vector<std::size_t> waiting;
    for (std::size_t row = 0; row < chosen.size(); ++row) {
      if (word >= forms[row]->size()) continue;
      states[row].read();
      waiting.push_back(row);
    }
    while (!waiting.empty()) {
      std::vector<TransitionFeatures> features;
      std::vector<std::int64_t> slots, facts;
      for (const std::size_t row : waiting) {
        features.emplace_back(states[row], relations);
        for (const std::int16_t place : features.back().words)
          slots.push_back(place < 2 ? place : place + static_cast<std::int64_t>(row) * length);
        facts.insert(facts.end(), features.back().facts.begin(), features.back().facts.end());
      }
      const auto count = static_cast<std::int64_t>(waiting.size());
      const auto [action_scores, label_scores] = classify(places, at::tensor(slots, at::kLong).view({count, -1}),
                                                          at::tensor(facts, at::kLong).view({count, -1}));
      const at::Tensor actions = action_scores.contiguous(), labels = label_scores.contiguous();
      std::vector<std::size_t> still;
      for (std::size_t i = 0; i < waiting.size(); ++i) {
        const std::size_t row = waiting[i];
        TaggedTree& tagged = trees[chosen[row]];
        const auto at = static_cast<std::int64_t>(i);
        if (const auto arc =
                take_best(states[row], features[i].allowed, actions.const_data_ptr<float>() + at * kActions,
                          labels.const_data_ptr<float>() + at * 2 * relations)) {
          tagged.tree.heads[static_cast<std::size_t>(arc->dependent) - 1] = arc->head;
          tagged.tree.relations[static_cast<std::size_t>(arc->dependent) - 1] = arc->relation;
        }
        if (states[row].waiting()) still.push_back(row);
      }
      waiting = std::move(still);
    }
  }
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

std::shared_ptr<const IncrementalNetwork> train_incremental(const std::vector<TaggedTree>& trees,
                                                            const std::vector<TaggedTree>& development,
                                                            const IncrementalSizes& sizes,
                                                            const NativeTraining& training, const Json& tokenizer) {
  check_native_training(training);
  const auto vocabulary = std::make_shared<const Vocabulary>(trees, /*least=*/2);
  const auto network = std::make_shared<IncrementalNetwork>(vocabulary, sizes, Weights(training.seed));
  std::vector<IncrementalNetwork::Example> examples;
  for (const TaggedTree& tagged : trees) examples.push_back(network->example(tagged));
  const auto loss = [&](const std::vector<std::size_t>& chosen, Random& drops) {
    return network->loss(examples, chosen, training.dropout, drops);
  };
  const auto parse = [&](const std::vector<std::vector<std::string>>& sentences) { return network->parse(sentences); };
  run_native_training({"incremental", network->sizes_to_json(), vocabulary->to_json(), tokenizer}, trees, development,
                      network->weights(), training, loss, parse);
  return network;
}

NativeWordParser::NativeWordParser(std::shared_ptr<const IncrementalNetwork> network, std::size_t most_words)
    : network_(std::move(network)), most_words_(most_words) {
  reset();
}

void NativeWordParser::reset() {
  state_ = network_->start();
  history_.clear();
  starts_ = {0};
}

WordStep NativeWordParser::read(const std::string& form) {
  WordStep step = network_->read(state_, form);
  history_.push_back(form);
  if (history_.size() - starts_.back() >= most_words_) step.sentence_end = true;
  if (step.sentence_end) end_sentence();
  return step;
}

void NativeWordParser::end_sentence() {
  if (history_.size() == starts_.back()) return;
  state_ = network_->start();
  starts_.push_back(history_.size());
}

void NativeWordParser::roll_back(std::size_t words) {
  if (words > history_.size()) throw Error(str("roll_back: expected at most ", history_.size(), " words, got ", words));
  while (starts_.size() > 1 && starts_.back() > words) starts_.pop_back();
  const std::vector<std::string> again(history_.begin() + static_cast<std::ptrdiff_t>(starts_.back()),
                                       history_.begin() + static_cast<std::ptrdiff_t>(words));
  history_.resize(starts_.back());
  state_ = network_->start();
  for (const std::string& form : again) read(form);
}

}  // namespace torsor::syntax
