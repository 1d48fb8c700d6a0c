#include "torsor/data/bpe_train.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/data/bpe_alphabet.h"
#include "torsor/data/bpe_split.h"

namespace torsor {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

/// How often a pair occurs, and where it may stand: places whose tokens have been merged since are passed over.
struct Pair {
  std::uint64_t count = 0;
  std::vector<std::uint32_t> places;
};

struct Waiting {
  std::uint64_t count;  // as it was; the true one is never larger without a newer entry
  std::uint64_t key;
};
struct ComesLater {
  bool operator()(const Waiting& a, const Waiting& b) const {
    return a.count != b.count ? a.count < b.count : a.key > b.key;
  }
};

std::uint64_t key_of(TokenId left, TokenId right) { return std::uint64_t{left} << 32 | right; }

/// All different pieces behind each other as lists of tokens.
class Trainer {
 public:
  Trainer(const std::vector<std::string_view>& texts, const BpeTraining& training);

  BpeModel run(std::uint32_t vocabulary_size);

 private:
  struct Node {
    TokenId id;  // kNone once it is part of another
    std::uint32_t before, after, piece;
  };

  void check_stop() const {
    if (training_.stop != nullptr && *training_.stop) throw Interrupted("training the tokenizer was stopped");
  }
  void gather(const std::vector<std::string_view>& texts);
  void add_pair(std::uint32_t place);
  void remove_pair(std::uint32_t left, std::uint32_t right);
  /// The most frequent pair, or nothing when none occurs twice.
  std::optional<std::uint64_t> best();
  void merge(const BpeMerge& merge);

  const BpeTraining& training_;
  std::vector<Node> nodes_;
  std::vector<std::uint64_t> counts_;  // by piece
  std::unordered_map<std::uint64_t, Pair> pairs_;
  std::priority_queue<Waiting, std::vector<Waiting>, ComesLater> waiting_;
  std::vector<std::uint64_t> grown_;  // pairs that a merge has made
};

Trainer::Trainer(const std::vector<std::string_view>& texts, const BpeTraining& training) : training_(training) {
  gather(texts);
  for (std::uint32_t place = 0; place < nodes_.size(); ++place)
    if (nodes_[place].after != kNone) add_pair(place);
}

void Trainer::gather(const std::vector<std::string_view>& texts) {
  std::unordered_map<std::string_view, std::uint32_t> pieces;
  std::vector<std::string_view> order;
  std::size_t total = 0;
  for (const std::string_view text : texts) {
    check_stop();
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = piece_end(text, begin);
      const std::string_view piece = text.substr(begin, end - begin);
      begin = end;
      const auto [found, is_new] = pieces.emplace(piece, static_cast<std::uint32_t>(order.size()));
      if (is_new) {
        order.push_back(piece);
        counts_.push_back(0);
        total += piece.size();
      }
      ++counts_[found->second];
    }
  }
  if (total >= kNone)
    throw Error(str("tokenizer training: the different pieces of the texts are too many, ", total, " bytes"));
  std::array<TokenId, 256> ids{};
  for (TokenId id = 0; id < 256; ++id) ids[byte_at(id)] = id;
  nodes_.reserve(total);
  for (std::uint32_t piece = 0; piece < order.size(); ++piece) {
    for (std::size_t i = 0; i < order[piece].size(); ++i) {
      const auto place = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back({ids[static_cast<unsigned char>(order[piece][i])], i == 0 ? kNone : place - 1,
                        i + 1 == order[piece].size() ? kNone : place + 1, piece});
    }
  }
}

void Trainer::add_pair(std::uint32_t place) {
  const Node& node = nodes_[place];
  const std::uint64_t key = key_of(node.id, nodes_[node.after].id);
  Pair& pair = pairs_[key];
  pair.count += counts_[node.piece];
  pair.places.push_back(place);
  grown_.push_back(key);
}

void Trainer::remove_pair(std::uint32_t left, std::uint32_t right) {
  const auto found = pairs_.find(key_of(nodes_[left].id, nodes_[right].id));
  if (found != pairs_.end()) found->second.count -= counts_[nodes_[left].piece];
}

std::optional<std::uint64_t> Trainer::best() {
  std::sort(grown_.begin(), grown_.end());
  grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
  for (const std::uint64_t key : grown_)
    if (const std::uint64_t count = pairs_.at(key).count; count > 1) waiting_.push({count, key});
  grown_.clear();
  while (!waiting_.empty()) {
    const Waiting top = waiting_.top();
    waiting_.pop();
    const auto found = pairs_.find(top.key);
    if (found == pairs_.end()) continue;
    if (found->second.count == top.count) return top.key;
    if (found->second.count > 1) waiting_.push({found->second.count, top.key});
  }
  return std::nullopt;
}

void Trainer::merge(const BpeMerge& merge) {
  // The pair's own count needs no care any more: it is gone everywhere.
  std::vector<std::uint32_t> places = std::move(pairs_.at(key_of(merge.left, merge.right)).places);
  pairs_.erase(key_of(merge.left, merge.right));
  std::sort(places.begin(), places.end());
  for (const std::uint32_t place : places) {
    Node& node = nodes_[place];
    if (node.id != merge.left || node.after == kNone || nodes_[node.after].id != merge.right) continue;
    Node& right = nodes_[node.after];
    if (node.before != kNone) remove_pair(node.before, place);
    if (right.after != kNone) remove_pair(node.after, right.after);
    node.id = merge.result;
    node.after = right.after;
    right.id = kNone;
    if (node.after != kNone) {
      nodes_[node.after].before = place;
      add_pair(place);
    }
    if (node.before != kNone) add_pair(node.before);
  }
}

BpeModel Trainer::run(std::uint32_t vocabulary_size) {
  BpeModel model;
  std::unordered_map<std::string, TokenId> known;
  for (TokenId id = 0; id < 256; ++id) {
    model.vocabulary.emplace_back(1, static_cast<char>(byte_at(id)));
    known.emplace(model.vocabulary.back(), id);
  }
  std::optional<Progress> progress;
  if (training_.progress != nullptr) {
    Progress::Options options = *training_.progress;
    options.total = vocabulary_size;
    progress.emplace(std::move(options));
  }
  while (model.vocabulary.size() < vocabulary_size) {
    check_stop();
    const std::optional<std::uint64_t> key = best();
    if (!key) break;
    const auto left = static_cast<TokenId>(*key >> 32), right = static_cast<TokenId>(*key & 0xFFFFFFFF);
    const std::string bytes = model.vocabulary[left] + model.vocabulary[right];
    const auto [place, is_new] = known.emplace(bytes, static_cast<TokenId>(model.vocabulary.size()));
    if (is_new) model.vocabulary.push_back(bytes);
    model.merges.push_back({left, right, place->second});
    merge(model.merges.back());
    if (progress) progress->update(static_cast<std::int64_t>(model.vocabulary.size()));
  }
  if (progress) progress->finish();
  return model;
}

}  // namespace

std::shared_ptr<const BpeTokenizer> train_bpe(const std::vector<std::string_view>& texts, std::uint32_t vocabulary_size,
                                              const BpeTraining& training) {
  if (vocabulary_size < 256)
    throw UsageError(
        str("tokenizer training: expected a vocabulary of at least 256, one a byte, got ", vocabulary_size));
  return std::make_shared<const BpeTokenizer>(Trainer(texts, training).run(vocabulary_size));
}

}  // namespace torsor
