#include "tests/oracle/compare.h"

#include <algorithm>
#include <cmath>

namespace oracle {

Verdict compare(const Outputs& stored, const Outputs& computed, double rel, double abs) {
  Verdict verdict;
  const auto fail = [&](const std::string& why) {
    verdict.holds = false;
    verdict.worst = INFINITY;
    verdict.where = why;
  };
  for (const auto& [name, expected] : stored) {
    const auto found = computed.find(name);
    if (found == computed.end()) {
      fail(name + " is not computed here");
      continue;
    }
    if (found->second.shape != expected.shape) {
      fail(name + " has another shape");
      continue;
    }
    double largest = 0.0;
    double error = 0.0;
    for (std::size_t n = 0; n < expected.data.size(); ++n) {
      const double want = expected.data[n];
      const double got = found->second.data[n];
      if (std::isinf(want) || std::isinf(got)) {
        if (want != got) error = INFINITY;
        continue;
      }
      if (std::isnan(got)) error = INFINITY;
      largest = std::max(largest, std::abs(want));
      error = std::max(error, std::abs(got - want));
    }
    const double share = error / (abs + rel * largest);
    if (share > verdict.worst || verdict.where.empty()) {
      verdict.worst = share;
      verdict.where = name;
    }
    if (!(share <= 1.0)) verdict.holds = false;
  }
  return verdict;
}

}  // namespace oracle
