#include "checkpoint/files.h"

#include "checkpoint/file_pieces.h"

#include <c10/util/Exception.h>

#include <fcntl.h>
#include <sys/stat.h>
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

/// Small enough to be still in the processor's nearest caches when it is hashed
/// a second time.
constexpr size_t kHashed = 128 << 10;

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
    const auto part = static_cast<size_t>(
        std::min<uint64_t>({size, kHashed, to_the_end}));
    whole_.update(bytes, part);
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
  Digest digest{size_, whole_.digest(), {}};
  if (size_ > kChecksumBlock) {
    digest.blocks = blocks_;
    if (size_ % kChecksumBlock != 0) {
      digest.blocks.push_back(block_.digest());
    }
  }
  return digest;
}

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)),
      fd_(open_or_throw(path_, O_WRONLY | O_CREAT | O_TRUNC, "create")) {}

void OutputFile::write(const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    // Up to a multiple of the chunk's size, so that its pieces are whole.
    const size_t chunk =
        std::min(size, kChunk - static_cast<size_t>(size_ % kChunk));
    hash_.update(bytes, chunk);
    size_t done = 0;
    while (done < chunk) {
      const ssize_t count = ::write(fd_.get(), bytes + done, chunk - done);
      if (count < 0 && errno == EINTR) {
        continue;
      }
      TORCH_CHECK(
          count > 0,
          "Cannot write ",
          in_quotes(path_),
          ": ",
          system_message(count < 0 ? errno : ENOSPC));
      done += static_cast<size_t>(count);
    }
    bytes += chunk;
    size -= chunk;
    size_ += chunk;
  }
}

Digest OutputFile::finish() {
  sync_descriptor(fd_.get(), path_);
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

Digest write_text(const std::string& path, const std::string& text) {
  OutputFile file(path);
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
