#include "torsor/model/generate.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>

namespace torsor {
namespace {

using Rows = std::vector<std::vector<std::int64_t>>;

/// Rows as a right-padded (B, n) tensor with their lengths.
TokenBatch padded(const Rows& rows) {
  std::size_t longest = 0;
  for (const auto& row : rows) longest = std::max(longest, row.size());
  at::Tensor tokens =
      at::zeros({static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(longest)}, at::kLong);
  at::Tensor counts = at::empty({static_cast<std::int64_t>(rows.size())}, at::kLong);
  for (std::size_t b = 0; b < rows.size(); ++b) {
    std::copy(rows[b].begin(), rows[b].end(), tokens[static_cast<std::int64_t>(b)].data_ptr<std::int64_t>());
    counts[static_cast<std::int64_t>(b)] = static_cast<std::int64_t>(rows[b].size());
  }
  TokenBatch batch;
  batch.tokens = tokens;
  batch.counts = counts;
  return batch;
}

}  // namespace

Generated generate_greedy(const Decoder& model, const Rows& prompts, const GreedyOptions& options) {
  if (prompts.empty()) throw UsageError("generate: no prompt");
  for (const auto& prompt : prompts)
    if (prompt.empty()) throw UsageError("generate: a prompt needs at least one token");
  at::NoGradGuard no_grad;
  const std::int64_t batch = static_cast<std::int64_t>(prompts.size());
  Rows rows = prompts;
  std::size_t longest = 0;
  for (const auto& row : rows) longest = std::max(longest, row.size());
  const std::int64_t capacity = static_cast<std::int64_t>(longest) + std::max<std::int64_t>(options.max_tokens, 0);
  const bool length_dependent = model.encoding().traits().length_dependent;

  if (!model.encoding().inputs().empty() && !options.inputs)
    throw UsageError("generate: the encoding reads per-token inputs, and nobody gives them for new tokens");

  Generated result;
  result.tokens.resize(rows.size());
  KvCache cache = model.make_cache(batch, capacity, options.cache_dtype);
  const auto prefill = [&] {
    TokenBatch all = padded(rows);
    if (options.inputs) all.named = options.inputs(rows, std::vector<std::int64_t>(rows.size(), 0));
    const at::Tensor hidden = model.hidden(all, &cache, options.dtype);
    const at::Tensor last = (all.counts - 1).view({batch, 1, 1}).expand({batch, 1, hidden.size(2)});
    return hidden.gather(1, last);
  };
  at::Tensor hidden = options.max_tokens > 0 ? prefill() : at::Tensor();
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t step = 0; step < options.max_tokens; ++step) {
    const at::Tensor next = model.logits(hidden, options.dtype).argmax(-1);  // (B, 1)
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t token = next[b][0].item<std::int64_t>();
      rows[static_cast<std::size_t>(b)].push_back(token);
      result.tokens[static_cast<std::size_t>(b)].push_back(token);
    }
    if (step + 1 == options.max_tokens || (options.stop && options.stop())) break;
    bool again = false;
    if (length_dependent)
      for (const auto& row : rows)
        again = again || model.encoding().frequencies_change(static_cast<double>(row.size() - 1),
                                                             static_cast<double>(row.size()));
    if (again) {
      // Earlier hidden states were made under other frequencies: nothing short of a full pass equals the full pass.
      cache.truncate(0);
      hidden = prefill();
      continue;
    }
    TokenBatch one;
    one.tokens = next;
    if (options.inputs) {
      std::vector<std::int64_t> newest;
      for (const auto& row : rows) newest.push_back(static_cast<std::int64_t>(row.size()) - 1);
      one.named = options.inputs(rows, newest);
    }
    hidden = model.hidden(one, &cache, options.dtype);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace torsor
