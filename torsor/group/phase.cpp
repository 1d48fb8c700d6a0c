#include "torsor/group/phase.h"

#include "torsor/base/error.h"

namespace torsor::group {

at::Tensor phase_rate(const at::Tensor& gate, PhaseLink link) {
  if (link == PhaseLink::Released) return (gate / kPhaseScale).sigmoid();
  return -at::log_sigmoid(-gate);  // softplus; at::softplus itself cuts off its small part
}

Phases running_phases(const at::Tensor& rate, const at::Tensor& before) {
  if (rate.dim() != 3 || before.dim() != 2 || before.size(1) != rate.size(1) ||
      (before.size(0) != 1 && before.size(0) != rate.size(0)))
    throw Error(str("running_phases: rates (batch, groups, tokens) need sums before (1 or batch, groups), found ",
                    rate.sizes(), " and ", before.sizes()));
  const at::Tensor start = before.to(at::kDouble).unsqueeze(2).expand({rate.size(0), rate.size(1), 1});
  const at::Tensor sums = at::cat({start, rate.to(at::kDouble)}, 2).cumsum(2);
  return {sums.narrow(2, 0, rate.size(2)), sums.narrow(2, 1, rate.size(2))};
}

}  // namespace torsor::group
