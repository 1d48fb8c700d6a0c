// The one door to every parser: sentences in, trees out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "torsor/syntax/arc_eager.h"
#include "torsor/syntax/conllu.h"
#include "torsor/syntax/parse.h"

namespace torsor::syntax {

class Tokenizer;

/// What a parser says of itself; goes into reports and the names of cached parses.
struct ParserInfo {
  std::string backend;        ///< "conllu", "native", "udpipe" or "process"
  std::string name;           ///< such as "biaffine", "stanza"
  std::string version;        ///< of the program or the model's format
  std::string model;          ///< the file, folder or name of the model
  std::string model_sha256;   ///< 64 hexadecimal digits; empty where the parser does not show its model
  std::string scheme = "ud";  ///< what its heads mean: "ud", "clear" (ClearNLP's labels), "ptb-heads" (function heads)
  bool prefix_safe = false;   ///< reads words from left to right and never takes back: word_parser() answers
};

/// The part that stands in parses.
BackendId backend_id(const ParserInfo& info);

/// A sentence as a parser left it.
struct ParsedSentence {
  Sentence sentence;  ///< words, tags, heads, and "# text" where the text is known
  bool parsed = true;
  std::string reason = {};  ///< why not, when `parsed` is false; the words may be missing then
};

/// An arc of the present sentence.
struct WordArc {
  int dependent = 0;  ///< from 1
  int head = 0;       ///< from 1; 0 = the root
  std::string relation;

  bool operator==(const WordArc&) const = default;
};

/// What became known when a word was read. Nothing of it is ever taken back.
struct WordStep {
  std::vector<WordArc> arcs;           ///< in the order of their making; the later end is the word just read
  bool sentence_end = false;           ///< the next word begins a sentence and has number 1
  CausalTag tag = {};                  ///< 0 0 where the parser tells arcs alone
  std::string upos = "_", xpos = "_";  ///< of the word, from what was read so far

  bool operator==(const WordStep&) const = default;
};

/// A parser that reads word by word: each answer depends on the words read so far alone.
class WordParser {
 public:
  virtual ~WordParser() = default;

  /// Forgets everything: the start of a document.
  virtual void reset() = 0;
  /// Reads the next word. Throws Error when the parser fails; it must be reset then.
  virtual WordStep read(const std::string& form) = 0;
  /// The text itself says that the present sentence ends here (a blank line). Nothing when none has begun.
  virtual void end_sentence() = 0;
  /// Words read since the reset.
  virtual std::size_t words() const = 0;
  /// Goes back to when `words` words had been read. Throws Error when there were fewer.
  virtual void roll_back(std::size_t words) = 0;
  /// An independent copy that goes on from here.
  virtual std::unique_ptr<WordParser> fork() const = 0;
};

class Parser {
 public:
  virtual ~Parser() = default;

  virtual const ParserInfo& info() const = 0;

  /// One answer for each sentence of forms, in their order. Not to be called by two threads at once. What goes wrong
  /// with a sentence makes it unparsed; Error is for what concerns them all.
  virtual std::vector<ParsedSentence> parse_tokens(const std::vector<std::vector<std::string>>& sentences) = 0;

  /// The sentences that the parser finds in UTF-8 text, in order. Together they spell `text` up to white space; a
  /// stretch that failed is one unparsed sentence with its "# text".
  virtual std::vector<ParsedSentence> parse_text(const std::string& text) = 0;

  /// A reader word by word; null unless info().prefix_safe. It may outlive the parser.
  virtual std::unique_ptr<WordParser> word_parser() { return nullptr; }

  /// What cuts raw text into words for word_parser(), learned from the same treebank; null where there is none.
  virtual std::shared_ptr<const Tokenizer> tokenizer() const { return nullptr; }
};

/// A sentence of forms without anything else, the text spelled with single spaces.
Sentence bare_sentence(const std::vector<std::string>& forms);

/// An unparsed sentence whose "# text" is `text` with white space collapsed.
ParsedSentence unparsed(const std::string& text, const std::string& reason);

/// Gives a sentence without words those of its "# text", cut at white space, without heads.
void fill_words(Sentence& sentence);

/// The forms of the surface tokens of sentences, without white space.
std::string spelled_without_space(const std::vector<Sentence>& sentences);

/// Stretches of `text` between blank lines, none of them empty: no sentence reaches beyond one.
std::vector<std::string> paragraphs(const std::string& text);

}  // namespace torsor::syntax
