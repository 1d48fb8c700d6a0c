// The spine: full == step by step == chunked == packed == left-padded for every row of the case table, every ratio of
// heads, window and dtype; shifts, causality, rows of different lengths, truncation.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/attention/call.h"

namespace torsor::attention_test {
namespace {

/// Every row with every ratio of heads, window and dtype; the layout of q, k, v in memory and the layer alternate.
void each_subject(const std::function<void(const Subject&)>& check) {
  std::uint64_t seed = 1;
  for (const EncodingCase& row : case_table())
    for (const HeadCounts& heads : row.heads)
      for (const std::optional<std::int64_t> window :
           {std::optional<std::int64_t>(), std::optional<std::int64_t>(1), std::optional<std::int64_t>(4)})
        for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
          Setting setting;
          setting.heads = heads;
          setting.window = window;
          setting.dtype = dtype;
          setting.transposed = seed % 2 == 0;
          setting.value_dim = seed % 3 == 0 ? 5 : 0;
          setting.layer = static_cast<std::int64_t>(seed % 4);
          const Subject subject(row, setting, seed++);
          SCOPED_TRACE(subject.name());
          check(subject);
          if (::testing::Test::HasFailure()) return;
        }
}

double first_position(const Subject& subject, std::int64_t turn) {
  constexpr double kFirst[] = {0, 1, 1e5, 1e6};
  const double first = kFirst[turn % 4];
  return first < subject.row().farthest ? first : 3;
}

at::Tensor whole_numbers(std::vector<std::int64_t> values, std::int64_t rows) {
  const std::int64_t count = static_cast<std::int64_t>(values.size()) / rows;
  return at::tensor(values, at::TensorOptions(at::kLong)).view({rows, count});
}

TEST(Spine, FullEqualsStepsAndChunks) {
  std::int64_t turn = 0;
  each_subject([&](const Subject& subject) {
    const std::int64_t count = subject.row().length_dependent ? 7 : 15, rows = 1 + turn % 2;
    const Tokens tokens = subject.draw(rows, count);
    const double first = subject.row().length_dependent ? 0 : first_position(subject, turn);
    const Placed placed = subject.place(tokens, subject.run_of_positions(rows, count, first));
    ++turn;
    const double bound = row_bound(subject.setting().dtype);
    const at::Tensor full = subject.full(placed, Path::Reference);
    EXPECT_LE(row_error(subject.full(placed), full), bound) << "automatic path";
    EXPECT_LE(row_error(subject.cached(placed, {1}), full), bound) << "steps";
    EXPECT_LE(row_error(subject.cached(placed, {7}), full), bound) << "chunks of 7";
    EXPECT_LE(row_error(subject.cached(placed, {3, 5, 1}), full), bound) << "odd chunks";
  });
}

TEST(Spine, ACacheForgetsWhatNoWindowReaches) {
  int seen = 0;
  each_subject([&](const Subject& subject) {
    if (!subject.setting().window || subject.row().length_dependent) return;
    const std::int64_t window = *subject.setting().window, count = 41, rows = 1 + seen % 2;
    const Placed placed = subject.place(subject.draw(rows, count), subject.run_of_positions(rows, count, 1));
    const at::Tensor full = subject.full(placed);
    const std::vector<std::vector<std::int64_t>> ways = {{1}, {7}, {30, 1}, {5, 19, 2}};
    const std::vector<std::int64_t>& chunks = ways[static_cast<std::size_t>(seen++) % ways.size()];
    // Fewer than arrive: the capacity bounds no window, where the encoding can do without the tokens behind it.
    const bool forgets = subject.of_layer().cache(subject.setting().layer).oldest() == "exact";
    KvCache cache = subject.cache(rows, forgets ? 8 : count, window);
    std::size_t turn = 0;
    for (std::int64_t first = 0; first < count;) {
      const std::int64_t next = std::min(chunks[std::min(turn++, chunks.size() - 1)], count - first);
      const Placed part = slice(placed, first, next);
      const at::Tensor out = cache.attend(part.tokens.q, part.tokens.k, part.tokens.v, subject.options(part)).out;
      EXPECT_LE(row_error(out, full.narrow(2, first, next)), row_bound(subject.setting().dtype)) << "token " << first;
      first += next;
      EXPECT_EQ(cache.lengths(subject.setting().layer)[0], first);
      const std::int64_t held = cache.held(subject.setting().layer)[0];
      EXPECT_GE(held, std::min(first, window));
      if (forgets)
        EXPECT_LE(held, std::max<std::int64_t>(window + 1 + 16, next + window + 1));
      else
        EXPECT_EQ(held, first);
    }
  });
  EXPECT_GE(seen, 100);
}

TEST(Spine, LengthDependentStepsEqualTheCallOfTheSameLength) {
  int seen = 0;
  each_row([&](const Subject& subject) {
    if (!subject.row().length_dependent) return;
    ++seen;
    const Placed placed = subject.place(subject.draw(2, 15), subject.run_of_positions(2, 15));
    KvCache cache = subject.cache(2, 15);
    for (std::int64_t token = 0; token < 15; ++token) {
      const Placed part = slice(placed, token, 1);
      const at::Tensor step = cache.attend(part.tokens.q, part.tokens.k, part.tokens.v, subject.options(part)).out;
      const at::Tensor full = subject.full(slice(placed, 0, token + 1)).narrow(2, token, 1);
      EXPECT_LE(row_error(step, full), row_bound(subject.setting().dtype)) << "token " << token;
    }
  });
  EXPECT_GE(seen, 4);
}

TEST(Spine, PackedDocumentsEqualDocumentsAlone) {
  std::int64_t turn = 0;
  each_subject([&](const Subject& subject) {
    const double bound = row_bound(subject.setting().dtype);
    const Tokens a = subject.draw(1, 6), b = subject.draw(1, 9);
    const double first = first_position(subject, turn++);
    const at::Tensor pa = subject.run_of_positions(1, 6), pb = subject.run_of_positions(1, 9, first);
    const at::Tensor alone = at::cat({subject.full(subject.place(a, pa)), subject.full(subject.place(b, pb))}, 2);
    const at::Tensor documents = whole_numbers({4, 4, 4, 4, 4, 4, 9, 9, 9, 9, 9, 9, 9, 9, 9}, 1);
    const Placed packed = subject.place(join_tokens({a, b}), at::cat({pa, pb}, 1), documents);
    EXPECT_LE(row_error(subject.full(packed), alone), bound) << "one pass";
    // A document whose frequencies depend on its length ends within one call.
    EXPECT_LE(row_error(subject.cached(packed, {6, 9}), alone), bound) << "a document at a time";
    if (subject.row().length_dependent) return;
    EXPECT_LE(row_error(subject.cached(packed, {1}), alone), bound) << "steps";
    EXPECT_LE(row_error(subject.cached(packed, {7}), alone), bound) << "chunks of 7";
  });
}

TEST(Spine, LeftPaddedRowsEqualRowsAlone) {
  each_subject([&](const Subject& subject) {
    const double bound = row_bound(subject.setting().dtype);
    const Tokens wide = subject.draw(1, 13), narrow = subject.draw(1, 9), padding = subject.draw(1, 4);
    const at::Tensor alone_wide = subject.full(subject.place(wide, subject.run_of_positions(1, 13)));
    const at::Tensor alone_narrow = subject.full(subject.place(narrow, subject.run_of_positions(1, 9)));
    // Positions are the running sum of the mask minus one, so padding stands at -1.
    const at::Tensor before = at::full({1, 4, subject.row().axes}, -1.0, doubles());
    const at::Tensor positions =
        at::cat({at::cat({before, subject.run_of_positions(1, 9)}, 1), subject.run_of_positions(1, 13)}, 0);
    at::Tensor documents = at::zeros({2, 13}, at::TensorOptions(at::kLong));
    documents.narrow(0, 0, 1).narrow(1, 0, 4).fill_(-1);
    const Placed padded = subject.place(stack_rows({join_tokens({padding, narrow}), wide}), positions, documents);
    const auto check = [&](const at::Tensor& out, const char* how) {
      EXPECT_LE(row_error(out.narrow(0, 1, 1), alone_wide), bound) << how;
      EXPECT_LE(row_error(out.narrow(0, 0, 1).narrow(2, 4, 9), alone_narrow), bound) << how;
      EXPECT_EQ(out.narrow(0, 0, 1).narrow(2, 0, 4).count_nonzero().item<std::int64_t>(), 0) << how;
    };
    check(subject.full(padded), "one pass");
    if (subject.row().length_dependent) return;
    check(subject.cached(padded, {1}), "steps");
    check(subject.cached(padded, {5, 8}), "chunks");
  });
}

TEST(Spine, RowsOfDifferentLengthsInOneCache) {
  std::int64_t turn = 0;
  each_subject([&](const Subject& subject) {
    if (subject.row().length_dependent) return;  // a row's earlier answers belong to its shorter length
    const std::int64_t lengths[] = {9, 0, 14, 3};
    std::vector<Tokens> rows;
    std::vector<at::Tensor> alone;
    const double first = first_position(subject, turn++);
    for (const std::int64_t length : lengths) {
      const Tokens row = subject.draw(1, 14);
      rows.push_back(row);
      alone.push_back(
          length == 0 ? at::Tensor()
                      : subject.full(subject.place(row.slice(0, length), subject.run_of_positions(1, length, first))));
    }
    const Placed placed = subject.place(stack_rows(rows), subject.run_of_positions(4, 14, first));
    KvCache cache = subject.cache(4, 14);
    std::int64_t begin[] = {0, 0, 0, 0};
    while (begin[0] < 9 || begin[2] < 14 || begin[3] < 3) {
      // Every row takes up to five tokens from where it stands; what lies behind its length is never read.
      std::vector<std::int64_t> counts;
      std::vector<Tokens> parts;
      std::vector<at::Tensor> positions;
      for (std::int64_t b = 0; b < 4; ++b) {
        counts.push_back(std::clamp<std::int64_t>(lengths[b] - begin[b], 0, b == 3 ? 1 : 5));
        const std::int64_t from = std::min<std::int64_t>(begin[b], 9);
        const Placed window = slice(placed, from, 5);
        Tokens part = window.tokens.row(b);
        at::Tensor place = window.positions.narrow(0, b, 1);
        if (from != begin[b]) {  // the last tokens, moved to the front
          const std::int64_t over = begin[b] - from;
          part = join_tokens({part.slice(over, 5 - over), part.slice(0, over)});
          place = at::cat({place.narrow(1, over, 5 - over), place.narrow(1, 0, over)}, 1);
        }
        parts.push_back(part);
        positions.push_back(place);
      }
      const Tokens part = stack_rows(parts);
      Placed arriving;
      arriving.tokens = part;
      arriving.positions = at::cat(positions, 0);
      const at::Tensor out =
          cache.attend(part.q, part.k, part.v, subject.options(arriving), at::tensor(counts, at::kLong)).out;
      for (std::int64_t b = 0; b < 4; ++b) {
        const std::int64_t count = counts[static_cast<std::size_t>(b)];
        if (count > 0) {
          const at::Tensor wanted = alone[static_cast<std::size_t>(b)].narrow(2, begin[b], count);
          EXPECT_LE(row_error(out.narrow(0, b, 1).narrow(2, 0, count), wanted), row_bound(subject.setting().dtype))
              << "row " << b << " from " << begin[b];
        }
        begin[b] += count;
      }
    }
    EXPECT_EQ(cache.lengths(subject.setting().layer), (std::vector<std::int64_t>{9, 0, 14, 3}));
  });
}

TEST(Spine, TruncateAndAppendAgainEqualsFresh) {
  std::int64_t turn = 0;
  each_subject([&](const Subject& subject) {
    const double first = subject.row().length_dependent ? 0 : first_position(subject, turn++);
    const Tokens kept = subject.draw(2, 5), dropped = subject.draw(2, 6), again = subject.draw(2, 7);
    const Placed wrong = subject.place(join_tokens({kept, dropped}), subject.run_of_positions(2, 11, first));
    const Placed right = subject.place(join_tokens({kept, again}), subject.run_of_positions(2, 12, first));
    KvCache cache = subject.cache(2, 12);
    cache.append(wrong.tokens.k, wrong.tokens.v, subject.options(wrong));
    for (std::int64_t layer = 0; layer < 4; ++layer) {
      if (layer == subject.setting().layer) continue;
      const Subject other(subject.row(), [&] {
        Setting setting = subject.setting();
        setting.layer = layer;
        return setting;
      }());
      cache.append(wrong.tokens.k, wrong.tokens.v, other.options(wrong));
    }
    cache.truncate(5);
    const Placed part = slice(right, 5, 7);
    const at::Tensor out = cache.attend(part.tokens.q, part.tokens.k, part.tokens.v, subject.options(part)).out;
    EXPECT_LE(row_error(out, subject.full(right).narrow(2, 5, 7)), row_bound(subject.setting().dtype));
  });
}

TEST(Spine, ACacheGoesBackWithinWhatItsWindowHolds) {
  each_subject([&](const Subject& subject) {
    if (subject.setting().window != 4 || subject.row().length_dependent) return;
    const Tokens kept = subject.draw(2, 38), dropped = subject.draw(2, 2), again = subject.draw(2, 7);
    const Placed wrong = subject.place(join_tokens({kept, dropped}), subject.run_of_positions(2, 40));
    const Placed right = subject.place(join_tokens({kept, again}), subject.run_of_positions(2, 45));
    if (subject.of_layer().cache(subject.setting().layer).oldest() != "exact") return;
    KvCache cache = subject.cache(2, 64, 4);
    const auto append = [&](const Placed& tokens) {
      for (std::int64_t layer = 0; layer < 4; ++layer) {
        Setting setting = subject.setting();
        setting.layer = layer;
        const Subject other(subject.row(), setting);
        const bool own = layer == subject.setting().layer;
        cache.append(tokens.tokens.k, tokens.tokens.v, (own ? subject : other).options(tokens));
      }
    };
    for (std::int64_t first = 0; first < 40; first += 5) append(slice(wrong, first, 5));
    EXPECT_THROW(cache.truncate(10), Refusal);
    EXPECT_EQ(cache.lengths(), (std::vector<std::int64_t>{40, 40}));
    cache.truncate(38);
    const Placed part = slice(right, 38, 7);
    const at::Tensor out = cache.attend(part.tokens.q, part.tokens.k, part.tokens.v, subject.options(part)).out;
    EXPECT_LE(row_error(out, subject.full(right).narrow(2, 38, 7)), row_bound(subject.setting().dtype));
    cache.truncate(0);
    const Placed fresh = slice(right, 0, 3);
    const at::Tensor anew = cache.attend(fresh.tokens.q, fresh.tokens.k, fresh.tokens.v, subject.options(fresh)).out;
    EXPECT_LE(row_error(anew, subject.full(right).narrow(2, 0, 3)), row_bound(subject.setting().dtype));
  });
}

TEST(Spine, RelativeEncodingsIgnoreAShiftOfAllPositions) {
  each_row([&](const Subject& subject) {
    const Placed placed = subject.place(subject.draw(2, 9), subject.run_of_positions(2, 9, 3));
    const at::Tensor full = subject.full(placed);
    // Phases are float64: at 1e6 they are good to 1e-10 of a radian and a few of those meet in a logit. In float32 the
    // cosines are rounded once, at another angle each time.
    const double bound = subject.setting().dtype == at::kDouble ? 2e-9 : 8e-6;
    if (subject.row().absolute) return;  // its place is in the contents
    double moved = 0;
    for (const double shift : {1.0, 0.5, -37.0, -1e5 - 0.5, 1e5, 1e6, -1e6}) {
      at::Tensor positions = placed.positions + shift;
      if (subject.row().axes > 1) positions.select(2, 1).sub_(2 * shift);  // each axis has its own origin
      const double error = row_error(subject.full({placed.tokens, positions, {}}), full);
      moved = std::max(moved, error);
      if (subject.row().relative) {
        EXPECT_LE(error, bound) << "shift " << shift;
      }
    }
    // What calls itself not relative is not. A state that tells absolute positions tells them to the next layer.
    const bool shows_here = !subject.row().carries || subject.row().length_dependent;
    if (!subject.row().relative && !subject.of_layer().traits().relative && shows_here) {
      EXPECT_GT(moved, 1e-4);
    }
  });
}

TEST(Spine, ALaterTokenNeverChangesAnEarlierAnswer) {
  each_subject([&](const Subject& subject) {
    const Tokens tokens = subject.draw(2, 11), other = subject.draw(2, 11);
    const Tokens changed = join_tokens({tokens.slice(0, 6), other.slice(6, 5)});
    const at::Tensor positions = subject.run_of_positions(2, 11);
    const Placed before = subject.place(tokens, positions), after = subject.place(changed, positions);
    for (const Path path : {Path::Reference, Path::Auto}) {
      const at::Tensor a = subject.full(before, path), b = subject.full(after, path);
      EXPECT_TRUE(same_bits(a.narrow(2, 0, 6), b.narrow(2, 0, 6))) << (path == Path::Auto ? "automatic" : "reference");
      EXPECT_FALSE(same_bits(a.narrow(2, 6, 5), b.narrow(2, 6, 5)));
    }
  });
}

TEST(Spine, HuggingFacePrecisionKeepsItsStepsToo) {
  int seen = 0;
  for (const EncodingCase& row : case_table()) {
    if (row.length_dependent || row.expression.find("rope") == std::string::npos) continue;
    ++seen;
    for (const auto& [dtype, bound] : {std::pair{at::kFloat, row_bound(at::kFloat)}, {at::kBFloat16, 8e-3}}) {
      Setting setting;
      setting.heads = row.heads.back();
      setting.dtype = dtype;
      setting.precision = Precision::HuggingFace;
      const Subject subject(row, setting);
      SCOPED_TRACE(subject.name());
      const Placed placed = subject.place(subject.draw(2, 9), subject.run_of_positions(2, 9, 40));
      const at::Tensor full = subject.full(placed, Path::Reference);
      EXPECT_LE(row_error(subject.cached(placed, {1}), full), bound);
      EXPECT_LE(row_error(subject.cached(placed, {4}), full), bound);
    }
  }
  EXPECT_GE(seen, 20);
}

TEST(Spine, HeadWidthsAndSingleExtents) {
  int seen = 0;
  std::uint64_t seed = 1;
  for (const EncodingCase& row : case_table())
    for (const std::int64_t head_dim : {2, 6, 72, 128}) {
      Setting setting;
      setting.heads = row.heads.front();
      setting.dtype = seed % 2 == 0 ? at::kFloat : at::kDouble;
      setting.head_dim = head_dim;
      setting.transposed = seed % 3 == 0;
      std::unique_ptr<Subject> subject;
      try {
        subject = std::make_unique<Subject>(row, setting, seed++);
      } catch (const UsageError&) {
        continue;  // the row names channels that this width does not have
      }
      ++seen;
      SCOPED_TRACE(subject->name());
      for (const auto& [rows, count] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 1}, {1, 2}, {3, 5}}) {
        const Placed placed = subject->place(subject->draw(rows, count), subject->run_of_positions(rows, count));
        const at::Tensor full = subject->full(placed, Path::Reference);
        EXPECT_LE(row_error(subject->full(placed), full), row_bound(setting.dtype)) << rows << " x " << count;
        if (row.length_dependent) continue;
        EXPECT_LE(row_error(subject->cached(placed, {1}), full), row_bound(setting.dtype)) << rows << " x " << count;
      }
      if (row.averages) continue;
      // A token that sees only itself answers its own value.
      const Placed one = subject->place(subject->draw(2, 1), subject->run_of_positions(2, 1));
      const at::Tensor own = one.tokens.v.repeat_interleave(setting.heads.heads / setting.heads.kv_heads, 1);
      EXPECT_LE(row_error(subject->full(one), own), row_bound(setting.dtype));
    }
  EXPECT_GE(seen, 150);
}

}  // namespace
}  // namespace torsor::attention_test
