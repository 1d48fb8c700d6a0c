#include "torsor/train/snapshot.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/hash.h"
#include "torsor/base/utf8.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

constexpr const char* format_name = "torsor-state-1";
constexpr const char* content_key = "content_sha256";

using Metadata = std::map<std::string, std::string>;
using Tensors = std::map<std::string, at::Tensor>;

// `tensors` must be contiguous and on the CPU. Every piece is preceded by its length, so that no two contents give the
// same bytes.
std::string content_hash(const Tensors& tensors, const Metadata& metadata) {
  Sha256 hash;
  const auto add = [&](std::string_view bytes) { hash.update(str(bytes.size(), ':')).update(bytes); };
  for (const auto& [key, value] : metadata) {
    if (key == content_key) continue;
    add(key);
    add(value);
  }
  for (const auto& [name, tensor] : tensors) {
    add(name);
    add(describe_tensor(tensor));
    add({static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()});
  }
  return hash.hex();
}

std::string shown(const Json* value) { return value == nullptr ? "missing" : json_text(*value); }

const Json* member(const Json& object, const std::string& key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string difference_at(const std::string& path, const Json* there, const Json* here) {
  const bool both = there != nullptr && here != nullptr;
  if (both && there->is_object() && here->is_object()) {
    for (const Json* side : {there, here}) {
      for (const auto& [key, ignored] : side->items()) {
        std::string found =
            difference_at(path.empty() ? key : str(path, '.', key), member(*there, key), member(*here, key));
        if (!found.empty()) return found;
      }
    }
    return {};
  }
  if (both && there->is_array() && here->is_array()) {
    for (std::size_t i = 0; i < std::max(there->size(), here->size()); ++i) {
      std::string found = difference_at(str(path, '[', i, ']'), i < there->size() ? &(*there)[i] : nullptr,
                                        i < here->size() ? &(*here)[i] : nullptr);
      if (!found.empty()) return found;
    }
    return {};
  }
  if (both && *there == *here) return {};
  return str(path.empty() ? "the configuration" : path, " is ", shown(there), " there and ", shown(here), " here");
}

}  // namespace

std::string first_difference(const Json& there, const Json& here) { return difference_at({}, &there, &here); }

void save_snapshot(const std::string& path, const Snapshot& snapshot) {
  for (const auto& [key, value] : snapshot.extra) {
    if (find_invalid_utf8(key) != std::string::npos || find_invalid_utf8(value) != std::string::npos) {
      throw Error(str("cannot write ", quote(path), ": the entry ", quote(key), " is not UTF-8"));
    }
  }
  Tensors tensors;
  for (const auto& [name, tensor] : snapshot.tensors) {
    tensors.emplace(name, tensor.detach().to(at::kCPU).contiguous());
  }
  const std::string configuration = json_text(snapshot.configuration);
  Metadata metadata = {
      {"format", format_name},
      {"step", std::to_string(snapshot.step)},
      {"seed", std::to_string(snapshot.seed)},
      {"seconds", json_text(snapshot.seconds)},
      {"configuration", configuration},
      {"configuration_sha256", sha256_hex(configuration)},
      {"extra", json_text(Json(snapshot.extra))},
  };
  metadata[content_key] = content_hash(tensors, metadata);
  save_tensors(path, tensors, metadata);
}

Snapshot load_snapshot(const std::string& path, const Json& configuration) {
  TensorFile file = load_tensors(path);
  const std::string source = "state " + quote(path);
  Metadata& metadata = file.metadata;
  if (metadata["format"] != format_name) {
    throw Error(str(source, ": expected format ", format_name, ", found ", quote(metadata["format"])));
  }
  if (metadata[content_key] != content_hash(file.tensors, metadata)) {
    throw Error(str(source, ": the content does not match its checksum: the file was damaged after it was written"));
  }
  Json fields = Json::object();
  for (const char* key : {"step", "seed", "seconds", "configuration", "extra"}) {
    fields[key] = parse_json(metadata[key], str(source, ": ", key));
  }
  JsonObject object(fields, source, JsonObject::Blame::data);
  Snapshot snapshot;
  snapshot.step = object.get<std::int64_t>("step");
  snapshot.seed = object.get<std::uint64_t>("seed");
  snapshot.seconds = object.get<double>("seconds");
  snapshot.configuration = object.get<Json>("configuration");
  snapshot.extra = object.get<std::map<std::string, std::string>>("extra");
  snapshot.tensors = std::move(file.tensors);
  const std::string difference = first_difference(snapshot.configuration, configuration);
  if (!difference.empty()) throw Error(str(source, " belongs to another run: ", difference));
  return snapshot;
}

}  // namespace torsor
