#include "torsor/data/tokenizer_file.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "torsor/base/base64.h"
#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/json.h"
#include "torsor/base/utf8.h"
#include "torsor/data/bpe.h"
#include "torsor/data/bpe_alphabet.h"
#include "torsor/data/fallback_bpe.h"
#include "torsor/data/llama2_tokenizer.h"
#include "torsor/data/replaced.h"
#include "torsor/data/sentencepiece.h"
#include "torsor/data/tokenizer_json.h"
#include "torsor/data/wordpiece.h"

namespace torsor {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& folder, const char* name) {
  std::error_code error;
  return fs::exists(fs::path(folder) / name, error);
}

bool has_model(const std::string& folder) { return has(folder, "tokenizer.model") || has(folder, "spiece.model"); }

/// Says what a file of tiktoken is, which has the name of SentencePiece's: "IQ== 0", a token in base64 and its rank, on
/// every line, and nothing about how texts are cut.
void refuse_tiktoken(const std::string& path) {
  const auto content = FileContent::open(path);
  const std::string_view line = content->bytes().substr(0, std::min(content->bytes().find('\n'), std::size_t{1000}));
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0) return;
  const std::string_view rank = line.substr(space + 1);
  if (base64_bytes(line.substr(0, space)) && !rank.empty() &&
      rank.find_first_not_of("0123456789\r") == std::string_view::npos)
    throw Error(str(path,
                    ": a vocabulary of tiktoken is not read: it does not say how texts are cut. A tokenizer.json of "
                    "the same model does"));
}

/// A model of SentencePiece: a file, or the folder that it lies in.
std::shared_ptr<const Tokenizer> load_pieces(const std::string& path) {
  std::error_code error;
  std::string file = path;
  if (fs::is_directory(path, error)) file += has(path, "tokenizer.model") ? "/tokenizer.model" : "/spiece.model";
  refuse_tiktoken(file);
  return SentencePieceTokenizer::load(path);
}

/// The tokenizer of a tokenizer.json: the file, or the folder that it lies in.
std::shared_ptr<const Tokenizer> load_json(const std::string& file, const std::string& path) {
  const Json document = read_tokenizer_json(file);
  const std::string kind = tokenizer_kind(document);
  if (kind == "WordPiece") return WordPieceTokenizer::load(file);
  if (kind == "Unigram") return SentencePieceTokenizer::load(file);
  if (kind == "BPE") {
    const Json& model = document.at("model");
    if (const auto found = model.find("byte_fallback"); found != model.end() && *found == true) {
      // The model itself where it can be applied: it says which of two pieces with one text comes first.
      if (file != path && has_model(path) && has_sentencepiece()) return SentencePieceTokenizer::load(path);
      return FallbackBpeTokenizer::load(file);
    }
  }
  return BpeTokenizer::load(file);
}

std::shared_ptr<const Tokenizer> load_folder(const std::string& path) {
  if (has(path, "tokenizer.json")) return load_json(path + "/tokenizer.json", path);
  if (has_model(path)) return load_pieces(path);
  if (has(path, "vocab.json") && has(path, "merges.txt")) return BpeTokenizer::load(path);
  if (has(path, "vocab.txt")) return WordPieceTokenizer::load(path);
  if (has(path, "tokenizer.bin")) return Llama2Tokenizer::load(path + "/tokenizer.bin");
  throw Error(
      str("tokenizer: expected tokenizer.json, tokenizer.model, spiece.model, vocab.json and merges.txt, "
          "vocab.txt or tokenizer.bin in '",
          path, "'"));
}

/// SentencePiece's pieces with scores, as llama2.c has them.
std::shared_ptr<const Tokenizer> llama_vocabulary(const GgufFile& file) {
  const auto fail = [&](const std::string& message) { throw Error(str(file.source(), ": ", message)); };
  if (const auto begin = file.integer("tokenizer.ggml.bos_token_id", 1); begin != 1)
    fail(str("tokenizer.ggml.bos_token_id must be 1, found ", begin));
  const std::vector<std::string> tokens = file.texts("tokenizer.ggml.tokens");
  const std::vector<double> scores = file.reals("tokenizer.ggml.scores");
  if (scores.size() != tokens.size())
    fail(str("tokenizer.ggml has ", tokens.size(), " tokens and ", scores.size(), " scores"));
  for (const char* key : {"tokenizer.ggml.add_space_prefix", "tokenizer.ggml.add_bos_token"})
    if (const auto found = file.keys().find(key); found != file.keys().end() && found->second != GgufValue(true))
      fail(str(key, " must be true: a text begins with its mark and a space"));
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::size_t id = Llama2Tokenizer::kFirstByte + byte;
    const std::string name = byte_name(static_cast<std::uint8_t>(byte));
    if (id >= tokens.size() || tokens[id] != name)
      fail(str("tokenizer.ggml.tokens must have ", name, " at ", id, ", found ",
               id < tokens.size() ? quote(tokens[id], 40) : "no such id"));
  }
  std::vector<Llama2Tokenizer::Piece> pieces;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    pieces.push_back({static_cast<float>(scores[i]), replaced(tokens[i], kSpace, " ")});
  return tokenizer_of<Llama2Tokenizer>(file.source(), std::move(pieces));
}

}  // namespace

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return load_folder(path);
  if (path.ends_with(".model") || path.ends_with(".tiktoken")) return load_pieces(path);
  if (path.ends_with(".txt")) return WordPieceTokenizer::load(path);
  if (path.ends_with(".bin")) return Llama2Tokenizer::load(path);
  if (path.ends_with(".gguf")) return gguf_tokenizer(GgufFile(path));
  return load_json(path, path);
}

bool holds_tokenizer(const std::string& folder) {
  return has(folder, "tokenizer.json") || has_model(folder) ||
         (has(folder, "vocab.json") && has(folder, "merges.txt")) || has(folder, "vocab.txt") ||
         has(folder, "tokenizer.bin");
}

FoundTokenizer find_tokenizer(const std::string& folder, std::int64_t vocabulary) {
  FoundTokenizer found;
  try {
    if (holds_tokenizer(folder)) found.reader = load_tokenizer(folder);
  } catch (const Error& problem) {
    found.unread = problem.what();
  }
  if (found.reader && static_cast<std::int64_t>(found.reader->vocabulary_size()) > vocabulary)
    throw Error(
        str(folder, ": the tokenizer has ", found.reader->vocabulary_size(), " tokens, the model ", vocabulary));
  return found;
}

std::shared_ptr<const Tokenizer> named_tokenizer(const std::string& folder, const std::string& name) {
  auto bytes = std::make_shared<ByteTokenizer>();
  if (name == bytes->name()) return bytes;
  std::shared_ptr<const Tokenizer> found;
  std::string file;
  if (name.starts_with("bpe-"))
    found = BpeTokenizer::load(file = folder + "/tokenizer.json");
  else if (name.starts_with("fallbackbpe-"))
    found = FallbackBpeTokenizer::load(file = folder + "/tokenizer.json");
  else if (name.starts_with("wordpiece-"))
    found = WordPieceTokenizer::load(file = folder + "/tokenizer.json");
  else if (name.starts_with("sentencepiece-"))
    found = SentencePieceTokenizer::load(file = folder);
  else if (name.starts_with("llama2c-") && has(folder, "tokenizer.bin"))  // once it was not kept beside the model
    found = Llama2Tokenizer::load(file = folder + "/tokenizer.bin");
  if (found && found->name() != name)
    throw Error(
        str(file, ": not the tokenizer of this model: it is '", found->name(), "', config.json says '", name, "'"));
  return found;
}

std::shared_ptr<const Tokenizer> gguf_tokenizer(const GgufFile& file) {
  const std::string kind = file.text("tokenizer.ggml.model", "");
  if (kind == "llama") return llama_vocabulary(file);
  if (kind == "bert") return WordPieceTokenizer::of_gguf(file);
  if (kind == "gpt2") return BpeTokenizer::of_gguf(file);
  throw Error(str(file.source(), ": tokenizer.ggml.model must be llama, gpt2 or bert, found ", quote(kind, 40)));
}

}  // namespace torsor
