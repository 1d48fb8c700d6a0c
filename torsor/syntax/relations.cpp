#include "torsor/syntax/relations.h"

#include <algorithm>

#include "torsor/base/error.h"
#include "torsor/syntax/conllu.h"

namespace torsor::syntax {

static_assert(std::is_sorted(kRelations.begin(), kRelations.end()));

std::uint16_t relation_id(std::string_view deprel) {
  const std::string_view base = base_relation(deprel);
  const auto* found = std::lower_bound(kRelations.begin(), kRelations.end(), base);
  return found != kRelations.end() && *found == base ? static_cast<std::uint16_t>(found - kRelations.begin() + 1) : 0;
}

std::string_view relation_name(std::uint16_t id) {
  if (id > kRelations.size()) throw Error(str("relations: expected a number up to ", kRelations.size(), ", got ", id));
  return id == 0 ? std::string_view("_") : kRelations[id - 1u];
}

}  // namespace torsor::syntax
