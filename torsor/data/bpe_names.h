// The tokens of a BPE as files write them, and merges by their names.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/data/bpe_added.h"
#include "torsor/data/bpe_merge.h"

namespace torsor {

/// Names by id and back: every id from 0 to size() - 1 has one, and no two have the same. Messages begin with `source`.
class BpeNames {
 public:
  /// `vocabulary` is the object of names and ids, `added` what stands beside it: in it too, or behind it. Throws Error
  /// for holes, for an id that is given twice or is no number, and where the two disagree.
  BpeNames(const Json& vocabulary, std::vector<BpeAddedToken> added, std::string source);
  /// Names in the order of their ids. Throws Error for one that stands twice.
  BpeNames(const std::vector<std::string>& names, std::vector<BpeAddedToken> added, std::string source);

  BpeNames(const BpeNames&) = delete;
  BpeNames& operator=(const BpeNames&) = delete;

  std::size_t size() const { return names_.size(); }
  const std::string& operator[](TokenId id) const { return *names_[id]; }
  const std::vector<BpeAddedToken>& added() const { return added_; }

  /// The id of a name, or nothing.
  std::optional<TokenId> find(const std::string& name) const;

  /// What the names of a byte-level vocabulary stand for, by id; of an added token, and of the ids in `literal`, the
  /// name itself. Throws Error for a name that stands for no bytes.
  std::vector<std::string> bytes(const std::vector<TokenId>& literal = {}) const;

  /// The merge of two names, or of "left right". Throws Error, which begins with `where`, for a name that is none.
  BpeMerge merge(const std::string& left, const std::string& right, const std::string& where) const;
  BpeMerge merge(std::string_view both, const std::string& where) const;
  /// A list of merges: "left right" or ["left", "right"].
  std::vector<BpeMerge> merges(const Json& list, const std::string& source) const;

 private:
  void place(const std::string& name, TokenId id);
  [[noreturn]] void fail(const std::string& message) const;

  std::string source_;
  std::vector<BpeAddedToken> added_;
  std::unordered_map<std::string, TokenId> ids_;
  std::vector<const std::string*> names_;  // by id, looking into ids_
};

/// Checks the keys of a BPE's "model" beside the vocabulary and the merges; returns "ignore_merges". Throws Error for
/// another type, for what would make other ids, and where "byte_fallback" is not as asked.
bool check_bpe_model(JsonObject& model, bool byte_fallback);
/// What check_bpe_model() reads.
Json bpe_model_json(bool byte_fallback, bool ignore_merges, Json vocabulary, Json merges);

}  // namespace torsor
