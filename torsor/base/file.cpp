#include "torsor/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"

namespace torsor {
namespace {

namespace fs = std::filesystem;

// What a temporary file of AtomicFile is called; the process number stands between.
constexpr std::string_view temporary_prefix = ".torsor-", temporary_suffix = ".tmp";

constexpr std::size_t buffer_size = std::size_t{1} << 16;
// Linux moves at most 2^31 - 4096 bytes in one call, macOS refuses more than 2^31 - 1.
constexpr std::size_t largest_transfer = std::size_t{1} << 30;

std::string reason_text(int reason) { return std::generic_category().message(reason); }

std::string quote_path(const std::string& path) { return quote(path, std::string::npos); }

[[noreturn]] void fail_read(const std::string& path, const std::string& reason) {
  throw Error(str("cannot read ", quote_path(path), ": ", reason));
}

[[noreturn]] void fail_write(const std::string& path, const std::string& reason) {
  throw Error(str("cannot write ", quote_path(path), ": ", reason));
}

/// A path with a NUL would silently name another file.
void check_path(const std::string& path, void (*fail)(const std::string&, const std::string&)) {
  if (path.empty()) fail(path, "the path is empty");
  if (path.find('\0') != std::string::npos) fail(path, "the path contains a NUL byte");
}

int open_retrying(const std::string& path, int flags, mode_t mode = 0) {
  int descriptor;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

/// Closes the descriptor on every way out.
struct Closer {
  int descriptor;
  ~Closer() { ::close(descriptor); }
};

/// Returns 0 or the reason.
int write_all(int descriptor, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(descriptor, data, std::min(size, largest_transfer));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return EIO;  // a device that takes nothing would loop for ever
    data += written;
    size -= static_cast<std::size_t>(written);
  }
  return 0;
}

int sync_descriptor(int descriptor) {
  int result;
  do {
    result = ::fsync(descriptor);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

/// Makes a rename in `folder` durable. Folders that cannot be opened for reading, and file systems that do not flush
/// folders, are not an error: nothing more can be done there.
int sync_folder(const std::string& folder) {
  const int descriptor = open_retrying(folder, O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) return errno == EACCES || errno == EPERM ? 0 : errno;
  const Closer closer{descriptor};
  const int reason = sync_descriptor(descriptor);
  return reason == EINVAL || reason == ENOTSUP || reason == EBADF ? 0 : reason;
}

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

std::string read_file(const std::string& path, std::size_t limit) {
  check_path(path, fail_read);
  const int descriptor = open_retrying(path, O_RDONLY);
  if (descriptor < 0) fail_read(path, reason_text(errno));
  const Closer closer{descriptor};
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail_read(path, reason_text(errno));
  if (S_ISDIR(status.st_mode)) fail_read(path, reason_text(EISDIR));
  const auto too_large = [&] { fail_read(path, str("expected at most ", limit, " bytes")); };
  const auto expected = static_cast<std::size_t>(std::max<off_t>(status.st_size, 0));
  if (S_ISREG(status.st_mode) && expected > limit) too_large();

  // The size is only a hint: pipes have none, files in /proc say 0, and a file may grow meanwhile.
  std::string content(expected, '\0');
  std::size_t filled = 0;
  for (;;) {
    if (filled == content.size()) {
      char next;
      const ssize_t got = ::read(descriptor, &next, 1);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_read(path, reason_text(errno));
      if (got == 0) return content;
      if (filled == limit) too_large();
      content.resize(std::min(limit, std::max(filled * 2, buffer_size)));
      content[filled++] = next;
      continue;
    }
    const ssize_t got =
        ::read(descriptor, content.data() + filled, std::min(content.size() - filled, largest_transfer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_read(path, reason_text(errno));
    if (got == 0) {
      content.resize(filled);
      return content;
    }
    filled += static_cast<std::size_t>(got);
  }
}

void write_file_atomic(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

void make_directories(const std::string& path) {
  const auto fail = [](const std::string& folder, const std::string& reason) {
    throw Error(str("cannot create folder ", quote_path(folder), ": ", reason));
  };
  check_path(path, fail);
  std::error_code code;
  fs::create_directories(path, code);
  if (!code && !fs::is_directory(path, code) && !code) code = std::make_error_code(std::errc::not_a_directory);
  if (code) fail(path, code.message());
}

std::vector<std::string> list_files(const std::string& path, const std::vector<std::string>& extensions) {
  const auto fail = [](const std::string& folder, const std::string& reason) {
    throw Error(str("cannot list ", quote_path(folder), ": ", reason));
  };
  check_path(path, fail);
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status)) fail(path, code ? code.message() : reason_text(ENOENT));
  if (!fs::is_directory(status)) return {path};

  std::vector<std::string> found;
  fs::recursive_directory_iterator entry(path, code);
  for (; !code && entry != fs::recursive_directory_iterator(); entry.increment(code)) {
    std::error_code ignored;  // a link to nothing, or a file removed meanwhile, is no regular file
    if (!entry->is_regular_file(ignored)) continue;
    const std::string name = entry->path().string();
    const bool wanted = extensions.empty() || std::any_of(extensions.begin(), extensions.end(),
                                                          [&](const auto& end) { return name.ends_with(end); });
    if (wanted) found.push_back(name);
  }
  if (code) fail(path, code.message());
  // All begin with the same folder, so this is the order of the relative paths; std::string compares unsigned bytes.
  std::sort(found.begin(), found.end());
  return found;
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), target_(path_) {
  check_path(path_, fail_write);
  std::error_code code;
  if (fs::is_symlink(path_, code)) {
    // A link to a file that does not exist yet resolves too: the file is then created there.
    const fs::path resolved = fs::weakly_canonical(fs::path(folder_of(path_)) / fs::read_symlink(path_, code), code);
    if (code) fail(code.value());
    target_ = resolved.string();
  }
  mode_t mode = 0666;  // less the umask
  bool keep_mode = false;
  struct stat status {};
  if (::stat(target_.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) fail(EISDIR);
    if (!S_ISREG(status.st_mode)) fail_write(path_, "it exists and is not a regular file");
    mode = status.st_mode & 07777;
    keep_mode = true;
  } else if (errno != ENOENT) {
    fail(errno);
  }
  if (target_.back() == '/') fail(EISDIR);

  // The name does not contain the target's, which may already be as long as the file system allows.
  static std::atomic<std::uint64_t> counter{0};
  const std::string folder = folder_of(target_);
  for (int attempt = 0; descriptor_ < 0; ++attempt) {
    const std::string name =
        str(folder, '/', temporary_prefix, ::getpid(), '-', counter.fetch_add(1), temporary_suffix);
    descriptor_ = open_retrying(name, O_WRONLY | O_CREAT | O_EXCL, keep_mode ? 0600 : mode);
    if (descriptor_ >= 0) {
      temporary_ = name;
    } else if (errno != EEXIST || attempt == 1000) {  // a leftover of a killed process with our number: the next name
      fail(errno);
    }
  }
  // On file systems without permissions this fails, and there is nothing to keep.
  if (keep_mode) (void)!::fchmod(descriptor_, mode);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  descriptor_ = -1;
  temporary_.clear();
}

void AtomicFile::fail(int reason) {
  discard();
  fail_write(path_, reason_text(reason));
}

void AtomicFile::write_through(const char* data, std::size_t size) {
  const int reason = write_all(descriptor_, data, size);
  if (reason != 0) fail(reason);
}

void AtomicFile::flush() {
  write_through(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void AtomicFile::write(const void* data, std::size_t size) {
  if (descriptor_ < 0) fail_write(path_, "it is already committed, or an earlier write failed");
  if (buffer_.size() + size > buffer_size) flush();
  if (size >= buffer_size) {
    write_through(static_cast<const char*>(data), size);
  } else if (size > 0) {
    buffer_.append(static_cast<const char*>(data), size);
  }
}

void AtomicFile::commit() {
  if (descriptor_ < 0) fail_write(path_, "it is already committed, or an earlier write failed");
  flush();
  int reason = sync_descriptor(descriptor_);
  if (reason != 0 && reason != EINVAL) fail(reason);  // EINVAL: a file system that cannot flush
  const int closing = std::exchange(descriptor_, -1);
  // Network file systems report a full disk only here. EINTR leaves the file closed on Linux.
  if (::close(closing) != 0 && errno != EINTR) fail(errno);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno);
  temporary_.clear();
  reason = sync_folder(folder_of(target_));
  if (reason != 0) fail(reason);
}

AppendFile::AppendFile(std::string path) : path_(std::move(path)) {
  check_path(path_, fail_write);
  descriptor_ = open_retrying(path_, O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK, 0666);  // a pipe must not block here
  if (descriptor_ < 0) fail(errno);
  try {
    cut_broken_line();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

AppendFile::~AppendFile() { ::close(descriptor_); }

void AppendFile::fail(int reason) const { fail_write(path_, reason_text(reason)); }

void AppendFile::cut_broken_line() {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail(errno);
  if (!S_ISREG(status.st_mode)) fail_write(path_, "it exists and is not a regular file");
  off_t keep = status.st_size;
  std::string block(buffer_size, '\0');
  while (keep > 0) {
    const auto size = static_cast<std::size_t>(std::min<off_t>(keep, static_cast<off_t>(block.size())));
    const ssize_t got = ::pread(descriptor_, block.data(), size, keep - static_cast<off_t>(size));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(errno);
    if (static_cast<std::size_t>(got) != size) fail_write(path_, "it became shorter while it was read");
    const auto newline = std::string_view(block.data(), size).rfind('\n');
    if (newline != std::string_view::npos) {
      keep -= static_cast<off_t>(size - newline - 1);
      break;
    }
    keep -= static_cast<off_t>(size);
  }
  if (keep != status.st_size && ::ftruncate(descriptor_, keep) != 0) fail(errno);
}

void AppendFile::append_line(std::string_view line) {
  if (line.find('\n') != std::string_view::npos) fail_write(path_, "a line to append contains a newline");
  std::string bytes(line);
  bytes += '\n';
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail(errno);
  const int reason = write_all(descriptor_, bytes.data(), bytes.size());
  if (reason == 0) return;
  (void)!::ftruncate(descriptor_, status.st_size);  // if this fails too, the next opening cuts the line
  fail(reason);
}

void AppendFile::sync() {
  const int reason = sync_descriptor(descriptor_);
  if (reason != 0 && reason != EINVAL) fail(reason);
}

FolderClaim::FolderClaim(const std::string& path) {
  check_path(path, fail_write);
  descriptor_ = open_retrying(path, O_RDONLY | O_DIRECTORY);
  if (descriptor_ < 0) fail_write(path, reason_text(errno));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int reason = errno;
    if (reason != EWOULDBLOCK) return;  // no locks here
    ::close(descriptor_);
    fail_write(path, "another process is working in this folder");
  }
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.rfind(temporary_prefix, 0) == 0 && name.size() > temporary_suffix.size() &&
                      name.compare(name.size() - temporary_suffix.size(), std::string::npos, temporary_suffix) == 0;
    if (ours && entry.symlink_status(ignored).type() == fs::file_type::regular) fs::remove(entry.path(), ignored);
  }
}

FolderClaim::~FolderClaim() { ::close(descriptor_); }

MappedFile::MappedFile(const std::string& path) {
  check_path(path, fail_read);
  const int descriptor = open_retrying(path, O_RDONLY | O_NONBLOCK);  // a pipe must not block here
  if (descriptor < 0) fail_read(path, reason_text(errno));
  const Closer closer{descriptor};
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail_read(path, reason_text(errno));
  if (S_ISDIR(status.st_mode)) fail_read(path, reason_text(EISDIR));
  if (!S_ISREG(status.st_mode)) fail_read(path, "expected a regular file");
  if (status.st_size == 0) return;  // mmap refuses an empty range
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (address == MAP_FAILED) fail_read(path, reason_text(errno));
  data_ = static_cast<const std::byte*>(address);
  size_ = size;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::unique_ptr<FileContent> FileContent::open(const std::string& path) {
  return std::unique_ptr<FileContent>(new FileContent(MappedFile(path)));
}

std::unique_ptr<FileContent> FileContent::of(std::string bytes) {
  return std::unique_ptr<FileContent>(new FileContent(std::move(bytes)));
}

std::string_view FileContent::bytes() const {
  const auto* mapped = std::get_if<MappedFile>(&storage_);
  return mapped != nullptr ? mapped->bytes() : std::string_view(std::get<std::string>(storage_));
}

}  // namespace torsor
