#include "torsor/syntax/parse.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "torsor/base/error.h"
#include "torsor/base/hash.h"
#include "torsor/base/utf8.h"
#include "torsor/syntax/hexatags.h"
#include "torsor/syntax/letters.h"
#include "torsor/syntax/relations.h"
#include "torsor/syntax/words.h"

namespace torsor::syntax {
namespace {

std::uint32_t narrow(std::size_t offset) { return static_cast<std::uint32_t>(offset); }

/// The end of `form` where it stands in `text` at `begin`; white space inside it matches any.
std::optional<std::size_t> match_form(std::string_view text, std::size_t begin, std::string_view form) {
  std::size_t at = begin;
  for (std::size_t i = 0; i < form.size();) {
    if (const std::size_t space = space_at(form, i)) {
      i += space;
      at = skip_spaces(text, at);
    } else if (at < text.size() && text[at] == form[i]) {
      ++at;
      ++i;
    } else {
      return std::nullopt;
    }
  }
  return at;
}

struct Matched {
  std::size_t begin = 0, end = 0;
  std::vector<ByteSpan> tokens;  // surface tokens
};

struct Mismatch {
  std::size_t at;
  std::string_view form;
};

/// The surface tokens of a sentence from `offset` on, or where they part from the text.
std::optional<Mismatch> match_sentence(std::string_view text, std::size_t offset, const Sentence& sentence,
                                       Matched& matched) {
  matched.tokens.clear();
  for (const SurfaceToken& token : surface_tokens(sentence)) {
    const std::size_t begin = skip_spaces(text, offset);
    const std::string_view form = token.form.substr(skip_spaces(token.form, 0));
    const std::optional<std::size_t> end = match_form(text, begin, form);
    if (!end) return Mismatch{begin, form};
    matched.tokens.push_back({narrow(begin), narrow(*end)});
    offset = *end;
  }
  matched.begin = matched.tokens.front().begin;
  matched.end = matched.tokens.back().end;
  return std::nullopt;
}

[[noreturn]] void fail_mismatch(std::string_view text, const Mismatch& mismatch, const Sentence& sentence) {
  const std::string where = sentence.line > 0 ? str(" (sentence of line ", sentence.line, ")") : std::string();
  throw Error(str("parse: expected ", quote(mismatch.form, 40), " at byte ", mismatch.at, " of the text, got ",
                  quote(text.substr(std::min(mismatch.at, text.size()), 40), 30), where));
}

/// Where an unparsed stretch ends: by its own text, or where the next sentence with words begins to match.
std::size_t stretch_end(std::string_view text, std::size_t begin, std::span<const Sentence> sentences, std::size_t i) {
  if (const auto own = sentences[i].comment("text"); own && !without_spaces(*own).empty()) {
    const std::string_view form = std::string_view(*own).substr(skip_spaces(*own, 0));
    std::size_t at = begin;
    for (std::size_t k = 0; k < form.size();) {
      if (const std::size_t space = space_at(form, k)) {
        k += space;
        continue;
      }
      at = skip_spaces(text, at);
      if (at >= text.size() || text[at] != form[k]) fail_mismatch(text, {begin, form}, sentences[i]);
      ++at;
      ++k;
    }
    return at;
  }
  std::size_t end = text.size();
  for (std::size_t next = i + 1; next < sentences.size(); ++next) {
    if (sentences[next].words.empty()) continue;
    Matched ignored;
    for (std::size_t at = begin; at < text.size(); at += decode_utf8(text, at).size) {
      if (space_at(text, at) == 0 && !match_sentence(text, at, sentences[next], ignored)) {
        end = at;
        break;
      }
    }
    break;
  }
  while (end > begin) {  // without the white space behind it
    std::size_t last = end - 1;
    while (last > begin && (static_cast<unsigned char>(text[last]) & 0xC0u) == 0x80u) --last;
    if (space_at(text, last) == 0) break;
    end = last;
  }
  return end;
}

/// Bytes of the words of a multiword token that spell it, or nothing.
std::optional<std::vector<ByteSpan>> shared_out(std::string_view text, ByteSpan token, std::span<const Word> words) {
  const std::string_view surface = text.substr(token.begin, token.end - token.begin);
  std::string joined;
  std::vector<ByteSpan> spans;
  for (const Word& word : words) {
    const std::uint32_t begin = token.begin + narrow(joined.size());
    joined += word.form;
    spans.push_back({begin, token.begin + narrow(joined.size())});
  }
  if (joined.size() != surface.size() || lower(joined) != lower(surface)) return std::nullopt;
  for (const ByteSpan& span : spans) {  // letters of another case may take other numbers of bytes
    const bool inside = span.end < text.size() && (static_cast<unsigned char>(text[span.end]) & 0xC0u) == 0x80u;
    if (inside && span.end < token.end) return std::nullopt;
  }
  return spans;
}

/// Lets one word stand for words first..last: it takes over the arcs of the others, which hang from it afterwards.
/// Returns that word.
int contract(std::vector<int>& heads, int first, int last) {
  const auto inside = [&](int word) { return word >= first && word <= last; };
  const auto climbs_back = [&](int word) {
    for (int at = heads[index(word)]; at > 0; at = heads[index(at)])
      if (inside(at)) return true;
    return false;
  };
  int chosen = first;
  // In a tree the member nearest to the root never comes back, so one is found.
  while (chosen < last && climbs_back(chosen)) ++chosen;
  for (int word = 1; word <= static_cast<int>(heads.size()); ++word) {
    if (word != chosen && (inside(word) || inside(heads[index(word)]))) heads[index(word)] = chosen;
  }
  return chosen;
}

ParseSentence sentence_parse(const Sentence& sentence, const Matched& matched, std::string_view text,
                             const ParseOptions& options) {
  ParseSentence parse;
  parse.byte_begin = narrow(matched.begin);
  parse.byte_end = narrow(matched.end);
  parse.parsed = false;
  if (sentence.words.size() > options.max_words) return parse;
  std::vector<int> heads = sentence.heads();
  std::vector<std::string> relations = sentence.relations();
  if (find_defect(heads)) {
    if (options.repair == RepairPolicy::kStrict) return parse;
    parse.repairs = static_cast<std::uint8_t>(std::min<std::size_t>(repair(heads, relations).total(), 255));
  }
  parse.parsed = true;
  const std::vector<SurfaceToken> tokens = surface_tokens(sentence);
  std::vector<ByteSpan> spans(heads.size());
  std::vector<bool> visible(heads.size(), true);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const int first = tokens[t].first, last = tokens[t].last;
    const auto members = std::span(sentence.words).subspan(index(first), static_cast<std::size_t>(last - first + 1));
    if (const auto shared = members.size() > 1 ? shared_out(text, matched.tokens[t], members) : std::nullopt) {
      std::copy(shared->begin(), shared->end(), spans.begin() + first - 1);
      continue;
    }
    for (int word = first; word <= last; ++word) spans[index(word)] = matched.tokens[t];
    if (first == last) continue;
    const int chosen = contract(heads, first, last);
    for (int word = first; word <= last; ++word) visible[index(word)] = word == chosen;
  }
  std::vector<int> place(heads.size() + 1, 0);  // of a visible word among them, from 1; 0 for the root
  int count = 0;
  for (std::size_t i = 0; i < heads.size(); ++i) place[i + 1] = visible[i] ? ++count : 0;
  for (std::size_t i = 0; i < heads.size(); ++i) {
    if (!visible[i]) continue;
    ParseWord word;
    word.byte_begin = spans[i].begin;
    word.byte_end = spans[i].end;
    word.head = place[static_cast<std::size_t>(heads[i])];
    word.relation = relation_id(relations[i]);
    word.number = static_cast<std::int32_t>(i) + 1;
    parse.words.push_back(word);
  }
  return parse;
}

std::vector<int> heads_of_words(const ParseSentence& sentence) {
  std::vector<int> heads;
  for (const ParseWord& word : sentence.words) heads.push_back(word.head);
  return heads;
}

}  // namespace

std::string_view mode_name(ParseMode mode) {
  switch (mode) {
    case ParseMode::kNone:
      return "none";
    case ParseMode::kOracle:
      return "oracle";
    case ParseMode::kOracleRevealed:
      return "oracle_revealed";
    case ParseMode::kIncremental:
      return "incremental";
  }
  return "";
}

ParseMode parse_mode(std::string_view name) {
  for (const ParseMode mode :
       {ParseMode::kNone, ParseMode::kOracle, ParseMode::kOracleRevealed, ParseMode::kIncremental}) {
    if (mode_name(mode) == name) return mode;
  }
  throw UsageError(str("expected the mode none, oracle, oracle_revealed or incremental, got ", quote(name, 40)));
}

bool leaks(ParseMode mode) { return mode == ParseMode::kOracle || mode == ParseMode::kOracleRevealed; }

std::size_t Parse::word_count() const {
  std::size_t count = 0;
  for (const ParseSentence& sentence : sentences) count += sentence.words.size();
  return count;
}

void require_text(const Parse& parse, std::string_view text) {
  const std::string hash = sha256_hex(text);
  if (hash != parse.text_sha256)
    throw Error(str("parse of ", quote(parse.doc_id, 60), ": expected the text with SHA-256 ",
                    parse.text_sha256.substr(0, 12), "..., got ", hash.substr(0, 12), "..."));
}

Parse make_parse(std::span<const Sentence> sentences, std::string_view text, const ParseOptions& options) {
  if (options.mode == ParseMode::kIncremental)
    throw UsageError("parse: expected the mode none, oracle or oracle_revealed of whole sentences, got incremental");
  if (text.size() >= std::numeric_limits<std::uint32_t>::max())
    throw Error(str("parse: expected a text below 4 GiB, got ", text.size(), " bytes"));
  Parse parse;
  parse.doc_id = options.doc_id;
  parse.backend = options.backend;
  parse.text_sha256 = sha256_hex(text);
  std::size_t offset = 0;
  Matched matched;
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    const Sentence& sentence = sentences[i];
    if (sentence.words.empty()) {
      ParseSentence stretch;
      stretch.parsed = false;
      const std::size_t begin = skip_spaces(text, offset);
      offset = std::max(begin, stretch_end(text, begin, sentences, i));
      stretch.byte_begin = narrow(begin);
      stretch.byte_end = narrow(offset);
      parse.sentences.push_back(std::move(stretch));
      continue;
    }
    if (const auto mismatch = match_sentence(text, offset, sentence, matched)) fail_mismatch(text, *mismatch, sentence);
    parse.sentences.push_back(sentence_parse(sentence, matched, text, options));
    offset = matched.end;
  }
  if (const std::size_t rest = skip_spaces(text, offset); rest != text.size())
    throw Error(str("parse: expected the text to end with the last sentence, got ", quote(text.substr(rest, 40), 30),
                    " at byte ", rest));
  set_mode(parse, options.mode);
  return parse;
}

void set_mode(Parse& parse, ParseMode mode) {
  if (mode == parse.mode && mode == ParseMode::kIncremental) return;
  if (mode == ParseMode::kIncremental)
    throw Error(str("parse of ", quote(parse.doc_id, 60), " by ", parse.backend.name,
                    ": expected a parser that reads from left to right for incremental tags, got whole sentences"));
  if (parse.mode == ParseMode::kIncremental && mode != ParseMode::kNone)
    throw Error(str("parse of ", quote(parse.doc_id, 60), ": expected whole sentences for ", mode_name(mode),
                    " tags, got an incremental parse"));
  for (ParseSentence& sentence : parse.sentences) {
    if (mode == ParseMode::kNone) {
      for (ParseWord& word : sentence.words) word.tag = {};
    } else if (sentence.parsed) {
      const std::vector<int> heads = projectivise(heads_of_words(sentence));
      const std::vector<CausalTag> causal =
          mode == ParseMode::kOracleRevealed ? oracle_tags(heads) : std::vector<CausalTag>();
      const std::vector<Hexatag> whole = mode == ParseMode::kOracle ? hexatags_of(heads) : std::vector<Hexatag>();
      for (std::size_t i = 0; i < heads.size(); ++i) {
        sentence.words[i].tag = mode == ParseMode::kOracle ? CausalTag{static_cast<std::uint8_t>(whole[i].terminal),
                                                                       static_cast<std::uint8_t>(whole[i].nonterminal)}
                                                           : causal[i];
      }
    }
  }
  parse.mode = mode;
}

std::vector<Sentence> with_skipped(const Document& document) {
  std::vector<Sentence> sentences;
  sentences.reserve(document.sentences.size() + document.skipped.size());
  auto skipped = document.skipped.begin();
  for (std::size_t i = 0; i <= document.sentences.size(); ++i) {
    for (; skipped != document.skipped.end() && skipped->before <= i; ++skipped) {
      Sentence stretch;
      stretch.line = skipped->line;
      if (skipped->text) stretch.comments.push_back("# text = " + *skipped->text);
      sentences.push_back(std::move(stretch));
    }
    if (i < document.sentences.size()) sentences.push_back(document.sentences[i]);
  }
  return sentences;
}

std::vector<TreebankText> treebank_texts(const Document& document, const std::string& source) {
  std::vector<TreebankText> texts;
  for (Sentence& sentence : with_skipped(document)) {
    const std::optional<std::string> id = sentence.comment("newdoc id");
    const bool begins = id.has_value() || sentence.comment("newdoc").has_value();
    if (begins || texts.empty()) texts.push_back({id.value_or(str(source, "-", texts.size() + 1)), "", {}});
    TreebankText& document_text = texts.back();
    const bool paragraph = sentence.comment("newpar id").has_value() || sentence.comment("newpar").has_value();
    if (!document_text.text.empty()) document_text.text += paragraph ? "\n\n" : " ";
    document_text.text += sentence.comment("text").value_or(spelled_text(sentence));
    document_text.sentences.push_back(std::move(sentence));
  }
  for (TreebankText& text : texts) text.text += '\n';
  return texts;
}

std::vector<MadeArc> made_arcs(const ArcEager& state) {
  std::vector<MadeArc> arcs;
  const auto add = [&](int dependent) {
    const int label = state.label(dependent);
    arcs.push_back({dependent, state.head(dependent), static_cast<std::uint16_t>(std::max(label, 0))});
  };
  for (const int dependent : state.taken()) add(dependent);
  if (state.front() > 0 && state.head(state.front()) != kNoHead) add(state.front());
  return arcs;
}

IncrementalParse::IncrementalParse(std::string doc_id, BackendId backend, std::size_t max_words)
    : max_words_(max_words) {
  if (!backend.prefix_safe)
    throw Error(str("parse of ", quote(doc_id, 60), " by ", backend.name,
                    ": expected a parser that is safe for prefixes for incremental tags, got one that is not"));
  parse_.doc_id = std::move(doc_id);
  parse_.backend = std::move(backend);
  parse_.mode = ParseMode::kIncremental;
}

void IncrementalParse::word(ByteSpan bytes, std::uint32_t known, CausalTag tag, std::span<const MadeArc> arcs) {
  std::uint32_t end = 0, last_known = 0;
  if (!parse_.sentences.empty()) {
    end = parse_.sentences.back().byte_end;
    last_known = parse_.sentences.back().words.back().known;
  }
  const auto fail = [&](const std::string& what) {
    throw Error(str("incremental parse: expected ", what, " for the word of bytes ", bytes.begin, " to ", bytes.end));
  };
  if (bytes.begin < end || bytes.empty() || bytes.end < bytes.begin) fail(str("bytes from ", end, " on"));
  if (known < bytes.end || known < last_known) fail(str("to know it at its end and not before byte ", last_known));
  if (!open_) {
    parse_.sentences.push_back({.byte_begin = bytes.begin});
    open_ = true;
  }
  ParseSentence& sentence = parse_.sentences.back();
  sentence.byte_end = bytes.end;
  ParseWord word;
  word.byte_begin = bytes.begin;
  word.byte_end = bytes.end;
  word.known = known;
  word.number = static_cast<std::int32_t>(sentence.words.size()) + 1;
  const bool counted = sentence.words.size() < max_words_;
  if (counted) word.tag = tag;
  sentence.words.push_back(word);
  for (const MadeArc& arc : arcs) {
    const int n = word.number;
    const bool fits = arc.dependent >= 1 && arc.head >= 0 && std::max(arc.dependent, arc.head) == n &&
                      arc.dependent != arc.head && sentence.words[index(arc.dependent)].head == kNoHead;
    if (!fits) fail(str("arcs that give a word without a head one, got ", arc.head, " -> ", arc.dependent));
    if (!counted) continue;
    sentence.words[index(arc.dependent)].head = arc.head;
    sentence.words[index(arc.dependent)].relation = arc.relation;
  }
}

void IncrementalParse::end_sentence() { open_ = false; }

Parse IncrementalParse::finish(std::string_view text) && {
  if (!parse_.sentences.empty() && parse_.sentences.back().byte_end > text.size())
    throw Error(str("incremental parse: expected words inside the text of ", text.size(), " bytes, got one up to ",
                    parse_.sentences.back().byte_end));
  parse_.text_sha256 = sha256_hex(text);
  return std::move(parse_);
}

}  // namespace torsor::syntax
