// BLiMP: pairs of sentences of which one is right (Warstadt, Parrish, Liu, Mohananey, Peng, Wang, Bowman, "BLiMP: The
// Benchmark of Linguistic Minimal Pairs for English", TACL 2020).
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace torsor {

struct MinimalPair {
  std::string good, bad;
  std::string id;
};

/// The pairs of one file: one kind of contrast.
struct Paradigm {
  std::string uid;    ///< "adjunct_island"
  std::string field;  ///< "syntax"
  std::string term;   ///< the linguistics_term: "island_effects"
  std::vector<MinimalPair> pairs;
};

/// Reads JSON lines with at least the keys sentence_good, sentence_bad, field, linguistics_term, UID and pairID; others
/// are passed over, blank lines too. Throws Error "SOURCE:LINE: ..." for a line that is none, a sentence without a
/// word, two equal sentences, and lines of several paradigms; Error without any pair.
Paradigm paradigm_from_lines(std::string_view text, const std::string& source);

/// A file, or the *.jsonl files of a folder by name. Throws Error naming the path, or a UID that two files share.
std::vector<Paradigm> load_blimp(const std::string& path);

/// How many pairs a model prefers the right one of: log p(good) > log p(bad), whole sentences; a tie is a miss.
struct ParadigmResult {
  std::string uid, field, term;
  std::vector<bool> correct;

  double accuracy() const;
};

/// Means over paradigms, which count alike whatever their size.
struct BlimpSummary {
  struct Mean {
    std::size_t paradigms = 0;
    double mean = 0;
  };
  Mean all;
  std::map<std::string, Mean> terms;   ///< by linguistics_term
  std::map<std::string, Mean> fields;  ///< by field
};
BlimpSummary summarize_blimp(std::span<const ParadigmResult> results);

}  // namespace torsor
