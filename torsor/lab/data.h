// Where the text of a run comes from, named so that it can be found again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/data/corpus.h"
#include "torsor/syntax/parse.h"

namespace torsor {

/// What the user asked for. A file *.conllu is a treebank: each of its documents is a text, with gold trees. Without
/// text and tokens, the project's own corpus is generated.
struct DataSource {
  std::vector<std::string> text;   ///< files or folders
  std::vector<std::string> valid;  ///< files or folders; empty = a part of the text is set apart
  std::string tokens;              ///< a headerless file of token ids, instead of text
  std::int64_t token_bytes = 2;
  std::string tokenizer;  ///< load_tokenizer() of what turns text into ids; empty = ids are bytes
  std::int64_t generated_bytes = 4'000'000;
  std::uint64_t generated_seed = 0;
};

/// Gold parses of whole documents, mode oracle, made when they are asked for.
using GoldParses = std::function<std::vector<syntax::Parse>()>;

/// Domains (syntax::domain_of) of treebanks' documents by the SHA-256 of their texts; of a document with sentences of
/// several all of them, with '+' between. Made when they are asked for.
using TextDomains = std::function<std::map<std::string, std::string>()>;

/// Texts, and the documents of treebanks.
struct TextData {
  Corpus corpus;
  TextDomains domains;       ///< empty without treebanks
  bool other_texts = false;  ///< some document is none of a treebank's
  GoldParses gold;           ///< of the treebanks' documents; empty without treebanks
};
/// Without `reader` ids are bytes. Throws Error naming the path.
TextData load_texts(const std::vector<std::string>& paths, std::shared_ptr<const Tokenizer> reader = nullptr);

struct LmData {
  Corpus train, valid;
  std::string description;  ///< for people: "10.3 MB of text in 8 documents"
  std::string sha256;       ///< of both sides
  GoldParses gold;          ///< of treebanks' documents, and of generated text; empty where there are none
  TextDomains domains;      ///< empty without treebanks
  bool other_texts = true;  ///< some document is none of a treebank's
};

/// Loads and splits. Text becomes the ids of `reader`, else of the source's tokenizer. `longest` is the largest
/// evaluation length: documents set apart for validation hold that many tokens where any does. Throws Error naming the
/// path.
LmData load_data(const DataSource& source, std::int64_t longest, std::shared_ptr<const Tokenizer> reader = nullptr);

Json data_to_json(const DataSource& source);
DataSource data_from_json(const Json& json, const std::string& where);

}  // namespace torsor
