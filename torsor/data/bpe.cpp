#include "torsor/data/bpe.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/hash.h"
#include "torsor/base/utf8.h"
#include "torsor/data/bpe_alphabet.h"
#include "torsor/data/bpe_split.h"

namespace torsor {
namespace {

constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
constexpr TokenId kNoToken = std::numeric_limits<TokenId>::max();
constexpr std::size_t kEnd = std::numeric_limits<std::size_t>::max();

std::uint64_t pair_key(TokenId left, TokenId right) { return std::uint64_t{left} << 32 | right; }

/// A token of a piece, in a list that shrinks.
struct Node {
  TokenId id;  // kNoToken once it is part of another
  std::size_t before, after;
};

struct Candidate {
  std::uint32_t rank;
  std::size_t at;  // of the left node
};

/// For a heap with the lowest rank on top, and of equal ones the leftmost.
bool comes_later(const Candidate& a, const Candidate& b) { return a.rank != b.rank ? a.rank > b.rank : a.at > b.at; }

/// Pieces longer than this hardly come back.
constexpr std::size_t kLongestKnown = 64;
constexpr std::size_t kMostKnown = std::size_t{1} << 18;

/// Numbers and texts for a hash, so that no two lists look alike.
class Record {
 public:
  Record& number(std::uint64_t value) {
    char bytes[8];
    for (int b = 0; b < 8; ++b) bytes[b] = static_cast<char>(static_cast<unsigned char>(value >> (8 * b)));
    hash_.update(bytes, sizeof bytes);
    return *this;
  }
  Record& text(std::string_view value) {
    number(value.size());
    hash_.update(value);
    return *this;
  }
  std::string hex() const { return hash_.hex(); }

 private:
  Sha256 hash_;
};

}  // namespace

/// What one call of encode() works with.
struct BpeTokenizer::Encoding {
  std::vector<TokenId> ids;
  /// Pieces that have been merged: where their ids stand in `ids`, and how many.
  std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> known;
  std::deque<std::string> prefixed;  // texts that got a space, which `known` looks into
  std::vector<Node> nodes;
  std::vector<Candidate> heap;
};

BpeTokenizer::BpeTokenizer(BpeModel model) : model_(std::move(model)) {
  std::sort(model_.added.begin(), model_.added.end(),
            [](const BpeAddedToken& a, const BpeAddedToken& b) { return a.id < b.id; });
  if (model_.vocabulary.size() >= kNoToken) throw Error("BPE: the vocabulary is too large");
  check_added();
  check_vocabulary();
  check_merges();
  const std::vector<bool> inner = inner_ids();
  std::vector<BpeAddedToken> raw, normalized;
  for (const BpeAddedToken& token : model_.added) {
    const std::string letters = byte_letters(token.content);
    if (inner[token.id] && letters != token.content)
      throw Error(str("BPE: the added token ", quote(token.content, 40), " is also a part of the model, where it is ",
                      quote(letters, 40)));
    (token.normalized ? normalized : raw).push_back(token);
  }
  raw_ = AddedTokenFinder(std::move(raw));
  normalized_ = AddedTokenFinder(std::move(normalized));
  name_ = "bpe-" + identity().substr(0, 16);
}

void BpeTokenizer::check_added() {
  std::unordered_map<std::string_view, TokenId> seen;
  for (std::size_t i = 0; i < model_.added.size(); ++i) {
    const BpeAddedToken& token = model_.added[i];
    const std::string shown = quote(token.content, 40);
    if (token.content.empty()) throw Error(str("BPE: the added token of id ", token.id, " is empty"));
    if (find_invalid_utf8(token.content) != std::string_view::npos)
      throw Error(str("BPE: the added token ", shown, " is not UTF-8"));
    if (token.id >= model_.vocabulary.size() || model_.vocabulary[token.id] != token.content)
      throw Error(str("BPE: the added token ", shown, " does not stand in the vocabulary at its id ", token.id));
    if (i > 0 && model_.added[i - 1].id == token.id)
      throw Error(str("BPE: the added tokens ", quote(model_.added[i - 1].content, 40), " and ", shown,
                      " have the same id ", token.id));
    if (!seen.emplace(token.content, token.id).second)
      throw Error(str("BPE: the added token ", shown, " stands twice"));
  }
}

void BpeTokenizer::check_vocabulary() {
  std::vector<bool> is_added(model_.vocabulary.size(), false);
  for (const BpeAddedToken& token : model_.added) is_added[token.id] = true;
  byte_ids_.fill(kNoToken);
  const auto take_byte = [&](TokenId id) {
    const std::string& bytes = model_.vocabulary[id];
    if (bytes.size() != 1) return;
    TokenId& place = byte_ids_[static_cast<unsigned char>(bytes.front())];
    if (place == kNoToken) place = id;
  };
  std::unordered_map<std::string_view, TokenId> seen;
  for (TokenId id = 0; id < model_.vocabulary.size(); ++id) {
    if (is_added[id]) continue;
    const std::string& bytes = model_.vocabulary[id];
    if (bytes.empty()) throw Error(str("BPE: the token of id ", id, " is empty"));
    const auto [place, is_new] = seen.emplace(bytes, id);
    if (!is_new) throw Error(str("BPE: ids ", place->second, " and ", id, " have the same bytes ", quote(bytes, 40)));
    take_byte(id);
  }
  // A byte may be an added token too, under the same name.
  for (const BpeAddedToken& token : model_.added) take_byte(token.id);
  for (unsigned byte = 0; byte < 256; ++byte)
    if (byte_ids_[byte] == kNoToken)
      throw Error(str("BPE: expected a token for every byte, found none for byte ", byte, ", written ",
                      quote(byte_letters(std::string(1, static_cast<char>(byte))))));
  for (const BpeAddedToken& token : model_.added) {
    const auto bytes = letters_to_bytes(token.content);
    if (!bytes) continue;
    if (const auto found = seen.find(*bytes); found != seen.end())
      throw Error(str("BPE: the added token ", quote(token.content, 40), " has the id ", token.id,
                      ", and the token written so has ", found->second));
  }
}

void BpeTokenizer::check_merges() {
  ranks_.reserve(model_.merges.size());
  const auto size = static_cast<TokenId>(model_.vocabulary.size());
  if (model_.merges.size() >= kNoRank) throw Error("BPE: too many merges");
  for (std::uint32_t rank = 0; rank < model_.merges.size(); ++rank) {
    const BpeMerge& merge = model_.merges[rank];
    if (merge.left >= size || merge.right >= size || merge.result >= size)
      throw Error(str("BPE: merge ", rank, " has an id outside the vocabulary of ", size, " tokens"));
    if (model_.vocabulary[merge.result] != model_.vocabulary[merge.left] + model_.vocabulary[merge.right])
      throw Error(str("BPE: merge ", rank, " of ", quote(model_.vocabulary[merge.left], 40), " and ",
                      quote(model_.vocabulary[merge.right], 40), " cannot make ",
                      quote(model_.vocabulary[merge.result], 40)));
    const auto [place, is_new] = ranks_.emplace(pair_key(merge.left, merge.right), rank);
    if (!is_new) throw Error(str("BPE: merges ", place->second, " and ", rank, " are of the same two tokens"));
  }
}

std::vector<bool> BpeTokenizer::inner_ids() const {
  std::vector<bool> inner(model_.vocabulary.size(), true);
  for (const BpeAddedToken& token : model_.added) inner[token.id] = false;
  for (const TokenId id : byte_ids_) inner[id] = true;
  for (const BpeMerge& merge : model_.merges)
    for (const TokenId id : {merge.left, merge.right, merge.result}) inner[id] = true;
  return inner;
}

std::string BpeTokenizer::identity() const {
  Record record;
  record.number(model_.vocabulary.size());
  for (const std::string& bytes : model_.vocabulary) record.text(bytes);
  record.number(model_.merges.size());
  for (const BpeMerge& merge : model_.merges) record.number(merge.left).number(merge.right).number(merge.result);
  record.number(model_.added.size());
  for (const BpeAddedToken& token : model_.added)
    record.number(token.id).number(token.lstrip).number(token.rstrip).number(token.normalized);
  record.number(model_.add_prefix_space);
  return record.hex();
}

std::uint32_t BpeTokenizer::rank(TokenId left, TokenId right) const {
  const auto found = ranks_.find(pair_key(left, right));
  return found == ranks_.end() ? kNoRank : found->second;
}

std::vector<TokenId> BpeTokenizer::encode(std::string_view text) const {
  Encoding encoding;
  // Calls `plain` for the texts between the tokens of `finder`.
  const auto apart = [&encoding](const AddedTokenFinder& finder, std::string_view whole, const auto& plain) {
    std::size_t from = 0;
    while (const auto match = finder.find(whole, from)) {
      if (match->begin > from) plain(whole.substr(from, match->begin - from));
      encoding.ids.push_back(match->id);
      from = match->end;
    }
    if (from < whole.size()) plain(whole.substr(from));
  };
  apart(raw_, text, [&](std::string_view outer) {
    apart(normalized_, outer, [&](std::string_view plain) { encode_text(plain, encoding); });
  });
  return std::move(encoding.ids);
}

void BpeTokenizer::encode_text(std::string_view text, Encoding& encoding) const {
  if (model_.add_prefix_space && text.front() != ' ') text = encoding.prefixed.emplace_back(" " + std::string(text));
  encode_pieces(text, encoding);
}

void BpeTokenizer::encode_pieces(std::string_view text, Encoding& encoding) const {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = piece_end(text, begin);
    const std::string_view piece = text.substr(begin, end - begin);
    begin = end;
    if (piece.size() == 1) {
      encoding.ids.push_back(byte_ids_[static_cast<unsigned char>(piece.front())]);
      continue;
    }
    if (piece.size() > kLongestKnown) {
      merge_piece(piece, encoding);
      continue;
    }
    if (const auto found = encoding.known.find(piece); found != encoding.known.end()) {
      const auto [at, count] = found->second;
      for (std::size_t i = at; i < at + count; ++i) encoding.ids.push_back(encoding.ids[i]);
      continue;
    }
    const std::size_t at = encoding.ids.size();
    merge_piece(piece, encoding);
    if (encoding.known.size() < kMostKnown) encoding.known.emplace(piece, std::pair(at, encoding.ids.size() - at));
  }
}

void BpeTokenizer::merge_piece(std::string_view piece, Encoding& encoding) const {
  std::vector<Node>& nodes = encoding.nodes;
  std::vector<Candidate>& heap = encoding.heap;
  nodes.clear();
  heap.clear();
  for (std::size_t i = 0; i < piece.size(); ++i)
    nodes.push_back(
        {byte_ids_[static_cast<unsigned char>(piece[i])], i == 0 ? kEnd : i - 1, i + 1 == piece.size() ? kEnd : i + 1});
  for (std::size_t i = 0; i + 1 < nodes.size(); ++i)
    if (const std::uint32_t found = rank(nodes[i].id, nodes[i + 1].id); found != kNoRank) heap.push_back({found, i});
  std::make_heap(heap.begin(), heap.end(), comes_later);
  const auto consider = [&](std::size_t at) {
    const std::uint32_t found = rank(nodes[at].id, nodes[nodes[at].after].id);
    if (found == kNoRank) return;
    heap.push_back({found, at});
    std::push_heap(heap.begin(), heap.end(), comes_later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    const Candidate candidate = heap.back();
    heap.pop_back();
    const BpeMerge& merge = model_.merges[candidate.rank];
    Node& node = nodes[candidate.at];
    // A neighbour may have been merged since.
    if (node.id != merge.left || node.after == kEnd || nodes[node.after].id != merge.right) continue;
    Node& right = nodes[node.after];
    node.id = merge.result;
    node.after = right.after;
    right.id = kNoToken;
    if (node.after != kEnd) {
      nodes[node.after].before = candidate.at;
      consider(candidate.at);
    }
    if (node.before != kEnd) consider(node.before);
  }
  for (std::size_t at = 0; at != kEnd; at = nodes[at].after) encoding.ids.push_back(nodes[at].id);
}

std::string BpeTokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= model_.vocabulary.size())
      throw Error(str("tokenizer ", name_, ": expected ids below ", model_.vocabulary.size(), ", got ", ids[i],
                      " at index ", i));
    text += model_.vocabulary[ids[i]];
  }
  return text;
}

}  // namespace torsor
