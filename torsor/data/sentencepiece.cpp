#include "torsor/data/sentencepiece.h"

#include <algorithm>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/hash.h"
#include "torsor/base/json.h"
#include "torsor/base/utf8.h"
#include "torsor/data/bpe_alphabet.h"
#include "torsor/data/replaced.h"
#include "torsor/data/tokenizer_json.h"

#ifdef TORSOR_WITH_SENTENCEPIECE
#include <sentencepiece_processor.h>
#endif

namespace torsor {
namespace {

using Kind = SentencePieceModel::Kind;

constexpr std::string_view kNonCharacter = "\xF4\x8F\xBF\xBF";

/// Texts are given to the library up to this size; it counts in int.
constexpr std::size_t kLongestText = std::size_t{1} << 29;

}  // namespace

#ifdef TORSOR_WITH_SENTENCEPIECE

bool has_sentencepiece() { return true; }

/// The library's model, which is only given what check_sentencepiece() has looked at.
struct SentencePieceTokenizer::Library {
  explicit Library(const SentencePieceModel& model) {
    try {
      const auto status = processor.LoadFromSerializedProto(sentencepiece_bytes(model));
      if (!status.ok()) throw Error(str("SentencePiece refuses the model: ", status.ToString()));
    } catch (const Error&) {
      throw;
    } catch (const std::exception& problem) {
      throw Error(str("SentencePiece refuses the model: ", problem.what()));
    }
  }

  void encode(std::string_view text, std::vector<TokenId>& ids) const {
    std::vector<int> found;
    const auto status = processor.Encode(text, &found);
    if (!status.ok()) throw Error(str("SentencePiece cannot encode a text: ", status.ToString()));
    ids.insert(ids.end(), found.begin(), found.end());
  }

  sentencepiece::SentencePieceProcessor processor;
  std::unique_ptr<Library> inner;  // of texts that get no space; null where that is no other model
};

#else

bool has_sentencepiece() { return false; }

struct SentencePieceTokenizer::Library {
  explicit Library(const SentencePieceModel&) {
    throw Error(
        "this torsor was built without SentencePiece: install its library (Debian: libsentencepiece-dev) and "
        "build again");
  }
  void encode(std::string_view, std::vector<TokenId>&) const {}
  std::unique_ptr<Library> inner;
};

#endif

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceModel model, SentencePieceOptions options)
    : model_(std::move(model)), options_(std::move(options)) {
  check_sentencepiece(model_, "SentencePiece");
  if (!model_.decoded_characters.empty())
    throw Error("SentencePiece: a denormalizer_spec with a table of characters is not read");
  check_options();
  find_cuts();
  library_ = std::make_unique<Library>(model_);
  if (options_.space_first_only && model_.add_space) {
    SentencePieceModel inner = model_;
    inner.add_space = false;
    library_->inner = std::make_unique<Library>(inner);
  }
  Sha256 hash;
  hash.update(sentencepiece_bytes(model_));
  hash.update(str(';', options_.add_begin, options_.add_begin ? options_.begin : "", options_.space_first_only));
  for (const BpeAddedToken& token : options_.added)
    hash.update(str(token.id, ',', token.content.size(), ':', token.content, token.lstrip, token.rstrip));
  name_ = "sentencepiece-" + hash.hex().substr(0, 16);
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

void SentencePieceTokenizer::check_options() {
  std::vector<BpeAddedToken>& added = options_.added;
  std::sort(added.begin(), added.end(), [](const BpeAddedToken& a, const BpeAddedToken& b) { return a.id < b.id; });
  size_ = static_cast<std::uint32_t>(model_.pieces.size());
  for (std::size_t i = 0; i < added.size(); ++i) {
    const BpeAddedToken& token = added[i];
    const std::string shown = quote(token.content, 40);
    if (token.content.empty()) throw Error(str("SentencePiece: the added token of id ", token.id, " is empty"));
    if (find_invalid_utf8(token.content) != std::string::npos)
      throw Error(str("SentencePiece: the added token ", shown, " is not UTF-8"));
    if (i > 0 && added[i - 1].id == token.id)
      throw Error(str("SentencePiece: the added tokens ", quote(added[i - 1].content, 40), " and ", shown,
                      " have the same id ", token.id));
    if (token.id < model_.pieces.size()) {
      if (model_.pieces[token.id].text != token.content)
        throw Error(str("SentencePiece: the added token ", shown, " has the id ", token.id, " of the piece ",
                        quote(model_.pieces[token.id].text, 40)));
    } else if (token.id != size_++) {
      throw Error(str("SentencePiece: expected the ids of added tokens to go on at ", size_ - 1, ", got ", token.id,
                      " for ", shown));
    }
  }
  beside_.assign(size_, nullptr);
  for (const BpeAddedToken& token : added)
    if (token.id >= model_.pieces.size() || model_.pieces[token.id].kind != Kind::control)
      beside_[token.id] = &token.content;
  if (options_.add_begin) {
    const auto found = std::find_if(model_.pieces.begin(), model_.pieces.end(),
                                    [this](const auto& piece) { return piece.text == options_.begin; });
    if (found == model_.pieces.end() || found->kind != Kind::control)
      throw Error(str("SentencePiece: expected a control piece ", quote(options_.begin, 40),
                      " that texts begin with, found ", found == model_.pieces.end() ? "none" : "another kind"));
    begin_ = static_cast<TokenId>(found - model_.pieces.begin());
  }
  finder_ = AddedTokenFinder(added);
}

void SentencePieceTokenizer::find_cuts() {
  if (model_.method != SentencePieceModel::Method::unigram || !model_.add_space || !model_.remove_spaces ||
      !model_.escape_spaces)
    return;
  const std::vector<char> spaces = space_bytes(model_.characters);
  bool has_space = false;  // alone: else what is unknown would join across words
  for (const SentencePieceModel::Piece& piece : model_.pieces) {
    has_space = has_space || (piece.text == kSpace && piece.kind == Kind::normal);
    const bool in_text = piece.kind == Kind::normal || piece.kind == Kind::user_defined;
    if (in_text && (piece.text.find(kSpace, 1) != std::string::npos ||
                    piece.text.find_first_of(std::string_view(spaces.data(), spaces.size())) != std::string::npos))
      return;
  }
  if (has_space) cuts_ = spaces;
}

std::vector<TokenId> SentencePieceTokenizer::encode(std::string_view text) const {
  std::vector<TokenId> ids;
  if (options_.add_begin) ids.push_back(begin_);
  std::size_t from = 0;
  while (const auto match = finder_.find(text, from)) {
    if (match->begin > from) encode_plain(text.substr(from, match->begin - from), from == 0, ids);
    ids.push_back(match->id);
    from = match->end;
  }
  if (from < text.size()) encode_plain(text.substr(from), from == 0, ids);
  return ids;
}

void SentencePieceTokenizer::encode_plain(std::string_view text, bool first, std::vector<TokenId>& ids) const {
  if (text.size() > kLongestText)
    throw Error(str("SentencePiece: a text of ", text.size(), " bytes is too long, at most ", kLongestText));
  const Library& library = first || library_->inner == nullptr ? *library_ : *library_->inner;
  // The trie of characters takes NUL for the place of no child.
  if (!model_.characters.empty() && text.find('\0') != std::string_view::npos)
    encode_words(replaced(text, std::string_view("\0", 1), kNonCharacter), library, ids);
  else
    encode_words(text, library, ids);
}

void SentencePieceTokenizer::encode_words(std::string_view text, const Library& library,
                                          std::vector<TokenId>& ids) const {
  if (cuts_.empty() || &library != library_.get() || text.find(kSpace) != std::string_view::npos)
    return library.encode(text, ids);
  const std::string_view cuts(cuts_.data(), cuts_.size());
  for (std::size_t begin = 0; (begin = text.find_first_not_of(cuts, begin)) != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(cuts, begin), text.size());
    library.encode(text.substr(begin, end - begin), ids);
    begin = end;
  }
}

std::string SentencePieceTokenizer::bytes_of(TokenId id, std::size_t index) const {
  if (id >= size_)
    throw Error(str("tokenizer ", name_, ": expected ids below ", size_, ", got ", id, " at index ", index));
  if (beside_[id] != nullptr) return *beside_[id];
  const SentencePieceModel::Piece& piece = model_.pieces[id];
  switch (piece.kind) {
    case Kind::control:
      return {};
    case Kind::unknown:
      return model_.unknown_text;
    case Kind::byte:
      return std::string(1, static_cast<char>(std::stoi(piece.text.substr(3, 2), nullptr, 16)));
    default:
      return replaced(piece.text, kSpace, " ");
  }
}

std::string SentencePieceTokenizer::text_of(TokenId id) const { return bytes_of(id, 0); }

std::string SentencePieceTokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  bool begins = model_.add_space || model_.remove_spaces;  // whether a space may go that the model has put there
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::string bytes = bytes_of(ids[i], i);
    const bool text_piece = beside_[ids[i]] == nullptr && model_.pieces[ids[i]].kind != Kind::unknown &&
                            model_.pieces[ids[i]].kind != Kind::byte;
    if (begins && text_piece && bytes.starts_with(' ')) {
      bytes.erase(0, 1);
      begins = model_.remove_spaces;
    }
    text += bytes;
    begins = begins && text.empty();
  }
  return text;
}

std::vector<TokenizerFile> SentencePieceTokenizer::files() const {
  Json config;
  config["add_bos_token"] = options_.add_begin;
  if (options_.add_begin) config["bos_token"] = options_.begin;
  config["legacy"] = !options_.space_first_only;
  Json& added = config["added_tokens_decoder"];
  added = Json::object();
  for (const BpeAddedToken& token : options_.added) added[str(token.id)] = added_token_json(token);
  return {{"tokenizer.model", sentencepiece_bytes(model_)}, {"tokenizer_config.json", json_text(config, 1) + "\n"}};
}

}  // namespace torsor
