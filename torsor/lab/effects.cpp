#include "torsor/lab/effects.h"

#include <cmath>

namespace torsor {

std::vector<double> distances_up_to(std::int64_t longest) {
  std::vector<double> distances = {0};
  double next = 1;
  while (next < static_cast<double>(longest)) {
    distances.push_back(next);
    next = std::max(next + 1, std::round(next * 1.12));
  }
  distances.push_back(static_cast<double>(longest));
  return distances;
}

PlainParameters plain_parameters(const NamedTensors& parameters) {
  PlainParameters plain;
  for (const auto& [name, tensor] : parameters) {
    const at::Tensor values = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
    plain[name].assign(values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
  }
  return plain;
}

Json effect_of(const Decoder& model, std::int64_t longest) {
  const auto encoding = layer_encoding(model.shared_encoding(), 0);
  const Traits traits = encoding->traits();
  NamedTensors own;
  for (const ParameterInfo& info : encoding->parameters(0))
    for (const ModelParameter& parameter : model.parameters())
      if (parameter.name == "model.position." + info.name ||
          parameter.name == "model.layers.0.self_attn.position." + info.name)
        own[info.name] = parameter.tensor;
  const PlainParameters plain = plain_parameters(own);

  Json json;
  json["encoding"] = model.config().encoding;
  json["kind"] = "none";
  json["note"] = "";
  Json per_head = Json::array();
  const std::vector<double> distances = distances_up_to(longest);
  if (traits.content) {
    json["kind"] = "content";
    std::string note;
    for (const std::string& line : encoding->content()) note += (note.empty() ? "" : "; ") + line;
    json["note"] = note;
  } else if (!traits.forms.empty()) {
    json["kind"] = "bias";
    for (std::int64_t head = 0; head < model.config().heads; ++head) {
      Json row = Json::array();
      for (const double distance : distances) {
        const double query = static_cast<double>(longest), key = query - distance;
        PlainPair pair;
        pair.pq = &query;
        pair.pk = &key;
        pair.head = head;
        pair.length = query + 1;
        const double value = encoding->define_bias(pair, plain);
        row.push_back(std::isfinite(value) ? Json(value) : Json(nullptr));
      }
      per_head.push_back(row);
    }
    if (traits.rotates) json["note"] = "the rotation is left out: the bias alone is shown";
  } else if (const auto rotation = encoding->rotation(static_cast<double>(longest) + 1, plain)) {
    json["kind"] = "rotation";
    json["note"] = "mean cosine over the planes: what a logit of equal query and key keeps";
    for (const std::vector<double>& planes : rotation->inv_freq) {
      Json row = Json::array();
      for (const double distance : distances) {
        double sum = 0;
        for (const double frequency : planes) sum += std::cos(distance * frequency);
        row.push_back(sum / static_cast<double>(planes.size()));
      }
      per_head.push_back(row);
    }
  } else if (traits.absolute) {
    json["note"] = "added to the token embedding: a logit changes through the content only";
  }
  json["distances"] = per_head.empty() ? Json::array() : Json(distances);
  json["per_head"] = per_head;
  return json;
}

}  // namespace torsor
