// Tensors in safetensors files: the bridge between libtorch and torsor/base/safetensors.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "torsor/base/safetensors.h"

namespace torsor {

/// The element type of libtorch for one of a file, and back. The latter throws Error for types that safetensors files
/// of this project do not hold (complex, quantised).
at::ScalarType scalar_type_of(Dtype dtype);
Dtype dtype_of(at::ScalarType type);

/// A copy of one tensor of an open file, on the CPU.
at::Tensor load_tensor(const SafetensorsFile& file, const std::string& name);

/// What a file holds.
struct TensorFile {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// All tensors of a file, on the CPU. Throws Error when the file cannot be read or is not sound.
TensorFile load_tensors(const std::string& path);

/// Replaces `path` in one step by a file with these tensors, of any device and strides. Throws Error naming the tensor
/// that is undefined or of a type that cannot be written, or the path.
void save_tensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                  const std::map<std::string, std::string>& metadata = {});

/// "float32 [2, 3]", for messages.
std::string describe_tensor(const at::Tensor& tensor);

/// The tensor `name` of `tensors`, which must have the type and shape of `like`. Throws Error naming `source`, the
/// tensor, what was expected and what was found.
const at::Tensor& find_tensor(const std::map<std::string, at::Tensor>& tensors, const std::string& name,
                              const at::Tensor& like, const std::string& source);

}  // namespace torsor
