// Whatever tokenizer a file or a folder holds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "torsor/base/gguf.h"
#include "torsor/data/tokenizer.h"

namespace torsor {

/// Reads a tokenizer. Of a folder, the first of these that is there:
///
///     tokenizer.json                    BpeTokenizer, FallbackBpeTokenizer, WordPieceTokenizer,
///     SentencePieceTokenizer,
///                                       by its model's type; a BPE with byte_fallback is passed over where
///                                       tokenizer.model is beside it and the build can apply that
///     tokenizer.model, spiece.model     SentencePieceTokenizer
///     vocab.json and merges.txt         BpeTokenizer
///     vocab.txt                         WordPieceTokenizer
///     tokenizer.bin                     Llama2Tokenizer
///
/// Of a file, by its name: .json, .model, .txt (a vocab.txt), .bin, .gguf (gguf_tokenizer()); any other is taken for a
/// tokenizer.json. Throws Error naming the file and what is wrong, or the folder that holds none.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path);

/// Whether a folder holds one of these files. It may still be of a kind that is not read.
bool holds_tokenizer(const std::string& folder);

struct FoundTokenizer {
  std::shared_ptr<const Tokenizer> reader;  ///< nothing where there is none, or none that is read
  std::string unread;                       ///< why one that is there was not read
};

/// The tokenizer that the folder of a model of `vocabulary` ids holds. Throws Error where it has more tokens than that.
FoundTokenizer find_tokenizer(const std::string& folder, std::int64_t vocabulary);

/// The tokenizer that a checkpoint in `folder` names: bytes; what Tokenizer::files() has written, found by the kind
/// that `name` begins with; nothing for other names ("tokens"), whose ids are no text. Throws Error where it is missing
/// or has another name.
std::shared_ptr<const Tokenizer> named_tokenizer(const std::string& folder, const std::string& name);

/// The tokenizer of a GGUF file's vocabulary: tokenizer.ggml.model "llama" (whose texts begin with id 1 and a space),
/// "gpt2" (by the rule that tokenizer.ggml.pre names) or "bert".
/// Throws Error naming the file and the key.
std::shared_ptr<const Tokenizer> gguf_tokenizer(const GgufFile& file);

}  // namespace torsor
