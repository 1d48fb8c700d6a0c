#include "torsor/attention/distances.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <vector>

namespace torsor {
namespace {

at::Tensor contiguous(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.defined() ? tensor.detach().to(type).contiguous() : tensor;
}

/// A value a document. Neighbouring tokens are mostly of one document, so the last one asked for is at hand.
template <class Value>
class ByDocument {
 public:
  Value* find(std::int64_t document) {
    if (last_ != nullptr && document == last_document_) return last_;
    const auto place = values_.find(document);
    if (place == values_.end()) return nullptr;
    return remember(document, place->second);
  }
  Value& add(std::int64_t document, Value value) {
    return *remember(document, values_.emplace(document, std::move(value)).first->second);
  }

 private:
  Value* remember(std::int64_t document, Value& value) {
    last_document_ = document;
    return last_ = &value;
  }
  std::map<std::int64_t, Value> values_;
  std::int64_t last_document_ = 0;
  Value* last_ = nullptr;
};

}  // namespace

Distances::Distances(const CoreInput& input)
    : batch_(input.q.size(0)),
      queries_(input.q.size(2)),
      keys_(input.k.size(2)),
      causal_(input.mask.causal),
      window_(input.mask.window),
      query_positions_(contiguous(input.query_positions, at::kDouble)),
      key_positions_(contiguous(input.key_positions, at::kDouble)),
      lengths_(contiguous(input.mask.key_lengths, at::kLong)),
      offsets_(contiguous(input.mask.offsets, at::kLong)),
      query_documents_(contiguous(input.mask.query_documents, at::kLong)),
      key_documents_(contiguous(input.mask.key_documents, at::kLong)) {}

std::int64_t Distances::length(std::int64_t row) const {
  return lengths_.defined() ? lengths_.const_data_ptr<std::int64_t>()[row] : keys_;
}
std::int64_t Distances::offset(std::int64_t row) const {
  return offsets_.defined() ? offsets_.const_data_ptr<std::int64_t>()[row] : length(row) - queries_;
}
std::int64_t Distances::key_document(std::int64_t row, std::int64_t j) const {
  return key_documents_.defined() ? key_documents_.const_data_ptr<std::int64_t>()[row * keys_ + j] : 0;
}
std::int64_t Distances::query_document(std::int64_t row, std::int64_t i) const {
  return query_documents_.defined() ? query_documents_.const_data_ptr<std::int64_t>()[row * queries_ + i] : 0;
}

Distances::Keys Distances::keys_of(std::int64_t row, std::int64_t i) const {
  const std::int64_t index = offset(row) + i;
  Keys keys{0, length(row)};
  if (window_) keys.begin = std::max<std::int64_t>(0, index - *window_ + 1);
  if (causal_)
    keys.end = std::min(keys.end, index + 1);
  else if (window_)
    keys.end = std::min(keys.end, index + *window_);
  return keys;
}

Distances::Steps Distances::steps(std::int64_t row) const {
  const double* query = query_positions_.const_data_ptr<double>() + row * queries_;
  const double* key = key_positions_.const_data_ptr<double>() + row * keys_;
  ByDocument<double> starts;  // position minus index, the same for all keys of a document
  for (std::int64_t j = 0; j < length(row); ++j) {
    const std::int64_t document = key_document(row, j);
    if (document == -1) continue;
    const double start = key[j] - static_cast<double>(j);
    const double* found = starts.find(document);
    if (found == nullptr)
      starts.add(document, start);
    else if (*found != start)
      return {false, {}};
  }
  Steps steps;
  for (std::int64_t i = 0; i < queries_; ++i) {
    if (causal_ && offset(row) + i < 0) continue;
    const std::int64_t document = query_document(row, i);
    const double* start = document == -1 ? nullptr : starts.find(document);
    if (start == nullptr) continue;
    const double distance = query[i] - static_cast<double>(i) - *start;
    if (distance != std::round(distance) || steps.distance.value_or(distance) != distance) return {false, {}};
    steps.distance = distance;
  }
  return steps;
}

at::Tensor Distances::find_whole() const {
  std::vector<std::optional<double>> rows;
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (std::int64_t row = 0; row < batch_; ++row) {
    const Steps found = steps(row);
    if (!found.found) return {};
    rows.push_back(found.distance);
    if (!found.distance) continue;
    least = std::min(least, *found.distance);
    most = std::max(most, *found.distance);
  }
  if (least > most) least = most = 0;  // nobody sees anything
  if (most - least > static_cast<double>(queries_ + keys_) || std::abs(most) > 1e15) return {};
  at::Tensor distances = at::empty({batch_}, at::kLong);
  for (std::int64_t row = 0; row < batch_; ++row)
    distances.data_ptr<std::int64_t>()[row] =
        static_cast<std::int64_t>(rows[static_cast<std::size_t>(row)].value_or(most));
  return distances;
}

const at::Tensor& Distances::whole() {
  if (!asked_whole_) whole_ = find_whole();
  asked_whole_ = true;
  return whole_;
}

Distances::Range Distances::range() const {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  double least = infinity, most = -infinity;
  for (std::int64_t row = 0; row < batch_; ++row) {
    const double* query = query_positions_.const_data_ptr<double>() + row * queries_;
    const double* key = key_positions_.const_data_ptr<double>() + row * keys_;
    double first_key = infinity, last_key = -infinity, first_query = infinity, last_query = -infinity;
    for (std::int64_t j = 0; j < length(row); ++j) {
      if (key_document(row, j) == -1) continue;
      first_key = std::min(first_key, key[j]), last_key = std::max(last_key, key[j]);
    }
    for (std::int64_t i = 0; i < queries_; ++i) {
      if (query_document(row, i) == -1 || (causal_ && offset(row) + i < 0)) continue;
      first_query = std::min(first_query, query[i]), last_query = std::max(last_query, query[i]);
    }
    if (first_key > last_key || first_query > last_query) continue;
    least = std::min(least, first_query - last_key);
    most = std::max(most, last_query - first_key);
  }
  return least > most ? Range{} : Range{least, most};
}

bool Distances::any_negative(std::int64_t row) const {
  const double* query = query_positions_.const_data_ptr<double>() + row * queries_;
  const double* key = key_positions_.const_data_ptr<double>() + row * keys_;
  // Both ends of what a query sees only rise with the query. A document's queue holds, among its keys that queries
  // still see, those that no later key passes: the first has the largest position.
  ByDocument<std::deque<std::int64_t>> queues;
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < queries_; ++i) {
    const Keys seen = keys_of(row, i);
    for (; next < seen.end; ++next) {
      const std::int64_t document = key_document(row, next);
      if (document == -1) continue;
      std::deque<std::int64_t>* queue = queues.find(document);
      if (queue == nullptr) queue = &queues.add(document, {});
      while (!queue->empty() && key[queue->back()] <= key[next]) queue->pop_back();
      queue->push_back(next);
    }
    const std::int64_t document = query_document(row, i);
    std::deque<std::int64_t>* queue = document == -1 ? nullptr : queues.find(document);
    if (queue == nullptr) continue;
    while (!queue->empty() && queue->front() < seen.begin) queue->pop_front();
    if (!queue->empty() && query[i] < key[queue->front()]) return true;
  }
  return false;
}

bool Distances::any_negative() const {
  for (std::int64_t row = 0; row < batch_; ++row)
    if (any_negative(row)) return true;
  return false;
}

}  // namespace torsor
