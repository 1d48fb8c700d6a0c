#include "torsor/attention/plain.h"

#include <ATen/Parallel.h>

#include <atomic>

#include "torsor/base/error.h"
#include "torsor/kernel/finite.h"

namespace torsor {
namespace {

constexpr std::int64_t grain = 1 << 16;  // numbers a task: about the time that handing out a task takes, times ten

}  // namespace

bool is_plain(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided && !tensor.is_neg() &&
         (dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16);
}

kernel::Element element_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return kernel::Element::Float32;
    case at::kDouble:
      return kernel::Element::Float64;
    case at::kBFloat16:
      return kernel::Element::BFloat16;
    default:
      throw Error(str("expected float64, float32 or bfloat16, found ", dtype));
  }
}

bool all_finite(const at::Tensor& tensor) {
  if (!is_plain(tensor) || !tensor.is_non_overlapping_and_dense()) return at::isfinite(tensor).all().item<bool>();
  const kernel::Element element = element_of(tensor.scalar_type());
  const char* bytes = static_cast<const char*>(tensor.const_data_ptr());
  const std::int64_t size = static_cast<std::int64_t>(tensor.element_size());
  std::atomic<bool> finite{true};
  at::parallel_for(0, tensor.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    if (!kernel::all_finite(element, bytes + begin * size, end - begin)) finite.store(false, std::memory_order_relaxed);
  });
  return finite.load();
}

}  // namespace torsor
