#include "torsor/model/adapter.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "torsor/base/file.h"
#include "torsor/base/hash.h"
#include "torsor/base/utf8.h"
#include "torsor/model/convert_leaves.h"
#include "torsor/model/hugging_face.h"
#include "torsor/train/snapshot.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "torsor-adapter-1";
constexpr const char* kSource = "the base checkpoint";

bool holds(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// Whether a tensor of the model itself (no low-rank term) is trained.
bool is_trained(const AdapterPlan& plan, const std::string& name) {
  if (is_positional(name)) return plan.trains("positions");
  if (name == kEmbeddingName) return plan.trains("embeddings");
  return plan.trains("norms") && (ends_with(name, "norm.weight"));
}

/// Sizes of the encoding's tensors by name, as a model of this configuration has them.
std::map<std::string, std::int64_t> position_sizes(const ModelConfig& config) {
  const auto whole = make_encoding(config.encoding, config.dimensions());
  std::map<std::string, std::int64_t> sizes;
  const auto take = [&](const ParameterInfo& info, std::int64_t layer) {
    std::int64_t size = 1;
    for (const std::int64_t extent : info.shape) size *= extent;
    sizes[info.shared ? info.name : str(layer, ".", info.name)] = size;
  };
  if (whole->traits().absolute)
    for (const ParameterInfo& info : whole->parameters(0))
      if (info.shared) take(info, 0);
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    for (const ParameterInfo& info : layer_encoding(whole, layer)->parameters(layer)) take(info, layer);
  return sizes;
}

/// For every tensor of an expression in a model, the term that it belongs to and the heads that this answers for.
std::map<std::string, std::string> owners(const Expression& expression, const ModelConfig& config) {
  std::map<std::string, std::string> found;
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    for (const Leaf& leaf : leaves_of(expression, config.dimensions(), layer))
      for (const ParameterInfo& info : leaf.encoding->parameters(layer)) {
        const std::string name = info.name.substr(0, info.name.find('.'));
        const Term* term = &leaf.term;
        while (term->name != name && !term->operands.empty()) term = &term->operands.front().expression.terms.front();
        found[leaf.parameter_name(info, layer)] = str(print(*term), " on ", leaf.first_head, "+", leaf.heads());
      }
  return found;
}

/// `encoding` inside tape(...).
std::string wrapped(const std::string& encoding) {
  const Expression expression = parse(encoding);
  const Term& term = expression.terms.front();
  if (expression.terms.size() == 1 && term.name == "tape") return encoding;
  const NameInfo* info = find_name(term.name);
  if (expression.terms.size() != 1 || !info->rotary)
    throw UsageError(
        str("tape(...) needs one rotation (rope or a scaling of it) to start from, and the checkpoint has '", encoding,
            "'; give --encoding 'tape(...)' with one, or --train lora or positions"));
  return str("tape(", encoding, ")");
}

AdapterPlan checked_words(AdapterPlan plan) {
  if (plan.train != "lora" && plan.train != "positions" && plan.train != "tape")
    throw UsageError(str("train must be lora, positions or tape, found '", plan.train, "'"));
  if (plan.train == "lora") check_lora(plan.lora);
  for (std::size_t n = 0; n < plan.with.size(); ++n) {
    const std::string& part = plan.with[n];
    if (part != "embeddings" && part != "norms" && part != "positions")
      throw UsageError(str("with must be among embeddings, norms, positions, found '", part, "'"));
    if (part == "positions" && plan.train != "lora")
      throw UsageError(str("with names positions, which train=", plan.train, " trains already"));
    if (std::count(plan.with.begin(), plan.with.end(), part) > 1) throw UsageError(str("with names ", part, " twice"));
  }
  return plan;
}

Json base_json(const ModelConfig& config) {
  return {{"encoding", config.encoding},
          {"model", model_to_json(config)},
          {"vocabulary_size", config.vocabulary_size},
          {"train_length", config.train_length}};
}

}  // namespace

bool AdapterPlan::trains(const std::string& part) const {
  if (part == "lora") return train == "lora";
  if (part == "positions" && train != "lora") return true;
  return holds(with, part);
}

AdapterPlan complete_plan(AdapterPlan plan, const ModelConfig& base) {
  plan = checked_words(std::move(plan));
  ModelConfig config = base;
  config.complete();
  if (plan.encoding.empty()) plan.encoding = plan.train == "tape" ? wrapped(config.encoding) : config.encoding;
  const Expression expression = parse(plan.encoding);
  plan.encoding = print(expression);
  const auto is_tape = [](const Term& term) { return term.name == "tape"; };
  if (plan.train == "tape" && std::none_of(expression.terms.begin(), expression.terms.end(), is_tape))
    throw UsageError(str("train=tape needs an encoding tape(...), found '", plan.encoding, "'"));
  config.encoding = plan.encoding;
  if (plan.trains("positions") && position_sizes(config).empty())
    throw UsageError(
        str("'", plan.encoding, "' has no trained tensors; give an --encoding that has some, or --train lora alone"));
  return plan;
}

std::int64_t trained_count(const ModelConfig& base, const AdapterPlan& wanted) {
  ModelConfig config = base;
  config.complete();
  const AdapterPlan plan = complete_plan(wanted, config);
  config.encoding = plan.encoding;
  std::int64_t count = 0;
  if (plan.trains("lora"))
    for (const LoraPlace& place : lora_places(config, plan.lora))
      count += plan.lora.rank * (place.inputs + place.outputs);
  if (plan.trains("positions"))
    for (const auto& [name, size] : position_sizes(config)) count += size;
  if (plan.trains("embeddings")) count += config.vocabulary_size * config.width;
  if (plan.trains("norms")) {
    count += (2 * config.layers + 1) * config.width;
    if (config.qk_norm != QkNorm::None) count += 2 * config.layers * config.head_dim;
  }
  return count;
}

TunedModel make_tuned(const Decoder& base, const AdapterPlan& wanted, std::uint64_t seed) {
  const at::NoGradGuard no_gradient;
  ModelConfig config = base.config();
  const AdapterPlan plan = complete_plan(wanted, config);
  const auto before = owners(parse(config.encoding), config), after = owners(parse(plan.encoding), config);
  config.encoding = plan.encoding;
  std::map<std::string, at::Tensor> weights;
  for (const ModelParameter& parameter : base.parameters()) {
    const std::string& name = parameter.name;
    if (is_positional(name)) {
      const auto from = before.find(name), to = after.find(name);
      if (from == before.end() || to == after.end() || from->second != to->second) continue;
    }
    const at::Tensor tensor = parameter.tensor.detach();
    weights[name] = is_trained(plan, name) ? tensor.clone() : tensor;
  }
  TunedModel tuned{plan, Decoder(config, weights, kSource, seed), {}, {}, {}, {}};
  for (const ModelParameter& parameter : tuned.model.parameters()) {
    const bool fresh = weights.count(parameter.name) == 0;
    if (fresh) tuned.fresh.push_back(parameter.name);
    if (is_trained(plan, parameter.name))
      tuned.trained.push_back(parameter);
    else if (fresh)
      tuned.drawn.push_back(parameter);
  }
  if (plan.trains("lora")) {
    tuned.low_rank.resize(static_cast<std::size_t>(config.layers));
    for (const LoraPlace& place : lora_places(config, plan.lora)) {
      const LowRank term = initial_low_rank(place, plan.lora, seed);
      low_rank_of(tuned.low_rank[static_cast<std::size_t>(place.layer)], place.module) = term;
      tuned.trained.push_back({place.a_name(), term.a, true});
      tuned.trained.push_back({place.b_name(), term.b, true});
    }
    tuned.model.attach(tuned.low_rank);
  }
  for (ModelParameter& parameter : tuned.trained) parameter.tensor.requires_grad_(true);
  return tuned;
}

std::int64_t TunedModel::trained_count() const {
  std::int64_t count = 0;
  for (const ModelParameter& parameter : trained) count += parameter.tensor.numel();
  return count;
}

std::int64_t TunedModel::frozen_count() const {
  std::int64_t count = 0;
  for (const ModelParameter& parameter : model.parameters())
    if (!is_trained(plan, parameter.name)) count += parameter.tensor.numel();
  return count;
}

Decoder TunedModel::merged() const {
  const at::NoGradGuard no_gradient;
  std::map<std::string, at::Tensor> weights;
  for (const ModelParameter& parameter : model.parameters()) weights[parameter.name] = parameter.tensor.detach();
  if (plan.trains("lora"))
    for (const LoraPlace& place : lora_places(model.config(), plan.lora)) {
      LayerLowRank layer = low_rank[static_cast<std::size_t>(place.layer)];
      at::Tensor& weight = weights.at(place.weight_name());
      weight = torsor::merged(weight, low_rank_of(layer, place.module));
    }
  return Decoder(model.config(), weights, "the merged model");
}

std::string weights_sha256(const std::string& checkpoint) {
  const auto hash = [](const std::string& path) { return sha256_hex(MappedFile(path).bytes()); };
  if (fs::is_regular_file(checkpoint)) return hash(checkpoint);
  const std::vector<std::string> files = weight_files(checkpoint);
  if (files.size() == 1) return hash(checkpoint + "/" + files.front());
  std::string all;
  for (const std::string& file : files) all += str(file, ' ', hash(checkpoint + "/" + file), '\n');
  return sha256_hex(all);
}

Json adapter_to_json(const AdapterPlan& plan) {
  Json json;
  json["train"] = plan.train;
  json["encoding"] = plan.encoding;
  if (plan.trains("lora")) {
    json["rank"] = plan.lora.rank;
    json["alpha"] = plan.lora.alpha;
    json["modules"] = plan.lora.modules;
  }
  json["with"] = plan.with;
  return json;
}

void save_adapter(const std::string& folder, const TunedModel& tuned, const AdapterBase& base, const Json& run) {
  make_directories(folder);
  const std::string path = folder + "/adapter.safetensors";
  std::map<std::string, at::Tensor> tensors;
  for (const auto* list : {&tuned.trained, &tuned.drawn})
    for (const ModelParameter& parameter : *list) tensors[parameter.name] = parameter.tensor.detach();
  save_tensors(path, tensors, {{"format", "pt"}, {"plan", adapter_to_json(tuned.plan).dump()}});
  const AdapterPlan& plan = tuned.plan;
  Json json;
  json["format"] = kFormat;
  json["base"] = base_json(base.config);
  std::error_code no_common_root;
  const fs::path relative = fs::relative(base.folder, folder, no_common_root);
  json["base"]["path"] = relative.empty() ? base.folder : relative.generic_string();
  json["base"]["weights_sha256"] = base.weights_sha256;
  json.update(adapter_to_json(plan));
  json["tokenizer"] = base.tokenizer;
  json["trained_parameters"] = tuned.trained_count();
  json["tensors_sha256"] = sha256_hex(MappedFile(path).bytes());
  json["run"] = run;
  write_file_atomic(folder + "/adapter.json", json_text(json, 2) + "\n");
}

bool is_adapter(const std::string& folder) {
  std::error_code ignored;
  return fs::exists(folder + "/adapter.json", ignored);
}

namespace {

struct Record {
  AdapterPlan plan;
  std::string base_path, weights_sha256, tensors_sha256, tokenizer;
  Json base;  ///< what base_json() said
  std::int64_t trained = 0;
  Json run;
};

Record read_record(const std::string& path) {
  const Json json = read_json(path);
  JsonObject object(json, path, JsonObject::Blame::data);
  const auto format = object.get<std::string>("format");
  if (format != kFormat) object.fail(str("format must be ", kFormat, ", found ", quote(format)));
  Record record;
  JsonObject base = object.object("base");
  record.base_path = base.get<std::string>("path");
  record.weights_sha256 = base.get<std::string>("weights_sha256");
  for (const char* key : {"encoding", "model", "vocabulary_size", "train_length"})
    record.base[key] = base.get<Json>(key);
  base.finish();
  record.plan.train = object.get<std::string>("train");
  if (record.plan.train != "lora" && record.plan.train != "positions" && record.plan.train != "tape")
    object.fail(str("train must be lora, positions or tape, found ", quote(record.plan.train)));
  record.plan.encoding = object.get<std::string>("encoding");
  if (record.plan.encoding.empty()) object.fail("encoding must be an expression, found an empty text");
  if (record.plan.train == "lora") {
    record.plan.lora.rank = object.get<std::int64_t>("rank");
    record.plan.lora.alpha = object.get<double>("alpha");
    record.plan.lora.modules = object.get<std::vector<std::string>>("modules");
  }
  record.plan.with = object.get<std::vector<std::string>>("with");
  record.tokenizer = object.get<std::string>("tokenizer");
  record.trained = object.get<std::int64_t>("trained_parameters");
  record.tensors_sha256 = object.get<std::string>("tensors_sha256");
  record.run = object.get<Json>("run");
  object.finish();
  return record;
}

/// The base as the adapter knew it, or an error that says what is another.
LoadedModel read_base(const std::string& folder, const std::string& path, const Record& record,
                      const std::string& given) {
  const std::string where = given.empty() ? (fs::path(folder) / record.base_path).lexically_normal().string() : given;
  if (is_adapter(where)) throw Error(str(path, ": the base '", where, "' is an adapter itself; merge that one first"));
  std::error_code ignored;
  if (!fs::exists(where, ignored) ||
      (fs::is_directory(where, ignored) && !fs::exists(where + "/" + weight_files(where).front(), ignored)))
    throw Error(str(path, ": no base checkpoint in '", where, "'; say where it is with --base"));
  const std::string found = weights_sha256(where);
  if (found != record.weights_sha256)
    throw Error(str(path, ": made on weights with SHA-256 ", record.weights_sha256.substr(0, 16), "..., but '", where,
                    "' has ", found.substr(0, 16), "...: another base checkpoint"));
  LoadedModel base = load_checkpoint(where);
  if (const std::string difference = first_difference(base_json(base.model.config()), record.base); !difference.empty())
    throw Error(str(path, ": the configuration of the base '", where, "' is another: ", difference));
  return base;
}

}  // namespace

LoadedAdapter load_adapter(const std::string& folder, const std::string& given) {
  const std::string path = folder + "/adapter.json", tensors = folder + "/adapter.safetensors";
  const Record record = read_record(path);
  const LoadedModel base = read_base(folder, path, record, given);
  try {
    // Counted from shapes first: a rank or width that a damaged file makes up is refused before memory is asked for.
    const std::int64_t count = trained_count(base.model.config(), record.plan);
    if (count != record.trained)
      throw Error(str(path, ": its plan trains ", count, " numbers, trained_parameters says ", record.trained));
    const TensorFile file = load_tensors(tensors);
    ModelConfig config = base.model.config();
    config.encoding = record.plan.encoding;
    std::int64_t here = base.model.parameter_count(), needed = 0;
    for (const auto& [name, tensor] : file.tensors) here += tensor.numel();
    for (const auto& [name, size] : position_sizes(config)) needed += size;
    if (std::max(count, needed) > here)
      throw Error(str(tensors, ": holds too little for the ", std::max(count, needed), " numbers of ", path));
    if (sha256_hex(MappedFile(tensors).bytes()) != record.tensors_sha256)
      throw Error(str(tensors, ": not the tensors that ", path, " was written for: SHA-256 differs"));
    const auto meant = file.metadata.find("plan");
    if (meant == file.metadata.end()) throw Error(str(tensors, ": does not say what it was trained as"));
    if (const std::string difference =
            first_difference(adapter_to_json(record.plan), parse_json(meant->second, tensors + ": plan"));
        !difference.empty())
      throw Error(str(path, ": not what ", tensors, " was trained as: ", difference));
    LoadedAdapter loaded{make_tuned(base.model, record.plan, 0),
                         {given.empty() ? (fs::path(folder) / record.base_path).lexically_normal().string() : given,
                          record.weights_sha256, base.tokenizer, base.model.config(), base.embedder, base.reader},
                         record.run};
    const at::NoGradGuard no_gradient;
    std::set<std::string> known;
    for (const auto* list : {&loaded.tuned.trained, &loaded.tuned.drawn})
      for (const ModelParameter& parameter : *list) {
        const at::Tensor& found = find_tensor(file.tensors, parameter.name, parameter.tensor, tensors);
        if (!at::isfinite(found).all().item<bool>())
          throw Error(str(tensors, ": the tensor ", parameter.name, " holds numbers that are not finite"));
        parameter.tensor.copy_(found);
        known.insert(parameter.name);
      }
    for (const auto& [name, tensor] : file.tensors)
      if (known.count(name) == 0) throw Error(str(tensors, ": the tensor ", name, " has no place in the adapter"));
    return loaded;
  } catch (const UsageError& error) {
    // A bad word in a file is bad data, not a bad request.
    throw Error(str(path, ": ", error.what()));
  }
}

}  // namespace torsor
