#include "torsor/base/parallel.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>
#include <vector>

namespace torsor {
namespace {

TEST(SerialExecutor, MakesOneCallOverTheWholeRange) {
  std::vector<std::pair<std::int64_t, std::int64_t>> calls;
  const auto body = [&](std::int64_t first, std::int64_t last) { calls.emplace_back(first, last); };
  serial_executor()(-3, 7, 2, body);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0], std::make_pair(std::int64_t{-3}, std::int64_t{7}));
}

TEST(SerialExecutor, CallsNothingForAnEmptyRange) {
  int calls = 0;
  const auto body = [&](std::int64_t, std::int64_t) { ++calls; };
  serial_executor()(5, 5, 1, body);
  serial_executor()(5, 4, 1, body);
  EXPECT_EQ(calls, 0);
}

TEST(SerialExecutor, PassesExceptionsOn) {
  const auto body = [](std::int64_t, std::int64_t) { throw std::logic_error("body"); };
  EXPECT_THROW(serial_executor()(0, 1, 1, body), std::logic_error);
}

}  // namespace
}  // namespace torsor
