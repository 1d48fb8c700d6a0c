// Byte-level BPE in GGUF files (tokenizer.ggml.model "gpt2").
#include <algorithm>
#include <string_view>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"
#include "torsor/data/bpe.h"
#include "torsor/data/bpe_names.h"
#include "torsor/data/tokenizer_json.h"

namespace torsor {
namespace {

/// What a name under tokenizer.ggml.pre stands for. The rules are those that llama.cpp applies under these names.
struct Pre {
  std::string_view name;
  BpeSplit split;
  bool llama3 = false;  ///< tokens before merges, and a beginning where the file does not deny it
};

constexpr Pre kPre[] = {
    {"gpt-2", BpeSplit::gpt2},
    {"phi-2", BpeSplit::gpt2},
    {"mpt", BpeSplit::gpt2},
    {"olmo", BpeSplit::gpt2},
    {"gigachat", BpeSplit::gpt2},
    {"smollm", BpeSplit::digits},
    {"starcoder", BpeSplit::digits},
    {"refact", BpeSplit::digits},
    {"command-r", BpeSplit::digits},
    {"codeshell", BpeSplit::digits},
    {"llama-bpe", BpeSplit::llama3, true},
    {"llama3", BpeSplit::llama3, true},
    {"llama-v3", BpeSplit::llama3, true},
    {"falcon3", BpeSplit::llama3, true},
    {"dbrx", BpeSplit::llama3},
    {"smaug-bpe", BpeSplit::llama3},
    {"qwen2", BpeSplit::qwen2},
    {"deepseek-r1-qwen", BpeSplit::qwen2},
    {"stablelm2", BpeSplit::qwen2},
};

// Numbers of tokenizer.ggml.token_type.
enum TokenType : std::int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5 };

class GgufVocabulary {
 public:
  explicit GgufVocabulary(const GgufFile& file) : file_(file) {}

  BpeModel read() const {
    const Pre pre = rule();
    std::vector<std::string> tokens = file_.texts("tokenizer.ggml.tokens");
    const std::vector<std::int64_t> types = types_of(tokens.size());
    BpeModel model;
    for (TokenId id = 0; id < tokens.size(); ++id) {
      if (find_invalid_utf8(tokens[id]) != std::string::npos)
        fail("tokens", str("the token of id ", id, " is not UTF-8: ", quote(tokens[id], 40)));
      if (types[id] == kControl || types[id] == kUserDefined || types[id] == kUnknown)
        model.added.push_back({.id = id, .content = tokens[id], .special = types[id] != kUserDefined});
    }
    const BpeNames names(tokens, model.added, key("tokens"));
    // An unused token stands for no text that could come up, whatever its name is.
    std::vector<TokenId> unused;
    for (TokenId id = 0; id < tokens.size(); ++id)
      if (types[id] == kUnused) unused.push_back(id);
    model.vocabulary = names.bytes(unused);
    const std::vector<std::string> merges = file_.texts("tokenizer.ggml.merges");
    const std::string where = key("merges");
    for (const std::string& one : merges)
      model.merges.push_back(names.merge(std::string_view(one), str(where, '[', model.merges.size(), ']')));
    model.split = pre.split;
    model.ignore_merges = pre.llama3;
    model.begin = begin(pre, model.vocabulary.size());
    return model;
  }

 private:
  std::string key(const char* name) const { return str(file_.source(), ": tokenizer.ggml.", name); }
  [[noreturn]] void fail(const char* name, const std::string& message) const {
    throw Error(str(key(name), ": ", message));
  }

  Pre rule() const {
    if (!file_.has("tokenizer.ggml.pre")) fail("pre", "it is missing, so nothing tells how texts are cut");
    const std::string name = file_.text("tokenizer.ggml.pre", "");
    for (const Pre& one : kPre)
      if (one.name == name) return one;
    std::string known;
    for (const Pre& one : kPre) known += str(known.empty() ? "" : ", ", one.name);
    fail("pre", str(quote(name, 40), " is not read; there are ", known));
  }

  std::vector<std::int64_t> types_of(std::size_t size) const {
    const auto found = file_.keys().find("tokenizer.ggml.token_type");
    if (found == file_.keys().end()) fail("token_type", "it is missing, so nothing tells marks from text");
    const auto* types = std::get_if<std::vector<std::int64_t>>(&found->second);
    if (types == nullptr) fail("token_type", "expected a list of whole numbers");
    if (types->size() != size) fail("token_type", str("there are ", types->size(), " for ", size, " tokens"));
    for (std::size_t id = 0; id < size; ++id)
      if ((*types)[id] < kNormal || (*types)[id] > kUnused)
        fail("token_type", str("expected 1 to 5, got ", (*types)[id], " for id ", id));
    return *types;
  }

  std::optional<TokenId> begin(const Pre& pre, std::size_t size) const {
    bool adds = pre.llama3;
    if (const auto found = file_.keys().find("tokenizer.ggml.add_bos_token"); found != file_.keys().end()) {
      const bool* flag = std::get_if<bool>(&found->second);
      if (flag == nullptr) fail("add_bos_token", "expected true or false");
      adds = *flag;
    }
    if (!adds) return std::nullopt;
    const std::int64_t id = file_.integer("tokenizer.ggml.bos_token_id");
    if (id < 0 || id >= static_cast<std::int64_t>(size))
      fail("bos_token_id", str("expected an id below ", size, ", got ", id));
    return static_cast<TokenId>(id);
  }

  const GgufFile& file_;
};

}  // namespace

std::shared_ptr<const BpeTokenizer> BpeTokenizer::of_gguf(const GgufFile& file) {
  return tokenizer_of<BpeTokenizer>(file.source(), GgufVocabulary(file).read());
}

}  // namespace torsor
