#include "torsor/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "tests/base/test_folder.h"
#include "torsor/base/error.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;
using testing::slurp;
using testing::TestFolder;
using Names = std::vector<std::string>;

/// Runs `body` in a child whose files may have at most `limit` bytes; returns what it returned.
std::string with_file_limit(rlim_t limit, const std::function<std::string()>& body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit size{limit, limit};
    ::setrlimit(RLIMIT_FSIZE, &size);
    const std::string answer = body();
    const bool sent = ::write(ends[1], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size());
    ::_exit(sent ? 0 : 1);
  }
  ::close(ends[1]);
  std::string answer;
  char block[512];
  for (ssize_t got; (got = ::read(ends[0], block, sizeof block)) > 0;)
    answer.append(block, static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  return answer;
}

/// Runs `body` in a child that is nobody in particular: root may do everything. Skips the permission where it cannot.
std::string as_nobody(const std::function<std::string()>& body) {
  return with_file_limit(RLIM_INFINITY, [&]() -> std::string {
    constexpr uid_t nobody = 65534;
    if (::getuid() == 0 && (::setgid(nobody) != 0 || ::setuid(nobody) != 0)) return "not possible here";
    return body();
  });
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ReadFile, ReadsAnySize) {
  TestFolder folder;
  for (std::size_t size : {0, 1, 4095, 65536, 65537, 300000}) {
    std::string content(size, '\0');
    for (std::size_t i = 0; i < size; ++i) content[i] = static_cast<char>(i * 31);
    EXPECT_EQ(read_file(folder.put("f", content)), content) << size;
  }
}

TEST(ReadFile, ReadsPipesAndFilesWithoutASize) {
  TestFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string content(200000, 'p');
  std::thread writer([&] { std::ofstream(pipe) << content; });
  const std::string got = read_file(pipe);
  writer.join();
  EXPECT_EQ(got, content);
  EXPECT_EQ(read_file("/dev/null"), "");
  if (std::filesystem::exists("/proc/self/status")) {
    EXPECT_TRUE(contains(read_file("/proc/self/status"), "Name:"));
  }
}

TEST(ReadFile, KeepsToItsLimit) {
  TestFolder folder;
  const std::string path = folder.put("f", "12345");
  EXPECT_EQ(read_file(path, 5), "12345");
  EXPECT_TRUE(contains(message_of<Error>([&] { read_file(path, 4); }), "at most 4 bytes"));
  EXPECT_TRUE(contains(message_of<Error>([&] { read_file("/dev/zero", 100000); }), "at most 100000 bytes"));
  EXPECT_EQ(read_file(folder.put("empty", ""), 0), "");
}

TEST(ReadFile, NamesThePathAndTheReason) {
  TestFolder folder;
  folder.put("f", "");
  EXPECT_EQ(message_of<Error>([&] { read_file(folder / "none"); }),
            "cannot read '" + (folder / "none") + "': No such file or directory");
  EXPECT_EQ(message_of<Error>([&] { read_file(folder.path()); }),
            "cannot read '" + folder.path() + "': Is a directory");
  EXPECT_EQ(message_of<Error>([&] { read_file(folder / "f/g"); }),
            "cannot read '" + (folder / "f/g") + "': Not a directory");
  EXPECT_TRUE(contains(message_of<Error>([&] { read_file(""); }), "empty"));
  EXPECT_TRUE(contains(message_of<Error>([&] { read_file(std::string("a\0b", 3)); }), "NUL"));
  EXPECT_TRUE(contains(message_of<Error>([&] { read_file(folder / "a\nb"); }), "a\\nb"));
}

TEST(AtomicFile, AppearsOnlyWithTheCommit) {
  TestFolder folder;
  const std::string path = folder.put("f", "old");
  {
    AtomicFile file(path);
    file.write("new ");
    file.write(std::string(100000, 'x'));
    file.write("");
    file.write(nullptr, 0);
    file.write(" end");
    EXPECT_EQ(slurp(path), "old");
    EXPECT_EQ(folder.names().size(), 2u);
    file.commit();
    EXPECT_EQ(slurp(path), "new " + std::string(100000, 'x') + " end");
    EXPECT_EQ(folder.names(), Names{"f"});
    EXPECT_THROW(file.write("more"), Error);
    EXPECT_THROW(file.commit(), Error);
  }
  EXPECT_EQ(folder.names(), Names{"f"});
}

TEST(AtomicFile, WithoutACommitNothingHappened) {
  TestFolder folder;
  const std::string path = folder.put("f", "old");
  { AtomicFile(path).write(std::string(100000, 'x')); }
  { AtomicFile(folder / "g").write("new"); }
  EXPECT_EQ(slurp(path), "old");
  EXPECT_EQ(folder.names(), Names{"f"});
}

TEST(AtomicFile, SmallAndLargePiecesKeepTheirOrder) {
  TestFolder folder;
  std::string expected;
  AtomicFile file(folder / "f");
  for (std::size_t i = 0; i < 300; ++i) {
    const std::string piece(i % 7 == 0 ? 70000 : i, static_cast<char>('a' + i % 26));
    file.write(piece);
    expected += piece;
  }
  file.commit();
  EXPECT_TRUE(slurp(folder / "f") == expected);
}

TEST(AtomicFile, KeepsPermissionsAndLinks) {
  TestFolder folder;
  const std::string path = folder.put("f", "old");
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  std::filesystem::create_symlink("f", folder / "link");
  std::filesystem::create_symlink("later", folder / "dangling");
  write_file_atomic(folder / "link", "new");
  write_file_atomic(folder / "dangling", "created");
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0640u);
  EXPECT_EQ(slurp(path), "new");
  EXPECT_EQ(slurp(folder / "later"), "created");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "dangling"));
  EXPECT_EQ(folder.names(), (Names{"dangling", "f", "later", "link"}));

  const mode_t mask = ::umask(027);
  write_file_atomic(folder / "fresh", "");
  ::umask(mask);
  ASSERT_EQ(::stat((folder / "fresh").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0640u);
}

TEST(AtomicFile, RefusesWhatIsNoFile) {
  TestFolder folder;
  folder.put("f", "");
  std::filesystem::create_symlink("loop", folder / "loop");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const auto refusal = [&](const std::string& path) {
    return message_of<Error>([&] { write_file_atomic(path, "x"); });
  };
  EXPECT_EQ(refusal(folder.path()), "cannot write '" + folder.path() + "': Is a directory");
  EXPECT_EQ(refusal(folder / "f/g"), "cannot write '" + (folder / "f/g") + "': Not a directory");
  EXPECT_EQ(refusal(folder / "none/g"), "cannot write '" + (folder / "none/g") + "': No such file or directory");
  EXPECT_EQ(refusal("/dev/null"), "cannot write '/dev/null': it exists and is not a regular file");
  EXPECT_TRUE(contains(refusal(folder / "pipe"), "not a regular file"));
  EXPECT_TRUE(contains(refusal(folder / "loop"), "symbolic links"));
  EXPECT_TRUE(contains(refusal(folder / "none/"), "cannot write"));
  EXPECT_TRUE(contains(refusal(folder / std::string(300, 'n')), "File name too long"));
  EXPECT_TRUE(contains(refusal(""), "empty"));
  EXPECT_EQ(folder.names(), (Names{"f", "loop", "pipe"}));
}

TEST(AtomicFile, AFileLimitIsAnErrorAndLeavesTheOldFile) {
  TestFolder folder;
  const std::string path = folder.put("f", "old");
  const std::string expected = "cannot write '" + path + "': File too large";
  // Noticed while writing, and only at the commit (the buffer is smaller than the content).
  for (const std::size_t size : {std::size_t{200000}, std::size_t{5000}}) {
    EXPECT_EQ(with_file_limit(4096, [&] { return error_of([&] { write_file_atomic(path, std::string(size, 'x')); }); }),
              expected);
    EXPECT_EQ(slurp(path), "old");
    EXPECT_EQ(folder.names(), Names{"f"});
  }
  EXPECT_EQ(with_file_limit(4096, [&] { return error_of([&] { write_file_atomic(path, std::string(4096, 'x')); }); }),
            "no error");
  EXPECT_EQ(slurp(path), std::string(4096, 'x'));
}

TEST(AtomicFile, AfterAnErrorNothingCanBeCommitted) {
  TestFolder folder;
  const std::string path = folder.put("f", "old");
  EXPECT_EQ(with_file_limit(4096,
                            [&] {
                              AtomicFile file(path);
                              error_of([&] { file.write(std::string(200000, 'x')); });
                              return folder.names().size() == 1 ? error_of([&] { file.commit(); }) : "left a file";
                            }),
            "cannot write '" + path + "': it is already committed, or an earlier write failed");
  EXPECT_EQ(slurp(path), "old");
}

TEST(AtomicFile, AFolderWithoutPermissionIsAnError) {
  TestFolder folder;
  std::filesystem::create_directory(folder / "closed");
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod((folder / "closed").c_str(), 0555), 0);
  const std::string path = folder / "closed/f";
  const std::string answer = as_nobody([&] { return error_of([&] { write_file_atomic(path, "x"); }); });
  if (answer == "not possible here") GTEST_SKIP() << "cannot become another user here";
  EXPECT_EQ(answer, "cannot write '" + path + "': Permission denied");
}

TEST(AtomicFile, ALeftoverOfTheSameNameIsPassedOver) {
  TestFolder folder;
  // Names are .torsor-PID-COUNTER.tmp: take the next twenty, as a killed process with this number would have.
  write_file_atomic(folder / "f", "1");
  AtomicFile probe(folder / "f");
  std::string name;
  for (const std::string& entry : folder.names()) {
    if (entry != "f") name = entry;
  }
  const auto dash = name.rfind('-');
  const int counter = std::stoi(name.substr(dash + 1));
  for (int i = 1; i <= 20; ++i) folder.put(name.substr(0, dash + 1) + std::to_string(counter + i) + ".tmp", "leftover");
  write_file_atomic(folder / "f", "2");
  EXPECT_EQ(slurp(folder / "f"), "2");
  EXPECT_EQ(folder.names().size(), 22u);
}

TEST(AtomicFile, WritersAtOnceLeaveOneWholeFile) {
  TestFolder folder;
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < 5; ++i) write_file_atomic(folder / "f", std::string(50000, static_cast<char>('a' + w)));
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string content = slurp(folder / "f");
  EXPECT_EQ(content, std::string(50000, content.at(0)));
  EXPECT_EQ(folder.names(), Names{"f"});
}

TEST(FolderClaim, OneAtATimeAndGivenBack) {
  TestFolder folder;
  {
    const FolderClaim claim(folder.path());
    EXPECT_EQ(error_of([&] { const FolderClaim second(folder.path()); }),
              "cannot write '" + folder.path() + "': another process is working in this folder");
  }
  const FolderClaim again(folder.path());
  EXPECT_EQ(error_of([&] { const FolderClaim none(folder / "none"); }),
            "cannot write '" + (folder / "none") + "': No such file or directory");
}

TEST(FolderClaim, RemovesWhatKilledWritersLeft) {
  TestFolder folder;
  for (const char* name : {".torsor-12-0.tmp", ".torsor-99999-17.tmp", ".torsor-12-0.json", "torsor-1-2.tmp", "f"})
    folder.put(name, "x");
  std::filesystem::create_directory(folder / ".torsor-1-1.tmp");
  const FolderClaim claim(folder.path());
  EXPECT_EQ(folder.names(), (Names{".torsor-1-1.tmp", ".torsor-12-0.json", "f", "torsor-1-2.tmp"}));
}

TEST(AppendFile, AppendsLinesThatOthersSeeAtOnce) {
  TestFolder folder;
  const std::string path = folder / "log";
  {
    AppendFile log(path);
    log.append_line("one");
    EXPECT_EQ(slurp(path), "one\n");
    log.append_line("");
    log.sync();
  }
  AppendFile(path).append_line("three");
  EXPECT_EQ(slurp(path), "one\n\nthree\n");
}

TEST(AppendFile, CutsABrokenLastLine) {
  TestFolder folder;
  const std::string lines(70000, 'a');
  struct Case {
    std::string before, after;
  };
  for (const Case& c : {Case{"", ""}, Case{"\n", "\n"}, Case{"one\n", "one\n"}, Case{"one\ntw", "one\n"},
                        Case{"broken", ""}, Case{lines, ""}, Case{lines + "\n" + lines, lines + "\n"},
                        Case{"x\n" + std::string(65535, 'b'), "x\n"}, Case{"x\n" + std::string(65536, 'b'), "x\n"}}) {
    const std::string path = folder.put("log", c.before);
    AppendFile log(path);
    EXPECT_TRUE(slurp(path) == c.after) << c.before.size();
    log.append_line("next");
    EXPECT_TRUE(slurp(path) == c.after + "next\n") << c.before.size();
  }
}

TEST(AppendFile, RefusesWhatBreaksLinesOrIsNoFile) {
  TestFolder folder;
  AppendFile log(folder / "log");
  EXPECT_TRUE(contains(message_of<Error>([&] { log.append_line("a\nb"); }), "newline"));
  EXPECT_EQ(slurp(folder / "log"), "");
  EXPECT_EQ(message_of<Error>([&] { AppendFile{folder.path()}; }),
            "cannot write '" + folder.path() + "': Is a directory");
  EXPECT_TRUE(contains(message_of<Error>([&] { AppendFile{folder / "none/log"}; }), "No such file"));
  EXPECT_TRUE(contains(message_of<Error>([&] { AppendFile{folder / "log/log"}; }), "Not a directory"));
  EXPECT_TRUE(contains(message_of<Error>([&] { AppendFile{"/dev/null"}; }), "not a regular file"));
}

TEST(AppendFile, ALineThatDoesNotFitIsTakenBack) {
  TestFolder folder;
  const std::string path = folder / "log";
  const std::string answer = with_file_limit(100, [&] {
    AppendFile log(path);
    log.append_line("fits");
    const std::string error = error_of([&] { log.append_line(std::string(200, 'x')); });
    log.append_line("fits too");
    return error;
  });
  EXPECT_EQ(answer, "cannot write '" + path + "': File too large");
  EXPECT_EQ(slurp(path), "fits\nfits too\n");
}

TEST(MappedFile, ShowsTheBytes) {
  TestFolder folder;
  const std::string path = folder.put("f", std::string("a\0b", 3) + std::string(10000, 'c'));
  MappedFile file(path);
  EXPECT_EQ(file.bytes(), slurp(path));
  write_file_atomic(path, "replaced");  // by renaming: the mapping keeps the old file
  EXPECT_EQ(file.bytes().substr(0, 4), std::string("a\0bc", 4));
  MappedFile moved = std::move(file);
  EXPECT_EQ(moved.size(), 10003u);
  moved = MappedFile(folder.put("empty", ""));
  EXPECT_EQ(moved.size(), 0u);
  EXPECT_EQ(moved.bytes(), "");
}

TEST(MappedFile, RefusesWhatIsNoFile) {
  TestFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(message_of<Error>([&] { MappedFile{folder.path()}; }),
            "cannot read '" + folder.path() + "': Is a directory");
  EXPECT_TRUE(contains(message_of<Error>([&] { MappedFile{folder / "none"}; }), "No such file"));
  EXPECT_TRUE(contains(message_of<Error>([&] { MappedFile{folder / "pipe"}; }), "expected a regular file"));
}

TEST(MakeDirectories, MakesAllAndMindsNoneThere) {
  TestFolder folder;
  folder.put("f", "");
  make_directories(folder / "a/b/c");
  make_directories(folder / "a/b/c");
  make_directories(folder / "a/d/");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b/c"));
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/d"));
  EXPECT_EQ(message_of<Error>([&] { make_directories(folder / "f"); }),
            "cannot create folder '" + (folder / "f") + "': Not a directory");
  EXPECT_TRUE(contains(message_of<Error>([&] { make_directories(folder / "f/g"); }), "Not a directory"));
  EXPECT_THROW(make_directories(""), Error);
}

TEST(ListFiles, AreSortedByTheBytesOfTheRelativePath) {
  TestFolder folder;
  make_directories(folder / "a/deep");
  make_directories(folder / "a-b");
  make_directories(folder / "x.txt");  // a folder with the name of a file
  for (const char* name : {"b.txt", "B.txt", "\xC3\xA9.txt", "a/z.txt", "a/deep/y.md", "a-b/w.txt", "a.txt", "c.text",
                           "d.txt.gz", ".hidden.txt"}) {
    folder.put(name, "");
  }
  std::filesystem::create_symlink("b.txt", folder / "link.txt");
  std::filesystem::create_symlink("nothing", folder / "dangling.txt");
  std::filesystem::create_directory_symlink("..", folder / "a/up");
  const auto relative = [&](const std::vector<std::string>& paths) {
    Names names;
    for (const std::string& path : paths) names.push_back(path.substr(folder.path().size() + 1));
    return names;
  };
  // '-' < '.' < '/' in bytes, capitals before small letters, non-ASCII last.
  EXPECT_EQ(relative(list_files(folder.path(), {".txt", ".md"})),
            (Names{".hidden.txt", "B.txt", "a-b/w.txt", "a.txt", "a/deep/y.md", "a/z.txt", "b.txt", "link.txt",
                   "\xC3\xA9.txt"}));
  EXPECT_EQ(relative(list_files(folder.path(), {".gz"})), Names{"d.txt.gz"});
  EXPECT_EQ(list_files(folder.path()).size(), 11u);
  EXPECT_EQ(list_files(folder / "d.txt.gz", {".txt"}), Names{folder / "d.txt.gz"});
  EXPECT_EQ(message_of<Error>([&] { list_files(folder / "none"); }),
            "cannot list '" + (folder / "none") + "': No such file or directory");
}

}  // namespace
}  // namespace torsor
