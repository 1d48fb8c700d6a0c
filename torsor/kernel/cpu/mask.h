// Which keys a query sees, on the indices of one call.
#pragma once

#include <algorithm>
#include <cstdint>

#include "torsor/kernel/attention.h"

namespace torsor::kernel {

struct KeyRange {
  std::int64_t first = 0, last = 0;  ///< [first, last)
  bool empty() const { return first >= last; }
};

/// The mask of one row of the batch. Causal order, window and length leave a range of keys to each query; documents
/// thin it out.
class RowMask {
 public:
  RowMask(const Attention& call, std::int64_t row)
      : causal_(call.visible.causal),
        window_(call.visible.window),
        length_(call.visible.key_lengths ? call.visible.key_lengths[row] : call.keys),
        offset_(call.visible.offsets ? call.visible.offsets[row] : length_ - call.queries),
        query_documents_(call.visible.query_documents ? call.visible.query_documents + row * call.queries : nullptr),
        key_documents_(call.visible.key_documents ? call.visible.key_documents + row * call.keys : nullptr) {}

  /// Keys that query i may see, judged by index alone.
  KeyRange range(std::int64_t i) const {
    const std::int64_t index = offset_ + i;
    KeyRange range{0, length_};
    if (causal_) range.last = std::min(range.last, index + 1);
    if (window_ > 0) {
      range.first = std::max<std::int64_t>(0, index - window_ + 1);
      if (!causal_) range.last = std::min(range.last, index + window_);
    }
    range.first = std::min(range.first, length_);
    range.last = std::max(range.last, range.first);
    return range;
  }

  /// Keys that any query of [first, last) may see: a range, since both ends grow with the query.
  KeyRange range(std::int64_t first, std::int64_t last) const { return {range(first).first, range(last - 1).last}; }

  bool has_documents() const { return query_documents_ != nullptr; }
  /// Whether the documents let query i see key j.
  bool same_document(std::int64_t i, std::int64_t j) const {
    return query_documents_[i] == key_documents_[j] && query_documents_[i] != -1;
  }
  bool sees(std::int64_t i, std::int64_t j) const {
    const KeyRange keys = range(i);
    return j >= keys.first && j < keys.last && (!has_documents() || same_document(i, j));
  }

 private:
  bool causal_;
  std::int64_t window_, length_, offset_;
  const std::int64_t* query_documents_;
  const std::int64_t* key_documents_;
};

}  // namespace torsor::kernel
