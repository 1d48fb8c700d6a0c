#include "torsor/syntax/process_protocol.h"

#include <algorithm>

#include "torsor/base/error.h"
#include "torsor/base/json.h"
#include "torsor/base/utf8.h"
#include "torsor/syntax/letters.h"

namespace torsor::syntax {
namespace {

constexpr int kDepth = 8;  // of the containers in a line: more is no message of this protocol

Json parse_line(std::string_view line, const char* what) { return parse_json(line, what, kDepth); }

std::string first_difference_of(const std::string& expected, const std::string& found) {
  const auto at = static_cast<std::size_t>(
      std::mismatch(expected.begin(), expected.end(), found.begin(), found.end()).first - expected.begin());
  const auto piece = [&](const std::string& text) { return at < text.size() ? quote(text.substr(at), 20) : "the end"; };
  return str("expected ", piece(expected), " at byte ", at, " of the text without white space, found ", piece(found));
}

std::vector<Sentence> read_sentences(const Reply& reply) {
  return read_conllu(reply.conllu, str("reply ", reply.id), {.lenient = false, .check_trees = false}).sentences;
}

}  // namespace

Hello read_hello(std::string_view line) {
  const Json json = parse_line(line, "hello");
  JsonObject object(json, "hello", JsonObject::Blame::data);
  Hello hello;
  const auto version = object.get<std::int64_t>("sipe");
  if (version != 1) object.fail(str("expected version 1 of the protocol, found ", version));
  hello.info.backend = "process";
  hello.info.name = object.get<std::string>("name");
  hello.info.version = object.get<std::string>("version", "");
  hello.info.model = object.get<std::string>("model", "");
  hello.info.scheme = object.get<std::string>("scheme");
  hello.info.prefix_safe = object.get<bool>("prefix_safe", false);
  hello.languages = object.get<std::vector<std::string>>("langs", {});
  object.finish();
  if (hello.info.name.empty()) object.fail("expected a name, found none");
  const std::vector<std::string> schemes = {"ud", "clear", "ptb-heads"};
  if (std::find(schemes.begin(), schemes.end(), hello.info.scheme) == schemes.end())
    object.fail(str("scheme must be ud, clear or ptb-heads, found ", quote(hello.info.scheme, 40)));
  return hello;
}

Reply read_reply(std::string_view line) {
  const Json json = parse_line(line, "reply");
  JsonObject object(json, "reply", JsonObject::Blame::data);
  Reply reply;
  reply.id = object.get<std::int64_t>("id");
  const bool failed = object.has("error"), parsed = object.has("conllu");
  if (failed == parsed) object.fail("expected either conllu or error");
  if (parsed) reply.conllu = object.get<std::string>("conllu");
  if (failed) {
    reply.error = object.get<std::string>("error");
    if (reply.error.empty()) reply.error = "the parser gave no reason";
  }
  return reply;
}

WordStep read_word_reply(std::string_view line, int words) {
  const Json json = parse_line(line, "word reply");
  JsonObject object(json, "word reply", JsonObject::Blame::data);
  if (object.has("error")) object.fail(quote(object.get<std::string>("error")));
  WordStep step;
  step.sentence_end = object.get<bool>("sent_end", false);
  const Json arcs = object.get<Json>("arcs");
  if (!arcs.is_array()) object.fail("arcs must be a list");
  const auto end_of = [&](const Json& value, int least) {
    if (!value.is_number_integer()) object.fail("an arc's ends must be whole numbers");
    const auto end = value.get<std::int64_t>();
    if (end < least || end > words)
      object.fail(str("expected an end of an arc from ", least, " to ", words, ", found ", end));
    return static_cast<int>(end);
  };
  for (const Json& arc : arcs) {
    if (!arc.is_array() || arc.size() != 3 || !arc[2].is_string())
      object.fail("expected arcs as [dependent, head, relation]");
    WordArc one{end_of(arc[0], 1), end_of(arc[1], 0), arc[2].get<std::string>()};
    if (one.dependent == one.head) object.fail(str("word ", one.head, " cannot be its own head"));
    if (std::max(one.dependent, one.head) != words)
      object.fail(
          str("the arc from ", one.head, " to ", one.dependent, " comes too late: word ", words, " is no end of it"));
    if (one.relation.empty() || (one.relation == "root") != (one.head == 0))
      object.fail("expected the relation root with head 0 and only there");
    for (const WordArc& other : step.arcs)
      if (other.dependent == one.dependent) object.fail(str("word ", one.dependent, " gets two heads"));
    step.arcs.push_back(std::move(one));
  }
  return step;
}

std::string text_request(std::int64_t id, const std::string& language, const std::string& text) {
  return json_text({{"id", id}, {"op", "parse"}, {"lang", language}, {"text", text}});
}

std::string tokens_request(std::int64_t id, const std::string& language, const std::vector<std::string>& tokens) {
  return json_text(
      {{"id", id}, {"op", "parse_tokens"}, {"lang", language}, {"sentences", Json::array({Json(tokens)})}});
}

std::string reset_request() { return json_text({{"op", "reset"}}); }

std::string word_request(const std::string& form) { return json_text({{"op", "word"}, {"form", form}}); }

std::vector<Sentence> sentences_of(const Reply& reply, const std::string& text) {
  std::vector<Sentence> sentences = read_sentences(reply);
  const std::string expected = without_spaces(text), found = spelled_without_space(sentences);
  if (expected != found) throw Error(str("reply ", reply.id, ": ", first_difference_of(expected, found)));
  return sentences;
}

Sentence sentence_of(const Reply& reply, const std::vector<std::string>& tokens) {
  std::vector<Sentence> sentences = read_sentences(reply);
  if (sentences.size() != 1) throw Error(str("reply ", reply.id, ": expected 1 sentence, found ", sentences.size()));
  std::vector<std::string> found;
  for (const SurfaceToken& token : surface_tokens(sentences.front())) found.emplace_back(token.form);
  if (found.size() != tokens.size())
    throw Error(str("reply ", reply.id, ": expected ", tokens.size(), " tokens, found ", found.size()));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (found[i] != tokens[i])
      throw Error(str("reply ", reply.id, ": expected token ", i + 1, " to be ", quote(tokens[i], 40), ", found ",
                      quote(found[i], 40)));
  return std::move(sentences.front());
}

}  // namespace torsor::syntax
