#include "torsor/model/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "torsor/base/json.h"
#include "torsor/base/utf8.h"
#include "torsor/data/tokenizer_file.h"
#include "torsor/encoding/registry.h"
#include "torsor/model/expression_number.h"

namespace torsor {
namespace {

class Reading {
 public:
  explicit Reading(const GgufFile& file) : file_(file), architecture_(file.text("general.architecture", "")) {
    const std::set<std::string> known = {"llama", "qwen2", "qwen3", "phi3"};
    if (known.count(architecture_) == 0)
      throw Error(str(file_.source(), ": general.architecture ", quote(architecture_),
                      " is not read; there are llama, phi3, qwen2, qwen3"));
  }

  GgufModel run() {
    sizes();
    rotation();
    unknown_positions();
    tensors();
    // The end of a text, and of a turn where that is another.
    for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
      const auto end = file_.integer(key, -1);
      const std::vector<std::int64_t>& ends = model_.end_tokens;
      if (end >= 0 && end < model_.config.vocabulary_size && std::count(ends.begin(), ends.end(), end) == 0)
        model_.end_tokens.push_back(end);
    }
    tokenizer();
    try {
      model_.config.encoding = print(parse(model_.config.encoding));
      model_.config.complete();
      make_encoding(model_.config.encoding, model_.config.dimensions());
    } catch (const UsageError& error) {
      throw Error(str(file_.source(), ": ", error.what()));
    }
    return std::move(model_);
  }

 private:
  /// The architecture's key, which counts as known from now on.
  const std::string& own(const std::string& key) { return *known_.insert(architecture_ + "." + key).first; }
  [[noreturn]] void fail(const std::string& message) const { throw Error(str(file_.source(), ": ", message)); }

  void sizes() {
    ModelConfig& c = model_.config;
    c.width = file_.integer(own("embedding_length"));
    c.layers = file_.integer(own("block_count"));
    c.heads = file_.integer(own("attention.head_count"));
    c.kv_heads = file_.integer(own("attention.head_count_kv"), c.heads);
    if (c.heads < 1 || c.width < 1) fail("embedding_length and attention.head_count must be at least 1");
    c.head_dim = file_.integer(own("attention.key_length"), c.width / c.heads);
    if (file_.integer(own("attention.value_length"), c.head_dim) != c.head_dim)
      fail("attention.value_length is another than the width of keys");
    c.mlp_width = file_.integer(own("feed_forward_length"));
    c.norm_eps = file_.real(own("attention.layer_norm_rms_epsilon"), 1e-5);
    c.train_length = file_.integer(own("context_length"));
    if (const auto window = file_.integer(own("attention.sliding_window"), 0); window > 0) c.window = {window};
    if (file_.integer(own("expert_count"), 0) > 0) fail("models with experts are not read");
    c.block.qkv_bias = file_.entries().count("blk.0.attn_q.bias") > 0;
    c.block.output_bias = file_.entries().count("blk.0.attn_output.bias") > 0;
    if (file_.entries().count("blk.0.attn_q_norm.weight") > 0) c.qk_norm = QkNorm::Before;
    const auto embedding = file_.entries().find("token_embd.weight");
    if (embedding == file_.entries().end() || embedding->second.shape.size() != 2)
      fail("tensor 'token_embd.weight' (vocabulary, width) is missing");
    c.vocabulary_size = embedding->second.shape[0];
    c.tie_head = file_.entries().count("output.weight") == 0;
    own("vocab_size");
  }

  void rotation() {
    ModelConfig& c = model_.config;
    const std::int64_t turned = file_.integer(own("rope.dimension_count"), c.head_dim);
    std::string inner = "base=" + expression_number(file_.real(own("rope.freq_base"), 10000));
    if (architecture_ == "llama") inner += ", layout=interleaved";
    if (turned != c.head_dim) inner += str(", dim=", turned);
    const std::string rope = "rope(" + inner + ")";
    double factor = file_.real(own("rope.scaling.factor"), 0);
    if (factor == 0) factor = file_.real(own("rope.scale_linear"), 1);
    if (factor == 0) factor = 1;
    const std::int64_t original = file_.integer(own("rope.scaling.original_context_length"), c.train_length);
    const double magnitude = file_.real(own("rope.scaling.attn_factor"), 1);
    const std::string type = file_.text(own("rope.scaling.type"), "linear");
    own("rope.scaling.finetuned");
    const auto list = [&](const char* name) {
      const GgufEntry& entry = take(name);
      if (entry.shape.size() != 1 || entry.shape[0] != turned / 2)
        fail(str("tensor '", name, "' must have ", turned / 2, " numbers"));
      std::vector<float> numbers(static_cast<std::size_t>(turned / 2));
      entry.read(numbers.data());
      std::string text;
      for (const float one : numbers) text += (text.empty() ? "" : ", ") + expression_number(one);
      return "[" + text + "]";
    };
    const bool plain = file_.entries().count("rope_freqs.weight") > 0;
    const bool both = file_.entries().count("rope_factors_long.weight") > 0;
    if (type == "yarn") {
      c.train_length = original;
      c.encoding = str("yarn(", rope, ", factor=", expression_number(factor), ", train_length=", original);
      if (magnitude != 1)
        c.encoding += ", attention_factor=" + expression_number(magnitude * (0.1 * std::log(factor) + 1));
      c.encoding += ")";
      if (plain || both) fail("rope.scaling.type yarn beside frequency factors is not supported");
    } else if (both) {
      c.encoding = str("longrope(", rope, ", short=", list("rope_factors_short.weight"),
                       ", long=", list("rope_factors_long.weight"), ", train_length=", original,
                       ", attention_factor=", expression_number(magnitude), ")");
      c.train_length = original;
    } else if (plain) {
      // Divisors of the frequencies (Llama 3): the same for every length.
      const std::string divisors = list("rope_freqs.weight");
      c.encoding = str("longrope(", rope, ", short=", divisors, ", long=", divisors, ", train_length=", c.train_length,
                       ", attention_factor=1)");
    } else if (type == "linear" || type == "none") {
      c.encoding =
          factor == 1 || type == "none" ? rope : str("linear(", rope, ", factor=", expression_number(factor), ")");
      if (magnitude != 1) fail("rope.scaling.attn_factor is supported with yarn and longrope alone");
    } else {
      fail(str("rope.scaling.type ", quote(type), " is not supported"));
    }
  }

  void unknown_positions() const {
    for (const auto& [key, value] : file_.keys()) {
      if (known_.count(key) > 0 || !key.starts_with(architecture_ + ".")) continue;
      for (const char* part : {"rope", "alibi", "relative", "sliding", "attention."})
        if (key.find(part) != std::string::npos)
          fail(str("the key ", quote(key), " is not known here, and it is about positions or attention"));
    }
  }

  const GgufEntry& take(const std::string& name) {
    const auto found = file_.entries().find(name);
    if (found == file_.entries().end()) fail(str("tensor '", name, "' is missing"));
    used_.insert(name);
    return found->second;
  }

  at::Tensor tensor(const std::string& name) {
    const GgufEntry& entry = take(name);
    at::Tensor values = at::empty(entry.shape, at::kFloat);
    entry.read(values.data_ptr<float>());
    return values;
  }

  void put(const std::string& theirs, const std::string& ours) {
    for (const char* part : {".weight", ".bias"})
      if (file_.entries().count(theirs + part) > 0) model_.weights[ours + part] = tensor(theirs + part);
  }

  void tensors() {
    const ModelConfig& c = model_.config;
    put("token_embd", "model.embed_tokens");
    put("output_norm", "model.norm");
    put("output", "lm_head");
    for (std::int64_t layer = 0; layer < c.layers; ++layer) {
      const std::string theirs = str("blk.", layer, "."), ours = str("model.layers.", layer, ".");
      put(theirs + "attn_norm", ours + "input_layernorm");
      put(theirs + "ffn_norm", ours + "post_attention_layernorm");
      put(theirs + "attn_q", ours + "self_attn.q_proj");
      put(theirs + "attn_k", ours + "self_attn.k_proj");
      put(theirs + "attn_v", ours + "self_attn.v_proj");
      put(theirs + "attn_output", ours + "self_attn.o_proj");
      put(theirs + "attn_q_norm", ours + "self_attn.q_norm");
      put(theirs + "attn_k_norm", ours + "self_attn.k_norm");
      put(theirs + "ffn_gate", ours + "mlp.gate_proj");
      put(theirs + "ffn_up", ours + "mlp.up_proj");
      put(theirs + "ffn_down", ours + "mlp.down_proj");
      if (architecture_ == "phi3") split_phi3(theirs, ours);
    }
    for (const auto& [name, entry] : file_.entries())
      if (used_.count(name) == 0) fail(str("tensor '", name, "' belongs to no part of a ", architecture_));
  }

  void split_phi3(const std::string& theirs, const std::string& ours) {
    const ModelConfig& c = model_.config;
    const std::int64_t q = c.heads * c.head_dim, k = c.kv_heads * c.head_dim;
    const at::Tensor all = tensor(theirs + "attn_qkv.weight");
    if (all.dim() != 2 || all.size(0) != q + 2 * k)
      fail(str("tensor '", theirs, "attn_qkv.weight' must have ", q + 2 * k, " rows"));
    model_.weights[ours + "self_attn.q_proj.weight"] = all.narrow(0, 0, q).clone();
    model_.weights[ours + "self_attn.k_proj.weight"] = all.narrow(0, q, k).clone();
    model_.weights[ours + "self_attn.v_proj.weight"] = all.narrow(0, q + k, k).clone();
    at::Tensor& up = model_.weights[ours + "mlp.up_proj.weight"];
    if (!up.defined() || up.dim() != 2 || up.size(0) != 2 * c.mlp_width)
      fail(str("tensor '", theirs, "ffn_up.weight' must have ", 2 * c.mlp_width, " rows"));
    model_.weights[ours + "mlp.gate_proj.weight"] = up.narrow(0, 0, c.mlp_width).clone();
    up = up.narrow(0, c.mlp_width, c.mlp_width).clone();
  }

  /// A model without its tokenizer still takes ids.
  void tokenizer() {
    if (!file_.has("tokenizer.ggml.model") || !file_.has("tokenizer.ggml.tokens")) return;
    try {
      model_.reader = gguf_tokenizer(file_);
    } catch (const Error& problem) {
      model_.unread = problem.what();
      return;
    }
    if (static_cast<std::int64_t>(model_.reader->vocabulary_size()) > model_.config.vocabulary_size)
      fail(str("the tokenizer has ", model_.reader->vocabulary_size(), " tokens, the model ",
               model_.config.vocabulary_size));
  }

  const GgufFile& file_;
  std::string architecture_;
  std::set<std::string> known_, used_;
  GgufModel model_;
};

}  // namespace

GgufModel read_gguf_model(const std::string& path) {
  const GgufFile file(path);
  return Reading(file).run();
}

}  // namespace torsor
