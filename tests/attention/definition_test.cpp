// attend() is what the encodings' definitions say, in value and in every gradient: random calls of every row of the
// case table with rows of different lengths, documents, padding, windows, more or fewer queries than keys, given
// scales.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "tests/attention/call.h"
#include "tests/attention/definition.h"

namespace torsor::attention_test {
namespace {

struct RandomCall {
  std::unique_ptr<Subject> subject;
  at::Tensor q, k, v;
  AttendOptions options;
  std::string name;
};

std::int64_t below(std::int64_t end) { return at::randint(end, {1}, at::kLong).item<std::int64_t>(); }

/// `far` is about the largest position.
RandomCall random_call(const EncodingCase& row, std::uint64_t seed, at::ScalarType dtype, double far) {
  at::manual_seed(seed * 7919);
  RandomCall call;
  Setting setting;
  setting.heads = row.heads[static_cast<std::size_t>(below(static_cast<std::int64_t>(row.heads.size())))];
  setting.dtype = dtype;
  setting.layer = below(3);
  setting.value_dim = below(2) == 0 ? 0 : 3;
  setting.transposed = below(2) == 0;
  const bool causal = row.needs_causal || below(3) > 0;
  const std::int64_t rows = 1 + below(2), keys = 1 + below(7), queries = below(3) == 0 ? 1 + below(7) : 1 + below(keys);
  if (below(3) == 0) setting.window = 1 + below(4);
  call.subject = std::make_unique<Subject>(row, setting, seed);
  const Tokens of_queries = call.subject->draw(rows, queries), of_keys = call.subject->draw(rows, keys);
  call.q = of_queries.q, call.k = of_keys.k, call.v = of_keys.v;

  AttendOptions& options = call.options;
  options = call.subject->options({});
  options.causal = causal;
  options.path = below(2) == 0 ? Path::Auto : Path::Reference;
  // Ascending, whole and half steps, from a negative start; keys ahead of a query only by a few, as xPos grows there.
  const double span = causal ? far : std::min(far, 12.0);
  const auto ascending = [](const at::Tensor& values) { return std::get<0>(values.sort(1)); };
  options.positions = ascending((at::rand({rows, keys, row.axes}, doubles()) * 2 * span).floor() / 2 - 3);
  if (below(2) == 0) options.documents = ascending(at::randint(3, {rows, keys}, at::kLong)) - below(2);
  if (below(2) == 0) options.key_lengths = at::randint(keys + 1, {rows}, at::kLong);
  if (below(3) == 0) {
    options.query_offsets = at::randint(keys, {rows}, at::kLong);
    // A query past its row's last token has no x of its own.
    if (row.hidden || row.needs_causal) {
      const at::Tensor length = options.key_lengths.defined() ? options.key_lengths : at::full({rows}, keys, at::kLong);
      options.query_offsets = at::minimum(options.query_offsets, length - queries);
    }
  }
  options.x = of_keys.x;
  options.named = of_keys.named;
  if (below(3) == 0) options.scale = 0.3;
  // The definition is given what the door completes.
  const Sides sides = resolve_sides(call.q, call.k, options, call.subject->of_layer().traits());
  options.query_positions = sides.query.positions;
  if (below(3) == 0) options.query_positions = options.query_positions + 0.25;
  options.query_documents = sides.query.documents;
  call.name = str(call.subject->name(), ", causal ", causal, ", rows ", rows, ", queries ", queries, ", keys ", keys,
                  ", far ", far, ", seed ", seed);
  return call;
}

TEST(Definition, AttendComputesIt) {
  for (const EncodingCase& row : case_table()) {
    for (std::uint64_t seed = 1; seed <= 24; ++seed) {
      constexpr double kFar[] = {8, 40, 1000, 1e6};
      const double far = kFar[seed % 4];
      const RandomCall call = random_call(row, seed, at::kDouble, far);
      SCOPED_TRACE(call.name);
      AttendOptions options = call.options;
      options.need_lse = seed % 3 == 0;
      const Attended found = attend_full(call.q, call.k, call.v, *call.subject->encoding(), options);
      const PlainResult wanted =
          plain_attention_of(plain_call(call.subject->of_layer(), call.q, call.k, call.v, options));
      // Phases p * theta of 1e6 radians are good to 1e-10; their difference meets q and k in a logit.
      const double bound = 1e-11 + 2e-15 * far;
      EXPECT_LE(row_error(found.out, wanted.out), bound);
      if (!options.need_lse) continue;
      const at::Tensor blind = wanted.lse.isinf();
      EXPECT_TRUE(found.lse.isinf().equal(blind));
      EXPECT_LE(tensor_error(found.lse.masked_fill(blind, 0), wanted.lse.masked_fill(blind, 0)), bound);
    }
    if (HasFailure()) return;
  }
}

TEST(Definition, Float32KeepsToTheBoundOfARow) {
  for (const EncodingCase& row : case_table()) {
    for (std::uint64_t seed = 101; seed <= 108; ++seed) {
      const RandomCall call = random_call(row, seed, at::kFloat, seed % 2 == 0 ? 40 : 1e5);
      SCOPED_TRACE(call.name);
      AttendOptions options = call.options;
      options.need_lse = true;
      const Attended found = attend_full(call.q, call.k, call.v, *call.subject->encoding(), options);
      const PlainResult wanted =
          plain_attention_of(plain_call(call.subject->of_layer(), call.q, call.k, call.v, options));
      const double largest = wanted.lse.masked_fill(wanted.lse.isinf(), 0).abs().max().item<double>();
      EXPECT_LE(row_error(found.out, wanted.out), 2e-6 * std::max(1.0, largest / 8));
      EXPECT_EQ(found.out.scalar_type(), at::kFloat);
      EXPECT_EQ(found.lse.scalar_type(), at::kFloat);
    }
    if (HasFailure()) return;
  }
}

/// Compares a gradient with finite differences at up to `most` places.
void expect_gradient(const at::Tensor& found, std::vector<double>& values, std::int64_t most,
                     const std::function<double(std::int64_t)>& loss_around, const std::string& name) {
  ASSERT_TRUE(found.defined()) << name;
  const std::vector<double> gradient = plain_values(found);
  ASSERT_EQ(gradient.size(), values.size()) << name;
  double largest = 0;
  for (const double one : gradient) largest = std::max(largest, std::abs(one));
  const std::int64_t count = static_cast<std::int64_t>(values.size());
  for (std::int64_t n = 0; n < std::min(most, count); ++n) {
    const std::int64_t place = count <= most ? n : below(count);
    double& value = values[static_cast<std::size_t>(place)];
    const double wanted = finite_difference(value, 3e-4, [&] { return loss_around(place); });
    ASSERT_NEAR(gradient[static_cast<std::size_t>(place)], wanted, 1e-9 + 1e-8 * largest) << name << " entry " << place;
  }
}

TEST(Definition, GradientsAreItsFiniteDifferences) {
  for (const EncodingCase& row : case_table()) {
    for (std::uint64_t seed = 201; seed <= 204; ++seed) {
      RandomCall call = random_call(row, seed, at::kDouble, 20);
      SCOPED_TRACE(call.name);
      std::vector<at::Tensor> leaves = {call.q.requires_grad_(true), call.k.requires_grad_(true),
                                        call.v.requires_grad_(true)};
      std::vector<std::string> names;
      for (auto& [name, tensor] : call.options.parameters) {
        leaves.push_back(tensor.requires_grad_(true));
        names.push_back(name);
      }
      if (row.hidden) leaves.push_back(call.options.x.requires_grad_(true));
      const at::Tensor out = attend(call.q, call.k, call.v, *call.subject->encoding(), call.options);
      const at::Tensor grad_out = at::randn_like(out);
      const auto found = torch::autograd::grad({out}, leaves, {grad_out}, {}, false, true);

      PlainCall plain = plain_call(call.subject->of_layer(), call.q, call.k, call.v, call.options);
      const std::vector<double> weights = plain_values(grad_out);
      const std::int64_t group = plain.heads / plain.key_heads;
      const auto of_query = [&](std::int64_t place) {
        const std::int64_t i = place / plain.head_dim % plain.queries,
                           h = place / plain.head_dim / plain.queries % plain.heads;
        const std::int64_t b = place / plain.head_dim / plain.queries / plain.heads;
        return plain_loss(plain, weights, {b, b + 1, h, h + 1, i, i + 1});
      };
      const auto of_key = [&](std::int64_t width) {
        return [&, width](std::int64_t place) {
          const std::int64_t h = place / width / plain.keys % plain.key_heads,
                             b = place / width / plain.keys / plain.key_heads;
          return plain_loss(plain, weights, {b, b + 1, h * group, (h + 1) * group, 0, plain.queries});
        };
      };
      expect_gradient(found[0], plain.q, 24, of_query, "q");
      expect_gradient(found[1], plain.k, 24, of_key(plain.head_dim), "k");
      expect_gradient(found[2], plain.v, 12, of_key(plain.value_dim), "v");
      if (row.hidden && found.back().defined()) {
        const auto of_row = [&](std::int64_t place) {
          const std::int64_t b = place / kCaseWidth / plain.keys;
          return plain_loss(plain, weights, {b, b + 1, 0, plain.heads, 0, plain.queries});
        };
        expect_gradient(found.back(), plain.x, 24, of_row, "x");
      }
      const auto of_all = [&](std::int64_t) { return plain_loss(plain, weights, everything(plain)); };
      for (std::size_t n = 0; n < names.size(); ++n) {
        // Attention reads neither an encoding's table for the embedding nor what changes a state after the layer.
        if (!found[n + 3].defined() && (row.absolute || row.carries)) continue;
        // What nothing depends on here (nobody is seen, no token brings syntax) has the gradient 0.
        const at::Tensor gradient =
            found[n + 3].defined() ? found[n + 3] : at::zeros_like(call.options.parameters.at(names[n]));
        expect_gradient(gradient, plain.parameters.at(names[n]), 48, of_all, names[n]);
      }
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace torsor::attention_test
