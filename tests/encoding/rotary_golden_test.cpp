// Rotary encodings and temperatures against the shared float64 values: outputs and every gradient, from the answers;
// outputs from the definition.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdlib>
#include <filesystem>

#include "tests/encoding/rotary_case.h"
#include "torsor/base/json.h"

namespace torsor::rotary_test {
namespace {

std::string golden_file() {
  const char* shared = std::getenv("TORSOR_SHARED");
  return (shared ? std::string(shared) : std::string(TORSOR_SOURCE_DIR) + "/../shared") +
         "/golden/golden-attention.json";
}

at::Tensor tensor_of(const Json& json) {
  std::vector<std::int64_t> shape;
  for (const Json& extent : json.at("shape")) shape.push_back(extent.get<std::int64_t>());
  std::vector<double> data;
  for (const Json& value : json.at("data")) data.push_back(value.is_null() ? -1e300 : value.get<double>());
  return at::tensor(data, at::kDouble).view(shape);
}

bool is_ours(const std::string& encoding) {
  for (const char* other :
       {"alibi", "t5", "fox", "grape", "tape", "sipe", "sinusoidal", "learned(", "heads(", "layers("})
    if (encoding.find(other) != std::string::npos) return false;
  for (const char* name : {"rope", "xpos", "logn", "llama4-scale"})
    if (encoding.find(name) != std::string::npos) return true;
  return false;
}

Call call_of(const Json& one) {
  const Json& inputs = one.at("inputs");
  Call call;
  call.q = tensor_of(inputs.at("q")).requires_grad_(true);
  call.k = tensor_of(inputs.at("k")).requires_grad_(true);
  call.v = tensor_of(inputs.at("v")).requires_grad_(true);
  call.query.positions = tensor_of(inputs.at("positions_q"));
  call.key.positions = tensor_of(inputs.at("positions_k"));
  if (inputs.contains("documents_q")) call.query.documents = tensor_of(inputs.at("documents_q")).to(at::kLong);
  if (inputs.contains("documents_k")) call.key.documents = tensor_of(inputs.at("documents_k")).to(at::kLong);
  if (inputs.contains("key_lengths")) call.key.lengths = tensor_of(inputs.at("key_lengths")).to(at::kLong);
  call.causal = one.at("causal").get<bool>();
  call.encoding = make_encoding(one.at("encoding").get<std::string>(),
                                {.heads = call.q.size(1), .kv_heads = call.k.size(1), .head_dim = call.q.size(3)});
  for (const auto& [name, value] : one.at("parameters").items())
    call.parameters[name] = tensor_of(value).requires_grad_(true);
  return call;
}

TEST(RotaryGolden, OutputsAndGradientsEqualTheSharedValues) {
  if (!std::filesystem::exists(golden_file())) GTEST_SKIP() << "no shared golden values";
  const Json file = read_json(golden_file());
  int seen = 0;
  for (const Json& one : file.at("cases")) {
    if (!is_ours(one.at("encoding").get<std::string>()) || !one.at("window").is_null()) continue;
    SCOPED_TRACE(one.at("id").get<std::string>() + ": " + one.at("encoding").get<std::string>());
    const Call call = call_of(one);
    EXPECT_NO_THROW(check_parameters(*call.encoding, 0, call.parameters));
    const std::optional<double> scale =
        one.at("scale").is_null() ? std::nullopt : std::optional<double>(one.at("scale").get<double>());
    const Json& outputs = one.at("outputs");
    const at::Tensor wanted = tensor_of(outputs.at("out"));
    const at::Tensor out = call.attended(call.product(), scale);
    EXPECT_LT(error_of(out, wanted), 1e-11);
    EXPECT_LT(error_of(call.attended(call.defined_product(), scale), wanted), 1e-11);

    std::vector<at::Tensor> leaves = {call.q, call.k, call.v};
    std::vector<at::Tensor> wanted_gradients;
    const Json& gradients = outputs.at("grad");
    for (const char* name : {"q", "k", "v"}) wanted_gradients.push_back(tensor_of(gradients.at(name)));
    for (const auto& [name, tensor] : call.parameters) {
      leaves.push_back(tensor);
      wanted_gradients.push_back(tensor_of(gradients.at("parameters").at(name)));
    }
    const auto found = torch::autograd::grad({out}, leaves, {tensor_of(one.at("grad_out"))});
    for (std::size_t i = 0; i < leaves.size(); ++i) EXPECT_LT(error_of(found[i], wanted_gradients[i]), 1e-10) << i;
    ++seen;
  }
  EXPECT_GE(seen, 38);
}

}  // namespace
}  // namespace torsor::rotary_test
