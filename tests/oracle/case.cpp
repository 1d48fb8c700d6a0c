#include "tests/oracle/case.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

namespace oracle {
namespace {

const double minus_infinity = -std::numeric_limits<double>::infinity();

std::string shape_text(const std::vector<int>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i != 0 ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

void expect_shape(const Case& c, const Tensor& tensor, const std::vector<int>& shape, const std::string& what) {
  if (tensor.shape != shape) {
    throw Error("case '" + c.id + "': " + what + " must be " + shape_text(shape) + ", it is " +
                shape_text(tensor.shape));
  }
}

std::optional<Tensor> optional_tensor(const Json& json, const std::string& name) {
  if (!json.contains(name) || json[name].is_null()) return std::nullopt;
  return tensor_from_json(json[name], name);
}

// Without positions in the file, a token's position is its index in its row.
void index_positions(Case& c) {
  c.positions_k = Tensor({c.rows(), c.keys(), 1});
  c.positions_q = Tensor({c.rows(), c.queries(), 1});
  for (int b = 0; b < c.rows(); ++b) {
    const int length = c.key_lengths ? static_cast<int>(c.key_lengths->at(b)) : c.keys();
    for (int j = 0; j < c.keys(); ++j) c.positions_k.data[c.positions_k.index(b, j, 0)] = j;
    for (int i = 0; i < c.queries(); ++i) c.positions_q.data[c.positions_q.index(b, i, 0)] = i + length - c.queries();
  }
}

void check_shapes(const Case& c) {
  for (const Tensor* t : {&c.q, &c.k, &c.v}) {
    if (t->shape.size() != 4) throw Error("case '" + c.id + "': q, k and v have four axes");
  }
  const int B = c.rows();
  expect_shape(c, c.k, {B, c.key_heads(), c.keys(), c.head_dim()}, "k");
  expect_shape(c, c.v, {B, c.key_heads(), c.keys(), c.value_dim()}, "v");
  if (c.key_heads() < 1 || c.heads() % c.key_heads() != 0) {
    throw Error("case '" + c.id + "': the key heads must divide the query heads");
  }
  if (c.state && (c.state->shape.size() != 4 || c.state->size(0) != B || c.state->size(2) != c.keys())) {
    throw Error("case '" + c.id + "': state must be (B, Hs, Tk, W)");
  }
  if (c.mlp_out && (c.mlp_out->shape.size() != 3 || c.mlp_out->size(0) != B || c.mlp_out->size(1) != c.keys())) {
    throw Error("case '" + c.id + "': mlp_out must be (B, Tk, C)");
  }
  if (c.positions_k.shape.size() != 3) throw Error("case '" + c.id + "': positions have three axes");
  const int axes = c.positions_k.size(2);
  expect_shape(c, c.positions_k, {B, c.keys(), axes}, "positions_k");
  expect_shape(c, c.positions_q, {B, c.queries(), axes}, "positions_q");
  if (c.documents_q.has_value() != c.documents_k.has_value()) {
    throw Error("case '" + c.id + "': documents_q and documents_k go together");
  }
  if (c.documents_k) expect_shape(c, *c.documents_k, {B, c.keys()}, "documents_k");
  if (c.documents_q) expect_shape(c, *c.documents_q, {B, c.queries()}, "documents_q");
  if (c.key_lengths) expect_shape(c, *c.key_lengths, {B}, "key_lengths");
  for (const auto& [name, tensor] : c.named) {
    if (tensor.shape.size() < 2 || tensor.size(0) != B || tensor.size(1) != c.keys()) {
      throw Error("case '" + c.id + "': the input '" + name + "' must be (B, Tk, ...)");
    }
  }
  if (c.grad_out) expect_shape(c, *c.grad_out, {B, c.heads(), c.queries(), c.value_dim()}, "grad_out");
}

}  // namespace

Tensor::Tensor(std::vector<int> dims, double fill) : shape(std::move(dims)) {
  std::size_t count = 1;
  for (int n : shape) count *= static_cast<std::size_t>(n);
  data.assign(count, fill);
}

Tensor tensor_from_json(const Json& json, const std::string& what) {
  if (!json.is_object() || !json.contains("shape") || !json.contains("data")) {
    throw Error("'" + what + "' must be an object with shape and data");
  }
  Tensor tensor(json.at("shape").get<std::vector<int>>());
  const Json& data = json.at("data");
  if (data.size() != tensor.data.size()) {
    throw Error("'" + what + "' has " + std::to_string(data.size()) + " numbers, its shape says " +
                std::to_string(tensor.data.size()));
  }
  for (std::size_t i = 0; i < data.size(); ++i) {
    tensor.data[i] = data[i].is_null() ? minus_infinity : data[i].get<double>();
  }
  return tensor;
}

Json tensor_to_json(const Tensor& tensor, bool whole_numbers) {
  Json data = Json::array();
  for (double x : tensor.data) {
    if (x == minus_infinity) {
      data.push_back(nullptr);
    } else if (!std::isfinite(x)) {
      throw Error("a number that is not finite cannot be written");
    } else if (whole_numbers) {
      data.push_back(static_cast<long long>(x));
    } else {
      data.push_back(x == 0.0 ? 0.0 : x);  // no minus zero
    }
  }
  Json json;
  json["shape"] = tensor.shape;
  json["data"] = std::move(data);
  return json;
}

Case case_from_json(const Json& json) {
  Case c;
  c.id = json.at("id").get<std::string>();
  c.note = json.value("note", std::string());
  c.encoding = json.at("encoding").get<std::string>();
  const Json& in = json.at("inputs");
  static const std::set<std::string> read_here = {
      "q",           "k",           "v",     "x",      "positions_q", "positions_k", "documents_q",
      "documents_k", "key_lengths", "layer", "layers", "state",       "mlp_out",     "named"};
  for (const auto& [name, value] : in.items()) {
    if (read_here.count(name) == 0) throw Unsupported("input '" + name + "' is not read here");
  }
  c.q = tensor_from_json(in.at("q"), "q");
  c.k = tensor_from_json(in.at("k"), "k");
  c.v = tensor_from_json(in.at("v"), "v");
  c.x = optional_tensor(in, "x");
  c.state = optional_tensor(in, "state");
  c.mlp_out = optional_tensor(in, "mlp_out");
  c.documents_q = optional_tensor(in, "documents_q");
  c.documents_k = optional_tensor(in, "documents_k");
  c.key_lengths = optional_tensor(in, "key_lengths");
  if (in.contains("named"))
    for (const auto& [name, value] : in["named"].items()) c.named[name] = tensor_from_json(value, name);
  c.layer = in.value("layer", 0);
  c.layers = in.value("layers", 1);
  if (in.contains("positions_k") && in.contains("positions_q")) {
    c.positions_k = tensor_from_json(in["positions_k"], "positions_k");
    c.positions_q = tensor_from_json(in["positions_q"], "positions_q");
  } else {
    index_positions(c);
  }
  if (json.contains("parameters")) {
    for (const auto& [name, value] : json["parameters"].items()) c.parameters[name] = tensor_from_json(value, name);
  }
  c.causal = json.value("causal", true);
  if (json.contains("window") && !json["window"].is_null()) c.window = json["window"].get<int>();
  if (json.contains("scale") && !json["scale"].is_null()) c.scale = json["scale"].get<double>();
  c.grad_out = optional_tensor(json, "grad_out");
  check_shapes(c);
  return c;
}

Json case_to_json(const Case& c) {
  Json json;
  json["id"] = c.id;
  if (!c.note.empty()) json["note"] = c.note;
  json["encoding"] = c.encoding;
  Json& in = json["inputs"];
  in["q"] = tensor_to_json(c.q);
  in["k"] = tensor_to_json(c.k);
  in["v"] = tensor_to_json(c.v);
  if (c.x) in["x"] = tensor_to_json(*c.x);
  if (c.state) in["state"] = tensor_to_json(*c.state);
  if (c.mlp_out) in["mlp_out"] = tensor_to_json(*c.mlp_out);
  in["positions_q"] = tensor_to_json(c.positions_q);
  in["positions_k"] = tensor_to_json(c.positions_k);
  if (c.documents_q) in["documents_q"] = tensor_to_json(*c.documents_q, true);
  if (c.documents_k) in["documents_k"] = tensor_to_json(*c.documents_k, true);
  if (c.key_lengths) in["key_lengths"] = tensor_to_json(*c.key_lengths, true);
  for (const auto& [name, tensor] : c.named) in["named"][name] = tensor_to_json(tensor, name != "syntax.vectors");
  if (c.layers != 1) {
    in["layer"] = c.layer;
    in["layers"] = c.layers;
  }
  json["parameters"] = Json::object();
  for (const auto& [name, tensor] : c.parameters) json["parameters"][name] = tensor_to_json(tensor);
  json["causal"] = c.causal;
  json["window"] = c.window ? Json(*c.window) : Json(nullptr);
  json["scale"] = c.scale ? Json(*c.scale) : Json(nullptr);
  if (c.grad_out) json["grad_out"] = tensor_to_json(*c.grad_out);
  return json;
}

Outputs outputs_from_json(const Json& json) {
  Outputs outputs;
  for (const auto& [name, value] : json.items()) {
    if (name != "grad") {
      outputs[name] = tensor_from_json(value, name);
      continue;
    }
    for (const auto& [by, gradient] : value.items()) {
      if (by != "parameters") {
        outputs["grad." + by] = tensor_from_json(gradient, "grad." + by);
        continue;
      }
      for (const auto& [parameter, tensor] : gradient.items()) {
        outputs["grad.parameters." + parameter] = tensor_from_json(tensor, "grad of " + parameter);
      }
    }
  }
  return outputs;
}

Json outputs_to_json(const Outputs& outputs) {
  Json json = Json::object();
  for (const char* name : {"out", "lse", "state", "carried", "embedding"}) {
    if (outputs.count(name) != 0) json[name] = tensor_to_json(outputs.at(name));
  }
  const std::string prefix = "grad.parameters.";
  for (const char* by : {"q", "k", "v", "x", "state"}) {
    const std::string name = std::string("grad.") + by;
    if (outputs.count(name) != 0) json["grad"][by] = tensor_to_json(outputs.at(name));
  }
  if (json.contains("grad")) {
    json["grad"]["parameters"] = Json::object();
    for (const auto& [key, tensor] : outputs) {
      if (key.compare(0, prefix.size(), prefix) == 0) {
        json["grad"]["parameters"][key.substr(prefix.size())] = tensor_to_json(tensor);
      }
    }
  }
  return json;
}

Json read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(path + ": cannot be read");
  std::stringstream text;
  text << in.rdbuf();
  Json file;
  try {
    file = Json::parse(text.str());
  } catch (const Json::exception& e) {
    throw Error(path + ": " + e.what());
  }
  if (!file.is_object() || file.value("format", std::string()) != "torsor-conformance-1" || !file.contains("cases")) {
    throw Error(path + ": not a file of format torsor-conformance-1");
  }
  return file;
}

void write_file(const std::string& path, const Json& file) {
  const std::string temporary = path + ".part";
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out << "{";
    bool first = true;
    for (const auto& [name, value] : file.items()) {
      if (name == "cases") continue;
      out << (first ? "" : ",") << Json(name).dump() << ":" << value.dump();
      first = false;
    }
    out << ",\"cases\":[";
    first = true;
    for (const Json& c : file.at("cases")) {
      out << (first ? "\n" : ",\n") << c.dump();
      first = false;
    }
    out << "\n]}\n";
    out.flush();
    if (!out) throw Error(path + ": cannot be written");
  }
  std::filesystem::rename(temporary, path);
}

}  // namespace oracle
