#include "torsor/data/wordpiece.h"

#include <algorithm>
#include <array>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/hash.h"
#include "torsor/base/unicode_classes.h"
#include "torsor/base/unicode_forms.h"
#include "torsor/base/utf8.h"
#include "torsor/data/replaced.h"

namespace torsor {
namespace {

bool is_white(char32_t value) { return unicode_class(value) == UnicodeClass::space; }

/// Punctuation as BERT has it: $ + ~ and the like too.
bool ends_word(char32_t value) {
  if (value < 0x80) return value > ' ' && value < 0x7F && unicode_class(value) == UnicodeClass::other;
  return is_punctuation(value);
}

/// The blocks of Chinese characters that stand alone. Hugging Face's list, in which the block from U+2B820 begins a
/// little later than in BERT's own.
bool is_chinese(char32_t value) {
  constexpr std::array<std::pair<char32_t, char32_t>, 7> kBlocks = {{{0x3400, 0x4DBF},
                                                                     {0x4E00, 0x9FFF},
                                                                     {0xF900, 0xFAFF},
                                                                     {0x20000, 0x2A6DF},
                                                                     {0x2A700, 0x2B81F},
                                                                     {0x2B920, 0x2CEAF},
                                                                     {0x2F800, 0x2FA1F}}};
  return value >= 0x3400 && std::any_of(kBlocks.begin(), kBlocks.end(), [value](const auto& block) {
           return value >= block.first && value <= block.second;
         });
}

/// What cleaning makes of a character: 0 where it is dropped.
char32_t cleaned(char32_t value) {
  if (value == '\t' || value == '\n' || value == '\r') return ' ';
  if (value == 0 || value == 0xFFFD || is_control(value)) return 0;
  return is_white(value) ? U' ' : value;
}

/// Hugging Face's cleanup of what one token writes.
std::string cleaned_up(std::string text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kReplacements = {{{" .", "."},
                                                                                            {" ?", "?"},
                                                                                            {" !", "!"},
                                                                                            {" ,", ","},
                                                                                            {" ' ", "'"},
                                                                                            {" n't", "n't"},
                                                                                            {" 'm", "'m"},
                                                                                            {" do not", " don't"},
                                                                                            {" 's", "'s"},
                                                                                            {" 've", "'ve"},
                                                                                            {" 're", "'re"}}};
  for (const auto& [from, to] : kReplacements) text = replaced(text, from, to);
  return text;
}

}  // namespace

WordPieceTokenizer::WordPieceTokenizer(WordPieceModel model) : model_(std::move(model)) {
  std::sort(model_.added.begin(), model_.added.end(),
            [](const BpeAddedToken& a, const BpeAddedToken& b) { return a.id < b.id; });
  if (model_.vocabulary.empty()) throw Error("WordPiece: the vocabulary is empty");
  for (std::size_t id = 0; id < model_.vocabulary.size(); ++id) {
    const std::string& token = model_.vocabulary[id];
    if (token.empty()) throw Error(str("WordPiece: the token of id ", id, " is empty"));
    if (find_invalid_utf8(token) != std::string::npos)
      throw Error(str("WordPiece: the token ", quote(token, 40), " of id ", id, " is not UTF-8"));
    const auto [place, is_new] = ids_.emplace(token, static_cast<TokenId>(id));
    if (!is_new) throw Error(str("WordPiece: ids ", place->second, " and ", id, " are both ", quote(token, 40)));
    if (token.size() > model_.prefix.size() && token.starts_with(model_.prefix))
      inner_.emplace(std::string_view(token).substr(model_.prefix.size()), static_cast<TokenId>(id));
    longest_ = std::max(longest_, token.size());
  }
  const auto unknown = ids_.find(model_.unknown);
  if (unknown == ids_.end())
    throw Error(str("WordPiece: the vocabulary has no token ", quote(model_.unknown, 40), " for unknown words"));
  unknown_ = unknown->second;
  check_added();
  std::vector<BpeAddedToken> raw, inside;
  for (BpeAddedToken token : model_.added) {
    if (token.normalized) token.content = normalized(token.content);
    (token.normalized ? inside : raw).push_back(std::move(token));
  }
  raw_ = AddedTokenFinder(std::move(raw));
  normalized_ = AddedTokenFinder(std::move(inside));
  name_ = "wordpiece-" + identity().substr(0, 16);
}

void WordPieceTokenizer::check_added() {
  for (std::size_t i = 0; i < model_.added.size(); ++i) {
    const BpeAddedToken& token = model_.added[i];
    if (token.id >= model_.vocabulary.size() || model_.vocabulary[token.id] != token.content)
      throw Error(str("WordPiece: the added token ", quote(token.content, 40),
                      " does not stand in the vocabulary at its id ", token.id));
    if (i > 0 && model_.added[i - 1].id == token.id)
      throw Error(str("WordPiece: the added token ", quote(token.content, 40), " stands twice"));
  }
}

std::string WordPieceTokenizer::identity() const {
  Sha256 hash;
  const auto text = [&hash](std::string_view value) { hash.update(str(value.size(), ":")).update(value); };
  hash.update(str(model_.vocabulary.size(), ";"));
  for (const std::string& token : model_.vocabulary) text(token);
  hash.update(str(model_.added.size(), ";"));
  for (const BpeAddedToken& token : model_.added)
    hash.update(str(token.id, ',', token.lstrip, token.rstrip, token.normalized, ';'));
  for (const std::string& part : {model_.unknown, model_.prefix}) text(part);
  hash.update(str(model_.longest_word, ';', model_.clean_text, model_.chinese, model_.strip_accents, model_.lowercase,
                  model_.cleanup));
  return hash.hex();
}

std::string WordPieceTokenizer::normalized(std::string_view text) const {
  std::u32string characters;
  characters.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    at += point.size;
    const char32_t value = model_.clean_text ? cleaned(point.value) : point.value;
    if (model_.clean_text && value == 0) continue;
    if (model_.chinese && is_chinese(value))
      characters.append({U' ', value, U' '});
    else
      characters += value;
  }
  if (model_.strip_accents) {
    characters = decomposed(characters);
    std::erase_if(characters, is_nonspacing_mark);
  }
  if (model_.lowercase) {
    std::u32string lower;
    lower.reserve(characters.size());
    for (const char32_t value : characters) append_lower(lower, value);
    characters = std::move(lower);
  }
  std::string result;
  result.reserve(text.size());
  for (const char32_t value : characters) append_utf8(result, value);
  return result;
}

std::vector<TokenId> WordPieceTokenizer::encode(std::string_view text) const {
  std::vector<TokenId> ids;
  // Calls `plain` for the texts between the tokens of `finder`.
  const auto apart = [&ids](const AddedTokenFinder& finder, std::string_view whole, const auto& plain) {
    std::size_t from = 0;
    while (const auto match = finder.find(whole, from)) {
      if (match->begin > from) plain(whole.substr(from, match->begin - from));
      ids.push_back(match->id);
      from = match->end;
    }
    if (from < whole.size()) plain(whole.substr(from));
  };
  apart(raw_, text, [&](std::string_view outer) {
    apart(normalized_, normalized(outer), [&](std::string_view plain) { encode_normalized(plain, ids); });
  });
  return ids;
}

void WordPieceTokenizer::encode_normalized(std::string_view text, std::vector<TokenId>& ids) const {
  std::size_t begin = 0;
  const auto finish = [&](std::size_t end) {
    if (end > begin) encode_word(text.substr(begin, end - begin), ids);
  };
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    const std::size_t next = at + point.size;
    const bool alone = ends_word(point.value);
    if (alone || is_white(point.value)) {
      finish(at);
      if (alone) encode_word(text.substr(at, point.size), ids);
      begin = next;
    }
    at = next;
  }
  finish(text.size());
}

void WordPieceTokenizer::encode_word(std::string_view word, std::vector<TokenId>& ids) const {
  const std::size_t before = ids.size();
  const auto unknown = [&] {
    ids.resize(before);
    ids.push_back(unknown_);
  };
  if (word.size() > model_.longest_word && count_utf8(word) > model_.longest_word) return unknown();
  for (std::size_t begin = 0; begin < word.size();) {
    const auto& known = begin == 0 ? ids_ : inner_;
    std::size_t size = std::min(word.size() - begin, longest_);
    auto found = known.end();
    for (; size > 0 && found == known.end(); --size) {
      // Pieces end where a character does.
      const std::size_t end = begin + size;
      if (end < word.size() && (static_cast<unsigned char>(word[end]) & 0xC0U) == 0x80U) continue;
      found = known.find(word.substr(begin, size));
    }
    if (found == known.end()) return unknown();
    ids.push_back(found->second);
    begin += size + 1;  // the loop has counted one further
  }
}

std::string WordPieceTokenizer::written(TokenId id, bool first, std::size_t index) const {
  if (id >= model_.vocabulary.size())
    throw Error(
        str("tokenizer ", name_, ": expected ids below ", model_.vocabulary.size(), ", got ", id, " at index ", index));
  std::string text = model_.vocabulary[id];
  if (!first) {
    if (text.starts_with(model_.prefix))
      text.erase(0, model_.prefix.size());
    else
      text.insert(0, 1, ' ');
  }
  return model_.cleanup ? cleaned_up(std::move(text)) : text;
}

std::string WordPieceTokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) text += written(ids[i], i == 0, i);
  return text;
}

std::string WordPieceTokenizer::text_of(TokenId id) const { return written(id, false, 0); }

WordPieceTokenizer::Input WordPieceTokenizer::with_specials(std::string_view first,
                                                            std::optional<std::string_view> second) const {
  const auto special = [&](const std::string& token) {
    const auto found = ids_.find(token);
    if (found == ids_.end())
      throw Error(str("tokenizer ", name_, ": the vocabulary has no token ", quote(token, 40), " to mark texts with"));
    return found->second;
  };
  const TokenId begin = special(model_.begin), end = special(model_.end);
  Input input;
  const auto append = [&](std::string_view text, std::uint8_t segment) {
    const std::vector<TokenId> ids = encode(text);
    input.ids.insert(input.ids.end(), ids.begin(), ids.end());
    input.ids.push_back(end);
    input.segments.resize(input.ids.size(), segment);
  };
  input.ids.push_back(begin);
  append(first, 0);
  if (second) append(*second, 1);
  return input;
}

}  // namespace torsor
