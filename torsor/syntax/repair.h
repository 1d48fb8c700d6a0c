// Making trees of heads that form none, as parsers and damaged files leave them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "torsor/syntax/conllu.h"

namespace torsor::syntax {

enum class RepairPolicy {
  kRepair,  ///< mend, and count what was mended
  kStrict,  ///< a sentence with any defect counts as not parsed
};

/// How often each defect was mended, in the order in which they are.
struct RepairCounts {
  std::size_t outside = 0;      ///< heads beyond the sentence, made unknown
  std::size_t self_loops = 0;   ///< words that were their own head, made unknown
  std::size_t cycles = 0;       ///< cycles, cut at their longest arc (of equals that of the rightmost dependent)
  std::size_t no_root = 0;      ///< sentences whose first word without a head became the root
  std::size_t unattached = 0;   ///< other words without a head, attached to the root as "dep"
  std::size_t extra_roots = 0;  ///< roots beside the leftmost, attached to it as "dep"

  std::size_t total() const { return outside + self_loops + cycles + no_root + unattached + extra_roots; }
  RepairCounts& operator+=(const RepairCounts& other);
  bool operator==(const RepairCounts&) const = default;
};

/// Makes `heads` (by word; kNoHead = unknown) a tree with one root. A tree stays as it is and counts nothing. At least
/// one word, and as many relations as heads, else Error. Afterwards the root, and no other word, has the relation
/// "root": a label that does not fit becomes "root" or "dep" without being counted.
RepairCounts repair(std::vector<int>& heads, std::vector<std::string>& relations);

struct RepairReport {
  std::size_t sentences = 0;  ///< looked at
  std::size_t repaired = 0;   ///< mended
  std::size_t unparsed = 0;   ///< given up under kStrict
  RepairCounts counts;

  /// More than one sentence in a hundred was mended: the source is worth a look.
  bool too_many() const { return repaired * 100 > sentences; }
  /// "3 of 200 sentences repaired: 1 cycle, 2 extra roots".
  std::string text() const;
};

/// Repairs every sentence, or under kStrict moves those with a defect to `document.skipped`. For documents that were
/// read with ReadOptions::check_trees = false.
RepairReport repair(Document& document, RepairPolicy policy = RepairPolicy::kRepair);

}  // namespace torsor::syntax
