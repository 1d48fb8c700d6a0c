#include "torsor/encoding/running_sum.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace torsor {
namespace {

constexpr const char* kSum = ".sum";
constexpr const char* kDocument = ".document";

/// The document of every token, (B, T) int64 with -1 where there is none; one document where none are given.
at::Tensor documents_of(const Side& side, std::int64_t rows, at::Device device) {
  const at::TensorOptions whole = at::TensorOptions(at::kLong).device(device);
  at::Tensor documents =
      side.documents.defined() ? side.documents.expand({rows, side.tokens()}) : at::zeros({rows, side.tokens()}, whole);
  if (side.lengths.defined())
    documents = documents.masked_fill(at::arange(side.tokens(), whole).ge(side.lengths.unsqueeze(1)), -1);
  return documents;
}

/// First token and length of every stretch in which no row changes its document.
std::vector<std::pair<std::int64_t, std::int64_t>> stretches_of(const Side& side, const at::Tensor& documents) {
  const std::int64_t count = documents.size(1);
  if (count == 0) return {};
  std::vector<std::pair<std::int64_t, std::int64_t>> stretches = {{0, count}};
  if (count == 1 || (!side.documents.defined() && !side.lengths.defined())) return stretches;
  const at::Tensor changes =
      documents.narrow(1, 1, count - 1).ne(documents.narrow(1, 0, count - 1)).any(0).to(at::kCPU).contiguous();
  const bool* change = changes.const_data_ptr<bool>();
  for (std::int64_t t = 1; t < count; ++t) {
    if (!change[t - 1]) continue;
    stretches.back().second = t - stretches.back().first;
    stretches.emplace_back(t, count - t);
  }
  return stretches;
}

}  // namespace

group::RunningSums running_sum(const at::Tensor& values, const Side& arriving, const std::string& name,
                               NamedTensors& state) {
  const std::int64_t rows = values.size(0), heads = values.size(1);
  const at::TensorOptions wide = values.options().dtype(at::kDouble);
  const at::Tensor documents = documents_of(arriving, rows, values.device());
  const at::Tensor added = values.to(at::kDouble).masked_fill(documents.eq(-1).unsqueeze(1), 0);
  const auto found = state.find(name + kSum);
  at::Tensor sums = found != state.end() ? found->second : at::zeros({rows, heads, 0}, wide);
  at::Tensor met = found != state.end() ? state.at(name + kDocument) : at::zeros({rows, 0}, wide.dtype(at::kLong));

  std::vector<at::Tensor> before, through;
  for (const auto& [first, count] : stretches_of(arriving, documents)) {
    const at::Tensor own = documents.select(1, first).unsqueeze(1);
    at::Tensor same = met.eq(own);
    const at::Tensor fresh = same.any(1, true).logical_not();
    if (fresh.any().item<bool>()) {
      met = at::cat({met, own.masked_fill(fresh.logical_not(), -1)}, 1);
      sums = at::cat({sums, at::zeros({rows, heads, 1}, wide)}, 2);
      same = met.eq(own);
    }
    // Where tokens are not there, `same` may hold several places of -1: their sums are 0 and stay so. A sum that is not
    // finite must not reach another document, so nothing is multiplied by 0 here.
    const at::Tensor here = same.unsqueeze(1);
    const group::RunningSums piece =
        group::running_sums(added.narrow(2, first, count), sums.masked_fill(here.logical_not(), 0).sum(2));
    sums = at::where(here, piece.through.narrow(2, count - 1, 1), sums);
    before.push_back(piece.before);
    through.push_back(piece.through);
  }
  state[name + kSum] = sums;
  state[name + kDocument] = met;
  const auto joined = [&](const std::vector<at::Tensor>& pieces) {
    return pieces.empty()       ? at::zeros({rows, heads, 0}, wide)
           : pieces.size() == 1 ? pieces.front()
                                : at::cat(pieces, 2);
  };
  return {joined(before), joined(through)};
}

NamedTensors rewound_sum(const at::Tensor& sums, const Side& tokens, const std::string& name) {
  const std::int64_t rows = sums.size(0), heads = sums.size(1);
  const at::Tensor documents = documents_of(tokens, rows, sums.device()).to(at::kCPU).contiguous();
  const std::int64_t* document = documents.const_data_ptr<std::int64_t>();
  const std::int64_t count = documents.size(1);
  std::vector<std::map<std::int64_t, std::int64_t>> newest(static_cast<std::size_t>(rows));  // token by document
  std::int64_t most = 0;
  for (std::int64_t b = 0; b < rows; ++b) {
    auto& of_row = newest[static_cast<std::size_t>(b)];
    for (std::int64_t t = 0; t < count; ++t)
      if (const std::int64_t own = document[b * count + t]; own != -1) of_row[own] = t;
    most = std::max(most, static_cast<std::int64_t>(of_row.size()));
  }
  const at::Tensor met = at::full({rows, most}, -1, at::TensorOptions(at::kLong));
  const at::Tensor kept = at::zeros({rows, heads, most}, sums.options().dtype(at::kDouble));
  for (std::int64_t b = 0; b < rows; ++b) {
    std::int64_t place = 0;
    for (const auto& [own, token] : newest[static_cast<std::size_t>(b)]) {
      met[b][place] = own;
      kept.select(0, b).select(1, place).copy_(sums.select(0, b).select(1, token));
      ++place;
    }
  }
  return {{name + kSum, kept}, {name + kDocument, met.to(sums.device())}};
}

}  // namespace torsor
