#include "torsor/lab/diagnosis_model.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "torsor/attention/weights.h"
#include "torsor/data/batches.h"

namespace torsor {
namespace {

constexpr std::int64_t kBlockNumbers = std::int64_t{1}
                                       << 20;  // logits of a block: 4 MiB of float32, a few such at once
constexpr std::int64_t kLogitsAtOnce = std::int64_t{1} << 23;  // output logits
constexpr std::int64_t kTokensOfACall = 4096;                  // of a call in windows of the training length
constexpr std::int64_t kMostBins = 64;

/// Sums over queries by head and bin, float64.
struct HeadSums {
  at::Tensor entropy, relative, first_token, distance;  // (H, bins)
  at::Tensor largest;                                   // (bins)
};

class Watcher {
 public:
  Watcher(const Decoder& model, const MeasureRequest& request, const std::vector<std::int64_t>& edges,
          std::function<void()> step)
      : request_(request), bins_(static_cast<std::int64_t>(edges.size()) - 1), step_(std::move(step)) {
    const ModelConfig& config = model.config();
    bin_of_ = at::empty({request.length}, at::kLong);
    for (std::int64_t bin = 0; bin < bins_; ++bin) {
      const std::int64_t from = edges[static_cast<std::size_t>(bin)], to = edges[static_cast<std::size_t>(bin) + 1];
      bin_of_.narrow(0, from, to - from).fill_(bin);
    }
    const auto zeros = [&](std::int64_t rows) { return at::zeros({rows, bins_}, at::kDouble); };
    for (std::int64_t layer = 0; layer < config.layers; ++layer)
      heads_.push_back({zeros(config.heads), zeros(config.heads), zeros(config.heads), zeros(config.heads),
                        at::full({bins_}, -std::numeric_limits<double>::infinity(), at::kDouble)});
    for (std::int64_t layer = 0; layer <= config.layers; ++layer) {
      rms_.push_back(at::zeros({bins_}, at::kDouble));
      magnitude_.push_back(at::zeros({bins_, config.width}, at::kDouble));
    }
    tokens_ = zeros(1).squeeze(0);
    wide_ = zeros(1).squeeze(0);
  }

  void look(std::int64_t layer, const CoreInput& input) {
    ReferenceLimits limits;
    limits.block_numbers = kBlockNumbers;
    const std::int64_t block = reference_block(input, limits), queries = input.q.size(2);
    for (std::int64_t first = 0; first < queries; first += block) {
      if (request_.stop && request_.stop()) throw Interrupted("diagnose was stopped");
      add_block(layer, input, first, std::min(block, queries - first));
    }
    step_();
  }

  void stream(std::int64_t layer, const at::Tensor& h) {
    const at::Tensor row = h[0].to(at::kDouble);
    const auto place = static_cast<std::size_t>(layer);
    rms_[place].index_add_(0, bin_of_, row.square().mean(1).sqrt());
    magnitude_[place].index_add_(0, bin_of_, row.abs());
    if (layer == 0) tokens_.index_add_(0, bin_of_, at::ones({row.size(0)}, at::kDouble));
  }

  /// Everything by layer; `inside` = bins that lie within the training length.
  void write(Measures& measures, const Decoder& model, std::int64_t inside) const;

 private:
  void add_block(std::int64_t layer, const CoreInput& input, std::int64_t first, std::int64_t count) {
    const BlockWeights block = block_weights(input, first, count);
    if (block.weights.size(3) == 0) return;
    HeadSums& sums = heads_[static_cast<std::size_t>(layer)];
    const at::Tensor bin = bin_of_.narrow(0, first, count), weights = block.weights[0];  // (H, queries, keys)
    const at::Tensor entropy = -at::xlogy(weights, weights).sum(-1).to(at::kDouble);
    const at::Tensor seen = block.visible[0][0].sum(-1).to(at::kDouble);  // (queries)
    const at::Tensor scale = seen.clamp_min(1).log();
    const at::Tensor relative = at::where(seen.gt(1), entropy / scale.clamp_min(1e-9), at::zeros({}, at::kDouble));
    sums.entropy.index_add_(1, bin, entropy);
    sums.relative.index_add_(1, bin, relative);
    if (block.first_key == 0) sums.first_token.index_add_(1, bin, weights.select(2, 0).to(at::kDouble));
    const at::Tensor distance =
        input.query_positions[0].narrow(0, first, count).unsqueeze(1) -
        input.key_positions[0].narrow(0, block.first_key, weights.size(2)).unsqueeze(0);  // (queries, keys)
    const at::Tensor mean = (weights * distance.to(weights.scalar_type())).sum(-1).to(at::kDouble);
    sums.distance.index_add_(1, bin, mean);
    const at::Tensor largest = block.logits[0].amax(at::IntArrayRef({0, 2})).to(at::kDouble);  // (queries)
    sums.largest.scatter_reduce_(0, bin, largest, "amax");
    if (layer == 0) wide_.index_add_(0, bin, seen.gt(1).to(at::kDouble));
  }

  const MeasureRequest& request_;
  std::int64_t bins_;
  std::function<void()> step_;
  at::Tensor bin_of_;
  std::vector<HeadSums> heads_;
  std::vector<at::Tensor> rms_, magnitude_;  // a layer each, and one more
  at::Tensor tokens_;                        // (bins) queries in all
  at::Tensor wide_;                          // (bins) those that see more than one key
};

std::vector<double> plain(const at::Tensor& values) {
  const at::Tensor list = values.to(at::kDouble).contiguous();
  return {list.const_data_ptr<double>(), list.const_data_ptr<double>() + list.numel()};
}

void Watcher::write(Measures& measures, const Decoder& model, std::int64_t inside) const {
  const auto sides = [&](const at::Tensor& sum, const at::Tensor& count, std::int64_t head) {
    const auto mean = [&](std::int64_t from, std::int64_t bins) {
      return sum[head].narrow(0, from, bins).sum().item<double>() /
             std::max(1.0, count.narrow(0, from, bins).sum().item<double>());
    };
    HeadMeasures::Sides both;
    both.inside = mean(0, inside);
    if (inside < bins_) both.beyond = mean(inside, bins_ - inside);
    return both;
  };
  for (std::int64_t index = 0; index < model.config().layers; ++index) {
    const auto place = static_cast<std::size_t>(index);
    const HeadSums& sums = heads_[place];
    LayerMeasures layer;
    layer.window = model.config().window_of(index);
    layer.entropy = plain(sums.entropy.mean(0) / tokens_);
    layer.first_token = plain(sums.first_token.mean(0) / tokens_);
    layer.distance = plain(sums.distance.mean(0) / tokens_);
    layer.largest_logit = plain(sums.largest);
    const std::vector<double> relative = plain(sums.relative.mean(0)), wide = plain(wide_);
    for (std::size_t bin = 0; bin < relative.size(); ++bin)
      layer.relative_entropy.push_back(wide[bin] > 0 ? std::optional(relative[bin] / wide[bin]) : std::nullopt);
    layer.rms = plain(rms_[place] / tokens_);
    const auto [largest, channel] = magnitude_[place].max(1);
    layer.largest_channel_mean = plain(largest / tokens_);
    for (std::int64_t bin = 0; bin < bins_; ++bin) layer.largest_channel.push_back(channel[bin].item<std::int64_t>());
    for (std::int64_t head = 0; head < model.config().heads; ++head)
      layer.heads.push_back({sides(sums.entropy, tokens_, head), sides(sums.relative, wide_, head),
                             sides(sums.first_token, tokens_, head), sides(sums.distance, tokens_, head)});
    measures.layers.push_back(std::move(layer));
  }
  measures.last_rms = plain(rms_.back() / tokens_);
}

struct Scores {
  at::Tensor losses;   // (B, T) float64, nats
  at::Tensor largest;  // (B, T) float64, each token's largest logit
};

/// tokens (B, T + 1). Logits are made a few positions at a time.
Scores scores_of(const Decoder& model, const at::Tensor& tokens, const TokenBatch& look, at::ScalarType dtype) {
  TokenBatch batch = look;
  const std::int64_t length = tokens.size(1) - 1;
  batch.tokens = tokens.narrow(1, 0, length);
  const at::Tensor hidden = model.hidden(batch, nullptr, dtype);
  const std::int64_t piece =
      std::max<std::int64_t>(1, kLogitsAtOnce / (tokens.size(0) * model.config().vocabulary_size));
  std::vector<at::Tensor> losses, largest;
  for (std::int64_t first = 0; first < length; first += piece) {
    const std::int64_t count = std::min(piece, length - first);
    const at::Tensor logits = model.logits(hidden.narrow(1, first, count), dtype).to(at::kDouble);
    const at::Tensor targets = tokens.narrow(1, first + 1, count);
    losses.push_back(at::cross_entropy_loss(logits.flatten(0, 1), targets.reshape({-1}), {}, at::Reduction::None)
                         .view(targets.sizes()));
    largest.push_back(logits.amax(-1));
  }
  return {at::cat(losses, 1), at::cat(largest, 1)};
}

/// Windows of the training length over a long one, each scoring what stands behind its first part.
struct ShortWindow {
  std::int64_t begin = 0, length = 0;
  std::int64_t scored = 0;  ///< first position of the long window that it scores; up to its own end
};

std::vector<ShortWindow> short_windows(std::int64_t length, std::int64_t train_length) {
  const std::int64_t stride = std::max<std::int64_t>(1, train_length / 2);
  std::vector<ShortWindow> all = {{0, std::min(length, train_length), 0}};
  for (std::int64_t scored = train_length; scored < length; scored += stride) {
    const std::int64_t begin = scored + stride - train_length;
    all.push_back({begin, std::min(train_length, length - begin), scored});
  }
  return all;
}

}  // namespace

std::vector<std::int64_t> bin_edges(std::int64_t length, std::int64_t train_length) {
  const std::int64_t known = std::min(train_length, length);
  const std::int64_t width = std::max({std::int64_t{1}, (known + 7) / 8, (length + kMostBins - 1) / kMostBins});
  std::vector<std::int64_t> edges = {0};
  while (edges.back() < length) {
    std::int64_t next = std::min(edges.back() + width, length);
    if (edges.back() < train_length && train_length < next) next = train_length;
    edges.push_back(next);
  }
  return edges;
}

Measures measure(const Decoder& model, const Corpus& corpus, const MeasureRequest& request) {
  const at::NoGradGuard no_gradient;
  if (const std::vector<std::string> inputs = model.encoding().inputs(); !inputs.empty())
    throw Error(str("'", model.config().encoding, "' reads the per-token input '", inputs.front(),
                    "' of a parser: its text cannot be measured here"));
  const EvaluationPlan plan =
      evaluation_windows(corpus, {static_cast<std::size_t>(request.length)}, static_cast<std::size_t>(request.windows));
  const std::vector<std::int64_t> edges = bin_edges(request.length, request.train_length);
  const std::vector<ShortWindow> shorts = short_windows(request.length, request.train_length);
  const std::int64_t rows = std::max<std::int64_t>(1, kTokensOfACall / std::min(request.length, request.train_length));
  const std::int64_t calls = (static_cast<std::int64_t>(shorts.size()) + rows - 1) / rows;
  const std::int64_t total = static_cast<std::int64_t>(plan.spans.size()) * (model.config().layers + calls);
  std::int64_t done = 0;
  const auto step = [&] {
    ++done;
    if (request.progress) request.progress(done, total);
  };
  Watcher watcher(model, request, edges, step);
  std::vector<at::Tensor> long_losses, short_losses, largest;
  for (const Window& span : plan.spans) {
    const Batch batch = gather(corpus, std::span(&span, 1), static_cast<std::size_t>(request.length));
    const at::Tensor tokens = at::tensor(batch.tokens, at::kLong).view({1, -1});
    TokenBatch look;
    look.look = [&](std::int64_t layer, const CoreInput& input) { watcher.look(layer, input); };
    look.stream = [&](std::int64_t layer, const at::Tensor& h) { watcher.stream(layer, h); };
    const Scores scores = scores_of(model, tokens, look, request.dtype);
    long_losses.push_back(scores.losses[0]);
    largest.push_back(scores.largest[0]);
    at::Tensor inside = at::empty({request.length}, at::kDouble);
    for (std::size_t first = 0; first < shorts.size();) {
      if (request.stop && request.stop()) throw Interrupted("diagnose was stopped");
      std::size_t last = first;
      std::vector<at::Tensor> windows;
      for (; last < shorts.size() && last - first < static_cast<std::size_t>(rows) &&
             shorts[last].length == shorts[first].length;
           ++last)
        windows.push_back(tokens[0].narrow(0, shorts[last].begin, shorts[last].length + 1));
      const at::Tensor losses = scores_of(model, at::stack(windows), {}, request.dtype).losses;
      for (std::size_t n = first; n < last; ++n) {
        const std::int64_t skip = shorts[n].scored - shorts[n].begin, count = shorts[n].length - skip;
        inside.narrow(0, shorts[n].scored, count)
            .copy_(losses[static_cast<std::int64_t>(n - first)].narrow(0, skip, count));
      }
      first = last;
      step();
    }
    short_losses.push_back(inside);
  }
  const at::Tensor losses = at::stack(long_losses), inside = at::stack(short_losses), logits = at::stack(largest);
  Measures measures;
  measures.text = request.text;
  measures.length = request.length;
  measures.windows = losses.size(0);
  measures.stride = std::max<std::int64_t>(1, request.train_length / 2);
  measures.loss = losses.mean().item<double>();
  std::int64_t bins_inside = 0;
  for (std::size_t bin = 0; bin + 1 < edges.size(); ++bin) {
    BinMeasures one;
    one.from = edges[bin], one.to = edges[bin + 1];
    const auto part = [&](const at::Tensor& all) { return all.narrow(1, one.from, one.to - one.from); };
    const at::Tensor difference = part(losses) - part(inside);
    one.targets = difference.numel();
    one.loss = part(losses).mean().item<double>();
    one.inside = part(inside).mean().item<double>();
    one.difference = difference.mean().item<double>();
    if (one.targets > 1) one.error = difference.std().item<double>() / std::sqrt(static_cast<double>(one.targets));
    one.largest_logit = part(logits).mean().item<double>();
    measures.bins.push_back(one);
    bins_inside += one.to <= request.train_length;
  }
  watcher.write(measures, model, bins_inside);
  return measures;
}

}  // namespace torsor
