// The tests of this folder start copies of this program that they kill or run into limits.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/train/workbench.h"

int main(int argc, char** argv) {
  torsor::testing::program_path = std::filesystem::absolute(argv[0]).string();
  if (argc > 1 && std::string(argv[1]) == "--child") {
    return torsor::testing::run_child(std::vector<std::string>(argv + 2, argv + argc));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
