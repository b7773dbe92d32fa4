// From where accel and a program can be called.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>

#include "harness.h"

namespace {

namespace fs = std::filesystem;

/// A folder with a program "train", a link "train-link" to it, a link "acl" to
/// accel, and a folder "below".
class Paths : public testing::Test {
 protected:
  Paths() {
    fs::create_directory(folder_ / "below");
    std::ofstream(folder_ / "train") << "#!/bin/sh\necho $0 $RANK \"$@\"\n";
    EXPECT_EQ(::chmod((folder_ / "train").c_str(), 0755), 0);
    fs::create_symlink("train", folder_ / "train-link");
    fs::create_symlink(accel_path(), folder_ / "acl");
    fs::create_symlink("../acl", folder_ / "below/accel");
  }

  /// Runs a shell command in the folder or in one below.
  Result shell(const std::string& command, const std::string& where = "") {
    Surroundings surroundings;
    surroundings.cwd = folder_ / where;
    surroundings.environment = {{"ACCEL_PROGRAM", accel_path()}};
    return Running({"/bin/sh", "-c", command}, surroundings).wait();
  }

  const Folder folder_;
};

TEST_F(Paths, AProgramIsFoundFromAnyFolder) {
  EXPECT_EQ(shell("$ACCEL_PROGRAM launch ./train a").out, "./train 0 a\n");
  EXPECT_EQ(shell("./acl launch ./train").out, "./train 0\n");
  EXPECT_EQ(shell("../acl launch ../train", "below").out, "../train 0\n");
  EXPECT_EQ(shell("./accel launch ../train", "below").out, "../train 0\n");
  EXPECT_EQ(shell("./acl launch below/../train").out, "below/../train 0\n");
  EXPECT_EQ(
      shell("./acl launch -- " + (folder_ / "train")).out,
      (folder_ / "train") + " 0\n");
}

TEST_F(Paths, LinksAndThePathAreFollowed) {
  EXPECT_EQ(shell("./acl launch ./train-link").out, "./train-link 0\n");
  EXPECT_EQ(
      shell("PATH=$PWD/below:$PATH; accel launch ./train").out, "./train 0\n");
  // Also a relative folder in it.
  EXPECT_EQ(
      shell("PATH=below:$PATH; accel launch ./train").out, "./train 0\n");
  EXPECT_EQ(
      shell("PATH=.:$PATH; export PATH; acl launch train").out, "./train 0\n");
}

TEST_F(Paths, ANameIsLookedForInThePathOnlyAndThePathIsNamed) {
  for (const char* command :
       {"./acl launch train", "./acl launch -n 2 -- train-link"}) {
    const Result result = shell(command);
    EXPECT_EQ(result.status, 127);
    EXPECT_EQ(result.out, "");
    const std::string name = std::string(command).substr(
        std::string(command).rfind(' ') + 1);
    EXPECT_EQ(
        result.err,
        "accel: " + name + ": no such program in $PATH. Did you mean ./" +
            name + "?\n");
  }
}

// What "accel env" says of free memory is another figure at every call.
std::string without_free_memory(const std::string& text) {
  static const std::regex figure(R"([0-9.]+( MiB)? free)");
  return std::regex_replace(text, figure, "# free");
}

TEST_F(Paths, OtherPartsOfAccelAreFoundThroughALink) {
  // With the runtime these are the flags and the self-test, without it what is
  // missing where; in any case the same as from the build folder.
  for (const std::string command :
       {"flags", "test --dry-run --cpu", "env", "--version"}) {
    const Result direct = shell("$ACCEL_PROGRAM " + command);
    for (const char* called : {"./acl", "below/accel", "PATH=below:$PATH accel"}) {
      const Result result = shell(std::string(called) + " " + command);
      EXPECT_EQ(result.status, direct.status) << command;
      EXPECT_EQ(
          without_free_memory(result.out), without_free_memory(direct.out))
          << called << " " << command;
      EXPECT_EQ(result.err, direct.err) << called << " " << command;
    }
  }
}

TEST_F(Paths, ACopyOfAccelSaysWhatToDo) {
  fs::copy_file(accel_path(), folder_ / "below/copy");
  const std::string part =
      (fs::canonical(folder_ / "below") / "accel-self-test").string();
  const Result result = shell("below/copy test");
  EXPECT_EQ(result.status, 125);
  EXPECT_EQ(result.err.rfind("accel: " + part + " is missing. ", 0), 0u)
      << result.err;
  EXPECT_NE(result.err.find("make a symbolic link instead"), std::string::npos)
      << result.err;
}

} // namespace
