#include "torsor/model/hugging_face.h"

#include "torsor/model/stored_encoding.h"

namespace torsor {

HuggingFaceModel read_hugging_face(const Json& config, const std::string& source) {
  HuggingFaceModel model = describe_hugging_face(config, source);
  check_stored_encoding(model.config, source);
  return model;
}

}  // namespace torsor
