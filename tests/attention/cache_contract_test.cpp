// What a cache may be asked, for every name that the library knows: exact, or refused for a reason with every bit as it
// was. And all of it in any order, against the full pass of the tokens that are left.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "tests/attention/call.h"
#include "tests/base/test_folder.h"

namespace torsor::attention_test {
namespace {

bool same(const CacheContents& a, const CacheContents& b) {
  return a.about == b.about && std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(),
                                          [](const auto& one, const auto& other) {
                                            return one.first == other.first && same_bits(one.second, other.second);
                                          });
}

/// One encoding in each of its layers, and what goes through all of them at once.
struct Stack {
  std::vector<Subject> layers;

  explicit Stack(const EncodingCase& row, Setting setting = {}) {
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      setting.layer = layer;
      layers.emplace_back(row, setting, static_cast<std::uint64_t>(layer + 1));
    }
  }
  const Subject& operator[](std::int64_t layer) const { return layers[static_cast<std::size_t>(layer)]; }

  KvCache cache(std::int64_t rows, std::int64_t capacity, at::ScalarType storage) const {
    CacheOptions options;
    options.capacity = capacity;
    options.batch = rows;
    options.layers = kLayers;
    options.dtype = storage;
    options.value_dim = layers.front().value_dim();
    return {layers.front().encoding(), options};
  }
  /// What each layer answers; `silent` leaves the positions to the cache.
  std::vector<at::Tensor> attend(KvCache& cache, const Tokens& tokens, const at::Tensor& positions,
                                 const at::Tensor& counts = {}, bool silent = false) const {
    std::vector<at::Tensor> outs;
    for (const Subject& one : layers) {
      const Placed placed = one.place(tokens, positions);
      AttendOptions options = one.options(placed);
      if (silent) options.positions = at::Tensor();
      outs.push_back(cache.attend(placed.tokens.q, placed.tokens.k, placed.tokens.v, options, counts).out);
    }
    return outs;
  }
  /// The first reason of a layer against something, empty where none has one.
  std::string against(const std::function<std::string(const CacheContract&)>& answer) const {
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      const std::string why = answer((*this)[layer].of_layer().cache(layer));
      if (!CacheContract::exact(why)) return why;
    }
    return "";
  }
  std::string against_shift() const {
    return against([](const CacheContract& one) { return one.shift; });
  }
  std::string against_evict(std::int64_t sinks) const {
    return against([&](const CacheContract& one) { return sinks > 0 ? one.evict : one.oldest(); });
  }

  static constexpr std::int64_t kLayers = 3;
};

/// What a name of the registry allows; the rest is refused.
struct Allowed {
  const char* expression;
  bool shift = true, sinks = true, oldest = true;
};

// Absolute vectors stand in the hidden states; the states of tape have mixed; path integrals and gate counts run over
// every token between two others, so nothing may be missing there.
const Allowed kAllowed[] = {
    {"none"},
    {"sinusoidal", false},
    {"learned(length=64)", false},
    {"rope"},
    {"xpos"},
    {"linear(rope, factor=4)"},
    {"ntk(rope, factor=4)"},
    {"ntk-by-parts(rope(base=100), factor=4)"},
    {"dynamic(rope, factor=2)"},
    {"yarn(rope, factor=4)"},
    {"longrope(rope, short=[1, 1.1, 1.3, 2], long=[1.5, 4, 9, 30], factor=32)"},
    {"llama3(rope(base=50), train_length=64)"},
    {"logn"},
    {"llama4-scale(length=4)"},
    {"alibi"},
    {"t5(buckets=8, max_distance=16)"},
    {"kerple"},
    {"sandwich(width=16)"},
    {"fire(hidden=4, length=6)"},
    {"cope(length=4)", true, false},
    {"txl"},
    {"fox"},
    {"grape-a(gate=qk)"},
    {"grape-ap", true, false},
    {"grape-m"},
    {"grape-m(context=true)"},
    {"tape(rope)", false},
    {"sipe(alibi)"},
    {"sipe(sinusoidal)", false},
    {"heads(rope * 2, cope(length=4) * 2)", true, false},
    {"layers(rope, tape(rope))", false},
};

EncodingCase row_of(const std::string& expression) {
  for (const EncodingCase& row : case_table())
    if (row.expression == expression) return row;
  EncodingCase row{.expression = expression};
  const auto encoding =
      make_encoding(expression, {.heads = 4, .kv_heads = 2, .head_dim = row.head_dim, .width = kCaseWidth});
  row.absolute = encoding->traits().absolute;
  return row;
}

/// Runs an operation that must be refused, for the reason given where there is one, and looks whether a bit changed.
void expect_refused(KvCache& cache, const std::function<void()>& operation, const std::string& why) {
  const CacheContents before = cache.contents();
  const std::string message = testing::message_of<Error>(operation);
  EXPECT_FALSE(message.empty()) << "nothing was refused";
  EXPECT_NE(message.find(why), std::string::npos) << message;
  EXPECT_TRUE(same(before, cache.contents())) << "changed by what was refused: " << message;
}

TEST(CacheContract, EveryNameAllowsWhatIsWrittenHere) {
  std::set<std::string> names;
  for (const Allowed& one : kAllowed) {
    SCOPED_TRACE(one.expression);
    const EncodingCase row = row_of(one.expression);
    const std::function<void(const Expression&)> collect = [&](const Expression& expression) {
      for (const Term& term : expression.terms) {
        names.insert(term.name);
        for (const Item& item : term.operands) collect(item.expression);
      }
    };
    collect(parse(one.expression));
    const Stack stack(row, {.heads = {4, 2}});
    const Tokens tokens = stack[0].draw(2, 12);
    const at::Tensor positions = stack[0].run_of_positions(2, 12);
    const auto filled = [&] {
      KvCache cache = stack.cache(2, 12, at::kDouble);
      stack.attend(cache, tokens.slice(0, 9), positions.narrow(1, 0, 9));
      return cache;
    };
    const auto check = [&](bool allowed, const std::string& why, const std::function<void(KvCache&)>& operation) {
      KvCache cache = filled();
      EXPECT_EQ(why.empty(), allowed) << why;
      if (allowed) {
        EXPECT_NO_THROW(operation(cache));
        return;
      }
      EXPECT_GE(why.size(), 40U) << "a reason says why: " << why;
      expect_refused(
          cache, [&] { operation(cache); }, why);
      // It goes on as if nothing had been asked.
      KvCache untouched = filled();
      const auto found = stack.attend(cache, tokens.slice(9, 3), positions.narrow(1, 9, 3));
      const auto wanted = stack.attend(untouched, tokens.slice(9, 3), positions.narrow(1, 9, 3));
      for (std::size_t layer = 0; layer < found.size(); ++layer) EXPECT_TRUE(same_bits(found[layer], wanted[layer]));
    };
    check(one.shift, stack.against_shift(), [](KvCache& cache) { cache.shift(2.5); });
    check(one.shift, stack.against_shift(), [](KvCache& cache) { cache.shift(at::full({1}, -1.0, doubles()), 0, 3); });
    check(one.sinks, stack.against_evict(2), [](KvCache& cache) { cache.evict(2, 4); });
    check(one.oldest, stack.against_evict(0), [](KvCache& cache) { cache.evict(0, 4); });
    check(one.sinks && one.shift, one.sinks ? stack.against_shift() : stack.against_evict(2),
          [](KvCache& cache) { cache.evict(2, 4, true); });
    check(true, "", [](KvCache& cache) { cache.truncate(4); });
    check(true, "", [](KvCache& cache) { cache.fork({1, 1, 0}); });
    check(true, "", [&](KvCache& cache) { KvCache::restore(stack[0].encoding(), cache.contents(), "x"); });
  }
  for (const NameInfo& info : registry()) EXPECT_TRUE(names.contains(info.name)) << "no line uses " << info.name;
}

TEST(CacheContract, WhatMakesNoSenseChangesNoBit) {
  for (const EncodingCase& row : case_table())
    for (const at::ScalarType storage : {at::kFloat, at::kBFloat16}) {
      const Stack stack(row, {.heads = row.heads.front(), .dtype = at::kFloat});
      SCOPED_TRACE(stack[0].name());
      const Tokens tokens = stack[0].draw(2, 12);
      const at::Tensor positions = stack[0].run_of_positions(2, 12);
      KvCache cache = stack.cache(2, 10, storage);
      stack.attend(cache, tokens.slice(0, 9), positions.narrow(1, 0, 9));
      const std::int64_t axes = row.axes;
      const auto refused = [&](const char* word, const std::function<void()>& operation) {
        expect_refused(cache, operation, word);
      };
      const Placed next = slice(stack[0].place(tokens, positions), 9, 1),
                   more = slice(stack[0].place(tokens, positions), 9, 3);
      const AttendOptions options = stack[0].options(next);
      refused("capacity is 10", [&] { stack.attend(cache, tokens.slice(9, 2), positions.narrow(1, 9, 2)); });
      refused("counts",
              [&] { cache.attend(next.tokens.q, next.tokens.k, next.tokens.v, options, at::full({2}, 2, at::kLong)); });
      refused("Half", [&] { cache.attend(next.tokens.q.to(at::kHalf), next.tokens.k, next.tokens.v, options); });
      refused("Half", [&] { cache.attend(next.tokens.q, next.tokens.k.to(at::kHalf), next.tokens.v, options); });
      refused("v must", [&] { cache.attend(next.tokens.q, next.tokens.k, more.tokens.v, options); });
      refused("positions", [&] {
        AttendOptions other = options;
        other.positions = positions.narrow(1, 0, 3);
        cache.attend(next.tokens.q, next.tokens.k, next.tokens.v, other);
      });
      refused("cannot keep 12", [&] { cache.truncate(12); });
      refused("cannot keep -1", [&] { cache.truncate(-1); });
      refused("expects 2 lengths", [&] { cache.truncate(std::vector<std::int64_t>{3}); });
      refused("sinks", [&] { cache.evict(-1, 4); });
      refused("at least the newest", [&] { cache.evict(1, 0); });
      refused("expects 2 numbers", [&] { cache.evict_rows(1, {4}); });
      refused("fork of row 2", [&] { cache.fork({2}); });
      refused("finite", [&] { cache.shift(at::full({1, axes}, std::numeric_limits<double>::infinity(), doubles())); });
      refused("shape", [&] { cache.shift(at::zeros({3, axes}, doubles())); });
    }
}

// Path integrals read the query of every token: what brings none is refused, and nothing has arrived.
TEST(CacheContract, TokensWithoutTheQueriesThatTheyNeedDoNotArrive) {
  EncodingCase row{.expression = "grape-ap(tie=q)", .relative = false, .needs_causal = true};
  const Stack stack(row, {.heads = {4, 4}});
  const Tokens tokens = stack[0].draw(2, 9);
  const at::Tensor positions = stack[0].run_of_positions(2, 9);
  KvCache cache = stack.cache(2, 9, at::kDouble);
  stack.attend(cache, tokens.slice(0, 6), positions.narrow(1, 0, 6));
  const Placed next = slice(stack[0].place(tokens, positions), 6, 3);
  expect_refused(
      cache, [&] { cache.append(next.tokens.k, next.tokens.v, stack[0].options(next)); }, "tie=q");
  const Placed all = stack[0].place(tokens, positions);
  EXPECT_LE(row_error(stack.attend(cache, next.tokens, next.positions)[0], stack[0].full(all).narrow(2, 6, 3)), 1e-10);
}

// A layer with a window makes room before it asks: what is refused then is as whole as what is refused before.
TEST(CacheContract, AWindowForgetsNothingForWhatIsRefused) {
  for (const char* expression : {"rope", "fox", "alibi"}) {
    SCOPED_TRACE(expression);
    const EncodingCase row = row_of(expression);
    const Subject subject(row, {.heads = {4, 2}, .window = 4});
    const Tokens tokens = subject.draw(2, 32);
    const Placed all = subject.place(tokens, subject.run_of_positions(2, 32));
    CacheOptions keeps;  // of one layer, so that truncate() finds all that it asks for
    keeps.capacity = 40, keeps.batch = 2, keeps.window = {4}, keeps.rollback = 2;
    keeps.value_dim = subject.value_dim();
    KvCache cache(subject.encoding(), keeps), other(subject.encoding(), keeps);
    const auto attend = [&](KvCache& into, std::int64_t first, std::int64_t count, bool windowed) {
      const Placed part = slice(all, first, count);
      AttendOptions options = subject.options(part);
      if (!windowed) options.window.reset();
      return into.attend(part.tokens.q, part.tokens.k, part.tokens.v, options).out;
    };
    for (KvCache* one : {&cache, &other}) attend(*one, 0, 20, true);
    ASSERT_EQ(cache.held()[0], 20);
    expect_refused(
        cache, [&] { attend(cache, 20, 6, false); }, "made for a window of 4");
    cache.truncate(7), other.truncate(7);
    EXPECT_TRUE(same_bits(attend(cache, 7, 20, true), attend(other, 7, 20, true)));
    EXPECT_LT(cache.held()[0], 27) << "nothing was forgotten, so nothing was tested";
  }
}

// What has been dropped of a row lies in one place: taking back by a number of tokens counts on it.
TEST(CacheContract, ASecondGapIsRefused) {
  const EncodingCase row = row_of("fox");
  const Stack stack(row, {.heads = {4, 2}});
  const Tokens tokens = stack[0].draw(2, 9);
  KvCache cache = stack.cache(2, 9, at::kDouble);
  stack.attend(cache, tokens, stack[0].run_of_positions(2, 9));
  cache.evict(3, 4);  // 0, 1, 2, 5, 6, 7, 8
  expect_refused(
      cache, [&] { cache.evict(1, 5); }, "dropping 1 of those would leave a second gap");
  expect_refused(
      cache, [&] { cache.evict(0, 5, true); }, "dropping 2 of those would leave a second gap");
  expect_refused(
      cache, [&] { cache.evict(4, 2); }, "it cannot keep 4 sinks any more");
  cache.evict(2, 4);  // 0, 1, 5, 6, 7, 8
  expect_refused(
      cache, [&] { cache.truncate(4); }, "were dropped");
  cache.evict(0, 4);
  EXPECT_TRUE(same_bits(cache.positions(0)[0].flatten(), at::arange(5, 9, doubles())));
  expect_refused(
      cache, [&] { cache.truncate(5); }, "were dropped");
  cache.truncate(6);
  EXPECT_EQ(cache.next_positions(0).flatten()[0].item<double>(), 6);
}

// ---------------------------------------------------------------------------------------------------------------------
// Any order

/// What a cache of some rows should hold, kept token by token.
class Ledger {
 public:
  struct Token {
    std::int64_t content;  ///< which of the drawn tokens of the row it is
    std::vector<double> at;
    bool there = true;
  };
  using Row = std::vector<Token>;

  Ledger(const Stack& stack, std::int64_t rows, const Tokens& drawn)
      : stack_(&stack), drawn_(&drawn), rows_(static_cast<std::size_t>(rows)), next_(rows_.size(), 0) {
    for (std::size_t b = 0; b < rows_.size(); ++b) source_.push_back(static_cast<std::int64_t>(b));
  }

  std::vector<Row>& rows() { return rows_; }
  std::vector<std::int64_t>& source() { return source_; }
  std::vector<std::int64_t>& next() { return next_; }
  std::int64_t axes() const { return (*stack_)[0].row().axes; }

  std::vector<double> following(const Row& row) const {
    std::vector<double> place(static_cast<std::size_t>(axes()), 0);
    if (row.empty()) return place;
    for (std::size_t a = 0; a < place.size(); ++a) place[a] = row.back().at[a] + 1;
    return place;
  }
  static std::int64_t held(const Row& row) {
    return std::count_if(row.begin(), row.end(), [](const Token& one) { return one.there; });
  }
  /// Tokens before the first that was dropped.
  static std::int64_t leading(const Row& row) {
    return std::find_if(row.begin(), row.end(), [](const Token& one) { return !one.there; }) - row.begin();
  }

  /// What the newest `count` tokens of a row answer in a layer, from one pass over what is left.
  at::Tensor answer(std::size_t b, std::int64_t count, std::int64_t layer, bool sums) const {
    const Subject& subject = (*stack_)[layer];
    std::vector<Tokens> parts;
    std::vector<double> places;
    std::vector<std::int64_t> gone;
    const Row& row = rows_[b];
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (!row[i].there && !sums) continue;
      // Nobody looks at a dropped token; it stands where order needs it.
      std::size_t stands = i;
      while (!row[stands].there && stands > 0) --stands;
      while (!row[stands].there) ++stands;
      if (!row[i].there) gone.push_back(static_cast<std::int64_t>(parts.size()));
      parts.push_back(drawn_->row(source_[b]).slice(row[i].content, 1));
      places.insert(places.end(), row[stands].at.begin(), row[stands].at.end());
    }
    const auto tokens = static_cast<std::int64_t>(parts.size());
    const Placed placed = subject.place(join_tokens(parts), at::tensor(places, doubles()).view({1, tokens, axes()}));
    if (gone.empty()) return subject.full(placed).narrow(2, tokens - count, count);
    // Sums keep what dropped tokens added: all tokens in one pass, then the weights of those that are left.
    const Tokens& t = placed.tokens;
    const std::int64_t key_heads = t.k.size(1), group = t.q.size(1) / key_heads;
    const at::Tensor units = at::eye(tokens, doubles()).to(t.v.scalar_type()).expand({1, key_heads, tokens, tokens});
    at::Tensor weights =
        torsor::attend(t.q, t.k, units.contiguous(), *subject.encoding(), subject.options(placed)).to(at::kDouble);
    weights.index_fill_(3, at::tensor(gone, at::TensorOptions(at::kLong)), 0);
    weights = weights / weights.sum(3, true);
    return at::matmul(weights, t.v.to(at::kDouble).repeat_interleave(group, 1)).narrow(2, tokens - count, count);
  }

 private:
  const Stack* stack_;
  const Tokens* drawn_;
  std::vector<Row> rows_;
  std::vector<std::int64_t> next_;    ///< content that comes next
  std::vector<std::int64_t> source_;  ///< whose content a row takes: forks share it
};

enum class Op { Append, AppendApart, Shift, ShiftNewer, ShiftOlder, Evict, EvictRows, Close, Truncate, Fork, Restore };

/// Runs operations on a cache and on its ledger and compares after each.
class Play {
 public:
  Play(const Stack& stack, at::ScalarType storage, double bound, std::uint64_t seed)
      : stack_(stack),
        drawn_(stack[0].draw(kRows, kContents)),
        ledger_(stack, kRows, drawn_),
        cache_(stack.cache(kRows, kContents, storage)),
        bound_(bound),
        random_(seed) {
    for (std::int64_t layer = 0; layer < Stack::kLayers; ++layer)
      for (const std::string& name : stack[layer].of_layer().cache(layer).kept)
        sums_ |= name.ends_with(".potential") || name.ends_with(".phase");
  }

  int refused() const { return refused_; }
  int compared() const { return compared_; }

  void run(Op op) {
    switch (op) {
      case Op::Append:
        append(false);
        break;
      case Op::AppendApart:
        append(true);
        break;
      case Op::Shift:
      case Op::ShiftNewer:
      case Op::ShiftOlder:
        shift(op);
        break;
      case Op::Evict:
        evict(false, false);
        break;
      case Op::EvictRows:
        evict(true, false);
        break;
      case Op::Close:
        evict(below(2) == 0, true);
        break;
      case Op::Truncate:
        truncate();
        break;
      case Op::Fork: {
        const std::vector<std::int64_t> order = {2, 0, 2};
        cache_ = cache_.fork(order);
        const std::vector<Ledger::Row> rows = ledger_.rows();
        const std::vector<std::int64_t> next = ledger_.next(), source = ledger_.source();
        for (std::size_t b = 0; b < order.size(); ++b) {
          const auto from = static_cast<std::size_t>(order[b]);
          ledger_.rows()[b] = rows[from], ledger_.next()[b] = next[from], ledger_.source()[b] = source[from];
        }
        break;
      }
      case Op::Restore:
        cache_ = KvCache::restore(stack_[0].encoding(), cache_.contents(), "file");
        break;
    }
    check_positions();
  }

 private:
  static constexpr std::int64_t kRows = 3, kContents = 48;

  std::int64_t below(std::int64_t end) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(end));
  }

  void append(bool apart) {
    const std::int64_t most = 1 + below(4);
    std::vector<std::int64_t> counts(kRows, most);
    std::vector<Tokens> parts;
    std::vector<double> places;
    for (std::size_t b = 0; b < kRows; ++b) {
      if (apart) counts[b] = below(most + 1);
      Ledger::Row& row = ledger_.rows()[b];
      std::int64_t& next = ledger_.next()[b];
      if (next + most > kContents) return;
      parts.push_back(drawn_.row(ledger_.source()[b]).slice(next, most));
      std::vector<double> place = ledger_.following(row);
      for (std::int64_t i = 0; i < most; ++i) {
        places.insert(places.end(), place.begin(), place.end());
        if (i < counts[b]) row.push_back({next + i, place});
        for (double& one : place) one += 1;
      }
      next += counts[b];
    }
    const bool silent = ledger_.axes() == 1 && below(2) == 0;
    const auto outs =
        stack_.attend(cache_, stack_rows(parts), at::tensor(places, doubles()).view({kRows, most, ledger_.axes()}),
                      apart ? at::tensor(counts, at::TensorOptions(at::kLong)) : at::Tensor(), silent);
    for (std::int64_t layer = 0; layer < Stack::kLayers; ++layer)
      for (std::size_t b = 0; b < kRows; ++b) {
        if (counts[b] == 0) continue;
        const at::Tensor found =
            outs[static_cast<std::size_t>(layer)].narrow(0, static_cast<std::int64_t>(b), 1).narrow(2, 0, counts[b]);
        EXPECT_LE(row_error(found, ledger_.answer(b, counts[b], layer, sums_)), bound_)
            << "row " << b << " layer " << layer;
        ++compared_;
      }
  }

  void shift(Op op) {
    const std::int64_t axes = ledger_.axes();
    at::Tensor offsets = at::empty({kRows, axes}, doubles());
    for (std::int64_t b = 0; b < kRows; ++b)
      for (std::int64_t a = 0; a < axes; ++a)
        offsets[b][a] =
            static_cast<double>(1 + below(40)) * 0.25 + static_cast<double>(op == Op::Shift ? below(2) * 1000 : 0);
    const double infinity = std::numeric_limits<double>::infinity();
    double from = -infinity, to = infinity;
    Ledger::Row& first = ledger_.rows()[0];
    if (op != Op::Shift && !first.empty()) {
      const double border = first[static_cast<std::size_t>(below(static_cast<std::int64_t>(first.size())))].at[0];
      (op == Op::ShiftNewer ? from : to) = border;
    }
    if (op == Op::ShiftOlder) offsets = -offsets;
    if (const std::string why = stack_.against_shift(); !why.empty() && !all_empty())
      return refuse([&] { cache_.shift(offsets, from, to); }, why);
    cache_.shift(offsets, from, to);
    for (std::size_t b = 0; b < kRows; ++b)
      for (Ledger::Token& token : ledger_.rows()[b])
        if (token.at[0] >= from && token.at[0] < to)
          for (std::int64_t a = 0; a < axes; ++a)
            token.at[static_cast<std::size_t>(a)] += offsets[static_cast<std::int64_t>(b)][a].item<double>();
  }

  void evict(bool rows, bool close) {
    const std::int64_t sinks = below(3);
    std::vector<std::int64_t> newest(kRows, 2 + below(5));
    if (rows)
      for (std::int64_t& one : newest) one = 1 + below(8);
    const auto call = [&] {
      if (rows)
        cache_.evict_rows(sinks, newest, close);
      else
        cache_.evict(sinks, newest[0], close);
    };
    bool any = false;
    bool lost = false;
    for (std::size_t b = 0; b < kRows; ++b) {
      const Ledger::Row& row = ledger_.rows()[b];
      const std::int64_t held = Ledger::held(row), leading = Ledger::leading(row);
      if (held <= sinks + newest[b]) continue;
      any = true;
      const bool gap = leading < static_cast<std::int64_t>(row.size());
      lost |= gap && (sinks > leading || held - newest[b] < leading);
    }
    if (any) {
      if (lost) return refuse(call, "has lost tokens behind its first");
      if (const std::string why = stack_.against_evict(sinks); !why.empty()) return refuse(call, why);
      if (close && ledger_.axes() > 1) return refuse(call, "no order to close a gap");
    }
    if (const std::string why = stack_.against_shift(); close && !why.empty() && !all_empty()) return refuse(call, why);
    call();
    for (std::size_t b = 0; b < kRows; ++b) {
      Ledger::Row& row = ledger_.rows()[b];
      const std::int64_t held = Ledger::held(row);
      if (held <= sinks + newest[b]) continue;
      const double began = std::find_if(row.begin(), row.end(), [](const auto& one) { return one.there; })->at[0];
      std::int64_t seen = 0;
      double end = 0, offset = 0;
      bool behind = false;
      for (Ledger::Token& token : row) {
        if (!token.there) continue;
        const std::int64_t number = seen++;
        if (number < sinks) {
          end = token.at[0];
        } else if (number < held - newest[b]) {
          token.there = false;
        } else if (close) {
          if (!behind) offset = (sinks > 0 ? end + 1 : began) - token.at[0];
          behind = true;
          token.at[0] += offset;
        }
      }
    }
  }

  void truncate() {
    std::vector<std::int64_t> lengths;
    bool gone = false;
    for (const Ledger::Row& row : ledger_.rows()) {
      const auto size = static_cast<std::int64_t>(row.size());
      const std::int64_t length = std::max<std::int64_t>(size - below(5), 0);
      lengths.push_back(length);
      gone |= length > 0 && !row[static_cast<std::size_t>(length - 1)].there;
    }
    if (gone) return refuse([&] { cache_.truncate(lengths); }, "were dropped");
    cache_.truncate(lengths);
    for (std::size_t b = 0; b < kRows; ++b) ledger_.rows()[b].resize(static_cast<std::size_t>(lengths[b]));
  }

  bool all_empty() {
    return std::all_of(ledger_.rows().begin(), ledger_.rows().end(),
                       [](const Ledger::Row& row) { return row.empty(); });
  }

  void refuse(const std::function<void()>& operation, const std::string& why) {
    expect_refused(cache_, operation, why);
    ++refused_;
  }

  void check_positions() {
    for (std::int64_t layer = 0; layer < Stack::kLayers; ++layer) {
      const at::Tensor positions = cache_.positions(layer);
      for (std::size_t b = 0; b < kRows; ++b) {
        const Ledger::Row& row = ledger_.rows()[b];
        ASSERT_EQ(cache_.lengths(layer)[b], static_cast<std::int64_t>(row.size()));
        ASSERT_EQ(cache_.held(layer)[b], Ledger::held(row));
        std::int64_t slot = 0;
        for (const Ledger::Token& token : row) {
          if (!token.there) continue;
          for (std::int64_t a = 0; a < ledger_.axes(); ++a)
            ASSERT_NEAR(positions[static_cast<std::int64_t>(b)][slot][a].item<double>(),
                        token.at[static_cast<std::size_t>(a)], 1e-9)
                << "row " << b << " slot " << slot << " layer " << layer;
          ++slot;
        }
      }
    }
  }

  const Stack& stack_;
  Tokens drawn_;
  Ledger ledger_;
  KvCache cache_;
  double bound_;
  std::mt19937_64 random_;
  bool sums_ = false;
  int refused_ = 0, compared_ = 0;
};

/// Every row of the table with what it is stored in: calls in float64 and float32, and float32 kept in bfloat16, whose
/// keys and values are rounded when they are stored and keys once more when they are turned (2^-9 of each number).
void each_storage(const std::function<void(const Stack&, at::ScalarType, double bound, std::uint64_t seed)>& check) {
  std::uint64_t seed = 1;
  for (const EncodingCase& row : case_table())
    for (const auto& [dtype, storage, bound] : {std::tuple{at::kDouble, at::kDouble, row_bound(at::kDouble)},
                                                {at::kFloat, at::kFloat, row_bound(at::kFloat)},
                                                {at::kFloat, at::kBFloat16, 3e-2}}) {
      Setting setting;
      setting.dtype = dtype;
      setting.heads = row.heads[seed++ % row.heads.size()];
      const Stack stack(row, setting);
      SCOPED_TRACE(stack[0].name() + " kept in " + c10::toString(storage));
      check(stack, storage, bound, seed);
      if (::testing::Test::HasFailure()) return;
    }
}

TEST(CacheContract, EvictedShiftedTakenBackSavedAndGoneOnFrom) {
  int compared = 0, refused = 0;
  each_storage([&](const Stack& stack, at::ScalarType storage, double bound, std::uint64_t seed) {
    Play play(stack, storage, bound, seed);
    for (const Op op : {Op::Append, Op::Append, Op::Append,     Op::AppendApart, Op::Append,      Op::Append,
                        Op::Evict,  Op::Append, Op::Shift,      Op::ShiftNewer,  Op::Truncate,    Op::Restore,
                        Op::Append, Op::Close,  Op::ShiftOlder, Op::Restore,     Op::AppendApart, Op::ShiftNewer,
                        Op::Fork,   Op::Append, Op::EvictRows,  Op::Shift,       Op::Append}) {
      play.run(op);
      if (::testing::Test::HasFailure()) return;
    }
    compared += play.compared(), refused += play.refused();
  });
  EXPECT_GT(compared, 20000);
  EXPECT_GT(refused, 400);
}

TEST(CacheContract, AnyOrderOfOperations) {
  int compared = 0, refused = 0;
  each_storage([&](const Stack& stack, at::ScalarType storage, double bound, std::uint64_t seed) {
    Play play(stack, storage, bound, seed * 7);
    std::mt19937_64 random(seed * 31);
    for (int n = 0; n < 20; ++n) {
      // Every other operation brings tokens.
      const auto op =
          n % 2 == 0 ? (random() % 2 == 0 ? Op::Append : Op::AppendApart) : static_cast<Op>(2 + random() % 9);
      SCOPED_TRACE(::testing::Message() << "operation " << n << " kind " << static_cast<int>(op));
      play.run(op);
      if (::testing::Test::HasFailure()) return;
    }
    compared += play.compared(), refused += play.refused();
  });
  EXPECT_GT(compared, 15000);
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace torsor::attention_test
