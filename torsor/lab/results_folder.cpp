#include "torsor/lab/results_folder.h"

#include <filesystem>
#include <regex>
#include <vector>

#include "torsor/base/hash.h"
#include "torsor/encoding/encoding.h"
#include "torsor/train/snapshot.h"

namespace torsor {
namespace {

/// A name for a folder: what is plain of `name`, and a hash of all of it.
std::string slug(const std::string& name) {
  std::string text;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (plain)
      text += c;
    else if (!text.empty() && text.back() != '-')
      text += '-';
    if (text.size() >= 40) break;
  }
  while (!text.empty() && text.back() == '-') text.pop_back();
  return text + "-" + sha256_hex(name).substr(0, 8);
}

}  // namespace

ResultsFolder::ResultsFolder(std::string folder, const Json& config, bool resume, bool force)
    : folder_(std::move(folder)) {
  make_directories(folder_);
  claim_.emplace(folder_);
  const std::string path = folder_ + "/results.json";
  const std::string mark = folder_ + "/plan.json";
  const auto exists = [&](const char* name) { return std::filesystem::exists(folder_ + name); };
  const bool published = exists("/results.csv") || exists("/report.html");
  const bool present = std::filesystem::exists(path) || std::filesystem::exists(mark);
  if (force) {
    // What was published first, so that a kill leaves no report of runs that are gone; then our own runs only.
    for (const char* name : {"/report.html", "/results.csv", "/results.json", "/plan.json"})
      std::filesystem::remove(folder_ + name);
    remove_runs();
  } else if (published && !present) {
    throw Error(
        str("'", folder_, "' already holds results of another kind; replace them with --force, or give another --out"));
  } else if (present) {
    if (!resume)
      throw Error(
          str("'", folder_,
              "' already holds results; go on with --resume, replace them with --force, or give another --out"));
    const Json earlier = read_json(std::filesystem::exists(mark) ? mark : path);
    const Json& there = earlier.contains("config") ? earlier.at("config") : earlier;
    if (const std::string difference = first_difference(there, config); !difference.empty())
      throw Error(
          str("'", folder_, "' holds results of another plan: ", difference, "; give another --out or --force"));
  }
  make_directories(folder_ + "/runs");
  write_file_atomic(mark, json_text(config, 2) + "\n");
}

/// The folders that run_folder() names: NAME-XXXXXXXX-seedN.
void ResultsFolder::remove_runs() const {
  static const std::regex ours(".*-[0-9a-f]{8}-seed[0-9]+");
  std::error_code none;
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/runs", none))
    if (entry.is_directory() && std::regex_match(entry.path().filename().string(), ours)) found.push_back(entry.path());
  for (const std::filesystem::path& path : found) std::filesystem::remove_all(path);
}

std::string ResultsFolder::run_folder(const std::string& name, std::uint64_t seed) const {
  return str(folder_, "/runs/", slug(name), "-seed", seed);
}

std::optional<Json> ResultsFolder::recorded(const std::string& name, std::uint64_t seed) const {
  const std::string path = run_folder(name, seed) + "/result.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  Json earlier = read_json(path);
  if (!earlier.is_object() || !earlier.contains("status") || !earlier.contains("effect"))
    throw Error(str(path, ": expected the record of a run; remove the file to run it again"));
  if (earlier.value("encoding", Json()) != name || earlier.value("seed", Json()) != seed)
    throw Error(str(path, ": expected the record of '", name, "' seed ", seed,
                    ", found another run's; remove the file to run it again"));
  if (earlier.at("status") == "failed") return std::nullopt;
  return earlier;
}

void ResultsFolder::record(const std::string& run_folder, const Json& run) const {
  try {
    write_file_atomic(run_folder + "/result.json", json_text(run, 1) + "\n");
  } catch (const Error&) {
    // What kept the run from being written keeps its record from it too; results.json tells of it.
    if (run.at("status") != "failed") throw;
  }
}

void ResultsFolder::write(const Json& document) const {
  write_file_atomic(folder_ + "/results.json", json_text(document, 1) + "\n");
}

Json train_to_json(const TrainResult& train) {
  Json json;
  json["steps"] = train.losses.size();
  json["tokens"] = train.tokens;
  json["seconds"] = train.seconds;
  json["tokens_per_second"] =
      train.seconds > 0 ? Json(static_cast<double>(train.tokens) / train.seconds) : Json(nullptr);
  Json losses = Json::array();
  for (std::size_t step = 0; step < train.losses.size(); ++step) losses.push_back({step + 1, train.losses[step]});
  json["losses"] = losses;
  return json;
}

std::string give_up(Json& run, const char* status, const std::string& message) {
  const std::string reason = message.substr(0, message.find('\n'));  // libtorch adds a trace
  run["status"] = status;
  run["reason"] = reason;
  if (!run.contains("parameters")) run["parameters"] = nullptr;
  if (!run.contains("train")) run["train"] = train_to_json({});
  run["peak_memory_bytes"] = run["decode_tokens_per_second"] = nullptr;
  run["eval"] = Json::array();
  run["effect"] = Json();
  return reason;
}

void tell_outcome(const Json& run, const std::string& reason,
                  const std::function<void(const std::string&)>& on_message) {
  if (on_message)
    on_message(str(run.at("encoding").get<std::string>(), " seed ", run.at("seed"), " ",
                   run.at("status").get<std::string>(), ": ", reason));
}

void attempt(Json& run, const std::string& folder, const std::function<void(const std::string&)>& on_message,
             const std::function<void()>& body) {
  try {
    body();
  } catch (const Interrupted&) {
    throw Interrupted(str("stopped; go on with --resume --out ", folder));
  } catch (const UsageError&) {
    throw;
  } catch (const Refusal& refusal) {
    tell_outcome(run, give_up(run, "refused", refusal.what()), on_message);
  } catch (const std::exception& error) {
    tell_outcome(run, give_up(run, "failed", error.what()), on_message);
  }
}

}  // namespace torsor
