#include "torsor/data/llama2_tokenizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <queue>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/hash.h"
#include "torsor/data/tokenizer_json.h"

namespace torsor {
namespace {

constexpr std::size_t kFewest = Llama2Tokenizer::kFirstByte + 256;

template <class Number>
Number number_at(std::string_view bytes, std::size_t at) {
  static_assert(sizeof(Number) == 4);
  std::uint32_t word = 0;
  for (std::size_t b = 0; b < 4; ++b)
    word |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + b])) << (8 * b);
  Number value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

/// Bytes of the code point that begins at `at`: continuation bytes belong to what is before them, three at most.
std::size_t code_point_size(std::string_view text, std::size_t at) {
  std::size_t size = 1;
  while (size < 4 && at + size < text.size() && (static_cast<unsigned char>(text[at + size]) & 0xC0U) == 0x80U) ++size;
  return size;
}

}  // namespace

Llama2Tokenizer::Llama2Tokenizer(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {
  if (pieces_.size() < kFewest)
    throw Error(str("llama2.c tokenizer: expected at least ", kFewest, " pieces, got ", pieces_.size()));
  Sha256 hash;
  for (std::size_t id = 0; id < pieces_.size(); ++id) {
    const Piece& piece = pieces_[id];
    if (!std::isfinite(piece.score))
      throw Error(str("llama2.c tokenizer: the score of piece ", id, " is not finite: ", piece.score));
    hash.update(str(piece.text.size(), ":")).update(piece.text).update(str(piece.score, "\n"));
    // Of equal pieces the first is meant.
    ids_.emplace(piece.text, static_cast<TokenId>(id));
  }
  name_ = "llama2c-" + hash.hex().substr(0, 16);
}

std::shared_ptr<const Llama2Tokenizer> Llama2Tokenizer::load(const std::string& path) {
  return parse(read_file(path), path);
}

std::shared_ptr<const Llama2Tokenizer> Llama2Tokenizer::parse(std::string_view bytes, const std::string& source) {
  if (bytes.size() < 4) throw Error(str(source, ": expected a tokenizer of llama2.c, got ", bytes.size(), " bytes"));
  const auto longest = number_at<std::int32_t>(bytes, 0);
  std::vector<Piece> pieces;
  for (std::size_t at = 4; at < bytes.size();) {
    if (bytes.size() - at < 8) throw Error(str(source, ": piece ", pieces.size(), " is cut off"));
    Piece piece;
    piece.score = number_at<float>(bytes, at);
    const auto size = number_at<std::int32_t>(bytes, at + 4);
    at += 8;
    if (size < 0 || size > longest || static_cast<std::size_t>(size) > bytes.size() - at)
      throw Error(str(source, ": piece ", pieces.size(), " would have ", size, " bytes; the longest has ", longest,
                      ", and ", bytes.size() - at, " are left"));
    piece.text = bytes.substr(at, static_cast<std::size_t>(size));
    at += static_cast<std::size_t>(size);
    pieces.push_back(std::move(piece));
  }
  return tokenizer_of<Llama2Tokenizer>(source, std::move(pieces));
}

std::string Llama2Tokenizer::bytes() const {
  std::string file;
  const auto put = [&file](std::uint32_t word) {
    for (unsigned b = 0; b < 4; ++b) file += static_cast<char>(static_cast<unsigned char>(word >> (8 * b)));
  };
  std::size_t longest = 0;
  for (const Piece& piece : pieces_) longest = std::max(longest, piece.text.size());
  put(static_cast<std::uint32_t>(longest));
  for (const Piece& piece : pieces_) {
    put(std::bit_cast<std::uint32_t>(piece.score));
    put(static_cast<std::uint32_t>(piece.text.size()));
    file += piece.text;
  }
  return file;
}

std::vector<TokenId> Llama2Tokenizer::encode(std::string_view text) const {
  std::vector<TokenId> ids = {kBegin};
  if (text.empty()) return ids;
  std::vector<TokenId> tokens;
  if (const auto space = ids_.find(" "); space != ids_.end()) tokens.push_back(space->second);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = code_point_size(text, at);
    if (const auto found = ids_.find(text.substr(at, size)); found != ids_.end())
      tokens.push_back(found->second);
    else
      for (std::size_t b = 0; b < size; ++b) tokens.push_back(kFirstByte + static_cast<unsigned char>(text[at + b]));
    at += size;
  }
  // A list of what is left, and the pairs that could be joined, best score and then leftmost first. A pair that was
  // joined or changed since is found out when its turn comes.
  const std::size_t count = tokens.size();
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> next(count), before(count);
  for (std::size_t i = 0; i < count; ++i) next[i] = i + 1 < count ? i + 1 : kNone, before[i] = i > 0 ? i - 1 : kNone;
  std::vector<bool> gone(count, false);
  struct Pair {
    float score;
    std::size_t at, with;
    TokenId left, right, joined;
    bool operator<(const Pair& other) const {  // the greatest comes first out of the queue
      return score != other.score ? score < other.score : at > other.at;
    }
  };
  std::priority_queue<Pair> pairs;
  const auto offer = [&](std::size_t at) {
    if (at == kNone || next[at] == kNone) return;
    const TokenId left = tokens[at], right = tokens[next[at]];
    const std::string text_of_both = pieces_[left].text + pieces_[right].text;
    const auto joined = ids_.find(text_of_both);
    if (joined != ids_.end()) pairs.push({pieces_[joined->second].score, at, next[at], left, right, joined->second});
  };
  for (std::size_t i = 0; i < count; ++i) offer(i);
  while (!pairs.empty()) {
    const Pair best = pairs.top();
    pairs.pop();
    if (gone[best.at] || gone[best.with] || next[best.at] != best.with || tokens[best.at] != best.left ||
        tokens[best.with] != best.right)
      continue;
    tokens[best.at] = best.joined;
    gone[best.with] = true;
    next[best.at] = next[best.with];
    if (next[best.with] != kNone) before[next[best.with]] = best.at;
    offer(before[best.at]);
    offer(best.at);
  }
  for (std::size_t i = 0; i < count; ++i)
    if (!gone[i]) ids.push_back(tokens[i]);
  return ids;
}

std::string Llama2Tokenizer::bytes_of(TokenId id) const {
  if (id >= pieces_.size()) throw Error(str("llama2.c tokenizer: expected ids below ", pieces_.size(), ", got ", id));
  if (id == kBegin || id == kEnd) return {};
  if (id >= kFirstByte && id < kFewest) return std::string(1, static_cast<char>(id - kFirstByte));
  return pieces_[id].text;
}

std::string Llama2Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  bool begins = false;
  for (const TokenId id : ids) {
    const std::string bytes = bytes_of(id);
    text += begins && bytes.starts_with(' ') ? bytes.substr(1) : bytes;
    begins = id == kBegin;
  }
  return text;
}

}  // namespace torsor
