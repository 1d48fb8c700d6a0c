#include "torsor/syntax/arc_training.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/hash.h"
#include "torsor/base/random.h"
#include "torsor/syntax/arc_eager.h"
#include "torsor/syntax/hexatags.h"
#include "torsor/syntax/parse.h"
#include "torsor/syntax/relations.h"
#include "torsor/train/loop.h"

namespace torsor::syntax {
namespace {

constexpr std::int64_t kWidth = ArcEmbedderSizes::kOut, kHeads = 2;
constexpr std::int64_t kRelationCount = static_cast<std::int64_t>(kRelations.size()) + 1;

/// The arc of each word, through the same door as in use (features.h): every word is a token.
std::vector<ArcFeatures> word_arcs(const Tree& tree, const std::vector<std::uint16_t>& relations, bool incremental) {
  std::string text;
  std::vector<ByteSpan> words;
  for (const std::string& form : tree.words) {
    if (!text.empty()) text += ' ';
    const auto begin = static_cast<std::uint32_t>(text.size());
    text += form;
    words.push_back({begin, static_cast<std::uint32_t>(text.size())});
  }
  Parse parse;
  if (incremental) {
    const std::vector<int> heads = projectivise(tree.heads);
    IncrementalParse reader("", {.name = "static oracle", .prefix_safe = true}, tree.size());
    ArcEager state;
    for (std::size_t i = 0; i < words.size(); ++i) {
      state.read();
      while (state.waiting()) {
        const Action action = oracle_action(state, heads);
        const int dependent = action == Action::kLeftArc ? state.top() : state.front();
        const bool arc = action == Action::kLeftArc || action == Action::kRightArc;
        state.take(action, arc ? relations[static_cast<std::size_t>(dependent) - 1] : -1);
      }
      reader.word(words[i], words[i].end, state.tag(), made_arcs(state));
    }
    parse = std::move(reader).finish(text);
  } else {
    parse.text_sha256 = sha256_hex(text);
    ParseSentence sentence{0, static_cast<std::uint32_t>(text.size())};
    for (std::size_t i = 0; i < words.size(); ++i)
      sentence.words.push_back({.byte_begin = words[i].begin,
                                .byte_end = words[i].end,
                                .head = tree.heads[i],
                                .relation = relations[i],
                                .number = static_cast<std::int32_t>(i) + 1});
    parse.sentences.push_back(std::move(sentence));
    set_mode(parse, ParseMode::kOracle);
  }
  const FeatureOptions options{.rule = incremental ? SubwordRule::kLast : SubwordRule::kFirst,
                               .pieces_mark_ends = true};
  return syntax_features(parse, text, words, options).arcs;
}

/// Numbers of words that occur at least twice; 0 = every other, and padding.
class Words {
 public:
  explicit Words(const std::vector<ArcSentence>& sentences) {
    std::unordered_map<std::string, int> counts;
    for (const ArcSentence& sentence : sentences)
      for (const std::string& form : sentence.forms)
        if (++counts[form] == 2) ids_.emplace(form, static_cast<std::int64_t>(ids_.size()) + 1);
  }
  std::int64_t size() const { return static_cast<std::int64_t>(ids_.size()) + 1; }
  std::int64_t operator()(const std::string& form) const {
    const auto found = ids_.find(form);
    return found == ids_.end() ? 0 : found->second;
  }

 private:
  std::unordered_map<std::string, std::int64_t> ids_;
};

struct Batch {
  at::Tensor words, heads, relations;  ///< (B, T) int64; heads count the root as 0
  at::Tensor arcs;                     ///< (B, T, 9)
  at::Tensor links;                    ///< (B, T) heads as places among the words, -1 = none
  at::Tensor mask, hidden;             ///< (B, T) bool
};

class Network {
 public:
  Network(const std::vector<ArcSentence>& sentences, const ArcEmbedderSizes& sizes, std::uint64_t seed)
      : words_(sentences), embedder_(sizes, Weights(seed)), context_(seed) {
    word_ = context_.take("context.words", {words_.size(), kWidth}, 0.1);
    place_ = Affine("context.place", 1, kWidth, context_);
    inward_ = Affine("context.qkv", kWidth, 3 * kWidth, context_);
    outward_ = Affine("context.out", kWidth, kWidth, context_);
    root_ = context_.take("context.root", {kWidth}, 0.1);
    dependent_ = context_.matrix("context.dependent", kWidth, kWidth);
    head_ = context_.matrix("context.head", kWidth, kWidth);
    product_ = context_.matrix("context.product", kWidth, kWidth);
    alone_ = context_.take("context.alone", {kWidth}, 0.1);
    label_ = context_.take("context.label", {kWidth, kRelationCount * kWidth}, 1.0 / kWidth);
    label_alone_ = Affine("context.label_alone", 2 * kWidth, kRelationCount, context_);
  }

  const ArcEmbedder& embedder() const { return embedder_; }
  std::vector<NamedParameter> parameters() const {
    std::vector<NamedParameter> all = embedder_.weights().parameters();
    all.insert(all.end(), context_.parameters().begin(), context_.parameters().end());
    return all;
  }

  Batch batch(const std::vector<ArcSentence>& sentences, const std::vector<std::size_t>& chosen, double share,
              bool shuffled, Random& random) const {
    std::size_t longest = 1;
    for (const std::size_t i : chosen) longest = std::max(longest, sentences[i].forms.size());
    const auto rows = static_cast<std::int64_t>(chosen.size()), length = static_cast<std::int64_t>(longest);
    Batch batch;
    batch.words = at::zeros({rows, length}, at::kLong);
    batch.heads = at::zeros_like(batch.words);
    batch.relations = at::zeros_like(batch.words);
    batch.links = at::full_like(batch.words, -1);
    batch.arcs = at::zeros({rows, length, static_cast<std::int64_t>(ArcFeatures::kColumns)}, at::kLong);
    batch.mask = at::zeros({rows, length}, at::kBool);
    batch.hidden = at::zeros({rows, length}, at::kBool);
    auto words = batch.words.accessor<std::int64_t, 2>(), heads = batch.heads.accessor<std::int64_t, 2>();
    auto relations = batch.relations.accessor<std::int64_t, 2>(), links = batch.links.accessor<std::int64_t, 2>();
    auto arcs = batch.arcs.accessor<std::int64_t, 3>();
    auto mask = batch.mask.accessor<bool, 2>(), hidden = batch.hidden.accessor<bool, 2>();
    for (std::int64_t row = 0; row < rows; ++row) {
      const ArcSentence& sentence = sentences[chosen[static_cast<std::size_t>(row)]];
      std::vector<std::size_t> place(sentence.forms.size());
      std::iota(place.begin(), place.end(), std::size_t{0});
      random.shuffle(place);  // also where it is not asked for, so that the same words are hidden
      if (!shuffled) std::iota(place.begin(), place.end(), std::size_t{0});
      for (std::size_t i = 0; i < sentence.forms.size(); ++i) {
        const auto t = static_cast<std::int64_t>(i);
        words[row][t] = words_(sentence.forms[i]);
        heads[row][t] = sentence.heads[i];
        relations[row][t] = sentence.relations[i];
        mask[row][t] = true;
        hidden[row][t] = random.uniform() < share;
        const auto columns = sentence.arcs[place[i]].columns();
        std::copy(columns.begin(), columns.end(), arcs[row][t].data());
        if (!hidden[row][t]) links[row][t] = sentence.heads[place[i]] - 1;  // a hidden word's link is hidden as well
      }
    }
    return batch;
  }

  struct Scores {
    at::Tensor arcs, context;  ///< (B, T, T + 1), (B, T + 1, width) with the root in place 0
  };
  Scores score(const Batch& batch) const {
    const std::int64_t rows = batch.words.size(0), length = batch.words.size(1);
    const at::Tensor places = at::arange(length, at::kFloat).div(32).view({1, length, 1});
    const at::Tensor s = embedder_(batch.arcs, batch.links, batch.hidden);
    const at::Tensor x = s + at::embedding(word_, batch.words) + place_(places);
    const auto split = inward_(at::layer_norm(x, {kWidth})).view({rows, length, 3, kHeads, kWidth / kHeads});
    const at::Tensor q = split.select(2, 0).transpose(1, 2), k = split.select(2, 1).transpose(1, 2),
                     v = split.select(2, 2).transpose(1, 2);
    const at::Tensor logits = at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(kWidth / kHeads));
    const at::Tensor seen = batch.mask.logical_not().view({rows, 1, 1, length});
    const at::Tensor mixed = at::matmul(at::softmax(logits.masked_fill(seen, kNever), 3), v);
    const at::Tensor words = x + outward_(mixed.transpose(1, 2).reshape({rows, length, kWidth}));
    Scores scores;
    scores.context = at::cat({root_.view({1, 1, kWidth}).expand({rows, 1, kWidth}), words}, 1);
    const at::Tensor head = at::matmul(scores.context, head_);
    scores.arcs = at::bmm(at::matmul(at::matmul(words, dependent_), product_), head.transpose(1, 2)) +
                  at::matmul(head, alone_).unsqueeze(1);
    const at::Tensor self = at::eye(length, length + 1, at::kBool).roll(1, 1);  // a word is not its own head
    const at::Tensor none = at::cat({at::zeros({rows, 1}, at::kBool), batch.mask.logical_not()}, 1).unsqueeze(1);
    scores.arcs = scores.arcs.masked_fill(self.logical_or(none), kNever);
    return scores;
  }
  /// (N, relations) of the hidden words, under their gold heads.
  at::Tensor labels(const Scores& scores, const Batch& batch, const at::Tensor& hidden) const {
    const std::int64_t rows = batch.words.size(0), length = batch.words.size(1);
    const at::Tensor at_head = batch.heads.unsqueeze(2).expand({rows, length, kWidth});
    const at::Tensor head = scores.context.gather(1, at_head).reshape({-1, kWidth}).index_select(0, hidden);
    const at::Tensor word = scores.context.narrow(1, 1, length).reshape({-1, kWidth}).index_select(0, hidden);
    const at::Tensor products = at::matmul(word, label_).view({-1, kRelationCount, kWidth});
    return at::bmm(products, head.unsqueeze(2)).squeeze(2) + label_alone_(at::cat({word, head}, 1));
  }

  /// Sums over the hidden words: nats of head and relation with a graph, right heads, right heads and relations.
  struct Told {
    at::Tensor loss;
    std::int64_t words = 0, heads = 0, labelled = 0;
  };
  Told tell(const Batch& batch) const {
    Told told;
    const at::Tensor hidden = batch.hidden.flatten().nonzero().flatten();
    told.words = hidden.numel();
    const Scores scores = score(batch);
    const at::Tensor arcs = scores.arcs.flatten(0, 1).index_select(0, hidden);
    const at::Tensor relation = labels(scores, batch, hidden);
    const at::Tensor gold = batch.heads.flatten().index_select(0, hidden);
    const at::Tensor gold_relation = batch.relations.flatten().index_select(0, hidden);
    told.loss = at::cross_entropy_loss(arcs, gold, {}, at::Reduction::Sum) +
                at::cross_entropy_loss(relation, gold_relation, {}, at::Reduction::Sum);
    const at::Tensor right = arcs.argmax(1).eq(gold);
    told.heads = right.sum().item<std::int64_t>();
    told.labelled = right.logical_and(relation.argmax(1).eq(gold_relation)).sum().item<std::int64_t>();
    return told;
  }

 private:
  Words words_;
  ArcEmbedder embedder_;
  Weights context_;
  at::Tensor word_, root_, dependent_, head_, product_, alone_, label_;
  Affine place_, inward_, outward_, label_alone_;
};

void require_gradients(const std::vector<NamedParameter>& parameters, bool required) {
  for (const NamedParameter& parameter : parameters) {
    at::Tensor tensor = parameter.tensor;
    tensor.requires_grad_(required);
  }
}

ArcScore score_of(const Network& network, const std::vector<ArcSentence>& sentences, const ArcTraining& training) {
  const at::NoGradGuard no_grad;
  std::vector<std::size_t> order(sentences.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sentences[a].forms.size() > sentences[b].forms.size(); });
  Random random(training.seed, stream_of("arcs.development"));
  ArcScore score;
  const auto size = static_cast<std::size_t>(training.batch);
  for (std::size_t begin = 0; begin < order.size(); begin += size) {
    const std::vector<std::size_t> chosen(
        order.begin() + static_cast<std::ptrdiff_t>(begin),
        order.begin() + static_cast<std::ptrdiff_t>(std::min(order.size(), begin + size)));
    const Batch batch = network.batch(sentences, chosen, training.hidden, training.shuffled, random);
    if (!batch.hidden.any().item<bool>()) continue;
    const Network::Told told = network.tell(batch);
    score.loss += told.loss.item<double>();
    score.uas += static_cast<double>(told.heads);
    score.las += static_cast<double>(told.labelled);
    score.words += told.words;
  }
  const double words = static_cast<double>(std::max<std::int64_t>(score.words, 1));
  score.loss /= words, score.uas /= words, score.las /= words;
  return score;
}

std::string content_hash(const std::vector<ArcSentence>& sentences) {
  Sha256 content;
  for (const ArcSentence& sentence : sentences) {
    for (std::size_t i = 0; i < sentence.forms.size(); ++i)
      content.update(str(sentence.forms[i], '\t', sentence.heads[i], '\t', sentence.relations[i], '\n'));
    content.update("\n");
  }
  return content.hex();
}

void check(const ArcTraining& training) {
  const auto at_least_one = [](const char* name, std::int64_t value) {
    if (value < 1) throw UsageError(str("arc training: ", name, " must be at least 1, found ", value));
  };
  at_least_one("epochs", training.epochs);
  at_least_one("patience", training.patience);
  at_least_one("batch", training.batch);
  if (!(training.hidden > 0 && training.hidden <= 1))
    throw UsageError(str("arc training: hidden must lie in (0, 1], found ", training.hidden));
}

/// Sentences of each step: all once in a pass, in a new order.
std::vector<std::vector<std::size_t>> steps_of(std::size_t sentences, const ArcTraining& training) {
  std::vector<std::vector<std::size_t>> steps;
  std::vector<std::size_t> order(sentences);
  for (std::int64_t pass = 0; pass < training.epochs; ++pass) {
    std::iota(order.begin(), order.end(), std::size_t{0});
    Random random(training.seed, stream_of(str("arcs.pass.", pass)));
    random.shuffle(order);
    for (std::size_t begin = 0; begin < sentences; begin += static_cast<std::size_t>(training.batch)) {
      const std::size_t end = std::min(sentences, begin + static_cast<std::size_t>(training.batch));
      steps.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(begin),
                         order.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  return steps;
}

/// The best pass so far: its weights, and how long ago it was. Goes through the state file by its numbers.
struct Best {
  std::map<std::string, at::Tensor> tensors;
  ArcScore score;
  std::int64_t pass = 0, passes = 0;
};

}  // namespace

std::vector<ArcSentence> arc_sentences(const std::vector<Sentence>& sentences, bool incremental) {
  std::vector<ArcSentence> result;
  for (const Sentence& given : sentences) {
    if (given.words.empty()) continue;
    Tree tree = tree_of(given);
    ArcSentence one;
    one.heads = tree.heads;
    for (const std::string& relation : tree.relations) one.relations.push_back(relation_id(relation));
    one.arcs = word_arcs(tree, one.relations, incremental);
    one.forms = std::move(tree.words);
    result.push_back(std::move(one));
  }
  return result;
}

TrainedArcs train_arcs(const std::vector<ArcSentence>& sentences, const std::vector<ArcSentence>& development,
                       const ArcEmbedderSizes& sizes, const ArcTraining& training) {
  check(training);
  if (sentences.empty() || development.empty())
    throw Error(str("arc training: expected sentences to train on and a development set, got ", sentences.size(),
                    " and ", development.size()));
  const Network network(sentences, sizes, training.seed);
  const std::vector<NamedParameter> parameters = network.parameters();
  const std::vector<std::vector<std::size_t>> steps = steps_of(sentences.size(), training);
  const auto pass_steps = static_cast<std::int64_t>(steps.size()) / training.epochs;
  NativeModel model = network.embedder().to_model();
  TrainOptions options;
  options.steps = static_cast<std::int64_t>(steps.size());
  options.learning_rate = training.learning_rate;
  options.warmup_steps = std::min<std::int64_t>(training.warmup_steps, options.steps);
  options.final_ratio = 0.1;
  options.adamw.weight_decay = 0.01;
  options.clip_norm = 5;
  options.seed = training.seed;
  options.resume = training.resume;
  options.stop = training.stop;
  options.progress = training.progress;
  options.configuration = {{"kind", model.kind},
                           {"sizes", model.sizes},
                           {"epochs", training.epochs},
                           {"batch", training.batch},
                           {"hidden", training.hidden},
                           {"shuffled", training.shuffled},
                           {"data_sha256", content_hash(sentences)},
                           {"development_sha256", content_hash(development)}};
  std::optional<FolderClaim> claim;
  if (!training.folder.empty()) {
    make_directories(training.folder);
    claim.emplace(training.folder);
    options.state = training.folder + "/state.safetensors";
    options.log = training.folder + "/log.jsonl";
    options.save_every = pass_steps;
  }

  Best best;
  std::atomic<bool> enough{false};
  const auto keep = [&] {
    best.tensors.clear();
    for (const auto& [name, tensor] : network.embedder().weights().tensors())
      best.tensors.emplace(name, tensor.clone());
    if (training.folder.empty()) return;
    NativeModel written = network.embedder().to_model();
    written.training = options.configuration;
    written.training["learning_rate"] = training.learning_rate;
    written.training["seed"] = training.seed;
    written.training["pass"] = best.pass;
    written.training["development"] = {
        {"loss", best.score.loss}, {"masked_uas", best.score.uas}, {"masked_las", best.score.las}};
    write_native_model(training.folder, written);
  };
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) {
    if (report.step % pass_steps != 0 || enough) return;
    const ArcScore score = score_of(network, development, training);
    best.passes = report.step / pass_steps;
    const bool better = best.pass == 0 || score.loss < best.score.loss;
    if (better) {
      best.score = score;
      best.pass = best.passes;
      keep();
    }
    if (training.on_message) {
      char line[200];
      std::snprintf(line, sizeof line, "pass %lld of at most %lld, %.0f s: loss %.4g, masked UAS %.2f, LAS %.2f%s",
                    static_cast<long long>(best.passes), static_cast<long long>(training.epochs), report.seconds,
                    score.loss, 100 * score.uas, 100 * score.las, better ? "" : " (no better)");
      training.on_message(line);
    }
    enough = best.passes - best.pass >= training.patience;
  };
  // The best network is a file of its own; the state remembers which pass it is from.
  callbacks.extra = [&] {
    return std::map<std::string, std::string>{{"best", Json{{"pass", best.pass},
                                                            {"loss", best.score.loss},
                                                            {"uas", best.score.uas},
                                                            {"las", best.score.las},
                                                            {"words", best.score.words},
                                                            {"passes", best.passes}}
                                                           .dump()}};
  };
  callbacks.restore = [&](const std::map<std::string, std::string>& extra) {
    const auto found = extra.find("best");
    if (found == extra.end()) throw Error(options.state + ": it does not tell which pass was the best");
    const Json json = parse_json(found->second, options.state);
    JsonObject object(json, options.state, JsonObject::Blame::data);
    best.pass = object.get<std::int64_t>("pass");
    best.score.loss = object.get<double>("loss");
    best.score.uas = object.get<double>("uas");
    best.score.las = object.get<double>("las");
    best.score.words = object.get<std::int64_t>("words");
    best.passes = object.get<std::int64_t>("passes");
    object.finish();
    if (best.pass > 0) best.tensors = read_native_model(training.folder).tensors;
    enough = best.passes - best.pass >= training.patience;
  };
  const auto loss = [&](std::int64_t step, std::int64_t) {
    const std::vector<std::size_t>& chosen = steps[static_cast<std::size_t>(step)];
    Random random(random_at(training.seed, stream_of("arcs.step"), static_cast<std::uint64_t>(step)));
    Batch batch = network.batch(sentences, chosen, training.hidden, training.shuffled, random);
    if (!batch.hidden.any().item<bool>()) batch.hidden = batch.mask;  // a batch of few words: all of them
    const Network::Told told = network.tell(batch);
    return told.loss / static_cast<double>(told.words);
  };
  require_gradients(parameters, true);
  // Ends early by the same way as a user's stop: the state is saved, and nothing else is lost.
  std::atomic<bool> ending{false};
  const auto step_report = callbacks.on_step;
  callbacks.on_step = [&](const StepReport& report) {
    step_report(report);
    ending = enough || (training.stop != nullptr && *training.stop);
  };
  options.stop = &ending;
  try {
    train(parameters, options, loss, callbacks);
  } catch (const Interrupted&) {
    if (!enough) {
      require_gradients(parameters, false);
      throw;
    }
  } catch (...) {
    require_gradients(parameters, false);
    throw;
  }
  require_gradients(parameters, false);
  return {ArcEmbedder(sizes, Weights(best.tensors, "the best pass")), best.score, best.passes};
}

}  // namespace torsor::syntax
