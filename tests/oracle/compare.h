// Stored outputs against computed ones.
#pragma once

#include <string>

#include "tests/oracle/case.h"

namespace oracle {

struct Verdict {
  bool holds = true;
  double worst = 0.0;  ///< largest error as a share of what the tolerance allows
  std::string where;   ///< the tensor that it belongs to, or what is missing
};

/// Each stored tensor must be met within abs + rel * its largest value.
Verdict compare(const Outputs& stored, const Outputs& computed, double rel, double abs);

}  // namespace oracle
