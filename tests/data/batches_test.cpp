#include "torsor/data/batches.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/data/test_files.h"
#include "torsor/base/error.h"

namespace torsor {
namespace {

using namespace data_test;

// A corpus whose token at place t of document d is d * 1000 + t: every token tells where it comes from.
Corpus traced_corpus(const std::vector<std::size_t>& sizes) {
  Corpus corpus;
  corpus.tokenizer = "tokens";
  corpus.vocabulary_size = 1000000;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    std::vector<TokenId> ids;
    for (std::size_t t = 0; t < sizes[d]; ++t) ids.push_back(static_cast<TokenId>(d * 1000 + t));
    corpus.documents.push_back({"d" + std::to_string(d), TokenArray::pack(ids, 1000000), 0});
  }
  return corpus;
}

void expect_traced(const Batch& batch) {
  ASSERT_EQ(batch.windows.size(), batch.rows);
  ASSERT_EQ(batch.tokens.size(), batch.rows * (batch.length + 1));
  for (std::size_t r = 0; r < batch.rows; ++r) {
    for (std::size_t t = 0; t <= batch.length; ++t) {
      ASSERT_EQ(batch.tokens[r * (batch.length + 1) + t],
                static_cast<std::int64_t>(batch.windows[r].document * 1000 + batch.windows[r].begin + t));
    }
  }
}

TEST(BatchSampler, WindowsLieInsideDocuments) {
  const BatchSampler sampler(traced_corpus({5, 20, 3, 6, 4}), 16, 4, 1);
  EXPECT_EQ(sampler.window_count(), 1U + 16U + 0U + 2U + 0U);
  std::set<std::size_t> documents;
  for (std::uint64_t step = 0; step < 50; ++step) {
    const Batch batch = sampler.at(step);
    EXPECT_EQ(batch.rows, 16U);
    EXPECT_EQ(batch.length, 4U);
    expect_traced(batch);
    for (const Window& window : batch.windows) documents.insert(window.document);
  }
  EXPECT_EQ(documents, (std::set<std::size_t>{0, 1, 3}));
}

TEST(BatchSampler, EveryPlaceIsEquallyLikely) {
  const BatchSampler sampler(traced_corpus({8, 3, 6, 12}), 100, 3, 2);
  ASSERT_EQ(sampler.window_count(), 5U + 0U + 3U + 9U);
  std::map<std::pair<std::size_t, std::size_t>, int> seen;
  for (std::uint64_t step = 0; step < 200; ++step) {
    for (const Window& window : sampler.at(step).windows) ++seen[{window.document, window.begin}];
  }
  EXPECT_EQ(seen.size(), 17U);
  double chi_square = 0;
  const double expected = 20000.0 / 17.0;
  for (const auto& [place, count] : seen) chi_square += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi_square, 39.25);  // 99.9 % point of 16 degrees of freedom
}

TEST(BatchSampler, IsAFunctionOfSeedAndStep) {
  const Corpus corpus = traced_corpus({500, 700});
  const BatchSampler sampler(corpus, 8, 16, 5);
  const Batch last = sampler.at(41);
  sampler.at(7);
  EXPECT_EQ(sampler.at(41).tokens, last.tokens);
  EXPECT_EQ(BatchSampler(corpus, 8, 16, 5).at(41).tokens, last.tokens);
  EXPECT_NE(BatchSampler(corpus, 8, 16, 6).at(41).windows, last.windows);
  EXPECT_NE(sampler.at(42).windows, last.windows);
  // A larger batch begins with the smaller one's rows.
  const Batch wider = BatchSampler(corpus, 12, 16, 5).at(41);
  EXPECT_TRUE(std::equal(last.windows.begin(), last.windows.end(), wider.windows.begin()));
  EXPECT_NO_THROW(sampler.at(~std::uint64_t{0}));
}

TEST(BatchSampler, TheOrderOfDataIsRecorded) {
  // A change of these numbers changes what every recorded seed means.
  const BatchSampler sampler(traced_corpus({900, 900}), 3, 8, 0);
  std::vector<std::int64_t> firsts;
  for (std::uint64_t step = 0; step < 2; ++step) {
    for (const Window& window : sampler.at(step).windows) {
      firsts.push_back(static_cast<std::int64_t>(window.document * 1000 + window.begin));
    }
  }
  EXPECT_EQ(firsts, (std::vector<std::int64_t>{506, 1670, 273, 1287, 1520, 116}));
}

TEST(BatchSampler, NumbersThePlaces) {
  const BatchSampler sampler(traced_corpus({3, 5, 2, 4}), 1, 2, 0);
  const std::vector<Window> places{{0, 0}, {1, 0}, {1, 1}, {1, 2}, {3, 0}, {3, 1}};
  ASSERT_EQ(sampler.window_count(), places.size());
  for (std::size_t i = 0; i < places.size(); ++i) EXPECT_EQ(sampler.window(i), places[i]) << i;
  EXPECT_THROW(sampler.window(places.size()), Error);
}

TEST(BatchSampler, ADocumentOfExactlyOneWindowIsEnough) {
  const BatchSampler exact(traced_corpus({9}), 2, 8, 0);
  EXPECT_EQ(exact.window_count(), 1U);
  EXPECT_EQ(exact.at(3).windows, (std::vector<Window>{{0, 0}, {0, 0}}));
  const std::string message = message_of<Error>([] { BatchSampler(traced_corpus({8, 2}), 2, 8, 0); });
  EXPECT_TRUE(contains(message, "at least 9")) << message;
  EXPECT_TRUE(contains(message, "longest has 8: d0")) << message;
  EXPECT_THROW(BatchSampler(traced_corpus({1}), 1, 1, 0), Error);
  EXPECT_EQ(BatchSampler(traced_corpus({2}), 1, 1, 0).window_count(), 1U);
  EXPECT_THROW(BatchSampler(Corpus(), 1, 1, 0), Error);
  EXPECT_THROW(BatchSampler(traced_corpus({9}), 0, 8, 0), UsageError);
  EXPECT_THROW(BatchSampler(traced_corpus({9}), 1, 0, 0), UsageError);
}

TEST(BatchSampler, FilesAtTheEdgeOfOneWindow) {
  const TemporaryFolder folder;
  const auto windows_in = [&](std::size_t bytes) {
    return BatchSampler(load_text({folder.write("edge.txt", std::string(bytes, 'x'))}), 1, 16, 0).window_count();
  };
  EXPECT_EQ(windows_in(17), 1U);
  EXPECT_EQ(windows_in(18), 2U);
  for (const std::size_t bytes : {1, 16}) {
    const std::string message = message_of<Error>([&] { windows_in(bytes); });
    EXPECT_TRUE(contains(message, "at least 17") && contains(message, str("has ", bytes, ": "))) << message;
  }
}

TEST(Gather, RefusesWindowsThatLeaveTheirDocument) {
  const Corpus corpus = traced_corpus({10, 5});
  const std::vector<Window> fits{{1, 0}, {0, 5}};
  expect_traced(gather(corpus, fits, 4));
  EXPECT_THROW(gather(corpus, std::vector<Window>{{0, 6}}, 4), Error);
  EXPECT_THROW(gather(corpus, std::vector<Window>{{2, 0}}, 4), Error);
  EXPECT_EQ(gather(corpus, {}, 4).rows, 0U);
}

// Every target that a plan scores at a length, as traced tokens, and how often.
std::map<std::int64_t, int> targets(const Corpus& corpus, const EvaluationPlan& plan, std::size_t length) {
  std::map<std::int64_t, int> seen;
  const Batch batch = gather(corpus, plan.windows(length), length);
  for (std::size_t r = 0; r < batch.rows; ++r) {
    for (std::size_t t = 1; t <= length; ++t) ++seen[batch.tokens[r * (length + 1) + t]];
  }
  return seen;
}

TEST(EvaluationWindows, EveryLengthScoresTheSameTargetsOnce) {
  const Corpus corpus = traced_corpus({100, 33, 32, 16, 65, 1});
  for (const std::size_t limit : {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{5}}) {
    const EvaluationPlan plan = evaluation_windows(corpus, {8, 32, 4, 16}, limit);
    EXPECT_EQ(plan.span_length, 32U);
    EXPECT_EQ(plan.documents_too_short, 3U);
    const auto whole = targets(corpus, plan, 32);
    EXPECT_EQ(whole.size(), plan.target_count());
    for (const auto& [token, count] : whole) EXPECT_EQ(count, 1) << token;
    for (const std::size_t length : {1, 2, 4, 8, 16}) EXPECT_EQ(targets(corpus, plan, length), whole) << length;
  }
  const EvaluationPlan all = evaluation_windows(corpus, {8, 32});
  EXPECT_EQ(all.spans, (std::vector<Window>{{0, 0}, {0, 32}, {0, 64}, {1, 0}, {4, 0}, {4, 32}}));
  EXPECT_EQ(all.documents_used, 3U);
  EXPECT_EQ(all.windows(16)[1], (Window{0, 16}));
  EXPECT_EQ(all.windows(8).size(), 24U);
}

TEST(EvaluationWindows, LimitIsSharedEvenly) {
  const Corpus corpus = traced_corpus({401, 41, 11, 201});  // 40, 4, 1 and 20 spans of 10
  const auto shares = [&](std::size_t limit) {
    std::vector<int> counts(4, 0);
    std::set<std::pair<std::size_t, std::size_t>> places;
    const EvaluationPlan plan = evaluation_windows(corpus, {10}, limit);
    for (const Window& span : plan.spans) {
      ++counts[span.document];
      EXPECT_EQ(span.begin % 10, 0U);
      places.insert({span.document, span.begin});
    }
    EXPECT_EQ(places.size(), plan.spans.size());  // no span twice
    return counts;
  };
  EXPECT_EQ(shares(4), (std::vector<int>{1, 1, 1, 1}));
  EXPECT_EQ(shares(13), (std::vector<int>{4, 4, 1, 4}));
  EXPECT_EQ(shares(33), (std::vector<int>{14, 4, 1, 14}));
  EXPECT_EQ(shares(65), (std::vector<int>{40, 4, 1, 20}));
  EXPECT_EQ(shares(1000), (std::vector<int>{40, 4, 1, 20}));
  EXPECT_EQ(shares(2), (std::vector<int>{0, 1, 0, 1}));
  // One span alone comes from the middle of its document.
  EXPECT_EQ(evaluation_windows(traced_corpus({401}), {10}, 1).spans, (std::vector<Window>{{0, 200}}));
  EXPECT_EQ(evaluation_windows(traced_corpus({401}), {10}, 2).spans, (std::vector<Window>{{0, 100}, {0, 300}}));
}

TEST(EvaluationWindows, OneTokenMoreThanTheSpanIsNeeded) {
  EXPECT_EQ(evaluation_windows(traced_corpus({33}), {32}).spans.size(), 1U);
  const std::string message = message_of<Error>([] { evaluation_windows(traced_corpus({32, 7}), {16, 32}); });
  EXPECT_TRUE(contains(message, "at least 33")) << message;
  EXPECT_TRUE(contains(message, "longest has 32: d0")) << message;
  EXPECT_THROW(evaluation_windows(Corpus(), {4}), Error);
}

TEST(EvaluationWindows, LengthsMustDivideTheLargest) {
  const Corpus corpus = traced_corpus({100});
  const std::string message = message_of<UsageError>([&] { evaluation_windows(corpus, {4, 12, 5, 7, 6}); });
  EXPECT_TRUE(contains(message, "12") && contains(message, "5, 7")) << message;
  EXPECT_FALSE(contains(message, "6")) << message;
  EXPECT_THROW(evaluation_windows(corpus, {}), UsageError);
  EXPECT_THROW(evaluation_windows(corpus, {0, 4}), UsageError);
  EXPECT_EQ(evaluation_windows(corpus, {4, 4}).span_length, 4U);
  const EvaluationPlan plan = evaluation_windows(corpus, {4, 12});
  EXPECT_THROW(plan.windows(5), UsageError);
  EXPECT_THROW(plan.windows(24), UsageError);
  EXPECT_THROW(plan.windows(0), UsageError);
  EXPECT_EQ(plan.windows(6).size(), 2 * plan.spans.size());
}

TEST(SharedText, EvaluationCoversTheValidationBooks) {
  const auto path = shared_data("text/valid/books");
  if (!path) GTEST_SKIP() << "shared text is not here";
  const Corpus corpus = load_text({*path});
  const EvaluationPlan plan = evaluation_windows(corpus, {128, 256, 512, 1024, 2048}, 64);
  EXPECT_EQ(plan.spans.size(), 64U);
  EXPECT_EQ(plan.documents_used, 2U);
  EXPECT_EQ(plan.windows(128).size(), 64U * 16U);
  EXPECT_EQ(evaluation_windows(corpus, {2048}).spans.size(), (894750U - 1) / 2048 + (693161U - 1) / 2048);
}

}  // namespace
}  // namespace torsor
