#include "torsor/syntax/feature_stream.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace torsor::syntax {
namespace {

std::uint8_t log_bucket(int value) {
  return value <= 0 ? 0
                    : static_cast<std::uint8_t>(
                          std::min<int>(static_cast<int>(std::bit_width(static_cast<unsigned>(value))) - 1, 7));
}

}  // namespace

void show_head(const ParseWord& word, int number, ArcFeatures& arc) {
  if (word.head == kNoHead) return;
  arc.relation = static_cast<std::uint8_t>(word.relation);
  arc.direction = word.head == 0 ? 1 : word.head < number ? 2 : 3;
  arc.distance = word.head == 0 ? 0 : log_bucket(std::abs(word.head - number));
}

ShownWord sentence_start() {
  ShownWord shown;
  shown.tag = kSentenceStart;
  shown.arc.valid = 1;
  return shown;
}

ShownWord FeatureStream::complete(const ParseSentence& sentence, std::size_t index, std::size_t number,
                                  std::uint32_t begun) {
  const ParseWord& word = sentence.words[number - 1];
  const auto own = static_cast<int>(number);
  if (number == 1) waiting_ = 0;
  Word fresh{index, number, word.byte_begin, begun, number == 1 ? sentence_start() : last_, {}, 0};
  for (std::size_t i = number - 1; i >= 1; --i)
    if (sentence.words[i - 1].head == own) fresh.left.push_back(i);
  const bool known = word.head != kNoHead && word.head < own;
  if (known) fresh.head = static_cast<std::size_t>(word.head);
  const std::vector<std::size_t> left = fresh.left;
  fresh_.push_back(std::move(fresh));

  last_ = {word.tag, {}};
  last_sentence_ = static_cast<std::int32_t>(index);
  waiting_ += (known ? 0 : 1) - static_cast<int>(left.size());
  if (word.tag.tau != 0 || word.tag.nu != 0) {
    ArcFeatures& arc = last_.arc;
    arc.valid = 1;
    if (known) show_head(word, own, arc);
    arc.left_count = static_cast<std::uint8_t>(std::min<std::size_t>(left.size(), 4));
    for (std::size_t k = 0; k < std::min<std::size_t>(left.size(), 3); ++k)
      arc.left_relations[k] = static_cast<std::uint8_t>(sentence.words[left[k] - 1].relation);
    arc.waiting = log_bucket(waiting_ + 1);
  }
  open_.reset();  // it, or the first word of its token
  return last_;
}

void FeatureStream::begins(std::uint32_t begun, std::size_t sentence, bool first) {
  open_ = Open{begun, sentence, first};
}

FeatureStream::Token FeatureStream::token(ByteSpan bytes, bool blank) {
  Token result;
  const std::uint32_t t = next_++;
  if (bytes.empty()) return result;
  if (!blank) places_.push_back({bytes, t});
  std::optional<ShownWord> carried;  // of the newest word whose beginning becomes known here
  const auto begins_here = [&](std::uint32_t begun) { return begun > bytes.begin && begun <= bytes.end; };
  for (const Word& word : fresh_) {
    if (word.number == 1) tokens_.clear();
    while (!places_.empty() && places_.front().bytes.end <= word.begin) places_.pop_front();
    const bool there = !places_.empty() && places_.front().bytes.begin <= word.begin;
    tokens_.push_back(there ? std::optional(places_.front().token) : std::nullopt);
    const auto add = [&](std::size_t one, std::size_t other) {
      const auto &first = tokens_[one - 1], &second = tokens_[other - 1];
      if (first && second && *first != *second) result.links.push_back({*first, *second});
    };
    for (auto other = word.left.rbegin(); other != word.left.rend(); ++other) add(*other, word.number);
    if (word.head > 0) add(word.number, word.head);
    if (begins_here(word.begun)) carried = word.before;
  }
  fresh_.clear();
  if (blank) {
    if (!open_) places_.clear();  // no word begins ahead of it that is not complete
    repeated_.reset();
    return result;
  }
  if (open_ && begins_here(open_->begun)) carried = open_->first ? sentence_start() : last_;
  result.sentence = open_ ? static_cast<std::int32_t>(open_->sentence) : last_sentence_;
  if (options_.rule != SubwordRule::kDelayed) return result;
  if (carried) {
    result.shown = *carried;
    repeated_ = carried;
  } else if (options_.repeat && repeated_) {
    result.shown = *repeated_;
  }
  return result;
}

}  // namespace torsor::syntax
