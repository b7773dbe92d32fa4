// Standard input, which process 0 reads for all.

#include "build_paths.h"
#include "expectations.h"

#include <accel/accelerator.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

using accel::Accelerator;
using accel::AcceleratorOptions;

namespace {

enum class Kind { kPipe, kFile };

/// From now on the process's standard input has these characters.
void give_input(const std::string& text, Kind kind = Kind::kPipe) {
  int ends[2];
  if (kind == Kind::kFile) {
    std::FILE* file = std::tmpfile();
    ASSERT_NE(file, nullptr);
    ASSERT_EQ(std::fwrite(text.data(), 1, text.size(), file), text.size());
    ASSERT_EQ(std::fflush(file), 0);
    ASSERT_EQ(::lseek(::fileno(file), 0, SEEK_SET), 0);
    ASSERT_EQ(::dup2(::fileno(file), STDIN_FILENO), STDIN_FILENO);
    std::fclose(file);
    return;
  }
  ASSERT_EQ(::pipe(ends), 0);
  // What a pipe holds.
  ASSERT_LE(text.size(), 65536u);
  ASSERT_EQ(
      ::write(ends[1], text.data(), text.size()),
      static_cast<ssize_t>(text.size()));
  ::close(ends[1]);
  ASSERT_EQ(::dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
  ::close(ends[0]);
}

/// Only process 0's is to be read.
void give_input_of_main_process(
    const Accelerator& accelerator,
    const std::string& text,
    Kind kind = Kind::kPipe) {
  give_input(accelerator.is_main_process() ? text : "wrong 9 9 9\n", kind);
}

/// What the program sees is the same everywhere.
void expect_on_all(Accelerator& accelerator, const std::string& seen) {
  for (const auto& other : accelerator.gather_object(std::vector{seen})) {
    EXPECT_EQ(other, seen);
  }
}

} // namespace

ACCEL_RANK_FUNCTION(reads_numbers_and_lines) {
  Accelerator accelerator;
  give_input_of_main_process(
      accelerator, "3 0.5\nfirst line\n\n  word 7x\nlast without an end");
  auto& in = accelerator.cin();
  int epochs = 0;
  double rate = 0;
  in >> epochs >> rate;
  EXPECT_EQ(epochs, 3);
  EXPECT_EQ(rate, 0.5);
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "");
  std::getline(in, line);
  EXPECT_EQ(line, "first line");
  EXPECT_EQ(in.get(), '\n');
  std::string word;
  in >> word;
  EXPECT_EQ(word, "word");
  int number = 0;
  in >> number;
  EXPECT_EQ(number, 7);
  EXPECT_EQ(in.peek(), 'x');
  in >> number;
  EXPECT_TRUE(in.fail() && !in.eof() && !in.bad());
  in.clear();
  in.ignore(100, '\n');
  EXPECT_TRUE(static_cast<bool>(std::getline(in, line)));
  EXPECT_EQ(line, "last without an end");
  EXPECT_TRUE(in.eof());
  EXPECT_FALSE(static_cast<bool>(std::getline(in, line)));
  EXPECT_FALSE(in.bad());
  EXPECT_EQ(&accelerator.cin() == &std::cin, !accelerator.use_distributed());
  EXPECT_EQ(accelerator.c_stdin() == stdin, !accelerator.use_distributed());
}

TEST(Input, NumbersAndLinesAreThoseOfProcessZero) {
  accel::test::run_all("reads_numbers_and_lines");
}

// The same reads with C's functions and in turns.
ACCEL_RANK_FUNCTION(reads_with_c) {
  Accelerator accelerator;
  give_input_of_main_process(
      accelerator, "12 ab\nthe rest of it\nq\n5 6 7\nend");
  std::FILE* in = accelerator.c_stdin();
  int number = 0;
  char text[32];
  EXPECT_EQ(std::fscanf(in, "%d %31s", &number, text), 2);
  EXPECT_EQ(number, 12);
  EXPECT_STREQ(text, "ab");
  EXPECT_EQ(std::getc(in), '\n');
  EXPECT_EQ(std::fgets(text, sizeof text, in), text);
  EXPECT_STREQ(text, "the rest of it\n");
  EXPECT_EQ(std::fgetc(in), 'q');
  EXPECT_EQ(std::ungetc('Q', in), 'Q');
  EXPECT_EQ(accelerator.cin().get(), 'Q');
  accelerator.cin() >> number;
  EXPECT_EQ(number, 5);
  EXPECT_EQ(std::fscanf(in, "%d", &number), 1);
  EXPECT_EQ(number, 6);
  accelerator.cin() >> number;
  EXPECT_EQ(number, 7);
  char* line = nullptr;
  size_t size = 0;
  EXPECT_EQ(::getline(&line, &size, in), 1);
  EXPECT_EQ(::getline(&line, &size, in), 3);
  EXPECT_STREQ(line, "end");
  EXPECT_EQ(::getline(&line, &size, in), -1);
  std::free(line);
  EXPECT_TRUE(std::feof(in) && !std::ferror(in));
  EXPECT_EQ(std::fscanf(in, "%d", &number), EOF);
}

TEST(Input, CsFunctionsReadTheSame) {
  accel::test::run_all("reads_with_c");
}

ACCEL_RANK_FUNCTION(reads_much) {
  Accelerator accelerator;
  // Several pieces of a file; numbers that lie on the borders of pieces.
  std::string text;
  for (int64_t i = 0; i < 60000; ++i) {
    text += std::to_string(i * i) + (i % 7 == 0 ? "\n" : " ");
  }
  give_input_of_main_process(accelerator, text, Kind::kFile);
  int64_t expected = 0;
  for (int64_t number; accelerator.cin() >> number; ++expected) {
    ASSERT_EQ(number, expected * expected);
  }
  EXPECT_EQ(expected, 60000);
  EXPECT_TRUE(accelerator.cin().eof());
}

TEST(Input, FilesAreReadInPieces) {
  accel::test::run_all("reads_much");
}

ACCEL_RANK_FUNCTION(reads_bytes) {
  Accelerator accelerator;
  std::string text;
  for (int i = 0; i < 5000; ++i) {
    text += static_cast<char>(i * 37);
  }
  give_input_of_main_process(accelerator, text);
  const std::string read(
      std::istreambuf_iterator<char>(accelerator.cin()), {});
  EXPECT_TRUE(read == text);
}

TEST(Input, AnyByteIsACharacter) {
  accel::test::run_all("reads_bytes");
}

ACCEL_RANK_FUNCTION(has_no_input) {
  Accelerator accelerator;
  give_input_of_main_process(accelerator, "");
  int number = 5;
  accelerator.cin() >> number;
  EXPECT_TRUE(accelerator.cin().eof() && accelerator.cin().fail());
  EXPECT_EQ(number, accelerator.use_distributed() ? 5 : number);
  // Reading again is none of the others' business either.
  accelerator.cin().clear();
  EXPECT_EQ(accelerator.cin().get(), EOF);
}

TEST(Input, ItsEndIsSeenByAll) {
  accel::test::run_all("has_no_input");
}

ACCEL_RANK_FUNCTION(cannot_read) {
  Accelerator accelerator;
  // A folder can be opened, but not read.
  const int folder = ::open("/", O_RDONLY);
  ASSERT_EQ(::dup2(folder, STDIN_FILENO), STDIN_FILENO);
  errno = 0;
  EXPECT_EQ(std::getc(accelerator.c_stdin()), EOF);
  const int error = errno; // waiting for the others changes it
  EXPECT_TRUE(std::ferror(accelerator.c_stdin()));
  expect_on_all(accelerator, std::to_string(error));
  EXPECT_EQ(error, EISDIR);
}

TEST(Input, ErrorsAreSeenByAll) {
  accel::test::run_all("cannot_read");
}

// The others wait for the input as long as process 0 does.
ACCEL_RANK_FUNCTION(waits_for_input) {
  Accelerator accelerator(
      AcceleratorOptions().timeout(std::chrono::seconds(1)));
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::seconds(3));
    EXPECT_EQ(::write(ends[1], "17\n", 3), 3);
  });
  int number = 0;
  accelerator.cin() >> number;
  late.join();
  EXPECT_EQ(number, 17);
}

TEST(Input, MayComeLaterThanTheTimeout) {
  accel::test::run_and_expect_success("waits_for_input", 2);
}

// Not all processes are there: no end of input, but an error.
ACCEL_RANK_FUNCTION(reads_alone) {
  Accelerator accelerator;
  give_input_of_main_process(accelerator, "1 2 3\n");
  if (accelerator.is_main_process()) {
    accelerator.on_main_process([&] {
      int number = 0;
      const auto of_stream = accel::test::error_of([&] { accelerator.cin() >> number; });
      EXPECT_TRUE(accel::test::contains(of_stream, "on_main_process")) << of_stream;
      char text[8];
      const std::vector<std::function<void()>> reads{
          [&] { (void)std::fscanf(accelerator.c_stdin(), "%d", &number); },
          [&] { (void)std::getc(accelerator.c_stdin()); },
          [&] { (void)std::fgets(text, sizeof text, accelerator.c_stdin()); },
          [&] { (void)std::fread(text, 1, 3, accelerator.c_stdin()); }};
      for (const auto& read : reads) {
        const auto error = accel::test::error_of(read);
        EXPECT_TRUE(accel::test::contains(error, "on_main_process")) << error;
      }
    });
  }
}

TEST(Input, OneProcessAloneCannotReadIt) {
  accel::test::run_and_expect_success("reads_alone", 2);
}

ACCEL_RANK_FUNCTION(loses_the_reader) {
  Accelerator accelerator;
  if (accelerator.is_main_process()) {
    ::_exit(0);
  }
  int number = 0;
  const auto error = accel::test::error_of([&] { accelerator.cin() >> number; });
  EXPECT_TRUE(accel::test::contains(error, "broadcast")) << error;
  std::_Exit(::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed());
}

TEST(Input, TheOthersStopWhereProcessZeroHasDied) {
  accel::test::run_and_expect_success("loses_the_reader", 2);
}

#ifdef ACCEL_HAS_LAUNCHER

// A menu, as programs have it, launched as its user launches it.
ACCEL_RANK_FUNCTION(asks) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  accelerator.cout() << "epochs? ";
  int epochs = 0;
  if (!(accelerator.cin() >> epochs)) {
    accelerator.cout() << "none\n";
    return;
  }
  accelerator.cout() << "rate? ";
  double rate = 0;
  EXPECT_EQ(std::fscanf(accelerator.c_stdin(), "%lf", &rate), 1);
  const auto all = accelerator.gather_object(std::vector<double>{epochs * rate});
  for (const double value : all) {
    accelerator.cout() << value << ' ';
  }
  accelerator.cout() << '\n';
}

namespace {

/// The command that launches `asks` as two processes.
std::string launch_asks() {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").string();
  return "ACCEL_TEST_FUNCTION=asks " + std::string(build_paths::kAccel) +
      " launch -n 2 -- " + program;
}

std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  std::array<char, 256> piece{};
  while (const size_t count = std::fread(piece.data(), 1, piece.size(), pipe)) {
    text.append(piece.data(), count);
  }
  EXPECT_EQ(::pclose(pipe), 0) << command << '\n' << text;
  return text;
}

} // namespace

TEST(Input, ComesThroughTheLauncher) {
  EXPECT_EQ(
      output_of("printf '3\\n0.5\\n' | " + launch_asks()),
      "epochs? rate? 1.5 1.5 \n");
  // An answer that comes late.
  EXPECT_EQ(
      output_of("(sleep 1; echo 4; sleep 1; echo 2) | " + launch_asks()),
      "epochs? rate? 8 8 \n");
  EXPECT_EQ(output_of(launch_asks() + " </dev/null"), "epochs? none\n");
}

#endif
