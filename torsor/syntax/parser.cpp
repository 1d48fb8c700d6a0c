#include "torsor/syntax/parser.h"

#include "torsor/base/utf8.h"

namespace torsor::syntax {
namespace {

bool is_space(char32_t c) {
  return c == ' ' || (c >= 9 && c <= 13) || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/// Appends `text` to `result`, white space left out, or collapsed to single blanks with none at the ends.
void append_words(std::string_view text, bool blanks, std::string& result) {
  bool gap = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint one = decode_utf8(text, at);
    if (is_space(one.value)) {
      gap = true;
    } else {
      if (gap && blanks && !result.empty()) result += ' ';
      gap = false;
      result += text.substr(at, one.size);
    }
    at += one.size;
  }
}

}  // namespace

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
  append_words(text, true, collapsed);
  ParsedSentence result;
  result.sentence.comments.push_back("# text = " + collapsed);
  result.parsed = false;
  result.reason = reason;
  return result;
}

std::string without_space(std::string_view text) {
  std::string result;
  append_words(text, false, result);
  return result;
}

std::string spelled_without_space(const std::vector<Sentence>& sentences) {
  std::string result;
  for (const Sentence& sentence : sentences)
    for (const SurfaceToken& token : surface_tokens(sentence)) append_words(token.form, false, result);
  return result;
}

std::vector<std::string> paragraphs(const std::string& text) {
  std::vector<std::string> result;
  std::string present;
  const auto close = [&] {
    if (!without_space(present).empty()) result.push_back(present);
    present.clear();
  };
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = text.find('\n', at);
    end = end == std::string::npos ? text.size() : end + 1;
    const std::string line = text.substr(at, end - at);
    at = end;
    if (without_space(line).empty())
      close();
    else
      present += line;
  }
  close();
  return result;
}

}  // namespace torsor::syntax
