// The native incremental parser as a reader of words.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "torsor/syntax/native_incremental.h"
#include "torsor/syntax/parser.h"

namespace torsor::syntax {

/// A reader with the network. Sentences end where the network says so, and after `most_words` words.
class NativeWordParser final : public WordParser {
 public:
  explicit NativeWordParser(std::shared_ptr<const IncrementalNetwork> network, std::size_t most_words = 200);

  void reset() override;
  WordStep read(const std::string& form) override;
  void end_sentence() override;
  std::size_t words() const override { return history_.size(); }
  /// Reads the present sentence again up to there: the same steps, to the bit.
  void roll_back(std::size_t words) override;
  std::unique_ptr<WordParser> fork() const override { return std::make_unique<NativeWordParser>(*this); }

 private:
  std::shared_ptr<const IncrementalNetwork> network_;
  std::size_t most_words_;
  IncrementalNetwork::State state_;
  std::vector<std::string> history_;
  std::vector<std::size_t> starts_;  // words read before each sentence
};

}  // namespace torsor::syntax
