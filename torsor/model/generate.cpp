#include "torsor/model/generate.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

namespace torsor {
namespace {

using Rows = std::vector<std::vector<std::int64_t>>;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

class Generation {
 public:
  Generation(const Decoder& model, const Rows& prompts, const GenerateOptions& options)
      : model_(model),
        options_(options),
        rows_(prompts),
        batch_(static_cast<std::int64_t>(prompts.size())),
        alive_(prompts.size(), true),
        cache_(make_cache()) {
    result_.tokens.resize(prompts.size());
    result_.ended.assign(prompts.size(), Ending::Length);
    for (std::int64_t row = 0; row < batch_; ++row) samplers_.emplace_back(options.sampling, row);
  }

  Generated run() {
    if (options_.max_tokens < 1) return std::move(result_);
    Clock::time_point begin = Clock::now();
    at::Tensor hidden = read_rows(alive_);
    for (std::int64_t step = 0;; ++step) {
      take(model_.logits(hidden, options_.dtype));
      if (options_.watch) options_.watch(cache_);
      if (step == 0) {
        result_.prompt_seconds = seconds_since(begin);
        begin = Clock::now();
      }
      if (options_.stop && options_.stop()) end_all(Ending::Stopped);
      if (step + 1 == options_.max_tokens) end_all(Ending::Length);
      if (std::none_of(alive_.begin(), alive_.end(), [](bool one) { return one; })) break;
      hidden = next();
      result_.decoded += std::count(alive_.begin(), alive_.end(), true);
    }
    result_.seconds = seconds_since(begin);
    return std::move(result_);
  }

 private:
  KvCache make_cache() const {
    std::size_t longest = 0;
    for (const auto& row : rows_) longest = std::max(longest, row.size());
    const std::int64_t all = static_cast<std::int64_t>(longest) + std::max<std::int64_t>(options_.max_tokens, 0);
    return model_.make_cache(batch_, std::max<std::int64_t>(options_.window > 0 ? options_.window : all, 1),
                             options_.cache_dtype, options_.window > 0);
  }

  /// Tokens of a row that one pass reads.
  std::int64_t piece(std::int64_t longest) const {
    std::int64_t most = options_.chunk > 0 ? options_.chunk : longest;
    // What one piece pushes out is what the next tokens cannot see any more: a quarter keeps most of it.
    if (options_.window > 0 && longest > options_.window)
      most = std::min(most, std::max<std::int64_t>(1, (options_.window - options_.sinks) / 4));
    return most;
  }

  /// Makes room for the tokens that arrive in each row, in the rows that are full: what a row keeps does not depend on
  /// the others.
  void make_room(const std::vector<std::int64_t>& arriving) {
    if (options_.window == 0) return;
    constexpr std::int64_t kAll = std::numeric_limits<std::int32_t>::max();
    const std::int64_t behind = options_.window - options_.sinks;
    std::vector<std::int64_t> stay(arriving.size(), kAll);
    bool any = false;
    for (std::size_t b = 0; b < arriving.size(); ++b) {
      if (arriving[b] == 0 || held(b) + arriving[b] <= options_.window) continue;
      stay[b] = std::max<std::int64_t>(1, behind - std::max(arriving[b], behind / 8));
      any = true;
    }
    if (any) cache_.evict_rows(options_.sinks, stay, closes(model_.encoding().cache(0)));
  }

  /// Most tokens that a layer holds of a row.
  std::int64_t held(std::size_t row) const {
    std::int64_t most = 0;
    for (std::int64_t layer = 0; layer < model_.config().layers; ++layer)
      most = std::max(most, cache_.held(layer)[row]);
    return most;
  }

  /// Without sinks nothing need be renumbered, and some encodings cannot.
  bool closes(const CacheContract& contract) const {
    return options_.sinks > 0 || CacheContract::exact(contract.shift);
  }

  /// Reads the rows in `which`, of which the cache holds nothing; the hidden state of each one's newest token, (B, 1,
  /// C).
  at::Tensor read_rows(const std::vector<bool>& which) {
    std::int64_t longest = 0;
    for (std::size_t b = 0; b < rows_.size(); ++b)
      if (which[b]) longest = std::max(longest, static_cast<std::int64_t>(rows_[b].size()));
    const std::int64_t most = piece(longest);
    NamedTensors named;
    if (options_.inputs) named = options_.inputs(rows_, std::vector<std::int64_t>(rows_.size(), 0));
    at::Tensor newest;
    for (std::int64_t first = 0; first < longest; first += most) {
      const std::int64_t width = std::min(most, longest - first);
      TokenBatch part;
      part.tokens = at::zeros({batch_, width}, at::kLong);
      std::vector<std::int64_t> counts(rows_.size(), 0);
      for (std::size_t b = 0; b < rows_.size(); ++b) {
        const auto size = static_cast<std::int64_t>(rows_[b].size());
        if (!which[b] || size <= first) continue;
        counts[b] = std::min(size - first, width);
        std::copy_n(rows_[b].begin() + first, counts[b],
                    part.tokens[static_cast<std::int64_t>(b)].data_ptr<std::int64_t>());
      }
      part.counts = at::tensor(counts, at::kLong);
      part.memory = options_.memory;
      for (const auto& [name, tensor] : named) part.named[name] = tensor.narrow(1, first, width);
      make_room(counts);
      const at::Tensor hidden = model_.hidden(part, &cache_, options_.dtype);
      if (!newest.defined()) newest = at::zeros({batch_, 1, hidden.size(2)}, hidden.options());
      for (std::int64_t b = 0; b < batch_; ++b)
        if (const std::int64_t count = counts[static_cast<std::size_t>(b)]; count > 0)
          newest[b][0].copy_(hidden[b][count - 1]);
      if (options_.stop && first + most < longest && options_.stop()) throw Interrupted("stopped in the prompt");
    }
    return newest;
  }

  /// Whether a row's newest token changes the frequencies of those before it.
  bool frequencies_change(std::size_t row) const {
    if (!model_.encoding().traits().length_dependent) return false;
    // Of a row whose tokens were dropped, the length that counts does not grow, and there is no way back.
    const auto size = static_cast<std::int64_t>(rows_[row].size());
    if (options_.window > 0 && size > options_.window) return false;
    return model_.encoding().frequencies_change(static_cast<double>(size - 1), static_cast<double>(size));
  }

  /// The hidden state of each living row's newest token.
  at::Tensor next() {
    std::vector<bool> again(rows_.size(), false), step = alive_;
    std::vector<std::int64_t> lengths = cache_.lengths();
    bool any = false;
    for (std::size_t b = 0; b < rows_.size(); ++b) {
      if (!alive_[b] || !frequencies_change(b)) continue;
      again[b] = any = true;
      step[b] = false;
      lengths[b] = 0;
    }
    if (!any) return step_rows(step);
    // Earlier hidden states were made under other frequencies: nothing short of a full pass equals the full pass.
    cache_.truncate(lengths);
    at::Tensor hidden = read_rows(again);
    if (std::none_of(step.begin(), step.end(), [](bool one) { return one; })) return hidden;
    const at::Tensor stepped = step_rows(step);
    for (std::size_t b = 0; b < rows_.size(); ++b)
      if (step[b]) hidden[static_cast<std::int64_t>(b)].copy_(stepped[static_cast<std::int64_t>(b)]);
    return hidden;
  }

  /// Reads the newest token of the rows in `which`.
  at::Tensor step_rows(const std::vector<bool>& which) {
    TokenBatch one;
    one.tokens = at::empty({batch_, 1}, at::kLong);
    std::vector<std::int64_t> newest, counts;
    for (std::size_t b = 0; b < rows_.size(); ++b) {
      one.tokens[static_cast<std::int64_t>(b)][0] = rows_[b].back();
      newest.push_back(static_cast<std::int64_t>(rows_[b].size()) - 1);
      counts.push_back(which[b] ? 1 : 0);
    }
    if (std::count(counts.begin(), counts.end(), 0) > 0) one.counts = at::tensor(counts, at::kLong);
    if (options_.inputs) one.named = options_.inputs(rows_, newest);
    one.memory = options_.memory;
    make_room(counts);
    return model_.hidden(one, &cache_, options_.dtype);
  }

  void take(const at::Tensor& logits) {
    for (std::size_t b = 0; b < rows_.size(); ++b) {
      if (!alive_[b]) continue;
      const auto row = static_cast<std::int64_t>(b);
      const std::int64_t token = samplers_[b].choose(logits[row][0]);
      if (std::find(options_.end_tokens.begin(), options_.end_tokens.end(), token) != options_.end_tokens.end()) {
        end(b, Ending::End);
        continue;
      }
      rows_[b].push_back(token);
      result_.tokens[b].push_back(token);
      if (options_.on_token && options_.on_token(row, token)) end(b, Ending::Asked);
    }
  }

  void end(std::size_t row, Ending why) {
    if (alive_[row]) result_.ended[row] = why;
    alive_[row] = false;
  }
  void end_all(Ending why) {
    for (std::size_t b = 0; b < alive_.size(); ++b) end(b, why);
  }

  const Decoder& model_;
  const GenerateOptions& options_;
  Rows rows_;
  std::int64_t batch_;
  std::vector<bool> alive_;
  KvCache cache_;
  std::vector<Sampler> samplers_;
  Generated result_;
};

void check(const Decoder& model, const Rows& prompts, const GenerateOptions& options) {
  if (prompts.empty()) throw UsageError("generate: no prompt");
  const std::int64_t vocabulary = model.config().vocabulary_size;
  for (const auto& prompt : prompts) {
    if (prompt.empty()) throw UsageError("generate: a prompt needs at least one token");
    for (const std::int64_t token : prompt)
      if (token < 0 || token >= vocabulary)
        throw UsageError(str("generate: tokens must lie in [0, ", vocabulary, "), found ", token));
  }
  options.sampling.check();
  if (options.chunk < 0) throw UsageError(str("generate: chunk must be 0 or more, found ", options.chunk));
  if (!model.encoding().inputs().empty() && !options.inputs)
    throw UsageError("generate: the encoding reads per-token inputs, and nobody gives them for new tokens");
  if (options.window == 0) return;
  if (options.sinks < 0 || options.window < options.sinks + 2)
    throw UsageError(str("generate: the window must hold the sinks and two tokens more, found a window of ",
                         options.window, " and ", options.sinks, " sinks"));
  // Said now, not when the window is full.
  for (std::int64_t layer = 0; layer < model.config().layers; ++layer) {
    const CacheContract contract = layer_encoding(model.shared_encoding(), layer)->cache(layer);
    const std::string& drop = options.sinks > 0 ? contract.evict : contract.oldest();
    if (!CacheContract::exact(drop)) throw Refusal(str("generate: a window drops tokens: ", drop));
    if (options.sinks > 0 && !CacheContract::exact(contract.shift))
      throw Refusal(str("generate: sinks need positions that can be shifted: ", contract.shift, "; use no sinks"));
    if (options.sinks > 0 && model.config().window_of(layer) > 0)
      throw Refusal(
          str("generate: layer ", layer, " has a window of its own, in which sinks have no place; use no sinks"));
  }
}

}  // namespace

const char* ending_name(Ending ending) {
  switch (ending) {
    case Ending::Length:
      return "length";
    case Ending::End:
      return "end token";
    case Ending::Asked:
      return "asked";
    default:
      return "stopped";
  }
}

Generated generate(const Decoder& model, const Rows& prompts, const GenerateOptions& options) {
  check(model, prompts, options);
  // Nothing here has a gradient, and operations of a single token cost less than asking whether they have: they go past
  // what libtorch does for gradients. Unlike those of its inference mode the tensors are usable afterwards, and an
  // encoding remembers some.
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below;
  return Generation(model, prompts, options).run();
}

}  // namespace torsor
