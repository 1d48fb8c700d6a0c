#include "torsor/model/structure_embedder.h"

#include <algorithm>
#include <vector>

#include "torsor/base/error.h"
#include "torsor/encoding/syntax/sipe.h"
#include "torsor/syntax/relations.h"

namespace torsor {

bool reads_vectors(const Encoding& encoding) {
  const std::vector<std::string> names = encoding.inputs();
  return std::find(names.begin(), names.end(), kSyntaxVectors) != names.end();
}

Json structure_embedder_to_json(const std::string& sha256) {
  return {{"sha256", sha256}, {"relations", syntax::kRelations}};
}

std::string structure_embedder_of(JsonObject& config) {
  if (!config.has("structure_embedder")) return "";
  JsonObject object = config.object("structure_embedder");
  const auto sha256 = object.get<std::string>("sha256");
  const auto relations = object.get<std::vector<std::string>>("relations");
  object.finish();
  if (sha256.empty()) object.fail("sha256: expected a hash, found an empty text");
  if (!std::equal(relations.begin(), relations.end(), syntax::kRelations.begin(), syntax::kRelations.end()))
    object.fail(str("relations: expected the ", syntax::kRelations.size(), " that arcs are numbered by here, found ",
                    relations.size(), relations.size() == syntax::kRelations.size() ? " others" : ""));
  return sha256;
}

void require_embedder(const Encoding& encoding, const std::string& stored, const std::string& given,
                      const std::string& where) {
  if (stored.empty() || given == stored || !reads_vectors(encoding)) return;
  throw Error(str(where, ": the model was trained with the structure embedder ", stored.substr(0, 12), ", found ",
                  given.empty() ? std::string("none (--arcs)") : given.substr(0, 12)));
}

}  // namespace torsor
