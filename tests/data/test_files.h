// Files for the tests of the data floor: a folder that goes away again, and the shared data where there is some.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace torsor::data_test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "torsor-data-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path(const std::string& name = "") const { return name.empty() ? path_ : path_ + "/" + name; }

  /// Writes a file, with the folders above it, and returns its path.
  std::string write(const std::string& name, const std::string& content) const {
    const std::filesystem::path file = path(name);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
    return file.string();
  }

 private:
  std::string path_;
};

/// The folder `name` of the shared data, or nothing when it is not there.
inline std::optional<std::string> shared_data(const std::string& name) {
  const char* shared = std::getenv("TORSOR_SHARED");
  const std::string root = shared != nullptr ? shared : std::string(TORSOR_SOURCE_DIR) + "/../shared";
  const std::string path = root + "/data/" + name;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

/// The message of the error of type E that `action` throws; "" (and a failure) when it throws none.
template <class E, class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected an error";
  return "";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace torsor::data_test
