#include "torsor/data/masking.h"

#include "torsor/base/error.h"

namespace torsor {

namespace {

bool is_space(std::int64_t token) { return token == ' ' || (token >= '\t' && token <= '\r'); }
bool in_word(std::int64_t token) {
  return (token >= '0' && token <= '9') || (token >= 'a' && token <= 'z') || (token >= 'A' && token <= 'Z') ||
         (token >= 128 && token < 256);
}

}  // namespace

std::vector<ByteRange> byte_words(std::span<const std::int64_t> tokens) {
  std::vector<ByteRange> words;
  for (std::size_t t = 0; t < tokens.size();) {
    std::size_t end = t + 1;
    if (in_word(tokens[t])) {
      while (end < tokens.size() && in_word(tokens[end])) ++end;
      words.push_back({t, end});
    } else if (tokens[t] >= 0 && tokens[t] < 256 && !is_space(tokens[t])) {
      words.push_back({t, end});
    }
    t = end;
  }
  return words;
}

MaskedTokens mask_words(std::span<const std::int64_t> tokens, std::span<const ByteRange> words,
                        const MaskingOptions& options, Random& random) {
  if (!(options.rate > 0 && options.rate <= 1))
    throw UsageError(str("masking: rate must be above 0 and at most 1, found ", options.rate));
  if (!(options.masked >= 0 && options.random >= 0 && options.masked + options.random <= 1))
    throw UsageError(str("masking: shares must be at least 0 and at most 1 together, found ", options.masked, " and ",
                         options.random));
  MaskedTokens result{{tokens.begin(), tokens.end()}, std::vector<bool>(tokens.size(), false)};
  if (words.empty()) return result;
  std::vector<std::size_t> chosen;
  for (std::size_t w = 0; w < words.size(); ++w)
    if (random.uniform() < options.rate) chosen.push_back(w);
  if (chosen.empty()) chosen.push_back(random.below(words.size()));
  for (const std::size_t w : chosen) {
    const ByteRange word = words[w];
    if (word.begin >= word.end || word.end > tokens.size())
      throw Error(str("masking: expected words inside the ", tokens.size(), " tokens of the row, found ", word.begin,
                      " to ", word.end));
    const double fate = random.uniform();
    for (std::size_t t = word.begin; t < word.end; ++t) {
      result.chosen[t] = true;
      if (fate < options.masked)
        result.tokens[t] = options.mask_token;
      else if (fate < options.masked + options.random)
        result.tokens[t] = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(options.vocabulary)));
    }
  }
  return result;
}

}  // namespace torsor
