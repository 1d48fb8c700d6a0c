// Files: reading whole or mapped, writing so that a reader never sees half a file, appending lines to logs.
// Errors read "cannot read 'PATH': REASON" and "cannot write 'PATH': REASON".
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace torsor {

/// The whole content of a file (pipes and devices included). Throws Error when it cannot be read or holds more than
/// `limit` bytes.
std::string read_file(const std::string& path, std::size_t limit = std::numeric_limits<std::size_t>::max());

/// Replaces the content of `path` in one step: see AtomicFile.
void write_file_atomic(const std::string& path, std::string_view content);

/// Creates a folder and the folders above it; an existing folder is fine. Throws Error.
void make_directories(const std::string& path);

/// The regular files below `path` whose names end in one of `extensions` (such as ".txt"; none given = all), as
/// `path` joined with the relative path, sorted by the bytes of the relative path on every machine. Links to files are
/// followed, links to folders are not (no cycles). A `path` that is itself a file is returned whatever its name.
/// Throws Error when something cannot be listed.
std::vector<std::string> list_files(const std::string& path, const std::vector<std::string>& extensions = {});

/// A file that appears under its name only when it is whole. What is written goes to a temporary file in the same
/// folder; commit() flushes it to the disk, renames it over `path` and flushes the folder. Without a commit, or after
/// an error, the temporary file is removed and the old file stays as it was.
///
/// The permissions of an existing file are kept; a link is followed, so the file it names is replaced and the link
/// stays. A `path` that exists and is no regular file (a folder, a device, a pipe) is refused.
/// A process that sets a file-size limit must ignore SIGXFSZ, or the signal kills it before the Error is thrown.
class AtomicFile {
 public:
  /// Throws Error.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Throws Error on any failure (full disk, size limit); nothing can be written afterwards.
  void write(const void* data, std::size_t size);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }

  /// Throws Error; the old file is intact if so, save for the case that only the flush of the folder failed.
  void commit();

  const std::string& path() const { return path_; }

 private:
  void flush();
  void write_through(const char* data, std::size_t size);
  void discard() noexcept;
  [[noreturn]] void fail(int reason);

  std::string path_;       // as given: for messages
  std::string target_;     // links resolved
  std::string temporary_;  // empty when there is none
  std::string buffer_;
  int descriptor_ = -1;
};

/// A log of lines (JSON lines) that survives a kill: every line goes to the system in one write as soon as it is
/// appended. A last line without a newline, which a kill or a full disk has cut, is removed when the file is opened.
class AppendFile {
 public:
  /// Creates the file when it is missing. Throws Error.
  explicit AppendFile(std::string path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Appends `line` and a newline. Throws Error when it cannot, after taking back what was written of the line, and
  /// when `line` contains a newline.
  void append_line(std::string_view line);

  /// Flushes to the disk (against loss of power; a killed process needs no flush). Throws Error.
  void sync();

  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail(int reason) const;
  void cut_broken_line();

  std::string path_;
  int descriptor_ = -1;
};

/// Claims a folder for one process at a time, as long as the object lives; the system gives it back when the process is
/// killed. What writers that were killed have left in the folder (temporary files of AtomicFile) is removed, which is
/// safe only because nobody else works there.
class FolderClaim {
 public:
  /// Throws Error when the folder does not exist or another process has claimed it. File systems that know no locks
  /// are taken as unclaimed, and nothing is removed there.
  explicit FolderClaim(const std::string& path);
  ~FolderClaim();
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;

 private:
  int descriptor_ = -1;
};

/// A file mapped read-only into memory. The bytes stay valid as long as the object, also when the file is replaced by
/// renaming; a file that another process shortens in place must not be read through it.
class MappedFile {
 public:
  /// Throws Error when `path` is not a regular file that can be read.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }  ///< null when the file is empty
  std::size_t size() const { return size_; }
  std::string_view bytes() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The bytes of a file: mapped, or in memory where there is no file.
class FileContent {
 public:
  /// Maps `path`, as MappedFile does.
  static std::unique_ptr<FileContent> open(const std::string& path);
  static std::unique_ptr<FileContent> of(std::string bytes);
  /// Valid as long as the object, which never moves.
  std::string_view bytes() const;

 private:
  explicit FileContent(std::variant<MappedFile, std::string> storage) : storage_(std::move(storage)) {}
  std::variant<MappedFile, std::string> storage_;
};

}  // namespace torsor
