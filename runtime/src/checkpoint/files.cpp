#include "checkpoint/files.h"

#include "checkpoint/file_pieces.h"
#include "checkpoint/threads.h"

#include <c10/util/Exception.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

namespace accel::checkpoint {

namespace {

/// What one call writes. The system keeps a file in pieces as large as it was
/// written, and the larger they are the faster it is read.
constexpr size_t kChunk = 4 << 20;

/// Of parts in one call, at least one of which is written. Any number does.
constexpr int kMostParts = 64;

/// How much the disk is told to write at once. Larger parts leave it waiting
/// for the first one, and then the program for the last one.
constexpr uint64_t kBegin = 8 << 20;

Descriptor open_or_throw(const std::string& path, int flags, const char* what) {
  int fd;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  TORCH_CHECK(
      fd >= 0,
      "Cannot ",
      what,
      " ",
      in_quotes(path),
      ": ",
      system_message(errno));
  return Descriptor(fd);
}

void sync_descriptor(int fd, const std::string& path) {
  TORCH_CHECK(
      ::fsync(fd) == 0,
      "Cannot bring ",
      in_quotes(path),
      " to the disk: ",
      system_message(errno));
}

/// Lets the disk begin with a part of a file that has just been written. Where
/// it cannot, and where it fails, syncing does it, and says so.
void begin_writing(int fd, uint64_t offset, uint64_t size) {
#ifdef SYNC_FILE_RANGE_WRITE
  ::sync_file_range(
      fd,
      static_cast<off_t>(offset),
      static_cast<off_t>(size),
      SYNC_FILE_RANGE_WRITE);
#else
  (void)fd, (void)offset, (void)size;
#endif
}

} // namespace

std::string in_quotes(const std::string& text) {
  constexpr size_t kLongest = 300;
  std::string result = "'";
  for (const unsigned char c : text.substr(0, kLongest)) {
    if (c < 0x20 || c >= 0x7f) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\x%02x", c);
      result += code;
    } else {
      result += static_cast<char>(c);
    }
  }
  return result + (text.size() > kLongest ? "…'" : "'");
}

std::string system_message(int error) {
  return std::error_code(error, std::generic_category()).message();
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

InputFile::InputFile(std::string path)
    : path_(std::move(path)),
      // Non-blocking, so that a pipe is refused below instead of waited for.
      fd_(open_or_throw(path_, O_RDONLY | O_NONBLOCK, "open")) {
  struct stat status {};
  TORCH_CHECK(
      ::fstat(fd_.get(), &status) == 0,
      "Cannot look at ",
      in_quotes(path_),
      ": ",
      system_message(errno));
  TORCH_CHECK(
      S_ISREG(status.st_mode),
      in_quotes(path_),
      " is not a file",
      S_ISDIR(status.st_mode) ? " but a directory" : "");
  size_ = static_cast<uint64_t>(status.st_size);
}

void InputFile::read(uint64_t offset, void* destination, size_t size) const {
  auto* bytes = static_cast<char*>(destination);
  while (size > 0) {
    // One call transfers at most 2 GB.
    const ssize_t count = ::pread(
        fd_.get(),
        bytes,
        std::min(size, size_t{1} << 30),
        static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    TORCH_CHECK(
        count >= 0,
        "Cannot read ",
        in_quotes(path_),
        ": ",
        system_message(errno));
    TORCH_CHECK(
        count > 0,
        in_quotes(path_),
        " has become shorter while it was read: it had ",
        size_,
        " bytes and ends at ",
        offset);
    bytes += count;
    offset += static_cast<uint64_t>(count);
    size -= static_cast<size_t>(count);
  }
}

void FileHash::update(const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const uint64_t to_the_end = kChecksumBlock - size_ % kChecksumBlock;
    const auto part = static_cast<size_t>(std::min<uint64_t>(size, to_the_end));
    block_.update(bytes, part);
    if (part == to_the_end) {
      blocks_.push_back(block_.digest());
      block_ = Xxh64();
    }
    bytes += part;
    size -= part;
    size_ += part;
  }
}

Digest FileHash::digest() const {
  auto blocks = blocks_;
  if (size_ % kChecksumBlock != 0 || size_ == 0) {
    blocks.push_back(block_.digest());
  }
  if (blocks.size() == 1) {
    return {size_, blocks[0], {}};
  }
  const uint64_t checksum =
      xxh64(blocks.data(), blocks.size() * sizeof(blocks[0]));
  return {size_, checksum, std::move(blocks)};
}

OutputFile::OutputFile(std::string path, bool sync)
    : path_(std::move(path)),
      sync_(sync),
      fd_(open_or_throw(path_, O_WRONLY | O_CREAT | O_TRUNC, "create")) {}

void OutputFile::write(const void* data, size_t size) {
  write({ByteSpan{static_cast<const char*>(data), size}});
}

void OutputFile::write(const std::vector<ByteSpan>& parts) {
  uint64_t bytes = 0;
  for (const auto& part : parts) {
    bytes += part.size;
  }
  if (copying_threads(bytes) == 1) {
    store(parts, /*hash=*/true);
    return;
  }
  on_threads(2, 2, [&](size_t task) {
    if (task == 0) {
      store(parts, /*hash=*/false);
      return;
    }
    for (const auto& part : parts) {
      hash_.update(part.data, part.size);
    }
  });
}

void OutputFile::store(const std::vector<ByteSpan>& parts, bool hash) {
  size_t next = 0; // The first part that is not written,
  size_t done = 0; // and how much of it is.
  while (next < parts.size()) {
    iovec vector[kMostParts];
    int count = 0;
    // Up to a multiple of the chunk's size, so that the file's pieces are
    // whole.
    size_t room = kChunk - static_cast<size_t>(size_ % kChunk);
    for (size_t i = next; i < parts.size() && room > 0 && count < kMostParts;
         ++i, ++count) {
      const size_t begin = i == next ? done : 0;
      const size_t size = std::min(parts[i].size - begin, room);
      vector[count] = {const_cast<char*>(parts[i].data) + begin, size};
      room -= size;
    }
    const ssize_t written = ::writev(fd_.get(), vector, count);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    const auto bytes = static_cast<size_t>(std::max<ssize_t>(written, 0));
    for (size_t i = 0, left = hash ? bytes : 0; left > 0; ++i) {
      const size_t size = std::min(vector[i].iov_len, left);
      hash_.update(vector[i].iov_base, size);
      left -= size;
    }
    size_ += bytes;
    done += bytes;
    const size_t before = next;
    for (; next < parts.size() && done >= parts[next].size; ++next) {
      done -= parts[next].size;
    }
    TORCH_CHECK(
        bytes > 0 || next > before, // Parts may be empty.
        "Cannot write ",
        in_quotes(path_),
        ": ",
        system_message(written < 0 ? errno : ENOSPC));
    const uint64_t whole = size_ / kBegin * kBegin;
    if (sync_ && whole > begun_) {
      begin_writing(fd_.get(), begun_, whole - begun_);
      begun_ = whole;
    }
  }
}

Digest OutputFile::finish() {
  if (sync_) {
    sync_descriptor(fd_.get(), path_);
  }
  fd_ = Descriptor();
  return hash_.digest();
}

std::string read_text(const std::string& path, uint64_t limit) {
  const InputFile file(path);
  TORCH_CHECK(
      file.size() <= limit,
      in_quotes(path),
      " has ",
      file.size(),
      " bytes; at most ",
      limit,
      " are expected");
  std::string text(file.size(), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

Digest write_text(const std::string& path, const std::string& text, bool sync) {
  OutputFile file(path, sync);
  file.write(text.data(), text.size());
  return file.finish();
}

Digest digest_file(const std::string& path, bool sync) {
  const InputFile file(path);
  FileHash hash;
  for_each_piece(file, 0, file.size(), [&](const char* data, size_t size) {
    hash.update(data, size);
  });
  if (sync) {
    sync_descriptor(file.descriptor(), path);
  }
  return hash.digest();
}

void sync_directory(const std::string& path) {
  const Descriptor fd =
      open_or_throw(path, O_RDONLY | O_DIRECTORY, "open the directory");
  sync_descriptor(fd.get(), path);
}

void rename_path(const std::string& from, const std::string& to) {
  TORCH_CHECK(
      ::rename(from.c_str(), to.c_str()) == 0,
      "Cannot rename ",
      in_quotes(from),
      " to ",
      in_quotes(to),
      ": ",
      system_message(errno));
}

std::string temporary_path(const std::string& path) {
  const std::filesystem::path p(path);
  return (p.parent_path() / ("." + p.filename().string() + ".incomplete"))
      .string();
}

std::string parent_path(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

} // namespace accel::checkpoint
