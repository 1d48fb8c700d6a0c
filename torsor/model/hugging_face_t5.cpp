// Names: transformers 5.24, src/transformers/models/{t5,mt5,umt5}.
#include "torsor/model/hugging_face_t5.h"

#include <utility>
#include <vector>

#include "torsor/model/foreign_tensors.h"
#include "torsor/model/stored_encoding.h"

namespace torsor {
namespace {

constexpr const char* kEmbedding = "embed_tokens.weight";
constexpr const char* kHead = "decoder.lm_head.weight";
constexpr const char* kTheirHead = "lm_head.weight";

/// Their name and ours of every tensor but the embedding and the head.
std::vector<std::pair<std::string, std::string>> names_of(const HuggingFaceT5& model) {
  std::vector<std::pair<std::string, std::string>> names;
  const bool each = model.model_type == "umt5";  // a table a layer
  for (const bool writes : {false, true}) {
    const ModelConfig& c = writes ? model.config.decoder : model.config.encoder;
    const std::string stack = writes ? "decoder." : "encoder.";
    if (!each)
      names.emplace_back(stack + "block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                         stack + "model.position.t5.table");
    for (std::int64_t layer = 0; layer < c.layers; ++layer) {
      const std::string theirs = str(stack, "block.", layer, ".layer."), ours = str(stack, "model.layers.", layer, ".");
      if (each)
        names.emplace_back(theirs + "0.SelfAttention.relative_attention_bias.weight",
                           ours + "self_attn.position.t5.table");
      for (const char* part : {"q", "k", "v", "o"}) {
        names.emplace_back(str(theirs, "0.SelfAttention.", part, ".weight"),
                           str(ours, "self_attn.", part, "_proj.weight"));
        if (writes)
          names.emplace_back(str(theirs, "1.EncDecAttention.", part, ".weight"),
                             str(ours, "cross_attn.", part, "_proj.weight"));
      }
      names.emplace_back(theirs + "0.layer_norm.weight", ours + "input_layernorm.weight");
      if (writes) names.emplace_back(theirs + "1.layer_norm.weight", ours + "cross_attention_layernorm.weight");
      const std::string last = theirs + (writes ? "2." : "1.");
      names.emplace_back(last + "layer_norm.weight", ours + "post_attention_layernorm.weight");
      const bool gated = is_gated(c.block.mlp);
      if (gated) names.emplace_back(last + "DenseReluDense.wi_0.weight", ours + "mlp.gate_proj.weight");
      names.emplace_back(last + (gated ? "DenseReluDense.wi_1.weight" : "DenseReluDense.wi.weight"),
                         ours + "mlp.up_proj.weight");
      names.emplace_back(last + "DenseReluDense.wo.weight", ours + "mlp.down_proj.weight");
    }
    names.emplace_back(stack + "final_layer_norm.weight", stack + "model.norm.weight");
  }
  return names;
}

}  // namespace

HuggingFaceT5 read_hugging_face_t5(const Json& config, const std::string& source) {
  HuggingFaceT5 model = describe_hugging_face_t5(config, source);
  for (ModelConfig* one : {&model.config.encoder, &model.config.decoder}) check_stored_encoding(*one, source);
  return model;
}

std::map<std::string, at::Tensor> hugging_face_t5_weights(HuggingFaceT5& model,
                                                          const std::map<std::string, at::Tensor>& tensors,
                                                          const std::string& source, PassedOver* passed_over) {
  ForeignTensors found(tensors, source, model.model_type);
  auto& copies = found.passed_over().copies;
  // The embedding goes by three names; files hold some of them.
  at::Tensor shared;
  for (const char* name : {"shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}) {
    if (!found.has(name)) continue;
    const at::Tensor one = found.take(name);
    if (!shared.defined()) {
      shared = one;
      model.embedding = name;
    } else if (shared.equal(one)) {
      copies[name] = model.embedding;
    } else {
      throw Error(
          str(source, ": tensor '", name, "' differs from the other stack's embedding, which is not supported"));
    }
  }
  if (!shared.defined()) throw Error(str(source, ": tensor 'shared.weight' is missing"));
  found.put(kEmbedding, shared);
  if (found.has(kTheirHead)) {
    const at::Tensor head = found.take(kTheirHead);
    model.config.decoder.tie_head = head.equal(shared);
    if (model.config.decoder.tie_head)
      copies[kTheirHead] = model.embedding;
    else
      found.put(kHead, head);
  }
  // Of older files, which transformers does not read either.
  found.pass_over("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight");
  for (const auto& [theirs, ours] : names_of(model)) found.put(ours, found.take(theirs));
  if (passed_over != nullptr) *passed_over = found.passed_over();
  return found.finish();
}

std::map<std::string, at::Tensor> hugging_face_t5_tensors(const HuggingFaceT5Form& form,
                                                          std::map<std::string, at::Tensor> weights) {
  std::vector<std::pair<std::string, std::string>> names = names_of(form.model);
  names.emplace_back(form.model.embedding, kEmbedding);
  if (!form.model.config.decoder.tie_head) names.emplace_back(kTheirHead, kHead);
  OwnTensors own(std::move(weights), form.model.model_type);
  for (const auto& [theirs, ours] : names) own.put(theirs, own.take(ours));
  return own.finish(form.passed_over);
}

}  // namespace torsor
