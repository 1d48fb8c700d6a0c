#include "torsor/encoding/none.h"

namespace torsor {
namespace {

class None : public Encoding {
 public:
  using Encoding::Encoding;

  Traits traits() const override { return {}; }

  CacheContract cache(std::int64_t) const override {
    CacheContract contract;
    contract.shift = contract.evict = "exact";
    contract.note = "positions are never read";
    return contract;
  }
};

}  // namespace

NameInfo none_name() {
  NameInfo info;
  info.name = "none";
  info.summary = "no positional encoding: only the causal mask tells order";
  info.formula = "logit = scale * q.k";
  info.source = "Haviv et al. 2022 (arXiv 2203.16634)";
  info.page = "none";
  info.alone = true;
  info.make = [](MakeRequest& request) { return std::make_unique<None>(request.dimensions); };
  return info;
}

}  // namespace torsor
