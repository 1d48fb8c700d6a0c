#include "torsor/attention/large_tensor.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace torsor {
namespace {

TEST(LargeTensor, HasTheShapeAndTypeThatWasAsked) {
  const std::int64_t page = std::int64_t{2} << 20;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble})
    for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{64}, page - 64, page, page + 64, 3 * page + 192}) {
      const auto size = static_cast<std::int64_t>(at::elementSize(type));
      at::Tensor tensor = large_empty({bytes / size / 8, 2, 4}, at::TensorOptions(type));
      ASSERT_EQ(tensor.sizes(), at::IntArrayRef({bytes / size / 8, 2, 4}));
      EXPECT_EQ(tensor.scalar_type(), type);
      EXPECT_TRUE(tensor.is_contiguous());
      EXPECT_FALSE(tensor.requires_grad());
      tensor.fill_(3);
      EXPECT_EQ(tensor.to(at::kDouble).sum().item<double>(), 3.0 * static_cast<double>(tensor.numel()));
#ifdef __linux__
      EXPECT_TRUE(bytes < page || reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % page == 0);
#endif
    }
}

TEST(LargeTensor, OutlivesItsFirstName) {
  at::Tensor part;
  {
    const at::Tensor whole = large_empty({1 << 20}, at::TensorOptions(at::kFloat)).zero_();
    part = whole.narrow(0, 1 << 19, 4);
  }
  EXPECT_EQ(part.add(1).sum().item<float>(), 4);
}

TEST(LargeTensor, RefusesAsEmptyDoes) {
  EXPECT_THROW(large_empty({-1}, at::TensorOptions(at::kFloat)), c10::Error);
  EXPECT_THROW(large_empty({std::int64_t{1} << 40, std::int64_t{1} << 40}, at::TensorOptions(at::kFloat)),
               std::exception);
}

}  // namespace
}  // namespace torsor
