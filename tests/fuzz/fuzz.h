// A small fuzzer for tests of readers: inputs are mutated from valid seeds, each a function of a seed number and its
// index alone, so that a failure can be repeated.
//
//     fuzz::Run run("conllu", {.seeds = ..., .pieces = ...});
//     while (run.next()) {
//       bool past = ...;              // feed run.input(): an Error is an answer, anything else fails the test
//       run.count(past);              // whether it got past the reader's first check
//     }
//     run.report(0.2);
//
// TORSOR_FUZZ sets how many inputs are tried (100 000 without it), TORSOR_FUZZ_SEED another seed number. When a
// sanitizer ends the process, the input goes to standard error.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "torsor/base/random.h"
#include "torsor/base/utf8.h"

extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace torsor::fuzz {

struct Material {
  std::vector<std::string> seeds;   ///< valid inputs, none empty; short ones, for speed
  std::vector<std::string> pieces;  ///< what the format is made of and what it trips over
  /// Changes to an input: one in about half of them, up to this many in the others.
  std::uint64_t most_changes = 4;
  /// Of formats in which a line holds one key and its value: what may stand behind ": " up to the end of a line, and
  /// whole lines, which are put between two others. Every second change is then one of these, so that most inputs
  /// keep their syntax.
  std::vector<std::string> values = {}, lines = {};
};

/// Pieces that are hostile to every reader of text.
inline std::vector<std::string> hostile_pieces() {
  return {"",
          " ",
          "\t",
          "\n",
          "\r\n",
          "\\",
          "\"",
          "0",
          "-1",
          "99999999999999999999",
          "1e999",
          std::string(1, '\0'),
          "\xFF",
          "\xC3",
          "\xEF\xBB\xBF",
          "\xED\xA0\x80",
          "\xF4\x90\x80\x80",
          "\xC2\xA0",
          "\xE3\x80\x80",
          "\xE2\x80\xA8",
          "\xC3\xA9",
          std::string(40, '[')};
}

/// The input of a number: a seed with a few changes.
inline std::string mutated(const Material& material, std::uint64_t seed, std::uint64_t index) {
  Random random(seed, stream_of("fuzz") + index);
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random.below(bound)); };
  const auto any = [&](const std::vector<std::string>& list) -> const std::string& { return list[below(list.size())]; };
  std::string text = any(material.seeds);
  const std::uint64_t changes = random.below(2) == 0 ? 1 : 1 + random.below(material.most_changes);
  for (std::uint64_t change = 0; change < changes; ++change) {
    const std::size_t at = below(text.size() + 1);
    if (!material.values.empty() && random.below(2) == 0) {
      if (!material.lines.empty() && random.below(4) == 0) {
        const std::size_t end = text.find('\n', at);
        if (end != std::string::npos) text.insert(end + 1, any(material.lines));
        continue;
      }
      const std::size_t colon = text.find(": ", at) == std::string::npos ? text.find(": ") : text.find(": ", at);
      const std::size_t begin = colon == std::string::npos ? text.size() : colon + 2;
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      if (begin < end && text[end - 1] != '{') text.replace(begin, end - begin, any(material.values));
      continue;
    }
    switch (random.below(9)) {
      case 0:
        text.insert(at, any(material.pieces));
        break;
      case 1:
        if (at < text.size()) text.replace(at, 1 + below(3), any(material.pieces));
        break;
      case 2:
        text.erase(at, 1 + below(4));
        break;
      case 3:  // one byte by another
        if (at < text.size()) text[at] = static_cast<char>(random.below(256));
        break;
      case 4:  // a digit by another: numbers that point elsewhere
        for (std::size_t i = 0; i < text.size(); ++i) {
          char& c = text[(at + i) % text.size()];
          if (c < '0' || c > '9') continue;
          c = static_cast<char>('0' + random.below(10));
          break;
        }
        break;
      case 5: {  // a line twice, or gone
        const std::size_t begin = text.rfind('\n', at) == std::string::npos ? 0 : text.rfind('\n', at) + 1;
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        if (random.below(2) == 0)
          text.erase(begin, end - begin + 1);
        else
          text.insert(begin, text.substr(begin, end - begin + 1));
        break;
      }
      case 6: {  // a part of another seed
        const std::string& other = any(material.seeds);
        const std::size_t from = below(other.size());
        text.insert(at, other.substr(from, below(60)));
        break;
      }
      case 7:  // cut off
        if (random.below(4) == 0) text.resize(at);
        break;
      default: {  // joined with another seed
        const std::string other = any(material.seeds);
        text = random.below(2) == 0 ? text + other : other + text;
      }
    }
  }
  return text;
}

class Run {
 public:
  Run(std::string name, Material material) : name_(std::move(name)), material_(std::move(material)) {
    if (const char* asked = std::getenv("TORSOR_FUZZ")) total_ = std::strtoull(asked, nullptr, 10);
    if (const char* asked = std::getenv("TORSOR_FUZZ_SEED")) seed_ = std::strtoull(asked, nullptr, 10);
    current() = &input_;
    if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(&show_current);
  }
  ~Run() { current() = nullptr; }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Makes the next input; false at the end, and after a failure of the test.
  bool next() {
    if (index_ > 0) {
      slowest_ = std::max(slowest_, cpu_seconds() - started_);
      if (::testing::Test::HasFailure()) {
        std::cerr << name_ << " input " << index_ - 1 << " of seed " << seed_ << ": " << quote(input_, 4000) << "\n";
        return false;
      }
    }
    if (index_ == total_) return false;
    input_ = mutated(material_, seed_, index_++);
    started_ = cpu_seconds();
    return true;
  }
  const std::string& input() const { return input_; }
  /// For dear checks: every so many inputs.
  bool every(std::uint64_t many) const { return index_ % many == 0; }
  void count(bool past_first_check) { past_ += past_first_check ? 1 : 0; }

  /// Prints the share of inputs that got past the first check, and asserts that it is at least `share`, that not all
  /// did, and that no input took seconds.
  void report(double share) const {
    const double got = static_cast<double>(past_) / static_cast<double>(total_);
    std::cout << name_ << ": " << total_ << " inputs from " << material_.seeds.size() << " seeds, " << 100 * got
              << " % past the first check, the slowest took " << 1000 * slowest_ << " ms\n";
    EXPECT_GE(got, share);
    EXPECT_LE(got, 0.95);       // else the changes change nothing
    EXPECT_LT(slowest_, 10.0);  // under sanitizers; a hang is longer
  }

 private:
  /// Of this process, not of the clock: on a busy machine it may wait for seconds between two instructions.
  static double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

  static const std::string*& current() {
    static const std::string* input = nullptr;
    return input;
  }
  static void show_current() {
    if (current() == nullptr) return;
    const std::string shown = "the input was " + quote(*current(), 4000) + "\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, shown.data(), shown.size());
  }

  std::string name_;
  Material material_;
  std::uint64_t total_ = 100'000, seed_ = 20251130, index_ = 0, past_ = 0;
  std::string input_;
  double started_ = 0, slowest_ = 0;
};

}  // namespace torsor::fuzz
