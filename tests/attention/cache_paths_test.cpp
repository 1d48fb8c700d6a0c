// However tokens reach a cache that keeps them in bfloat16 (all at once, by steps, in chunks, left-padded, packed, in
// rows of their own lengths), what is stored of them has the same bits, so the answers differ by no more than sums in
// another order do. The spine (spine_test.cpp) has the same for float64 and float32 beside the pass without a cache.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/attention/call.h"
#include "tests/base/test_folder.h"

namespace torsor::attention_test {
namespace {

at::Tensor longs(const std::vector<std::int64_t>& values) { return at::tensor(values, at::TensorOptions(at::kLong)); }

KvCache narrow_cache(const Subject& subject, std::int64_t rows, std::int64_t capacity) {
  CacheOptions options;
  options.capacity = capacity;
  options.batch = rows;
  options.layers = 4;
  options.value_dim = subject.value_dim();
  options.dtype = at::kBFloat16;
  return {subject.encoding(), options};
}

/// Through a cache, the given counts of tokens at a time (the last one repeats).
at::Tensor through(const Subject& subject, const Placed& placed, const std::vector<std::int64_t>& chunks) {
  KvCache cache = narrow_cache(subject, placed.tokens.rows(), placed.tokens.count());
  std::vector<at::Tensor> outs;
  std::size_t turn = 0;
  for (std::int64_t first = 0; first < placed.tokens.count();) {
    const std::int64_t count = std::min(chunks[std::min(turn++, chunks.size() - 1)], placed.tokens.count() - first);
    const Placed part = slice(placed, first, count);
    outs.push_back(cache.attend(part.tokens.q, part.tokens.k, part.tokens.v, subject.options(part)).out);
    first += count;
  }
  return at::cat(outs, 2);
}

/// Between two ways to read the same stored bits. Calls in float32 keep to the bound of two ways to compute a row;
/// calls in bfloat16 round such a row once more, which may part two numbers by one unit in the last place, 2^-7 at
/// most.
double way_bound(at::ScalarType call) { return call == at::kFloat ? row_bound(at::kFloat) : 0x1p-7 + 4e-6; }

TEST(CachePaths, BFloat16StorageDoesNotTellThemApart) {
  int seen = 0;
  std::uint64_t seed = 1;
  for (const EncodingCase& row : case_table())
    for (const HeadCounts& heads : row.heads)
      for (const at::ScalarType call : {at::kFloat, at::kBFloat16}) {
        if (call == at::kBFloat16 && &heads != &row.heads.back()) continue;
        Setting setting;
        setting.heads = heads;
        setting.dtype = call;
        setting.layer = static_cast<std::int64_t>(seed % 4);
        if (seed % 3 == 0) setting.window = 4;
        const Subject subject(row, setting, seed++);
        SCOPED_TRACE(subject.name());
        const double bound = way_bound(call), first = row.length_dependent || row.farthest < 1e3 ? 0 : 1e5;
        const Tokens a = subject.draw(1, 9), b = subject.draw(1, 9), padding = subject.draw(1, 3);
        const at::Tensor positions = subject.run_of_positions(1, 9, first);
        const Placed of_a = subject.place(a, positions), of_b = subject.place(b, positions);
        const at::Tensor once_a = through(subject, of_a, {9}), once_b = through(subject, of_b, {9});
        ++seen;
        // The keys and values of a call in float32 are rounded when they are stored: 2^-9 of each number, and the
        // logits move by as much.
        EXPECT_LE(row_error(once_a, subject.full(of_a)), 3e-2) << "beside no cache";

        // Packed, a document in each call and, where frequencies do not wait for its end, by steps and in chunks.
        const Placed packed =
            subject.place(join_tokens({a, b}), at::cat({positions, positions}, 1),
                          longs({5, 5, 5, 5, 5, 5, 5, 5, 5, 2, 2, 2, 2, 2, 2, 2, 2, 2}).view({1, 18}));
        const at::Tensor both = at::cat({once_a, once_b}, 2);
        EXPECT_LE(row_error(through(subject, packed, {9}), both), bound) << "packed";
        // Left-padded beside a row without padding.
        const Tokens wide = join_tokens({b, padding});
        const Placed of_wide = subject.place(wide, subject.run_of_positions(1, 12, first));
        const at::Tensor once_wide = through(subject, of_wide, {12});
        const Placed padded = subject.place(
            stack_rows({join_tokens({padding, a}), wide}),
            at::cat({at::cat({at::full({1, 3, row.axes}, std::max(first - 1, 0.0), doubles()), positions}, 1),
                     subject.run_of_positions(1, 12, first)},
                    0),
            longs({-1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}).view({2, 12}));
        const auto check_padded = [&](const std::vector<std::int64_t>& chunks) {
          const at::Tensor out = through(subject, padded, chunks);
          EXPECT_LE(row_error(out.narrow(0, 0, 1).narrow(2, 3, 9), once_a), bound) << "left-padded";
          EXPECT_LE(row_error(out.narrow(0, 1, 1), once_wide), bound) << "beside padding";
          EXPECT_EQ(out.narrow(0, 0, 1).narrow(2, 0, 3).count_nonzero().item<std::int64_t>(), 0);
        };
        check_padded({12});

        if (row.length_dependent) {
          // A step answers as one call of its length does.
          KvCache cache = narrow_cache(subject, 1, 9);
          for (std::int64_t t = 0; t < 9; ++t) {
            const Placed part = slice(of_a, t, 1);
            const at::Tensor step =
                cache.attend(part.tokens.q, part.tokens.k, part.tokens.v, subject.options(part)).out;
            const at::Tensor whole = through(subject, slice(of_a, 0, t + 1), {t + 1});
            EXPECT_LE(row_error(step, whole.narrow(2, t, 1)), bound) << "step " << t;
          }
          continue;
        }
        for (const std::vector<std::int64_t>& chunks : {std::vector<std::int64_t>{1}, {7}, {2, 5, 1}}) {
          EXPECT_LE(row_error(through(subject, of_a, chunks), once_a), bound) << "chunks of " << chunks[0];
          EXPECT_LE(row_error(through(subject, packed, chunks), both), bound) << "packed, chunks of " << chunks[0];
          check_padded(chunks);
        }
        // Rows of their own lengths: b is two tokens behind, then catches up.
        KvCache cache = narrow_cache(subject, 2, 9);
        const auto arrive = [&](std::int64_t from_a, std::int64_t from_b, std::int64_t count_a, std::int64_t count_b) {
          const std::int64_t most = std::max(count_a, count_b);
          const Placed pa = slice(of_a, std::min(from_a, 9 - most), most),
                       pb = slice(of_b, std::min(from_b, 9 - most), most);
          Placed part{stack_rows({pa.tokens, pb.tokens}), at::cat({pa.positions, pb.positions}, 0), {}};
          const at::Tensor out =
              cache
                  .attend(part.tokens.q, part.tokens.k, part.tokens.v, subject.options(part), longs({count_a, count_b}))
                  .out;
          if (count_a > 0) {
            EXPECT_LE(row_error(out.narrow(0, 0, 1).narrow(2, 0, count_a), once_a.narrow(2, from_a, count_a)), bound);
          }
          if (count_b > 0) {
            EXPECT_LE(row_error(out.narrow(0, 1, 1).narrow(2, 0, count_b), once_b.narrow(2, from_b, count_b)), bound);
          }
        };
        arrive(0, 0, 4, 2);
        arrive(4, 2, 1, 3);
        arrive(5, 5, 4, 0);
        arrive(5, 5, 0, 4);
        if (::testing::Test::HasFailure()) return;
      }
  EXPECT_GE(seen, 550);
}

// float16 is for the matrices of a model (keep_matrices): nothing here computes or stores in it, and it is said.
TEST(CachePaths, Float16IsRefusedByName) {
  const EncodingCase row{.expression = "rope"};
  const Subject subject(row, {.heads = {2, 1}, .dtype = at::kHalf});
  const Placed placed = subject.place(subject.draw(1, 3), subject.run_of_positions(1, 3));
  EXPECT_TRUE(testing::contains(testing::message_of<Error>([&] { subject.full(placed); }), "found Half"));
  EXPECT_TRUE(testing::contains(testing::message_of<UsageError>([&] { subject.cache(1, 3); }), "found Half"));
}

}  // namespace
}  // namespace torsor::attention_test
