// What a cache does with tokens that it holds: shift, evict, fork, contents. The measure is always the full pass of the
// same tokens at the positions that they are said to have.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "tests/attention/call.h"
#include "tests/base/test_folder.h"
#include "torsor/base/json.h"

namespace torsor::attention_test {
namespace {

bool exact(const std::string& contract) { return contract.empty() || contract == "exact"; }

std::string message_of(const std::function<void()>& call) { return testing::message_of<Error>(call); }

/// What stands against a shift in any layer.
std::string other_shifts(const Subject& subject) {
  for (std::int64_t layer = 0; layer < 4; ++layer)
    if (const std::string why = layer_encoding(subject.encoding(), layer)->cache(layer).shift; !exact(why)) return why;
  return "";
}

CacheContract contract_of(const Subject& subject) { return subject.of_layer().cache(subject.setting().layer); }

at::Tensor attend(const Subject& subject, KvCache& cache, const Placed& part, bool with_positions = false) {
  AttendOptions options = subject.options(part);
  if (!with_positions && subject.row().axes == 1) options.positions = at::Tensor();
  return cache.attend(part.tokens.q, part.tokens.k, part.tokens.v, options).out;
}

/// The same tokens in every other layer, as a model brings them.
void fill_others(const Subject& subject, KvCache& cache, const Placed& part) {
  for (std::int64_t layer = 0; layer < 4; ++layer) {
    if (layer == subject.setting().layer) continue;
    Setting setting = subject.setting();
    setting.layer = layer;
    attend(Subject(subject.row(), setting), cache, part, true);
  }
}

/// Positions far enough to matter that the row still takes.
double reach(const Subject& subject, double wanted) { return subject.row().farthest > 1e3 ? wanted : 2; }

TEST(CacheShift, EqualsAFreshPassAtTheNewPositions) {
  int shifted = 0, refused = 0;
  each_row([&](const Subject& subject) {
    const std::int64_t count = 13, rows = 2, axes = subject.row().axes, layer = subject.setting().layer;
    const Placed before = subject.place(subject.draw(rows, count), subject.run_of_positions(rows, count, 1));
    const std::vector<double> ways = {17, -0.5, reach(subject, 1e5)};
    for (const double way : ways) {
      // Rows, and axes, by numbers of their own.
      at::Tensor offsets = at::empty({rows, axes}, doubles());
      for (std::int64_t b = 0; b < rows; ++b)
        for (std::int64_t a = 0; a < axes; ++a) offsets[b][a] = way + static_cast<double>(b) * 0.25 + 3.0 * a;
      KvCache cache = subject.cache(rows, count);
      attend(subject, cache, slice(before, 0, 4), true);
      attend(subject, cache, slice(before, 4, 5), true);
      if (!exact(contract_of(subject).shift)) {
        const at::Tensor keys = cache.view(layer, subject.options({})).keys.clone();
        EXPECT_THROW(cache.shift(offsets), Refusal);
        EXPECT_TRUE(same_bits(cache.positions(layer), before.positions.narrow(1, 0, 9)));
        EXPECT_TRUE(same_bits(cache.view(layer, subject.options({})).keys, keys));
        ++refused;
        return;
      }
      cache.shift(offsets);
      Placed after = before;
      after.positions = before.positions + offsets.unsqueeze(1);
      EXPECT_LE((cache.positions(layer) - after.positions.narrow(1, 0, 9)).abs().max().item<double>(), 1e-10);
      const Placed part = slice(after, 9, 4);
      const at::Tensor out = attend(subject, cache, part, axes > 1);
      EXPECT_LE(row_error(out, subject.full(after).narrow(2, 9, 4)), row_bound(subject.setting().dtype)) << way;
      ++shifted;
    }
  });
  EXPECT_GT(shifted, 60);
  EXPECT_GT(refused, 3);
}

TEST(CacheShift, MovesAPartOfARow) {
  int seen = 0;
  each_row([&](const Subject& subject) {
    if (!exact(contract_of(subject).shift)) return;
    const std::int64_t count = 13, rows = 2, layer = subject.setting().layer;
    const Placed before = subject.place(subject.draw(rows, count), subject.run_of_positions(rows, count, 4));
    for (const bool newer : {true, false}) {
      KvCache cache = subject.cache(rows, count);
      attend(subject, cache, slice(before, 0, 9), true);
      if (exact(other_shifts(subject))) fill_others(subject, cache, slice(before, 0, 9));
      // Tokens 0 to 2 and 3 to 8 move apart, first by the one side, then by the other.
      const at::Tensor first = before.positions.select(2, 0);
      const double border = first[0][3].item<double>();
      const double inf = std::numeric_limits<double>::infinity();
      const at::Tensor apart = at::full({1, subject.row().axes}, newer ? 2.5 : -2.5, doubles());
      newer ? cache.shift(apart, border, inf) : cache.shift(apart, -inf, border);
      Placed after = before;
      after.positions = before.positions.clone();
      const at::Tensor moved = newer ? after.positions.narrow(1, 3, 10) : after.positions.narrow(1, 0, 3);
      // A grid's first axis is the order of the tokens here as well.
      moved.add_(apart);
      EXPECT_LE((cache.positions(layer) - after.positions.narrow(1, 0, 9)).abs().max().item<double>(), 1e-12);
      const at::Tensor out = attend(subject, cache, slice(after, 9, 4), true);
      EXPECT_LE(row_error(out, subject.full(after).narrow(2, 9, 4)), row_bound(subject.setting().dtype)) << newer;
      // And all of it once more, with the part that stands elsewhere in it.
      ++seen;
      if (!exact(other_shifts(subject))) continue;
      cache.truncate(9);
      cache.shift(-1);
      after.positions = after.positions - 1;
      const at::Tensor again = attend(subject, cache, slice(after, 9, 4), true);
      EXPECT_LE(row_error(again, subject.full(after).narrow(2, 9, 4)), row_bound(subject.setting().dtype)) << newer;
    }
  });
  EXPECT_GT(seen, 60);
}

TEST(CacheShift, DoesNotDrift) {
  static const EncodingCase row{.expression = "yarn(rope, factor=4)"};
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Subject subject(row, {.heads = {4, 2}, .dtype = at::kFloat});
    const Placed placed = subject.place(subject.draw(1, 8), subject.run_of_positions(1, 8));
    CacheOptions options;
    options.capacity = 16;
    options.dtype = dtype;
    KvCache many(subject.encoding(), options), once(subject.encoding(), options), back(subject.encoding(), options);
    for (KvCache* cache : {&many, &once, &back}) attend(subject, *cache, slice(placed, 0, 6));
    const AttendOptions nothing = subject.options({});
    const at::Tensor first = many.view(0, nothing).keys.clone();
    const auto sinks = [&](KvCache& cache, double by) {
      const double low = cache.positions()[0][0][0].item<double>();
      cache.shift(at::tensor({by}, doubles()), low, low + 2);
      return cache.view(0, nothing).keys.clone();
    };
    at::Tensor keys;
    for (int i = 0; i < 1000; ++i) keys = sinks(many, -0.75);
    EXPECT_TRUE(same_bits(keys, sinks(once, -750)));
    // There and back is where it began, to the bit, whatever lay between.
    for (int i = 0; i < 50; ++i) sinks(back, i % 2 == 0 ? -1234.5 : 1234.5);
    EXPECT_TRUE(same_bits(back.view(0, nothing).keys, first));
    // What is read is the stored key, rounded when it arrived, turned once and rounded once: the magnitude that yarn
    // gives to keys is in it already.
    const std::optional<RotationInfo> info = subject.encoding()->rotation(0, {});
    ASSERT_TRUE(info);
    EXPECT_NE(info->magnitude, 1);
    const at::Tensor plain = first.narrow(2, 0, 2).to(at::kDouble);
    const std::int64_t half = info->width / 2;
    at::Tensor expected = plain.clone();
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = -750 * info->inv_freq[0][static_cast<std::size_t>(i)];
      const at::Tensor a = plain.select(3, i), b = plain.select(3, half + i);
      expected.select(3, i).copy_(a * std::cos(angle) - b * std::sin(angle));
      expected.select(3, half + i).copy_(a * std::sin(angle) + b * std::cos(angle));
    }
    const double bound = dtype == at::kFloat ? 3e-7 : 5e-3;
    EXPECT_LE(tensor_error(keys.narrow(2, 0, 2).to(at::kDouble), expected), bound);
    EXPECT_TRUE(same_bits(keys.narrow(2, 2, 4), first.narrow(2, 2, 4)));
  }
}

TEST(CacheShift, RefusesWhatHasNoMeaning) {
  static const EncodingCase row{.expression = "rope"};
  const Subject subject(row, {.heads = {2, 2}});
  const Placed placed = subject.place(subject.draw(2, 6), subject.run_of_positions(2, 6));
  KvCache cache = subject.cache(2, 8);
  attend(subject, cache, placed);
  const auto says = [&](const at::Tensor& offsets, const char* word) {
    const std::string message = message_of([&] { cache.shift(offsets); });
    EXPECT_NE(message.find(word), std::string::npos) << message;
  };
  says(at::zeros({3}, doubles()), "(2) or (1)");
  says(at::zeros({2, 2}, doubles()), "found [2, 2]");
  says(at::full({1}, std::numeric_limits<double>::quiet_NaN(), doubles()), "finite");
  says(at::ones({1}, at::TensorOptions(at::kBool)), "real numbers");
  says({}, "none");
  EXPECT_NE(message_of([&] { cache.shift(at::ones({1}, doubles()), std::nan(""), 3); }).find("numbers"),
            std::string::npos);
  EXPECT_TRUE(same_bits(cache.positions(0), placed.positions));
}

TEST(CacheShift, NormsBehindTheMovesNeedRawKeys) {
  for (const char* expression : {"rope", "rope + fire"}) {
    const EncodingCase row{.expression = expression, .trained = true};
    const Subject subject(row, {.heads = {2, 2}});
    const Placed before = subject.place(subject.draw(1, 9), subject.run_of_positions(1, 9));
    const at::Tensor gains = at::linspace(0.5, 2, 8, doubles());
    const auto options_of = [&](const Placed& placed) {
      AttendOptions options = subject.options(placed);
      options.after_moves = [&](const at::Tensor& moved, Role) { return moved * gains; };
      return options;
    };
    Placed after = before;
    after.positions = before.positions.clone();
    after.positions.narrow(1, 0, 2) -= 3.0;
    for (const bool raw : {true, false}) {
      CacheOptions options;
      options.capacity = 9;
      options.dtype = at::kDouble;
      options.raw_keys = raw;
      KvCache cache(subject.encoding(), options);
      const Placed first = slice(before, 0, 6), next = slice(after, 6, 3);
      cache.attend(first.tokens.q, first.tokens.k, first.tokens.v, options_of(first));
      cache.shift(at::full({1}, -3.0, doubles()), 0, 2);
      const auto go_on = [&] {
        return cache.attend(next.tokens.q, next.tokens.k, next.tokens.v, options_of(next)).out;
      };
      if (!raw) {
        EXPECT_NE(message_of(go_on).find("raw_keys"), std::string::npos);
        EXPECT_EQ(cache.lengths()[0], 6);
        continue;
      }
      const at::Tensor full =
          torsor::attend(after.tokens.q, after.tokens.k, after.tokens.v, *subject.encoding(), options_of(after));
      EXPECT_LE(row_error(go_on(), full.narrow(2, 6, 3)), 1e-11);
    }
  }
  const auto tape = make_encoding("tape(rope)", {.heads = 2, .head_dim = 8});
  CacheOptions options;
  options.capacity = 4;
  options.raw_keys = true;
  EXPECT_THROW(KvCache(tape, options), UsageError);
}

/// Whether what the encoding keeps of a token sums up the tokens before it: then dropping some does not equal a pass
/// without them, and is not meant to.
bool sums(const Subject& subject) {
  const std::vector<std::string> kept = contract_of(subject).kept;
  return std::any_of(kept.begin(), kept.end(),
                     [](const std::string& name) { return name.ends_with(".potential") || name.ends_with(".phase"); });
}

// B14: of a head that turns in part (Phi-2: 32 of 80 channels), a shift turns that part alone.
TEST(CacheShift, ChannelsThatDoNotTurnKeepTheirBits) {
  for (const char* expression : {"rope(dim=32)", "rope(dim=32, part=suffix)", "rope(dim=32, layout=interleaved)"})
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      Dimensions dimensions;
      dimensions.heads = dimensions.kv_heads = 2;
      dimensions.head_dim = 80;
      const std::shared_ptr<const Encoding> encoding = make_encoding(expression, dimensions);
      const auto normal = [&] { return at::randn({1, 2, 9, 80}, at::TensorOptions(at::kFloat)).to(dtype); };
      const at::Tensor q = normal(), k = normal(), v = normal();
      const auto filled = [&](double first) {
        CacheOptions options;
        options.capacity = 9;
        options.dtype = dtype;
        KvCache cache(encoding, options);
        AttendOptions call;
        call.positions = (at::arange(9, doubles()) + first).view({1, 9, 1});
        cache.attend(q, k, v, call);
        return cache;
      };
      KvCache cache = filled(1000);
      cache.shift(-17);
      // Some tokens moved apart from the others, so that their keys are turned again.
      at::Tensor apart = at::full({1}, -100.0, doubles());
      cache.shift(apart, 986, 990);
      const CacheView found = cache.view(0, {});
      const bool last = std::string(expression).find("suffix") != std::string::npos;
      const std::int64_t still = last ? 0 : 32, turning = last ? 48 : 0;
      EXPECT_TRUE(same_bits(found.keys.narrow(3, still, 48), k.narrow(3, still, 48))) << expression;
      at::Tensor positions = at::arange(9, doubles()) + 983;
      positions.narrow(0, 3, 4).sub_(100);
      EXPECT_TRUE(same_bits(found.positions.flatten(), positions)) << expression;
      // The turning part: a fresh rotation at the new positions, up to a common turn of all tokens, which no product
      // sees.
      AttendOptions ask;
      ask.positions = positions.view({1, 9, 1});
      CacheOptions options;
      options.capacity = 9;
      options.dtype = at::kDouble;
      KvCache fresh(encoding, options);
      fresh.append(k.to(at::kDouble), v.to(at::kDouble), ask);
      const at::Tensor wanted = fresh.view(0, {}).keys.narrow(3, turning, 32);
      const at::Tensor part = found.keys.to(at::kDouble).narrow(3, turning, 32);
      const auto products = [](const at::Tensor& keys) { return at::matmul(keys, keys.transpose(-1, -2)); };
      const double bound = dtype == at::kFloat ? 1e-4 : 0.3;  // bfloat16 keys of size 8, rounded when they are turned
      EXPECT_LE((products(part) - products(wanted)).abs().max().item<double>(), bound) << expression;
    }
}

// B13: after every step the positions are 0 to 7, the newest one included, and nothing drifts.
TEST(CacheEvict, SinksAndAWindowHaveTheirPositionsAtEveryStep) {
  int seen = 0, refused = 0;
  each_row([&](const Subject& subject) {
    if (subject.row().axes != 1) return;
    const std::int64_t steps = 21, sinks = 2, window = 6, layer = subject.setting().layer;
    const Placed all = subject.place(subject.draw(2, steps), subject.run_of_positions(2, steps));
    KvCache cache = subject.cache(2, sinks + window);
    const CacheContract contract = contract_of(subject);
    std::vector<std::int64_t> held;
    for (std::int64_t t = 0; t < steps; ++t) {
      if (static_cast<std::int64_t>(held.size()) == sinks + window) {
        if (!exact(contract.evict) || !exact(contract.shift)) {
          EXPECT_THROW(cache.evict(sinks, window - 1, true), Refusal);
          EXPECT_EQ(cache.held(layer)[0], sinks + window);
          ++refused;
          return;
        }
        cache.evict(sinks, window - 1, true);
        held.erase(held.begin() + sinks);
      }
      held.push_back(t);
      const at::Tensor out = attend(subject, cache, slice(all, t, 1));
      ASSERT_EQ(cache.lengths(layer)[0], t + 1);
      const auto count = static_cast<std::int64_t>(held.size());
      const at::Tensor expected = at::arange(count, doubles()).view({1, count, 1}).expand({2, count, 1});
      ASSERT_LE((cache.positions(layer) - expected).abs().max().item<double>(), 0) << t;
      if (sums(subject) || t < steps - 4) continue;
      std::vector<Placed> parts;
      for (const std::int64_t index : held) parts.push_back(slice(all, index, 1));
      Placed fresh;
      std::vector<Tokens> tokens;
      for (const Placed& part : parts) tokens.push_back(part.tokens);
      fresh.tokens = join_tokens(tokens);
      fresh.positions = expected;
      const at::Tensor full = subject.full(fresh);
      EXPECT_LE(row_error(out, full.narrow(2, count - 1, 1)), row_bound(subject.setting().dtype)) << t;
      ++seen;
    }
  });
  EXPECT_GT(seen, 100);
  EXPECT_GT(refused, 5);
}

TEST(CacheEvict, AThousandStepsLeaveTheKeysOfAFreshTurn) {
  static const EncodingCase row{.expression = "rope(base=100)"};
  const Subject subject(row, {.heads = {2, 1}, .dtype = at::kFloat});
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    CacheOptions options;
    options.capacity = 8;
    options.dtype = dtype;
    KvCache cache(subject.encoding(), options);
    const at::Tensor sink = at::ones({1, 1, 1, 8}, at::kFloat);
    for (int t = 0; t < 1008; ++t) {
      if (t >= 8) cache.evict(2, 5, true);
      const at::Tensor q = at::ones({1, 2, 1, 8}, at::kFloat);
      cache.attend(q, sink, sink, subject.options({}));
    }
    // Every key is the same vector, so the products tell the positions: the newest query against each key.
    const CacheView view = cache.view(0, subject.options({}));
    KvCache fresh(subject.encoding(), options);
    const at::Tensor keys = sink.expand({1, 1, 8, 8});
    fresh.append(keys, keys, subject.options({}));
    const at::Tensor turned = fresh.view(0, subject.options({})).keys.to(at::kDouble);
    const at::Tensor kept = view.keys.to(at::kDouble);
    const auto products = [](const at::Tensor& all) {
      return at::matmul(all, all.narrow(2, 7, 1).transpose(2, 3)).flatten();
    };
    EXPECT_LE((products(kept) - products(turned)).abs().max().item<double>() / 8, dtype == at::kFloat ? 1e-5 : 2e-2);
    EXPECT_TRUE(at::equal(view.positions.flatten(), at::arange(8, doubles())));
    EXPECT_EQ(cache.lengths()[0], 1008);
    EXPECT_LE(cache.bytes(), 4 * fresh.bytes());
  }
}

TEST(CacheEvict, TheOldestTokensGoWithoutATrace) {
  int seen = 0, refused = 0;
  each_row([&](const Subject& subject) {
    const CacheContract contract = contract_of(subject);
    const std::int64_t count = 14, layer = subject.setting().layer;
    const Placed all = subject.place(subject.draw(2, count), subject.run_of_positions(2, count));
    KvCache cache = subject.cache(2, count);
    attend(subject, cache, slice(all, 0, 9), true);
    if (!exact(contract.oldest())) {
      EXPECT_THROW(cache.evict(0, 5), Refusal);
      EXPECT_EQ(cache.held(layer)[0], 9);
      ++refused;
      return;
    }
    for (std::int64_t other = 0; other < 4; ++other)
      if (!exact(layer_encoding(subject.encoding(), other)->cache(other).oldest())) return;
    fill_others(subject, cache, slice(all, 0, 9));
    cache.evict(0, 5);
    EXPECT_EQ(cache.held(layer)[0], 5);
    EXPECT_EQ(cache.lengths(layer)[0], 9);
    EXPECT_TRUE(same_bits(cache.positions(layer), all.positions.narrow(1, 4, 5)));
    const at::Tensor out = attend(subject, cache, slice(all, 9, 5), true);
    // The same through a mask: queries that see no token before the fourth.
    Placed window = slice(all, 4, 10);
    if (!sums(subject)) {
      const at::Tensor full = subject.full(window);
      EXPECT_LE(row_error(out, full.narrow(2, 5, 5)), row_bound(subject.setting().dtype));
      ++seen;
    }
    EXPECT_NE(message_of([&] { cache.truncate(3); }).find("were dropped"), std::string::npos);
    // Back within what is held, and on again.
    fill_others(subject, cache, slice(all, 9, 5));
    cache.truncate(11);
    const at::Tensor again = attend(subject, cache, slice(all, 11, 3), true);
    EXPECT_LE(row_error(again, out.narrow(2, 2, 3)), row_bound(subject.setting().dtype));
  });
  EXPECT_GT(seen, 60);
  EXPECT_GT(refused, 0);
}

TEST(CacheEvict, EachRowKeepsItsOwnNumber) {
  static const EncodingCase row{.expression = "rope + t5(buckets=8, max_distance=16)"};
  const Subject subject(row, {.heads = {2, 1}});
  const Placed all = subject.place(subject.draw(2, 12), subject.run_of_positions(2, 12));
  KvCache cache = subject.cache(2, 12);
  attend(subject, cache, slice(all, 0, 9));
  cache.evict_rows(1, {3, 20}, true);
  EXPECT_EQ(cache.held(0), (std::vector<std::int64_t>{4, 9}));
  const at::Tensor positions = cache.positions(0);
  EXPECT_TRUE(at::equal(positions[0].narrow(0, 0, 4).flatten(), at::arange(4, doubles())));
  EXPECT_TRUE(at::equal(positions[1].flatten(), at::arange(9, doubles())));
  // The second row goes on as if nothing had happened, the first as its four tokens do.
  const at::Tensor out = attend(subject, cache, slice(all, 9, 3));
  EXPECT_LE(row_error(out.narrow(0, 1, 1), subject.full(all).narrow(2, 9, 3).narrow(0, 1, 1)), 1e-11);
  Placed kept;
  kept.tokens = join_tokens({all.tokens.row(0).slice(0, 1), all.tokens.row(0).slice(6, 6)});
  kept.positions = at::arange(7, doubles()).view({1, 7, 1});
  EXPECT_LE(row_error(out.narrow(0, 0, 1), subject.full(kept).narrow(2, 4, 3)), 1e-11);
}

TEST(CacheEvict, PotentialsOfDroppedTokensStayInTheSums) {
  const EncodingCase row{.expression = "fox", .trained = true, .hidden = true};
  const Subject subject(row, {.heads = {4, 2}});
  const Placed all = subject.place(subject.draw(1, 12), subject.run_of_positions(1, 12));
  KvCache cache = subject.cache(1, 12);
  attend(subject, cache, slice(all, 0, 8));
  cache.evict(1, 4);
  const Placed next = slice(all, 8, 1);
  AttendOptions options = subject.options(next);
  CoreInput asked;
  options.look = [&](const CoreInput& input) { asked = input; };
  cache.attend(next.tokens.q, next.tokens.k, next.tokens.v, options);
  CoreInput full;
  AttendOptions whole = subject.options(slice(all, 0, 9));
  whole.look = [&](const CoreInput& input) { full = input; };
  const Placed nine = slice(all, 0, 9);
  torsor::attend(nine.tokens.q, nine.tokens.k, nine.tokens.v, *subject.encoding(), whole);
  const at::Tensor kept = std::get<PotentialForm>(asked.biases.at(0).form).key;
  const at::Tensor there = std::get<PotentialForm>(full.biases.at(0).form).key;
  const at::Tensor index = at::tensor({0, 4, 5, 6, 7, 8}, at::TensorOptions(at::kLong));
  EXPECT_LE((kept - there.index_select(2, index)).abs().max().item<double>(), 1e-12);
}

TEST(CacheEvict, RefusesBeforeAnythingChanges) {
  static const EncodingCase row{.expression = "rope"};
  const Subject subject(row, {.heads = {2, 2}});
  const Placed placed = subject.place(subject.draw(2, 20), subject.run_of_positions(2, 20));
  KvCache cache = subject.cache(2, 20);
  attend(subject, cache, slice(placed, 0, 12));
  fill_others(subject, cache, slice(placed, 0, 12));
  EXPECT_THROW(cache.evict(-1, 4), Error);
  EXPECT_NE(message_of([&] { cache.evict(2, 0); }).find("at least the newest"), std::string::npos);
  EXPECT_NE(message_of([&] { cache.evict_rows(2, {3}); }).find("expects 2 numbers"), std::string::npos);
  cache.evict(6, 6);  // nothing to drop
  EXPECT_EQ(cache.held(0)[0], 12);
  cache.evict(1, 6);
  EXPECT_EQ(cache.held(0)[0], 7);
  EXPECT_NE(message_of([&] { cache.evict(2, 3); }).find("has lost tokens behind its first 1"), std::string::npos);
  EXPECT_EQ(cache.held(0)[0], 7);
  EXPECT_NE(message_of([&] { cache.truncate(4); }).find("were dropped"), std::string::npos);
  cache.truncate(1);  // the sink alone is whole
  EXPECT_EQ(cache.held(0)[0], 1);
  const at::Tensor out = attend(subject, cache, slice(placed, 1, 5));
  EXPECT_LE(row_error(out, subject.full(slice(placed, 0, 6)).narrow(2, 1, 5)), 1e-11);
  // A window counts tokens, sinks would come into it.
  KvCache narrow = subject.cache(2, 20, 3);
  Placed first = slice(placed, 0, 8);
  AttendOptions options = subject.options(first);
  options.window = 3;
  narrow.attend(first.tokens.q, first.tokens.k, first.tokens.v, options);
  EXPECT_NE(message_of([&] { narrow.evict(1, 2); }).find("a window of 3"), std::string::npos);
  static const EncodingCase grid{.expression = "rope(axes=2)", .axes = 2};
  const Subject plane(grid, {.heads = {2, 2}});
  const Placed pixels = plane.place(plane.draw(1, 9), plane.run_of_positions(1, 9));
  KvCache image = plane.cache(1, 9);
  attend(plane, image, pixels, true);
  EXPECT_NE(message_of([&] { image.evict(1, 2, true); }).find("2 axes"), std::string::npos);
  image.evict(1, 2);
  EXPECT_TRUE(same_bits(image.positions(0).narrow(1, 1, 2), pixels.positions.narrow(1, 7, 2)));
}

TEST(CacheFork, RowsGoOnByThemselves) {
  each_row([&](const Subject& subject) {
    const std::int64_t count = 11;
    const Placed all = subject.place(subject.draw(2, count), subject.run_of_positions(2, count));
    KvCache cache = subject.cache(2, count);
    attend(subject, cache, slice(all, 0, 6), true);
    KvCache copy = cache.fork({1, 0, 1});
    // Each copy goes on with its own row's tokens, the third with the first row's.
    const Placed next = slice(all, 6, 5);
    const auto row = [&](std::int64_t b) { return Placed{next.tokens.row(b), next.positions.narrow(0, b, 1), {}}; };
    Placed mixed;
    mixed.tokens = stack_rows({row(1).tokens, row(0).tokens, row(0).tokens});
    mixed.positions = at::cat({row(1).positions, row(0).positions, row(0).positions}, 0);
    const at::Tensor out = attend(subject, copy, mixed, true);
    const at::Tensor own = attend(subject, cache, next, true);  // the original does not know of its copies
    EXPECT_LE(row_error(out.narrow(0, 0, 1), own.narrow(0, 1, 1)), row_bound(subject.setting().dtype));
    EXPECT_LE(row_error(out.narrow(0, 1, 1), own.narrow(0, 0, 1)), row_bound(subject.setting().dtype));
    EXPECT_FALSE(same_bits(out.narrow(0, 2, 1), out.narrow(0, 0, 1)));
    EXPECT_EQ(copy.lengths(subject.setting().layer), (std::vector<std::int64_t>{11, 11, 11}));
  });
  static const EncodingCase row{.expression = "rope"};
  const Subject subject(row, {.heads = {2, 2}});
  KvCache cache = subject.cache(2, 4);
  EXPECT_THROW(cache.fork({2}), Error);
  EXPECT_THROW(cache.fork({}), Error);
}

TEST(CacheContentsTest, AreEverythingThatACacheHolds) {
  each_row([&](const Subject& subject) {
    const std::int64_t count = 13;
    const CacheContract contract = contract_of(subject);
    const Placed all = subject.place(subject.draw(2, count), subject.run_of_positions(2, count, 3));
    KvCache cache = subject.cache(2, count);
    attend(subject, cache, slice(all, 0, 9), true);
    if (exact(contract.shift)) {
      cache.shift(at::full({1, subject.row().axes}, -1.0, doubles()), 0, 5);
      cache.shift(0.5);
    }
    if (exact(contract.evict)) cache.evict(1, 6);
    const KvCache again = KvCache::restore(subject.encoding(), cache.contents(), "file");
    KvCache copy = again;
    Placed next = slice(all, 9, 4);
    const at::Tensor out = attend(subject, cache, next, true);
    EXPECT_TRUE(same_bits(attend(subject, copy, next, true), out));
    EXPECT_EQ(copy.lengths(subject.setting().layer), cache.lengths(subject.setting().layer));
  });
}

TEST(CacheContentsTest, WhatContradictsItselfIsRefused) {
  static const EncodingCase row{.expression = "rope"};
  const Subject subject(row, {.heads = {2, 2}});
  const Placed placed = subject.place(subject.draw(2, 6), subject.run_of_positions(2, 6));
  KvCache cache = subject.cache(2, 8);
  attend(subject, cache, placed);
  cache.shift(at::full({1}, -1.0, doubles()), 0, 2);
  const CacheContents sound = cache.contents();
  const auto refused = [&](const std::function<void(CacheContents&, Json&)>& spoil, const char* word) {
    CacheContents damaged = sound;
    Json about = parse_json(sound.about, "about");
    spoil(damaged, about);
    damaged.about = json_text(about);
    const std::string message = message_of([&] { KvCache::restore(subject.encoding(), damaged, "a.cache"); });
    EXPECT_NE(message.find("a.cache"), std::string::npos) << message;
    EXPECT_NE(message.find(word), std::string::npos) << message;
  };
  refused([](CacheContents&, Json& about) { about["version"] = 2; }, "version 2");
  refused([](CacheContents&, Json& about) { about["encoding"]["expression"] = "alibi"; }, "another encoding");
  refused([](CacheContents&, Json& about) { about["encoding"]["head_dim"] = 16; }, "another encoding");
  refused([](CacheContents&, Json& about) { about["batch"] = 3; }, "lengths must have 3");
  refused([](CacheContents&, Json& about) { about["batch"] = 1 << 24; }, "lengths must have 16777216");
  refused([](CacheContents& c, Json&) { c.tensors.erase("layers.0.arrived"); }, "'layers.0.arrived' is missing");
  refused([](CacheContents&, Json& about) { about["batch"] = std::int64_t{1} << 60; }, "batch must be");
  refused([](CacheContents&, Json& about) { about["dtype"] = "int8"; }, "dtype must be");
  refused([](CacheContents&, Json& about) { about["capacity"] = 4; }, "the capacity is 4");
  refused([](CacheContents&, Json& about) { about["extra"] = 4; }, "extra");
  refused([](CacheContents&, Json& about) { about["layers"][0]["lengths"] = {6, 7}; }, "layers.0.keys");
  refused([](CacheContents&, Json& about) { about["layers"][0]["forgotten"] = {-1, 0}; }, "lost -1");
  refused([](CacheContents&, Json& about) { about["layers"][0]["sinks"] = {7, 0}; }, "7 sinks");
  refused([](CacheContents&, Json& about) { about["layers"][0]["window"] = -2; }, "window");
  refused([](CacheContents& c, Json&) { c.tensors.erase("layers.0.values"); }, "'layers.0.values' is missing");
  refused([](CacheContents& c, Json&) { c.tensors["layers.0.keys"] = c.tensors["layers.0.keys"].to(at::kFloat); },
          "must be Double");
  refused([](CacheContents& c, Json&) { c.tensors["layers.0.kept.x"] = at::zeros({2, 1, 5}); }, "does not fit");
  refused([](CacheContents& c, Json&) { c.tensors["layers.9.keys"] = at::zeros({1}); }, "belongs to no layer");
  refused(
      [](CacheContents& c, Json& about) {
        c.tensors.erase("layers.0.arrived");
        about["layers"][0]["turned"] = false;
      },
      "'layers.0.arrived'");
  EXPECT_NO_THROW(KvCache::restore(subject.encoding(), sound, "a.cache"));
}

}  // namespace
}  // namespace torsor::attention_test
