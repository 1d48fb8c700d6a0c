#include "torsor/syntax/features.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <deque>
#include <optional>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"
#include "torsor/syntax/letters.h"

namespace torsor::syntax {
namespace {

std::uint8_t log_bucket(int value) {
  return value <= 0 ? 0
                    : static_cast<std::uint8_t>(
                          std::min<int>(static_cast<int>(std::bit_width(static_cast<unsigned>(value))) - 1, 7));
}

bool is_blank(std::string_view text, ByteSpan bytes) {
  return skip_spaces(text.substr(0, bytes.end), bytes.begin) >= bytes.end;
}

/// What a token shows of a word.
struct Shown {
  CausalTag tag;
  ArcFeatures arc;
};

void fill_arc(const ParseWord& word, int number, ArcFeatures& arc) {
  if (word.head == kNoHead) return;
  arc.relation = static_cast<std::uint8_t>(word.relation);
  arc.direction = word.head == 0 ? 1 : word.head < number ? 2 : 3;
  arc.distance = word.head == 0 ? 0 : log_bucket(std::abs(word.head - number));
}

/// By word of the sentence; nothing has a tag where the parse gave none.
std::vector<Shown> shown_words(const ParseSentence& sentence, ParseMode mode) {
  const int n = static_cast<int>(sentence.words.size());
  std::vector<Shown> shown(sentence.words.size());
  const auto word = [&](int number) -> const ParseWord& {
    return sentence.words[static_cast<std::size_t>(number) - 1];
  };
  std::vector<std::vector<int>> taken(mode == ParseMode::kIncremental ? sentence.words.size() + 1 : 0);
  for (int i = n; i >= 1 && mode == ParseMode::kIncremental; --i) {
    if (word(i).head > i) taken[static_cast<std::size_t>(word(i).head)].push_back(i);  // nearest first
  }
  int waiting = 0;  // words without a head, this one included
  for (int i = 1; i <= n; ++i) {
    Shown& one = shown[static_cast<std::size_t>(i) - 1];
    one.tag = word(i).tag;
    const bool tagged = one.tag.tau != 0 || one.tag.nu != 0;
    one.arc.valid = tagged ? 1 : 0;
    if (mode != ParseMode::kIncremental) {
      if (tagged) fill_arc(word(i), i, one.arc);
      continue;
    }
    const std::vector<int>& left = taken[static_cast<std::size_t>(i)];
    const bool known = word(i).head != kNoHead && word(i).head < i;
    waiting += (known ? 0 : 1) - static_cast<int>(left.size());
    if (!tagged) continue;
    if (known) fill_arc(word(i), i, one.arc);
    one.arc.left_count = static_cast<std::uint8_t>(std::min<std::size_t>(left.size(), 4));
    for (std::size_t k = 0; k < std::min<std::size_t>(left.size(), 3); ++k)
      one.arc.left_relations[k] = static_cast<std::uint8_t>(word(left[k]).relation);
    one.arc.waiting = log_bucket(waiting + 1);
  }
  return shown;
}

/// What stands ahead of a sentence's first word: nothing but that it begins, for causal tags.
Shown sentence_start(ParseMode mode) {
  if (mode == ParseMode::kOracle) return {};
  Shown shown;
  shown.tag = kSentenceStart;
  shown.arc.valid = 1;
  return shown;
}

void show(SyntaxFeatures& features, std::size_t token, const Shown& shown) {
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
  std::vector<std::vector<Shown>> shown;
  for (const ParseSentence& sentence : parse.sentences) shown.push_back(shown_words(sentence, parse.mode));

  const auto shown_at = [&](int word) -> Shown {
    const WordPlace place = alignment.words[static_cast<std::size_t>(word)];
    if (options.rule != SubwordRule::kDelayed) return shown[place.sentence][place.word];
    return place.word == 0 ? sentence_start(parse.mode) : shown[place.sentence][place.word - 1];
  };
  TimedLinks links;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const int word = alignment.word_of[t];
    if (word < 0) continue;
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

struct StreamWord {
  std::size_t sentence;
  int number;  // in its sentence, from 1
  std::uint32_t begin, end, known;
  Shown shown;
  std::optional<std::uint32_t> token;  // that holds its first byte
};

class Stream {
 public:
  Stream(const Parse& parse, std::string_view text, const FeatureOptions& options, SyntaxFeatures& features)
      : parse_(parse), text_(text), options_(options), features_(features) {
    for (std::size_t s = 0; s < parse.sentences.size(); ++s) {
      const ParseSentence& sentence = parse.sentences[s];
      const std::vector<Shown> shown = shown_words(sentence, parse.mode);
      const std::size_t first = words_.size();
      taken_.resize(first + sentence.words.size());
      for (std::size_t w = 0; w < sentence.words.size(); ++w) {
        const ParseWord& word = sentence.words[w];
        words_.push_back({s, static_cast<int>(w) + 1, word.byte_begin, word.byte_end, word.known, shown[w], {}});
        if (word.head > static_cast<int>(w) + 1)
          taken_[first + static_cast<std::size_t>(word.head) - 1].push_back(first + w);
      }
    }
  }

  void token(std::size_t t, ByteSpan bytes) {
    if (bytes.empty()) return;
    // The words that are complete now, and with them their arcs.
    while (complete_ < words_.size() && words_[complete_].known <= bytes.end) bring_arcs(complete_++, t);
    // The words that begin here. That one does is known once the word before it is complete.
    const std::size_t before = begun_;
    std::size_t carries = words_.size();
    while (begun_ < words_.size() && words_[begun_].begin < bytes.end) {
      if (words_[begun_].begin >= bytes.begin) words_[begun_].token = static_cast<std::uint32_t>(t);
      if (begun_ <= complete_ && words_[begun_].token == static_cast<std::uint32_t>(t)) carries = begun_;
      ++begun_;
    }
    if (is_blank(text_, bytes)) {
      repeated_.reset();
      return;
    }
    // Of the words that have begun, the newest whose beginning is known tells the sentence.
    if (const std::size_t newest = std::min(begun_, complete_ + 1); newest > 0 && begun_ > 0) {
      features_.sentences[t] = static_cast<std::int32_t>(words_[newest - 1].sentence);
    }
    if (options_.rule == SubwordRule::kDelayed) {
      delayed(t, carries);
    } else {
      last_piece(t, bytes, before);
    }
  }

  TimedLinks links() && { return std::move(links_); }

 private:
  void delayed(std::size_t t, std::size_t word) {
    if (word < words_.size()) {
      const Shown shown = words_[word].number == 1 ? sentence_start(parse_.mode) : words_[word - 1].shown;
      show(features_, t, shown);
      repeated_ = shown;
    } else if (options_.repeat && repeated_) {
      show(features_, t, *repeated_);
    }
  }

  /// The tokenizer itself says that the word ends with this piece.
  void last_piece(std::size_t t, ByteSpan bytes, std::size_t before) {
    for (std::size_t w = before > 0 ? before - 1 : 0; w < begun_; ++w) {
      if (words_[w].end > bytes.begin && words_[w].end <= bytes.end) show(features_, t, words_[w].shown);
    }
  }

  void bring_arcs(std::size_t w, std::size_t t) {
    const StreamWord& word = words_[w];
    const auto add = [&](std::size_t a, std::size_t b) {
      if (words_[a].token && words_[b].token && words_[a].token != words_[b].token)
        links_.push_back({static_cast<std::uint32_t>(t), {*words_[a].token, *words_[b].token}});
    };
    for (const std::size_t left : taken_[w]) add(left, w);
    const int head = parse_.sentences[word.sentence].words[static_cast<std::size_t>(word.number) - 1].head;
    if (head > 0 && head < word.number) add(w, w - static_cast<std::size_t>(word.number - head));
  }

  const Parse& parse_;
  std::string_view text_;
  const FeatureOptions& options_;
  SyntaxFeatures& features_;
  std::vector<StreamWord> words_;
  std::vector<std::vector<std::size_t>> taken_;  // by word: the dependents on its left
  std::size_t complete_ = 0;                     // words that are complete
  std::size_t begun_ = 0;                        // words whose first byte has been read
  std::optional<Shown> repeated_;                // of the present word's first token
  TimedLinks links_;
};

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
  Stream stream(parse, text, options, features);
  std::uint32_t reached = 0;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const ByteSpan token = tokens[t];
    if (token.end < token.begin || token.end > text.size() || (!token.empty() && token.begin < reached))
      throw Error(str("features: expected tokens inside the text from left to right, got bytes ", token.begin, " to ",
                      token.end, " behind ", reached, " for token ", t));
    if (!token.empty()) reached = token.end;
    stream.token(t, token);
  }
  store_links(features, std::move(stream).links());
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
