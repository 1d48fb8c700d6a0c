// The door: what it refuses and how it says so, empty and blind calls, NaN that must stay where it is, blocks, bf16.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <limits>

#include "tests/attention/call.h"
#include "tests/attention/definition.h"

namespace torsor::attention_test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor longs(const std::vector<std::int64_t>& values) { return at::tensor(values, at::TensorOptions(at::kLong)); }

/// A call that is right, to be spoilt: 2 rows, 4 query heads on 2 key heads, 3 queries, 5 keys, width 8.
struct Call {
  std::shared_ptr<const Encoding> encoding;
  at::Tensor q = at::ones({2, 4, 3, 8}), k = at::ones({2, 2, 5, 8}), v = at::ones({2, 2, 5, 6});
  AttendOptions options;

  explicit Call(const std::string& expression = "rope + t5") {
    encoding = make_encoding(expression, {.heads = 4, .kv_heads = 2, .head_dim = 8, .width = 12});
    for (const ParameterInfo& info : encoding->parameters(0)) options.parameters[info.name] = at::zeros(info.shape);
  }
  at::Tensor run() const { return attend(q, k, v, *encoding, options); }
};

/// The message of the Error that a spoilt call gives; empty when it gives none.
std::string refusal(const std::function<void(Call&)>& spoil, const std::string& expression = "rope + t5") {
  Call call(expression);
  spoil(call);
  try {
    call.run();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void expect_words(const std::string& message, const std::vector<std::string>& words) {
  EXPECT_FALSE(message.empty()) << "nothing was refused";
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  for (const std::string& word : words)
    EXPECT_NE(message.find(word), std::string::npos) << "'" << word << "' in: " << message;
}

TEST(AttendDoor, ARightCallPasses) {
  const Call call;
  EXPECT_EQ(call.run().sizes(), (std::vector<std::int64_t>{2, 4, 3, 6}));
  EXPECT_EQ(refusal([](Call&) {}), "");
}

TEST(AttendDoor, ShapesOfTensors) {
  expect_words(refusal([](Call& c) { c.q = at::Tensor(); }), {"q, k and v"});
  expect_words(refusal([](Call& c) { c.v = at::Tensor(); }), {"q, k and v"});
  expect_words(refusal([](Call& c) { c.q = at::ones({4, 3, 8}); }), {"q (B, Hq, Tq, D)", "[4, 3, 8]"});
  expect_words(refusal([](Call& c) { c.k = at::ones({1, 2, 5, 8}); }), {"batch", "[1, 2, 5, 8]", "[2, 4, 3, 8]"});
  expect_words(refusal([](Call& c) { c.v = at::ones({2, 1, 5, 6}); }), {"k and v", "heads", "[2, 1, 5, 6]"});
  expect_words(refusal([](Call& c) { c.v = at::ones({2, 2, 4, 6}); }), {"k and v", "tokens", "[2, 2, 4, 6]"});
  expect_words(refusal([](Call& c) { c.k = at::ones({2, 2, 5, 6}); }), {"head width", "[2, 2, 5, 6]"});
  expect_words(refusal([](Call& c) { c.q = at::ones({2, 2, 3, 8}); }), {"4 query heads", "[2, 2, 3, 8]"});
  expect_words(refusal([](Call& c) {
                 c.k = at::ones({2, 1, 5, 8}), c.v = at::ones({2, 1, 5, 6});
               }),
               {"2 key heads", "[2, 1, 5, 8]"});
  expect_words(refusal([](Call& c) {
                 c.q = at::ones({2, 4, 3, 6}), c.k = at::ones({2, 2, 5, 6});
               }),
               {"width 8", "[2, 4, 3, 6]"});
}

TEST(AttendDoor, Dtypes) {
  expect_words(refusal([](Call& c) { c.k = c.k.to(at::kDouble); }), {"one dtype", "Float", "Double"});
  expect_words(refusal([](Call& c) { c.v = c.v.to(at::kBFloat16); }), {"one dtype", "BFloat16"});
  expect_words(refusal([](Call& c) { c.q = c.q.to(at::kHalf), c.k = c.k.to(at::kHalf), c.v = c.v.to(at::kHalf); }),
               {"bfloat16", "Half"});
  expect_words(refusal([](Call& c) { c.q = c.q.to(at::kLong), c.k = c.k.to(at::kLong), c.v = c.v.to(at::kLong); }),
               {"Long"});
}

TEST(AttendDoor, PositionsThatWouldOnlyBroadcast) {
  const std::string wanted = "(2, 5, 1)";
  expect_words(refusal([](Call& c) {
                 c.options.positions = at::zeros({1, 5, 1});
               }),
               {"positions", wanted, "[1, 5, 1]"});
  expect_words(refusal([](Call& c) { c.options.positions = at::zeros({2, 5}); }), {"positions", wanted, "[2, 5]"});
  expect_words(refusal([](Call& c) {
                 c.options.positions = at::zeros({2, 1, 1});
               }),
               {"positions", wanted, "[2, 1, 1]"});
  expect_words(refusal([](Call& c) {
                 c.options.positions = at::zeros({2, 5, 2});
               }),
               {"positions", wanted, "[2, 5, 2]"});
  expect_words(refusal([](Call& c) { c.options.positions = at::zeros({5}); }), {"positions", "[5]"});
  expect_words(refusal([](Call& c) {
                 c.options.query_positions = at::zeros({2, 5, 1});
               }),
               {"query_positions", "(2, 3, 1)", "[2, 5, 1]"});
  expect_words(refusal([](Call&) {}, "rope(axes=2)"), {"2 position axes"});
  // Whole numbers, halves and bf16 are positions as well.
  for (const at::ScalarType type : {at::kLong, at::kInt, at::kFloat, at::kBFloat16})
    EXPECT_EQ(refusal([&](Call& c) { c.options.positions = at::zeros({2, 5, 1}, at::TensorOptions(type)); }), "");
  expect_words(refusal([](Call& c) {
                 c.options.positions = at::zeros({2, 5, 1}, at::TensorOptions(at::kComplexDouble));
               }),
               {"positions", "real"});
}

TEST(AttendDoor, DocumentsAndLengths) {
  expect_words(refusal([](Call& c) { c.options.documents = at::zeros({2, 5}); }), {"documents", "integers", "Float"});
  expect_words(refusal([](Call& c) {
                 c.options.documents = at::zeros({1, 5}, at::kLong);
               }),
               {"documents", "(2, 5)", "[1, 5]"});
  expect_words(refusal([](Call& c) {
                 c.options.query_documents = at::zeros({2, 3}, at::kLong);
               }),
               {"query_documents", "without"});
  expect_words(refusal([](Call& c) {
                 c.options.documents = at::zeros({2, 5}, at::kLong);
                 c.options.query_documents = at::zeros({2, 5}, at::kLong);
               }),
               {"query_documents", "(2, 3)", "[2, 5]"});
  expect_words(refusal([](Call& c) { c.options.key_lengths = longs({5, 6}); }), {"key_lengths", "[0, 5]"});
  expect_words(refusal([](Call& c) { c.options.key_lengths = longs({-1, 5}); }), {"key_lengths", "[0, 5]"});
  expect_words(refusal([](Call& c) { c.options.key_lengths = longs({5}); }), {"key_lengths", "(2)", "[1]"});
  expect_words(refusal([](Call& c) { c.options.key_lengths = at::full({2}, 5.0); }), {"key_lengths", "integers"});
  expect_words(refusal([](Call& c) { c.options.query_offsets = longs({1, 1, 1}); }), {"query_offsets", "(2)", "[3]"});
  EXPECT_EQ(refusal([](Call& c) {
              c.options.documents = at::zeros({2, 5}, at::kInt), c.options.key_lengths = at::full({2}, 5, at::kInt);
            }),
            "");
}

TEST(AttendDoor, NumbersAndLayers) {
  expect_words(refusal([](Call& c) { c.options.window = 0; }), {"window", "at least 1", "0"});
  expect_words(refusal([](Call& c) { c.options.window = -3; }), {"window", "-3"});
  expect_words(refusal([](Call& c) { c.options.scale = kNaN; }), {"scale", "finite"});
  expect_words(refusal([](Call& c) { c.options.scale = kInfinity; }), {"scale", "finite"});
  expect_words(refusal([](Call& c) { c.options.layer = -1; }), {"layer", "-1"});
  expect_words(refusal([](Call& c) { c.options.layer = 4, c.options.layers = 4; }), {"layer", "4"});
  expect_words(refusal([](Call& c) { c.options.x = at::ones({2, 3, 12}); }), {"x", "(2, 5, 12)", "[2, 3, 12]"});
  expect_words(refusal([](Call& c) { c.options.x = at::ones({2, 5, 8}); }), {"x", "(2, 5, 12)", "[2, 5, 8]"});
  EXPECT_EQ(refusal([](Call& c) { c.options.x = at::ones({2, 5, 12}); }), "");
  EXPECT_EQ(refusal([](Call& c) { c.options.scale = 0; }), "");
}

TEST(AttendDoor, TrainedTensors) {
  expect_words(refusal([](Call& c) { c.options.parameters.clear(); }), {"t5.table", "missing", "[32, 4]"});
  expect_words(refusal([](Call& c) { c.options.parameters["t5.table"] = at::Tensor(); }), {"t5.table", "missing"});
  expect_words(refusal([](Call& c) {
                 c.options.parameters["t5.table"] = at::zeros({4, 32});
               }),
               {"t5.table", "[32, 4]", "[4, 32]"});
  expect_words(refusal([](Call& c) {
                 c.options.parameters["t5.table"] = at::zeros({1, 4});
               }),
               {"t5.table", "[32, 4]", "[1, 4]"});
  expect_words(refusal([](Call& c) {
                 c.options.parameters["t6.table"] = at::zeros({32, 4});
               }),
               {"t6.table", "t5.table"});
  expect_words(refusal([](Call& c) { c.options.parameters["alibi.slopes"] = at::zeros({4}); }, "rope"),
               {"alibi.slopes", "none"});
}

TEST(AttendDoor, NothingIsComputedInPlace) {
  for (const EncodingCase& row : case_table()) {
    const Subject subject(row, {.heads = row.heads.front()});
    SCOPED_TRACE(subject.name());
    const Placed placed = subject.place(subject.draw(2, 5), subject.run_of_positions(2, 5).contiguous());
    std::vector<at::Tensor> given = {placed.tokens.q, placed.tokens.k, placed.tokens.v, placed.positions}, before;
    for (const auto& [name, tensor] : subject.parameters()) given.push_back(tensor);
    for (const at::Tensor& tensor : given) before.push_back(tensor.clone());
    subject.full(placed);
    subject.cached(placed, {2});
    for (std::size_t n = 0; n < given.size(); ++n) EXPECT_TRUE(same_bits(given[n], before[n])) << n;
  }
}

TEST(Attend, ZeroLengths) {
  for (const EncodingCase& row : case_table())
    for (const bool causal : {true, false}) {
      if (!causal && row.needs_causal) continue;
      const Subject subject(row, {.heads = row.heads.front(), .value_dim = 3});
      SCOPED_TRACE(str(subject.name(), ", causal ", causal));
      for (const auto& [rows, queries, keys] :
           {std::tuple<std::int64_t, std::int64_t, std::int64_t>{2, 0, 4}, {2, 3, 0}, {2, 0, 0}, {0, 3, 4}}) {
        const Tokens of_queries = subject.draw(rows, queries).requires_grad(),
                     of_keys = subject.draw(rows, keys).requires_grad();
        for (const bool positions : {true, false}) {
          if (!positions && row.axes > 1) continue;
          AttendOptions options = subject.options({of_keys, {}, {}});
          options.causal = causal;
          options.need_lse = true;
          if (positions) options.positions = subject.run_of_positions(rows, keys);
          const Attended result = attend_full(of_queries.q, of_keys.k, of_keys.v, *subject.encoding(), options);
          EXPECT_EQ(result.out.sizes(),
                    (std::vector<std::int64_t>{rows, row.heads.front().heads, queries, subject.value_dim()}));
          EXPECT_EQ(result.lse.sizes(), (std::vector<std::int64_t>{rows, row.heads.front().heads, queries}));
          EXPECT_EQ(result.out.count_nonzero().item<std::int64_t>(), rows * keys == 0 || queries == 0 ? 0 : 1);
          if (keys == 0) {
            EXPECT_TRUE(result.lse.eq(-kInfinity).all().item<bool>());
          }
          const auto gradients = torch::autograd::grad({result.out}, {of_queries.q, of_keys.k, of_keys.v},
                                                       {at::ones_like(result.out)}, {}, false, true);
          ASSERT_TRUE(gradients[0].defined());
          EXPECT_EQ(gradients[0].count_nonzero().item<std::int64_t>(), 0);
        }
      }
    }
}

TEST(Attend, BlindRowsAreZeroWithZeroGradient) {
  for (const EncodingCase& row : case_table()) {
    Subject subject(row, {.heads = row.heads.front()});
    SCOPED_TRACE(subject.name());
    // The first two of five queries stand before the three keys.
    const Tokens of_queries = subject.draw(2, 5).requires_grad(), of_keys = subject.draw(2, 3).requires_grad();
    std::vector<at::Tensor> leaves = {of_queries.q, of_keys.k, of_keys.v};
    for (auto& [name, tensor] : subject.parameters()) leaves.push_back(tensor.requires_grad_(true));
    AttendOptions options = subject.options({of_keys, {}, {}});
    options.positions = subject.run_of_positions(2, 3);
    options.need_lse = true;
    const Attended result = attend_full(of_queries.q, of_keys.k, of_keys.v, *subject.encoding(), options);
    EXPECT_EQ(result.out.narrow(2, 0, 2).count_nonzero().item<std::int64_t>(), 0);
    EXPECT_TRUE(result.lse.narrow(2, 0, 2).eq(-kInfinity).all().item<bool>());
    EXPECT_TRUE(at::isfinite(result.lse.narrow(2, 2, 3)).all().item<bool>());
    const auto all = torch::autograd::grad({result.out}, leaves, {at::ones_like(result.out)}, true, false, true);
    EXPECT_EQ(all[0].narrow(2, 0, 2).count_nonzero().item<std::int64_t>(), 0);
    const auto blind = torch::autograd::grad(
        {result.out}, leaves,
        {at::constant_pad_nd(at::ones({2, row.heads.front().heads, 2, subject.value_dim()}, doubles()), {0, 0, 0, 3})},
        {}, false, true);
    for (const at::Tensor& gradient : blind)
      if (gradient.defined()) {
        EXPECT_EQ(gradient.count_nonzero().item<std::int64_t>(), 0);
      }
  }
}

/// Runs a call twice, once with clean and once with dirty tokens, and returns outputs and the gradients of the
/// parameters, q, k and v.
struct Answer {
  at::Tensor out;
  std::vector<at::Tensor> gradients;
};
Answer run_with(Subject& subject, const Tokens& given, const AttendOptions& base, const at::Tensor& grad_out) {
  const Tokens tokens = given.requires_grad();
  std::vector<at::Tensor> leaves = {tokens.q, tokens.k, tokens.v};
  AttendOptions options = base;
  options.parameters.clear();
  for (const auto& [name, tensor] : subject.parameters()) {
    options.parameters[name] = tensor.detach().clone().requires_grad_(true);
    leaves.push_back(options.parameters[name]);
  }
  Answer run;
  run.out = attend(tokens.q, tokens.k, tokens.v, *subject.encoding(), options);
  run.gradients = torch::autograd::grad({run.out}, leaves, {grad_out}, {}, false, true);
  return run;
}

TEST(Attend, WhatNobodySeesReachesNoOutputAndNoGradient) {
  for (const EncodingCase& row : case_table())
    for (const Precision precision : {Precision::Exact, Precision::HuggingFace})
      for (const int how : {0, 1, 2}) {
        if (precision == Precision::HuggingFace && row.expression.find("rope(") == std::string::npos)
          continue;  // past the lengths, padding, outside every window
        Subject subject(row, {.heads = row.heads.front(), .precision = precision});
        SCOPED_TRACE(str(subject.name(), how == 0   ? ", past the length"
                                         : how == 1 ? ", padding"
                                                    : ", outside the window"));
        const Tokens tokens = subject.place(subject.draw(2, 8), subject.run_of_positions(2, 8)).tokens;
        const at::Tensor q = tokens.q.narrow(2, 4, 4);
        AttendOptions options = subject.options({tokens, subject.run_of_positions(2, 8).contiguous(), {}});
        at::Tensor unseen = at::zeros({2, 8}, at::kBool);
        if (how == 0) {
          options.key_lengths = longs({5, 8});
          unseen[0].narrow(0, 5, 3).fill_(true);
        } else if (how == 1) {
          options.documents = longs({-1, -1, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1}).view({2, 8});
          unseen = options.documents.eq(-1);
        } else {
          options.window = 2;
          unseen.narrow(1, 0, 3).fill_(true);
        }
        for (const double value : {kNaN, -kInfinity, 1e300}) {
          const at::Tensor grad_out = at::ones({2, row.heads.front().heads, 4, subject.value_dim()}, doubles());
          const Answer clean = run_with(subject, {q, tokens.k, tokens.v}, options, grad_out);
          Tokens dirty{q, tokens.k.masked_fill(unseen.view({2, 1, 8, 1}), value),
                       tokens.v.masked_fill(unseen.view({2, 1, 8, 1}), value)};
          if (how == 1)  // padding asks, too
            dirty.q = q.masked_fill(unseen.narrow(1, 4, 4).reshape({2, 1, 4, 1}), value);
          AttendOptions spoilt = options;
          if (how != 2 && value != 1e300) spoilt.positions = options.positions.masked_fill(unseen.unsqueeze(2), value);
          // Outside the window x still counts: a forget gate works on all that comes after it.
          if (how != 2 && options.x.defined()) spoilt.x = options.x.masked_fill(unseen.unsqueeze(2), value);
          const Answer found = run_with(subject, dirty, spoilt, grad_out);
          EXPECT_TRUE(same_bits(found.out, clean.out)) << value;
          for (std::size_t n = 0; n < clean.gradients.size(); ++n) {
            if (!clean.gradients[n].defined()) continue;
            ASSERT_TRUE(found.gradients[n].defined()) << n;
            EXPECT_TRUE(at::isfinite(found.gradients[n]).all().item<bool>()) << value << ", gradient " << n;
            EXPECT_LE(tensor_error(found.gradients[n], clean.gradients[n]), 1e-13) << value << ", gradient " << n;
          }
        }
      }
}

TEST(Attend, AVisibleNaNReachesTheRowsThatSeeItAndNoOther) {
  for (const EncodingCase& row : case_table())
    for (const int which : {0, 1, 2})
      for (const Path path : {Path::Auto, Path::Reference})
        for (const double value : {kNaN, kInfinity}) {
          const Subject subject(row, {.heads = row.heads.front(), .dtype = at::kFloat});
          SCOPED_TRACE(str(subject.name(),
                           which == 0   ? ", k"
                           : which == 1 ? ", v"
                                        : ", q",
                           path == Path::Auto ? ", auto" : ""));
          const Placed placed = subject.place(subject.draw(2, 7), subject.run_of_positions(2, 7));
          const at::Tensor clean = subject.full(placed, path);
          Placed dirty = placed;
          at::Tensor& spoilt = which == 0 ? dirty.tokens.k : which == 1 ? dirty.tokens.v : dirty.tokens.q;
          spoilt = spoilt.clone();
          spoilt[1][0][4][0] = value;
          const at::Tensor out = subject.full(dirty, path);
          const std::int64_t heads = row.heads.front().heads, group = heads / row.heads.front().kv_heads;
          at::Tensor reached = at::zeros({2, heads, 7}, at::kBool);
          for (std::int64_t h = 0; h < (which == 2 ? 1 : group); ++h)
            reached[1][h].narrow(0, 4, which == 2 ? 1 : 3).fill_(true);
          const at::Tensor rows = reached.unsqueeze(-1);
          EXPECT_LE(row_error(out.masked_fill(rows, 0), clean.masked_fill(rows, 0)), 4e-6) << value;
          if (which != 1) {
            EXPECT_TRUE(out.isnan().any(-1).equal(reached)) << value;
          } else {  // its own channel
            EXPECT_TRUE(at::isfinite(out.select(-1, 0)).logical_not().equal(reached)) << value;
            EXPECT_TRUE(at::isfinite(out.slice(-1, 1)).all().item<bool>()) << value;
          }
        }
}

TEST(Attend, RecomputedBlocksGiveTheSameNumbers) {
  for (const EncodingCase& row : case_table()) {
    Setting setting;
    setting.heads = row.heads.back();
    Subject subject(row, setting);
    SCOPED_TRACE(subject.name());
    const Tokens tokens = subject.draw(2, 9).requires_grad();
    AttendOptions options = subject.options({tokens, subject.run_of_positions(2, 9), {}});
    options.need_lse = true;
    std::vector<at::Tensor> leaves = {tokens.q, tokens.k, tokens.v};
    for (auto& [name, tensor] : options.parameters) leaves.push_back(tensor.requires_grad_(true));
    const Encoding& encoding = subject.of_layer();
    const Sides sides = resolve_sides(tokens.q, tokens.k, options, encoding.traits());
    Question arriving = arrival_question(tokens.q, tokens.k, tokens.v, sides, options);
    NamedTensors state;
    const NamedTensors kept = encoding.arrive(arriving, state);
    arriving.kept = &kept;
    const CoreInput input = ask_for_core(encoding, query_question(tokens.q, sides, kept, encoding, options),
                                         move_keys(arriving.k, encoding, arriving, options), tokens.v, options);
    const at::Tensor grad_out = at::randn({2, setting.heads.heads, 9, subject.value_dim()}, doubles());
    const at::Tensor grad_lse = at::randn({2, setting.heads.heads, 9}, doubles());
    const auto gradients = [&](const ReferenceLimits& limits) {
      const Attended result = reference_attention(input, limits);
      return torch::autograd::grad({result.out, result.lse}, leaves, {grad_out, grad_lse}, true, false, true);
    };
    const std::int64_t pairs = 2 * setting.heads.heads * 9;
    const at::Tensor whole = reference_attention(input).out;
    const auto wanted = gradients({});
    for (const std::int64_t block : {2, 9}) {
      const ReferenceLimits kept_blocks{.block_numbers = pairs * block, .kept_numbers = std::int64_t{1} << 40};
      const ReferenceLimits recomputed{.block_numbers = pairs * block, .kept_numbers = 0};
      // Where a pair holds more numbers than its logit there is room for fewer queries.
      const bool wide = std::any_of(input.biases.begin(), input.biases.end(), [](const BiasForm& bias) {
        const FactorForm* factor = std::get_if<FactorForm>(&bias.form);
        return std::holds_alternative<StretchForm>(bias.form) || (factor && factor->kind == FactorForm::Kind::Network);
      });
      EXPECT_EQ(reference_block(input, kept_blocks), wide ? 1 : block);
      EXPECT_LE(row_error(reference_attention(input, kept_blocks).out, whole), 1e-13);
      EXPECT_TRUE(same_bits(reference_attention(input, recomputed).out, reference_attention(input, kept_blocks).out));
      const auto kept_gradients = gradients(kept_blocks), again = gradients(recomputed);
      for (std::size_t n = 0; n < leaves.size(); ++n) {
        ASSERT_EQ(wanted[n].defined(), again[n].defined()) << n;
        if (!wanted[n].defined()) continue;
        // One block is the whole call: the same operations in the same order.
        if (block == 9) {
          EXPECT_TRUE(same_bits(again[n], kept_gradients[n])) << n;
        }
        EXPECT_LE(tensor_error(again[n], kept_gradients[n]), 1e-13) << n << ", block " << block;
        EXPECT_LE(tensor_error(kept_gradients[n], wanted[n]), 1e-12) << n << ", block " << block;
      }
    }
  }
}

TEST(Attend, BlocksShrinkWithTheNumberOfKeys) {
  CoreInput input;
  const auto with = [&](std::int64_t queries, std::int64_t keys) {
    input.q = at::empty({1, 1, 1, 1}).expand({2, 8, queries, 64});
    input.k = at::empty({1, 1, 1, 1}).expand({2, 8, keys, 64});
    return reference_block(input);
  };
  EXPECT_EQ(with(512, 512), 512);
  EXPECT_EQ(with(8192, 8192), 32);
  EXPECT_EQ(with(std::int64_t{1} << 20, std::int64_t{1} << 20), 1);
  EXPECT_EQ(with(0, 8192), 1);
  // A block never holds more than its numbers, as long as one query fits.
  for (const std::int64_t keys : {1000, 5000, 100000}) EXPECT_LE(with(100000, keys) * 16 * keys, std::int64_t{1} << 22);
}

TEST(Attend, Bf16KeepsToItsBound) {
  for (const EncodingCase& row : case_table()) {
    Setting setting;
    setting.heads = row.heads.front();
    setting.dtype = at::kBFloat16;
    Subject subject(row, setting);
    SCOPED_TRACE(subject.name());
    const Tokens tokens = subject.draw(2, 12).requires_grad();
    AttendOptions options = subject.options({tokens, subject.run_of_positions(2, 12, row.farthest > 100 ? 60 : 0), {}});
    options.query_positions = options.positions;
    options.path = Path::Reference;
    const at::Tensor out = attend(tokens.q, tokens.k, tokens.v, *subject.encoding(), options);
    EXPECT_EQ(out.scalar_type(), at::kBFloat16);
    // float64 on the rounded inputs. What moves q and k rounds them once more, as a cache stores them.
    const PlainResult wanted =
        plain_attention_of(plain_call(subject.of_layer(), tokens.q, tokens.k, tokens.v, options));
    const NamedTensors kept;
    Question question = query_question(tokens.q, {}, kept, subject.of_layer(), options);
    question.query.positions = question.key.positions = options.positions;
    const bool moves = subject.of_layer().traits().rotates || !subject.of_layer().moves(question, Role::Query).empty();
    const double bound = moves ? 1.5e-2 : 4e-3;
    EXPECT_LE(row_error(out, wanted.out), bound);
    options.path = Path::Auto;
    EXPECT_LE(row_error(attend(tokens.q, tokens.k, tokens.v, *subject.encoding(), options), wanted.out),
              bound + 4e-3);  // libtorch rounds the weights, too
    const Tokens wide =
        Tokens{tokens.q.detach().to(at::kDouble), tokens.k.detach().to(at::kDouble), tokens.v.detach().to(at::kDouble)}
            .requires_grad();
    if (options.x.defined()) options.x = options.x.detach().to(at::kDouble);
    const at::Tensor grad_out = at::randn_like(out);
    const auto found = torch::autograd::grad({out}, {tokens.q, tokens.k, tokens.v}, {grad_out});
    const auto exact = torch::autograd::grad({attend(wide.q, wide.k, wide.v, *subject.encoding(), options)},
                                             {wide.q, wide.k, wide.v}, {grad_out.to(at::kDouble)});
    for (std::size_t n = 0; n < 3; ++n) {
      EXPECT_EQ(found[n].scalar_type(), at::kBFloat16);
      const at::Tensor error = found[n].to(at::kDouble) - exact[n];
      EXPECT_LE((error.norm() / exact[n].norm()).item<double>(), moves ? 1.5e-2 : 6e-3) << n;
    }
  }
}

TEST(Attend, ExpandedTensorsAreReadAsTheyStand) {
  for (const EncodingCase& row : case_table()) {
    if (row.absolute) continue;
    const Subject subject(row, {.heads = row.heads.front()});
    SCOPED_TRACE(subject.name());
    const Tokens one = subject.draw(1, 6);
    const at::Tensor positions = subject.run_of_positions(1, 6);
    const auto wide = [](const at::Tensor& tensor) { return tensor.expand({3, -1, -1, -1}); };
    const at::Tensor alone = subject.full({one, positions, {}});
    const at::Tensor x = one.x.defined() ? one.x.expand({3, -1, -1}) : one.x;
    NamedTensors named;
    for (const auto& [name, tensor] : one.named) {
      std::vector<std::int64_t> shape = tensor.sizes().vec();
      shape[0] = 3;
      named[name] = tensor.expand(shape);
    }
    const Placed expanded{{wide(one.q), wide(one.k), wide(one.v), x, named}, positions.expand({3, -1, -1}), {}};
    for (const Path path : {Path::Auto, Path::Reference})
      EXPECT_LE(row_error(subject.full(expanded, path), wide(alone)), 1e-12);
    EXPECT_LE(row_error(subject.cached(expanded, {2}), subject.full(expanded)), row.length_dependent ? 10 : 1e-11);
  }
}

TEST(Attend, QueryOffsetsSayWhichTokensAsk) {
  for (const EncodingCase& row : case_table()) {
    const Subject subject(row, {.heads = row.heads.front()});
    SCOPED_TRACE(subject.name());
    const Placed placed = subject.place(subject.draw(2, 9), subject.run_of_positions(2, 9));
    const at::Tensor full = subject.full(placed);
    AttendOptions options = subject.options(placed);
    options.query_offsets = longs({2, 5});
    const at::Tensor q =
        at::cat({placed.tokens.q.narrow(0, 0, 1).narrow(2, 2, 3), placed.tokens.q.narrow(0, 1, 1).narrow(2, 5, 3)}, 0);
    const at::Tensor out = attend(q, placed.tokens.k, placed.tokens.v, *subject.encoding(), options);
    EXPECT_LE(row_error(out.narrow(0, 0, 1), full.narrow(0, 0, 1).narrow(2, 2, 3)), 1e-11);
    EXPECT_LE(row_error(out.narrow(0, 1, 1), full.narrow(0, 1, 1).narrow(2, 5, 3)), 1e-11);
  }
}

TEST(Attend, AfterMovesSeesMovedQueriesAndKeys) {
  const EncodingCase row{.expression = "rope"};
  const Subject subject(row, {.heads = {4, 2}});
  const Placed placed{subject.draw(2, 5), subject.run_of_positions(2, 5), {}};
  AttendOptions options = subject.options(placed);
  int queries = 0, keys = 0;
  options.after_moves = [&](const at::Tensor& moved, Role role) {
    ++(role == Role::Query ? queries : keys);
    EXPECT_EQ(moved.size(1), role == Role::Query ? 4 : 2);
    return moved * (role == Role::Query ? 3.0 : 0.5);
  };
  const at::Tensor out = attend(placed.tokens.q, placed.tokens.k, placed.tokens.v, *subject.encoding(), options);
  EXPECT_EQ(queries, 1);
  EXPECT_EQ(keys, 1);
  AttendOptions scaled = subject.options(placed);
  scaled.scale = 1.5 / std::sqrt(8.0);
  EXPECT_LE(row_error(out, attend(placed.tokens.q, placed.tokens.k, placed.tokens.v, *subject.encoding(), scaled)),
            1e-13);
  KvCache cache = subject.cache(2, 5);
  EXPECT_LE(row_error(cache.attend(placed.tokens.q, placed.tokens.k, placed.tokens.v, options).out, out), 1e-13);
}

}  // namespace
}  // namespace torsor::attention_test
