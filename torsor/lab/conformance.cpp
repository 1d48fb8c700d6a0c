#include "torsor/lab/conformance.h"

#include <cmath>
#include <limits>

#include "torsor/base/error.h"
#include "torsor/base/file.h"

namespace torsor {
namespace {

constexpr double kNull = -std::numeric_limits<double>::infinity();  // what a null of the format stands for
constexpr std::size_t kMostAxes = 8;                                // no tensor of the format has more than four
constexpr double kLargestWhole = 9007199254740992.0;                // 2^53: whole numbers above have gaps

[[noreturn]] void bad(const std::string& where, const std::string& problem) { throw Error(str(where, ": ", problem)); }

/// The shape of a tensor, checked against the count of its numbers before anything is allocated.
std::vector<std::int64_t> read_shape(const Json& json, std::size_t count, const std::string& where) {
  if (!json.is_array() || json.size() > kMostAxes)
    bad(where, str("shape must be a list of at most ", kMostAxes, " whole numbers"));
  std::vector<std::int64_t> shape;
  std::int64_t product = 1;
  bool empty = false, overflow = false;
  for (const Json& entry : json) {
    if (!entry.is_number_integer() || entry < 0 || entry > std::numeric_limits<std::int64_t>::max())
      bad(where, str("shape must hold whole numbers of at least 0, found ", json_text(entry)));
    const std::int64_t extent = entry.get<std::int64_t>();
    empty |= extent == 0;
    overflow |= __builtin_mul_overflow(product, extent, &product);
    shape.push_back(extent);
  }
  if (empty) product = 0;
  if (overflow && !empty) bad(where, str("shape ", json_text(json), " has more numbers than can be counted"));
  if (static_cast<std::uint64_t>(product) != count)
    bad(where, str("shape ", json_text(json), " means ", product, " numbers, data holds ", count));
  return shape;
}

at::Tensor read_tensor(const Json& json, const std::string& where) {
  if (!json.is_object()) bad(where, str("expected {\"shape\": [...], \"data\": [...]}, found ", json.type_name()));
  JsonObject object(json, where, JsonObject::Blame::data);
  const Json shape_json = object.get<Json>("shape");
  object.allow("data");
  object.finish();
  const auto found = json.find("data");
  if (found == json.end()) bad(where, "data is missing");
  const Json& data = *found;
  if (!data.is_array()) bad(where, str("data must be a flat list of numbers, found ", data.type_name()));
  const std::vector<std::int64_t> shape = read_shape(shape_json, data.size(), where);
  at::Tensor tensor = at::empty(shape, at::kDouble);
  double* out = tensor.data_ptr<double>();
  std::size_t index = 0;
  for (const Json& entry : data) {
    if (entry.is_null()) {
      out[index] = kNull;
    } else if (entry.is_number()) {
      out[index] = entry.get<double>();
    } else {
      bad(where, str("data[", index, "] must be a number or null (minus infinity), found ", entry.type_name()));
    }
    ++index;
  }
  return tensor;
}

at::Tensor whole_numbers(const at::Tensor& tensor, const std::string& where) {
  if (tensor.numel() > 0 && !tensor.eq(tensor.floor()).logical_and(tensor.abs().le(kLargestWhole)).all().item<bool>())
    bad(where, "data must be whole numbers");
  return tensor.to(at::kLong);
}

/// Reads the tensors of one object by key.
class TensorReader {
 public:
  TensorReader(JsonObject& object, std::string where) : object_(object), where_(std::move(where)) {}

  at::Tensor required(const std::string& key) {
    if (!object_.has(key)) bad(where_, str("'", key, "' is missing"));
    return optional(key);
  }
  at::Tensor optional(const std::string& key) {
    return object_.has(key) ? read_tensor(object_.get<Json>(key), str(where_, '.', key)) : at::Tensor();
  }
  at::Tensor whole(const std::string& key) {
    const at::Tensor tensor = optional(key);
    return tensor.defined() ? whole_numbers(tensor, str(where_, '.', key)) : tensor;
  }

 private:
  JsonObject& object_;
  std::string where_;
};

NamedTensors read_named(const Json& json, const std::string& where) {
  if (!json.is_object()) bad(where, str("expected an object of tensors, found ", json.type_name()));
  NamedTensors tensors;
  for (const auto& [name, value] : json.items()) tensors.emplace(name, read_tensor(value, str(where, '.', name)));
  return tensors;
}

void expect(const ConformanceCase& c, const at::Tensor& tensor, const std::vector<std::int64_t>& shape,
            const char* name, const char* meaning) {
  if (tensor.defined() && tensor.sizes() != at::IntArrayRef(shape))
    bad(c.where, str(name, *meaning ? " " : "", meaning, " must have shape ", at::IntArrayRef(shape), ", found ",
                     tensor.sizes()));
}

/// What must hold whatever the encoding is.
void check_shapes(const ConformanceCase& c) {
  for (const auto& [name, tensor] :
       {std::pair("inputs.q", c.q), std::pair("inputs.k", c.k), std::pair("inputs.v", c.v)})
    if (tensor.dim() != 4)
      bad(c.where, str(name, " must have four axes (batch, heads, tokens, width), found shape ", tensor.sizes()));
  const std::int64_t B = c.q.size(0), Hq = c.q.size(1), Tq = c.q.size(2), D = c.q.size(3);
  const std::int64_t Hk = c.k.size(1), Tk = c.k.size(2), Dv = c.v.size(3);
  expect(c, c.k, {B, Hk, Tk, D}, "inputs.k", "(B, Hk, Tk, D)");
  expect(c, c.v, {B, Hk, Tk, Dv}, "inputs.v", "(B, Hk, Tk, Dv)");
  if (Hq < 1 || Hk < 1 || Hq % Hk != 0)
    bad(c.where, str("the key heads must divide the query heads, found ", Hq, " and ", Hk));
  if (D < 1) bad(c.where, "inputs.q must have a head width of at least 1");
  if (c.x.defined() && (c.x.dim() != 3 || c.x.size(0) != B || c.x.size(1) != Tk))
    bad(c.where, str("inputs.x (B, Tk, C) must have shape [", B, ", ", Tk, ", C], found ", c.x.sizes()));
  if (c.state.defined() && (c.state.dim() != 4 || c.state.size(0) != B || c.state.size(2) != Tk))
    bad(c.where,
        str("inputs.state (B, Hs, Tk, W) must have shape [", B, ", Hs, ", Tk, ", W], found ", c.state.sizes()));
  if (c.mlp_out.defined() && (c.mlp_out.dim() != 3 || c.mlp_out.size(0) != B || c.mlp_out.size(1) != Tk))
    bad(c.where, str("inputs.mlp_out (B, Tk, C) must have shape [", B, ", ", Tk, ", C], found ", c.mlp_out.sizes()));
  if (c.x.defined() && c.mlp_out.defined())
    expect(c, c.mlp_out, {B, Tk, c.x.size(2)}, "inputs.mlp_out", "(B, Tk, C), C as in inputs.x,");
  if (c.positions_k.defined()) {
    if (c.positions_k.dim() != 3) bad(c.where, str("inputs.positions_k (B, Tk, axes) found ", c.positions_k.sizes()));
    expect(c, c.positions_k, {B, Tk, c.positions_k.size(2)}, "inputs.positions_k", "(B, Tk, axes)");
    expect(c, c.positions_q, {B, Tq, c.positions_k.size(2)}, "inputs.positions_q", "(B, Tq, axes)");
  } else if (c.positions_q.defined()) {
    bad(c.where, "inputs.positions_q was given without positions_k");
  }
  for (const at::Tensor& positions : {c.positions_q, c.positions_k})
    if (positions.defined() && !positions.isfinite().all().item<bool>()) bad(c.where, "positions must be finite");
  if (c.documents_q.defined() && !c.documents_k.defined())
    bad(c.where, "inputs.documents_q was given without documents_k");
  expect(c, c.documents_k, {B, Tk}, "inputs.documents_k", "(B, Tk)");
  expect(c, c.documents_q, {B, Tq}, "inputs.documents_q", "(B, Tq)");
  expect(c, c.key_lengths, {B}, "inputs.key_lengths", "(B)");
  if (c.key_lengths.defined() && B > 0 && !c.key_lengths.ge(0).logical_and(c.key_lengths.le(Tk)).all().item<bool>())
    bad(c.where, str("inputs.key_lengths must lie in [0, ", Tk, "]"));
  expect(c, c.grad_out, {B, Hq, Tq, Dv}, "grad_out", "(B, Hq, Tq, Dv)");
  const auto output = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
    const auto found = c.outputs.find(name);
    if (found != c.outputs.end()) expect(c, found->second, shape, ("outputs." + name).c_str(), "");
  };
  output("out", {B, Hq, Tq, Dv});
  output("lse", {B, Hq, Tq});
  output("grad.q", c.q.sizes().vec());
  output("grad.k", c.k.sizes().vec());
  output("grad.v", c.v.sizes().vec());
  if (c.x.defined()) output("grad.x", c.x.sizes().vec());
  if (c.state.defined()) output("grad.state", c.state.sizes().vec());
  if (!c.state.defined() && c.outputs.count("grad.state"))
    bad(c.where, "outputs.grad.state is the gradient of inputs.state, which is missing");
  if (c.state.defined()) output("state", c.state.sizes().vec());
  for (const auto& [name, tensor] : c.parameters) output("grad.parameters." + name, tensor.sizes().vec());
  if (c.layers < 1 || c.layer < 0 || c.layer >= c.layers)
    bad(c.where, str("inputs.layer must lie in [0, layers), found layer ", c.layer, " of ", c.layers));
  if (c.window && *c.window < 1) bad(c.where, str("window must be null or at least 1, found ", *c.window));
}

void read_inputs(ConformanceCase& c, const Json& json) {
  JsonObject object(json, c.where + ": inputs", JsonObject::Blame::data);
  TensorReader tensors(object, c.where + ": inputs");
  c.q = tensors.required("q");
  c.k = tensors.required("k");
  c.v = tensors.required("v");
  c.x = tensors.optional("x");
  c.positions_q = tensors.optional("positions_q");
  c.positions_k = tensors.optional("positions_k");
  c.documents_q = tensors.whole("documents_q");
  c.documents_k = tensors.whole("documents_k");
  c.key_lengths = tensors.whole("key_lengths");
  c.state = tensors.optional("state");
  c.mlp_out = tensors.optional("mlp_out");
  if (object.has("named")) c.named = read_named(object.get<Json>("named"), c.where + ": inputs.named");
  c.layer = object.get<std::int64_t>("layer", 0);
  c.layers = object.get<std::int64_t>("layers", c.layer + 1);
  object.finish();
}

void read_outputs(ConformanceCase& c, const Json& json) {
  const std::string where = c.where + ": outputs";
  JsonObject object(json, where, JsonObject::Blame::data);
  TensorReader tensors(object, where);
  for (const char* name : {"out", "lse", "state", "carried", "embedding"})
    if (object.has(name)) c.outputs.emplace(name, tensors.optional(name));
  if (object.has("grad")) {
    const Json grad = object.get<Json>("grad");
    JsonObject gradients(grad, where + ".grad", JsonObject::Blame::data);
    TensorReader of(gradients, where + ".grad");
    for (const char* name : {"q", "k", "v", "x", "state"})
      if (gradients.has(name)) c.outputs.emplace(str("grad.", name), of.optional(name));
    if (gradients.has("parameters"))
      for (const auto& [name, tensor] : read_named(gradients.get<Json>("parameters"), where + ".grad.parameters"))
        c.outputs.emplace("grad.parameters." + name, tensor);
    gradients.finish();
  }
  object.finish();
}

void read_tolerance(ConformanceCase& c, const Json& json) {
  const std::string where = c.where + ": tolerance";
  if (!json.is_object()) bad(where, str("expected an object by dtype, found ", json.type_name()));
  for (const auto& [dtype, value] : json.items()) {
    JsonObject object(value, str(where, '.', dtype), JsonObject::Blame::data);
    const Tolerance one{object.get<double>("rel", 0.0), object.get<double>("abs", 0.0)};
    if (!(one.rel >= 0) || !(one.abs >= 0)) object.fail("rel and abs must be at least 0");
    object.finish();
    c.tolerance.emplace(dtype, one);
  }
}

ConformanceCase read_case(const Json& json, const std::string& source, std::size_t index) {
  ConformanceCase c;
  c.where = str(source, ": cases[", index, "]");
  JsonObject object(json, c.where, JsonObject::Blame::data);
  c.id = object.get<std::string>("id");
  c.where = str(source, ": case '", c.id, "'");
  object.allow("note");
  c.encoding = object.get<std::string>("encoding");
  read_inputs(c, object.get<Json>("inputs"));
  if (object.has("parameters")) c.parameters = read_named(object.get<Json>("parameters"), c.where + ": parameters");
  c.causal = object.get<bool>("causal", true);
  c.window = object.get<std::optional<std::int64_t>>("window", std::nullopt);
  c.scale = object.get<std::optional<double>>("scale", std::nullopt);
  if (object.has("grad_out")) c.grad_out = read_tensor(object.get<Json>("grad_out"), c.where + ": grad_out");
  if (object.has("outputs")) read_outputs(c, object.get<Json>("outputs"));
  for (const auto& [name, tensor] : c.outputs)
    if (name.starts_with("grad.") && !c.grad_out.defined())
      bad(c.where, str("outputs.", name, " is a gradient and needs grad_out, the gradient of out that it comes from"));
  if (object.has("tolerance")) read_tolerance(c, object.get<Json>("tolerance"));
  object.finish();
  check_shapes(c);
  return c;
}

}  // namespace

ConformanceFile parse_conformance(const std::string& text, const std::string& source, Faulty faulty) {
  ConformanceFile file;
  file.json = parse_json(text, source);
  JsonObject object(file.json, source, JsonObject::Blame::data);
  if (!object.has("format")) bad(source, "not a conformance file: it names no format");
  const std::string format = object.get<std::string>("format");
  if (format != "torsor-conformance-1") bad(source, str("format must be 'torsor-conformance-1', found '", format, "'"));
  object.allow("about");
  object.allow("cases");
  object.finish();
  const auto cases = file.json.find("cases");
  if (cases == file.json.end() || !cases->is_array()) bad(source, "cases must be a list");
  for (std::size_t i = 0; i < cases->size(); ++i) {
    const Json& one = (*cases)[i];
    try {
      file.cases.push_back(read_case(one, source, i));
    } catch (const Error& error) {
      if (faulty == Faulty::Refused) throw;
      ConformanceCase broken;
      const bool named = one.is_object() && one.contains("id") && one.at("id").is_string();
      broken.id = named ? one.at("id").get<std::string>() : str("cases[", i, "]");
      broken.where = str(source, ": ", named ? "case '" + broken.id + "'" : broken.id);
      broken.fault = error.what();
      file.cases.push_back(std::move(broken));
    }
  }
  return file;
}

ConformanceFile read_conformance(const std::string& path, Faulty faulty) {
  return parse_conformance(read_file(path), path, faulty);
}

std::string conformance_text(const Json& document) {
  std::string text = "{";
  for (const auto& [key, value] : document.items())
    if (key != "cases") text += (text.size() > 1 ? "," : "") + json_text(Json(key)) + ":" + json_text(value);
  text += text.size() > 1 ? ",\"cases\":[" : "\"cases\":[";
  bool first = true;
  for (const Json& one : document.at("cases")) {
    text += (first ? "\n" : ",\n") + json_text(one);
    first = false;
  }
  return text + "\n]}\n";
}

Json tensor_to_json(const at::Tensor& tensor, const std::string& what) {
  const at::Tensor plain = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  const double* values = plain.const_data_ptr<double>();
  Json json;
  json["shape"] = plain.sizes().vec();
  Json data = Json::array();
  for (std::int64_t i = 0; i < plain.numel(); ++i) {
    if (values[i] == kNull) {
      data.push_back(nullptr);
    } else if (std::isfinite(values[i])) {
      data.push_back(values[i] == 0 ? 0.0 : values[i]);  // no minus zero
    } else {
      throw Error(str(what, " holds a number that is not finite"));
    }
  }
  json["data"] = std::move(data);
  return json;
}

}  // namespace torsor
