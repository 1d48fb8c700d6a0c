// The folder of a comparison: results.json, plan.json, and under runs/ a folder with a record a run, so that a stopped
// comparison goes on where it was.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "torsor/base/file.h"
#include "torsor/base/json.h"
#include "torsor/train/loop.h"

namespace torsor {

/// Steps after which a run is saved, so that it can go on from there.
inline constexpr std::int64_t kSaveEvery = 50;

class ResultsFolder {
 public:
  /// Claims `folder` for results of the plan `config`. With `resume` it may hold runs of the same plan, with `force`
  /// what it holds of an earlier comparison is removed. Throws Error when it holds results of another plan, or results
  /// at all without either.
  ResultsFolder(std::string folder, const Json& config, bool resume, bool force);

  /// Where the run called `name` with a seed works.
  std::string run_folder(const std::string& name, std::uint64_t seed) const;
  /// The record that an earlier process left of a run, unless it failed. Throws Error for a damaged one.
  std::optional<Json> recorded(const std::string& name, std::uint64_t seed) const;
  /// Leaves a run's record. A failed run that cannot be recorded either is let go: what is told of it suffices.
  void record(const std::string& run_folder, const Json& run) const;
  /// Replaces results.json.
  void write(const Json& document) const;

  const std::string& path() const { return folder_; }

 private:
  void remove_runs() const;

  std::string folder_;
  std::optional<FolderClaim> claim_;
};

/// A run's entry "train" in results.json.
Json train_to_json(const TrainResult& train);

/// Turns what there is of a run's record into that of one without results; `status` is "refused" or "failed". Returns
/// the reason: the first line of `message`.
std::string give_up(Json& run, const char* status, const std::string& message);

/// Tells people how a run ended that gave up.
void tell_outcome(const Json& run, const std::string& reason,
                  const std::function<void(const std::string&)>& on_message);

/// Runs `body`, which fills in a run's record. What it refuses or fails at becomes the record's status and is told.
/// Throws Interrupted, saying how to go on with the comparison in `folder`, and UsageError as it comes.
void attempt(Json& run, const std::string& folder, const std::function<void(const std::string&)>& on_message,
             const std::function<void()>& body);

}  // namespace torsor
