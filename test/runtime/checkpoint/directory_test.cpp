#include "support.h"

#include <accel/checkpoint/directory.h>

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <iomanip>
#include <sstream>

namespace accel::checkpoint::test {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

void write_one(const std::string& directory, const std::string& content) {
  write_checkpoint(directory, {}, [&](CheckpointFiles& files) {
    files.write_bytes("content.txt", content);
  });
}

/// What a directory holds, hidden names included.
Names entries(const std::string& directory) {
  Names names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Directory, IsCompleteAndListsEveryFile) {
  const TemporaryDirectory directory;
  const auto path = directory / "deep/er/first";
  write_checkpoint(path, {}, [&](CheckpointFiles& files) {
    EXPECT_FALSE(fs::exists(path));
    StateDict tensors;
    tensors.insert("a", torch::ones({3}));
    files.write_tensors("a.safetensors", tensors);
    files.write_bytes("b.bin", "");
    // What a user's hook writes.
    fs::create_directory(files.directory() + "/sub");
    write_file(files.directory() + "/sub/c.txt", "abc");
  });
  const auto manifest = verify_checkpoint(path);
  EXPECT_EQ(manifest.world_size, 1);
  ASSERT_EQ(manifest.files.size(), 3u);
  // Published test vectors of XXH64.
  EXPECT_EQ(manifest.find("b.bin")->checksum, 0xef46db3751d8e999u);
  EXPECT_EQ(manifest.find("sub/c.txt")->checksum, 0x44bc2cf5ad770999u);
  EXPECT_EQ(manifest.find("sub/c.txt")->size, 3u);
  EXPECT_EQ(manifest.find("d"), nullptr);
  EXPECT_EQ(entries(directory / "deep/er"), Names{"first"});
}

TEST(Directory, ChecksumsOfLongerContentAreXxh64) {
  const TemporaryDirectory directory;
  // 39 bytes: one block of 32, then 4 and 3 bytes; and the vectors' own text.
  write_one(directory / "a", "Nobody inspects the spammish repetition");
  EXPECT_EQ(
      verify_checkpoint(directory / "a").files[0].checksum,
      0xfbcea83c8a378bf1u);
  // Fed in pieces or at once, the same.
  std::string large(3 * (1 << 18) + 17, 'x');
  for (size_t i = 0; i < large.size(); ++i) {
    large[i] = static_cast<char>(i * i >> 3);
  }
  write_one(directory / "b", large);
  verify_checkpoint(directory / "b");
}

TEST(Directory, LargeFilesHaveAChecksumForEachPart) {
  const TemporaryDirectory directory;
  const auto path = directory / "c";
  constexpr size_t kPart = 32 << 20;
  std::string large(2 * kPart + 1000, 'x');
  for (size_t i = 0; i < large.size(); i += 997) {
    large[i] = static_cast<char>(i >> 5);
  }
  write_one(path, large);
  const auto good = read_file(path + "/manifest.json");
  const auto manifest = verify_checkpoint(path);
  ASSERT_EQ(manifest.files[0].blocks.size(), 3u);
  EXPECT_EQ(manifest.files[0].size, large.size());
  // Each is what a file of its own would have.
  write_one(directory / "d", large.substr(2 * kPart));
  EXPECT_EQ(
      verify_checkpoint(directory / "d").files[0].checksum,
      manifest.files[0].blocks[2]);
  EXPECT_TRUE(verify_checkpoint(directory / "d").files[0].blocks.empty());
  // What the file's own is of.
  std::string numbers;
  for (const uint64_t block : manifest.files[0].blocks) {
    for (int byte = 0; byte < 8; ++byte) {
      numbers += static_cast<char>(block >> (8 * byte));
    }
  }
  write_one(directory / "f", numbers);
  EXPECT_EQ(
      verify_checkpoint(directory / "f").files[0].checksum,
      manifest.files[0].checksum);

  // One bit, on both sides of each border; the message says in which part.
  const auto file = path + "/content.txt";
  const auto damaged = [&](size_t place) {
    auto changed = large;
    changed[place] = static_cast<char>(changed[place] ^ 4);
    write_file(file, changed);
    return error_of([&] { verify_checkpoint(path); });
  };
  for (const size_t place :
       {size_t{0}, kPart - 1, kPart, 2 * kPart - 1, 2 * kPart,
        large.size() - 1}) {
    const size_t begin = place / kPart * kPart;
    const std::string expected = "'content.txt' is not what was saved (its "
                                 "checksum differs between bytes " +
        std::to_string(begin) + " and " +
        std::to_string(std::min(begin + kPart, large.size()));
    EXPECT_NE(damaged(place).find(expected), std::string::npos)
        << damaged(place);
  }

  // From the disk, where the system has nothing of it in memory.
  const auto forget = [&] {
    const int fd = ::open(file.c_str(), O_RDONLY);
    EXPECT_EQ(::fsync(fd), 0);
    EXPECT_EQ(::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    ::close(fd);
  };
  forget(); // what `damaged` has left
  EXPECT_ERROR(verify_checkpoint(path), "checksum differs between bytes");
  write_file(file, large);
  forget();
  EXPECT_EQ(verify_checkpoint(path).files[0].size, large.size());

  /// The manifest changed, with its own checksum right.
  const auto change = [&](const std::function<void(nlohmann::json&)>& work) {
    auto json = nlohmann::json::parse(good);
    work(json["files"][0]);
    json.erase("xxh64");
    write_one(directory / "e", json.dump());
    std::ostringstream checksum;
    checksum << std::hex << std::setw(16) << std::setfill('0')
             << verify_checkpoint(directory / "e").files[0].checksum;
    json["xxh64"] = checksum.str();
    write_file(path + "/manifest.json", json.dump());
  };
  const char* const parts = "xxh64_of_32_MiB";

  // As many as there are parts.
  write_file(file, large);
  change([&](auto& json) { json.erase(parts); });
  EXPECT_ERROR(verify_checkpoint(path), "'xxh64_of_32_MiB'");
  const std::string expected = "not one checksum for each 32 MiB";
  change([&](auto& json) { json[parts].erase(0); });
  EXPECT_ERROR(verify_checkpoint(path), expected);
  change([&](auto& json) { json[parts] = "none"; });
  EXPECT_ERROR(verify_checkpoint(path), expected);
  change([&](auto& json) { json["size"] = 12; });
  EXPECT_ERROR(verify_checkpoint(path), expected);
  change([&](auto& json) { json[parts][1] = 7; });
  EXPECT_ERROR(verify_checkpoint(path), "is not a text");
}

TEST(Directory, VerifyFindsEveryDamage) {
  const TemporaryDirectory directory;
  const auto path = directory / "c";
  write_one(path, "some content");
  verify_checkpoint(path);
  const auto file = path + "/content.txt";
  write_file(file, "same content");
  verify_checkpoint(path, Verify::kSizes);
  EXPECT_ERROR(verify_checkpoint(path), "content of 'content.txt' is not what");
  write_file(file, "some conten");
  EXPECT_ERROR(
      verify_checkpoint(path, Verify::kSizes), "has 11 bytes instead of 12");
  fs::remove(file);
  EXPECT_ERROR(
      verify_checkpoint(path, Verify::kSizes),
      "'content.txt': No such file or directory");
  fs::remove(path + "/manifest.json");
  EXPECT_ERROR(verify_checkpoint(path), "not a complete checkpoint");
  EXPECT_ERROR(verify_checkpoint(directory / "none"), "no such directory");
  EXPECT_ERROR(verify_checkpoint(""), "needs a directory");
}

TEST(Directory, DamagedManifestsAreErrors) {
  const TemporaryDirectory directory;
  const auto path = directory / "c";
  write_one(path, "some content");
  const auto file = path + "/manifest.json";
  const auto good = read_file(file);
  for (size_t size = 0; size + 1 < good.size(); ++size) {
    write_file(file, good.substr(0, size));
    EXPECT_NE(error_of([&] { verify_checkpoint(path); }), "") << size;
  }
  // Every third bit: two or three in each byte.
  for (size_t bit = 0; bit < good.size() * 8; bit += 3) {
    auto flipped = good;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    write_file(file, flipped);
    const auto message = error_of([&] { verify_checkpoint(path); });
    // Only kinds of white space can be exchanged without a word.
    if (message.empty()) {
      EXPECT_TRUE(std::isspace(good[bit / 8])) << bit / 8;
    }
  }
  const auto with = [&](const std::function<void(nlohmann::json&)>& change) {
    auto json = nlohmann::json::parse(good);
    change(json);
    write_file(file, json.dump());
    return error_of([&] { verify_checkpoint(path); });
  };
  EXPECT_EQ(with([](auto&) {}), "");
  EXPECT_NE(
      with([](auto& j) {
        j["files"][0]["name"] = "../c/content.txt";
      }).find("not a file in the checkpoint"),
      std::string::npos);
  EXPECT_NE(
      with([](auto& j) { j["files"][0]["size"] = -1; }).find("'size'"),
      std::string::npos);
  EXPECT_NE(
      with([](auto& j) { j["files"].push_back(j["files"][0]); }).find("twice"),
      std::string::npos);
  EXPECT_NE(
      with([](auto& j) { j["world_size"] = 2; }).find("is damaged"),
      std::string::npos);
  EXPECT_NE(
      with([](auto& j) { j["format_version"] = 2; }).find("version 2"),
      std::string::npos);
}

TEST(Directory, ReplacesAnOldCheckpointAndKeepsOtherFiles) {
  const TemporaryDirectory directory;
  const auto path = directory / "c";
  write_one(path, "old");
  write_file(path + "/notes.txt", "mine");
  fs::create_directory(path + "/logs");
  write_file(path + "/logs/a.log", "log");
  write_checkpoint(path, {}, [&](CheckpointFiles& files) {
    files.write_bytes("other.txt", "new");
    EXPECT_EQ(read_file(path + "/content.txt"), "old");
  });
  EXPECT_EQ(
      entries(path),
      (Names{"logs", "manifest.json", "notes.txt", "other.txt"}));
  EXPECT_EQ(read_file(path + "/notes.txt"), "mine");
  EXPECT_EQ(read_file(path + "/logs/a.log"), "log");
  EXPECT_EQ(verify_checkpoint(path).files.size(), 1u);
  // They do not become part of the checkpoint by being carried over.
  write_one(path, "newer");
  EXPECT_EQ(read_file(path + "/notes.txt"), "mine");
  EXPECT_EQ(verify_checkpoint(path).files.size(), 1u);
  EXPECT_EQ(entries(directory.path()), Names{"c"});
}

TEST(Directory, DoesNotTouchWhatIsNoCheckpoint) {
  const TemporaryDirectory directory;
  fs::create_directory(directory / "results");
  write_file(directory / "results/thesis.tex", "years");
  EXPECT_ERROR(write_one(directory / "results", "x"), "holds something else");
  EXPECT_ERROR(
      write_one(directory / "results/thesis.tex", "x"), "a file of that name");
  EXPECT_EQ(read_file(directory / "results/thesis.tex"), "years");
  EXPECT_EQ(entries(directory.path()), Names{"results"});
  fs::create_directory(directory / "empty");
  write_one(directory / "empty/", "x");
  verify_checkpoint(directory / "empty");
  // Through a link the directory is replaced, not the link.
  fs::create_directory_symlink(directory / "empty", directory / "link");
  write_one(directory / "link", "y");
  EXPECT_TRUE(fs::is_symlink(directory / "link"));
  EXPECT_EQ(read_file(directory / "empty/content.txt"), "y");
}

TEST(Directory, AnExceptionLeavesEverythingAsItWas) {
  const TemporaryDirectory directory;
  const auto path = directory / "c";
  write_one(path, "old");
  EXPECT_THROW(
      write_checkpoint(
          path,
          {},
          [&](CheckpointFiles& files) {
            files.write_bytes("content.txt", "new");
            throw std::runtime_error("user's hook");
          }),
      std::runtime_error);
  EXPECT_ERROR(
      write_checkpoint(
          path,
          {},
          [&](CheckpointFiles& files) {
            files.write_bytes("manifest.json", "{}");
          }),
      "cannot be part of a checkpoint");
  EXPECT_EQ(read_file(path + "/content.txt"), "old");
  verify_checkpoint(path);
  EXPECT_EQ(entries(directory.path()), Names{"c"});
}

TEST(Directory, AnInterruptedReplacementIsFound) {
  // On file systems that cannot exchange two names there is a moment in which
  // the old checkpoint has only its other name.
  const TemporaryDirectory directory;
  const auto path = directory / "c";
  write_one(path, "old");
  fs::rename(path, directory / ".c.previous");
  verify_checkpoint(path);
  write_one(path, "new");
  EXPECT_EQ(read_file(path + "/content.txt"), "new");
  EXPECT_EQ(entries(directory.path()), Names{"c"});
}

TEST(Directory, TwoWritersOfOneNameAreKeptApart) {
  const TemporaryDirectory directory;
  const auto path = directory / "c";
  const auto temporary = directory / ".c.incomplete";
  // Left by a process that is dead: cleared away.
  fs::create_directory(temporary);
  write_file(temporary + "/rest", "x");
  write_one(path, "first");
  EXPECT_EQ(entries(path), (Names{"content.txt", "manifest.json"}));
  // Held by one that lives: an error, and its files stay.
  write_checkpoint(path, {}, [&](CheckpointFiles& files) {
    EXPECT_ERROR(write_one(path, "second"), "Another process is saving");
    files.write_bytes("content.txt", "third");
  });
  EXPECT_EQ(read_file(path + "/content.txt"), "third");
}

TEST(Naming, CountsOnAndFindsTheNewest) {
  const TemporaryDirectory directory;
  const auto root = directory / "checkpoints";
  EXPECT_EQ(next_checkpoint_index(root), 0);
  EXPECT_FALSE(newest_checkpoint(root));
  for (const int64_t i : {0, 2, 9, 10}) {
    write_one(checkpoint_path(root, i), std::to_string(i));
  }
  for (const char* name :
       {"checkpoint_x",
        "checkpoint_",
        "my_checkpoint_99",
        "checkpoint_3.bak",
        ".checkpoint_50.incomplete",
        "checkpoint_99999999999999999999"}) {
    fs::create_directory(root + "/" + name);
  }
  // By number, not by text.
  EXPECT_EQ(next_checkpoint_index(root), 11);
  EXPECT_EQ(newest_checkpoint(root), root + "/checkpoint_10");
  // What is not complete does not count as the newest, but its number is used.
  fs::create_directory(root + "/checkpoint_11");
  fs::remove(root + "/checkpoint_10/content.txt");
  EXPECT_EQ(next_checkpoint_index(root), 12);
  EXPECT_EQ(newest_checkpoint(root), root + "/checkpoint_9");
  write_file(root + "/checkpoint_9/content.txt", "8");
  EXPECT_EQ(newest_checkpoint(root), root + "/checkpoint_9");
  EXPECT_EQ(
      newest_checkpoint(root, Verify::kChecksums), root + "/checkpoint_2");
}

TEST(Naming, PrunesTheOldestCompleteOnes) {
  const TemporaryDirectory directory;
  const auto root = directory.path();
  for (const int64_t i : {1, 2, 9, 10, 11}) {
    write_one(checkpoint_path(root, i), std::to_string(i));
  }
  // Broken ones must not push out good ones, and are not ours to delete.
  fs::remove(root + "/checkpoint_10/content.txt");
  fs::create_directory(root + "/checkpoint_12");
  fs::create_directory(root + "/.checkpoint_5.incomplete");
  fs::create_directory(root + "/.other.incomplete");
  EXPECT_EQ(
      prune_checkpoints(root, 2),
      (Names{root + "/checkpoint_1", root + "/checkpoint_2"}));
  EXPECT_EQ(
      entries(root),
      (Names{
          ".other.incomplete",
          "checkpoint_10",
          "checkpoint_11",
          "checkpoint_12",
          "checkpoint_9"}));
  EXPECT_EQ(prune_checkpoints(root, 2), Names{});
  EXPECT_EQ(prune_checkpoints(root, 1), Names{root + "/checkpoint_9"});
  EXPECT_EQ(prune_checkpoints(root, 1), Names{});
  EXPECT_EQ(newest_checkpoint(root), root + "/checkpoint_11");
  EXPECT_ERROR(prune_checkpoints(root, 0), "At least one");
}

} // namespace
} // namespace accel::checkpoint::test
