#include "torsor/model/structure_embedder.h"

#include <algorithm>
#include <vector>

#include "torsor/base/error.h"
#include "torsor/encoding/syntax/sipe.h"

namespace torsor {

bool reads_vectors(const Encoding& encoding) {
  const std::vector<std::string> names = encoding.inputs();
  return std::find(names.begin(), names.end(), kSyntaxVectors) != names.end();
}

void require_embedder(const Encoding& encoding, const std::string& stored, const std::string& given,
                      const std::string& where) {
  if (stored.empty() || given == stored || !reads_vectors(encoding)) return;
  throw Error(str(where, ": the model was trained with the structure embedder ", stored.substr(0, 12), ", found ",
                  given.empty() ? std::string("none (--arcs)") : given.substr(0, 12)));
}

}  // namespace torsor
