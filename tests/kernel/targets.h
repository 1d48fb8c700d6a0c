// Runs a test on every instruction set that was compiled and that the processor has, the portable one included.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <hwy/targets.h>

namespace torsor::testing {

/// Calls body() once for each instruction set, with the dispatch held to it.
template <class Body>
void on_every_target(const Body& body) {
  int tried = 0;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    body();
    ++tried;
  }
  hwy::SetSupportedTargetsForTest(0);
  EXPECT_GT(tried, 0);
}

}  // namespace torsor::testing
