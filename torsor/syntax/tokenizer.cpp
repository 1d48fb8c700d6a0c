#include "torsor/syntax/tokenizer.h"

#include <algorithm>
#include <set>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"
#include "torsor/syntax/letters.h"
#include "torsor/syntax/parse.h"
#include "torsor/syntax/parser.h"

namespace torsor::syntax {
namespace {

/// Least occurrences of surroundings, by how narrow they are: the narrow ones are accidents when they are rare.
constexpr std::int64_t kLeastNarrow = 2;
constexpr std::int64_t kLeastEnding = 5;  // of an ending of multiword tokens

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }

/// Letters, and all beyond ASCII that is no punctuation or space of the blocks that English text uses.
bool is_letter(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return c >= 0xC0 ? !(c >= 0x2000 && c <= 0x2BFF) && !(c >= 0x3000 && c <= 0x303F) && !(c >= 0xFE00 && c <= 0xFE0F)
                   : c == 0xAA || c == 0xB5 || c == 0xBA;
}

char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string lowered(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), ascii_lower);
  return result;
}

struct Character {
  char32_t value;
  std::size_t begin;
};

std::vector<Character> characters_of(std::string_view text) {
  std::vector<Character> characters;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint one = decode_utf8(text, at);
    characters.push_back({one.value, at});
    at += one.size;
  }
  return characters;
}

/// A character's kind: a letter's case, any digit as 0, all else as it is.
void append_shape(char32_t c, std::string& shape) {
  if (is_digit(c))
    shape += '0';
  else if (is_letter(c))
    shape += c >= 'A' && c <= 'Z' ? 'A' : 'a';
  else
    append_utf8(shape, c);
}

std::string shape_of(const std::vector<Character>& characters, std::size_t first, std::size_t last) {
  std::string shape;
  for (std::size_t i = first; i < last; ++i) append_shape(characters[i].value, shape);
  return shape;
}

/// Between two letters or two digits no token ever ends (multiword tokens are opened afterwards).
bool may_end(char32_t left, char32_t right) {
  return !(is_letter(left) && is_letter(right)) && !(is_digit(left) && is_digit(right));
}

/// Surroundings of the place before character `at` of a stretch without white space whose present token begins with
/// character `begin`, narrow ones first.
std::vector<std::string> between(std::string_view stretch, const std::vector<Character>& characters, std::size_t begin,
                                 std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < characters.size() ? characters[i].begin : stretch.size(); };
  const auto left = [&](std::size_t count) {
    return shape_of(characters, std::max(begin, at - std::min(at, count)), at);
  };
  const auto right = [&](std::size_t count) {
    return shape_of(characters, at, std::min(characters.size(), at + count)) +
           (at + count > characters.size() ? "$" : "");
  };
  return {"a" + lowered(stretch.substr(byte(begin), byte(at) - byte(begin))) + " " +
              lowered(stretch.substr(byte(at), byte(at + 3) - byte(at))) + (at + 3 > characters.size() ? "$" : ""),
          "b" + left(4) + " " + right(4), "c" + left(2) + " " + right(3), "d" + left(1) + " " + right(2),
          "e" + left(1) + " " + right(1)};
}

/// The same from what has been read alone.
std::vector<std::string> before(std::string_view token, char32_t next) {
  const std::vector<Character> characters = characters_of(token);
  std::string literal, shape;
  append_utf8(literal, next);
  append_shape(next, shape);
  const auto left = [&](std::size_t count) {
    return shape_of(characters, characters.size() - std::min(characters.size(), count), characters.size());
  };
  return {"p" + lowered(token) + " " + lowered(literal), "q" + left(4) + " " + shape, "r" + left(2) + " " + shape,
          "s" + left(1) + " " + shape};
}

/// What a token is for the end of a sentence: punctuation and what ends in a full stop as it stands, words not.
std::string kind_of(std::string_view token) {
  const std::vector<Character> characters = characters_of(token);
  bool words = false;
  for (const Character& one : characters) words = words || is_letter(one.value) || is_digit(one.value);
  if (words && (token.empty() || token.back() != '.')) return "w";
  std::string kind;  // of a run of the same character at most three
  for (std::size_t i = 0; i < characters.size(); ++i) {
    if (i >= 3 && characters[i].value == characters[i - 1].value && characters[i].value == characters[i - 2].value &&
        characters[i].value == characters[i - 3].value)
      continue;
    append_utf8(kind, characters[i].value);
  }
  return lowered(kind);
}

/// Surroundings of the place behind a token.
std::vector<std::string> behind(std::string_view last, std::string_view token, std::string_view next, bool space) {
  const std::string kind = kind_of(token) + (space ? " " : "_");
  std::string start;
  append_shape(decode_utf8(next, 0).value, start);
  return {"w" + kind_of(last) + " " + kind + " " + lowered(next), "x" + kind_of(last) + " " + kind + " " + start,
          "y" + kind + " " + start, "z" + kind};
}

std::string text_of(const Sentence& sentence) {
  const auto text = sentence.comment("text");
  return text ? *text : spelled_text(sentence);
}

/// Where the surface tokens stand in the text, or nothing when they do not spell it.
std::vector<std::pair<std::size_t, std::size_t>> places_of(const Sentence& sentence, const std::string& text) {
  std::vector<std::pair<std::size_t, std::size_t>> places;
  std::size_t at = 0;
  for (const SurfaceToken& token : surface_tokens(sentence)) {
    while (at < text.size() && is_space(decode_utf8(text, at).value)) at += decode_utf8(text, at).size;
    if (text.compare(at, token.form.size(), token.form) != 0) return {};
    places.emplace_back(at, at + token.form.size());
    at += token.form.size();
  }
  return places;
}

/// Calls `visit` for every stretch of `text` without white space: its bytes [begin, end).
template <class Visit>
void for_stretches(std::string_view text, Visit visit) {
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const CodePoint one = at < text.size() ? decode_utf8(text, at) : CodePoint{' ', 1, true};
    if (is_space(one.value)) {
      if (at > begin) visit(begin, at);
      begin = at + one.size;
    }
    at += one.size;
  }
}

}  // namespace

std::string raw_text(const std::vector<Sentence>& sentences) {
  std::string text;
  for (const TreebankText& document : treebank_texts({.sentences = sentences, .skipped = {}}, "")) {
    text += (text.empty() ? "" : "\n") + document.text;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    text += '\n';
  }
  return text;
}

void Tokenizer::learn_tokens(const std::vector<Sentence>& treebank, Counts& counts) {
  const auto count = [&](const std::vector<std::string>& surroundings, bool ends) {
    for (const std::string& one : surroundings) ++(ends ? counts[one].second : counts[one].first);
  };
  for (const Sentence& sentence : treebank) {
    const std::string text = text_of(sentence);
    std::set<std::size_t> starts;
    for (const auto& [begin, end] : places_of(sentence, text)) starts.insert(begin);
    if (starts.empty()) continue;
    for_stretches(text, [&](std::size_t begin, std::size_t end) {
      const std::string_view stretch = std::string_view(text).substr(begin, end - begin);
      const std::vector<Character> characters = characters_of(stretch);
      std::size_t first = 0;
      for (std::size_t at = 1; at < characters.size(); ++at) {
        const bool ends = starts.count(begin + characters[at].begin) > 0;
        if (may_end(characters[at - 1].value, characters[at].value)) {
          count(between(stretch, characters, first, at), ends);
          const std::size_t from = characters[first].begin;
          count(before(stretch.substr(from, characters[at].begin - from), characters[at].value), ends);
        }
        if (ends) first = at;
      }
    });
  }
}

void Tokenizer::learn_ends(const std::vector<Sentence>& treebank, Counts& counts) {
  std::string last = "^", token;
  bool space = true;
  for (const Sentence& sentence : treebank) {
    const bool fresh = sentence.comment("newpar") || sentence.comment("newpar id") || sentence.comment("newdoc") ||
                       sentence.comment("newdoc id");
    if (fresh) token.clear(), last = "^";  // what stands before a blank line ends anyway
    bool starts = true;
    for (const SurfaceToken& next : surface_tokens(sentence)) {
      if (!token.empty()) {
        for (const std::string& one : behind(last, token, next.form, space))
          ++(starts ? counts[one].second : counts[one].first);
        last = token;
      }
      token = next.form;
      space = space_after(next.misc);
      starts = false;
    }
  }
}

void Tokenizer::learn_multiwords(const std::vector<Sentence>& treebank) {
  std::map<std::string, std::int64_t> alone;  // forms that also stand as one word
  for (const Sentence& sentence : treebank)
    for (const SurfaceToken& token : surface_tokens(sentence))
      if (token.first == token.last) ++alone[lowered(token.form)];
  std::map<std::string, std::map<std::vector<std::string>, std::int64_t>> members;
  std::map<std::string, std::int64_t> endings;
  for (const Sentence& sentence : treebank)
    for (const MultiwordToken& token : sentence.multiwords) {
      std::vector<std::string> words;
      std::string spelled;
      for (int i = token.first; i <= token.last; ++i) {
        words.push_back(lowered(sentence.words[static_cast<std::size_t>(i) - 1].form));
        spelled += words.back();
      }
      const std::string form = lowered(token.form);
      ++members[form][words];
      if (words.size() == 2 && spelled == form) ++endings[words.back()];
    }
  for (const auto& [form, ways] : members) {
    std::int64_t total = 0;
    auto best = ways.begin();
    for (auto way = ways.begin(); way != ways.end(); ++way) {
      total += way->second;
      if (way->second > best->second) best = way;
    }
    const auto single = alone.find(form);
    if (single == alone.end() || single->second < total) multiwords_[form] = best->first;
  }
  for (const auto& [ending, count] : endings)
    // An ending of letters alone ("na" of "gonna") would open words that only look so.
    if (count >= kLeastEnding && std::any_of(ending.begin(), ending.end(), [](char c) {
          return !is_letter(static_cast<unsigned char>(c)) || static_cast<unsigned char>(c) >= 0x80;
        }))
      endings_.push_back(ending);
  std::stable_sort(endings_.begin(), endings_.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

Tokenizer::Tokenizer(const std::vector<Sentence>& treebank) {
  Counts counts;
  learn_tokens(treebank, counts);
  learn_ends(treebank, counts);
  const std::string wide = "eszd";  // their first letters: surroundings of one or two characters are never accidents
  for (const auto& [surroundings, count] : counts) {
    const bool often =
        count.first + count.second >= kLeastNarrow || wide.find(surroundings.front()) != std::string::npos;
    if (often) decisions_[surroundings] = count.second > count.first;
  }
  learn_multiwords(treebank);
}

bool Tokenizer::decide(const std::vector<std::string>& surroundings, bool otherwise) const {
  for (const std::string& one : surroundings)
    if (const auto found = decisions_.find(one); found != decisions_.end()) return found->second;
  return otherwise;
}

bool Tokenizer::ends_before(std::string_view token, char32_t next) const {
  if (is_space(next)) return true;
  if (token.empty()) return false;
  const std::vector<Character> characters = characters_of(token);
  return may_end(characters.back().value, next) && decide(before(token, next), true);
}

std::vector<std::string> Tokenizer::words_of(const std::string& token) const {
  const std::string form = lowered(token);
  // The case of the text goes to the members where they spell the token.
  const auto cut = [&](const std::vector<std::string>& members) -> std::vector<std::string> {
    std::string spelled;
    for (const std::string& member : members) spelled += member;
    if (spelled != form) return members;
    std::vector<std::string> words;
    std::size_t at = 0;
    for (const std::string& member : members) {
      words.push_back(token.substr(at, member.size()));
      at += member.size();
    }
    return words;
  };
  if (const auto whole = multiwords_.find(form); whole != multiwords_.end()) return cut(whole->second);
  for (const std::string& ending : endings_) {
    if (form.size() <= ending.size() || form.compare(form.size() - ending.size(), ending.size(), ending) != 0) continue;
    const std::string stem = form.substr(0, form.size() - ending.size());
    const char32_t last = characters_of(stem).back().value;
    if (is_letter(last) || is_digit(last)) return cut({stem, ending});
  }
  return {token};
}

std::vector<std::pair<std::size_t, std::size_t>> Tokenizer::tokens(std::string_view text) const {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  for_stretches(text, [&](std::size_t begin, std::size_t end) {
    const std::string_view stretch = text.substr(begin, end - begin);
    const std::vector<Character> characters = characters_of(stretch);
    std::size_t first = 0;
    for (std::size_t at = 1; at <= characters.size(); ++at) {
      const bool ends = at == characters.size() || (may_end(characters[at - 1].value, characters[at].value) &&
                                                    decide(between(stretch, characters, first, at), true));
      if (!ends) continue;
      found.emplace_back(begin + characters[first].begin, at == characters.size() ? end : begin + characters[at].begin);
      first = at;
    }
  });
  return found;
}

std::vector<Sentence> Tokenizer::sentences(std::string_view text) const {
  std::vector<Sentence> results;
  for (const std::string& paragraph : paragraphs(std::string(text))) {
    const auto places = tokens(paragraph);
    const auto form = [&](std::size_t i) {
      return std::string_view(paragraph).substr(places[i].first, places[i].second - places[i].first);
    };
    Sentence sentence;
    std::size_t first = 0;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const bool last = i + 1 == places.size();
      const bool space = last || places[i + 1].first > places[i].second;
      const bool ends = last || decide(behind(i == 0 ? "^" : form(i - 1), form(i), form(i + 1), space), false);
      const std::string token(form(i));
      const std::vector<std::string> words = words_of(token);
      const std::string misc = space ? "_" : "SpaceAfter=No";
      if (words.size() > 1) {
        const int number = static_cast<int>(sentence.words.size()) + 1;
        sentence.multiwords.push_back(
            {.first = number, .last = number + static_cast<int>(words.size()) - 1, .form = token, .misc = misc});
      }
      for (const std::string& word : words)
        sentence.words.push_back({.form = word, .misc = words.size() > 1 ? "_" : misc});
      if (!ends) continue;
      const std::size_t begin = places[first].first;
      sentence.comments.push_back(
          unparsed(paragraph.substr(begin, places[i].second - begin), "").sentence.comments.front());
      results.push_back(std::move(sentence));
      sentence = {};
      first = i + 1;
    }
  }
  return results;
}

Json Tokenizer::to_json() const {
  Json json;
  json["ends"] = Json::array();
  json["goes_on"] = Json::array();
  for (const auto& [surroundings, ends] : decisions_) json[ends ? "ends" : "goes_on"].push_back(surroundings);
  json["multiwords"] = multiwords_;
  json["endings"] = endings_;
  return json;
}

Tokenizer Tokenizer::from_json(const Json& json, const std::string& source) {
  JsonObject object(json, source, JsonObject::Blame::data);
  Tokenizer tokenizer;
  for (const bool ends : {false, true})
    for (const std::string& one : object.get<std::vector<std::string>>(ends ? "ends" : "goes_on"))
      tokenizer.decisions_[one] = ends;
  tokenizer.multiwords_ = object.get<std::map<std::string, std::vector<std::string>>>("multiwords");
  tokenizer.endings_ = object.get<std::vector<std::string>>("endings");
  object.finish();
  for (const auto& [form, members] : tokenizer.multiwords_)
    if (members.size() < 2) object.fail(str("expected members of ", quote(form), ", found ", members.size()));
  return tokenizer;
}

std::vector<ReadToken> WordReader::read(std::string_view bytes) {
  std::vector<ReadToken> tokens;
  for (const char byte : bytes) {
    pending_ += byte;
    ++read_;
    const CodePoint one = decode_utf8(pending_, 0);
    // A cut sequence may still grow; four bytes never do.
    const auto lead = static_cast<unsigned char>(pending_.front());
    const std::size_t expected = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (!one.valid && pending_.size() < expected && one.size == pending_.size()) continue;
    if (tokenizer_->ends_before(token_, one.value)) close(tokens);
    if (!is_space(one.value)) {
      if (token_.empty()) begin_ = read_ - pending_.size(), begun_ = read_;
      blank_line_ = blank_line_ || newlines_ > 1;
      newlines_ = 0;
      token_ += pending_;
    } else if (one.value == '\n') {
      ++newlines_;
    }
    pending_.clear();
  }
  return tokens;
}

std::vector<ReadToken> WordReader::finish() {
  std::vector<ReadToken> tokens;
  if (token_.empty() && !pending_.empty()) begin_ = read_ - pending_.size();
  token_ += pending_;
  pending_.clear();
  ++read_;  // the end counts as a byte: nothing before it told that the token was whole
  close(tokens);
  --read_;
  return tokens;
}

std::optional<WordReader::Begun> WordReader::begun() const {
  if (token_.empty()) return std::nullopt;
  return Begun{begun_, blank_line_};
}

void WordReader::close(std::vector<ReadToken>& tokens) {
  if (token_.empty()) return;
  ReadToken token;
  token.words = tokenizer_->words_of(token_);
  std::string spelled;
  for (const std::string& word : token.words) spelled += word;
  // Members that do not spell the token have no bytes of their own.
  if (spelled != token_) token.words = {token_};
  token.begin = begin_;
  token.end = begin_ + token_.size();
  token.known = read_;
  token.after_blank_line = blank_line_;
  token.form = std::move(token_);
  tokens.push_back(std::move(token));
  token_.clear();
  blank_line_ = false;
}

}  // namespace torsor::syntax
