// The treebanks of the shared data, for the tests of the syntax floor.
#pragma once

#include <fstream>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/base/test_folder.h"
#include "torsor/base/random.h"
#include "torsor/syntax/conllu.h"

namespace torsor::syntax::testing {

using torsor::testing::contains;
using torsor::testing::message_of;
using torsor::testing::shared_path;
using torsor::testing::slurp;

/// Every treebank file that is there; empty without the shared data (the test then skips).
inline std::vector<std::string> treebank_files() {
  std::vector<std::string> found;
  for (const char* name :
       {"ud-english-ewt/en_ewt-ud-train", "ud-english-ewt/en_ewt-ud-dev", "ud-english-ewt/en_ewt-ud-test",
        "ud-english-pud/en_pud-ud-test", "ud-english-atis/en_atis-ud-dev", "ud-english-ctetex/en_ctetex-ud-test",
        "ud-chinese-gsdsimp/zh_gsdsimp-ud-dev", "ud-chinese-gsdsimp/zh_gsdsimp-ud-test", "ud-french-gsd/fr_gsd-ud-dev",
        "ud-french-gsd/fr_gsd-ud-test"}) {
    const std::string path = shared_path("data/" + std::string(name) + ".conllu");
    if (!path.empty()) found.push_back(path);
  }
  return found;
}

/// "word TAB form TAB ... " from a line with spaces between the columns; a word a line.
inline std::string rows(const std::vector<std::string>& lines) {
  std::string text;
  for (std::string line : lines) {
    for (char& c : line) {
      if (c == ' ' && line[0] != '#') c = '\t';
    }
    text += line + "\n";
  }
  return text + "\n";
}

/// A sentence of words w1, w2, ... with these heads.
inline Sentence words_with_heads(const std::vector<int>& heads) {
  Sentence sentence;
  for (const int head : heads) {
    Word word;
    word.form = "w" + std::to_string(sentence.words.size() + 1);
    word.head = head;
    word.deprel = head == 0 ? "root" : "dep";
    sentence.words.push_back(word);
  }
  return sentence;
}

/// A tree of n words drawn by `random`: words take their heads in a random order from those that have one already, so
/// that most trees are not projective.
inline std::vector<int> random_heads(int n, Random& random) {
  std::vector<int> order(static_cast<std::size_t>(n)), heads(order.size(), 0);
  std::iota(order.begin(), order.end(), 1);
  random.shuffle(order);
  for (std::size_t i = 1; i < order.size(); ++i)
    heads[static_cast<std::size_t>(order[i]) - 1] = order[static_cast<std::size_t>(random.below(i))];
  return heads;
}

/// The lines of a golden file, split at tabs, without its comments.
inline std::vector<std::vector<std::string>> golden_rows(const std::string& path) {
  std::vector<std::vector<std::string>> table;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream cells(line);
    table.emplace_back();
    for (std::string cell; std::getline(cells, cell, '\t');) table.back().push_back(cell);
  }
  return table;
}

/// The treebanks that golden files exist of: the golden file's name and the treebank's path in the shared data.
inline const std::vector<std::pair<std::string, std::string>> kGoldenTreebanks = {
    {"ewt-dev.tsv", "data/ud-english-ewt/en_ewt-ud-dev.conllu"},
    {"pud-test.tsv", "data/ud-english-pud/en_pud-ud-test.conllu"},
    {"zh-gsdsimp-dev.tsv", "data/ud-chinese-gsdsimp/zh_gsdsimp-ud-dev.conllu"},
    {"fr-gsd-test.tsv", "data/ud-french-gsd/fr_gsd-ud-test.conllu"},
};

}  // namespace torsor::syntax::testing
