#include "torsor/data/fallback_bpe.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/hash.h"
#include "torsor/base/utf8.h"
#include "torsor/data/bpe_alphabet.h"
#include "torsor/data/replaced.h"
#include "torsor/data/tokenizer_json.h"

namespace torsor {
namespace {

using Prefix = FallbackBpeModel::Prefix;

}  // namespace

/// What one call of encode() works with.
struct FallbackBpeTokenizer::Encoding {
  std::vector<TokenId> ids;
  KnownPieces known;
  std::deque<std::string> texts;  // with their spaces changed, which `known` looks into
  std::vector<TokenId> characters;
  MergeRanks::Room room;
};

FallbackBpeTokenizer::FallbackBpeTokenizer(FallbackBpeModel model) : model_(std::move(model)) {
  std::sort(model_.added.begin(), model_.added.end(),
            [](const BpeAddedToken& a, const BpeAddedToken& b) { return a.id < b.id; });
  if (model_.vocabulary.size() >= kNoToken) throw Error("BPE: the vocabulary is too large");
  if (model_.early_spaces
          ? model_.prefix == Prefix::each_bare || model_.prefix == Prefix::first_if_bare || model_.split_words
          : model_.prefix == Prefix::each)
    throw Error("BPE: no tokenizer.json changes spaces before added tokens are sought and treats texts so");
  for (TokenId id = 0; id < model_.vocabulary.size(); ++id) {
    const std::string& text = model_.vocabulary[id];
    if (text.empty()) throw Error(str("BPE: the token of id ", id, " is empty"));
    const auto [place, is_new] = ids_.emplace(text, id);
    if (!is_new) throw Error(str("BPE: ids ", place->second, " and ", id, " are both ", shown(text)));
  }
  check_added();
  find_bytes();
  ranks_ = MergeRanks(model_.merges, model_.vocabulary, "BPE");
  find_words();
  std::vector<BpeAddedToken> raw, normalized;
  for (BpeAddedToken token : model_.added) {
    if (token.normalized && model_.early_spaces) token.content = spaced(token.content, false);
    (token.normalized ? normalized : raw).push_back(std::move(token));
  }
  raw_ = AddedTokenFinder(std::move(raw));
  normalized_ = AddedTokenFinder(std::move(normalized));
  name_ = "fallbackbpe-" + identity().substr(0, 16);
}

void FallbackBpeTokenizer::check_added() const {
  const std::size_t size = model_.vocabulary.size();
  bool begins = !model_.begin;
  for (std::size_t i = 0; i < model_.added.size(); ++i) {
    const BpeAddedToken& token = model_.added[i];
    if (find_invalid_utf8(token.content) != std::string_view::npos)
      throw Error(str("BPE: the added token ", shown(token.content), " is not UTF-8"));
    if (token.id >= size || model_.vocabulary[token.id] != token.content)
      throw Error(
          str("BPE: the added token ", shown(token.content), " does not stand in the vocabulary at its id ", token.id));
    if (i > 0 && model_.added[i - 1].id == token.id)
      throw Error(str("BPE: the added token ", shown(token.content), " stands twice"));
    begins = begins || token.id == *model_.begin;
  }
  if (!begins) throw Error(str("BPE: id ", *model_.begin, ", which texts begin with, is no added token"));
}

void FallbackBpeTokenizer::find_bytes() {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string name = byte_name(static_cast<std::uint8_t>(byte));
    const auto found = ids_.find(name);
    if (found == ids_.end()) throw Error(str("BPE: expected a token for every byte, found none named ", shown(name)));
    byte_ids_[byte] = found->second;
    bytes_.emplace(found->second, static_cast<unsigned char>(byte));
  }
  is_added_.assign(model_.vocabulary.size(), false);
  for (const BpeAddedToken& token : model_.added) is_added_[token.id] = true;
}

void FallbackBpeTokenizer::find_words() {
  words_apart_ = std::none_of(model_.merges.begin(), model_.merges.end(), [this](const BpeMerge& merge) {
    return model_.vocabulary[merge.right].starts_with(kSpace) && !model_.vocabulary[merge.left].ends_with(kSpace);
  });
}

std::string FallbackBpeTokenizer::identity() const {
  Sha256 hash;
  const auto put = [&hash](std::string_view text) { hash.update(str(text.size(), ':')).update(text); };
  hash.update(str(model_.vocabulary.size(), ';'));
  for (const std::string& text : model_.vocabulary) put(text);
  hash.update(str(model_.merges.size(), ';'));
  for (const BpeMerge& merge : model_.merges) hash.update(str(merge.left, ',', merge.right, ';'));
  hash.update(str(model_.added.size(), ';'));
  for (const BpeAddedToken& token : model_.added)
    hash.update(str(token.id, ',', token.lstrip, token.rstrip, token.normalized, ';'));
  hash.update(str(static_cast<int>(model_.prefix), model_.early_spaces, model_.split_words, model_.ignore_merges));
  if (model_.begin) hash.update(str(",", *model_.begin));
  return hash.hex();
}

std::string FallbackBpeTokenizer::spaced(std::string_view text, bool first) const {
  std::string result = replaced(text, " ", kSpace);
  const bool bare = !result.starts_with(kSpace);
  const bool puts = model_.prefix == Prefix::each || (model_.prefix == Prefix::each_bare && bare) ||
                    (model_.prefix == Prefix::first_if_bare && bare && first);
  return puts ? result.insert(0, kSpace) : result;
}

std::vector<TokenId> FallbackBpeTokenizer::encode(std::string_view text) const {
  Encoding encoding;
  if (model_.begin) encoding.ids.push_back(*model_.begin);
  std::size_t from = 0;
  while (const auto match = raw_.find(text, from)) {
    if (match->begin > from) encode_text(text.substr(from, match->begin - from), from == 0, encoding);
    encoding.ids.push_back(match->id);
    from = match->end;
  }
  if (from < text.size()) encode_text(text.substr(from), from == 0, encoding);
  return std::move(encoding.ids);
}

void FallbackBpeTokenizer::encode_text(std::string_view text, bool first, Encoding& encoding) const {
  if (model_.early_spaces) text = encoding.texts.emplace_back(spaced(text, first));
  const auto plain = [&](std::string_view part, bool is_first) {
    if (!model_.early_spaces) part = encoding.texts.emplace_back(spaced(part, is_first));
    encode_plain(part, encoding);
  };
  std::size_t from = 0;
  while (const auto match = normalized_.find(text, from)) {
    if (match->begin > from) plain(text.substr(from, match->begin - from), first && from == 0);
    encoding.ids.push_back(match->id);
    from = match->end;
  }
  if (from < text.size()) plain(text.substr(from), first && from == 0);
}

void FallbackBpeTokenizer::encode_plain(std::string_view text, Encoding& encoding) const {
  if (model_.ignore_merges && !model_.split_words)
    if (const auto found = ids_.find(text); found != ids_.end()) return encoding.ids.push_back(found->second);
  const auto piece = [&](std::string_view one) {
    encoding.known.append(one, encoding.ids, [&] { merge_piece(one, encoding); });
  };
  if (!model_.split_words && !words_apart_) return merge_piece(text, encoding);
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t end = begin;
    if (model_.split_words) {
      end = text.find(kSpace, begin + 1);
    } else {
      while (text.substr(end).starts_with(kSpace)) end += kSpace.size();
      end = text.find(kSpace, end);
    }
    end = std::min(end, text.size());
    piece(text.substr(begin, end - begin));
    begin = end;
  }
}

void FallbackBpeTokenizer::merge_piece(std::string_view piece, Encoding& encoding) const {
  if (model_.ignore_merges && model_.split_words)
    if (const auto found = ids_.find(piece); found != ids_.end()) return encoding.ids.push_back(found->second);
  std::vector<TokenId>& characters = encoding.characters;
  characters.clear();
  for (std::size_t at = 0; at < piece.size();) {
    const CodePoint point = decode_utf8(piece, at);
    const std::string_view bytes = piece.substr(at, point.size);
    at += point.size;
    if (const auto found = ids_.find(bytes); point.valid && found != ids_.end())
      characters.push_back(found->second);
    else
      for (const char c : bytes) characters.push_back(byte_ids_[static_cast<unsigned char>(c)]);
  }
  ranks_.merge(characters, encoding.ids, encoding.room);
}

std::string FallbackBpeTokenizer::bytes_of(TokenId id, std::size_t index) const {
  if (id >= model_.vocabulary.size())
    throw Error(
        str("tokenizer ", name_, ": expected ids below ", model_.vocabulary.size(), ", got ", id, " at index ", index));
  if (id == model_.begin) return {};
  if (is_added_[id]) return model_.vocabulary[id];
  if (const auto found = bytes_.find(id); found != bytes_.end())
    return std::string(1, static_cast<char>(found->second));
  return replaced(model_.vocabulary[id], kSpace, " ");
}

std::string FallbackBpeTokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  bool begins = model_.prefix != Prefix::none;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string bytes = bytes_of(ids[i], i);
    text += begins && !is_added_[ids[i]] && bytes.starts_with(' ') ? bytes.substr(1) : bytes;
    begins = begins && ids[i] == model_.begin;
  }
  return text;
}

}  // namespace torsor
