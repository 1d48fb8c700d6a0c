// The lines that a parser in a child process and we exchange: one JSON object each.
//
//     hello   <- {"sipe": 1, "name", "version", "model", "scheme": "ud|clear|ptb-heads", "prefix_safe", "langs": [...]}
//     request -> {"id", "op": "parse", "lang", "text"} or {"id", "op": "parse_tokens", "lang", "sentences": [[...]]}
//     reply   <- {"id", "conllu"} or {"id", "error"}
//     words   -> {"op": "reset"} (no reply), {"op": "word", "form"}
//             <- {"arcs": [[dependent, head, "relation"], ...], "sent_end"} or {"error"}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "torsor/syntax/parser.h"

namespace torsor::syntax {

/// The longest line of either side, without its newline.
inline constexpr std::size_t kLongestLine = std::size_t{16} << 20;

/// What the child says of itself. `info.backend` is "process".
struct Hello {
  ParserInfo info;
  std::vector<std::string> languages;
};

/// The answer to a request.
struct Reply {
  std::int64_t id = 0;
  std::string conllu;
  std::string error;  ///< not empty when the child could not parse
};

/// All of these throw Error, one line, for a line that is not as described: no JSON, keys missing, unknown, of another
/// type, a number or a word outside its range. Further keys are refused in the hello and passed over in replies.
Hello read_hello(std::string_view line);
Reply read_reply(std::string_view line);
/// `words` counts the words of the present sentence, the one just read included: arcs stay within them, and one of
/// their ends must be the word just read, or it could have been known before.
WordStep read_word_reply(std::string_view line, int words);

std::string text_request(std::int64_t id, const std::string& language, const std::string& text);
std::string tokens_request(std::int64_t id, const std::string& language, const std::vector<std::string>& tokens);
std::string reset_request();
std::string word_request(const std::string& form);

/// The sentences of a reply, checked against what was asked: they must spell `text` up to white space. Trees are not
/// checked: heads may be wrong or missing. Throws Error saying what differs.
std::vector<Sentence> sentences_of(const Reply& reply, const std::string& text);
/// The sentence of a reply for given tokens: one, with exactly these surface tokens. Throws Error.
Sentence sentence_of(const Reply& reply, const std::vector<std::string>& tokens);

}  // namespace torsor::syntax
