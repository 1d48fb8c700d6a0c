// Tuning a frozen model: which tensors are trained, and the small folder that holds nothing else.
//
//     DIR/adapter.json          the plan, the base checkpoint and its SHA-256
//     DIR/adapter.safetensors   the trained tensors, and those of the encoding that the base has not
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/model/checkpoint.h"
#include "torsor/model/lora.h"

namespace torsor {

/// What is trained, and under which encoding.
struct AdapterPlan {
  /// "lora": low-rank terms of attention projections; "positions": the encoding's own tensors in all layers; "tape":
  /// the same under tape(E) (Zhu et al. 2025, arXiv:2501.00712).
  std::string train = "lora";
  std::string encoding;  ///< expression; empty = the base's, and for "tape" the base's in tape(...)
  LoraOptions lora;      ///< read by "lora" alone
  /// Trained besides: "embeddings" (of the tokens; with a tied head that too), "norms" (every RMS norm's gain),
  /// "positions" (beside "lora": the encoding's tensors).
  std::vector<std::string> with;

  bool trains(const std::string& part) const;  ///< "lora", "positions", "embeddings", "norms"
};

/// What the tensors of an adapter mean; stands in adapter.json for people, beside the tensors themselves, and in
/// results.
Json adapter_to_json(const AdapterPlan& plan);

/// The plan with its encoding filled in and in canonical form. Throws UsageError for an unknown word, a plan that
/// trains nothing, a "tape" that is not one, and an encoding that tape(...) cannot wrap.
AdapterPlan complete_plan(AdapterPlan plan, const ModelConfig& base);

/// How many numbers a plan trains; made from shapes alone, so any size of model may be asked about.
std::int64_t trained_count(const ModelConfig& base, const AdapterPlan& plan);

/// A base model with what is trained beside it. Frozen tensors are shared with the base, trained ones are not.
struct TunedModel {
  AdapterPlan plan;  ///< complete
  Decoder model;     ///< with low-rank terms attached
  std::vector<LayerLowRank> low_rank;
  std::vector<ModelParameter> trained;  ///< require gradients; their names are those in adapter.safetensors
  std::vector<ModelParameter> drawn;    ///< tensors of the encoding that the base has not and that are not trained
  std::vector<std::string> fresh;       ///< the encoding's tensors that start at their initial values

  std::int64_t trained_count() const;
  std::int64_t frozen_count() const;  ///< all other numbers of the model
  /// The plain model that means the same: low-rank terms are added to their weights (float64, rounded once), every
  /// other tensor keeps its bits.
  Decoder merged() const;
};

/// Tensors of an encoding's term that the base has too, written alike and on the same heads (alone or inside a wrapper:
/// the rope of tape(rope)), go on from the base's values; the others start at their initial ones, drawn from `seed`.
/// Throws UsageError as complete_plan does, and where the encoding does not fit the model.
TunedModel make_tuned(const Decoder& base, const AdapterPlan& plan, std::uint64_t seed);

/// The checkpoint that an adapter was trained on.
struct AdapterBase {
  std::string folder;  ///< or file: whatever load_checkpoint() takes, but for an adapter
  std::string weights_sha256;
  std::string tokenizer;
  ModelConfig config;
  std::string embedder = {};  ///< as LoadedModel::embedder; the base's own record of it, not the adapter's
  std::shared_ptr<const Tokenizer> reader = {};  ///< as LoadedModel::reader
};

/// SHA-256 of a checkpoint's weights: of its one file, or of a list with a line for each of several, "NAME HASH".
/// Throws Error when one cannot be read.
std::string weights_sha256(const std::string& checkpoint);

/// Writes both files, each in one step, adapter.json last. The base's folder is recorded relative to `folder`; `run`
/// (how it was trained: steps, length, seed ...) is recorded as it is.
void save_adapter(const std::string& folder, const TunedModel& tuned, const AdapterBase& base, const Json& run);

/// Whether a folder holds an adapter.
bool is_adapter(const std::string& folder);

struct LoadedAdapter {
  TunedModel tuned;
  AdapterBase base;
  Json run;
};

/// Reads an adapter onto its base: the recorded folder, or `base` where it is not empty. Throws Error naming the file
/// when something is missing or damaged, and when the base is another checkpoint than the one it was trained on.
LoadedAdapter load_adapter(const std::string& folder, const std::string& base = "");

}  // namespace torsor
