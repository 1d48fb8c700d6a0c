#include "torsor/model/project.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>

#include "torsor/base/error.h"
#include "torsor/kernel/half_product.h"

// at::parallel_for is a template: compiled without the threads that libtorch uses it would run in one.
#if AT_PARALLEL_OPENMP && !defined(_OPENMP)
#error "compile for OpenMP, as Torsor::torch asks for"
#endif

namespace torsor {
namespace {

constexpr std::int64_t kGrain = 1 << 16;  // numbers of a matrix a task: below, starting a thread costs more

/// Whether the kernel multiplies these.
bool reads_halves(const at::Tensor& x, const std::vector<at::Tensor>& weights, at::ScalarType dtype) {
  if (dtype != at::kFloat || x.scalar_type() != at::kFloat || !x.device().is_cpu()) return false;
  if (x.numel() == 0 || x.numel() / x.size(-1) > kernel::HalfProduct::kMostVectors) return false;
  if (at::GradMode::is_enabled() && x.requires_grad()) return false;
  return std::all_of(weights.begin(), weights.end(), [&](const at::Tensor& one) {
    return one.scalar_type() == weights.front().scalar_type() && is_half(one.scalar_type()) && one.is_contiguous() &&
           one.device().is_cpu() && !(at::GradMode::is_enabled() && one.requires_grad());
  });
}

std::vector<at::Tensor> half_products(const at::Tensor& given, const std::vector<at::Tensor>& weights) {
  const at::Tensor x = given.contiguous();
  kernel::HalfProduct product;
  product.kind = weights.front().scalar_type() == at::kHalf ? kernel::Half::Float16 : kernel::Half::BFloat16;
  product.columns = x.size(-1);
  product.vectors = x.numel() / x.size(-1);
  product.x = x.const_data_ptr<float>();
  std::vector<at::Tensor> results;
  for (const at::Tensor& weight : weights) {
    if (weight.dim() != 2 || weight.size(1) != x.size(-1))
      throw Error(str("project: a matrix of ", weight.sizes(), " does not take vectors of ", x.size(-1)));
    std::vector<std::int64_t> shape = x.sizes().vec();
    shape.back() = weight.size(0);
    results.push_back(at::empty(shape, x.options()));
    product.matrices.push_back(
        {static_cast<const std::uint16_t*>(weight.const_data_ptr()), weight.size(0), results.back().data_ptr<float>()});
  }
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(product.columns, 1));
  // A thread takes the next rows when it has done its last: memory does not serve all of them alike.
  const std::int64_t rows = product.rows(), tasks = (rows + grain - 1) / grain;
  std::atomic<std::int64_t> next{0};
  at::parallel_for(0, std::min<std::int64_t>(tasks, at::get_num_threads()), 1, [&](std::int64_t, std::int64_t) {
    for (std::int64_t task; (task = next.fetch_add(1)) < tasks;)
      kernel::half_product(product, task * grain, std::min(rows, (task + 1) * grain));
  });
  return results;
}

}  // namespace

bool is_half(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

std::vector<at::Tensor> project_all(const at::Tensor& x, const std::vector<at::Tensor>& weights, at::ScalarType dtype) {
  if (reads_halves(x, weights, dtype)) return half_products(x, weights);
  std::vector<at::Tensor> results;
  const at::Tensor input = x.to(dtype);
  for (const at::Tensor& weight : weights) results.push_back(at::linear(input, weight.to(dtype)));
  return results;
}

at::Tensor project(const at::Tensor& x, const at::Tensor& weight, at::ScalarType dtype) {
  return project_all(x, {weight}, dtype).front();
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::ScalarType dtype) {
  return at::linear(x.to(dtype), weight.to(dtype), bias.to(dtype)).to(x.scalar_type());
}

at::Tensor with_bias(const at::Tensor& x, const at::Tensor& bias) {
  return bias.defined() ? x + bias.to(x.scalar_type()) : x;
}

}  // namespace torsor
