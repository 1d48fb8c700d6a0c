// Values that fused attention averages beside v.
#include <gtest/gtest.h>

#include "tests/kernel/call.h"

namespace torsor::kernel {
namespace {

TEST(FusedCarried, GroupsAndWidths) {
  for (const std::int64_t group : {1, 2, 6})
    for (const std::int64_t width : {1, 7, 16, 33})
      for (const bool shared : {false, true}) {
        if (shared && width > 7) continue;
        SCOPED_TRACE(::testing::Message() << "group " << group << ", width " << width << (shared ? ", shared" : ""));
        Problem p = draw({2, 6, 3, 33, 90, 8, 12}, width != 7);
        p.lengths = {90, 50};
        carry(p, width, group, shared);
        expect_both(p, incoming(p), width == 16 ? Layout::Spaced : Layout::TokensFirst);
      }
}

TEST(FusedCarried, WithMasksDocumentsAndManyKeys) {
  Problem p = draw({3, 2, 1, 65, 300, 8, 8}, false);
  p.lengths = {300, 0, 3};
  p.window = 90;
  divide_into_documents(p);
  carry(p, 8, 2);
  expect_both(p);
  p = draw({1, 2, 1, 20, 2500, 16, 16});
  carry(p, 64, 1);
  expect_both(p);
}

TEST(FusedCarried, BesideBFloat16) {
  Problem p = draw({2, 4, 2, 65, 300, 32, 32});
  make_half(p);
  for (const std::int64_t group : {1, 4}) {
    carry(p, 12, group);
    expect_both(p);
  }
}

// What is carried is not rounded to bf16: the mean of equal numbers is that number in float32.
TEST(FusedCarried, KeepsFloat32BesideBFloat16) {
  Problem p = draw({1, 2, 1, 40, 300, 16, 16});
  make_half(p);
  carry(p, 3, 1);
  for (double& value : p.carried.data) value = 1000.1F;
  for (const double value : run_forward(p).averages.data) EXPECT_NEAR(value, 1000.1F, 2e-6 * 1000);
}

TEST(FusedCarried, OnlyTheAveragesAreAskedFor) {
  Problem p = draw({1, 4, 2, 50, 90, 16, 16});
  carry(p, 5, 2);
  expect_both(p, incoming(p, false, false, true));
}

}  // namespace
}  // namespace torsor::kernel
