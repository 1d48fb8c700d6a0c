#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <vector>

#include "torsor/cli/eval_encoder.h"
#include "torsor/data/corpus.h"
#include "torsor/lab/run.h"
#include "torsor/model/encoder.h"
#include "torsor/model/encoder_decoder.h"
#include "torsor/train/state.h"

namespace torsor {

at::Tensor first_tokens(const Corpus& corpus, std::int64_t most) {
  const Document& document = corpus.documents.front();
  auto count = static_cast<std::int64_t>(document.tokens.size());
  if (most > 0) count = std::min(count, most);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
  document.tokens.copy(0, ids.size(), ids.data());
  return at::tensor(ids, at::kLong).view({1, count});
}

namespace {

/// The same of a file.
at::Tensor tokens_of(const std::string& path, std::int64_t token_bytes, std::int64_t vocabulary, std::int64_t most) {
  return first_tokens(load_tokens(path, static_cast<std::size_t>(token_bytes), static_cast<std::uint32_t>(vocabulary)),
                      most);
}

}  // namespace

int run_encoder_eval(const EncoderEvalArguments& arguments, const CommonOptions& common) {
  if (!arguments.source_tokens.empty())
    throw UsageError("--source-tokens goes with a model of an encoder and a decoder");
  const LoadedEncoder loaded = load_encoder(arguments.checkpoint);
  const ModelConfig& config = loaded.encoder.config().model;
  if (!loaded.encoder.encoding().inputs().empty())
    throw UsageError(str("'", config.encoding, "' reads the syntax of a text, which token ids have not"));
  const at::NoGradGuard no_grad;
  const at::ScalarType dtype = dtype_named(arguments.dtype);
  EncoderBatch batch;
  batch.tokens = tokens_of(arguments.tokens, arguments.token_bytes, config.vocabulary_size,
                           arguments.length > 0 ? arguments.length : config.train_length);
  const at::Tensor hidden = loaded.encoder.hidden(batch, false, dtype);
  std::map<std::string, at::Tensor> tensors = {{"tokens", batch.tokens.squeeze(0)},
                                               {"hidden", hidden.squeeze(0).to(at::kFloat)}};
  if (loaded.encoder.config().token_head)
    tensors["logits"] = loaded.encoder.token_logits(hidden, dtype).squeeze(0).to(at::kFloat);
  if (loaded.encoder.config().labels > 0)
    tensors["class_logits"] = loaded.encoder.class_logits(hidden, false, dtype).squeeze(0).to(at::kFloat);
  save_tensors(arguments.dump, tensors);
  if (common.json)
    std::cout << json_text({{"checkpoint", arguments.checkpoint},
                            {"encoding", config.encoding},
                            {"tokens", batch.tokens.size(1)}},
                           1)
              << "\n";
  else
    std::cout << config.encoding << ": " << batch.tokens.size(1) << " tokens read, written to " << arguments.dump
              << "\n";
  return 0;
}

int run_encoder_decoder_eval(const EncoderEvalArguments& arguments, const CommonOptions& common) {
  if (arguments.tokens.empty() || arguments.source_tokens.empty())
    throw UsageError("a model of an encoder and a decoder reads --source-tokens and scores --tokens");
  const LoadedEncoderDecoder loaded = load_encoder_decoder(arguments.checkpoint);
  const EncoderDecoderConfig& config = loaded.model.config();
  const std::int64_t vocabulary = config.decoder.vocabulary_size;
  const at::NoGradGuard no_grad;
  const at::ScalarType dtype = dtype_named(arguments.dtype);
  const at::Tensor source = tokens_of(arguments.source_tokens, arguments.token_bytes, vocabulary, 0);
  const at::Tensor target = tokens_of(arguments.tokens, arguments.token_bytes, vocabulary, arguments.length);
  // Each token is predicted from those before it, the first from the start token.
  const at::Tensor read =
      at::cat({at::full({1, 1}, config.start_token, at::kLong), target.narrow(1, 0, target.size(1) - 1)}, 1);
  const at::Tensor logits =
      loaded.model.logits(read, loaded.model.read(source, {}, dtype), dtype).squeeze(0).to(at::kFloat);
  if (!arguments.dump.empty())
    save_tensors(arguments.dump,
                 {{"source_tokens", source.squeeze(0)}, {"tokens", target.squeeze(0)}, {"logits", logits}});
  const double loss = at::cross_entropy_loss(logits.to(at::kDouble), target.squeeze(0)).item<double>();
  if (common.json)
    std::cout << json_text({{"checkpoint", arguments.checkpoint},
                            {"encoding", config.decoder.encoding},
                            {"source_encoding", config.encoder.encoding},
                            {"source_tokens", source.size(1)},
                            {"tokens", target.size(1)},
                            {"loss", loss},
                            {"perplexity", std::exp(loss)}},
                           1)
              << "\n";
  else
    std::cout << config.encoder.encoding << " -> " << config.decoder.encoding << " on " << target.size(1)
              << " tokens behind a source of " << source.size(1) << "\n"
              << "    loss " << std::setprecision(6) << loss << "  perplexity " << std::exp(loss) << "\n";
  return 0;
}

}  // namespace torsor
