#include "torsor/data/bpe.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/hash.h"
#include "torsor/base/unicode_forms.h"
#include "torsor/base/utf8.h"
#include "torsor/data/bpe_alphabet.h"

namespace torsor {
namespace {

/// Numbers and texts for a hash, so that no two lists look alike.
class Record {
 public:
  Record& number(std::uint64_t value) {
    char bytes[8];
    for (int b = 0; b < 8; ++b) bytes[b] = static_cast<char>(static_cast<unsigned char>(value >> (8 * b)));
    hash_.update(bytes, sizeof bytes);
    return *this;
  }
  Record& text(std::string_view value) {
    number(value.size());
    hash_.update(value);
    return *this;
  }
  std::string hex() const { return hash_.hex(); }

 private:
  Sha256 hash_;
};

}  // namespace

/// What one call of encode() works with.
struct BpeTokenizer::Encoding {
  std::vector<TokenId> ids;
  KnownPieces known;
  std::deque<std::string> changed;  // texts that got a space or became NFC, which `known` looks into
  std::vector<TokenId> bytes;       // of the piece at hand
  MergeRanks::Room room;
};

BpeTokenizer::BpeTokenizer(BpeModel model) : model_(std::move(model)) {
  std::sort(model_.added.begin(), model_.added.end(),
            [](const BpeAddedToken& a, const BpeAddedToken& b) { return a.id < b.id; });
  if (model_.vocabulary.size() >= kNoToken) throw Error("BPE: the vocabulary is too large");
  check_added();
  check_vocabulary();
  ranks_ = MergeRanks(model_.merges, model_.vocabulary, "BPE");
  check_begin();
  const std::vector<bool> inner = inner_ids();
  std::vector<BpeAddedToken> raw, normalized;
  for (const BpeAddedToken& token : model_.added) {
    const std::string letters = byte_letters(token.content);
    if (inner[token.id] && letters != token.content)
      throw Error(str("BPE: the added token ", quote(token.content, 40), " is also a part of the model, where it is ",
                      quote(letters, 40)));
    (token.normalized ? normalized : raw).push_back(token);
    if (token.normalized && model_.composes) normalized.back().content = composed_utf8(token.content);
  }
  raw_ = AddedTokenFinder(std::move(raw));
  normalized_ = AddedTokenFinder(std::move(normalized));
  if (model_.ignore_merges)
    for (TokenId id = 0; id < model_.vocabulary.size(); ++id)
      if (inner[id]) whole_.emplace(model_.vocabulary[id], id);
  name_ = "bpe-" + identity().substr(0, 16);
}

void BpeTokenizer::check_added() {
  std::unordered_map<std::string_view, TokenId> seen;
  for (std::size_t i = 0; i < model_.added.size(); ++i) {
    const BpeAddedToken& token = model_.added[i];
    const std::string shown = quote(token.content, 40);
    if (token.content.empty()) throw Error(str("BPE: the added token of id ", token.id, " is empty"));
    if (find_invalid_utf8(token.content) != std::string_view::npos)
      throw Error(str("BPE: the added token ", shown, " is not UTF-8"));
    if (token.id >= model_.vocabulary.size() || model_.vocabulary[token.id] != token.content)
      throw Error(str("BPE: the added token ", shown, " does not stand in the vocabulary at its id ", token.id));
    if (i > 0 && model_.added[i - 1].id == token.id)
      throw Error(str("BPE: the added tokens ", quote(model_.added[i - 1].content, 40), " and ", shown,
                      " have the same id ", token.id));
    if (!seen.emplace(token.content, token.id).second)
      throw Error(str("BPE: the added token ", shown, " stands twice"));
  }
}

void BpeTokenizer::check_vocabulary() {
  std::vector<bool> is_added(model_.vocabulary.size(), false);
  for (const BpeAddedToken& token : model_.added) is_added[token.id] = true;
  byte_ids_.fill(kNoToken);
  const auto take_byte = [&](TokenId id) {
    const std::string& bytes = model_.vocabulary[id];
    if (bytes.size() != 1) return;
    TokenId& place = byte_ids_[static_cast<unsigned char>(bytes.front())];
    if (place == kNoToken) place = id;
  };
  std::unordered_map<std::string_view, TokenId> seen;
  for (TokenId id = 0; id < model_.vocabulary.size(); ++id) {
    if (is_added[id]) continue;
    const std::string& bytes = model_.vocabulary[id];
    if (bytes.empty()) throw Error(str("BPE: the token of id ", id, " is empty"));
    const auto [place, is_new] = seen.emplace(bytes, id);
    if (!is_new) throw Error(str("BPE: ids ", place->second, " and ", id, " have the same bytes ", quote(bytes, 40)));
    take_byte(id);
  }
  // A byte may be an added token too, under the same name.
  for (const BpeAddedToken& token : model_.added) take_byte(token.id);
  // GPT-NeoX has no tokens for bytes that UTF-8 never has.
  for (unsigned byte = 0; byte < 256; ++byte)
    if (byte_ids_[byte] == kNoToken && byte != 0xC0 && byte != 0xC1 && byte < 0xF5)
      throw Error(str("BPE: expected a token for every byte, found none for byte ", byte, ", written ",
                      quote(byte_letters(std::string(1, static_cast<char>(byte))))));
  for (const BpeAddedToken& token : model_.added) {
    const auto bytes = letters_to_bytes(token.content);
    if (!bytes) continue;
    if (const auto found = seen.find(*bytes); found != seen.end())
      throw Error(str("BPE: the added token ", quote(token.content, 40), " has the id ", token.id,
                      ", and the token written so has ", found->second));
  }
}

void BpeTokenizer::check_begin() const {
  if (!model_.begin) return;
  const bool added = std::any_of(model_.added.begin(), model_.added.end(),
                                 [this](const BpeAddedToken& token) { return token.id == *model_.begin; });
  if (!added) throw Error(str("BPE: id ", *model_.begin, ", which texts begin with, is no added token"));
}

std::vector<bool> BpeTokenizer::inner_ids() const {
  std::vector<bool> inner(model_.vocabulary.size(), true);
  for (const BpeAddedToken& token : model_.added) inner[token.id] = false;
  for (const TokenId id : byte_ids_)
    if (id != kNoToken) inner[id] = true;
  for (const BpeMerge& merge : model_.merges)
    for (const TokenId id : {merge.left, merge.right, merge.result}) inner[id] = true;
  return inner;
}

std::string BpeTokenizer::identity() const {
  Record record;
  record.number(model_.vocabulary.size());
  for (const std::string& bytes : model_.vocabulary) record.text(bytes);
  record.number(model_.merges.size());
  for (const BpeMerge& merge : model_.merges) record.number(merge.left).number(merge.right).number(merge.result);
  record.number(model_.added.size());
  for (const BpeAddedToken& token : model_.added)
    record.number(token.id).number(token.lstrip).number(token.rstrip).number(token.normalized);
  record.number(model_.add_prefix_space);
  // What came later is told only where it is there: names that were given once stay.
  if (model_.split != BpeSplit::gpt2) record.text("split").number(static_cast<std::uint64_t>(model_.split));
  if (model_.ignore_merges) record.text("ignore_merges");
  if (model_.composes) record.text("nfc");
  if (model_.begin) record.text("begin").number(*model_.begin);
  return record.hex();
}

std::vector<TokenId> BpeTokenizer::encode(std::string_view text) const {
  Encoding encoding;
  if (model_.begin) encoding.ids.push_back(*model_.begin);
  // Calls `plain` for the texts between the tokens of `finder`.
  const auto apart = [&encoding](const AddedTokenFinder& finder, std::string_view whole, const auto& plain) {
    std::size_t from = 0;
    while (const auto match = finder.find(whole, from)) {
      if (match->begin > from) plain(whole.substr(from, match->begin - from));
      encoding.ids.push_back(match->id);
      from = match->end;
    }
    if (from < whole.size()) plain(whole.substr(from));
  };
  apart(raw_, text, [&](std::string_view outer) {
    if (model_.composes) outer = encoding.changed.emplace_back(composed_utf8(outer));
    apart(normalized_, outer, [&](std::string_view plain) { encode_text(plain, encoding); });
  });
  return std::move(encoding.ids);
}

void BpeTokenizer::encode_text(std::string_view text, Encoding& encoding) const {
  if (model_.add_prefix_space && text.front() != ' ') text = encoding.changed.emplace_back(" " + std::string(text));
  encode_pieces(text, encoding);
}

void BpeTokenizer::encode_pieces(std::string_view text, Encoding& encoding) const {
  PieceReader pieces(text, model_.split);
  for (std::string_view piece; pieces.next(piece);) {
    if (const TokenId id = byte_ids_[static_cast<unsigned char>(piece.front())]; piece.size() == 1 && id != kNoToken) {
      encoding.ids.push_back(id);
      continue;
    }
    encoding.known.append(piece, encoding.ids, [&] { merge_piece(piece, encoding); });
  }
}

void BpeTokenizer::merge_piece(std::string_view piece, Encoding& encoding) const {
  if (const auto found = whole_.find(piece); found != whole_.end()) {
    encoding.ids.push_back(found->second);
    return;
  }
  encoding.bytes.clear();
  for (const char c : piece) {
    const TokenId id = byte_ids_[static_cast<unsigned char>(c)];
    if (id != kNoToken)
      encoding.bytes.push_back(id);
    else
      for (const unsigned char byte : {0xEF, 0xBF, 0xBD}) encoding.bytes.push_back(byte_ids_[byte]);
  }
  ranks_.merge(encoding.bytes, encoding.ids, encoding.room);
}

std::string BpeTokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= model_.vocabulary.size())
      throw Error(str("tokenizer ", name_, ": expected ids below ", model_.vocabulary.size(), ", got ", ids[i],
                      " at index ", i));
    if (ids[i] != model_.begin) text += model_.vocabulary[ids[i]];
  }
  return text;
}

}  // namespace torsor
