// Mistakes that real projects shipped, one test a report, named after it. Each was a public bug of another project; the
// comment says which and what went wrong there.
//
// Elsewhere: B23 and B24 (slopes of ALiBi) in tests/encoding/bias_test.cpp, Alibi.*; the golden rows of B10, B32 and
// B33 in tests/encoding/rotary_frequency_test.cpp; B18 (FoX) in forms_encoding_test.cpp.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "tests/attention/call.h"
#include "tests/attention/definition.h"

namespace torsor::attention_test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

EncodingCase row_of(const std::string& expression, std::int64_t head_dim = 8) {
  EncodingCase row;
  row.expression = expression;
  row.head_dim = head_dim;
  return row;
}

at::Tensor longs(const std::vector<std::int64_t>& values) { return at::tensor(values, at::TensorOptions(at::kLong)); }

/// (1, T, 1) positions.
at::Tensor column(const std::vector<double>& values) { return at::tensor(values, doubles()).view({1, -1, 1}); }

/// q, k, v of B rows on H heads and K key heads.
Tokens normal_tokens(std::int64_t rows, HeadCounts heads, std::int64_t queries, std::int64_t keys, std::int64_t dim) {
  return {at::randn({rows, heads.heads, queries, dim}, doubles()),
          at::randn({rows, heads.kv_heads, keys, dim}, doubles()),
          at::randn({rows, heads.kv_heads, keys, dim}, doubles())};
}

/// Weights of the keys: with values that are unit vectors the output is the softmax itself.
at::Tensor unit_values(std::int64_t rows, std::int64_t heads, std::int64_t keys) {
  return at::eye(keys, doubles()).expand({rows, heads, keys, keys}).contiguous();
}

std::vector<std::int64_t> seen_keys(const at::Tensor& weights) {
  const at::Tensor counts = weights.select(0, 0).select(0, 0).gt(0).sum(-1).contiguous();
  return {counts.const_data_ptr<std::int64_t>(), counts.const_data_ptr<std::int64_t>() + counts.numel()};
}

// huggingface/transformers#22161: positions counted from the tensor's start, so left-padded rows answered differently.
TEST(B01, LeftPaddedPromptsAnswerAsAlone) {
  at::manual_seed(1);
  std::int64_t wrong_noticed = 0;
  for (const EncodingCase& row : case_table()) {
    const Subject subject(row, {.heads = row.heads.front(), .dtype = at::kFloat});
    SCOPED_TRACE(subject.name());
    const Tokens prompt = subject.draw(1, 5), padding = subject.draw(1, 4), other = subject.draw(1, 9);
    const at::Tensor alone = subject.full(subject.place(prompt, subject.run_of_positions(1, 5)));
    const at::Tensor mask = longs({0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}).view({2, 9});
    const at::Tensor before = at::full({1, 4, row.axes}, -1.0, doubles());
    const at::Tensor positions =
        at::cat({at::cat({before, subject.run_of_positions(1, 5)}, 1), subject.run_of_positions(1, 9)}, 0);
    ASSERT_TRUE(positions.select(2, 0).equal((mask.cumsum(1) - 1).to(at::kDouble)));
    const Tokens batch = stack_rows({join_tokens({padding, prompt}), other});
    const Placed placed = subject.place(batch, positions, mask - 1);
    EXPECT_LE(row_error(subject.full(placed).narrow(0, 0, 1).narrow(2, 4, 5), alone), 4e-6);
    if (!row.length_dependent) {
      EXPECT_LE(row_error(subject.cached(placed, {1}).narrow(0, 0, 1).narrow(2, 4, 5), alone), 4e-6);
    }
    // Counted from the tensor's start, encodings that read absolute positions do answer differently.
    const Placed wrong = subject.place(batch, subject.run_of_positions(2, 9), mask - 1);
    wrong_noticed += row_error(subject.full(wrong).narrow(0, 0, 1).narrow(2, 4, 5), alone) > 1e-3;
  }
  EXPECT_GE(wrong_noticed, 6);
}

// allenai/OLMo-core#591: global positions made the second copy of a packed document differ from the first.
TEST(B02, TwoCopiesOfADocumentInARowAnswerAlike) {
  for (const EncodingCase& row : case_table())
    for (const auto& [dtype, bound] : {std::pair{at::kDouble, 1e-10},
                                       {at::kFloat, 4e-6},
                                       {at::kBFloat16, 8e-3}}) {  // two ways to compute a row, each within its bound
      const Subject subject(row, {.heads = row.heads.front(), .dtype = dtype});
      SCOPED_TRACE(subject.name());
      const Tokens document = subject.draw(1, 7);
      const at::Tensor once = subject.run_of_positions(1, 7);
      const Placed packed = subject.place(join_tokens({document, document}), at::cat({once, once}, 1),
                                          longs({0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1}).view({1, 14}));
      const at::Tensor out = subject.full(packed);
      EXPECT_LE(row_error(out.narrow(2, 7, 7), out.narrow(2, 0, 7)), bound);
      EXPECT_LE(row_error(out.narrow(2, 7, 7), subject.full(subject.place(document, once))), bound);
    }
}

// Blaizzy/mlx-vlm#1621: the second chunk of a prompt with an image started again at position 0.
TEST(B04, ChunksOfAPromptWithAnImageKeepTheirPositions) {
  for (const char* expression : {"rope(axes=3, arrangement=contiguous, sections=[2, 3, 3])",
                                 "rope(axes=3, arrangement=interleaved, sections=[4, 2, 2])"}) {
    EncodingCase row = row_of(expression, 16);
    row.axes = 3;
    const Subject subject(row, {.heads = {4, 2}});
    // Text, then an image of two lines and three columns at time 4, then text from the largest axis plus one.
    std::vector<double> places;
    for (const double p : {0, 1, 2, 3}) places.insert(places.end(), {p, p, p});
    for (const double line : {4, 5})
      for (const double column_of : {4, 5, 6}) places.insert(places.end(), {4, line, column_of});
    for (const double p : {7, 8, 9, 10, 11, 12}) places.insert(places.end(), {p, p, p});
    const Placed placed{subject.draw(1, 16), at::tensor(places, doubles()).view({1, 16, 3}), {}};
    const at::Tensor full = subject.full(placed);
    EXPECT_LE(row_error(subject.cached(placed, {7}), full), 1e-10);
    EXPECT_LE(row_error(subject.cached(placed, {1}), full), 1e-10);
    // The mistake shows.
    const Placed again{
        placed.tokens, at::cat({placed.positions.narrow(1, 0, 7), placed.positions.narrow(1, 0, 9)}, 1), {}};
    EXPECT_GT(row_error(subject.full(again).narrow(2, 7, 9), full.narrow(2, 7, 9)), 1e-3);
    // Positions of several axes cannot be guessed.
    KvCache cache = subject.cache(1, 16);
    AttendOptions silent;
    silent.layers = 4;
    EXPECT_THROW(cache.append(placed.tokens.k, placed.tokens.v, silent), Error);
  }
}

// lucidrains/rotary-embedding-torch#11: a table found again by its length gave offset 5 the angles of offset 0.
TEST(B06, AnswersDoNotDependOnTheOrderOfOffsets) {
  const EncodingCase row = row_of("rope");
  const Subject subject(row, {.heads = {2, 1}});
  const Tokens tokens = subject.draw(1, 6);
  const auto at_offset = [&](double offset) {
    AttendOptions options = subject.options({{}, subject.run_of_positions(1, 6), {}});
    options.query_positions = options.positions + offset;
    return attend(tokens.q, tokens.k, tokens.v, *subject.encoding(), options);
  };
  const at::Tensor near = at_offset(0), far = at_offset(5);
  EXPECT_GT(row_error(far, near), 1e-2);
  EXPECT_TRUE(same_bits(at_offset(5), far));
  EXPECT_TRUE(same_bits(at_offset(0), near));
  const Subject fresh(row, {.heads = {2, 1}});
  AttendOptions options = fresh.options({{}, fresh.run_of_positions(1, 6), {}});
  options.query_positions = options.positions + 5;
  EXPECT_TRUE(same_bits(attend(tokens.q, tokens.k, tokens.v, *fresh.encoding(), options), far));
}

// huggingface/candle#899: with a cache, the bias was that of query 0.
TEST(B08, BiasOfAStepIsThatOfItsOwnPosition) {
  for (const char* expression : {"t5", "t5(far=wrap, max_distance=17)", "alibi", "kerple", "sandwich", "fire"}) {
    const EncodingCase row = row_of(expression);
    const Subject subject(row, {.heads = {4, 2}});
    SCOPED_TRACE(subject.name());
    const Placed placed = subject.place(subject.draw(2, 40), subject.run_of_positions(2, 40));
    const at::Tensor full = subject.full(placed);
    EXPECT_LE(row_error(subject.cached(placed, {1}), full), 1e-10);
    EXPECT_LE(row_error(subject.cached(placed, {23, 1}), full), 1e-10);
  }
}

/// The phase between a query and an earlier key in one plane, read back from the attention weights: the newest token's
/// own key is zero, so the ratio of the two weights is exp of the older one's logit.
double phase_of(KvCache& cache, const at::Tensor& q_a, const at::Tensor& q_b, const AttendOptions& options) {
  double logit[2];
  const at::Tensor queries[] = {q_a, q_b};
  for (int n = 0; n < 2; ++n) {
    AttendOptions reading = options;
    reading.scale = 1;
    reading.causal = false;
    const at::Tensor weights = cache.read(queries[n], reading).out.flatten();
    logit[n] = std::log(weights[0].item<double>() / weights[1].item<double>());
  }
  return std::atan2(logit[1], logit[0]);  // k = (1, 0): q = (1, 0) gives the cosine, q = (0, 1) the sine
}

// huggingface/transformers#25104: keys stayed rotated with the old base when the base grew.
TEST(B09, DynamicKeysTurnWithTheBaseOfTheWholeDocument) {
  const EncodingCase row = row_of("dynamic(rope, factor=2, train_length=2048)", 64);
  const Subject subject(row, {.heads = {1, 1}, .value_dim = 2});
  KvCache cache = subject.cache(1, 8);
  at::Tensor k = at::zeros({1, 1, 1, 64}, doubles());
  k[0][0][0][16] = 1;  // first channel of plane 16
  const at::Tensor v = at::eye(2, doubles()).view({1, 1, 2, 2});
  AttendOptions options = subject.options({{}, column({100}), {}});
  cache.append(k, v.narrow(2, 0, 1), options);  // T = 101: the plain base
  options.positions = column({4095});
  cache.append(at::zeros_like(k), v.narrow(2, 1, 1), options);  // T = 4096
  options.query_positions = column({4095});
  at::Tensor a = at::zeros_like(k), b = at::zeros_like(k);
  a[0][0][0][16] = 1;
  b[0][0][0][48] = 1;
  // The turn is taken back: the query's larger angle shows as minus the distance's phase.
  const double turns = 2 * std::numbers::pi;
  const double phase = -phase_of(cache, a, b, options);
  const auto distance = [&](double wanted) { return std::abs(std::remainder(phase - wanted, turns)); };
  const double right = std::min(distance(22.6600), std::abs(std::remainder(-phase - 22.6600, turns)));
  const double wrong = std::min(distance(22.2272), std::abs(std::remainder(-phase - 22.2272, turns)));
  EXPECT_LT(right, 1e-4);
  EXPECT_GT(wrong, 0.1);
}

// vllm-project/vllm#3488: one base for all lengths, computed from the longest, changed short prompts too.
TEST(B10, DynamicLeavesShortPromptsBitForBitAlone) {
  const EncodingCase dynamic_row = row_of("dynamic(rope, factor=2, train_length=16)"), plain_row_of = row_of("rope");
  const Subject dynamic(dynamic_row, {.heads = {2, 1}}), plain(plain_row_of, {.heads = {2, 1}});
  const Tokens tokens = dynamic.draw(1, 17);
  const auto both = [&](std::int64_t count) {
    const Placed placed{tokens.slice(0, count), dynamic.run_of_positions(1, count), {}};
    return std::pair{dynamic.full(placed), plain.full(placed)};
  };
  const auto [inside, plain_inside] = both(16);
  EXPECT_TRUE(same_bits(inside, plain_inside));
  const auto [beyond, plain_beyond] = both(17);
  EXPECT_GT(row_error(beyond, plain_beyond), 1e-4);
  // A long call before does not change a short one after.
  EXPECT_TRUE(same_bits(both(16).first, inside));
}

// huggingface/transformers#33129: short factors in cached keys met long factors in new ones.
TEST(B11, LongRopeStepsAcrossItsBoundaryEqualTheFullCall) {
  const EncodingCase row =
      row_of("longrope(rope, short=[1, 1.1, 1.3, 2], long=[1.5, 4, 9, 30], train_length=6, factor=32)");
  const Subject subject(row, {.heads = {4, 2}});
  const Placed placed = subject.place(subject.draw(2, 10), subject.run_of_positions(2, 10));
  KvCache cache = subject.cache(2, 10);
  for (std::int64_t token = 0; token < 10; ++token) {
    const Placed part = slice(placed, token, 1);
    const at::Tensor step = cache.attend(part.tokens.q, part.tokens.k, part.tokens.v, subject.options(part)).out;
    EXPECT_LE(row_error(step, subject.full(slice(placed, 0, token + 1)).narrow(2, token, 1)), 1e-10) << token;
  }
  EXPECT_FALSE(subject.encoding()->cache(0).note.empty());
  EXPECT_TRUE(subject.encoding()->frequencies_change(6, 7));
  EXPECT_FALSE(subject.encoding()->frequencies_change(5, 6));
}

// meta-pytorch/gpt-fast#233: attention over a preallocated cache took part in the slots that were not filled.
TEST(B16, UnusedSlotsDoNotMatter) {
  for (const EncodingCase& row : case_table())
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      const Subject subject(row, {.heads = row.heads.front(), .dtype = dtype});
      SCOPED_TRACE(subject.name());
      Tokens tokens = subject.place(subject.draw(2, 12), subject.run_of_positions(2, 12)).tokens;
      const at::Tensor lengths = longs({7, 9});
      const auto filled = [&](double value) {
        AttendOptions options = subject.options({tokens, subject.run_of_positions(2, 12).contiguous(), {}});
        at::Tensor k = tokens.k.clone(), v = tokens.v.clone();
        if (options.x.defined()) options.x = options.x.clone();
        for (std::int64_t b = 0; b < 2; ++b) {
          const std::int64_t length = 7 + 2 * b;
          k.select(0, b).narrow(1, length, 12 - length).fill_(value);
          v.select(0, b).narrow(1, length, 12 - length).fill_(value);
          if (options.x.defined()) options.x.select(0, b).narrow(0, length, 12 - length).fill_(value);
          if (std::isnan(value)) options.positions.select(0, b).narrow(0, length, 12 - length).fill_(value);
        }
        options.key_lengths = lengths;
        return attend(tokens.q.narrow(2, 0, 3), k, v, *subject.encoding(), options);
      };
      const at::Tensor zeros = filled(0);
      EXPECT_TRUE(at::isfinite(zeros).all().item<bool>());
      for (const double value : {kNaN, 1e4, kInfinity}) EXPECT_TRUE(same_bits(filled(value), zeros)) << value;
    }
}

// lucidrains/x-transformers#233: xPos with fewer queries than keys decayed the wrong rows.
TEST(B17, FewerQueriesThanKeysAreTheLastRows) {
  for (const EncodingCase& row : case_table()) {
    const Subject subject(row, {.heads = row.heads.front()});
    SCOPED_TRACE(subject.name());
    const Placed placed = subject.place(subject.draw(2, 9), subject.run_of_positions(2, 9, 5));
    const at::Tensor full = subject.full(placed);
    for (const std::int64_t queries : {1, 2, 8}) {
      const at::Tensor q = placed.tokens.q.narrow(2, 9 - queries, queries);
      const at::Tensor out = attend(q, placed.tokens.k, placed.tokens.v, *subject.encoding(), subject.options(placed));
      EXPECT_LE(row_error(out, full.narrow(2, 9 - queries, queries)), 1e-10) << queries;
    }
  }
}

// Dao-AILab/flash-attention#282: causal order aligned top-left masked the newest keys.
TEST(B19, CausalOrderIsAlignedBottomRight) {
  const auto encoding = make_encoding("none", {.heads = 1, .head_dim = 4});
  for (const Path path : {Path::Auto, Path::Reference}) {
    AttendOptions options;
    options.path = path;
    at::manual_seed(2);
    const Tokens few = normal_tokens(1, {1, 1}, 2, 5, 4);
    EXPECT_EQ(seen_keys(attend(few.q, few.k, unit_values(1, 1, 5), *encoding, options)),
              (std::vector<std::int64_t>{4, 5}));
    const Tokens many = normal_tokens(1, {1, 1}, 5, 2, 4);
    options.need_lse = true;
    const Attended result = attend_full(many.q, many.k, unit_values(1, 1, 2), *encoding, options);
    EXPECT_EQ(seen_keys(result.out), (std::vector<std::int64_t>{0, 0, 0, 1, 2}));
    EXPECT_EQ(result.out.narrow(2, 0, 3).abs().max().item<double>(), 0);
    for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(result.lse[0][0][i].item<double>(), -kInfinity);
    EXPECT_TRUE(at::isfinite(result.lse.narrow(2, 3, 2)).all().item<bool>());
  }
}

// huggingface/transformers#39408: a window of 4 meant 4 keys in one path and 5 in another; 0 masked everything.
TEST(B20, AWindowCountsItsOwnTokenOnEveryPath) {
  for (const char* expression : {"none", "rope", "alibi", "cope(length=4)"}) {
    const EncodingCase row = row_of(expression);
    for (const std::int64_t window : {1, 4, 9, 100}) {
      Setting setting;
      setting.heads = {1, 1};
      setting.window = window;
      setting.value_dim = 9;
      const Subject subject(row, setting);
      SCOPED_TRACE(subject.name());
      Tokens tokens = subject.draw(1, 9);
      tokens.v = unit_values(1, 1, 9);
      std::vector<std::int64_t> wanted;
      for (std::int64_t i = 0; i < 9; ++i) wanted.push_back(std::min(i + 1, window));
      const Placed placed{tokens, subject.run_of_positions(1, 9), {}};
      EXPECT_EQ(seen_keys(subject.full(placed)), wanted) << "full";
      EXPECT_EQ(seen_keys(subject.cached(placed, {1})), wanted) << "steps";
      EXPECT_EQ(seen_keys(subject.cached(placed, {4})), wanted) << "chunks";
      const Placed packed{tokens, at::cat({subject.run_of_positions(1, 3), subject.run_of_positions(1, 6)}, 1),
                          longs({0, 0, 0, 1, 1, 1, 1, 1, 1}).view({1, 9})};
      for (std::int64_t i = 3; i < 9; ++i) wanted[static_cast<std::size_t>(i)] = std::min(i - 2, window);
      EXPECT_EQ(seen_keys(subject.full(packed)), wanted) << "packed";
      if (!row.needs_causal && std::string(expression) != "cope(length=4)") {
        AttendOptions both = subject.options(placed);
        both.causal = false;
        for (std::int64_t i = 0; i < 9; ++i)
          wanted[static_cast<std::size_t>(i)] = std::min(i + 1, window) + std::min(8 - i, window - 1);
        EXPECT_EQ(seen_keys(attend(tokens.q, tokens.k, tokens.v, *subject.encoding(), both)), wanted) << "two-sided";
      }
      AttendOptions none = subject.options(placed);
      none.window = 0;
      EXPECT_THROW(attend(tokens.q, tokens.k, tokens.v, *subject.encoding(), none), Error);
    }
  }
}

// pytorch/pytorch#103749: a row without any key gave NaN, in gradients too.
TEST(B21, ARowThatSeesNothingIsZeroAndHarmsNobody) {
  for (const EncodingCase& row : case_table())
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      Subject subject(row, {.heads = row.heads.front(), .dtype = dtype});
      SCOPED_TRACE(subject.name());
      const Tokens tokens = subject.draw(2, 6).requires_grad();
      std::vector<at::Tensor> leaves = {tokens.q, tokens.k, tokens.v};
      for (auto& [name, tensor] : subject.parameters()) leaves.push_back(tensor.requires_grad_(true));
      AttendOptions options = subject.options({tokens, subject.run_of_positions(2, 6), {}});
      options.key_lengths = longs({6, 6});
      const at::Tensor open = attend(tokens.q, tokens.k, tokens.v, *subject.encoding(), options);
      options.key_lengths = longs({6, 0});
      const at::Tensor closed = attend(tokens.q, tokens.k, tokens.v, *subject.encoding(), options);
      EXPECT_TRUE(same_bits(closed.narrow(0, 0, 1), open.narrow(0, 0, 1)));
      EXPECT_EQ(closed.narrow(0, 1, 1).abs().max().item<double>(), 0);
      const auto gradients = torch::autograd::grad({closed}, leaves, {at::ones_like(closed)}, {}, false, true);
      for (const at::Tensor& gradient : gradients) {
        if (gradient.defined()) {
          EXPECT_TRUE(at::isfinite(gradient).all().item<bool>());
        }
      }
      for (int n = 0; n < 3; ++n)
        EXPECT_EQ(gradients[static_cast<std::size_t>(n)].narrow(0, 1, 1).abs().max().item<double>(), 0);
      EXPECT_GT(gradients[2].narrow(0, 0, 1).abs().max().item<double>(), 0);
    }
}

// pytorch/pytorch#145869: gradients of a learned bias were wrong, missing or different from run to run.
TEST(B27, TableGradientEqualsTheDenseReferenceAndRepeats) {
  const EncodingCase row = row_of("t5(buckets=8, max_distance=32)");
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    Subject subject(row, {.heads = {4, 2}, .dtype = dtype});
    const Placed placed{subject.draw(2, 50), subject.run_of_positions(2, 50), {}};
    at::Tensor table = subject.parameters().at("t5.table").requires_grad_(true);
    const at::Tensor grad_out = at::randn({2, 4, 50, 8}, doubles()).to(dtype);
    const auto gradient = [&] { return torch::autograd::grad({subject.full(placed)}, {table}, {grad_out})[0]; };
    const at::Tensor first = gradient();
    for (int run = 0; run < 4; ++run) EXPECT_TRUE(same_bits(gradient(), first)) << "run " << run;

    // Dense: the whole (T, T) bias by indexing, through libtorch's attention.
    std::vector<std::int64_t> bucket;
    for (double i = 0; i < 50; ++i)
      for (double j = 0; j < 50; ++j) bucket.push_back(subject.encoding()->buckets({i - j})[0]);
    const at::Tensor wide = table.detach().to(at::kDouble).requires_grad_(true);
    const at::Tensor hidden = at::ones({50, 50}, at::kBool).triu(1);
    const at::Tensor bias =
        wide.index_select(0, longs(bucket)).view({50, 50, 4}).permute({2, 0, 1}).masked_fill(hidden, -kInfinity);
    const at::Tensor dense = at::scaled_dot_product_attention(
        placed.tokens.q.to(at::kDouble), placed.tokens.k.to(at::kDouble).repeat_interleave(2, 1),
        placed.tokens.v.to(at::kDouble).repeat_interleave(2, 1), bias.unsqueeze(0).expand({2, 4, 50, 50}));
    const at::Tensor wanted = torch::autograd::grad({dense}, {wide}, {grad_out.to(at::kDouble)})[0];
    EXPECT_LE(tensor_error(first, wanted), dtype == at::kDouble ? 1e-12 : 2e-6);

    const int threads = at::get_num_threads();
    for (const int count : {1, 2, 3}) {
      at::set_num_threads(count);
      const at::Tensor one = gradient();
      EXPECT_TRUE(same_bits(gradient(), one)) << count << " threads";
      EXPECT_LE(tensor_error(one, wanted), dtype == at::kDouble ? 1e-12 : 2e-6) << count << " threads";
    }
    at::set_num_threads(threads);
  }
}

// The same report: offsets of 2^31 elements and more. The views reach that far into address space that is never backed
// by memory, so nothing of that size is allocated.
TEST(B27, OffsetsBeyondTwoToThe31AreFollowed) {
  constexpr std::int64_t kFar = (std::int64_t{1} << 31) + 4096;
  const std::size_t bytes = static_cast<std::size_t>(kFar + 4096) * sizeof(float);
  void* space = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) GTEST_SKIP() << "no address space of 8 GiB";
  const at::Tensor storage = at::from_blob(space, {kFar + 4096}, at::TensorOptions(at::kFloat));
  const EncodingCase row = row_of("rope + t5(buckets=8, max_distance=16)");
  const Subject subject(row, {.heads = {2, 1}, .dtype = at::kFloat});
  const Placed near{subject.draw(2, 6), subject.run_of_positions(2, 6), {}};
  const auto spread = [&](const at::Tensor& tensor, std::int64_t first) {
    const std::int64_t h = tensor.size(1), t = tensor.size(2), d = tensor.size(3);
    const at::Tensor view = storage.as_strided({2, h, t, d}, {kFar, t * d, d, 1}, first);
    view.copy_(tensor);
    return view;
  };
  const Placed far{
      {spread(near.tokens.q, 0), spread(near.tokens.k, 512), spread(near.tokens.v, 1024)}, near.positions, {}};
  EXPECT_TRUE(same_bits(subject.full(far), subject.full(near)));
  EXPECT_TRUE(same_bits(subject.cached(far, {2}), subject.cached(near, {2})));
  munmap(space, bytes);
}

// lucidrains/x-transformers#298: positions a row made the bias four-dimensional, which one path did not expect.
TEST(B28, RowsHavePositionsOfTheirOwn) {
  for (const EncodingCase& row : case_table()) {
    if (row.absolute) continue;
    const Subject subject(row, {.heads = row.heads.front()});
    SCOPED_TRACE(subject.name());
    const Tokens tokens = subject.draw(3, 7);
    const at::Tensor positions = at::cat(
        {subject.run_of_positions(1, 7), subject.run_of_positions(1, 7, 100) * 2, subject.run_of_positions(1, 7, -3.5)},
        0);
    for (const Path path : {Path::Auto, Path::Reference}) {
      const at::Tensor together = subject.full({tokens, positions, {}}, path);
      for (std::int64_t b = 0; b < 3; ++b)
        EXPECT_LE(
            row_error(together.narrow(0, b, 1), subject.full({tokens.row(b), positions.narrow(0, b, 1), {}}, path)),
            1e-10);
    }
  }
}

// EleutherAI/gpt-neox#1003: tables made in half precision; bf16 positions collapse above 256.
TEST(B29, HalfPrecisionContentsKeepExactAngles) {
  for (const Precision precision : {Precision::Exact, Precision::HuggingFace}) {
    const auto encoding = make_encoding("rope", {.heads = 1, .kv_heads = 1, .head_dim = 128, .precision = precision});
    for (const double position : {257.0, 2047.0, 15962.0, 131071.0}) {
      Question question;
      question.q = question.k = at::zeros({1, 1, 1, 128}, at::TensorOptions(at::kBFloat16));
      question.query.positions = question.key.positions = column({position});
      const Planes planes = std::get<Planes>(encoding->moves(question, Role::Query).at(0));
      double worst = 0;
      for (std::int64_t i = 0; i < 64; ++i) {
        const double angle = position * std::pow(10000.0, -2.0 * static_cast<double>(i) / 128);
        worst = std::max(worst, std::abs(planes.cosine.flatten()[i].item<double>() - std::cos(angle)));
      }
      EXPECT_LT(worst, precision == Precision::Exact ? 1e-6 : 6e-3) << position;
    }
  }
  // Two neighbours above 256, which bf16 positions would merge, stay apart: with unit vectors the product is the
  // cosine.
  const auto encoding = make_encoding("rope", {.heads = 1, .head_dim = 2});
  const at::Tensor unit = at::tensor({1.0, 0.0}, doubles()).view({1, 1, 1, 2}).to(at::kBFloat16);
  AttendOptions options;
  options.positions = column({1000, 1003});
  options.causal = false;
  options.scale = 1;
  options.need_lse = true;
  const at::Tensor keys = at::cat({unit, at::zeros_like(unit)}, 2);
  options.query_positions = column({1001});
  const Attended result = attend_full(unit, keys, keys, *encoding, options);
  EXPECT_NEAR(result.lse.item<double>(), std::log(std::exp(std::cos(1.0)) + 1), 1e-2);
}

// jzhang38/TinyLlama#24: interleaved weights in a half-split model: the first token is right, the rest is not.
TEST(B30, LayoutsDifferByAPermutationOfChannels) {
  const EncodingCase half_row = row_of("rope"), woven_row = row_of("rope(layout=interleaved)");
  const Subject half(half_row, {.heads = {8, 2}}), woven(woven_row, {.heads = {8, 2}});
  const Placed placed{half.draw(2, 6), half.run_of_positions(2, 6), {}};
  const at::Tensor a = half.full(placed), b = woven.full(placed);
  EXPECT_TRUE(same_bits(a.narrow(2, 0, 1), b.narrow(2, 0, 1)));  // the trap
  EXPECT_GT(row_error(a.narrow(2, 1, 5), b.narrow(2, 1, 5)), 1e-2);
  // half[i] = interleaved[2i], half[i + d/2] = interleaved[2i + 1]: a move of q and k, never of v.
  const at::Tensor order = longs({0, 4, 1, 5, 2, 6, 3, 7});
  Placed converted = placed;
  converted.tokens.q = placed.tokens.q.index_select(3, order);
  converted.tokens.k = placed.tokens.k.index_select(3, order);
  EXPECT_LE(row_error(woven.full(converted), a), 1e-12);
}

// pytorch/torchtitan#3787: `attention_factor: 1.0` was taken for "not given".
TEST(B33, AnAttentionFactorOfOneIsOne) {
  const auto logit = [](const std::string& expression) {
    const auto encoding = make_encoding(expression, {.heads = 1, .head_dim = 8});
    const at::Tensor one = at::full({1, 1, 1, 8}, 1.0, doubles());
    AttendOptions options;
    options.scale = 1;
    options.need_lse = true;
    options.positions = column({777});
    return attend_full(one, one, one, *encoding, options).lse.item<double>();
  };
  EXPECT_NEAR(logit("yarn(rope, factor=64, train_length=2048, attention_factor=1)"), 8, 1e-12);
  const double m = 0.1 * std::log(64.0) + 1;
  EXPECT_NEAR(m, 1.4159, 1e-4);
  EXPECT_NEAR(logit("yarn(rope, factor=64, train_length=2048)"), 8 * m * m, 1e-12);
  EXPECT_NEAR(
      logit("longrope(rope, short=[1, 1, 1, 1], long=[2, 2, 2, 2], train_length=64, factor=32, attention_factor=1)"), 8,
      1e-12);
}

// Dao-AILab/flash-attention#569, NVIDIA/apex#1750: the rotary backward was wrong while the forward was right.
TEST(B35, GradientsTurnBack) {
  for (const bool woven : {false, true}) {
    const EncodingCase row = row_of(woven ? "rope(layout=interleaved)" : "rope"), none_row = row_of("none");
    const Subject subject(row, {.heads = {4, 2}}), plain(none_row, {.heads = {4, 2}});
    const Tokens tokens = subject.draw(2, 6).requires_grad();
    const at::Tensor positions = subject.run_of_positions(2, 6, 1000);
    // Turned by hand.
    const auto turned = [&](const at::Tensor& x, double sign) {
      at::Tensor y = x.detach().clone();
      for (std::int64_t t = 0; t < 6; ++t)
        for (std::int64_t i = 0; i < 4; ++i) {
          const double angle = sign * static_cast<double>(1000 + t) * std::pow(10000.0, -static_cast<double>(i) / 4);
          const std::int64_t a = woven ? 2 * i : i, b = woven ? 2 * i + 1 : i + 4;
          const at::Tensor xa = x.select(3, a).select(2, t), xb = x.select(3, b).select(2, t);
          y.select(3, a).select(2, t).copy_(xa * std::cos(angle) - xb * std::sin(angle));
          y.select(3, b).select(2, t).copy_(xa * std::sin(angle) + xb * std::cos(angle));
        }
      return y;
    };
    Tokens by_hand{turned(tokens.q, 1), turned(tokens.k, 1), tokens.v.detach().clone()};
    by_hand = by_hand.requires_grad();
    const at::Tensor q_before = tokens.q.detach().clone(), k_before = tokens.k.detach().clone();
    const at::Tensor out = subject.full({tokens, positions, {}}), wanted = plain.full({by_hand, positions, {}});
    EXPECT_LE(row_error(out, wanted), 1e-11);
    EXPECT_TRUE(same_bits(tokens.q.detach(), q_before));  // nothing is turned in place
    EXPECT_TRUE(same_bits(tokens.k.detach(), k_before));
    const at::Tensor grad_out = at::randn_like(out);
    const auto found = torch::autograd::grad({out}, {tokens.q, tokens.k, tokens.v}, {grad_out});
    const auto expected = torch::autograd::grad({wanted}, {by_hand.q, by_hand.k, by_hand.v}, {grad_out});
    EXPECT_LE(tensor_error(found[0], turned(expected[0], -1)), 1e-11);
    EXPECT_LE(tensor_error(found[1], turned(expected[1], -1)), 1e-11);
    EXPECT_LE(tensor_error(found[2], expected[2]), 1e-11);
  }
}

// DAMO-NLP-SG/CLEX#1: the log-n temperature was one constant instead of one factor a query.
TEST(B36, EveryQueryHasItsOwnTemperature) {
  const auto encoding = make_encoding("logn(train_length=2048)", {.heads = 1, .head_dim = 2});
  const at::Tensor one = at::full({1, 1, 2, 2}, 1.0, doubles());
  AttendOptions options;
  options.positions = column({2047, 8191});
  options.window = 1;  // each query sees itself: the log-sum-exp is its logit
  options.scale = 1;
  options.need_lse = true;
  const at::Tensor lse = attend_full(one, one, one, *encoding, options).lse.flatten();
  EXPECT_NEAR(lse[0].item<double>(), 2, 1e-12);
  EXPECT_NEAR(lse[1].item<double>() / 2, 1.1818, 1e-4);
}

}  // namespace
}  // namespace torsor::attention_test
