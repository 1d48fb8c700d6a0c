// What the temperatures share: one factor a query, from its position.
#pragma once

#include <string>
#include <utility>

#include "torsor/encoding/encoding.h"

namespace torsor {

class Temperature : public Encoding {
 public:
  Temperature(const Dimensions& dimensions, std::string name) : Encoding(dimensions), name_(std::move(name)) {}

  Traits traits() const override {
    Traits traits;
    traits.relative = false;
    return traits;
  }

  CacheContract cache(std::int64_t /*layer*/) const override {
    CacheContract contract;
    contract.shift = contract.evict = "exact";
    contract.note =
        name_ + " reads the query's own position: renumbering the cache changes the factor of later queries";
    return contract;
  }

  /// One factor a query, (B|1, Tq) float64. Throws Error when positions have several axes: none of them is the length.
  std::vector<LogitScale> logit_scales(const Question& question) const override {
    const at::Tensor& positions = question.query.positions;
    if (!positions.defined() || positions.dim() != 3 || positions.size(2) != 1)
      throw Error(str(name_, ": positions must have shape (batch, tokens, 1), found ",
                      positions.defined() ? str(positions.sizes()) : std::string("none")));
    const bool one_row = positions.size(0) > 1 && positions.stride(0) == 0;
    const at::Tensor position = (one_row ? positions.narrow(0, 0, 1) : positions).squeeze(-1).to(at::kDouble);
    return {{all_heads(), factors(position)}};
  }

 protected:
  /// Factors at the given positions, of the same shape, float64.
  virtual at::Tensor factors(const at::Tensor& position) const = 0;

 private:
  std::string name_;
};

}  // namespace torsor
