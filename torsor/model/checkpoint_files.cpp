#include "torsor/model/checkpoint_files.h"

#include "torsor/base/file.h"
#include "torsor/model/checkpoint_config.h"
#include "torsor/train/state.h"

namespace torsor {

std::map<std::string, at::Tensor> tensors_by_name(const std::vector<ModelParameter>& parameters) {
  std::map<std::string, at::Tensor> tensors;
  for (const ModelParameter& parameter : parameters) tensors[parameter.name] = parameter.tensor.detach();
  return tensors;
}

void write_checkpoint(const std::string& folder, const std::vector<ModelParameter>& parameters, const Json& config,
                      const std::shared_ptr<const Tokenizer>& reader) {
  make_directories(folder);
  if (reader)
    for (const TokenizerFile& file : reader->files()) write_file_atomic(folder + "/" + file.name, file.content);
  save_tensors(folder + "/model.safetensors", tensors_by_name(parameters), {{"format", "pt"}});
  Json json = {{"format", kCheckpointFormat}};
  json.update(config);
  write_file_atomic(folder + "/config.json", json_text(json, 2) + "\n");
}

}  // namespace torsor
