#include <accel/checkpoint/directory.h>

#include "checkpoint/directory_lock.h"
#include "checkpoint/file_pieces.h"
#include "checkpoint/files.h"
#include "checkpoint/json.h"
#include "checkpoint/manifest.h"
#include "checkpoint/pull.h"
#include "checkpoint/safetensors_write.h"
#include "checkpoint/threads.h"
#include "checkpoint/together.h"
#include "checkpoint/unfinished.h"

#include <c10/util/Exception.h>

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <map>
#include <system_error>

namespace fs = std::filesystem;

namespace accel::checkpoint {

namespace {

/// The directory itself, not a link to it: only that can be replaced.
std::string real_path(const std::string& directory) {
  TORCH_CHECK(!directory.empty(), "A checkpoint needs a directory");
  fs::path path = fs::weakly_canonical(fs::absolute(directory));
  if (!path.has_filename()) {
    path = path.parent_path();
  }
  TORCH_CHECK(
      path.has_filename(), in_quotes(directory), " cannot be a checkpoint");
  return path.string();
}

/// Where the old directory waits on file systems that cannot exchange two
/// names; there only while this process is between two renames.
std::string previous_path(const std::string& directory) {
  const fs::path path(directory);
  return (path.parent_path() / ("." + path.filename().string() + ".previous"))
      .string();
}

/// Throws unless `target` is free, empty or a checkpoint of ours.
void check_replaceable(const std::string& target) {
  if (!fs::exists(target)) {
    return;
  }
  TORCH_CHECK(
      fs::is_directory(target),
      "Cannot save a checkpoint as ",
      in_quotes(target),
      ": there is a file of that name");
  TORCH_CHECK(
      fs::is_empty(target) || fs::exists(fs::path(target) / kManifest),
      "Cannot save a checkpoint as ",
      in_quotes(target),
      ": the directory holds something else (there is no ",
      kManifest,
      "). Choose another name.");
  if (!fs::is_empty(target)) {
    read_manifest(target);
  }
}

/// Takes a checkpoint that is about to be replaced out of the system's memory.
/// Nobody is going to read it, and the new one, which is as large, is written
/// into that memory, instead of asking for as much again: on a virtual machine
/// that costs several times what writing does.
void make_room(const std::string& checkpoint) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(checkpoint, error), end;
       !error && entry != end;
       entry.increment(error)) {
    const Descriptor fd(::open(
        entry->path().c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    if (fd.get() >= 0) {
      ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    }
  }
}

/// On a thread of its own, which is waited for when the future goes.
std::future<void> begin_making_room(const std::string& checkpoint) {
  if (!fs::is_directory(checkpoint)) {
    return {};
  }
  try {
    return std::async(std::launch::async, make_room, checkpoint);
  } catch (const std::system_error&) {
    return {}; // no more threads to be had: it only saves time
  }
}

Descriptor begin_directory(const std::string& target) {
  const std::string temporary = temporary_path(target);
  const std::string previous = previous_path(target);
  if (!fs::exists(target) && fs::exists(previous)) {
    rename_path(previous, target);
  }
  check_replaceable(target);
  std::error_code error;
  fs::create_directories(parent_path(target), error);
  TORCH_CHECK(
      !error,
      "Cannot make the directory ",
      in_quotes(parent_path(target)),
      ": ",
      error.message());
  if (fs::exists(temporary)) {
    TORCH_CHECK(
        !is_in_use(temporary),
        "Another process is saving the checkpoint ",
        in_quotes(target),
        " right now");
    fs::remove_all(temporary);
  }
  fs::create_directory(temporary, error);
  TORCH_CHECK(
      !error,
      "Cannot make the directory ",
      in_quotes(temporary),
      ": ",
      error.message());
  auto lock = lock_directory(temporary);
  TORCH_CHECK(
      lock,
      "Another process is saving the checkpoint ",
      in_quotes(target),
      " right now");
  return std::move(*lock);
}

FileRecord record(const std::string& name, const Digest& digest) {
  return {name, digest.size, digest.checksum, digest.blocks};
}

std::string records_text(const std::vector<FileRecord>& files) {
  Json json = Json::array();
  for (const auto& file : files) {
    json.push_back({file.name, file.size, file.checksum, file.blocks});
  }
  return json.dump();
}

void sync_directory(const std::string& path, Sync sync) {
  if (sync == Sync::kOnDisk) {
    checkpoint::sync_directory(path);
  }
}

/// What the processes have written, checked against what is there.
Manifest list_files(
    const std::string& directory,
    const std::vector<std::string>& records_of_all,
    Sync sync) {
  std::map<std::string, FileRecord> files;
  for (size_t rank = 0; rank < records_of_all.size(); ++rank) {
    for (const Json& entry : Json::parse(records_of_all[rank])) {
      FileRecord file{entry[0], entry[1], entry[2], entry[3]};
      TORCH_CHECK(
          is_inner_path(file.name) && file.name != kManifest,
          in_quotes(file.name),
          " cannot be part of a checkpoint");
      const fs::path path = fs::path(directory) / file.name;
      std::error_code error;
      const uint64_t size = fs::file_size(path, error);
      TORCH_CHECK(
          !error && size == file.size,
          "Process ",
          rank,
          " has written ",
          file.size,
          " bytes to ",
          in_quotes(path.string()),
          ", but the main process sees ",
          error ? error.message() : std::to_string(size) + " bytes",
          ". All processes must see the same directory.");
      const std::string name = file.name;
      TORCH_CHECK(
          files.emplace(name, std::move(file)).second,
          "Two processes have written ",
          in_quotes(name));
    }
  }
  // Files that the program's own code has put there.
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    const std::string name =
        fs::relative(entry.path(), directory).generic_string();
    if (entry.is_directory()) {
      sync_directory(entry.path().string(), sync);
    } else if (!files.count(name)) {
      TORCH_CHECK(
          entry.is_regular_file() && name != kManifest,
          in_quotes(name),
          " cannot be part of a checkpoint");
      const Digest digest =
          digest_file(entry.path().string(), /*sync=*/sync == Sync::kOnDisk);
      files[name] = record(name, digest);
    }
  }
  Manifest manifest;
  for (auto& [name, file] : files) {
    manifest.files.push_back(std::move(file));
  }
  return manifest;
}

/// Files in the old checkpoint that are not part of it go on into the new one.
void carry_over(const std::string& from, const std::string& to) {
  const Manifest old = read_manifest(from);
  for (const auto& entry : fs::recursive_directory_iterator(from)) {
    const std::string name = fs::relative(entry.path(), from).generic_string();
    const fs::path copy = fs::path(to) / name;
    if (entry.is_directory() || name == kManifest || old.find(name) ||
        fs::exists(fs::symlink_status(copy))) {
      continue;
    }
    fs::create_directories(copy.parent_path());
    std::error_code cannot_link;
    fs::create_hard_link(entry.path(), copy, cannot_link);
    if (cannot_link) {
      fs::copy(entry.path(), copy, fs::copy_options::copy_symlinks);
    }
  }
}

/// Gives a finished checkpoint its name. Returns whether what had that name has
/// the temporary one now.
bool publish(
    const std::string& temporary, const std::string& target, Sync sync) {
  const std::string parent = parent_path(target);
  if (!fs::exists(target) || fs::is_empty(target)) {
    rename_path(temporary, target);
    sync_directory(parent, sync);
    return false;
  }
  carry_over(target, temporary);
  sync_directory(temporary, sync);
#ifdef RENAME_EXCHANGE
  if (::renameat2(
          AT_FDCWD,
          temporary.c_str(),
          AT_FDCWD,
          target.c_str(),
          RENAME_EXCHANGE) == 0) {
    sync_directory(parent, sync);
    return true;
  }
  TORCH_CHECK(
      errno == EINVAL || errno == ENOSYS || errno == ENOTSUP,
      "Cannot replace ",
      in_quotes(target),
      ": ",
      system_message(errno));
#endif
  const std::string previous = previous_path(target);
  fs::remove_all(previous);
  rename_path(target, previous);
  rename_path(temporary, target);
  sync_directory(parent, sync);
  fs::remove_all(previous);
  return false;
}

/// A file, or one of its blocks, that must have a checksum.
struct Part {
  const FileRecord* file;
  /// -1 for a file without blocks.
  int64_t block;
};

/// Where it is.
FilePart place_of(const std::string& path, const Part& part) {
  const std::string name = (fs::path(path) / part.file->name).string();
  if (part.block < 0) {
    return {name, 0, part.file->size};
  }
  const uint64_t begin = static_cast<uint64_t>(part.block) * kChecksumBlock;
  return {name, begin, std::min(part.file->size - begin, kChecksumBlock)};
}

/// A part that is being read.
struct OpenPart {
  explicit OpenPart(const FilePart& place)
      : file(place.path), pieces(file, place.offset, place.size) {}

  InputFile file;
  FilePieces pieces;
  Xxh64 hash;
};

/// Up to `kHashesAtOnce` parts, side by side.
void check_parts(
    const std::string& directory,
    const FilePart* places,
    const Part* parts,
    size_t count) {
  std::deque<OpenPart> opened;
  for (size_t i = 0; i < count; ++i) {
    opened.emplace_back(places[i]);
  }
  std::vector<HashInput> inputs;
  do {
    inputs.clear();
    for (auto& part : opened) {
      const ByteSpan piece = part.pieces.next();
      if (piece.size > 0) {
        inputs.push_back(
            {&part.hash,
             reinterpret_cast<const unsigned char*>(piece.data),
             piece.size});
      }
    }
    update_at_once(inputs);
  } while (!inputs.empty());
  for (size_t i = 0; i < count; ++i) {
    const auto& [file, block] = parts[i];
    const bool whole = block < 0;
    const uint64_t begin = places[i].offset;
    TORCH_CHECK(
        opened[i].hash.digest() ==
            (whole ? file->checksum
                   : file->blocks[static_cast<size_t>(block)]),
        "The checkpoint ",
        in_quotes(directory),
        " is damaged: the content of ",
        in_quotes(file->name),
        " is not what was saved (its checksum differs",
        whole ? std::string()
              : " between bytes " + std::to_string(begin) + " and " +
                    std::to_string(begin + places[i].size),
        ")");
  }
}

/// Large files in parts that are checked at the same time; of these share number
/// `index` of `count`. A share is parts that follow each other: the system reads ahead
/// of who goes on where he was.
void check_contents(
    const std::string& directory,
    const std::string& path,
    const Manifest& manifest,
    int64_t index,
    int64_t count) {
  uint64_t all_bytes = 0;
  for (const auto& file : manifest.files) {
    all_bytes += file.size;
  }
  const auto border = [&](int64_t share) {
    return static_cast<uint64_t>(
        static_cast<double>(all_bytes) * static_cast<double>(share) /
        static_cast<double>(count));
  };
  const uint64_t begin = border(index);
  const uint64_t end = index + 1 == count ? UINT64_MAX : border(index + 1);
  std::vector<Part> parts;
  uint64_t at = 0;
  // By where a part begins, so that each is in one share.
  const auto add = [&](const FileRecord& file, int64_t block) {
    const uint64_t place =
        at + static_cast<uint64_t>(std::max<int64_t>(block, 0)) * kChecksumBlock;
    if (place >= begin && place < end) {
      parts.push_back({&file, block});
    }
  };
  for (const auto& file : manifest.files) {
    if (file.blocks.empty()) {
      add(file, -1);
    }
    for (size_t block = 0; block < file.blocks.size(); ++block) {
      add(file, static_cast<int64_t>(block));
    }
    at += file.size;
  }
  uint64_t bytes = 0;
  std::vector<FilePart> places;
  for (const auto& part : parts) {
    places.push_back(place_of(path, part));
    bytes += places.back().size;
  }
  FilePull pull(places);
  // Groups of about equal size, and one for each thread at least.
  const size_t threads = copying_threads(bytes);
  const size_t groups = std::max(
      (parts.size() + kHashesAtOnce - 1) / kHashesAtOnce,
      std::min(parts.size(), threads));
  on_threads(groups, threads, [&](size_t group) {
    const size_t first = parts.size() * group / groups;
    const size_t last = parts.size() * (group + 1) / groups - 1;
    pull.wait(last);
    check_parts(directory, &places[first], &parts[first], last + 1 - first);
  });
}

} // namespace

std::optional<Descriptor> lock_directory(const std::string& path) {
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  TORCH_CHECK(
      fd.get() >= 0,
      "Cannot open the directory ",
      in_quotes(path),
      ": ",
      system_message(errno));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    TORCH_CHECK(
        errno == EWOULDBLOCK,
        "Cannot lock the directory ",
        in_quotes(path),
        ": ",
        system_message(errno));
    return std::nullopt;
  }
  return fd;
}

bool is_in_use(const std::string& path) {
  return !lock_directory(path).has_value();
}

bool checkpoint_exists(const std::string& directory) {
  const std::string path = real_path(directory);
  return fs::exists(path) || fs::exists(previous_path(path));
}

std::string locate_checkpoint(const std::string& directory) {
  TORCH_CHECK(!directory.empty(), "A checkpoint needs a directory");
  const std::string path = real_path(directory);
  if (!fs::exists(path) && fs::exists(previous_path(path))) {
    return previous_path(path);
  }
  TORCH_CHECK(
      fs::is_directory(path),
      "There is no checkpoint ",
      in_quotes(directory),
      fs::exists(path) ? ": it is a file" : ": there is no such directory");
  TORCH_CHECK(
      fs::exists(fs::path(path) / kManifest),
      in_quotes(directory),
      " is not a complete checkpoint: it has no ",
      kManifest);
  return path;
}

CheckpointFiles::CheckpointFiles(std::string directory, Sync sync)
    : directory_(std::move(directory)), sync_(sync) {}

void CheckpointFiles::write_tensors(
    const std::string& name,
    const StateDict& tensors,
    const std::map<std::string, std::string>& metadata,
    const PutTogether& put_together) {
  written_.push_back(record(
      name,
      write_safetensors(
          tensors,
          (fs::path(directory_) / name).string(),
          metadata,
          sync_ == Sync::kOnDisk,
          put_together)));
}

void CheckpointFiles::write_bytes(
    const std::string& name, const std::string& bytes) {
  written_.push_back(record(
      name,
      write_text(
          (fs::path(directory_) / name).string(),
          bytes,
          sync_ == Sync::kOnDisk)));
}

UnfinishedCheckpoint::UnfinishedCheckpoint(
    const std::string& directory,
    const Processes& processes,
    Sync sync,
    Remove remove)
    : target_(real_path(directory)),
      temporary_(temporary_path(target_)),
      what_("Saving the checkpoint " + in_quotes(target_)),
      sync_(sync),
      remove_(std::move(remove)) {
  run_together(processes, what_, [&] {
    if (processes.writer()) {
      lock_ = begin_directory(target_);
      room_ = begin_making_room(target_);
    }
  });
  begun_ = processes.writer();
}

UnfinishedCheckpoint::~UnfinishedCheckpoint() {
  if (begun_) {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
  }
}

void UnfinishedCheckpoint::finish(
    const Processes& processes,
    const std::function<void(CheckpointFiles&)>& write) {
  const auto records = gather_results(processes, what_, [&] {
    CheckpointFiles files(temporary_, sync_);
    write(files);
    return records_text(files.written());
  });
  run_together(processes, what_, [&] {
    if (processes.writer()) {
      Manifest manifest = list_files(
          temporary_,
          processes.each_node
              ? std::vector<std::string>{records[static_cast<size_t>(
                    processes.rank)]}
              : records,
          sync_);
      manifest.world_size = processes.size;
      write_text(
          (fs::path(temporary_) / kManifest).string(),
          manifest_text(manifest),
          sync_ == Sync::kOnDisk);
      room_ = {}; // Waits: what has been replaced is about to be removed.
      sync_directory(temporary_, sync_);
      const bool replaced = publish(temporary_, target_, sync_);
      begun_ = false;
      if (replaced) {
        remove_(temporary_);
      }
    }
  });
}

void write_checkpoint(
    const std::string& directory,
    const Processes& processes,
    const std::function<void(CheckpointFiles&)>& write,
    Sync sync,
    const Remove& remove) {
  UnfinishedCheckpoint unfinished(directory, processes, sync, remove);
  unfinished.finish(processes, write);
}

namespace {

/// The manifest of a checkpoint whose files are there with their sizes.
Manifest verify_sizes(const std::string& directory, const std::string& path) {
  Manifest manifest = read_manifest(path);
  for (const auto& file : manifest.files) {
    const std::string name = (fs::path(path) / file.name).string();
    std::error_code error;
    const uint64_t size = fs::file_size(name, error);
    TORCH_CHECK(
        !error,
        "The checkpoint ",
        in_quotes(directory),
        " is damaged: ",
        in_quotes(file.name),
        ": ",
        error.message());
    TORCH_CHECK(
        size == file.size,
        "The checkpoint ",
        in_quotes(directory),
        " is damaged: ",
        in_quotes(file.name),
        " has ",
        size,
        " bytes instead of ",
        file.size);
  }
  return manifest;
}

} // namespace

Manifest verify_checkpoint(const std::string& directory, Verify verify) {
  return verify == Verify::kChecksums
      ? verify_share(directory, 0, 1)
      : verify_sizes(directory, locate_checkpoint(directory));
}

Manifest verify_share(
    const std::string& directory, int64_t index, int64_t count) {
  const std::string path = locate_checkpoint(directory);
  Manifest manifest = verify_sizes(directory, path);
  check_contents(directory, path, manifest, index, count);
  return manifest;
}

} // namespace accel::checkpoint
