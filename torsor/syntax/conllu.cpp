#include "torsor/syntax/conllu.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/utf8.h"
#include "torsor/syntax/letters.h"

namespace torsor::syntax {
namespace {

constexpr std::array<const char*, 10> kColumns = {"ID",    "FORM", "LEMMA",  "UPOS", "XPOS",
                                                  "FEATS", "HEAD", "DEPREL", "DEPS", "MISC"};
enum Column { kId, kForm, kLemma, kUpos, kXpos, kFeats, kHead, kDeprel, kDeps, kMisc };

/// Thrown while a sentence is read; becomes an Error or a Skipped.
struct Defect {
  std::size_t line;
  std::string reason;
};

/// A whole number without sign and leading zeros, so that writing gives back its digits.
std::optional<int> number(std::string_view text) {
  if (text.empty() || (text.size() > 1 && text[0] == '0') || text[0] < '0' || text[0] > '9') return std::nullopt;
  int value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// The value of "# KEY = VALUE", or nothing when the comment is about something else.
std::optional<std::string_view> comment_value(std::string_view comment, std::string_view key) {
  comment.remove_prefix(1);
  while (!comment.empty() && comment.front() == ' ') comment.remove_prefix(1);
  if (comment.substr(0, key.size()) != key) return std::nullopt;
  comment.remove_prefix(key.size());
  std::size_t spaces = 0;
  while (spaces < comment.size() && comment[spaces] == ' ') ++spaces;
  if (spaces == comment.size()) return std::string_view();
  if (comment[spaces] != '=') return std::nullopt;
  comment.remove_prefix(spaces + 1);
  // One space belongs to the notation; a text may begin with more.
  if (!comment.empty() && comment.front() == ' ') comment.remove_prefix(1);
  return comment;
}

/// Reads the lines of one sentence, in order.
class BlockReader {
 public:
  BlockReader(const ReadOptions& options, std::size_t first_line) : options_(options), line_(first_line) {
    sentence_.line = first_line;
  }

  void line(std::string_view text) {
    check_bytes(text);
    if (text.front() == '#') {
      if (started_) fail("expected comments ahead of the words, got one behind");
      sentence_.comments.emplace_back(text);
    } else {
      started_ = true;
      split(text);
      row();
    }
    ++line_;
  }

  Sentence finish() {
    if (!started_) fail("expected words before the blank line, got none");
    if (sentence_.words.empty()) fail("expected a word, got none");
    const int n = static_cast<int>(sentence_.words.size());
    if (covered_ > n) {
      const MultiwordToken& range = sentence_.multiwords.back();
      fail(str("expected the range ", range.first, "-", range.last, " to end at a word up to ", n), range_line_);
    }
    if (options_.check_trees) {
      const std::vector<int> heads = sentence_.heads();
      if (const auto defect = find_defect(heads)) {
        const auto word = static_cast<std::size_t>(defect->word);
        fail(defect->reason(heads) + (word > 0 ? str(" for word ", word) : std::string()),
             word_lines_[word > 0 ? word - 1 : 0]);
      }
    }
    return std::move(sentence_);
  }

 private:
  [[noreturn]] void fail(std::string reason) const { fail(std::move(reason), line_); }
  [[noreturn]] static void fail(std::string reason, std::size_t line) { throw Defect{line, std::move(reason)}; }

  void check_bytes(std::string_view text) const {
    if (line_ == 1 && text.substr(0, 3) == "\xEF\xBB\xBF") fail("expected no byte-order mark, got one");
    if (text.find('\r') != std::string_view::npos)
      fail("expected lines that end in a line feed alone, got a carriage return");
    if (const std::size_t bad = find_invalid_utf8(text); bad != std::string_view::npos)
      fail(str("expected UTF-8, got ", quote(text.substr(bad, 1)), " at byte ", bad + 1, " of the line"));
  }

  void split(std::string_view text) {
    std::size_t count = 0;
    for (std::size_t begin = 0; begin <= text.size(); ++count) {
      const std::size_t end = std::min(text.find('\t', begin), text.size());
      if (count < cells_.size()) cells_[count] = text.substr(begin, end - begin);
      begin = end + 1;
    }
    if (count != cells_.size()) fail(str("expected 10 columns with tabs between, got ", count));
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      if (cells_[i].empty()) fail(str("expected something in column ", kColumns[i], ", got nothing"));
      const bool may_hold_spaces = i == kForm || i == kLemma || i == kMisc;
      if (!may_hold_spaces && cells_[i].find(' ') != std::string_view::npos)
        fail(str("expected no space in column ", kColumns[i], ", got ", quote(cells_[i], 40)));
    }
    // Such a token would have no bytes in any text, since white space between tokens counts for nothing.
    if (skip_spaces(cells_[kForm], 0) == cells_[kForm].size())
      fail(str("expected something in column FORM, got white space: ", quote(cells_[kForm], 40)));
  }

  std::string cell(Column column) const { return std::string(cells_[column]); }

  void row() {
    const std::string_view id = cells_[kId];
    if (const std::size_t dash = id.find('-'); dash != std::string_view::npos) {
      range(number(id.substr(0, dash)), number(id.substr(dash + 1)));
    } else if (const std::size_t dot = id.find('.'); dot != std::string_view::npos) {
      empty_node(number(id.substr(0, dot)), number(id.substr(dot + 1)));
    } else {
      word(number(id));
    }
  }

  int next() const { return static_cast<int>(sentence_.words.size()) + 1; }

  void word(std::optional<int> id) {
    if (id != next()) fail(str("expected word ", next(), ", got ID ", quote(cells_[kId], 40)));
    Word word;
    word.form = cell(kForm);
    word.lemma = cell(kLemma);
    word.upos = cell(kUpos);
    word.xpos = cell(kXpos);
    word.feats = cell(kFeats);
    word.deprel = cell(kDeprel);
    word.deps = cell(kDeps);
    word.misc = cell(kMisc);
    if (const std::optional<int> head = number(cells_[kHead])) {
      word.head = *head;
    } else if (options_.check_trees || cells_[kHead] != "_") {
      fail(str("expected a number in column HEAD, got ", quote(cells_[kHead], 40)));
    }
    sentence_.words.push_back(std::move(word));
    word_lines_.push_back(line_);
    empty_ = 0;
    waiting_ = false;
  }

  void range(std::optional<int> first, std::optional<int> last) {
    const std::string id = quote(cells_[kId], 40);
    if (!first || !last || *first < 1 || *last <= *first)
      fail(str("expected a range FIRST-LAST of words with FIRST below LAST, got ID ", id));
    if (*first <= covered_) fail(str("expected ranges that do not overlap, got ", id, " behind one up to ", covered_));
    if (*first != next()) fail(str("expected the range ", id, " directly before its first word, got it at ", next()));
    for (const Column column : {kLemma, kUpos, kXpos, kHead, kDeprel, kDeps}) {
      if (cells_[column] != "_") fail(str("expected '_' in column ", kColumns[column], " of a range"));
    }
    if (cells_[kFeats] != "_" && cells_[kFeats] != "Typo=Yes")
      fail("expected '_' or Typo=Yes in column FEATS of a range");
    sentence_.multiwords.push_back({*first, *last, cell(kForm), cell(kFeats), cell(kMisc)});
    covered_ = *last;
    range_line_ = line_;
    waiting_ = true;
  }

  void empty_node(std::optional<int> after, std::optional<int> index) {
    if (after != next() - 1 || index != empty_ + 1)
      fail(str("expected the empty node ", next() - 1, ".", empty_ + 1, ", got ID ", quote(cells_[kId], 40)));
    if (waiting_) fail("expected the first word of the range, got an empty node: it belongs before the range");
    for (const Column column : {kHead, kDeprel}) {
      if (cells_[column] != "_") fail(str("expected '_' in column ", kColumns[column], " of an empty node"));
    }
    sentence_.empty_nodes.push_back(
        {*after, *index, cell(kForm), cell(kLemma), cell(kUpos), cell(kXpos), cell(kFeats), cell(kDeps), cell(kMisc)});
    ++empty_;
  }

  const ReadOptions& options_;
  std::size_t line_;
  bool started_ = false;
  std::array<std::string_view, 10> cells_;
  Sentence sentence_;
  std::vector<std::size_t> word_lines_;
  int covered_ = 0;             // last word of the newest range
  std::size_t range_line_ = 0;  // of the newest range
  bool waiting_ = false;        // the newest line was a range, whose first word comes next
  int empty_ = 0;               // index of the newest empty node behind the newest word
};

/// The lines from one blank line to the next.
struct Block {
  std::vector<std::string_view> lines;
  std::size_t first_line = 1;
  bool closed = false;  // a blank line follows
};

Sentence read_block(const Block& block, const ReadOptions& options) {
  const std::size_t end_line = block.first_line + block.lines.size();
  if (block.lines.empty()) throw Defect{end_line, "expected a sentence before the blank line, got none"};
  BlockReader reader(options, block.first_line);
  for (const std::string_view line : block.lines) reader.line(line);
  if (!block.closed) throw Defect{end_line - 1, "expected a blank line behind the last sentence, got the end"};
  return reader.finish();
}

Skipped skipped_block(const Block& block, const Defect& defect, std::size_t before) {
  Skipped skipped{defect.line, defect.reason, std::nullopt, before};
  for (const std::string_view line : block.lines) {
    if (line.front() != '#' || find_invalid_utf8(line) != std::string_view::npos) continue;
    if (const auto value = comment_value(line, "text")) {
      skipped.text = std::string(*value);
      break;
    }
  }
  return skipped;
}

}  // namespace

std::optional<std::string> Sentence::comment(std::string_view key) const {
  for (const std::string& one : comments) {
    if (const auto value = comment_value(one, key)) return std::string(*value);
  }
  return std::nullopt;
}

std::vector<int> Sentence::heads() const {
  std::vector<int> heads(words.size());
  for (std::size_t i = 0; i < words.size(); ++i) heads[i] = words[i].head;
  return heads;
}

std::vector<std::string> Sentence::relations() const {
  std::vector<std::string> relations;
  relations.reserve(words.size());
  for (const Word& word : words) relations.push_back(word.deprel);
  return relations;
}

Document read_conllu(std::string_view content, const std::string& source, const ReadOptions& options) {
  Document document;
  Block block;
  const auto take = [&] {
    try {
      document.sentences.push_back(read_block(block, options));
    } catch (const Defect& defect) {
      if (!options.lenient) throw Error(str(source, ":", defect.line, ": ", defect.reason));
      document.skipped.push_back(skipped_block(block, defect, document.sentences.size()));
    }
    block.first_line += block.lines.size() + 1;
    block.lines.clear();
  };
  for (std::size_t begin = 0; begin < content.size();) {
    const std::size_t end = content.find('\n', begin);
    const bool whole = end != std::string_view::npos;
    const std::string_view line = content.substr(begin, (whole ? end : content.size()) - begin);
    begin = whole ? end + 1 : content.size();
    // With CR LF a blank line is a CR; it closes the sentence too, or lenient reading would lose the whole file at
    // once.
    block.closed = whole && (line.empty() || line == "\r");
    if (!block.closed || line == "\r") block.lines.push_back(line);
    if (block.closed) {
      take();
      if (line == "\r") --block.first_line;  // the CR was counted as a line of the block and as the blank one
    }
  }
  if (!block.lines.empty()) take();
  return document;
}

Document read_conllu_file(const std::string& path, const ReadOptions& options) {
  return read_conllu(read_file(path), path, options);
}

std::string conllu_text(const Sentence& sentence) {
  std::string text;
  const auto row = [&](const auto&... cells) {
    bool first = true;
    ((text += first ? "" : "\t", text += cells, first = false), ...);
    text += '\n';
  };
  for (const std::string& comment : sentence.comments) text += comment + '\n';
  auto range = sentence.multiwords.begin();
  auto empty = sentence.empty_nodes.begin();
  const int n = static_cast<int>(sentence.words.size());
  for (int i = 0; i <= n; ++i) {
    if (i > 0) {
      const Word& word = sentence.words[static_cast<std::size_t>(i) - 1];
      row(std::to_string(i), word.form, word.lemma, word.upos, word.xpos, word.feats,
          word.head < 0 ? std::string("_") : std::to_string(word.head), word.deprel, word.deps, word.misc);
    }
    for (; empty != sentence.empty_nodes.end() && empty->after == i; ++empty) {
      row(str(i, ".", empty->index), empty->form, empty->lemma, empty->upos, empty->xpos, empty->feats, "_", "_",
          empty->deps, empty->misc);
    }
    for (; range != sentence.multiwords.end() && range->first == i + 1; ++range)
      row(str(range->first, "-", range->last), range->form, "_", "_", "_", range->feats, "_", "_", "_", range->misc);
  }
  text += '\n';
  return text;
}

std::string conllu_text(const std::vector<Sentence>& sentences) {
  std::string text;
  for (const Sentence& sentence : sentences) text += conllu_text(sentence);
  return text;
}

std::vector<SurfaceToken> surface_tokens(const Sentence& sentence) {
  std::vector<SurfaceToken> tokens;
  auto range = sentence.multiwords.begin();
  const int n = static_cast<int>(sentence.words.size());
  for (int i = 1; i <= n;) {
    if (range != sentence.multiwords.end() && range->first == i) {
      tokens.push_back({range->first, range->last, range->form, range->misc});
      i = (range++)->last + 1;
    } else {
      const Word& word = sentence.words[static_cast<std::size_t>(i) - 1];
      tokens.push_back({i, i, word.form, word.misc});
      ++i;
    }
  }
  return tokens;
}

std::optional<std::string_view> column_value(std::string_view column, std::string_view key) {
  for (std::size_t begin = 0; begin < column.size();) {
    const std::size_t end = std::min(column.find('|', begin), column.size());
    const std::string_view item = column.substr(begin, end - begin);
    if (item.size() > key.size() && item[key.size()] == '=' && item.substr(0, key.size()) == key)
      return item.substr(key.size() + 1);
    begin = end + 1;
  }
  return std::nullopt;
}

bool space_after(std::string_view misc) {
  if (const auto spaces = column_value(misc, "SpacesAfter")) return !spaces->empty();
  return column_value(misc, "SpaceAfter") != "No";
}

namespace {
constexpr std::array<std::pair<char, char>, 6> kEscapes = {
    {{'s', ' '}, {'t', '\t'}, {'r', '\r'}, {'n', '\n'}, {'p', '|'}, {'\\', '\\'}}};

/// The code point of an escape like \u00A0 at the beginning, as treebanks write other white space.
std::optional<char32_t> hexadecimal_point(std::string_view text) {
  if (text.size() < 6 || text[0] != '\\' || text[1] != 'u') return std::nullopt;
  std::uint32_t value = 0;
  const auto [end, failed] = std::from_chars(text.data() + 2, text.data() + 6, value, 16);
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (failed != std::errc() || end != text.data() + 6 || surrogate) return std::nullopt;
  return value;
}

}  // namespace

std::string unescape_spaces(std::string_view escaped) {
  std::string text;
  for (std::size_t i = 0; i < escaped.size();) {
    const std::string_view rest = escaped.substr(i);
    if (const auto point = hexadecimal_point(rest)) {
      append_utf8(text, *point);
      i += 6;
      continue;
    }
    const auto* escape = std::find_if(kEscapes.begin(), kEscapes.end(), [&](const auto& one) {
      return rest.size() > 1 && rest[0] == '\\' && rest[1] == one.first;
    });
    text += escape == kEscapes.end() ? rest[0] : escape->second;
    i += escape == kEscapes.end() ? 1 : 2;
  }
  return text;
}

std::string escape_spaces(std::string_view spaces) {
  std::string text;
  for (const char c : spaces) {
    const std::size_t before = text.size();
    for (const auto& [letter, meant] : kEscapes) {
      if (c != meant) continue;
      text += '\\';
      text += letter;
    }
    if (text.size() == before) text += c;
  }
  return text;
}

std::string spelled_text(const Sentence& sentence) {
  std::string text;
  std::string pending;  // white space behind the newest token, written once another follows
  for (const SurfaceToken& token : surface_tokens(sentence)) {
    text += pending;
    if (const auto before = column_value(token.misc, "SpacesBefore")) text += unescape_spaces(*before);
    const auto inside = column_value(token.misc, "SpacesInToken");
    text += inside ? unescape_spaces(*inside) : std::string(token.form);
    if (const auto after = column_value(token.misc, "SpacesAfter")) {
      pending = unescape_spaces(*after);
    } else {
      pending = space_after(token.misc) ? " " : "";
    }
  }
  return text;
}

std::string_view base_relation(std::string_view deprel) { return deprel.substr(0, deprel.find(':')); }

Tree tree_of(const Sentence& sentence) {
  Tree tree;
  tree.words.reserve(sentence.words.size());
  for (const Word& word : sentence.words) tree.words.push_back(word.form);
  tree.heads = sentence.heads();
  tree.relations = sentence.relations();
  check_tree(tree);
  return tree;
}

Sentence sentence_of(const Tree& tree) {
  Sentence sentence;
  sentence.words.resize(tree.words.size());
  for (std::size_t i = 0; i < tree.words.size(); ++i) {
    Word& word = sentence.words[i];
    word.form = tree.words[i];
    if (i < tree.heads.size()) word.head = tree.heads[i];
    if (i < tree.relations.size()) word.deprel = tree.relations[i];
  }
  return sentence;
}

}  // namespace torsor::syntax
