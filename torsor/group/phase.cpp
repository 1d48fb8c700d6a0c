#include "torsor/group/phase.h"

#include "torsor/base/error.h"

namespace torsor::group {

at::Tensor phase_rate(const at::Tensor& gate, PhaseLink link) {
  if (link == PhaseLink::Released) return (gate / kPhaseScale).sigmoid();
  return -at::log_sigmoid(-gate);  // softplus; at::softplus itself cuts off its small part
}

RunningSums running_sums(const at::Tensor& values, const at::Tensor& start) {
  if (values.dim() != 3 || start.dim() != 2 || start.size(1) != values.size(1) ||
      (start.size(0) != 1 && start.size(0) != values.size(0)))
    throw Error(str("running_sums: values (batch, groups, tokens) need sums (1 or batch, groups) in front, found ",
                    values.sizes(), " and ", start.sizes()));
  const at::Tensor first = start.to(at::kDouble).unsqueeze(2).expand({values.size(0), values.size(1), 1});
  const at::Tensor sums = at::cat({first, values.to(at::kDouble)}, 2).cumsum(2);
  return {sums.narrow(2, 0, values.size(2)), sums.narrow(2, 1, values.size(2))};
}

}  // namespace torsor::group
