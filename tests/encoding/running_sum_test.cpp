// Running sums: documents that come back, padding, rows of different lengths, going on and going back.
#include "torsor/encoding/running_sum.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

namespace torsor {
namespace {

at::Tensor longs(const std::vector<std::int64_t>& values, std::int64_t rows) {
  return at::tensor(values, at::TensorOptions(at::kLong)).view({rows, -1});
}

Side side_of(std::int64_t rows, std::int64_t tokens, const at::Tensor& documents = {}, const at::Tensor& lengths = {}) {
  Side side;
  side.positions = at::zeros({rows, tokens, 1}, at::kDouble);
  side.documents = documents;
  side.lengths = lengths;
  return side;
}

/// What the sums mean, token by token; 0 where a token does not exist.
at::Tensor plain(const at::Tensor& values, const Side& side) {
  at::Tensor sums = at::zeros(values.sizes(), at::kDouble);
  for (std::int64_t b = 0; b < values.size(0); ++b)
    for (std::int64_t h = 0; h < values.size(1); ++h) {
      std::map<std::int64_t, double> of_document;
      for (std::int64_t t = 0; t < values.size(2); ++t) {
        if (side.lengths.defined() && t >= side.lengths[b].item<std::int64_t>()) continue;
        const std::int64_t document = side.documents.defined() ? side.documents[b][t].item<std::int64_t>() : 0;
        if (document == -1) continue;
        sums[b][h][t] = of_document[document] += values[b][h][t].item<double>();
      }
    }
  return sums;
}

/// Documents that follow each other, come back, and stop at different places in the rows.
const at::Tensor kDocuments = longs({-1, -1, 3, 3, 5, 5,  3,  -1, 3, 5, 5, 5,  //
                                     7,  7,  7, 7, 7, -1, -1, 7,  7, 8, 8, 7,  //
                                     0,  1,  2, 3, 0, 1,  2,  3,  0, 1, 2, 3},
                                    3);

TEST(RunningSum, IsOfTheOwnDocumentAlone) {
  const at::Tensor values = at::randn({3, 2, 12}, at::kDouble);
  for (const at::Tensor& lengths : {at::Tensor(), at::tensor({12, 7, 0}, at::kLong)})
    for (const at::Tensor& documents : {at::Tensor(), kDocuments}) {
      const Side side = side_of(3, 12, documents, lengths);
      NamedTensors state;
      const group::RunningSums sums = running_sum(values, side, "sum", state);
      const at::Tensor wanted = plain(values, side), &found = sums.through;
      at::Tensor there = at::ones({3, 1, 12}, at::kBool);
      if (documents.defined()) there = documents.ne(-1).unsqueeze(1);
      if (lengths.defined()) there = there.logical_and(at::arange(12).lt(lengths.view({3, 1, 1})));
      EXPECT_LE(((found - wanted) * there).abs().max().item<double>(), 1e-14);
      EXPECT_LE(((sums.before + values - wanted) * there).abs().max().item<double>(), 1e-14);
      EXPECT_EQ(found.scalar_type(), at::kDouble);
    }
}

TEST(RunningSum, GoesOnWhereItStopped) {
  const at::Tensor values = at::randn({3, 2, 12}, at::kDouble), there = kDocuments.ne(-1).unsqueeze(1);
  const at::Tensor wanted = plain(values, side_of(3, 12, kDocuments));
  for (const std::int64_t chunk : {1, 2, 5}) {
    NamedTensors state;
    for (std::int64_t t = 0; t < 12; t += chunk) {
      const std::int64_t count = std::min<std::int64_t>(chunk, 12 - t);
      const at::Tensor part =
          running_sum(values.narrow(2, t, count), side_of(3, count, kDocuments.narrow(1, t, count)), "sum", state)
              .through;
      EXPECT_LE(((part - wanted.narrow(2, t, count)) * there.narrow(2, t, count)).abs().max().item<double>(), 1e-14);
    }
  }
}

TEST(RunningSum, GoesBackToWhatItWas) {
  const at::Tensor values = at::randn({3, 2, 12}, at::kDouble), there = kDocuments.ne(-1).unsqueeze(1);
  const at::Tensor wanted = plain(values, side_of(3, 12, kDocuments));
  NamedTensors state;
  const at::Tensor sums = running_sum(values, side_of(3, 12, kDocuments), "sum", state).through;
  for (std::int64_t kept = 0; kept <= 12; ++kept) {
    // All rows to `kept`, or each to its own place.
    const at::Tensor lengths = at::tensor({kept, kept, kept}, at::kLong);
    NamedTensors again =
        rewound_sum(sums.narrow(2, 0, kept), side_of(3, kept, kDocuments.narrow(1, 0, kept), lengths), "sum");
    if (kept == 12) continue;
    const at::Tensor rest = running_sum(values.narrow(2, kept, 12 - kept),
                                        side_of(3, 12 - kept, kDocuments.narrow(1, kept, 12 - kept)), "sum", again)
                                .through;
    EXPECT_LE(
        ((rest - wanted.narrow(2, kept, 12 - kept)) * there.narrow(2, kept, 12 - kept)).abs().max().item<double>(),
        1e-14)
        << kept;
  }
  NamedTensors ragged = rewound_sum(sums, side_of(3, 12, kDocuments, at::tensor({3, 0, 12}, at::kLong)), "sum");
  const Side next = side_of(3, 1, longs({3, 7, 2}, 3));
  const at::Tensor one = running_sum(at::ones({3, 2, 1}, at::kDouble), next, "sum", ragged).through;
  EXPECT_LE((one.select(2, 0)[0] - (wanted[0].select(1, 2) + 1)).abs().max().item<double>(), 1e-14);
  EXPECT_LE((one.select(2, 0)[1] - 1).abs().max().item<double>(), 1e-14);
  EXPECT_LE((one.select(2, 0)[2] - (wanted[2].select(1, 10) + 1)).abs().max().item<double>(), 1e-14);
}

// A document's sums are the bits that it has alone: nothing is subtracted to begin anew.
TEST(RunningSum, OfAPackedDocumentIsBitForBitThatOfTheDocument) {
  const at::Tensor values = -at::rand({1, 2, 300}, at::kDouble);
  const at::Tensor documents = at::arange(300, at::kLong).ge(170).to(at::kLong).view({1, 300});
  NamedTensors state, alone;
  const at::Tensor packed = running_sum(values, side_of(1, 300, documents), "sum", state).through;
  const at::Tensor second = running_sum(values.narrow(2, 170, 130), side_of(1, 130), "sum", alone).through;
  EXPECT_TRUE(packed.narrow(2, 170, 130).equal(second));
}

TEST(RunningSum, NotANumberStaysInItsDocument) {
  at::Tensor values = at::ones({1, 1, 9}, at::kDouble);
  values[0][0][1] = std::numeric_limits<double>::quiet_NaN();
  values[0][0][3] = std::numeric_limits<double>::quiet_NaN();  // padding
  const Side side = side_of(1, 9, longs({0, 0, 1, -1, 1, 0, 1, 2, 2}, 1));
  NamedTensors state;
  const at::Tensor sums = running_sum(values, side, "sum", state).through[0][0];
  const std::vector<double> wanted = {1, -1, 1, 0, 2, -1, 3, 1, 2};  // -1 = not a number, 0 = padding
  for (std::int64_t t = 0; t < 9; ++t) {
    const double one = wanted[static_cast<std::size_t>(t)];
    if (one < 0) {
      EXPECT_TRUE(std::isnan(sums[t].item<double>())) << t;
    } else if (one > 0) {
      EXPECT_EQ(sums[t].item<double>(), one) << t;
    }
  }
}

TEST(RunningSum, GradientsReachEveryEarlierTokenOfTheDocument) {
  const at::Tensor values = at::randn({1, 1, 6}, at::kDouble).requires_grad_(true);
  NamedTensors state;
  const at::Tensor sums = running_sum(values, side_of(1, 6, longs({0, 0, 1, -1, 0, 1}, 1)), "sum", state).through;
  sums[0][0][4].backward();
  EXPECT_TRUE(values.grad().flatten().equal(at::tensor({1.0, 1.0, 0.0, 0.0, 1.0, 0.0}, at::kDouble)));
}

}  // namespace
}  // namespace torsor
