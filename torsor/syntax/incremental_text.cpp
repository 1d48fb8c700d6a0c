#include "torsor/syntax/incremental_text.h"

#include <limits>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"
#include "torsor/syntax/relations.h"
#include "torsor/syntax/repair.h"

namespace torsor::syntax {
namespace {

/// Adds the words of steps [first, last) as one sentence.
Sentence sentence_of(std::string_view text, const std::vector<TextStep>& steps, std::size_t first, std::size_t last) {
  Sentence sentence;
  std::vector<int> heads(last - first, kNoHead);
  std::vector<std::string> relations(last - first, "dep");
  for (std::size_t i = first; i < last; ++i)
    for (const WordArc& arc : steps[i].step.arcs) {
      heads[static_cast<std::size_t>(arc.dependent) - 1] = arc.head;
      relations[static_cast<std::size_t>(arc.dependent) - 1] = arc.relation;
    }
  repair(heads, relations);
  for (std::size_t i = first; i < last; ++i) {
    const bool glued = i + 1 < steps.size() && steps[i + 1].bytes.begin == steps[i].bytes.end;
    std::size_t members = 1;  // of a multiword token that begins here; a sentence may end inside of one
    while (i + members < last && !steps[i + members].starts_token) ++members;
    if (steps[i].starts_token && members > 1) {
      const TextStep& end = steps[i + members - 1];
      const bool glued_end = i + members < steps.size() && steps[i + members].bytes.begin == end.bytes.end;
      const int number = static_cast<int>(i - first) + 1;
      sentence.multiwords.push_back(
          {.first = number,
           .last = number + static_cast<int>(members) - 1,
           .form = std::string(text.substr(steps[i].bytes.begin, end.bytes.end - steps[i].bytes.begin)),
           .misc = glued_end ? "SpaceAfter=No" : "_"});
    }
    const bool inside = !sentence.multiwords.empty() && sentence.multiwords.back().last > static_cast<int>(i - first);
    sentence.words.push_back({.form = steps[i].form,
                              .upos = steps[i].step.upos,
                              .xpos = steps[i].step.xpos,
                              .head = heads[i - first],
                              .deprel = relations[i - first],
                              .misc = glued && !inside ? "SpaceAfter=No" : "_"});
  }
  const std::size_t begin = steps[first].bytes.begin;
  sentence.comments =
      unparsed(std::string(text.substr(begin, steps[last - 1].bytes.end - begin)), "").sentence.comments;
  return sentence;
}

}  // namespace

std::vector<TextStep> read_text(std::string_view text, const std::shared_ptr<const Tokenizer>& tokenizer,
                                WordParser& parser, const std::function<void()>& each) {
  if (text.size() >= std::numeric_limits<std::uint32_t>::max()) throw Error("a text must be smaller than 4 GiB");
  if (const std::size_t at = find_invalid_utf8(text); at != std::string_view::npos)
    throw Error(str("expected UTF-8, found another byte at ", at));
  std::vector<TextStep> steps;
  parser.reset();
  const auto take = [&](const std::vector<ReadToken>& tokens) {
    for (const ReadToken& token : tokens) {
      if (token.after_blank_line && !steps.empty() && !steps.back().sentence_end) {
        parser.end_sentence();
        steps.back().sentence_end = true;
      }
      std::size_t begin = token.begin;
      for (const std::string& word : token.words) {
        if (each) each();
        TextStep step;
        step.form = word;
        step.bytes = {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(begin + word.size())};
        step.known = static_cast<std::uint32_t>(token.known);
        step.starts_token = begin == token.begin;
        step.step = parser.read(word);
        step.sentence_end = step.step.sentence_end;
        begin += word.size();
        steps.push_back(std::move(step));
      }
    }
  };
  WordReader reader(tokenizer);
  take(reader.read(text));
  take(reader.finish());
  if (!steps.empty()) steps.back().sentence_end = true;
  return steps;
}

Parse incremental_parse(std::string_view text, const std::vector<TextStep>& steps, const BackendId& backend,
                        const std::string& doc_id) {
  IncrementalParse parse(doc_id, backend);
  for (const TextStep& step : steps) {
    std::vector<MadeArc> arcs;
    for (const WordArc& arc : step.step.arcs) arcs.push_back({arc.dependent, arc.head, relation_id(arc.relation)});
    parse.word(step.bytes, step.known, step.step.tag, arcs);
    if (step.sentence_end) parse.end_sentence();
  }
  return std::move(parse).finish(text);
}

std::vector<Sentence> sentences_of(std::string_view text, const std::vector<TextStep>& steps) {
  std::vector<Sentence> sentences;
  std::size_t first = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!steps[i].sentence_end) continue;
    sentences.push_back(sentence_of(text, steps, first, i + 1));
    first = i + 1;
  }
  return sentences;
}

}  // namespace torsor::syntax
