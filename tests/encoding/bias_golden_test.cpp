// The golden attention cases of none and the biases, from the definitions alone: plain loops, softmax in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <set>

#include "torsor/base/json.h"
#include "torsor/encoding/registry.h"

namespace torsor {
namespace {

struct Numbers {
  std::vector<std::int64_t> shape;
  std::vector<double> data;
  double at(std::initializer_list<std::int64_t> index) const {
    std::int64_t flat = 0;
    std::size_t axis = 0;
    for (const std::int64_t one : index) flat = flat * shape[axis++] + one;
    return data.at(static_cast<std::size_t>(flat));
  }
  const double* row(std::initializer_list<std::int64_t> index) const {
    std::int64_t flat = 0;
    std::size_t axis = 0;
    for (const std::int64_t one : index) flat = flat * shape[axis++] + one;
    return data.data() + flat * shape.back();
  }
};

Numbers numbers(const Json& json) {
  Numbers all;
  all.shape = json["shape"].get<std::vector<std::int64_t>>();
  for (const Json& value : json["data"])
    all.data.push_back(value.is_null() ? -std::numeric_limits<double>::infinity() : value.get<double>());
  return all;
}

bool is_ours(const Expression& expression) {
  static const std::set<std::string> names = {"none", "alibi", "t5",  "kerple",  "sandwich", "fire",
                                              "cope", "txl",   "fox", "grape-a", "grape-ap"};
  for (const Term& term : expression.terms) {
    if (term.name != "heads" && !names.contains(term.name)) return false;
    for (const Item& item : term.operands)
      if (!is_ours(item.expression)) return false;
  }
  return true;
}

/// Compares out and lse of one case.
void check_case(const Json& one) {
  const Json& inputs = one["inputs"];
  const Numbers q = numbers(inputs["q"]), k = numbers(inputs["k"]), v = numbers(inputs["v"]);
  const Numbers pq = numbers(inputs["positions_q"]), pk = numbers(inputs["positions_k"]);
  const std::int64_t rows = q.shape[0], heads = q.shape[1], queries = q.shape[2], dim = q.shape[3];
  const std::int64_t key_heads = k.shape[1], keys = k.shape[2], value_dim = v.shape[3];
  Dimensions dimensions{.heads = heads, .kv_heads = key_heads, .head_dim = dim};
  Numbers x;
  if (inputs.contains("x")) {
    x = numbers(inputs["x"]);
    dimensions.width = x.shape[2];
  }
  PlainParameters parameters;
  for (const auto& [name, tensor] : one["parameters"].items()) {
    const Numbers value = numbers(tensor);
    if (name == "txl.w") dimensions.width = value.shape[2];
    parameters[name] = value.data;
  }
  const auto encoding = make_encoding(one["encoding"].get<std::string>(), dimensions);
  std::size_t expected_tensors = 0;
  for (const ParameterInfo& info : encoding->parameters(0)) {
    ASSERT_TRUE(parameters.contains(info.name)) << info.name;
    ASSERT_EQ(numbers(one["parameters"][info.name]).shape, info.shape) << info.name;
    ++expected_tensors;
  }
  ASSERT_EQ(expected_tensors, parameters.size());

  const bool causal = one["causal"];
  const double scale = one["scale"].is_null() ? encoding->softmax_factor() / std::sqrt(static_cast<double>(dim))
                                              : one["scale"].get<double>();
  const Numbers out = numbers(one["outputs"]["out"]), lse = numbers(one["outputs"]["lse"]);
  for (std::int64_t b = 0; b < rows; ++b) {
    const std::int64_t length =
        inputs.contains("key_lengths") ? static_cast<std::int64_t>(numbers(inputs["key_lengths"]).at({b})) : keys;
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < queries; ++i) {
        const std::int64_t own = i + length - queries;
        std::vector<std::int64_t> seen;
        for (std::int64_t j = 0; j < length; ++j) {
          if (causal && j > own) continue;
          if (!one["window"].is_null() && std::abs(own - j) >= one["window"].get<std::int64_t>()) continue;
          if (inputs.contains("documents_q")) {
            const double document = numbers(inputs["documents_q"]).at({b, i});
            if (document < 0 || document != numbers(inputs["documents_k"]).at({b, j})) continue;
          }
          seen.push_back(j);
        }
        std::vector<double> logits;
        for (const std::int64_t j : seen) {
          PlainPair pair;
          pair.q = q.row({b, h, i});
          pair.k = k.row({b, h / (heads / key_heads), j});
          pair.pq = pq.row({b, i});
          pair.pk = pk.row({b, j});
          pair.head = h;
          pair.length = static_cast<double>(length);
          pair.scale = scale;
          logits.push_back(scale * encoding->define_query_factor(pair.pq, h, 0) *
                               encoding->define_product(pair, parameters) +
                           encoding->define_bias(pair, parameters));
        }
        PlainTokens tokens;
        tokens.value_dim = value_dim;
        tokens.head = h;
        const auto token_of = [&](std::int64_t j) {
          PlainTokens::Token token;
          if (!x.data.empty()) token.x = x.row({b, j});
          token.k = k.row({b, h / (heads / key_heads), j});
          token.v = v.row({b, h / (heads / key_heads), j});
          token.position = pk.at({b, j, 0});
          return token;
        };
        for (const std::int64_t j : seen) tokens.seen.push_back(token_of(j));
        if (!seen.empty()) tokens.own = token_of(own);
        encoding->define_path(logits, tokens, parameters);
        encoding->define_row(logits, q.row({b, h, i}), h, 0, parameters);
        double largest = -std::numeric_limits<double>::infinity(), sum = 0;
        for (const double logit : logits) largest = std::max(largest, logit);
        for (const double logit : logits) sum += std::exp(logit - largest);
        const double expected = lse.at({b, h, i});
        if (seen.empty()) {
          EXPECT_EQ(expected, -std::numeric_limits<double>::infinity());
        } else {
          EXPECT_NEAR(largest + std::log(sum), expected, 1e-9 * std::max(1.0, std::abs(expected)));
        }
        for (std::int64_t c = 0; c < value_dim; ++c) {
          double value = 0;
          for (std::size_t s = 0; s < seen.size(); ++s)
            value += std::exp(logits[s] - largest) / sum * v.at({b, h / (heads / key_heads), seen[s], c});
          EXPECT_NEAR(value, out.at({b, h, i, c}), 1e-9) << "row " << b << " head " << h << " query " << i;
        }
      }
  }
}

TEST(BiasGolden, DefinitionsReproduceTheAttentionCases) {
  const char* variable = std::getenv("TORSOR_SHARED");
  const std::string shared = variable ? std::string(variable) : str(TORSOR_SOURCE_DIR, "/../shared");
  const std::string path = str(shared, "/golden/golden-attention.json");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no golden values at " << path;
  std::set<std::string> checked;
  const Json file = read_json(path);
  for (const Json& one : file["cases"]) {
    Expression expression;
    try {
      expression = parse(one["encoding"].get<std::string>());
    } catch (const UsageError&) {
      continue;  // a name of a later issue
    }
    if (!is_ours(expression)) continue;
    SCOPED_TRACE(one["id"].get<std::string>());
    check_case(one);
    checked.insert(one["id"].get<std::string>());
  }
  for (const char* id : {"none-causal",
                         "none-key-lengths-window",
                         "alibi-6-heads",
                         "alibi-rows",
                         "alibi-learned",
                         "alibi-max-exponent",
                         "t5-causal",
                         "t5-bidirectional",
                         "t5-decode",
                         "t5-wrap",
                         "t5-log",
                         "t5-fraction",
                         "t5-bidirectional-log",
                         "kerple-log",
                         "kerple-power",
                         "kerple-clamped",
                         "kerple-power-clamped",
                         "sandwich",
                         "fire",
                         "cope",
                         "cope-left-padded",
                         "txl",
                         "txl-decode-gqa",
                         "heads-t5-alibi",
                         "fox",
                         "fox-decode",
                         "fox-key-lengths-causal",
                         "fox-left-padded",
                         "fox-pad-inside",
                         "fox-packed",
                         "fox-long",
                         "grape-a-k-released",
                         "grape-a-q-paper",
                         "grape-a-qk-gqa-decode",
                         "grape-a",
                         "grape-ap-released",
                         "grape-ap-paper",
                         "grape-ap-relative",
                         "grape-ap-window",
                         "grape-ap-packed",
                         "grape-ap-gqa",
                         "grape-ap-long"})
    EXPECT_TRUE(checked.contains(id)) << id;
}

}  // namespace
}  // namespace torsor
