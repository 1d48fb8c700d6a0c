// The diagnosis as one document; docs/diagnose.md tells its keys.
#include "torsor/lab/diagnosis.h"

namespace torsor {
namespace {

void put_part(Json& json, const PartName& part) {
  json["term"] = part.term;
  json["layers"] = part.layers;
  json["heads"] = {part.first_head, part.first_head + part.heads};
}

Json rotation_to_json(const RotationFacts& facts) {
  Json json;
  put_part(json, facts.part);
  json["key_head"] = json_or_null(facts.key_head);
  json["initial"] = facts.initial;
  json["magnitude"] = facts.magnitude;
  json["softmax_factor"] = facts.softmax_factor;
  json["length_dependent"] = facts.length_dependent;
  json["scaling"] = nullptr;
  if (!facts.scaling.empty())
    json["scaling"] = {{"name", facts.scaling},
                       {"factor", facts.factor},
                       {"train_length", facts.scaling_length > 0 ? Json(facts.scaling_length) : Json(nullptr)}};
  Json planes = Json::array();
  for (std::size_t i = 0; i < facts.plain.size(); ++i) {
    const double frequency = facts.lengths.front().frequency[i];
    planes.push_back({{"plane", i},
                      {"axis", facts.axis[i]},
                      {"frequency", frequency},
                      {"plain_frequency", facts.plain[i]},
                      {"wavelength", frequency == 0 ? Json(nullptr) : Json(6.283185307179586 / frequency)},
                      {"trained_turns", facts.trained_turns[i]}});
    if (!facts.decay.empty()) planes.back()["decay"] = facts.decay[i];
  }
  json["planes"] = planes;
  json["lengths"] = Json::array();
  for (const RotationAtLength& at : facts.lengths) {
    Json one;
    one["length"] = at.length;
    one["reach"] = at.reach;
    std::vector<double> turns;
    for (const double frequency : at.frequency) turns.push_back(at.reach * frequency / 6.283185307179586);
    one["turns"] = turns;
    one["unseen"] = at.unseen;
    one["worst"] = at.worst;
    if (!at.slowed.empty()) {
      one["slowed"] = at.slowed;
      one["treatment"] = Json::array();
      for (const Treatment treatment : at.treatment) one["treatment"].push_back(treatment_name(treatment));
    }
    json["lengths"].push_back(one);
  }
  json["dtypes"] = Json::array();
  for (const DtypeFacts& dtype : facts.dtypes)
    json["dtypes"].push_back({{"dtype", dtype.dtype},
                              {"first_position", json_or_null(dtype.position)},
                              {"plane", dtype.position ? Json(dtype.plane) : Json(nullptr)},
                              {"error", dtype.position ? Json(dtype.error) : Json(nullptr)},
                              {"searched", dtype.searched}});
  return json;
}

Json bias_to_json(const BiasFacts& facts) {
  Json json;
  put_part(json, facts.part);
  json["forms"] = facts.forms;
  json["content"] = facts.content;
  json["initial"] = facts.initial;
  json["distances"] = facts.distances;
  json["per_head"] = facts.per_head;
  json["sight"] = Json::array();
  for (const auto& sight : facts.sight) json["sight"].push_back(json_or_null(sight));
  json["merge_from"] = json_or_null(facts.merge_from);
  json["wraps"] = json_or_null(facts.wraps);
  json["counts"] = json_or_null(facts.counts);
  json["rows"] = Json::array();
  for (const BiasFacts::Rows& rows : facts.rows)
    json["rows"].push_back({{"length", rows.length},
                            {"read", rows.seen},
                            {"unseen", rows.unseen},
                            {"first_distance", json_or_null(rows.first)}});
  return json;
}

Json layer_to_json(const LayerMeasures& layer) {
  const auto curve = [](const std::vector<std::optional<double>>& values) {
    Json list = Json::array();
    for (const auto& value : values) list.push_back(json_or_null(value));
    return list;
  };
  Json json;
  json["window"] = layer.window;
  json["entropy"] = layer.entropy;
  json["relative_entropy"] = curve(layer.relative_entropy);
  json["first_token"] = layer.first_token;
  json["distance"] = layer.distance;
  json["largest_logit"] = layer.largest_logit;
  json["rms"] = layer.rms;
  json["largest_channel"] = layer.largest_channel;
  json["largest_channel_mean"] = layer.largest_channel_mean;
  json["heads"] = Json::array();
  for (const HeadMeasures& head : layer.heads) {
    const auto pair = [&](const HeadMeasures::Sides& sides) {
      return Json::array({sides.inside, json_or_null(sides.beyond)});
    };
    json["heads"].push_back({{"entropy", pair(head.entropy)},
                             {"relative_entropy", pair(head.relative_entropy)},
                             {"first_token", pair(head.first_token)},
                             {"distance", pair(head.distance)}});
  }
  return json;
}

Json measured_to_json(const Measures& measures) {
  Json json;
  json["text"] = measures.text;
  json["length"] = measures.length;
  json["windows"] = measures.windows;
  json["stride"] = measures.stride;
  json["loss"] = measures.loss;
  json["bins"] = Json::array();
  for (const BinMeasures& bin : measures.bins)
    json["bins"].push_back({{"from", bin.from},
                            {"to", bin.to},
                            {"targets", bin.targets},
                            {"loss", bin.loss},
                            {"inside", bin.inside},
                            {"difference", bin.difference},
                            {"error", json_or_null(bin.error)},
                            {"largest_logit", bin.largest_logit}});
  json["layers"] = Json::array();
  for (const LayerMeasures& layer : measures.layers) json["layers"].push_back(layer_to_json(layer));
  json["last_rms"] = measures.last_rms;
  return json;
}

}  // namespace

Json facts_to_json(const Facts& facts) {
  Json json;
  json["windows"] = facts.windows;
  json["rotations"] = Json::array();
  for (const RotationFacts& rotation : facts.rotations) json["rotations"].push_back(rotation_to_json(rotation));
  json["biases"] = Json::array();
  for (const BiasFacts& bias : facts.biases) json["biases"].push_back(bias_to_json(bias));
  json["embeddings"] = Json::array();
  for (const EmbeddingFacts& embedding : facts.embeddings)
    json["embeddings"].push_back({{"term", embedding.term},
                                  {"table", json_or_null(embedding.table)},
                                  {"wavelengths", embedding.wavelength},
                                  {"unfinished", embedding.unfinished}});
  json["temperatures"] = Json::array();
  for (const TemperatureFacts& temperature : facts.temperatures)
    json["temperatures"].push_back({{"term", temperature.term}, {"factor", temperature.factor}});
  json["training_lengths"] = Json::array();
  for (const LengthClaim& claim : facts.claims)
    json["training_lengths"].push_back(
        {{"term", claim.term}, {"key", claim.key}, {"length", claim.length}, {"agrees", claim.agrees}});
  json["twice"] = facts.twice;
  json["memory"] = Json::array();
  for (const MemoryFacts& memory : facts.memory)
    json["memory"].push_back({{"length", memory.length},
                              {"naive_bias_bytes", memory.naive},
                              {"stored_bias_bytes", json_or_null(memory.stored)},
                              {"cache_float32_bytes", memory.cache_float32},
                              {"cache_bf16_bytes", memory.cache_bf16}});
  json["unknown"] = facts.unknown;
  return json;
}

Json diagnosis_to_json(const Diagnosis& diagnosis) {
  const Facts& facts = diagnosis.facts;
  Json json;
  json["format"] = "torsor-diagnosis-1";
  json["subject"] = diagnosis.checkpoint.empty() ? "expression" : "checkpoint";
  json["checkpoint"] = diagnosis.checkpoint.empty() ? Json(nullptr) : Json(diagnosis.checkpoint);
  json["encoding"] = facts.encoding;
  json["train_length"] = facts.dimensions.train_length;
  json["lengths"] = facts.lengths;
  json["model"] = {{"layers", diagnosis.layers},
                   {"heads", facts.dimensions.heads},
                   {"kv_heads", facts.dimensions.kv_heads},
                   {"head_dim", facts.dimensions.head_dim},
                   {"width", facts.dimensions.width}};
  json["verdict"] = diagnosis.verdict;
  json["findings"] = Json::array();
  for (const Finding& finding : diagnosis.findings)
    json["findings"].push_back({{"severity", severity_name(finding.severity)},
                                {"basis", finding.measured ? "measured" : "expected"},
                                {"topic", finding.topic},
                                {"from_length", json_or_null(finding.from)},
                                {"what", finding.what},
                                {"why", finding.why},
                                {"do", finding.advice}});
  json["facts"] = facts_to_json(facts);
  json["measured"] = diagnosis.measures ? measured_to_json(*diagnosis.measures) : Json(nullptr);
  json["not_measured"] = diagnosis.not_measured;
  json["bounds"] = {{"angle", kAngleBound}, {"faint", kFaintNats}};
  return json;
}

}  // namespace torsor
