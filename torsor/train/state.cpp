#include "torsor/train/state.h"

#include <ATen/ATen.h>

#include <cstring>
#include <utility>
#include <vector>

#include "torsor/base/error.h"

namespace torsor {
namespace {

constexpr std::pair<Dtype, at::ScalarType> types[] = {
    {Dtype::Bool, at::kBool},
    {Dtype::U8, at::kByte},
    {Dtype::I8, at::kChar},
    {Dtype::F8_E5M2, at::kFloat8_e5m2},
    {Dtype::F8_E4M3, at::kFloat8_e4m3fn},
    {Dtype::I16, at::kShort},
    {Dtype::U16, at::kUInt16},
    {Dtype::F16, at::kHalf},
    {Dtype::BF16, at::kBFloat16},
    {Dtype::I32, at::kInt},
    {Dtype::U32, at::kUInt32},
    {Dtype::F32, at::kFloat},
    {Dtype::F64, at::kDouble},
    {Dtype::I64, at::kLong},
    {Dtype::U64, at::kUInt64},
};

// The names that users of libtorch know, for messages.
std::string type_text(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kLong:
      return "int64";
    case at::kInt:
      return "int32";
    case at::kByte:
      return "uint8";
    case at::kBool:
      return "bool";
    default:
      return c10::toString(type);
  }
}

at::Tensor copy_entry(const SafetensorsEntry& entry) {
  at::Tensor tensor = at::empty(entry.shape, at::TensorOptions().dtype(scalar_type_of(entry.dtype)));
  if (entry.bytes != 0) std::memcpy(tensor.mutable_data_ptr(), entry.data, entry.bytes);
  return tensor;
}

}  // namespace

at::ScalarType scalar_type_of(Dtype dtype) {
  for (const auto& [ours, theirs] : types) {
    if (ours == dtype) return theirs;
  }
  throw Error(str("no tensor type stands for the element type ", dtype_name(dtype)));
}

Dtype dtype_of(at::ScalarType type) {
  for (const auto& [ours, theirs] : types) {
    if (theirs == type) return ours;
  }
  throw Error(str("tensors of type ", type_text(type), " cannot be kept in a safetensors file"));
}

at::Tensor load_tensor(const SafetensorsFile& file, const std::string& name) { return copy_entry(file.entry(name)); }

TensorFile load_tensors(const std::string& path) {
  const SafetensorsFile file(path);
  TensorFile result;
  for (const auto& [name, entry] : file.entries()) result.tensors.emplace(name, copy_entry(entry));
  result.metadata = file.metadata();
  return result;
}

void save_tensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                  const std::map<std::string, std::string>& metadata) {
  std::vector<at::Tensor> kept;  // owns the copies while the file is written
  std::vector<SafetensorsTensor> list;
  kept.reserve(tensors.size());
  list.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined()) throw Error(str("cannot write '", path, "': tensor '", name, "' is undefined"));
    Dtype dtype{};
    try {
      dtype = dtype_of(tensor.scalar_type());
    } catch (const Error& error) {
      throw Error(str("cannot write '", path, "': tensor '", name, "': ", error.what()));
    }
    kept.push_back(tensor.detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous());
    list.push_back({name, dtype, tensor.sizes().vec(), kept.back().const_data_ptr()});
  }
  write_safetensors(path, list, metadata);
}

std::string describe_tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::string text = type_text(tensor.scalar_type()) + " [";
  for (std::int64_t axis = 0; axis < tensor.dim(); ++axis) {
    text += (axis == 0 ? "" : ", ") + std::to_string(tensor.size(axis));
  }
  return text + "]";
}

const at::Tensor& find_tensor(const std::map<std::string, at::Tensor>& tensors, const std::string& name,
                              const at::Tensor& like, const std::string& source) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) {
    throw Error(str(source, ": tensor '", name, "' is missing, expected ", describe_tensor(like)));
  }
  const at::Tensor& tensor = found->second;
  if (tensor.scalar_type() != like.scalar_type() || tensor.sizes() != like.sizes()) {
    throw Error(
        str(source, ": tensor '", name, "' must be ", describe_tensor(like), ", found ", describe_tensor(tensor)));
  }
  return tensor;
}

}  // namespace torsor
