#include "torsor/syntax/text_stream.h"

#include <limits>
#include <utility>
#include <vector>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"
#include "torsor/syntax/letters.h"
#include "torsor/syntax/relations.h"

namespace torsor::syntax {

TextStream::TextStream(std::shared_ptr<const Tokenizer> tokenizer, std::unique_ptr<WordParser> parser,
                       const BackendId& backend, const FeatureOptions& options)
    : parser_(std::move(parser)), reader_(std::move(tokenizer)), parse_("", backend), features_(options) {
  if (options.rule != SubwordRule::kDelayed)
    throw UsageError(str("expected the subword rule delayed for a text that grows, got ", rule_name(options.rule),
                         options.rule == SubwordRule::kLast ? ": which piece is the last is known one later"
                                                            : ": the first piece of a word would tell of the rest"));
  parser_->reset();
}

void TextStream::take(const ReadToken& token) {
  if (token.after_blank_line && parse_.open()) {
    parser_->end_sentence();
    parse_.end_sentence();
  }
  std::size_t begin = token.begin;
  for (const std::string& form : token.words) {
    const WordStep step = parser_->read(form);
    std::vector<MadeArc> arcs;
    for (const WordArc& arc : step.arcs) arcs.push_back({arc.dependent, arc.head, relation_id(arc.relation)});
    const auto end = begin + form.size();
    parse_.word({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)},
                static_cast<std::uint32_t>(token.known), step.tag, arcs);
    const Parse& parse = parse_.so_far();
    const std::size_t first = decode_utf8(form, 0).size;
    features_.complete(parse.sentences.back(), parse.sentences.size() - 1, parse.sentences.back().words.size(),
                       static_cast<std::uint32_t>(begin + first));
    if (step.sentence_end) parse_.end_sentence();
    begin = end;
  }
}

FeatureStream::Token TextStream::read(std::string_view bytes) {
  const std::size_t before = reader_.size();
  if (before + bytes.size() >= std::numeric_limits<std::uint32_t>::max())
    throw Error("a text must be smaller than 4 GiB");
  for (const ReadToken& token : reader_.read(bytes)) take(token);
  if (const auto begun = reader_.begun()) {
    const std::size_t sentences = parse_.so_far().sentences.size();
    const bool first = !parse_.open() || begun->after_blank_line;
    features_.begins(static_cast<std::uint32_t>(begun->begun), first ? sentences : sentences - 1, first);
  }
  const bool blank = skip_spaces(bytes, 0) >= bytes.size();
  return features_.token({static_cast<std::uint32_t>(before), static_cast<std::uint32_t>(reader_.size())}, blank);
}

}  // namespace torsor::syntax
