#include "torsor/model/stored_encoding.h"

#include "torsor/encoding/registry.h"

namespace torsor {

void check_stored_encoding(ModelConfig& config, const std::string& source) {
  try {
    config.encoding = print(parse(config.encoding));
    make_encoding(config.encoding, config.dimensions());
  } catch (const UsageError& error) {
    throw Error(str(source, ": ", error.what()));
  }
}

}  // namespace torsor
