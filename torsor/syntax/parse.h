// A parse of a text: words as bytes of exactly that text, with heads, relations and the tags that encodings read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "torsor/syntax/arc_eager.h"
#include "torsor/syntax/conllu.h"
#include "torsor/syntax/repair.h"

namespace torsor::syntax {

/// Where the tags of a token come from, and so what they tell about the future.
enum class ParseMode : std::uint8_t {
  kNone,            ///< no tags
  kOracle,          ///< hexatags of the parse of the whole sentence: leaks
  kOracleRevealed,  ///< causal tags of the whole sentence's tree, each arc used once both ends are there: leaks weakly
  kIncremental,     ///< causal tags of a parser that reads from left to right and never takes back: does not leak
};

/// "none", "oracle", "oracle_revealed", "incremental", and back; parse_mode throws UsageError for another word.
std::string_view mode_name(ParseMode mode);
ParseMode parse_mode(std::string_view name);
/// Whether tags of this mode depend on text behind their token.
bool leaks(ParseMode mode);

/// Bytes [begin, end) of a text.
struct ByteSpan {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  bool empty() const { return begin == end; }
  bool operator==(const ByteSpan&) const = default;
};

struct ParseWord {
  std::uint32_t byte_begin = 0;
  std::uint32_t byte_end = 0;
  std::int32_t head = kNoHead;  ///< a word of the sentence from 1, 0 for the root, kNoHead where unknown
  std::uint16_t relation = 0;   ///< relation_id
  CausalTag tag = {};           ///< of the mode: ids of a Hexatag or causal tag; 0 0 where there is none
  std::int32_t number = 0;      ///< of the word in its CoNLL-U sentence, from 1 (multiword tokens may be one word here)
  /// kIncremental: how many bytes of the text have to be read before the word, its tag and the arcs to earlier words
  /// are known; beyond the text where it ends with the word.
  std::uint32_t known = 0;
};

struct ParseSentence {
  std::uint32_t byte_begin = 0;
  std::uint32_t byte_end = 0;
  std::vector<ParseWord> words;  ///< from left to right, not overlapping; empty unless parsed
  bool parsed = true;
  std::uint8_t repairs = 0;  ///< defects mended; 255 = as many or more
};

/// Who made a parse.
struct BackendId {
  std::string name;  ///< "conllu", "native", "udpipe", "process", ...
  std::string version;
  std::string model_sha256;
  std::string scheme = "ud";  ///< what heads mean: "ud", "clear", "ptb-heads"
  bool prefix_safe = false;   ///< reads from left to right, never takes back
};

struct Parse {
  std::string doc_id;
  std::string text_sha256;  ///< 64 hexadecimal digits, of the exact text
  std::vector<ParseSentence> sentences;
  ParseMode mode = ParseMode::kNone;
  BackendId backend;

  std::size_t word_count() const;
};

/// Throws Error when `parse` is of another text (by the hash).
void require_text(const Parse& parse, std::string_view text);

/// Sentences longer than this stay unparsed: trees that long are most often wrong, and a star costs n * n pairs.
inline constexpr std::size_t kMaxWords = 200;

struct ParseOptions {
  std::string doc_id;
  BackendId backend = {.name = "conllu"};
  ParseMode mode = ParseMode::kOracle;  ///< kNone, kOracle or kOracleRevealed
  RepairPolicy repair = RepairPolicy::kRepair;
  std::size_t max_words = kMaxWords;
};

/// Finds the surface tokens of `sentences` in `text` from left to right, with white space (Unicode's Zs, tabs, line
/// breaks) free between them, and makes a parse. A sentence without words is an unparsed stretch, matched by its
/// "# text", or without one up to where the next sentence matches. Words of a multiword token that spell it, whatever
/// their case, share out its bytes; of others one stands for all (the leftmost whose head lies outside, if climbing
/// from there does not come back), and takes over the arcs of the rest. Throws Error with the byte where text and
/// tokens part, or text is left over, and UsageError for kIncremental.
Parse make_parse(std::span<const Sentence> sentences, std::string_view text, const ParseOptions& options = {});

/// The tags of every word for another mode, from the heads: kNone, kOracle or kOracleRevealed. Throws Error for
/// kIncremental, which only a parser that reads from left to right can give, unless that is the mode already.
void set_mode(Parse& parse, ParseMode mode);

/// The sentences of a document with those that were skipped at their places as sentences without words.
std::vector<Sentence> with_skipped(const Document& document);

/// A document of a treebank with a text of its own.
struct TreebankText {
  std::string doc_id;  ///< of "# newdoc id", or "SOURCE-N" where there is none
  std::string text;    ///< "# text" of the sentences, or their tokens; a space between them, a blank line at "# newpar"
  std::vector<Sentence> sentences;
};

/// Splits at every "# newdoc". Without any, all is one document.
std::vector<TreebankText> treebank_texts(const Document& document, const std::string& source);

/// An arc that a left-to-right parser made; words of the sentence from 1, head 0 for the root.
struct MadeArc {
  int dependent = 0;
  int head = 0;
  std::uint16_t relation = 0;
};

/// The arcs that came with the front word of a state, in the order of their making; labels are taken for relation_ids.
std::vector<MadeArc> made_arcs(const ArcEager& state);

/// Collects a parse of mode kIncremental word by word.
class IncrementalParse {
 public:
  /// Throws Error unless `backend` is prefix safe.
  IncrementalParse(std::string doc_id, BackendId backend, std::size_t max_words = kMaxWords);

  /// The next word: its bytes; how many bytes had to be read to know it (the byte that ends it included); its tag; the
  /// arcs that came with it, each between it and an earlier word. Words of a sentence beyond max_words get no tag and
  /// no arcs. Throws Error for bytes that do not follow on, a `known` that is below the word's end or goes back, and
  /// arcs that are not as said or give a word a second head.
  void word(ByteSpan bytes, std::uint32_t known, CausalTag tag, std::span<const MadeArc> arcs);
  /// The next word begins a sentence.
  void end_sentence();
  /// The words so far, of a text that has no hash yet.
  const Parse& so_far() const { return parse_; }
  /// Whether the newest sentence goes on.
  bool open() const { return open_; }
  /// The words so far as a parse of `text`, which they must lie in.
  Parse finish(std::string_view text) &&;

 private:
  Parse parse_;
  std::size_t max_words_;
  bool open_ = false;  // the newest sentence goes on
};

}  // namespace torsor::syntax
