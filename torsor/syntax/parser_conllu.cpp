#include "torsor/syntax/parser_conllu.h"

#include <algorithm>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/hash.h"
#include "torsor/syntax/letters.h"

namespace torsor::syntax {

ConlluParser::ConlluParser(const std::string& path) {
  const std::string content = read_file(path);
  sentences_ = read_conllu(content, path).sentences;
  info_ = {.backend = "conllu", .name = "conllu", .version = "1", .model = path, .model_sha256 = sha256_hex(content)};
  for (std::size_t i = 0; i < sentences_.size(); ++i) {
    std::vector<std::string> words;
    for (const Word& word : sentences_[i].words) words.push_back(word.form);
    by_words_[std::move(words)].push_back(i);
    by_offset_.emplace(text_.size(), i);
    text_ += spelled_without_space({sentences_[i]});
  }
}

std::vector<ParsedSentence> ConlluParser::parse_tokens(const std::vector<std::vector<std::string>>& sentences) {
  std::vector<ParsedSentence> results;
  last_ = sentences_.size();
  for (const auto& words : sentences) {
    const auto found = by_words_.find(words);
    if (found == by_words_.end()) {
      results.push_back({bare_sentence(words), false, str("no sentence with these words in ", info_.model)});
      continue;
    }
    const std::vector<std::size_t>& places = found->second;
    const auto next = std::upper_bound(places.begin(), places.end(), last_);
    last_ = next == places.end() ? places.front() : *next;
    results.push_back({sentences_[last_]});
  }
  return results;
}

std::vector<ParsedSentence> ConlluParser::parse_text(const std::string& text) {
  // The text may be the whole file's or a stretch of whole sentences.
  const std::string wanted = without_spaces(text);
  if (wanted.empty()) return {};
  for (std::size_t at = text_.find(wanted); at != std::string::npos; at = text_.find(wanted, at + 1)) {
    const auto first = by_offset_.find(at);
    const auto last = by_offset_.find(at + wanted.size());
    if (first == by_offset_.end() || (last == by_offset_.end() && at + wanted.size() != text_.size())) continue;
    std::vector<ParsedSentence> results;
    for (auto one = first; one != last; ++one) results.push_back({sentences_[one->second]});
    return results;
  }
  return {unparsed(text, str("the sentences of ", info_.model, " do not spell this text"))};
}

}  // namespace torsor::syntax
