// What the contract offers encodings of the content: running sums, kept tensors, probes; through test-only encodings
// carried state, contextual phases, declared inputs. Against the shared float64 values, in one pass and step by step.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>

#include "tests/attention/call.h"
#include "tests/attention/test_encodings.h"
#include "torsor/base/json.h"
#include "torsor/encoding/composition.h"

namespace torsor::attention_test {
namespace {

using Pointer = std::shared_ptr<const Encoding>;

at::Tensor longs(const std::vector<std::int64_t>& values) { return at::tensor(values, at::TensorOptions(at::kLong)); }

std::string golden_file() {
  const char* shared = std::getenv("TORSOR_SHARED");
  return str(shared ? std::string(shared) : str(TORSOR_SOURCE_DIR, "/../shared"), "/golden/golden-attention.json");
}

at::Tensor tensor_of(const Json& json) {
  std::vector<std::int64_t> shape;
  for (const Json& extent : json.at("shape")) shape.push_back(extent.get<std::int64_t>());
  std::vector<double> data;
  for (const Json& value : json.at("data"))
    data.push_back(value.is_null() ? -std::numeric_limits<double>::infinity() : value.get<double>());
  return at::tensor(data, doubles()).view(shape);
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

/// Null for an expression of the shared file that uses none of the encodings that are tried here.
Pointer encoding_of(const std::string& expression, const Dimensions& dimensions) {
  if (!has(expression, "fox") && !has(expression, "grape-a")) return nullptr;
  return make_encoding(expression, dimensions);
}

/// A case of the shared file: tensors in one dtype.
struct Golden {
  Pointer encoding;
  at::Tensor q, k, v;
  AttendOptions options;
  double rel = 0, abs = 0;
  const Json* json = nullptr;

  double allowed(const at::Tensor& wanted) const {
    return abs + rel * wanted.masked_fill(wanted.isinf(), 0).abs().max().item<double>();
  }
  void expect(const at::Tensor& found, const at::Tensor& wanted, const std::string& what) const {
    ASSERT_TRUE(found.defined()) << what;
    ASSERT_EQ(found.sizes(), wanted.sizes()) << what;
    const at::Tensor infinite = wanted.isinf(), plain = found.detach().to(at::kDouble);
    EXPECT_TRUE(plain.isinf().equal(infinite)) << what;
    const at::Tensor error = (plain.masked_fill(infinite, 0) - wanted.masked_fill(infinite, 0)).abs();
    EXPECT_LE(error.max().item<double>(), allowed(wanted)) << what;
  }
};

Golden golden_of(const Json& one, at::ScalarType dtype) {
  Golden golden;
  golden.json = &one;
  const Json& inputs = one.at("inputs");
  const auto leaf = [&](const Json& json) { return tensor_of(json).to(dtype).requires_grad_(true); };
  golden.q = leaf(inputs.at("q")), golden.k = leaf(inputs.at("k")), golden.v = leaf(inputs.at("v"));
  Dimensions dimensions{.heads = golden.q.size(1), .kv_heads = golden.k.size(1), .head_dim = golden.q.size(3)};
  AttendOptions& options = golden.options;
  if (inputs.contains("x")) {
    options.x = leaf(inputs.at("x"));
    dimensions.width = options.x.size(2);
  }
  golden.encoding = encoding_of(one.at("encoding").get<std::string>(), dimensions);
  options.positions = tensor_of(inputs.at("positions_k"));
  options.query_positions = tensor_of(inputs.at("positions_q"));
  if (inputs.contains("documents_k")) options.documents = tensor_of(inputs.at("documents_k")).to(at::kLong);
  if (inputs.contains("documents_q")) options.query_documents = tensor_of(inputs.at("documents_q")).to(at::kLong);
  if (inputs.contains("key_lengths")) options.key_lengths = tensor_of(inputs.at("key_lengths")).to(at::kLong);
  options.causal = one.at("causal").get<bool>();
  if (!one.at("window").is_null()) options.window = one.at("window").get<std::int64_t>();
  if (!one.at("scale").is_null()) options.scale = one.at("scale").get<double>();
  for (const auto& [name, value] : one.at("parameters").items()) options.parameters[name] = leaf(value);
  options.need_lse = true;
  const Json& tolerance = one.at("tolerance").at(dtype == at::kDouble ? "float64" : "float32");
  golden.rel = tolerance.at("rel").get<double>(), golden.abs = tolerance.at("abs").get<double>();
  return golden;
}

int each_golden(at::ScalarType dtype, const std::function<void(const Golden&)>& check) {
  const Json file = read_json(golden_file());
  int seen = 0;
  for (const Json& one : file.at("cases")) {
    const std::string expression = one.at("encoding").get<std::string>();
    if (!encoding_of(expression, {.heads = 1, .kv_heads = 1, .head_dim = 8, .width = 8})) continue;
    SCOPED_TRACE(str(one.at("id").get<std::string>(), ": ", expression));
    check(golden_of(one, dtype));
    ++seen;
  }
  return seen;
}

constexpr int kGoldenCases = 25;

TEST(GoldenForms, OnePassWithGradients) {
  if (!std::filesystem::exists(golden_file())) GTEST_SKIP() << "no shared golden values";
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const int seen = each_golden(dtype, [&](const Golden& golden) {
      const Attended found = attend_full(golden.q, golden.k, golden.v, *golden.encoding, golden.options);
      const Json& outputs = golden.json->at("outputs");
      golden.expect(found.out, tensor_of(outputs.at("out")), "out");
      golden.expect(found.lse, tensor_of(outputs.at("lse")), "lse");
      std::vector<at::Tensor> leaves = {golden.q, golden.k, golden.v};
      std::vector<std::string> names = {"q", "k", "v"};
      const Json& gradients = outputs.at("grad");
      if (golden.options.x.defined()) leaves.push_back(golden.options.x), names.push_back("x");
      for (const auto& [name, tensor] : golden.options.parameters) leaves.push_back(tensor), names.push_back(name);
      const auto gradient =
          torch::autograd::grad({found.out}, leaves, {tensor_of(golden.json->at("grad_out")).to(dtype)});
      for (std::size_t n = 0; n < leaves.size(); ++n)
        golden.expect(
            gradient[n],
            tensor_of(n < 3 || names[n] == "x" ? gradients.at(names[n]) : gradients.at("parameters").at(names[n])),
            names[n]);
    });
    EXPECT_GE(seen, kGoldenCases);
  }
}

/// Token `index[b]` of every row, tokens on `axis`.
at::Tensor pick(const at::Tensor& tensor, const std::vector<std::int64_t>& index, std::int64_t axis) {
  std::vector<at::Tensor> rows;
  for (std::size_t b = 0; b < index.size(); ++b)
    rows.push_back(tensor.detach()
                       .narrow(0, static_cast<std::int64_t>(b), 1)
                       .narrow(axis, std::max<std::int64_t>(index[b], 0), 1));
  return at::cat(rows, 0);
}

TEST(GoldenForms, StepByStep) {
  if (!std::filesystem::exists(golden_file())) GTEST_SKIP() << "no shared golden values";
  const int seen = each_golden(at::kDouble, [&](const Golden& golden) {
    const std::int64_t rows = golden.q.size(0), queries = golden.q.size(2), keys = golden.k.size(2);
    CacheOptions cache_options;
    cache_options.capacity = keys;
    cache_options.batch = rows;
    cache_options.value_dim = golden.v.size(3);
    cache_options.dtype = at::kDouble;
    KvCache cache(golden.encoding, cache_options);
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(rows), keys);
    if (golden.options.key_lengths.defined())
      for (std::int64_t b = 0; b < rows; ++b)
        lengths[static_cast<std::size_t>(b)] = golden.options.key_lengths[b].item<std::int64_t>();
    const at::Tensor wanted = tensor_of(golden.json->at("outputs").at("out"));
    const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    // Every row takes its own tokens one at a time; the last `queries` of them ask.
    for (std::int64_t turn = -longest; turn < 0; ++turn) {
      std::vector<std::int64_t> index, counts;
      for (const std::int64_t length : lengths) {
        index.push_back(length + turn);
        counts.push_back(length + turn >= 0);
      }
      AttendOptions options = golden.options;
      options.need_lse = false;
      options.positions = pick(golden.options.positions, index, 1);
      options.query_positions = options.query_documents = options.key_lengths = at::Tensor();
      if (options.documents.defined()) options.documents = pick(golden.options.documents, index, 1);
      if (options.x.defined()) options.x = pick(golden.options.x, index, 1);
      // A row that takes nothing in this turn brings something that must not matter.
      const std::int64_t query = std::max<std::int64_t>(queries + turn, 0);
      const at::Tensor q = golden.q.detach().narrow(2, query, 1);
      const Attended found =
          cache.attend(q, pick(golden.k, index, 2), pick(golden.v, index, 2), options, longs(counts));
      if (queries + turn < 0) continue;
      for (std::int64_t b = 0; b < rows; ++b) {
        if (index[static_cast<std::size_t>(b)] < 0) continue;
        const at::Tensor right = wanted.narrow(0, b, 1).narrow(2, query, 1);
        EXPECT_LE((found.out.narrow(0, b, 1) - right).abs().max().item<double>(), golden.allowed(wanted))
            << "row " << b << ", query " << query;
      }
    }
  });
  EXPECT_GE(seen, kGoldenCases);
}

/// An encoding with drawn parameters and inputs for tokens of `rows` rows.
struct Session {
  Pointer encoding;
  Dimensions dimensions;
  at::Tensor q, k, v, x, positions, documents, state;
  NamedTensors parameters, named;

  AttendOptions options(std::int64_t first, std::int64_t count) const {
    AttendOptions options;
    const auto part = [&](const at::Tensor& tensor, std::int64_t axis) {
      return tensor.defined() ? tensor.narrow(axis, first, count) : tensor;
    };
    options.positions = part(positions, 1);
    options.documents = part(documents, 1);
    options.x = part(x, 1);
    options.state = part(state, 2);
    for (const auto& [name, tensor] : named) options.named[name] = part(tensor, 1);
    options.parameters = parameters;
    return options;
  }
  KvCache cache() const { return KvCache(encoding, {.capacity = q.size(2), .batch = q.size(0), .dtype = at::kDouble}); }
  Attended full() const { return attend_full(q, k, v, *encoding, options(0, q.size(2))); }
};

Session session_of(const std::function<Pointer(const Dimensions&)>& make, std::int64_t rows, std::int64_t count,
                   std::uint64_t seed = 3) {
  Session session;
  session.dimensions = {.heads = 4, .kv_heads = 2, .head_dim = 6, .width = 5};
  session.encoding = make(session.dimensions);
  at::manual_seed(seed);
  session.q = at::randn({rows, 4, count, 6}, doubles());
  session.k = at::randn({rows, 2, count, 6}, doubles());
  session.v = at::randn({rows, 2, count, 6}, doubles());
  session.x = at::randn({rows, count, 5}, doubles());
  session.positions = at::arange(count, doubles()).view({1, count, 1}).expand({rows, count, 1});
  for (const ParameterInfo& info : session.encoding->parameters(0))
    session.parameters[info.name] = at::randn(info.shape, doubles());
  return session;
}

Session row_of(const Session& whole, std::int64_t row, std::int64_t count) {
  Session session = whole;
  for (at::Tensor* tensor : {&session.q, &session.k, &session.v, &session.state})
    if (tensor->defined()) *tensor = tensor->narrow(0, row, 1).narrow(2, 0, count);
  for (at::Tensor* tensor : {&session.x, &session.positions, &session.documents})
    if (tensor->defined()) *tensor = tensor->narrow(0, row, 1).narrow(1, 0, count);
  for (auto& [name, tensor] : session.named) tensor = tensor.narrow(0, row, 1).narrow(1, 0, count);
  return session;
}

using Maker = std::function<Pointer(const Dimensions&)>;
std::pair<std::string, Maker> expressed(const std::string& expression) {
  return {expression, [=](const Dimensions& dimensions) { return make_encoding(expression, dimensions); }};
}
std::vector<std::pair<std::string, Maker>> makers() {
  return {
      expressed("fox"),
      expressed("grape-a(gate=qk)"),
      expressed("grape-a(gate=k, variant=paper, learn_slopes=false)"),
      expressed("grape-ap"),
      expressed("grape-ap(width=4, variant=paper)"),
      expressed("grape-ap(tie=k, variant=relative)"),
      expressed("grape-ap(tie=v, variant=paper, learn_alpha=true)"),
      {"carrier", make_test_carrier},
      {"phase", make_test_phase},
      expressed("rope + fox + grape-ap(variant=relative)"),
      expressed("fox + fox"),
      expressed("dynamic(rope, factor=2, train_length=100) + fox"),
      expressed("heads(fox * 2, alibi * 2)"),
      expressed("heads(grape-ap * 2, grape-a(gate=k) * 2)"),
  };
}

/// Compares out and averages of a chunk with the full pass.
void expect_part(const Attended& part, const Attended& full, std::int64_t first, std::int64_t count) {
  EXPECT_LE(row_error(part.out, full.out.narrow(2, first, count)), 1e-11) << "tokens from " << first;
  ASSERT_EQ(part.averages.defined(), full.averages.defined());
  if (full.averages.defined()) {
    EXPECT_LE(row_error(part.averages, full.averages.narrow(2, first, count)), 1e-11);
  }
}

TEST(Contract, StepsAndChunksEqualTheFullPass) {
  for (const auto& [name, make] : makers()) {
    SCOPED_TRACE(name);
    Session session = session_of(make, 2, 13);
    for (const bool documents : {false, true}) {
      if (documents)
        session.documents =
            longs({0, 0, 0, -1, 0, 0, 4, 4, 4, 4, -1, 4, 4, -1, -1, 2, 2, 2, 2, 2, 7, 7, 7, 7, 7, 7}).view({2, 13});
      const Attended full = session.full();
      for (const std::int64_t chunk : {1, 4, 7}) {
        KvCache cache = session.cache();
        for (std::int64_t first = 0; first < 13; first += chunk) {
          const std::int64_t count = std::min<std::int64_t>(chunk, 13 - first);
          const auto part = [&](const at::Tensor& tensor) { return tensor.narrow(2, first, count); };
          expect_part(cache.attend(part(session.q), part(session.k), part(session.v), session.options(first, count)),
                      full, first, count);
        }
      }
    }
  }
}

// fla-org/flash-linear-attention#355 (B18): one step with a cache had a wrong shape. q in {1, 3}, k in {1, 7, 64}.
TEST(Contract, FewerQueriesThanKeys) {
  for (const auto& [name, make] : makers())
    for (const std::int64_t keys : {1, 7, 64})
      for (const std::int64_t queries : {1, 3}) {
        if (queries > keys) continue;
        SCOPED_TRACE(str(name, ", ", queries, " of ", keys));
        const Session session = session_of(make, 2, keys);
        const Attended full = session.full();
        const at::Tensor q = session.q.narrow(2, keys - queries, queries);
        const Attended part = attend_full(q, session.k, session.v, *session.encoding, session.options(0, keys));
        EXPECT_EQ(part.out.sizes(), (std::vector<std::int64_t>{2, 4, queries, 6}));
        expect_part(part, full, keys - queries, queries);
        KvCache cache = session.cache();
        if (keys > queries)
          cache.append(session.k.narrow(2, 0, keys - queries), session.v.narrow(2, 0, keys - queries),
                       session.options(0, keys - queries));
        const auto last = [&](const at::Tensor& tensor) { return tensor.narrow(2, keys - queries, queries); };
        expect_part(cache.attend(q, last(session.k), last(session.v), session.options(keys - queries, queries)), full,
                    keys - queries, queries);
      }
}

TEST(Contract, RowsOfDifferentLengthsKeepTheirOwnSums) {
  for (const auto& [name, make] : makers()) {
    SCOPED_TRACE(name);
    const Session session = session_of(make, 3, 9);
    const std::vector<std::int64_t> lengths = {9, 4, 6};
    // One call with lengths: the queries are each row's own last two.
    AttendOptions options = session.options(0, 9);
    options.key_lengths = longs(lengths);
    std::vector<at::Tensor> q;
    for (std::int64_t b = 0; b < 3; ++b)
      q.push_back(session.q.narrow(0, b, 1).narrow(2, lengths[static_cast<std::size_t>(b)] - 2, 2));
    const Attended together = attend_full(at::cat(q, 0), session.k, session.v, *session.encoding, options);
    // A cache that takes 4, 1 and 3 tokens first, then three at most.
    KvCache cache = session.cache();
    const auto front = [](const at::Tensor& tensor, std::int64_t axis) { return tensor.narrow(axis, 0, 4); };
    const AttendOptions first = session.options(0, 4);
    cache.append(front(session.k, 2), front(session.v, 2), first, longs({4, 1, 3}));
    const std::vector<std::int64_t> begin = {4, 1, 3};
    const auto window = [&](const at::Tensor& tensor, std::int64_t axis) {
      std::vector<at::Tensor> rows;
      for (std::int64_t b = 0; b < 3; ++b)
        rows.push_back(tensor.narrow(0, b, 1).narrow(axis, begin[static_cast<std::size_t>(b)], 5));
      return at::cat(rows, 0);
    };
    AttendOptions second = session.options(0, 5);
    second.positions = window(session.positions, 1);
    second.x = window(session.x, 1);
    // What lies past a row's count may be anything.
    Tokens part{window(session.q, 2), window(session.k, 2), window(session.v, 2)};
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (std::int64_t b = 1; b < 3; ++b) {
      for (at::Tensor* tensor : {&part.q, &part.k, &part.v}) tensor->select(0, b).narrow(1, 3, 2).fill_(nan);
      second.x.select(0, b).narrow(0, 3, 2).fill_(nan);
      second.positions.select(0, b).narrow(0, 3, 2).fill_(b == 1 ? nan : 0);
    }
    const Attended stepped = cache.attend(part.q, part.k, part.v, second, longs({5, 3, 3}));
    for (std::int64_t b = 0; b < 3; ++b) {
      const std::int64_t length = lengths[static_cast<std::size_t>(b)], from = begin[static_cast<std::size_t>(b)];
      const Attended alone = row_of(session, b, length).full();
      EXPECT_LE(row_error(together.out.narrow(0, b, 1), alone.out.narrow(2, length - 2, 2)), 1e-11) << "row " << b;
      EXPECT_LE(
          row_error(stepped.out.narrow(0, b, 1).narrow(2, 0, length - from), alone.out.narrow(2, from, length - from)),
          1e-11)
          << "row " << b;
    }
  }
}

TEST(Contract, PaddingAddsNothingWhateverItHolds) {
  for (const auto& [name, make] : makers()) {
    SCOPED_TRACE(name);
    Session session = session_of(make, 2, 8);
    session.documents = longs({-1, -1, -1, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, -1, 0, 0}).view({2, 8});
    session.positions = longs({9, 9, 9, 0, 1, 2, 3, 4, 0, 1, 9, 2, 3, 9, 4, 5}).view({2, 8, 1}).to(at::kDouble);
    const Attended clean = session.full();
    const at::Tensor padding = session.documents.eq(-1);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (at::Tensor* tensor : {&session.q, &session.k, &session.v})
      *tensor = tensor->masked_fill(padding.view({2, 1, 8, 1}), nan);
    session.x = session.x.masked_fill(padding.unsqueeze(2), nan).requires_grad_(true);
    session.positions = session.positions.masked_fill(padding.unsqueeze(2), nan);
    std::vector<at::Tensor> leaves = {session.q.requires_grad_(true), session.k.requires_grad_(true),
                                      session.v.requires_grad_(true), session.x};
    for (auto& [key, tensor] : session.parameters) leaves.push_back(tensor.requires_grad_(true));
    const Attended dirty = session.full();
    EXPECT_TRUE(same_bits(dirty.out.detach(), clean.out));
    const auto gradients = torch::autograd::grad({dirty.out}, leaves, {at::ones_like(dirty.out)}, {}, false, true);
    for (const at::Tensor& gradient : gradients)
      if (gradient.defined()) {
        EXPECT_TRUE(at::isfinite(gradient).all().item<bool>());
      }
    // Without padding, row 1 is the same five real tokens and one more.
    Session short_row = row_of(session, 1, 8);
    const at::Tensor real = padding.select(0, 1).logical_not().nonzero().flatten();
    for (at::Tensor* tensor : {&short_row.q, &short_row.k, &short_row.v})
      *tensor = tensor->detach().index_select(2, real);
    short_row.x = short_row.x.detach().index_select(1, real);
    short_row.positions = short_row.positions.index_select(1, real);
    short_row.documents = at::Tensor();
    EXPECT_LE(row_error(clean.out.narrow(0, 1, 1).index_select(2, real), short_row.full().out.detach()), 1e-11);
    // Through a cache, too.
    KvCache cache = session.cache();
    for (std::int64_t t = 0; t < 8; ++t) {
      const auto part = [&](const at::Tensor& tensor) { return tensor.detach().narrow(2, t, 1); };
      const Attended step = cache.attend(part(session.q), part(session.k), part(session.v), session.options(t, 1));
      EXPECT_LE(row_error(step.out.detach(), clean.out.narrow(2, t, 1)), 1e-11) << "token " << t;
    }
  }
}

TEST(Contract, DeclaredInputsAreThoseOfTheTokensInQuestion) {
  Session session = session_of(make_test_named, 2, 7);
  session.named["strength"] = at::randn({2, 7}, doubles());
  const Attended full = session.full();
  const at::Tensor strength = session.named["strength"];
  const at::Tensor bias = (strength.unsqueeze(2) * strength.unsqueeze(1)).unsqueeze(1);
  const at::Tensor hidden = at::ones({7, 7}, at::kBool).triu(1);
  const at::Tensor wanted = at::scaled_dot_product_attention(
      session.q, session.k.repeat_interleave(2, 1), session.v.repeat_interleave(2, 1),
      bias.expand({2, 4, 7, 7}).masked_fill(hidden, -std::numeric_limits<double>::infinity()));
  EXPECT_LE(row_error(full.out, wanted), 1e-12);
  const at::Tensor q = session.q.narrow(2, 4, 3);
  expect_part(attend_full(q, session.k, session.v, *session.encoding, session.options(0, 7)), full, 4, 3);
  KvCache cache = session.cache();
  for (std::int64_t t = 0; t < 7; ++t) {
    const auto part = [&](const at::Tensor& tensor) { return tensor.narrow(2, t, 1); };
    expect_part(cache.attend(part(session.q), part(session.k), part(session.v), session.options(t, 1)), full, t, 1);
  }
  AttendOptions missing = session.options(0, 7);
  missing.named.clear();
  EXPECT_THROW(attend(session.q, session.k, session.v, *session.encoding, missing), Error);
  missing.named["strength"] = at::randn({2, 6}, doubles());
  EXPECT_THROW(attend(session.q, session.k, session.v, *session.encoding, missing), Error);
}

TEST(Contract, AStateOfTheCallersIsCarried) {
  Session session = session_of(make_test_carrier, 2, 6);
  session.state = at::randn({2, 4, 6, 3}, doubles());
  const Attended full = session.full();
  ASSERT_EQ(full.averages.sizes(), (std::vector<std::int64_t>{2, 4, 6, 3}));
  // The first token averages its own state.
  EXPECT_LE(row_error(full.averages.narrow(2, 0, 1), session.state.narrow(2, 0, 1)), 1e-12);
  KvCache cache = session.cache();
  for (std::int64_t t = 0; t < 6; ++t) {
    const auto part = [&](const at::Tensor& tensor) { return tensor.narrow(2, t, 1); };
    expect_part(cache.attend(part(session.q), part(session.k), part(session.v), session.options(t, 1)), full, t, 1);
  }
}

TEST(Contract, TruncationIsExactOrRefused) {
  for (const auto& [name, make] : makers()) {
    SCOPED_TRACE(name);
    const Session session = session_of(make, 2, 9), other = session_of(make, 2, 9, 8);
    KvCache cache = session.cache();
    const auto append = [&](const Session& from, std::int64_t first, std::int64_t count) {
      AttendOptions options = from.options(first, count);
      options.parameters = session.parameters;
      cache.append(from.k.narrow(2, first, count), from.v.narrow(2, first, count), options);
    };
    append(session, 0, 5);
    const bool stuck = name == "phase";  // it keeps what it needs to go back, but does not say how
    EXPECT_NO_THROW(cache.truncate(5));  // nothing to drop
    append(other, 5, 2);
    if (stuck) {
      EXPECT_THROW(cache.truncate(5), Refusal);
      EXPECT_EQ(cache.lengths(), (std::vector<std::int64_t>{7, 7}));
      continue;
    }
    cache.truncate(5);
    const auto part = [&](const at::Tensor& tensor) { return tensor.narrow(2, 5, 4); };
    expect_part(cache.attend(part(session.q), part(session.k), part(session.v), session.options(5, 4)), session.full(),
                5, 4);
  }
}

TEST(Contract, TokensThatTheEncodingRefusesNeverArrived) {
  for (const char* name :
       {"grape-a(gate=k, variant=paper)", "grape-ap(width=4)", "fox + grape-a(gate=qk, variant=paper)"}) {
    SCOPED_TRACE(name);
    const Maker make = expressed(name).second;
    const Session session = session_of(make, 2, 8);
    const Attended full = session.full();
    KvCache cache = session.cache();
    const auto part = [&](const at::Tensor& tensor, std::int64_t first, std::int64_t count) {
      return tensor.narrow(2, first, count);
    };
    cache.append(part(session.k, 0, 5), part(session.v, 0, 5), session.options(0, 5));
    AttendOptions falling = session.options(5, 3);
    falling.positions = falling.positions - 4;  // 1, 2, 3 after 0 ... 4
    EXPECT_THROW(cache.attend(part(session.q, 5, 3), part(session.k, 5, 3), part(session.v, 5, 3), falling), Error);
    EXPECT_EQ(cache.lengths(), (std::vector<std::int64_t>{5, 5}));
    expect_part(
        cache.attend(part(session.q, 5, 3), part(session.k, 5, 3), part(session.v, 5, 3), session.options(5, 3)), full,
        5, 3);
  }
}

}  // namespace
}  // namespace torsor::attention_test
