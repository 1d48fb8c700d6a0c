// A model's cache goes back, each row by its own number of tokens, and goes on: alone and beside an encoder's output,
// left-padded sources included, in float64 and float32.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/model/tokens.h"
#include "torsor/model/encoder_decoder.h"
#include "torsor/model/hugging_face_t5.h"

namespace torsor {
namespace {

/// T5's two stacks, small, with drawn weights away from their start.
EncoderDecoder t5_model(const char* type) {
  const Json config = {{"model_type", type},
                       {"vocab_size", 50},
                       {"d_model", 24},
                       {"d_kv", 10},
                       {"d_ff", 36},
                       {"num_layers", 2},
                       {"num_decoder_layers", 3},
                       {"num_heads", 3},
                       {"relative_attention_num_buckets", 8},
                       {"relative_attention_max_distance", 20},
                       {"is_encoder_decoder", true},
                       {"pad_token_id", 0},
                       {"eos_token_id", 1},
                       {"decoder_start_token_id", 0}};
  EncoderDecoder model(read_hugging_face_t5(config, "config").config, 3);
  const at::NoGradGuard no_grad;
  for (const ModelParameter& parameter : model.parameters()) {
    const std::int64_t count = parameter.tensor.numel();
    parameter.tensor.add_((at::arange(count, at::kFloat) * 1.7).sin().mul_(0.3).view(parameter.tensor.sizes()));
  }
  return model;
}

TEST(EncoderDecoderCache, RowsGoBackByThemselvesAndGoOn) {
  const at::NoGradGuard no_grad;
  for (const char* type : {"t5", "mt5", "umt5"})
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      SCOPED_TRACE(::testing::Message() << type << " " << c10::toString(dtype));
      const EncoderDecoder model = t5_model(type);
      const Decoder& writes = model.decoder();
      const std::int64_t lengths[] = {9, 1, 5};
      const at::Tensor text = random_tokens(3, 9), targets = random_tokens(3, 26).add(1).remainder(50);
      at::Tensor sources = at::full({3, 9}, 7, at::kLong), documents = at::full({3, 9}, -1, at::kLong);
      std::vector<at::Tensor> wanted;
      for (std::int64_t row = 0; row < 3; ++row) {
        const std::int64_t length = lengths[row];
        const at::Tensor source = text[row].narrow(0, 0, length);
        sources[row].narrow(0, 9 - length, length).copy_(source);
        documents[row].narrow(0, 9 - length, length).zero_();
        wanted.push_back(model.logits(targets.narrow(0, row, 1), model.read(source.view({1, -1}), {}, dtype), dtype));
      }
      const at::Tensor alone = at::cat(wanted, 0), other = targets.add(3).remainder(50);
      // Sums in another order, relative to the largest logit.
      const double bound = (dtype == at::kDouble ? 1e-12 : 1e-5) * alone.abs().max().item<double>();
      const Memory memory = model.read(sources, documents, dtype);
      EXPECT_LE(largest_difference(model.logits(targets, memory, dtype), alone), bound);
      KvCache cache = writes.make_cache(3, 40, dtype);
      std::vector<std::int64_t> stand(3, 0);
      const auto write = [&](const at::Tensor& from, const std::vector<std::int64_t>& counts, bool right) {
        const std::int64_t most = *std::max_element(counts.begin(), counts.end());
        TokenBatch part;
        part.tokens = at::full({3, most}, 11, at::kLong);
        for (std::int64_t row = 0; row < 3; ++row) {
          const std::int64_t count = counts[static_cast<std::size_t>(row)];
          part.tokens[row].narrow(0, 0, count).copy_(from[row].narrow(0, stand[static_cast<std::size_t>(row)], count));
        }
        part.counts = at::tensor(counts, at::kLong);
        part.memory = &memory;
        const at::Tensor logits = writes.logits(writes.hidden(part, &cache, dtype), dtype);
        for (std::int64_t row = 0; row < 3; ++row) {
          const std::int64_t count = counts[static_cast<std::size_t>(row)];
          std::int64_t& place = stand[static_cast<std::size_t>(row)];
          if (right && count > 0) {
            EXPECT_LE(largest_difference(logits[row].narrow(0, 0, count), alone[row].narrow(0, place, count)), bound)
                << "row " << row << " from " << place;
          }
          place += count;
        }
      };
      const auto back = [&](const std::vector<std::int64_t>& to) {
        cache.truncate(to);
        stand = to;
        for (std::int64_t layer = 0; layer < 3; ++layer) EXPECT_EQ(cache.lengths(layer), to);
      };
      write(targets, {6, 2, 4}, true);
      write(targets, {1, 1, 1}, true);
      write(other, {8, 8, 8}, false);  // wrong tokens
      back({7, 3, 5});
      write(targets, {0, 5, 3}, true);
      back({2, 8, 0});  // further back than what came last, one row not at all, one to its beginning
      write(targets, {7, 3, 9}, true);
      for (int step = 0; step < 5; ++step) write(targets, {1, 1, 1}, true);
      EXPECT_EQ(cache.lengths(), (std::vector<std::int64_t>{14, 16, 14}));
    }
}

}  // namespace
}  // namespace torsor
