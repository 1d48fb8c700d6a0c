// A parser for tests that keeps the promise of incremental mode: words, arcs and sentence ends are functions of the
// text read so far. What it finds is nonsense.
#pragma once

#include <string>
#include <string_view>

#include "torsor/base/random.h"
#include "torsor/syntax/parse.h"

namespace torsor::syntax::testing {

inline Parse toy_parse(std::string_view text, std::size_t max_words = kMaxWords) {
  IncrementalParse parse("toy", {.name = "toy", .prefix_safe = true}, max_words);
  ArcEager state;
  std::string history;  // all words read so far, which decide everything
  const auto word = [&](std::size_t begin, std::size_t end, std::size_t known) {
    history += std::string(text.substr(begin, end - begin)) + "\n";
    Random random(1, stream_of(history));
    state.read();
    while (state.waiting()) {
      const auto action = static_cast<Action>(random.below(kActions));
      if (state.allows(action)) state.take(action, static_cast<int>(random.below(38)));
    }
    parse.word({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)}, static_cast<std::uint32_t>(known),
               state.tag(), made_arcs(state));
    if (text[end - 1] == '.') {
      parse.end_sentence();
      state.reset();
    }
  };
  const auto in_word = [&](std::size_t i) {
    return i < text.size() && text[i] != ' ' && text[i] != '\n' && text[i] != '.' && text[i] != ',';
  };
  for (std::size_t i = 0; i < text.size();) {
    if (in_word(i)) {
      std::size_t end = i;
      while (in_word(end)) ++end;
      // The byte behind a run ends it, and tells whether "n't" was a word of its own.
      const std::string_view run = text.substr(i, end - i);
      const bool negated = run.size() > 3 && run.substr(run.size() - 3) == "n't";
      if (negated) word(i, end - 3, end + 1);
      word(negated ? end - 3 : i, end, end + 1);
      i = end;
    } else {
      if (text[i] == '.' || text[i] == ',') word(i, i + 1, i + 1);
      ++i;
    }
  }
  return std::move(parse).finish(text);
}

/// Tokens of 1 to `most` bytes, cut at places that depend on the place alone.
inline std::vector<ByteSpan> pieces(std::string_view text, std::size_t most) {
  std::vector<ByteSpan> spans;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = std::min(text.size() - at, 1 + static_cast<std::size_t>(random_at(3, most, at) % most));
    spans.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + size)});
    at += size;
  }
  return spans;
}

/// Words of a small language with much of what is hard: contractions, full stops, commas, double spaces.
inline std::string toy_text(std::size_t words, std::uint64_t seed) {
  const char* kWords[] = {"a",   "dog", "donkey", "don't", "can't", "ran", "running",
                          "n't", ".",   ",",      "U.S",   "the",   "o",   "."};
  Random random(seed, stream_of("toy text"));
  std::string text;
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint64_t space = random.below(10);
    if (i > 0 && space > 1) text += space == 2 ? "  " : space == 3 ? "\n" : " ";
    text += kWords[random.below(std::size(kWords))];
  }
  return text;
}

}  // namespace torsor::syntax::testing
