#include "torsor/syntax/score.h"

#include <algorithm>
#include <array>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"
#include "torsor/syntax/letters.h"

namespace torsor::syntax {
namespace {

/// Bytes of the text without its white space.
struct Bounds {
  std::size_t begin = 0, end = 0;
  bool operator==(const Bounds&) const = default;
};

struct ScoredWord {
  Bounds bounds;  // of its surface token
  bool in_multiword = false;
  std::string form;           // in lower case
  std::string_view relation;  // without subtype
  std::ptrdiff_t head = -1;   // index of its head among all words; kRoot; kMissing
  std::size_t sentence = 0;
};
constexpr std::ptrdiff_t kRoot = -1, kMissing = -2;

struct Side {
  std::string text;
  std::vector<Bounds> tokens, sentences;
  std::vector<ScoredWord> words;

  explicit Side(std::span<const Sentence> source) {
    for (std::size_t s = 0; s < source.size(); ++s) {
      const Sentence& sentence = source[s];
      const std::size_t sentence_begin = text.size();
      const auto first = static_cast<std::ptrdiff_t>(words.size());
      for (const SurfaceToken& token : surface_tokens(sentence)) {
        const std::size_t begin = text.size();
        text += without_spaces(token.form);
        tokens.push_back({begin, text.size()});
        for (int number = token.first; number <= token.last; ++number) {
          const Word& word = sentence.words[static_cast<std::size_t>(number) - 1];
          const bool inside = word.head >= 0 && word.head <= static_cast<int>(sentence.size());
          const std::ptrdiff_t head = !inside ? kMissing : word.head == 0 ? kRoot : first + word.head - 1;
          words.push_back(
              {tokens.back(), token.last > token.first, lower(word.form), base_relation(word.deprel), head, s});
        }
      }
      sentences.push_back({sentence_begin, text.size()});
    }
  }
};

Agreement equal_bounds(const std::vector<Bounds>& gold, const std::vector<Bounds>& system) {
  Agreement agreement{0, gold.size(), system.size()};
  for (std::size_t g = 0, s = 0; g < gold.size() && s < system.size();) {
    if (gold[g].begin < system[s].begin) {
      ++g;
    } else if (system[s].begin < gold[g].begin) {
      ++s;
    } else {
      agreement.correct += gold[g].end == system[s].end ? 1 : 0;
      ++g;
      ++s;
    }
  }
  return agreement;
}

/// Aligns two lists of words; partner[g] is the system word of gold word g, or -1.
class Aligner {
 public:
  Aligner(const std::vector<ScoredWord>& gold, const std::vector<ScoredWord>& system)
      : gold_(gold), system_(system), partner_(gold.size(), -1) {}

  std::vector<std::ptrdiff_t> run() {
    std::size_t g = 0, s = 0;
    while (g < gold_.size() && s < system_.size()) {
      if (gold_[g].in_multiword || system_[s].in_multiword) {
        stretch(g, s);
      } else if (gold_[g].bounds == system_[s].bounds) {
        partner_[g++] = static_cast<std::ptrdiff_t>(s++);
      } else if (gold_[g].bounds.begin <= system_[s].bounds.begin) {
        ++g;
      } else {
        ++s;
      }
    }
    return std::move(partner_);
  }

 private:
  /// Takes the words from g and s on up to where no multiword token of either side crosses.
  void stretch(std::size_t& g, std::size_t& s) {
    std::size_t end = 0;
    // A plain word that begins ahead of the other side's multiword token has no partner in it.
    if (gold_[g].in_multiword) {
      end = gold_[g].bounds.end;
      if (!system_[s].in_multiword && system_[s].bounds.begin < gold_[g].bounds.begin) ++s;
    } else {
      end = system_[s].bounds.end;
      if (gold_[g].bounds.begin < system_[s].bounds.begin) ++g;
    }
    const std::size_t first_g = g, first_s = s;
    const auto beyond = [&](const std::vector<ScoredWord>& words, std::size_t i) {
      if (i == words.size()) return true;
      return words[i].in_multiword ? words[i].bounds.begin >= end : words[i].bounds.end > end;
    };
    while (!beyond(gold_, g) || !beyond(system_, s)) {
      const bool from_gold =
          g < gold_.size() && (s == system_.size() || gold_[g].bounds.begin <= system_[s].bounds.begin);
      const ScoredWord& word = from_gold ? gold_[g++] : system_[s++];
      if (word.in_multiword) end = std::max(end, word.bounds.end);
    }
    common_subsequence(first_g, g, first_s, s);
  }

  void common_subsequence(std::size_t g0, std::size_t g1, std::size_t s0, std::size_t s1) {
    const std::size_t rows = g1 - g0, columns = s1 - s0;
    // longest[r][c]: of the words from r and c on
    std::vector<std::uint32_t> longest((rows + 1) * (columns + 1), 0);
    const auto at = [&](std::size_t r, std::size_t c) -> std::uint32_t& { return longest[r * (columns + 1) + c]; };
    const auto same = [&](std::size_t r, std::size_t c) { return gold_[g0 + r].form == system_[s0 + c].form; };
    for (std::size_t r = rows; r-- > 0;) {
      for (std::size_t c = columns; c-- > 0;) {
        at(r, c) = std::max(at(r + 1, c), at(r, c + 1));
        if (same(r, c)) at(r, c) = std::max(at(r, c), at(r + 1, c + 1) + 1);
      }
    }
    for (std::size_t r = 0, c = 0; r < rows && c < columns;) {
      if (same(r, c)) {
        partner_[g0 + r++] = static_cast<std::ptrdiff_t>(s0 + c++);
      } else if (at(r, c) == at(r + 1, c)) {
        ++r;
      } else {
        ++c;
      }
    }
  }

  const std::vector<ScoredWord>& gold_;
  const std::vector<ScoredWord>& system_;
  std::vector<std::ptrdiff_t> partner_;
};

void require_same_text(const Side& gold, const Side& system) {
  if (gold.text == system.text) return;
  const auto parts = std::mismatch(gold.text.begin(), gold.text.end(), system.text.begin(), system.text.end());
  auto at = static_cast<std::size_t>(parts.first - gold.text.begin());
  while (at > 0 && at < gold.text.size() && (static_cast<unsigned char>(gold.text[at]) & 0xC0u) == 0x80u) --at;
  throw Error(str("score: expected the same text on both sides, got ", quote(gold.text.substr(at, 40), 20),
                  " in the gold file and ", quote(system.text.substr(std::min(at, system.text.size()), 40), 20),
                  " in the other at byte ", at, " (white space left out)"));
}

/// Universal relations of function words and punctuation, which CLAS leaves out.
bool is_content(std::string_view relation) {
  constexpr std::array<std::string_view, 8> kFunction = {"aux", "case", "cc", "clf", "cop", "det", "mark", "punct"};
  return std::find(kFunction.begin(), kFunction.end(), relation) == kFunction.end();
}

}  // namespace

double Agreement::precision() const {
  return system == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(system);
}
double Agreement::recall() const { return gold == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(gold); }
double Agreement::f1() const {
  return gold + system == 0 ? 0 : 2 * static_cast<double>(correct) / static_cast<double>(gold + system);
}

Score score(std::span<const Sentence> gold_sentences, std::span<const Sentence> system_sentences) {
  const Side gold(gold_sentences), system(system_sentences);
  require_same_text(gold, system);
  Score result;
  result.tokens = equal_bounds(gold.tokens, system.tokens);
  result.sentences = equal_bounds(gold.sentences, system.sentences);
  const std::vector<std::ptrdiff_t> partner = Aligner(gold.words, system.words).run();
  result.words = result.uas = result.las = {0, gold.words.size(), system.words.size()};
  result.by_sentence.resize(gold.sentences.size());
  for (const ScoredWord& word : gold.words) {
    ++result.by_sentence[word.sentence].gold_words;
    result.clas.gold += is_content(word.relation) ? 1 : 0;
  }
  std::size_t sentence = 0;
  for (const ScoredWord& word : system.words) {
    while (sentence + 1 < gold.sentences.size() && gold.sentences[sentence].end <= word.bounds.begin) ++sentence;
    if (!result.by_sentence.empty()) ++result.by_sentence[sentence].system_words;
    result.clas.system += is_content(word.relation) ? 1 : 0;
  }
  for (std::size_t g = 0; g < gold.words.size(); ++g) {
    if (partner[g] < 0) continue;
    const ScoredWord& expected = gold.words[g];
    const ScoredWord& found = system.words[static_cast<std::size_t>(partner[g])];
    ++result.words.correct;
    if (found.head == kMissing || expected.head == kMissing) continue;
    const bool head = expected.head == kRoot || found.head == kRoot
                          ? expected.head == found.head
                          : partner[static_cast<std::size_t>(expected.head)] == found.head;
    if (!head) continue;
    ++result.uas.correct;
    ++result.by_sentence[expected.sentence].uas;
    if (expected.relation != found.relation) continue;
    ++result.las.correct;
    ++result.by_sentence[expected.sentence].las;
    result.clas.correct += is_content(expected.relation) ? 1 : 0;
  }
  return result;
}

}  // namespace torsor::syntax
