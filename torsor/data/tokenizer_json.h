// What the readers and writers of tokenizer.json share, whatever the kind of the tokenizer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "torsor/base/error.h"
#include "torsor/base/json.h"
#include "torsor/data/bpe_added.h"

namespace torsor {

/// Vocabularies of a quarter of a million tokens take some 20 MB.
inline constexpr std::size_t kLargestTokenizerFile = std::size_t{512} << 20;

/// The document of a file, of at most kLargestTokenizerFile bytes.
Json read_tokenizer_json(const std::string& path);

/// "model.type" of a document, or what the model's other keys say where it is missing; "" where they say nothing.
std::string tokenizer_kind(const Json& document);

/// The list under "added_tokens"; none where it is missing. Throws Error naming the entry and the key, also for
/// `single_word`, which is not read.
std::vector<BpeAddedToken> added_tokens_of(const Json& document, const std::string& source);
/// One entry of such a list; `id` where it stands beside it.
BpeAddedToken added_token_of(const Json& one, const std::string& source, const std::string* id = nullptr);

/// Such a list, as added_tokens_of() reads it.
Json added_tokens_json(const std::vector<BpeAddedToken>& added);

/// The flags and the text of one token, without its id.
Json added_token_json(const BpeAddedToken& token);

/// A text of a file as messages show it.
std::string shown(std::string_view text);
/// Its "type"; throws where that is missing.
std::string type_of(JsonObject& object);

/// Throws for a key that is there and not null: it would change what the ids are.
void refuse_key(JsonObject& object, const char* key, const char* why);

/// A tokenizer made of `parts`; what it has against them is said of `source`.
template <class Made, class... Parts>
std::shared_ptr<const Made> tokenizer_of(const std::string& source, Parts&&... parts) {
  try {
    return std::make_shared<const Made>(std::forward<Parts>(parts)...);
  } catch (const Error& problem) {
    throw Error(str(source, ": ", problem.what()));
  }
}

/// A document with what check_tokenizer_document() and added_tokens_of() read.
Json tokenizer_document(const std::vector<BpeAddedToken>& added);

/// {name_of(id): id} of the ids below `size`.
template <class NameOf>
Json vocabulary_json(std::size_t size, const NameOf& name_of) {
  Json vocabulary = Json::object();
  auto& members = vocabulary.get_ref<Json::object_t&>();  // not by key, which would search all that is there
  for (std::size_t id = 0; id < size; ++id) members.emplace_back(name_of(id), id);
  return vocabulary;
}

/// Checks "version"; refuses "truncation" and "padding".
void check_tokenizer_document(JsonObject& document);

/// The token that "post_processor" puts before a text: that of a TemplateProcessing (alone or in a Sequence) with one
/// token before the text and none behind it. Nothing for any other, which is passed over. Throws Error where such a
/// template does not name the one id of its token.
std::optional<TokenId> begin_token_of(JsonObject& document);
/// What begin_token_of() reads, for a token with this text; null without one.
Json begin_token_json(std::optional<TokenId> begin, const std::string& text);

/// The value of a key that must be there, for large objects that JsonObject would copy.
const Json& tokenizer_part(const Json& object, const char* key, const std::string& source);

/// An id as json holds it. Throws Error where it is no whole number of at least 0 below 2^32 - 1; `what` names it.
TokenId token_id_of(const Json& value, const std::string& source, const std::string& what);

}  // namespace torsor
