// The KV cache: refusals that leave it as it was, growth, bytes, rows of their own lengths, truncation, raw keys,
// storage in other dtypes.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/attention/call.h"

namespace torsor::attention_test {
namespace {

at::Tensor longs(const std::vector<std::int64_t>& values) { return at::tensor(values, at::TensorOptions(at::kLong)); }

const EncodingCase& rope_t5() {
  static const EncodingCase row{.expression = "rope + t5(buckets=8, max_distance=16)"};
  return row;
}

/// A cache of 2 rows with 4 tokens in every layer, and the tokens that come next.
struct Held {
  Subject subject{rope_t5(), {.heads = {4, 2}}};
  Placed placed = subject.place(subject.draw(2, 10), subject.run_of_positions(2, 10));
  KvCache cache = subject.cache(2, 8);

  Held() {
    const Placed first = slice(placed, 0, 4);
    cache.append(first.tokens.k, first.tokens.v, subject.options(first));
  }
  Placed next(std::int64_t count) const { return slice(placed, 4, count); }
};

/// The message of a call that must fail and change nothing.
void expect_unchanged(const std::function<void(Held&)>& spoil, const std::vector<std::string>& words) {
  Held held;
  const CacheView before = held.cache.view(0, held.subject.options({}));
  const at::Tensor keys = before.keys.clone(), values = before.values.clone(), positions = before.positions.clone();
  const std::int64_t bytes = held.cache.bytes();
  std::string message;
  try {
    spoil(held);
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_FALSE(message.empty()) << "nothing was refused";
  for (const std::string& word : words)
    EXPECT_NE(message.find(word), std::string::npos) << "'" << word << "' in: " << message;
  EXPECT_EQ(held.cache.lengths(), (std::vector<std::int64_t>{4, 4}));
  EXPECT_EQ(held.cache.bytes(), bytes);
  const CacheView after = held.cache.view(0, held.subject.options({}));
  EXPECT_TRUE(same_bits(after.keys, keys));
  EXPECT_TRUE(same_bits(after.values, values));
  EXPECT_TRUE(same_bits(after.positions, positions));
  // It goes on as if nothing had happened.
  const Placed part = held.next(3);
  const at::Tensor out = held.cache.attend(part.tokens.q, part.tokens.k, part.tokens.v, held.subject.options(part)).out;
  EXPECT_LE(row_error(out, held.subject.full(slice(held.placed, 0, 7)).narrow(2, 4, 3)), 1e-11);
}

/// Spoils one argument of attend().
struct Arguments {
  at::Tensor q, k, v, counts;
  AttendOptions options;
};
void expect_refused(const std::function<void(Arguments&)>& spoil, const std::vector<std::string>& words) {
  expect_unchanged(
      [&](Held& held) {
        const Placed part = held.next(3);
        Arguments arguments{part.tokens.q, part.tokens.k, part.tokens.v, {}, held.subject.options(part)};
        spoil(arguments);
        held.cache.attend(arguments.q, arguments.k, arguments.v, arguments.options, arguments.counts);
      },
      words);
}

TEST(CacheDoor, RefusalsLeaveItAsItWas) {
  expect_refused([](Arguments& a) { a.q = at::randn({2, 2, 3, 8}, doubles()); }, {"q", "(2, 4, n, 8)", "[2, 2, 3, 8]"});
  expect_refused([](Arguments& a) { a.q = at::randn({2, 4, 2, 8}, doubles()); }, {"q", "[2, 4, 2, 8]", "[2, 2, 3, 8]"});
  expect_refused([](Arguments& a) { a.q = at::Tensor(); }, {"q"});
  expect_refused([](Arguments& a) { a.q = a.q.to(at::kHalf); }, {"q", "Half"});
  expect_refused([](Arguments& a) { a.k = at::Tensor(); }, {"k"});
  expect_refused([](Arguments& a) { a.v = at::Tensor(); }, {"v"});
  expect_refused([](Arguments& a) { a.k = at::randn({2, 1, 3, 8}, doubles()); }, {"k", "(2, 2, n, 8)", "[2, 1, 3, 8]"});
  expect_refused([](Arguments& a) { a.k = at::randn({1, 2, 3, 8}, doubles()); }, {"[1, 2, 3, 8]"});
  expect_refused([](Arguments& a) { a.k = a.k.to(at::kLong); }, {"k", "Long"});
  expect_refused([](Arguments& a) { a.v = at::randn({2, 2, 3, 5}, doubles()); }, {"v", "(2, 2, 3, 8)", "[2, 2, 3, 5]"});
  expect_refused([](Arguments& a) { a.v = at::randn({2, 2, 2, 8}, doubles()); }, {"v", "[2, 2, 2, 8]"});
  expect_refused(
      [](Arguments& a) {
        a.options.positions = at::zeros({1, 3, 1});
      },
      {"positions", "(2, 3, 1)", "[1, 3, 1]"});
  expect_refused([](Arguments& a) { a.options.documents = at::zeros({2, 3}, at::kLong); }, {"documents", "not given"});
  expect_refused([](Arguments& a) { a.options.parameters.clear(); }, {"t5.table", "missing"});
  expect_refused([](Arguments& a) { a.options.parameters["more"] = at::zeros({1}); }, {"more"});
  expect_refused([](Arguments& a) { a.options.window = 0; }, {"window"});
  expect_refused([](Arguments& a) { a.options.scale = std::numeric_limits<double>::quiet_NaN(); }, {"scale"});
  expect_refused([](Arguments& a) { a.options.causal = false; }, {"causal", "read()"});
  expect_refused([](Arguments& a) { a.options.layer = 4; }, {"layer 4"});
  expect_refused([](Arguments& a) { a.options.layer = -1; }, {"layer -1"});
  expect_refused([](Arguments& a) { a.options.x = at::zeros({2, 4, kCaseWidth}); }, {"x", "(2, 3, 10)"});
  expect_refused([](Arguments& a) { a.counts = longs({1}); }, {"counts", "(2)"});
  expect_refused([](Arguments& a) { a.counts = longs({4, 0}); }, {"counts", "[0, 3]", "4"});
  expect_refused([](Arguments& a) { a.counts = longs({-1, 0}); }, {"counts", "-1"});
  expect_refused([](Arguments& a) { a.counts = at::ones({2}); }, {"counts", "integers"});
}

TEST(CacheDoor, CapacityIsNeverPassed) {
  expect_unchanged(
      [](Held& held) {
        const Placed part = held.next(5);
        held.cache.append(part.tokens.k, part.tokens.v, held.subject.options(part));
      },
      {"row 0", "9", "capacity is 8"});
  // One row that is full refuses for all of them.
  Held held;
  const Placed part = held.next(4);
  held.cache.append(part.tokens.k, part.tokens.v, held.subject.options(part), longs({4, 1}));
  const Placed more = slice(held.placed, 8, 1);
  EXPECT_THROW(held.cache.append(more.tokens.k, more.tokens.v, held.subject.options(more)), Error);
  EXPECT_NO_THROW(held.cache.append(more.tokens.k, more.tokens.v, held.subject.options(more), longs({0, 1})));
  EXPECT_EQ(held.cache.lengths(), (std::vector<std::int64_t>{8, 6}));
}

TEST(CacheDoor, SizesMustBePositive) {
  const Subject subject(rope_t5(), {.heads = {4, 2}});
  EXPECT_THROW(KvCache(subject.encoding(), {.capacity = 0}), UsageError);
  EXPECT_THROW(KvCache(subject.encoding(), {.capacity = 4, .batch = 0}), UsageError);
  EXPECT_THROW(KvCache(subject.encoding(), {.capacity = 4, .layers = 0}), UsageError);
  EXPECT_THROW(KvCache(subject.encoding(), {.capacity = 4, .value_dim = -1}), UsageError);
  EXPECT_THROW(KvCache(subject.encoding(), {.capacity = 4, .dtype = at::kHalf}), UsageError);
}

TEST(CacheDoor, ReadingNeedsToKnowWhoAsks) {
  Held held;
  AttendOptions options = held.subject.options({});
  const at::Tensor q = held.placed.tokens.q.narrow(2, 0, 2);
  EXPECT_THROW(held.cache.read(q, options), Error);
  options.query_positions = at::zeros({2, 3, 1});
  EXPECT_THROW(held.cache.read(q, options), Error);
  options.query_positions = at::zeros({2, 2, 1});
  options.window = 0;
  EXPECT_THROW(held.cache.read(q, options), Error);
  options.window.reset();
  EXPECT_NO_THROW(held.cache.read(q, options));
  EXPECT_THROW(held.cache.read(q.narrow(1, 0, 2), options), Error);
}

TEST(Cache, ReadsFromTheMiddle) {
  const Held held;
  AttendOptions options = held.subject.options({});
  options.query_positions = held.placed.positions.narrow(1, 1, 2);
  options.query_offsets = longs({1, 1});
  const at::Tensor found = held.cache.read(held.placed.tokens.q.narrow(2, 1, 2), options).out;
  const at::Tensor full = held.subject.full(slice(held.placed, 0, 4));
  EXPECT_LE(row_error(found, full.narrow(2, 1, 2)), 1e-11);
  // Without causal order a query sees all tokens, whatever its place.
  options.causal = false;
  options.query_offsets = at::Tensor();
  AttendOptions open = held.subject.options(slice(held.placed, 0, 4));
  open.causal = false;
  open.query_positions = options.query_positions;
  const Tokens& tokens = held.placed.tokens;
  EXPECT_LE(row_error(held.cache.read(tokens.q.narrow(2, 1, 2), options).out,
                      attend(tokens.q.narrow(2, 1, 2), tokens.k.narrow(2, 0, 4), tokens.v.narrow(2, 0, 4),
                             *held.subject.encoding(), open)),
            1e-11);
}

TEST(Cache, AnEmptyOneAnswersNothing) {
  for (const EncodingCase& row : case_table()) {
    if (row.length_dependent) continue;
    const Subject subject(row, {.heads = row.heads.front()});
    SCOPED_TRACE(subject.name());
    KvCache cache = subject.cache(2, 4);
    const Placed placed = subject.place(subject.draw(2, 3), subject.run_of_positions(2, 3));
    AttendOptions options = subject.options(placed);
    options.query_positions = placed.positions;
    options.positions = at::Tensor();
    for (int turn = 0; turn < 2; ++turn) {
      const Attended one = cache.read(placed.tokens.q, options);
      EXPECT_EQ(one.out.sizes(), (std::vector<std::int64_t>{2, row.heads.front().heads, 3, subject.value_dim()}));
      EXPECT_EQ(one.out.count_nonzero().item<std::int64_t>(), 0);
      cache.append(placed.tokens.k, placed.tokens.v, subject.options(placed));
      cache.truncate(std::int64_t{0});
    }
  }
}

TEST(Cache, RemembersTheNewestTokensOfEachRow) {
  const EncodingCase row{.expression = "none"};
  const Subject subject(row, {.heads = {2, 1}});
  constexpr std::int64_t kFar = 3 * RecentTokens::kLength;
  KvCache cache = subject.cache(2, kFar);
  const Placed placed{subject.draw(2, kFar), subject.run_of_positions(2, kFar), {}};
  const at::Tensor number =
      at::arange(kFar, doubles()).view({1, 1, kFar, 1}) + at::tensor({0.0, 0.5}, doubles()).view({2, 1, 1, 1});
  const auto arrive = [&](std::int64_t first, std::int64_t count, const at::Tensor& counts = {}) {
    const Placed part = slice(placed, first, count);
    cache.append(part.tokens.k, part.tokens.v, subject.options(part), counts);
    cache.remember(0, {{"number", number.narrow(2, first, count)}}, counts);
  };
  const auto newest = [&] {
    const at::Tensor tensor = cache.newest(0).at("number").flatten();
    return std::vector<double>{tensor[0].item<double>(), tensor[1].item<double>()};
  };
  EXPECT_TRUE(cache.newest(0).empty());
  arrive(0, 3, longs({3, 0}));
  EXPECT_EQ(newest(), (std::vector<double>{2, 0}));  // row 1 has no token yet
  arrive(3, kFar / 2);                               // more than the ring holds, at once
  EXPECT_EQ(newest(), (std::vector<double>{kFar / 2 + 2.0, kFar / 2 + 2.5}));
  EXPECT_THROW(cache.remember(0, {{"number", number.narrow(2, 0, 1)}}), Error);  // no such token arrived
  EXPECT_THROW(cache.remember(0, {{"number", number.narrow(0, 0, 1)}}), Error);  // a row is missing
  EXPECT_TRUE(cache.newest(1).empty());
}

TEST(Cache, PositionsGoOnByThemselves) {
  const Held reference;
  const Subject& subject = reference.subject;
  KvCache cache(subject.encoding(), {.capacity = 10, .batch = 2, .dtype = at::kDouble});
  AttendOptions silent = subject.options({});
  EXPECT_EQ(cache.next_positions().flatten()[0].item<double>(), 0);
  std::vector<at::Tensor> outs;
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 3}, {3, 1}, {4, 6}}) {
    const Tokens part = reference.placed.tokens.slice(first, count);
    outs.push_back(cache.attend(part.q, part.k, part.v, silent).out);
    EXPECT_TRUE(cache.next_positions().eq(static_cast<double>(first + count)).all().item<bool>());
  }
  EXPECT_LE(row_error(at::cat(outs, 2), subject.full(reference.placed)), 1e-11);
  cache.truncate({7, 2});
  EXPECT_EQ(cache.next_positions().flatten()[0].item<double>(), 7);
  EXPECT_EQ(cache.next_positions().flatten()[1].item<double>(), 2);
  // Half steps and far starts go on, too.
  KvCache far = subject.cache(2, 10);
  AttendOptions given = silent;
  given.positions = at::full({2, 1, 1}, 999999.5, doubles());
  const Tokens one = reference.placed.tokens.slice(0, 1);
  far.append(one.k, one.v, given);
  EXPECT_EQ(far.next_positions().flatten()[0].item<double>(), 1000000.5);
  EXPECT_EQ(far.view(0, silent).positions.flatten()[0].item<double>(), 999999.5);
}

TEST(Cache, GrowsUpToItsCapacityAndCountsItsBytes) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Subject subject(rope_t5(), {.heads = {4, 2}, .value_dim = 4});
    CacheOptions options;
    options.capacity = 40;
    options.batch = 2;
    options.layers = 2;
    options.value_dim = 4;
    options.dtype = dtype;
    KvCache cache(subject.encoding(), options);
    EXPECT_EQ(cache.bytes(), 0);
    const std::int64_t number = static_cast<std::int64_t>(at::elementSize(dtype));
    // A slot of a row: keys 2 x 8, values 2 x 4, a position.
    const std::int64_t slot = 2 * (number * (2 * 8 + 2 * 4) + 8);
    const Placed placed = subject.place(subject.draw(2, 40), subject.run_of_positions(2, 40));
    std::int64_t held = 0, largest = 0;
    for (std::int64_t token = 0; token < 40; ++token) {
      const Placed part = slice(placed, token, 1);
      cache.append(part.tokens.k, part.tokens.v, subject.options(part));
      const std::int64_t slots = cache.bytes() / slot;
      EXPECT_EQ(cache.bytes() % slot, 0);
      EXPECT_GE(slots, token + 1);
      EXPECT_LE(slots, 40);
      held += slots != largest;
      largest = slots;
    }
    EXPECT_EQ(largest, 40);
    EXPECT_LE(held, 4);  // 16, 32, 40: growing is by doubling
    // What was there before it grew is still there.
    const CacheView view = cache.view(0, subject.options({}));
    EXPECT_TRUE(same_bits(view.values, placed.tokens.v.to(dtype)));
    EXPECT_TRUE(same_bits(view.positions, placed.positions.contiguous()));
    EXPECT_EQ(cache.lengths(1), (std::vector<std::int64_t>{0, 0}));
  }
}

TEST(Cache, LayersAreApart) {
  Held held;
  const Placed part = held.next(2);
  AttendOptions options = held.subject.options(part);
  options.layer = 3;
  held.cache.append(part.tokens.k, part.tokens.v, options);
  EXPECT_EQ(held.cache.lengths(0), (std::vector<std::int64_t>{4, 4}));
  EXPECT_EQ(held.cache.lengths(3), (std::vector<std::int64_t>{2, 2}));
  EXPECT_THROW(held.cache.lengths(4), Error);
  EXPECT_THROW(held.cache.truncate(3), Error);  // layer 3 has two tokens, layers 1 and 2 none
  EXPECT_EQ(held.cache.lengths(0), (std::vector<std::int64_t>{4, 4}));
  EXPECT_NO_THROW(held.cache.truncate(0));
  EXPECT_EQ(held.cache.lengths(3), (std::vector<std::int64_t>{0, 0}));
}

TEST(Cache, TruncatesEachRowToItsOwnLength) {
  for (const EncodingCase& row : case_table()) {
    if (row.length_dependent) continue;
    const Subject subject(row, {.heads = row.heads.front()});
    SCOPED_TRACE(subject.name());
    CacheOptions options;
    options.capacity = 12;
    options.batch = 2;
    options.dtype = at::kDouble;
    KvCache cache(subject.encoding(), options);
    const Tokens right = subject.draw(2, 8), wrong = subject.draw(2, 8);
    const Placed of_right = subject.place(right, subject.run_of_positions(2, 8));
    // Row 0 keeps 5 of the right tokens, row 1 keeps 2; what is cut off was NaN.
    const double nan = std::numeric_limits<double>::quiet_NaN();
    Placed spoilt = of_right;
    spoilt.tokens.k = of_right.tokens.k.clone();
    spoilt.tokens.v = of_right.tokens.v.clone();
    spoilt.positions = of_right.positions.clone();
    const std::vector<std::int64_t> kept = {5, 2};
    for (std::int64_t b = 0; b < 2; ++b) {
      const std::int64_t from = kept[static_cast<std::size_t>(b)];
      spoilt.tokens.k.select(0, b).narrow(1, from, 8 - from).fill_(nan);
      spoilt.tokens.v.select(0, b).narrow(1, from, 8 - from).fill_(nan);
      spoilt.positions.select(0, b).narrow(0, from, 8 - from).fill_(nan);
    }
    AttendOptions call = subject.options(spoilt);
    cache.append(spoilt.tokens.k, spoilt.tokens.v, call);
    EXPECT_THROW(cache.truncate({5, 9}), Error);
    EXPECT_THROW(cache.truncate({5, -1}), Error);
    EXPECT_THROW(cache.truncate(std::vector<std::int64_t>{5}), Error);
    cache.truncate(kept);
    EXPECT_EQ(cache.lengths(), kept);
    // One token a row: row 1 still has NaN in slots that row 0 uses.
    const Placed next0 = slice(of_right, 5, 1), next1 = slice(of_right, 2, 1);
    Placed next;
    next.tokens = stack_rows({next0.tokens.row(0), next1.tokens.row(1)});
    next.positions = at::cat({next0.positions.narrow(0, 0, 1), next1.positions.narrow(0, 1, 1)}, 0);
    call = subject.options(next);
    const at::Tensor out = cache.attend(next.tokens.q, next.tokens.k, next.tokens.v, call).out;
    const at::Tensor full = subject.full(of_right);
    EXPECT_LE(row_error(out.narrow(0, 0, 1), full.narrow(0, 0, 1).narrow(2, 5, 1)), 1e-11);
    EXPECT_LE(row_error(out.narrow(0, 1, 1), full.narrow(0, 1, 1).narrow(2, 2, 1)), 1e-11);
  }
}

TEST(Cache, AnEmptiedCacheMayGoOnWithoutDocuments) {
  const Held reference;
  const Subject& subject = reference.subject;
  KvCache cache = subject.cache(2, 10);
  const Placed first = slice(reference.placed, 0, 4);
  AttendOptions with = subject.options(first);
  with.documents = longs({0, 0, 1, 1, 0, 0, 0, 1}).view({2, 4});
  cache.append(first.tokens.k, first.tokens.v, with);
  const Placed more = slice(reference.placed, 4, 1);
  EXPECT_THROW(cache.append(more.tokens.k, more.tokens.v, subject.options(more)), Error);
  cache.truncate(std::int64_t{0});
  const at::Tensor out = cache.attend(first.tokens.q, first.tokens.k, first.tokens.v, subject.options(first)).out;
  EXPECT_LE(row_error(out, subject.full(first)), 1e-11);
  EXPECT_FALSE(cache.view(0, subject.options({})).documents.defined());
}

TEST(Cache, DocumentsAreKeptBesideTheKeys) {
  const Held reference;
  const Subject& subject = reference.subject;
  KvCache cache = subject.cache(2, 10);
  Placed placed = reference.placed;
  placed.documents = longs({0, 0, 0, 2, 2, 2, 2, 5, 5, 5, -1, -1, 1, 1, 1, 1, 1, 1, 1, 1}).view({2, 10});
  const at::Tensor full = subject.full(placed);
  for (std::int64_t t = 0; t < 10; t += 2) {
    const Placed part = slice(placed, t, 2);
    const at::Tensor out = cache.attend(part.tokens.q, part.tokens.k, part.tokens.v, subject.options(part)).out;
    EXPECT_LE(row_error(out, full.narrow(2, t, 2)), 1e-11) << t;
  }
  AttendOptions options = subject.options({});
  options.query_positions = placed.positions.narrow(1, 9, 1);
  EXPECT_THROW(cache.read(placed.tokens.q.narrow(2, 9, 1), options), Error);  // which document asks?
  options.query_documents = placed.documents.narrow(1, 9, 1);
  EXPECT_LE(row_error(cache.read(placed.tokens.q.narrow(2, 9, 1), options).out, full.narrow(2, 9, 1)), 1e-11);
}

TEST(Cache, RawKeysEqualTheFullCallOfTheSameLength) {
  int seen = 0;
  for (const EncodingCase& row : case_table()) {
    if (!row.length_dependent) continue;
    ++seen;
    const Subject subject(row, {.heads = row.heads.back()});
    SCOPED_TRACE(subject.name());
    EXPECT_EQ(subject.encoding()->cache(0).key, CacheContract::Key::Raw);
    // Rows of different lengths, on either side of the training length, in one cache.
    const Placed placed = subject.place(subject.draw(2, 14), subject.run_of_positions(2, 14));
    KvCache cache = subject.cache(2, 14);
    const Placed first = slice(placed, 0, 9);
    cache.append(first.tokens.k, first.tokens.v, subject.options(first), longs({9, 3}));
    for (std::int64_t t = 0; t < 5; ++t) {
      Placed next;
      const Placed a = slice(placed, 9 + t, 1), b = slice(placed, 3 + t, 1);
      next.tokens = stack_rows({a.tokens.row(0), b.tokens.row(1)});
      next.positions = at::cat({a.positions.narrow(0, 0, 1), b.positions.narrow(0, 1, 1)}, 0);
      const at::Tensor out = cache.attend(next.tokens.q, next.tokens.k, next.tokens.v, subject.options(next)).out;
      for (std::int64_t row_number = 0; row_number < 2; ++row_number) {
        const std::int64_t length = (row_number == 0 ? 10 : 4) + t;
        const Placed alone{placed.tokens.row(row_number).slice(0, length),
                           placed.positions.narrow(0, row_number, 1).narrow(1, 0, length),
                           {}};
        EXPECT_LE(row_error(out.narrow(0, row_number, 1), subject.full(alone).narrow(2, length - 1, 1)), 1e-11)
            << row_number << ' ' << t;
      }
    }
    // Keys are stored as they came.
    AttendOptions options = subject.options({});
    const at::Tensor moved = cache.view(subject.setting().layer, options).keys;
    EXPECT_FALSE(same_bits(moved.narrow(0, 0, 1), placed.tokens.k.narrow(0, 0, 1)));
  }
  EXPECT_GE(seen, 3);
}

TEST(Cache, StorageMayBeNarrowerThanTheCall) {
  for (const EncodingCase& row : case_table()) {
    const Subject subject(row, {.heads = row.heads.front(), .dtype = at::kFloat});
    SCOPED_TRACE(subject.name());
    const Placed placed =
        subject.place(subject.draw(2, 6), subject.run_of_positions(2, 6, row.farthest > 1e3 ? 300 : 0));
    const at::Tensor full = subject.full(placed);
    for (const at::ScalarType dtype : {at::kDouble, at::kBFloat16}) {
      CacheOptions options;
      options.capacity = 6;
      options.batch = 2;
      options.dtype = dtype;
      KvCache cache(subject.encoding(), options);
      AttendOptions call = subject.options(placed);
      const at::Tensor out = cache.attend(placed.tokens.q, placed.tokens.k, placed.tokens.v, call).out;
      EXPECT_EQ(out.scalar_type(), at::kFloat);
      // Keys and values are rounded once, when they arrive: 2^-9 of each number, and the logits move by as much.
      EXPECT_LE(row_error(out, full), dtype == at::kDouble ? 4e-6 : 3e-2);
      if (row.length_dependent || row.absolute || row.raw_keys) continue;
      // The stored key is the moved key rounded, nothing else.
      Question question;
      question.parameters = &subject.parameters();
      question.q = placed.tokens.q, question.k = placed.tokens.k, question.v = placed.tokens.v;
      question.x = placed.tokens.x;
      question.named = &placed.tokens.named;
      question.key.positions = question.query.positions = placed.positions;
      NamedTensors state;
      const NamedTensors kept = subject.of_layer().arrive(question, state);
      question.kept = &kept;
      const at::Tensor moved = move_keys(placed.tokens.k, subject.of_layer(), question, call);
      EXPECT_TRUE(same_bits(cache.view(0, call).keys, moved.to(dtype)));
    }
  }
}

TEST(Cache, HoldsNoGraph) {
  Held held;
  Placed part = held.next(2);
  part.tokens = part.tokens.requires_grad();
  AttendOptions options = held.subject.options(part);
  options.parameters["t5.table"] = options.parameters["t5.table"].clone().requires_grad_(true);
  const at::Tensor out = held.cache.attend(part.tokens.q, part.tokens.k, part.tokens.v, options).out;
  EXPECT_TRUE(out.requires_grad());  // the queries and the table are the call's own
  const CacheView view = held.cache.view(0, options);
  EXPECT_FALSE(view.keys.requires_grad());
  EXPECT_FALSE(view.values.requires_grad());
}

}  // namespace
}  // namespace torsor::attention_test
