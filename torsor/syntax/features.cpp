#include "torsor/syntax/features.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"
#include "torsor/syntax/feature_stream.h"
#include "torsor/syntax/letters.h"

namespace torsor::syntax {
namespace {

bool is_blank(std::string_view text, ByteSpan bytes) {
  return skip_spaces(text.substr(0, bytes.end), bytes.begin) >= bytes.end;
}

/// By word of a sentence that was parsed as a whole; nothing has a tag where the parse gave none.
std::vector<ShownWord> shown_words(const ParseSentence& sentence) {
  std::vector<ShownWord> shown(sentence.words.size());
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const ParseWord& word = sentence.words[i];
    shown[i].tag = word.tag;
    if (word.tag.tau == 0 && word.tag.nu == 0) continue;
    shown[i].arc.valid = 1;
    show_head(word, static_cast<int>(i) + 1, shown[i].arc);
  }
  return shown;
}

/// What stands ahead of a sentence's first word; hexatags have nothing that says so.
ShownWord start_in(ParseMode mode) { return mode == ParseMode::kOracle ? ShownWord{} : sentence_start(); }

void show(SyntaxFeatures& features, std::size_t token, const ShownWord& shown) {
  features.tags[token] = {shown.tag.tau, shown.tag.nu};
  features.arcs[token] = shown.arc;
}

using TimedLinks = std::vector<std::pair<std::uint32_t, Link>>;  // the token at which a link becomes known

void store_links(SyntaxFeatures& features, TimedLinks links) {
  std::stable_sort(links.begin(), links.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  features.link_begin.assign(features.size() + 1, 0);
  for (const auto& [token, link] : links) {
    ++features.link_begin[token + 1];
    features.links.push_back(link);
  }
  for (std::size_t t = 0; t < features.size(); ++t) features.link_begin[t + 1] += features.link_begin[t];
}

// --------------------------------------------------------------------------------------------------------------------
// Whole sentences

void whole_sentences(const Parse& parse, std::string_view text, std::span<const ByteSpan> tokens,
                     const FeatureOptions& options, SyntaxFeatures& features) {
  const Alignment alignment = align(parse, text, tokens);
  features.multi_word_tokens = alignment.multi_word_tokens;
  features.swallowed = alignment.swallowed;
  std::vector<std::vector<ShownWord>> shown;
  for (const ParseSentence& sentence : parse.sentences) shown.push_back(shown_words(sentence));

  const auto shown_at = [&](int word) -> ShownWord {
    const WordPlace place = alignment.words[static_cast<std::size_t>(word)];
    if (options.rule != SubwordRule::kDelayed) return shown[place.sentence][place.word];
    return place.word == 0 ? start_in(parse.mode) : shown[place.sentence][place.word - 1];
  };
  TimedLinks links;
  features.word_tokens.assign(tokens.size(), -1);
  features.head_tokens.assign(alignment.token_head.begin(), alignment.token_head.end());
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const int word = alignment.word_of[t];
    if (word < 0) continue;
    features.word_tokens[t] = alignment.first_token[static_cast<std::size_t>(word)];
    features.sentences[t] = alignment.sentence_of[t];
    const bool first = alignment.first_token[static_cast<std::size_t>(word)] == static_cast<int>(t);
    const bool last = alignment.last_token[static_cast<std::size_t>(word)] == static_cast<int>(t);
    const bool carries = options.rule == SubwordRule::kAll || (options.rule == SubwordRule::kFirst && first) ||
                         (options.rule == SubwordRule::kLast && last) ||
                         (options.rule == SubwordRule::kDelayed && (first || options.repeat));
    if (carries) show(features, t, shown_at(word));
    if (const int head = alignment.token_head[t]; head >= 0) {
      const auto one = static_cast<std::uint32_t>(t), other = static_cast<std::uint32_t>(head);
      links.push_back({std::max(one, other), {one, other}});
    }
  }
  if (parse.mode != ParseMode::kNone) store_links(features, std::move(links));
}

// --------------------------------------------------------------------------------------------------------------------
// From left to right: nothing here may look at a word before its `known` bytes have been read

void left_to_right(const Parse& parse, std::string_view text, std::span<const ByteSpan> tokens,
                   const FeatureOptions& options, SyntaxFeatures& features) {
  if (options.rule == SubwordRule::kFirst || options.rule == SubwordRule::kAll)
    throw UsageError(str("expected the subword rule delayed for incremental tags, got ", rule_name(options.rule),
                         ": the first piece of a word would tell of the rest"));
  if (options.rule == SubwordRule::kLast && !options.pieces_mark_ends)
    throw UsageError(
        "expected the subword rule delayed for incremental tags, got last: without pieces that mark the ends of words "
        "a "
        "tag would tell that the word ends");
  if (!parse.backend.prefix_safe)
    throw Error(
        str("features: expected a parser that is safe for prefixes for incremental tags, got ", parse.backend.name));
  struct Place {
    std::size_t sentence, number;  // from 0; in its sentence from 1
    std::uint32_t begun, end, known;
  };
  std::vector<Place> words;
  for (std::size_t s = 0; s < parse.sentences.size(); ++s)
    for (std::size_t w = 0; w < parse.sentences[s].words.size(); ++w) {
      const ParseWord& word = parse.sentences[s].words[w];
      const auto first = static_cast<std::uint32_t>(decode_utf8(text, word.byte_begin).size);
      words.push_back({s, w + 1, word.byte_begin + first, word.byte_end, word.known});
    }
  FeatureStream stream(options);
  std::size_t next = 0, ended = 0;  // the first word that is not complete; that has no last token yet
  std::vector<ShownWord> shown;
  const auto complete = [&] {
    const Place& word = words[next++];
    shown.push_back(stream.complete(parse.sentences[word.sentence], word.sentence, word.number, word.begun));
  };
  TimedLinks links;
  std::uint32_t reached = 0;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const ByteSpan token = tokens[t];
    if (token.end < token.begin || token.end > text.size() || (!token.empty() && token.begin < reached))
      throw Error(str("features: expected tokens inside the text from left to right, got bytes ", token.begin, " to ",
                      token.end, " behind ", reached, " for token ", t));
    if (!token.empty()) reached = token.end;
    while (!token.empty() && next < words.size() && words[next].known <= token.end) complete();
    if (next < words.size() && words[next].begun <= token.end)
      stream.begins(words[next].begun, words[next].sentence, words[next].number == 1);
    const FeatureStream::Token one = stream.token(token, is_blank(text, token));
    show(features, t, one.shown);
    features.sentences[t] = one.sentence;
    for (const Link& link : one.links) links.push_back({static_cast<std::uint32_t>(t), link});
  }
  store_links(features, std::move(links));
  if (options.rule != SubwordRule::kLast) return;
  // The tokenizer itself says that a word ends with a token, so the tag need not wait for the byte behind it.
  while (next < words.size()) complete();
  for (std::size_t t = 0; t < tokens.size(); ++t)
    for (; ended < words.size() && words[ended].end <= tokens[t].end; ++ended)
      if (words[ended].end > tokens[t].begin) show(features, t, shown[ended]);
}

}  // namespace

std::string_view rule_name(SubwordRule rule) {
  switch (rule) {
    case SubwordRule::kFirst:
      return "first";
    case SubwordRule::kAll:
      return "all";
    case SubwordRule::kDelayed:
      return "delayed";
    case SubwordRule::kLast:
      return "last";
  }
  return "";
}

SubwordRule subword_rule(std::string_view name) {
  for (const SubwordRule rule : {SubwordRule::kFirst, SubwordRule::kAll, SubwordRule::kDelayed, SubwordRule::kLast}) {
    if (rule_name(rule) == name) return rule;
  }
  throw UsageError(str("expected the subword rule first, all, delayed or last, got ", quote(name, 40)));
}

SubwordRule default_rule(ParseMode mode, bool rotation) {
  if (mode == ParseMode::kIncremental || mode == ParseMode::kOracleRevealed) return SubwordRule::kDelayed;
  return rotation ? SubwordRule::kAll : SubwordRule::kFirst;
}

std::array<std::uint8_t, ArcFeatures::kColumns> ArcFeatures::columns() const {
  return {relation,          direction,         distance, left_count, left_relations[0],
          left_relations[1], left_relations[2], waiting,  valid};
}

double SyntaxFeatures::coverage() const {
  if (text_tokens == 0) return 0;
  const auto parsed = std::count_if(sentences.begin(), sentences.end(), [](std::int32_t s) { return s >= 0; });
  return static_cast<double>(parsed) / static_cast<double>(text_tokens);
}

namespace {

/// How many tokens of a window lie in the document.
std::size_t inside(const SyntaxFeatures& features, std::size_t begin, std::size_t length) {
  if (begin > features.size())
    throw Error(
        str("features: expected a window that begins in the document's ", features.size(), " tokens, got ", begin));
  return std::min(length, features.size() - begin);
}

}  // namespace

void SyntaxFeatures::write_tags(std::size_t begin, std::size_t length, std::int64_t* out) const {
  std::fill(out, out + length * 2, 0);
  for (std::size_t i = 0, n = inside(*this, begin, length); i < n; ++i) {
    out[i * 2] = tags[begin + i][0];
    out[i * 2 + 1] = tags[begin + i][1];
  }
}

void SyntaxFeatures::write_sentences(std::size_t begin, std::size_t length, std::int64_t* out) const {
  std::fill(out, out + length, -1);
  for (std::size_t i = 0, n = inside(*this, begin, length); i < n; ++i) out[i] = sentences[begin + i];
}

void SyntaxFeatures::write_labels(std::size_t begin, std::size_t length, std::int64_t* out) const {
  std::fill(out, out + length, 0);
  for (std::size_t i = 0, n = inside(*this, begin, length); i < n; ++i) out[i] = arcs[begin + i].relation;
}

void SyntaxFeatures::write_arcs(std::size_t begin, std::size_t length, std::int64_t* out) const {
  std::fill(out, out + length * ArcFeatures::kColumns, 0);
  for (std::size_t i = 0, n = inside(*this, begin, length); i < n; ++i) {
    const auto columns = arcs[begin + i].columns();
    std::copy(columns.begin(), columns.end(), out + i * ArcFeatures::kColumns);
  }
}

std::size_t SyntaxFeatures::write_links(std::size_t begin, std::size_t length, std::size_t per_token,
                                        std::int64_t* out) const {
  std::fill(out, out + length * per_token * 2, -1);
  std::deque<Link> queue;
  for (std::size_t i = 0, n = inside(*this, begin, length); i < length; ++i) {
    const std::size_t token = begin + i;
    for (std::uint32_t at = i < n ? link_begin[token] : 0; i < n && at < link_begin[token + 1]; ++at) {
      if (links[at].one >= begin && links[at].other >= begin) queue.push_back(links[at]);
    }
    for (std::size_t place = 0; place < per_token && !queue.empty(); ++place, queue.pop_front()) {
      out[(i * per_token + place) * 2] = static_cast<std::int64_t>(token - queue.front().one);
      out[(i * per_token + place) * 2 + 1] = static_cast<std::int64_t>(token - queue.front().other);
    }
  }
  return queue.size();
}

SyntaxFeatures syntax_features(const Parse& parse, std::string_view text, std::span<const ByteSpan> tokens,
                               const FeatureOptions& options) {
  require_text(parse, text);
  SyntaxFeatures features;
  features.mode = parse.mode;
  features.tags.assign(tokens.size(), {0, 0});
  features.sentences.assign(tokens.size(), -1);
  features.arcs.assign(tokens.size(), {});
  features.link_begin.assign(tokens.size() + 1, 0);
  for (const ByteSpan& token : tokens) {
    if (token.end > token.begin && token.end <= text.size() && !is_blank(text, token)) ++features.text_tokens;
  }
  if (parse.mode == ParseMode::kIncremental) {
    left_to_right(parse, text, tokens, options, features);
  } else {
    whole_sentences(parse, text, tokens, options, features);
  }
  return features;
}

}  // namespace torsor::syntax
