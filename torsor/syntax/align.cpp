#include "torsor/syntax/align.h"

#include <algorithm>

#include "torsor/base/error.h"
#include "torsor/syntax/letters.h"

namespace torsor::syntax {
namespace {

/// Arcs between a word and the root of its sentence, by word (all sentences in a row).
std::vector<int> depths_of(const Parse& parse) {
  std::vector<int> depths;
  std::vector<std::size_t> climbed;
  for (const ParseSentence& sentence : parse.sentences) {
    const std::size_t first = depths.size();
    depths.resize(first + sentence.words.size(), -1);
    for (std::size_t i = 0; i < sentence.words.size(); ++i) {
      climbed.clear();
      std::size_t at = i;
      while (depths[first + at] < 0) {
        climbed.push_back(at);
        depths[first + at] = 0;  // for a root, and for a word whose head is unknown
        if (sentence.words[at].head <= 0) {
          climbed.pop_back();
          break;
        }
        at = static_cast<std::size_t>(sentence.words[at].head) - 1;
      }
      for (std::size_t k = climbed.size(); k-- > 0;) {
        const auto head = static_cast<std::size_t>(sentence.words[climbed[k]].head) - 1;
        depths[first + climbed[k]] = depths[first + head] + 1;
      }
    }
  }
  return depths;
}

}  // namespace

std::vector<ByteSpan> token_spans(const Tokenizer& tokenizer, std::span<const TokenId> ids, std::string_view text) {
  std::vector<ByteSpan> spans;
  spans.reserve(ids.size());
  std::size_t offset = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    // What a tokenizer puts before a text is not there when it is decoded from its beginning.
    const std::string piece = offset == 0 ? tokenizer.decode(ids.first(i + 1)) : tokenizer.text_of(ids[i]);
    if (text.substr(offset, piece.size()) != piece)
      throw Error(str("align: expected tokens that spell the text, got another piece at token ", i, ", byte ", offset));
    spans.push_back({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(offset + piece.size())});
    offset += piece.size();
  }
  if (offset != text.size())
    throw Error(
        str("align: expected tokens up to the end of the text at byte ", text.size(), ", got them up to ", offset));
  return spans;
}

bool Alignment::too_coarse() const {
  const auto with_word = std::count_if(word_of.begin(), word_of.end(), [](int word) { return word >= 0; });
  return multi_word_tokens * 20 > static_cast<std::size_t>(with_word);
}

Alignment align(const Parse& parse, std::string_view text, std::span<const ByteSpan> tokens) {
  Alignment result;
  std::vector<ByteSpan> spans;
  std::vector<int> heads;  // by word: the head's number among all words, -1 for none
  for (std::size_t s = 0; s < parse.sentences.size(); ++s) {
    const auto first = static_cast<int>(spans.size());
    for (std::size_t w = 0; w < parse.sentences[s].words.size(); ++w) {
      const ParseWord& word = parse.sentences[s].words[w];
      result.words.push_back({s, w});
      spans.push_back({word.byte_begin, word.byte_end});
      heads.push_back(word.head > 0 ? first + word.head - 1 : -1);
    }
  }
  const std::vector<int> depths = depths_of(parse);
  const auto words = static_cast<int>(spans.size());
  const auto at = [](int i) { return static_cast<std::size_t>(i); };

  result.word_of.assign(tokens.size(), -1);
  result.sentence_of.assign(tokens.size(), -1);
  result.token_head.assign(tokens.size(), -1);
  result.first_token.assign(spans.size(), -1);
  result.last_token.assign(spans.size(), -1);
  result.owner.assign(spans.size(), -1);
  int word = 0;  // the first that does not end before the present token
  std::uint32_t reached = 0;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const ByteSpan token = tokens[t];
    if (token.end < token.begin || token.end > text.size() || (!token.empty() && token.begin < reached))
      throw Error(str("align: expected tokens inside the text from left to right, got bytes ", token.begin, " to ",
                      token.end, " behind ", reached, " for token ", t));
    if (token.empty()) continue;
    reached = token.end;
    const auto begin = static_cast<std::uint32_t>(skip_spaces(text.substr(0, token.end), token.begin));
    while (word < words && spans[at(word)].end <= begin) ++word;
    if (begin >= token.end || word == words || spans[at(word)].begin > begin) continue;
    int chosen = word, covered = word;
    for (; covered < words && spans[at(covered)].begin < token.end; ++covered)
      if (depths[at(covered)] < depths[at(chosen)]) chosen = covered;
    if (covered > word + 1) ++result.multi_word_tokens;
    result.word_of[t] = chosen;
    result.sentence_of[t] = static_cast<int>(result.words[at(chosen)].sentence);
    if (result.first_token[at(chosen)] < 0) result.first_token[at(chosen)] = static_cast<int>(t);
    result.last_token[at(chosen)] = static_cast<int>(t);
    for (int w = word; w < covered; ++w) {
      if (spans[at(w)].begin >= begin && result.owner[at(w)] < 0) result.owner[at(w)] = chosen;
    }
  }
  for (int w = 0; w < words; ++w) {
    if (result.first_token[at(w)] >= 0) {
      result.owner[at(w)] = w;
    } else {
      ++result.swallowed;
    }
  }
  // The owner is never deeper than what it swallows, so following owners of heads always climbs.
  for (int w = 0; w < words; ++w) {
    const int token = result.first_token[at(w)];
    if (token < 0 || heads[at(w)] < 0) continue;
    const int head = result.owner[at(heads[at(w)])];
    if (head >= 0 && result.first_token[at(head)] >= 0) result.token_head[at(token)] = result.first_token[at(head)];
  }
  return result;
}

}  // namespace torsor::syntax
