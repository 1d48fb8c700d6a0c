#include "torsor/syntax/repair.h"

#include <cstdlib>

#include "torsor/base/error.h"
#include "torsor/syntax/words.h"

namespace torsor::syntax {
namespace {

/// Cuts every cycle once; heads lie in -1 .. n.
std::size_t cut_cycles(std::vector<int>& heads) {
  std::size_t cut = 0;
  std::vector<int> seen_by(heads.size() + 1, 0);
  for (int start = 1; start <= static_cast<int>(heads.size()); ++start) {
    int at = start;
    while (at > 0 && seen_by[static_cast<std::size_t>(at)] == 0) {
      seen_by[static_cast<std::size_t>(at)] = start;
      at = heads[index(at)];
    }
    if (at <= 0 || seen_by[static_cast<std::size_t>(at)] != start) continue;
    int longest = at;
    for (int word = heads[index(at)]; word != at; word = heads[index(word)]) {
      const int length = std::abs(heads[index(word)] - word);
      const int most = std::abs(heads[index(longest)] - longest);
      if (length > most || (length == most && word > longest)) longest = word;
    }
    heads[index(longest)] = kNoHead;
    ++cut;
  }
  return cut;
}

}  // namespace

RepairCounts& RepairCounts::operator+=(const RepairCounts& other) {
  outside += other.outside;
  self_loops += other.self_loops;
  cycles += other.cycles;
  no_root += other.no_root;
  unattached += other.unattached;
  extra_roots += other.extra_roots;
  return *this;
}

RepairCounts repair(std::vector<int>& heads, std::vector<std::string>& relations) {
  const int n = static_cast<int>(heads.size());
  if (n == 0) throw Error("repair: expected words, got none");
  if (relations.size() != heads.size()) throw Error(str("repair: expected ", n, " relations, got ", relations.size()));
  RepairCounts counts;
  for (int word = 1; word <= n; ++word) {
    int& head = heads[index(word)];
    if (head > n || head < kNoHead) {
      head = kNoHead;
      ++counts.outside;
    } else if (head == word) {
      head = kNoHead;
      ++counts.self_loops;
    }
  }
  counts.cycles = cut_cycles(heads);
  int root = 0;
  for (int word = n; word >= 1; --word) root = heads[index(word)] == 0 ? word : root;
  for (int word = 1; word <= n; ++word) {
    int& head = heads[index(word)];
    if (head == kNoHead && root == 0) {
      head = 0;
      root = word;
      ++counts.no_root;
    } else if (head == kNoHead) {
      head = root;
      relations[index(word)] = "dep";
      ++counts.unattached;
    } else if (head == 0 && word != root) {
      head = root;
      relations[index(word)] = "dep";
      ++counts.extra_roots;
    }
  }
  for (int word = 1; word <= n; ++word) {
    std::string& relation = relations[index(word)];
    if (word == root) {
      relation = "root";
    } else if (relation == "root") {
      relation = "dep";
    }
  }
  return counts;
}

std::string RepairReport::text() const {
  std::string text = str(repaired, " of ", sentences, " sentences repaired");
  if (unparsed > 0) text += str(", ", unparsed, " left out");
  const char* between = ": ";
  const auto add = [&](std::size_t count, const char* one, const char* many) {
    if (count == 0) return;
    text += str(between, count, " ", count == 1 ? one : many);
    between = ", ";
  };
  add(counts.outside, "head outside the sentence", "heads outside the sentence");
  add(counts.self_loops, "self-loop", "self-loops");
  add(counts.cycles, "cycle", "cycles");
  add(counts.no_root, "sentence without a root", "sentences without a root");
  add(counts.unattached, "word without a head", "words without a head");
  add(counts.extra_roots, "extra root", "extra roots");
  return text;
}

RepairReport repair(Document& document, RepairPolicy policy) {
  RepairReport report;
  std::vector<Sentence> kept;
  std::vector<Skipped> skipped;
  auto before = document.skipped.begin();
  kept.reserve(document.sentences.size());
  for (std::size_t i = 0; i < document.sentences.size(); ++i) {
    for (; before != document.skipped.end() && before->before <= i; ++before) {
      before->before = kept.size();
      skipped.push_back(std::move(*before));
    }
    Sentence& sentence = document.sentences[i];
    ++report.sentences;
    std::vector<int> heads = sentence.heads();
    const auto defect = find_defect(heads);
    if (defect && policy == RepairPolicy::kStrict) {
      ++report.unparsed;
      skipped.push_back({sentence.line, defect->reason(heads), sentence.comment("text"), kept.size()});
      continue;
    }
    if (defect) {
      std::vector<std::string> relations = sentence.relations();
      report.counts += repair(heads, relations);
      ++report.repaired;
      for (std::size_t w = 0; w < heads.size(); ++w) {
        sentence.words[w].head = heads[w];
        sentence.words[w].deprel = relations[w];
      }
    }
    kept.push_back(std::move(sentence));
  }
  for (; before != document.skipped.end(); ++before) {
    before->before = kept.size();
    skipped.push_back(std::move(*before));
  }
  document.sentences = std::move(kept);
  document.skipped = std::move(skipped);
  return report;
}

}  // namespace torsor::syntax
