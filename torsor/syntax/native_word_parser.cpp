#include "torsor/syntax/native_word_parser.h"

#include <utility>

#include "torsor/base/error.h"

namespace torsor::syntax {

NativeWordParser::NativeWordParser(std::shared_ptr<const IncrementalNetwork> network, std::size_t most_words)
    : network_(std::move(network)), most_words_(most_words) {
  reset();
}

void NativeWordParser::reset() {
  state_ = network_->start();
  history_.clear();
  starts_ = {0};
}

WordStep NativeWordParser::read(const std::string& form) {
  WordStep step = network_->read(state_, form);
  history_.push_back(form);
  if (history_.size() - starts_.back() >= most_words_) step.sentence_end = true;
  if (step.sentence_end) end_sentence();
  return step;
}

void NativeWordParser::end_sentence() {
  if (history_.size() == starts_.back()) return;
  state_ = network_->start();
  starts_.push_back(history_.size());
}

void NativeWordParser::roll_back(std::size_t words) {
  if (words > history_.size()) throw Error(str("roll_back: expected at most ", history_.size(), " words, got ", words));
  while (starts_.size() > 1 && starts_.back() > words) starts_.pop_back();
  const std::vector<std::string> again(history_.begin() + static_cast<std::ptrdiff_t>(starts_.back()),
                                       history_.begin() + static_cast<std::ptrdiff_t>(words));
  history_.resize(starts_.back());
  state_ = network_->start();
  for (const std::string& form : again) read(form);
}

}  // namespace torsor::syntax
