#include "torsor/model/activation.h"

#include "torsor/model/fused.h"

namespace torsor {

at::Tensor activated(MlpKind kind, const at::Tensor& up, const at::Tensor& gate) {
  switch (kind) {
    case MlpKind::SwiGlu:
      return swiglu(gate, up);
    case MlpKind::GeGlu:
      return at::gelu(gate) * up;
    case MlpKind::GeGluTanh:
      return at::gelu(gate, "tanh") * up;
    case MlpKind::Relu:
      return at::relu(up);
    case MlpKind::GeluTanh:
      return at::gelu(up, "tanh");
    default:
      return at::gelu(up);
  }
}

}  // namespace torsor
