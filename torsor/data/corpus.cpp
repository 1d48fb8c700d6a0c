#include "torsor/data/corpus.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/hash.h"
#include "torsor/base/random.h"

namespace torsor {

namespace fs = std::filesystem;

namespace {

TokenId read_id(const char* at, std::size_t width) {
  TokenId id = 0;
  for (std::size_t b = 0; b < width; ++b) id |= static_cast<TokenId>(static_cast<unsigned char>(at[b])) << (8 * b);
  return id;
}

std::size_t narrowest_width(std::uint32_t vocabulary_size) {
  if (vocabulary_size <= 256) return 1;
  return vocabulary_size <= 65536 ? 2 : 4;
}

// What identifies a file however it was reached. Pipes have no canonical path; their own name must do.
std::string identity(const fs::path& path) {
  std::error_code error;
  const fs::path canonical = fs::canonical(path, error);
  return error ? fs::absolute(path).string() : canonical.string();
}

Corpus empty_corpus(const Corpus& like) {
  Corpus corpus;
  corpus.tokenizer = like.tokenizer;
  corpus.vocabulary_size = like.vocabulary_size;
  corpus.reader = like.reader;
  return corpus;
}

Corpus corpus_of(std::shared_ptr<const Tokenizer> reader) {
  Corpus corpus;
  corpus.tokenizer = reader->name();
  corpus.vocabulary_size = reader->vocabulary_size();
  corpus.reader = std::move(reader);
  return corpus;
}

std::string text_of(const TokenArray& tokens, const Tokenizer& reader) {
  std::vector<TokenId> ids(tokens.size());
  for (std::size_t t = 0; t < ids.size(); ++t) ids[t] = tokens[t];
  return reader.decode(ids);
}

bool is_continuation(TokenId byte) { return (byte & 0xC0U) == 0x80U; }

// The first token of the validation part. In bytes the cut moves to the start of the code point it lies in (at most
// three bytes back, so that bytes which are not UTF-8 cannot drag it far), or past it when that start is the text's
// own.
std::size_t tail_begin(const Document& document, double fraction, bool bytes) {
  const std::size_t n = document.tokens.size();
  const auto tail = static_cast<std::size_t>(std::llround(static_cast<double>(n) * fraction));
  std::size_t cut = n - std::clamp<std::size_t>(tail, 1, n);
  if (cut == 0 && n > 1) cut = 1;
  if (bytes && cut > 0) {
    std::size_t back = 0;
    while (back < 3 && back < cut && is_continuation(document.tokens[cut - back])) ++back;
    const TokenId lead = document.tokens[cut - back];
    const std::size_t code_length = lead >= 0xF0U ? 4 : lead >= 0xE0U ? 3 : lead >= 0xC0U ? 2 : 1;
    if (code_length > back) {
      if (back < cut) {
        cut -= back;
      } else {
        cut = code_length;
      }
    }
  }
  if (cut == 0 || cut >= n) {
    throw Error(
        str("split: expected a text long enough to keep a part for validation, got ", n, " tokens in ", document.name));
  }
  return cut;
}

Document cut_document(const Document& document, const Tokenizer* reader, std::size_t begin, std::size_t count,
                      const char* part) {
  Document result;
  result.name = document.name + part;
  result.tokens = document.tokens.slice(begin, count);
  if (reader != nullptr && begin == 0) result.text_bytes = text_of(result.tokens, *reader).size();
  // A part that does not begin the text has all bytes of its first token.
  for (std::size_t t = 0; reader != nullptr && begin > 0 && t < count; ++t)
    result.text_bytes += reader->text_of(result.tokens[t]).size();
  return result;
}

}  // namespace

TokenArray::TokenArray(std::string bytes, std::size_t width) : width_(width) {
  if (width != 1 && width != 2 && width != 4) throw Error(str("tokens: expected 1, 2 or 4 bytes an id, got ", width));
  if (bytes.size() % width != 0) {
    throw Error(str("tokens: expected a multiple of ", width, " bytes, got ", bytes.size()));
  }
  count_ = bytes.size() / width;
  storage_ = std::make_shared<const std::string>(std::move(bytes));
}

TokenArray TokenArray::pack(std::span<const TokenId> ids, std::uint32_t vocabulary_size) {
  const std::size_t width = narrowest_width(vocabulary_size);
  std::string bytes(ids.size() * width, '\0');
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= vocabulary_size) {
      throw Error(str("tokens: expected ids below ", vocabulary_size, ", got ", ids[i], " at index ", i));
    }
    for (std::size_t b = 0; b < width; ++b) bytes[i * width + b] = static_cast<char>((ids[i] >> (8 * b)) & 0xFFU);
  }
  return TokenArray(std::move(bytes), width);
}

TokenId TokenArray::operator[](std::size_t index) const {
  return read_id(storage_->data() + offset_ + index * width_, width_);
}

void TokenArray::copy(std::size_t begin, std::size_t count, std::int64_t* out) const {
  if (begin > count_ || count > count_ - begin) {
    throw Error(str("tokens: expected a range inside ", count_, " ids, got ", begin, " and ", count, " more"));
  }
  if (count == 0) return;
  const char* at = storage_->data() + offset_ + begin * width_;
  for (std::size_t i = 0; i < count; ++i) out[i] = read_id(at + i * width_, width_);
}

TokenArray TokenArray::slice(std::size_t begin, std::size_t count) const {
  if (begin > count_ || count > count_ - begin) {
    throw Error(str("tokens: expected a range inside ", count_, " ids, got ", begin, " and ", count, " more"));
  }
  TokenArray result = *this;
  result.offset_ += begin * width_;
  result.count_ = count;
  return result;
}

std::string_view TokenArray::bytes() const {
  if (storage_ == nullptr) return {};
  return std::string_view(*storage_).substr(offset_, count_ * width_);
}

std::string Corpus::text(std::size_t document) const {
  const TokenArray& tokens = documents.at(document).tokens;
  if (of_bytes()) return std::string(tokens.bytes());
  if (!reader) throw Error(str("text: the ids of ", documents.at(document).name, " are of no known tokenizer"));
  return text_of(tokens, *reader);
}

std::size_t Corpus::token_count() const {
  std::size_t total = 0;
  for (const Document& document : documents) total += document.tokens.size();
  return total;
}

std::size_t Corpus::longest() const {
  std::size_t longest = 0;
  for (const Document& document : documents) longest = std::max(longest, document.tokens.size());
  return longest;
}

std::size_t Corpus::text_bytes() const {
  std::size_t total = 0;
  for (const Document& document : documents) {
    if (document.text_bytes == 0) return 0;
    total += document.text_bytes;
  }
  return total;
}

std::string Corpus::sha256() const {
  Sha256 digest;
  for (const Document& document : documents) digest.update(sha256_hex(document.tokens.bytes()) + "\n");
  return digest.hex();
}

std::vector<std::string> find_texts(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  std::set<std::string> known;
  for (const std::string& path : paths) {
    const std::vector<std::string> found = list_files(path, {".txt", ".md", ".TXT", ".MD"});
    if (found.empty()) throw Error(str("text: expected *.txt or *.md files in the folder '", path, "', found none"));
    for (const std::string& file : found) {
      if (known.insert(identity(file)).second) files.push_back(file);
    }
  }
  return files;
}

Corpus load_text(const std::vector<std::string>& paths) {
  if (paths.empty()) throw UsageError("text: expected at least one path");
  Corpus corpus = corpus_of(std::make_shared<ByteTokenizer>());
  for (const std::string& path : find_texts(paths)) {
    std::string text = read_file(path);
    if (text.empty()) continue;
    // A text already is its own byte ids.
    const std::size_t size = text.size();
    corpus.documents.push_back({path, TokenArray(std::move(text), 1), size});
  }
  if (corpus.documents.empty()) {
    throw Error(str("text: expected text, found only empty files in ", paths.front(),
                    paths.size() > 1 ? str(" and ", paths.size() - 1, " more") : ""));
  }
  return corpus;
}

Corpus text_corpus(std::string text, const std::string& name) {
  if (text.empty()) throw Error(str("text: expected text, got nothing in ", name));
  Corpus corpus = corpus_of(std::make_shared<ByteTokenizer>());
  const std::size_t size = text.size();
  corpus.documents.push_back({name, TokenArray(std::move(text), 1), size});
  return corpus;
}

void append(Corpus& corpus, Corpus more) {
  if (corpus.documents.empty()) {
    corpus = std::move(more);
    return;
  }
  if (corpus.tokenizer != more.tokenizer)
    throw Error(str("text: expected ids of '", corpus.tokenizer, "' to append, got ids of '", more.tokenizer, "'"));
  corpus.vocabulary_size = std::max(corpus.vocabulary_size, more.vocabulary_size);
  std::move(more.documents.begin(), more.documents.end(), std::back_inserter(corpus.documents));
}

Corpus tokenized(const Corpus& bytes, std::shared_ptr<const Tokenizer> reader) {
  if (!bytes.of_bytes())
    throw Error(str("text: expected bytes to turn into tokens, got ids of '", bytes.tokenizer, "'"));
  Corpus corpus = corpus_of(std::move(reader));
  for (const Document& document : bytes.documents) {
    Document one;
    one.name = document.name;
    one.text_bytes = document.text_bytes;
    const std::vector<TokenId> ids = corpus.reader->encode(document.tokens.bytes());
    if (corpus.reader->decode(ids) != document.tokens.bytes())
      throw Error(str("text: expected a tokenizer that gives text back byte for byte, '", corpus.tokenizer,
                      "' does not with ", document.name));
    one.tokens = TokenArray::pack(ids, corpus.vocabulary_size);
    corpus.documents.push_back(std::move(one));
  }
  return corpus;
}

Corpus load_tokens(const std::string& path, std::size_t token_bytes, std::uint32_t vocabulary_size) {
  if (token_bytes != 2 && token_bytes != 4) {
    throw UsageError(str("tokens: expected 2 or 4 bytes a token, got ", token_bytes));
  }
  std::error_code error;
  if (fs::is_directory(path, error)) throw Error(str("tokens: expected a file of token ids, got a folder: ", path));
  std::string bytes = read_file(path);
  if (bytes.empty()) throw Error(str("tokens: expected token ids, got an empty file: ", path));
  if (bytes.size() % token_bytes != 0) {
    throw Error(str("tokens: expected a multiple of ", token_bytes, " bytes, got ", bytes.size(), " in ", path));
  }
  TokenArray tokens(std::move(bytes), token_bytes);
  TokenId largest = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const TokenId id = tokens[i];
    if (vocabulary_size != 0 && id >= vocabulary_size) {
      throw Error(str("tokens: expected ids below ", vocabulary_size, ", got ", id, " at index ", i, " in ", path));
    }
    largest = std::max(largest, id);
  }
  if (largest == std::numeric_limits<TokenId>::max()) {
    throw Error(str("tokens: expected ids below ", largest, ", got ", largest, " in ", path));
  }
  Corpus corpus;
  corpus.tokenizer = "tokens";
  corpus.vocabulary_size = vocabulary_size != 0 ? vocabulary_size : largest + 1;
  corpus.documents.push_back({path, std::move(tokens), 0});
  return corpus;
}

Split split(const Corpus& corpus, double fraction, std::uint64_t seed, std::size_t minimum_tokens) {
  if (!(fraction > 0.0 && fraction < 1.0)) {
    throw UsageError(str("split: expected a fraction between 0 and 1, got ", fraction));
  }
  const std::size_t n = corpus.documents.size();
  if (n == 0) throw Error("split: expected documents, got none");
  const auto size_of = [&](std::size_t d) { return corpus.documents[d].tokens.size(); };

  std::vector<bool> is_valid(n, false);
  std::size_t chosen = 0;
  if (n > 1) {
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    Random(seed, stream_of("data/split")).shuffle(order);
    // A document joins when it brings the total closer to the aim; one too large is passed over for later ones.
    const double aim = fraction * static_cast<double>(corpus.token_count());
    double total = 0;
    for (const std::size_t d : order) {
      const auto size = static_cast<double>(size_of(d));
      if (chosen + 1 == n || size_of(d) < minimum_tokens) continue;
      if (std::abs(total + size - aim) >= std::abs(total - aim)) continue;
      is_valid[d] = true;
      total += size;
      ++chosen;
    }
    if (chosen == 0) {  // every document is far larger than the aim: the smallest that qualifies comes nearest
      std::size_t best = n;
      for (std::size_t d = 0; d < n; ++d) {
        if (size_of(d) >= minimum_tokens && (best == n || size_of(d) < size_of(best))) best = d;
      }
      // One document of two that is most of the corpus is better cut than given away.
      if (best != n && static_cast<double>(size_of(best)) <= 0.5 * static_cast<double>(corpus.token_count())) {
        is_valid[best] = true;
        ++chosen;
      }
    }
  }

  Split result{empty_corpus(corpus), empty_corpus(corpus)};
  if (chosen > 0) {
    for (std::size_t d = 0; d < n; ++d) {
      (is_valid[d] ? result.valid : result.train).documents.push_back(corpus.documents[d]);
    }
    return result;
  }
  std::size_t longest = 0;
  for (std::size_t d = 1; d < n; ++d) {
    if (size_of(d) > size_of(longest)) longest = d;
  }
  for (std::size_t d = 0; d < n; ++d) {
    const Document& document = corpus.documents[d];
    if (d != longest) {
      result.train.documents.push_back(document);
      continue;
    }
    const std::size_t cut = tail_begin(document, fraction, corpus.of_bytes());
    result.train.documents.push_back(cut_document(document, corpus.reader.get(), 0, cut, ""));
    result.valid.documents.push_back(
        cut_document(document, corpus.reader.get(), cut, document.tokens.size() - cut, " (end)"));
  }
  return result;
}

}  // namespace torsor
