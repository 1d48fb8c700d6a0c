// The shared golden values of GRAPE, where they are on this machine. Without libtorch, as the kernel's tests are.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace torsor {

/// Nested lists of numbers, "-inf" among them.
template <class Json>
struct NestedNumbers {
  std::vector<std::int64_t> shape;
  std::vector<double> values;

  explicit NestedNumbers(const Json& json) {
    for (const Json* level = &json; level->is_array(); level = &level->at(0))
      shape.push_back(static_cast<std::int64_t>(level->size()));
    read(json);
  }

 private:
  void read(const Json& level) {
    if (level.is_array())
      for (const Json& one : level) read(one);
    else
      values.push_back(level.is_string() ? -std::numeric_limits<double>::infinity() : level.template get<double>());
  }
};

/// Skips its tests where the file is absent.
template <class Json>
class GoldenGrapeFile : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* shared = std::getenv("TORSOR_SHARED");
    const std::string file =
        (shared ? std::string(shared) : std::string(TORSOR_SOURCE_DIR) + "/../shared") + "/golden/golden-grape.json";
    if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file << "; set TORSOR_SHARED";
    std::ifstream(file) >> file_;
  }
  const Json& at_id(const std::string& id) const {
    for (const Json& one : file_.at("cases"))
      if (one.at("id") == id) return one;
    throw std::runtime_error("no golden case " + id);
  }

 private:
  Json file_;
};

}  // namespace torsor
