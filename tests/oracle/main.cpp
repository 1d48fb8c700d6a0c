// torsor_oracle: the plain float64 program that the conformance files come from. It shares nothing with the library
// that it judges.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "tests/oracle/attention.h"
#include "tests/oracle/compare.h"
#include "tests/oracle/make.h"
#include "tests/oracle/selftest.h"

namespace {

using namespace oracle;

int check(const std::vector<std::string>& files) {
  int passed = 0, failed = 0, skipped = 0;
  for (const std::string& path : files) {
    const Json file = read_file(path);
    for (const Json& json : file.at("cases")) {
      const std::string id = json.value("id", std::string("?"));
      if (!json.contains("tolerance") || !json["tolerance"].contains("float64")) {
        std::printf("skip  %s: no float64 tolerance\n", id.c_str());
        ++skipped;
        continue;
      }
      const Json& tolerance = json["tolerance"]["float64"];
      try {
        const Computed computed = compute(case_from_json(json));
        const Outputs stored = outputs_from_json(json.at("outputs"));
        const Verdict v =
            compare(stored, computed.outputs, tolerance.at("rel").get<double>(), tolerance.at("abs").get<double>());
        std::printf("%s  %s: %.2g of the tolerance (%s)\n", v.holds ? "ok  " : "FAIL", id.c_str(), v.worst,
                    v.where.c_str());
        ++(v.holds ? passed : failed);
      } catch (const Unsupported& e) {
        std::printf("skip  %s: %s\n", id.c_str(), e.what());
        ++skipped;
      } catch (const std::exception& e) {
        std::printf("FAIL  %s: %s\n", id.c_str(), e.what());
        ++failed;
      }
    }
  }
  std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed == 0 ? 0 : 1;
}

int fill(const std::string& in, const std::string& out) {
  Json file = read_file(in);
  int filled = 0, left = 0;
  for (Json& json : file["cases"]) {
    if (json.contains("outputs") && json["outputs"].contains("out")) continue;
    try {
      json["outputs"] = outputs_to_json(compute(case_from_json(json)).outputs);
      ++filled;
    } catch (const Unsupported& e) {
      std::printf("skip  %s: %s\n", json.value("id", std::string("?")).c_str(), e.what());
      ++left;
    }
  }
  write_file(out, file);
  std::printf("%d filled, %d left\n", filled, left);
  return 0;
}

int usage() {
  std::fputs(
      "usage: torsor_oracle check FILE...   recompute the cases of conformance files\n"
      "       torsor_oracle fill IN OUT     compute the outputs of cases that have none\n"
      "       torsor_oracle make DIR        write the project's conformance files\n"
      "       torsor_oracle selftest        gradients against differences, values against the design\n",
      stderr);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() >= 2 && words[0] == "check") return check({words.begin() + 1, words.end()});
    if (words.size() == 3 && words[0] == "fill") return fill(words[1], words[2]);
    if (words.size() == 2 && words[0] == "make") return make(words[1]);
    if (words.size() == 1 && words[0] == "selftest") return selftest();
    return usage();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "torsor_oracle: %s\n", e.what());
    return 1;
  }
}
