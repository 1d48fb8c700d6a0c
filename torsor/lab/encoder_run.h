// Masked-language training of an encoder on text, and its pseudo-perplexity.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "torsor/data/batches.h"
#include "torsor/data/masking.h"
#include "torsor/lab/run.h"
#include "torsor/model/encoder.h"

namespace torsor {

/// What decides a pre-training's result. Of `run`, the model stands in `encoder` instead; a window of `length` tokens
/// is the first token, length - 2 bytes and a separator.
struct EncoderPlan {
  EncoderConfig encoder;
  RunPlan run;
  MaskingOptions masking = default_masking();
  double tau_weight = 1;  ///< of the loss of the first tag of masked words, where the encoder has tag heads (lambda_t)
  double nu_weight = 1;   ///< of the second (lambda_nt)

  static MaskingOptions default_masking();
};

Json encoder_plan_to_json(const EncoderPlan& plan);

/// The encoder of a plan with its first weights. Throws UsageError when expression and sizes do not fit.
Encoder make_encoder(const EncoderPlan& plan);

/// Rows that an encoder reads, with what it must find out.
struct MaskedBatch {
  EncoderBatch inputs;  ///< inputs of chosen words are withheld
  at::Tensor targets;   ///< (B, T) int64, the token at chosen places and -100 elsewhere
  at::Tensor tags;      ///< (B, T, 2) int64, the tags at chosen places that have some and -100 elsewhere; or undefined
};

/// The inputs without what they say of tokens that `chosen` (B, T) bool marks: tags and vectors become none, links that
/// begin or end there go. Sentences stay.
NamedTensors withheld(const NamedTensors& named, const at::Tensor& chosen);

/// Windows of `corpus` (bytes) as rows: a function of the windows, `seed` and `index` alone.
MaskedBatch masked_batch(const Corpus& corpus, const std::vector<Window>& windows, std::int64_t length,
                         const MaskingOptions& masking, std::uint64_t seed, std::uint64_t index,
                         const Encoding& encoding, const SyntaxFeed* feed);

/// The mean cross entropy of the tokens in nats, and with tag heads and tags the weighted ones of the tags added.
at::Tensor masked_loss(const Encoder& encoder, const MaskedBatch& batch, const EncoderPlan& plan, bool training);

struct EncoderResult {
  Encoder encoder;
  TrainResult train;
};

/// Trains and leaves config.json, model.safetensors, state.safetensors, state.json and log.jsonl in the folder; resumes
/// as train_run does. Throws UsageError when the data are no bytes.
EncoderResult train_encoder(const EncoderPlan& plan, const LmData& data, const RunControl& control,
                            std::shared_ptr<const SyntaxFeed> feed = nullptr);

/// The pseudo-perplexity of the validation text: every window of the plan's length once, always the same words masked,
/// their tags withheld. An entry of results.json with "task": "mlm"; its windows are mean losses a window.
Json evaluate_masked(const Encoder& encoder, const Corpus& corpus, const EncoderPlan& plan, std::int64_t most_windows,
                     const SyntaxFeed* feed, const std::function<bool()>& stop);

}  // namespace torsor
