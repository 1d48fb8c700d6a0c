#include "torsor/syntax/native_biaffine.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "torsor/base/error.h"
#include "torsor/syntax/spanning_tree.h"

namespace torsor::syntax {
namespace {

BiaffineSizes biaffine_sizes_of(const NativeModel& model) {
  JsonObject object(model.sizes, model.source + "/config.json: sizes", JsonObject::Blame::data);
  BiaffineSizes sizes;
  sizes.words = word_sizes_from_json(object);
  sizes.lstm = read_size(object, "lstm");
  sizes.layers = read_size(object, "layers");
  sizes.arc = read_size(object, "arc");
  sizes.label = read_size(object, "label");
  object.finish();
  return sizes;
}

at::Tensor mean_loss(const at::Tensor& scores, const at::Tensor& targets) {
  return at::cross_entropy_loss(scores.flatten(0, 1), targets.flatten(), {}, at::Reduction::Mean, kIgnored);
}

}  // namespace

BiaffineNetwork::BiaffineNetwork(std::shared_ptr<const Vocabulary> vocabulary, const BiaffineSizes& sizes,
                                 Weights weights)
    : vocabulary_(std::move(vocabulary)), sizes_(sizes), weights_(std::move(weights)) {
  encoder_ = WordEncoder(vocabulary_, sizes_.words, weights_);
  const std::int64_t both = 2 * sizes_.lstm;
  const std::int64_t upos = vocabulary_->upos().size(), xpos = vocabulary_->xpos().size();
  const std::int64_t relations = vocabulary_->relations().size();
  for (std::int64_t layer = 0; layer < sizes_.layers; ++layer) {
    const std::int64_t inputs = layer == 0 ? sizes_.words.width() : layer == 1 ? both + upos + xpos : both;
    forward_.emplace_back(str("forward.", layer), inputs, sizes_.lstm, weights_);
    backward_.emplace_back(str("backward.", layer), inputs, sizes_.lstm, weights_);
  }
  upos_ = Affine("upos", both, upos, weights_);
  xpos_ = Affine("xpos", both, xpos, weights_);
  arc_dependent_ = Affine("arc.dependent", both, sizes_.arc, weights_);
  arc_head_ = Affine("arc.head", both, sizes_.arc, weights_);
  label_dependent_ = Affine("label.dependent", both, sizes_.label, weights_);
  label_head_ = Affine("label.head", both, sizes_.label, weights_);
  label_alone_ = Affine("label.alone", 2 * sizes_.label, relations, weights_);
  arc_product_ = weights_.take("arc.product", {sizes_.arc, sizes_.arc}, 0);
  arc_alone_ = weights_.take("arc.alone", {sizes_.arc, 1}, 0);
  label_product_ = weights_.take("label.product", {sizes_.label, relations * sizes_.label}, 0);
  weights_.finish();
}

BiaffineNetwork::BiaffineNetwork(const NativeModel& model)
    : BiaffineNetwork(vocabulary_of(model), biaffine_sizes_of(model),
                      Weights(model.tensors, model.source + "/model.safetensors")) {}

Json BiaffineNetwork::sizes_to_json() const {
  Json json = word_sizes_to_json(sizes_.words);
  json["lstm"] = sizes_.lstm;
  json["layers"] = sizes_.layers;
  json["arc"] = sizes_.arc;
  json["label"] = sizes_.label;
  return json;
}

BiaffineNetwork::Scores BiaffineNetwork::score(const WordBatch& batch, double dropout) const {
  Scores scores;
  at::Tensor x = drop_channels(encoder_(batch), dropout);
  for (std::size_t layer = 0; layer < forward_.size(); ++layer) {
    x = drop_channels(both_ways(forward_[layer], backward_[layer], x, batch), dropout);
    if (layer > 0) continue;
    scores.upos = upos_(x);
    scores.xpos = xpos_(x);
    if (forward_.size() > 1) x = at::cat({x, at::softmax(scores.upos, 2), at::softmax(scores.xpos, 2)}, 2);
  }
  const at::Tensor dependent = drop_channels(arc_dependent_.bent(x), dropout);
  const at::Tensor head = drop_channels(arc_head_.bent(x), dropout);
  scores.arcs =
      at::bmm(at::matmul(dependent, arc_product_), head.transpose(1, 2)) + at::matmul(head, arc_alone_).transpose(1, 2);
  const at::Tensor self = at::eye(x.size(1), at::kBool);
  scores.arcs = scores.arcs.masked_fill(batch.mask.logical_not().unsqueeze(1), kNever).masked_fill(self, kNever);
  scores.dependent = drop_channels(label_dependent_.bent(x), dropout);
  scores.head = drop_channels(label_head_.bent(x), dropout);
  return scores;
}

at::Tensor BiaffineNetwork::labels(const Scores& scores, const at::Tensor& heads) const {
  const std::int64_t rows = heads.size(0), length = heads.size(1), width = sizes_.label;
  const at::Tensor head = scores.head.gather(1, heads.unsqueeze(2).expand({rows, length, width}));
  const at::Tensor products =
      at::matmul(scores.dependent, label_product_).view({rows * length, vocabulary_->relations().size(), width});
  return at::bmm(products, head.reshape({rows * length, width, 1})).view({rows, length, -1}) +
         label_alone_(at::cat({scores.dependent, head}, 2));
}

at::Tensor BiaffineNetwork::loss(const std::vector<TaggedTree>& trees, const std::vector<std::size_t>& chosen,
                                 double dropout, Random& drops) const {
  std::vector<const std::vector<std::string>*> forms;
  for (const std::size_t i : chosen) forms.push_back(&trees[i].tree.words);
  const WordBatch batch = encoder_.batch(forms, /*root=*/true, dropout > 0 ? &drops : nullptr);
  const std::int64_t length = batch.words.size(1);
  const auto places = static_cast<std::size_t>(batch.words.numel());
  std::vector<std::int64_t> heads(places, kIgnored), relations = heads, upos = heads, xpos = heads;
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    const TaggedTree& tagged = trees[chosen[row]];
    for (std::size_t word = 0; word < tagged.tree.size(); ++word) {
      const std::size_t flat = row * static_cast<std::size_t>(length) + word + 1;
      heads[flat] = tagged.tree.heads[word];
      relations[flat] = vocabulary_->relations().find(tagged.tree.relations[word], kIgnored);
      upos[flat] = vocabulary_->upos().find(tagged.upos[word], kIgnored);
      xpos[flat] = vocabulary_->xpos().find(tagged.xpos[word], kIgnored);
    }
  }
  const auto targets = [&](const std::vector<std::int64_t>& ids) {
    return at::tensor(ids, at::kLong).view_as(batch.words);
  };
  const Scores scores = score(batch, dropout);
  const at::Tensor gold = targets(heads);
  return mean_loss(scores.arcs, gold) + mean_loss(labels(scores, gold.clamp_min(0)), targets(relations)) +
         0.5 * mean_loss(scores.upos, targets(upos)) + 0.5 * mean_loss(scores.xpos, targets(xpos));
}

void BiaffineNetwork::parse_batch(const std::vector<std::vector<std::string>>& sentences,
                                  const std::vector<std::size_t>& chosen, std::vector<TaggedTree>& trees) const {
  std::vector<const std::vector<std::string>*> forms;
  for (const std::size_t i : chosen) forms.push_back(&sentences[i]);
  const WordBatch batch = encoder_.batch(forms, /*root=*/true, nullptr);
  const Scores scores = score(batch, 0);
  const at::Tensor arcs = at::log_softmax(scores.arcs, 2).to(at::kDouble).contiguous();
  at::Tensor heads = at::zeros_like(batch.words);
  const auto arc = arcs.accessor<double, 3>();
  auto head = heads.accessor<std::int64_t, 2>();
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    const std::size_t n = forms[row]->size();
    std::vector<std::vector<double>> matrix(n, std::vector<double>(n + 1));
    const auto r = static_cast<std::int64_t>(row);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t h = 0; h <= n; ++h)
        matrix[i][h] = arc[r][static_cast<std::int64_t>(i) + 1][static_cast<std::int64_t>(h)];
    const std::vector<int> tree = best_tree(matrix);
    for (std::size_t i = 0; i < n; ++i) head[r][static_cast<std::int64_t>(i) + 1] = tree[i];
  }
  // "root" is no choice of the labels': it stands where the head is the root and nowhere else.
  at::Tensor label_scores = labels(scores, heads);
  const std::int64_t root = vocabulary_->relations().find("root", -1);
  if (root >= 0) label_scores.select(2, root).fill_(kNever);
  const at::Tensor relation_ids = label_scores.argmax(2), upos_ids = scores.upos.argmax(2),
                   xpos_ids = scores.xpos.argmax(2);
  const auto relation = relation_ids.accessor<std::int64_t, 2>(), upos = upos_ids.accessor<std::int64_t, 2>(),
             xpos = xpos_ids.accessor<std::int64_t, 2>();
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    TaggedTree& tagged = trees[chosen[row]];
    tagged.tree.words = *forms[row];
    const auto r = static_cast<std::int64_t>(row);
    for (std::int64_t place = 1; place <= static_cast<std::int64_t>(forms[row]->size()); ++place) {
      const auto h = static_cast<int>(head[r][place]);
      tagged.tree.heads.push_back(h);
      tagged.tree.relations.push_back(h == 0 ? "root" : vocabulary_->relations()[relation[r][place]]);
      tagged.upos.push_back(vocabulary_->upos()[upos[r][place]]);
      tagged.xpos.push_back(vocabulary_->xpos()[xpos[r][place]]);
    }
  }
}

std::vector<TaggedTree> BiaffineNetwork::parse(const std::vector<std::vector<std::string>>& sentences) const {
  const at::NoGradGuard no_grad;
  std::vector<TaggedTree> trees(sentences.size());
  std::vector<std::size_t> lengths;
  for (const auto& sentence : sentences) lengths.push_back(sentence.size() + 1);
  for (const auto& chosen : reading_batches(lengths, kReadingWords)) parse_batch(sentences, chosen, trees);
  return trees;
}

BiaffineNetwork train_biaffine(const std::vector<TaggedTree>& trees, const std::vector<TaggedTree>& development,
                               const BiaffineSizes& sizes, const NativeTraining& training, const Json& tokenizer) {
  check_native_training(training);
  const auto vocabulary = std::make_shared<const Vocabulary>(trees, /*least=*/2);
  BiaffineNetwork network(vocabulary, sizes, Weights(training.seed));
  const auto loss = [&](const std::vector<std::size_t>& chosen, double, Random& drops) {
    return network.loss(trees, chosen, training.dropout, drops);
  };
  const auto parse = [&](const std::vector<std::vector<std::string>>& sentences) { return network.parse(sentences); };
  run_native_training({"biaffine", network.sizes_to_json(), vocabulary->to_json(), tokenizer}, trees, development,
                      network.weights(), training, loss, parse);
  return network;
}

}  // namespace torsor::syntax
