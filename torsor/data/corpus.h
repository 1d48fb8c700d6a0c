// Texts and token files as documents of token ids, and their split into training and validation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "torsor/data/tokenizer.h"

namespace torsor {

/// A read-only run of token ids, kept as little-endian integers of 1, 2 or 4 bytes. Copies and slices share the memory,
/// so a corpus and its splits cost the text once.
class TokenArray {
 public:
  TokenArray() = default;

  /// Takes over `bytes`, the little-endian ids. `width` is 1, 2 or 4 and divides the size (else Error).
  TokenArray(std::string bytes, std::size_t width);

  /// Packs `ids` in the narrowest width that holds every id below `vocabulary_size`. Throws Error for an id beyond it.
  static TokenArray pack(std::span<const TokenId> ids, std::uint32_t vocabulary_size);

  std::size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  std::size_t width() const { return width_; }

  /// The id at `index` < size(); not checked.
  TokenId operator[](std::size_t index) const;

  /// Writes `count` ids from `begin` on to `out`. Throws Error when the range leaves the array.
  void copy(std::size_t begin, std::size_t count, std::int64_t* out) const;

  /// The ids [begin, begin + count), sharing memory. Throws Error when the range leaves the array.
  TokenArray slice(std::size_t begin, std::size_t count) const;

  /// The ids as stored: size() * width() bytes, valid while this array lives.
  std::string_view bytes() const;

 private:
  std::shared_ptr<const std::string> storage_;
  std::size_t offset_ = 0;  // in bytes
  std::size_t count_ = 0;   // in ids
  std::size_t width_ = 1;   // bytes an id
};

/// A text that stands for itself: no training or evaluation window crosses its ends.
struct Document {
  std::string name;  // the file's path as found from the path that was asked for
  TokenArray tokens;
  std::size_t text_bytes = 0;  // size of the text in bytes; 0 when unknown (token files)
};

struct Corpus {
  std::string tokenizer;                    // Tokenizer::name(), or "tokens" for a token file
  std::uint32_t vocabulary_size = 0;        // every id is below it
  std::vector<Document> documents;          // none of them empty
  std::shared_ptr<const Tokenizer> reader;  // what the ids stand for; nothing for a token file

  /// The bytes that a document's tokens stand for. Throws Error for a token file.
  std::string text(std::size_t document) const;
  /// Whether an id is a byte.
  bool of_bytes() const { return tokenizer == ByteTokenizer().name(); }

  std::size_t token_count() const;
  std::size_t longest() const;     // tokens of the longest document; 0 without documents
  std::size_t text_bytes() const;  // 0 when any document's is unknown

  /// SHA-256 (hexadecimal) of the documents' own SHA-256 digests, written in hexadecimal one a line. Depends on
  /// contents and order, not on where the files lie. For a corpus of bytes, `sha256sum FILES | cut -d' ' -f1 |
  /// sha256sum` gives the same.
  std::string sha256() const;
};

/// The text files that `paths` stand for: a file stands for itself whatever its name, a folder for every *.txt and *.md
/// (or *.TXT, *.MD) below it, sorted by the bytes of their relative paths. Links to files are followed, links to
/// folders are not; a file reached twice counts once. Throws Error naming a path that is missing, and a folder without
/// texts.
std::vector<std::string> find_texts(const std::vector<std::string>& paths);

/// Reads the files of find_texts, each a document, byte for byte (no newline or BOM is touched; bytes that are not
/// UTF-8 are kept). Empty files are passed over; throws Error when all are empty, or one cannot be read.
Corpus load_text(const std::vector<std::string>& paths);

/// A corpus of bytes in the ids of `reader`, document by document. Throws Error when a text does not come back from its
/// ids byte for byte (a tokenizer that adds a space before it, say): what is known of its bytes would be wrong.
Corpus tokenized(const Corpus& bytes, std::shared_ptr<const Tokenizer> reader);

/// A corpus of one document from text in memory, as bytes. Throws Error when it is empty.
Corpus text_corpus(std::string text, const std::string& name);

/// Adds the documents of `more` behind those of `corpus`; an empty one becomes `more`. Throws Error when their ids are
/// not of one tokenizer.
void append(Corpus& corpus, Corpus more);

/// Reads a headerless file of little-endian uint16 (`token_bytes` 2, as nanoGPT writes) or uint32 (4) ids as one
/// document. The vocabulary is `vocabulary_size`, or the largest id + 1 when that is 0. Throws UsageError for another
/// width; Error when the file is empty, its size is not a multiple of the width, or an id lies outside the vocabulary.
Corpus load_tokens(const std::string& path, std::size_t token_bytes, std::uint32_t vocabulary_size = 0);

struct Split {
  Corpus train;
  Corpus valid;
};

/// Sets about `fraction` (in (0, 1), else UsageError) of the tokens apart for validation, by whole documents chosen by
/// `seed`; both sides keep the documents' order. Only documents of at least `minimum_tokens` tokens are chosen, and
/// never all. A corpus of one document, or one where no document qualifies, keeps the last `fraction` of its longest
/// document instead; in a corpus of bytes the cut never lies inside a code point. Throws Error when that leaves one
/// side empty.
Split split(const Corpus& corpus, double fraction, std::uint64_t seed, std::size_t minimum_tokens = 1);

}  // namespace torsor
