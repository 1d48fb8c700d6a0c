#include "torsor/syntax/parser.h"

#include <utility>

#include "torsor/base/utf8.h"
#include "torsor/syntax/letters.h"

namespace torsor::syntax {

BackendId backend_id(const ParserInfo& info) {
  return {info.backend == "native" || info.backend == "process" ? info.backend + ":" + info.name : info.backend,
          info.version, info.model_sha256, info.scheme, info.prefix_safe};
}

Sentence bare_sentence(const std::vector<std::string>& forms) {
  Sentence sentence;
  std::string text;
  for (const std::string& form : forms) {
    sentence.words.push_back({.form = form});
    text += (text.empty() ? "" : " ") + form;
  }
  sentence.comments.push_back("# text = " + text);
  return sentence;
}

ParsedSentence unparsed(const std::string& text, const std::string& reason) {
  std::string collapsed;
  for (std::size_t at = skip_spaces(text, 0); at < text.size();) {
    const std::size_t size = decode_utf8(text, at).size;
    collapsed += text.substr(at, size);
    at += size;
    const std::size_t next = skip_spaces(text, at);
    if (next > at && next < text.size()) collapsed += ' ';
    at = next;
  }
  ParsedSentence result;
  result.sentence.comments.push_back("# text = " + collapsed);
  result.parsed = false;
  result.reason = reason;
  return result;
}

void fill_words(Sentence& sentence) {
  if (!sentence.words.empty()) return;
  const std::string text = sentence.comment("text").value_or("");
  std::string word;
  for (const char c : text + " ") {
    if (c != ' ') {
      word += c;
    } else if (!word.empty()) {
      sentence.words.push_back({.form = std::exchange(word, {})});
    }
  }
}

std::string spelled_without_space(const std::vector<Sentence>& sentences) {
  std::string result;
  for (const Sentence& sentence : sentences)
    for (const SurfaceToken& token : surface_tokens(sentence)) result += without_spaces(token.form);
  return result;
}

std::vector<std::string> paragraphs(const std::string& text) {
  std::vector<std::string> result;
  std::string present;
  const auto close = [&] {
    if (!without_spaces(present).empty()) result.push_back(present);
    present.clear();
  };
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = text.find('\n', at);
    end = end == std::string::npos ? text.size() : end + 1;
    const std::string line = text.substr(at, end - at);
    at = end;
    if (without_spaces(line).empty())
      close();
    else
      present += line;
  }
  close();
  return result;
}

}  // namespace torsor::syntax
