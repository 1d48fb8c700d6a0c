// Checks the project itself: every #include in torsor/ goes downwards, and no file grows too long to read.
// The checker is also run over a made-up tree with every kind of fault, so that it is known to notice them.
#include <gtest/gtest.h>

#include <unistd.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

// The table of floors. A folder may include itself and every folder on a lower floor, never a sibling.
const std::map<std::string, int> kFloors = {{"base", 0},      {"kernel", 1}, {"group", 1},  {"encoding", 2},
                                            {"attention", 3}, {"train", 4},  {"data", 5},   {"syntax", 5},
                                            {"model", 6},     {"lab", 7},    {"report", 8}, {"cli", 9}};
// Siblings that may be included all the same: {who, whom}.
const std::set<std::pair<std::string, std::string>> kAllowedSiblings = {{"syntax", "data"}};
// Floors that never see libtorch, directly.
const std::set<std::string> kPlainFolders = {"base", "kernel", "report"};
const std::size_t kMaxLines = 800;

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The path named by an #include line, with quotes or angle brackets, or nothing.
std::string included(const std::string& line) {
  std::size_t i = line.find_first_not_of(" \t");
  if (i == std::string::npos || line[i] != '#') return "";
  i = line.find_first_not_of(" \t", i + 1);
  if (i == std::string::npos || line.compare(i, 7, "include") != 0) return "";
  const std::size_t open = line.find_first_of("<\"", i + 7);
  if (open == std::string::npos) return "";
  const std::size_t close = line.find(line[open] == '<' ? '>' : '"', open + 1);
  return close == std::string::npos ? "" : line.substr(open + 1, close - open - 1);
}

bool has_suffix(const fs::path& path, std::initializer_list<const char*> suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(), [&](const char* s) { return path.extension() == s; });
}

std::vector<fs::path> files_under(const fs::path& root, const fs::path& folder,
                                  std::initializer_list<const char*> suffixes) {
  std::vector<fs::path> found;
  if (!fs::exists(root / folder)) return found;
  for (const auto& entry : fs::recursive_directory_iterator(root / folder))
    if (entry.is_regular_file() && has_suffix(entry.path(), suffixes)) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

// What is wrong with one #include of the folder `from`, or nothing.
std::string include_fault(const std::string& from, const std::string& path) {
  if (kPlainFolders.count(from) != 0 &&
      (path.rfind("ATen/", 0) == 0 || path.rfind("torch/", 0) == 0 || path.rfind("c10/", 0) == 0))
    return "includes libtorch (" + path + "), which " + from + " does without";
  if (path.rfind("../", 0) == 0 || path.find("/../") != std::string::npos)
    return "includes " + path + ": paths start at the root";
  if (path.rfind("tests/", 0) == 0) return "includes " + path + ": the library does not know its tests";
  if (path.rfind("torsor/", 0) != 0) return "";
  const std::size_t slash = path.find('/', 7);
  if (slash == std::string::npos)  // torsor/torsor.h takes in everything; only the door may use it
    return kFloors.at(from) == 9 ? "" : "includes " + path + ", which takes in every floor";
  const std::string to = path.substr(7, slash - 7);
  if (kFloors.count(to) == 0) return "includes " + path + ": no such floor";
  if (to == from || kFloors.at(to) < kFloors.at(from) || kAllowedSiblings.count({from, to}) != 0) return "";
  return "includes " + path + (kFloors.at(to) > kFloors.at(from) ? ": a higher floor" : ": a sibling on its floor");
}

// All faults of the includes in the tree at `root`, one line each; `files` receives the number of files read.
std::vector<std::string> include_faults(const fs::path& root, int* files) {
  std::vector<std::string> faults;
  *files = 0;
  for (const fs::path& path : files_under(root, "torsor", {".h", ".cpp"})) {
    const fs::path relative = fs::relative(path, root / "torsor");
    const std::string folder = relative.begin()->string();
    if (std::distance(relative.begin(), relative.end()) == 1) continue;  // torsor/torsor.h itself
    ++*files;
    if (kFloors.count(folder) == 0) {
      faults.push_back("torsor/" + relative.string() + ": the folder is on no floor");
      continue;
    }
    const auto lines = lines_of(path);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::string fault = include_fault(folder, included(lines[i]));
      if (!fault.empty()) faults.push_back("torsor/" + relative.string() + ":" + std::to_string(i + 1) + " " + fault);
    }
  }
  return faults;
}

// All files that are too long.
std::vector<std::string> length_faults(const fs::path& root, int* files) {
  std::vector<std::string> faults;
  *files = 0;
  for (const char* folder : {"torsor", "tests", "bench", "examples", "scripts", "python", "docs"}) {
    for (const fs::path& path : files_under(root, folder, {".h", ".cpp", ".py"})) {
      ++*files;
      const std::size_t count = lines_of(path).size();
      if (count > kMaxLines)
        faults.push_back(fs::relative(path, root).string() + ": " + std::to_string(count) + " lines, at most " +
                         std::to_string(kMaxLines));
    }
  }
  return faults;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += line + "\n";
  return text;
}

TEST(Floors, IncludesGoDownwards) {
  int files = 0;
  const auto faults = include_faults(TORSOR_SOURCE_DIR, &files);
  EXPECT_GT(files, 0);
  EXPECT_TRUE(faults.empty()) << joined(faults);
}

TEST(Floors, FilesStayReadable) {
  int files = 0;
  const auto faults = length_faults(TORSOR_SOURCE_DIR, &files);
  EXPECT_GT(files, 0);
  EXPECT_TRUE(faults.empty()) << joined(faults);
}

// A tree in the temporary folder, removed at the end.
class MadeUpTree : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("torsor-floors-" + std::to_string(::getpid()));
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::vector<std::string> faults() {
    int files = 0;
    return include_faults(root_, &files);
  }
  fs::path root_;
};

TEST_F(MadeUpTree, GoodIncludesPass) {
  write("torsor/torsor.h", "#include \"torsor/cli/x.h\"\n");
  write("torsor/base/a.h", "#include <string>\n#include \"torsor/base/error.h\"\n");
  write("torsor/syntax/a.h", "#include \"torsor/data/tree.h\"\n#include <ATen/ATen.h>\n");
  write("torsor/lab/a.cpp", "  #  include <torsor/encoding/encoding.h>\n#include \"torsor/lab/b.h\"\n");
  write("torsor/cli/main.cpp", "#include \"torsor/torsor.h\"\n#include \"torsor/report/html.h\"\n");
  EXPECT_TRUE(faults().empty()) << joined(faults());
}

TEST_F(MadeUpTree, EachBadIncludeIsNoticed) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"torsor/base/a.h", "#include \"torsor/encoding/encoding.h\""},   // up
      {"torsor/kernel/cpu/a.cpp", "#include \"torsor/group/skew.h\""},  // across
      {"torsor/data/a.h", "#include <torsor/syntax/conllu.h>"},         // across, the other way round
      {"torsor/report/a.cpp", "\t# include \"torsor/cli/options.h\""},  // odd spacing
      {"torsor/report/a.cpp", "#include <ATen/ATen.h>"},                // libtorch where it is not wanted
      {"torsor/model/a.cpp", "#include \"torsor/torsor.h\""},           // everything
      {"torsor/model/a.cpp", "#include \"../lab/task.h\""},             // not from the root
      {"torsor/model/a.cpp", "#include \"tests/model/helper.h\""},      // a test
      {"torsor/model/a.cpp", "#include \"torsor/engine/a.h\""},         // no such floor
      {"torsor/engine/a.cpp", "#include <string>"},                     // a folder on no floor
  };
  for (const auto& [path, line] : bad) {
    fs::remove_all(root_);
    write(path, "// first line\n" + line + "\n");
    const auto found = faults();
    ASSERT_EQ(found.size(), 1u) << path << " " << line << "\n" << joined(found);
    EXPECT_EQ(found[0].rfind(path, 0), 0u) << found[0];
  }
}

TEST_F(MadeUpTree, LongFilesAreNoticed) {
  const auto lines = [](std::size_t n) {
    std::string text;
    for (std::size_t i = 0; i < n; ++i) text += "x\n";
    return text;
  };
  write("torsor/base/at_most.h", lines(kMaxLines));
  write("tests/base/too_long_test.cpp", lines(kMaxLines + 1));
  write("scripts/too_long.py", lines(kMaxLines + 1));
  write("docs/any_length.md", lines(kMaxLines + 1));
  int files = 0;
  const auto found = length_faults(root_, &files);
  EXPECT_EQ(files, 3);
  ASSERT_EQ(found.size(), 2u) << joined(found);
  EXPECT_EQ(found[0], "tests/base/too_long_test.cpp: 801 lines, at most 800");
  EXPECT_EQ(found[1], "scripts/too_long.py: 801 lines, at most 800");
}

}  // namespace
