// The lines of several processes become one output.

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interleaver.h"
#include "line_splitter.h"

namespace accel::launcher {
namespace {

using Lines = std::vector<std::string>;

/// The lines of the pieces; progress is marked with a leading '~'.
Lines split(const std::vector<std::string>& pieces) {
  Lines lines;
  const auto receive = [&](std::string_view text, bool progress) {
    lines.push_back((progress ? "~" : "") + std::string(text));
  };
  LineSplitter splitter;
  for (const std::string& piece : pieces) {
    splitter.feed(piece, receive);
  }
  splitter.finish(receive);
  return lines;
}

TEST(LineSplitter, CutsAtNewlinesHoweverTheTextArrives) {
  const std::string text = "one\n\ntwo\nthree";
  const Lines expected{"one", "", "two", "three"};
  EXPECT_EQ(split({text}), expected);
  std::vector<std::string> letters;
  for (char letter : text) {
    letters.emplace_back(1, letter);
  }
  EXPECT_EQ(split(letters), expected);
}

TEST(LineSplitter, TakesAStateOfAProgressBarForALineOfItsOwn) {
  EXPECT_EQ(split({"\r10%\r20%\r", "30%\n"}), (Lines{"~10%", "~20%", "30%"}));
  EXPECT_EQ(split({"\r99%\r"}), Lines{"99%"});
}

TEST(LineSplitter, KeepsTheCarriageReturnOfAWindowsLine) {
  EXPECT_EQ(split({"a\r\nb\r", "\nc"}), (Lines{"a\r", "b\r", "c"}));
}

// ---- Process 0's bytes and the lines of others.

/// Collects what is written, "1:" or "2:" before what goes to another descriptor
/// than the text before it.
class Interleaved : public testing::Test {
 protected:
  using Clock = Interleaver::Clock;

  static constexpr auto kNever = Clock::time_point::max();

  void line(const std::string& text, Clock::time_point latest = kNever) {
    place_.line(1, text, latest);
    place_.settle(now_);
  }

  const Clock::time_point now_ = Clock::now();
  std::string out_;
  int last_ = 1;
  Interleaver place_{[this](int fd, std::string_view bytes) {
    out_ += std::exchange(last_, fd) == fd ? "" : std::to_string(fd) + ":";
    out_ += bytes;
  }};
};

TEST_F(Interleaved, BytesAreWrittenAtOnceAndLinesBetweenLines) {
  line("a");
  place_.bytes(1, "ha");
  EXPECT_EQ(out_, "a\nha");
  line("b");
  line("c");
  place_.bytes(1, "l");
  EXPECT_EQ(out_, "a\nhal");
  place_.bytes(1, "f\nnext\nthe third");
  EXPECT_EQ(out_, "a\nhalf\nb\nc\nnext\nthe third");
  place_.bytes(1, "\n");
  line("d");
  EXPECT_EQ(out_, "a\nhalf\nb\nc\nnext\nthe third\nd\n");
}

TEST_F(Interleaved, AnUrgentLineInterruptsWhenItsTimeHasCome) {
  place_.bytes(1, "half");
  line("a");
  EXPECT_EQ(place_.deadline(), kNever);
  const auto later = now_ + std::chrono::seconds(1);
  line("b", later);
  EXPECT_EQ(place_.deadline(), later);
  EXPECT_EQ(out_, "half");
  place_.settle(later);
  EXPECT_EQ(out_, "half\na\nb\n");
  EXPECT_EQ(place_.deadline(), kNever);
  place_.bytes(1, " of it\n");
  EXPECT_EQ(out_, "half\na\nb\n of it\n");
}

TEST_F(Interleaved, MuchDoesNotWait) {
  place_.bytes(1, "half");
  const std::string text(Interleaver::kMostWaiting / 2, 'x');
  line(text);
  EXPECT_EQ(out_, "half");
  line(text);
  EXPECT_EQ(out_, "half\n" + text + "\n" + text + "\n");
}

TEST_F(Interleaved, NothingWaitsForBytesThatDoNotCome) {
  place_.bytes(1, "half");
  line("a");
  place_.end_of_bytes();
  line("b");
  EXPECT_EQ(out_, "half\na\nb\n");
  // After a restart.
  place_.bytes(1, "half");
  line("c");
  EXPECT_EQ(out_, "half\na\nb\nhalf");
  place_.release();
  EXPECT_EQ(out_, "half\na\nb\nhalf\nc\n");
  // And nothing is added where nothing follows.
  place_.bytes(1, "half");
  place_.end_of_bytes();
  EXPECT_EQ(out_, "half\na\nb\nhalf\nc\nhalf");
}

TEST_F(Interleaved, EachGoesToItsDescriptorInTheOrderOfTheirArrival) {
  place_.bytes(1, "half");
  place_.line(2, "a", kNever);
  place_.line(1, "b", kNever);
  place_.line(2, "c", kNever);
  place_.bytes(2, "error\n");
  place_.settle(now_);
  EXPECT_EQ(out_, "half2:error\na\n1:b\n2:c\n");
}

TEST_F(Interleaved, AProgressBarIsOverwrittenAndLeftOutInTheMiddleOfALine) {
  place_.progress(1, "10%");
  place_.progress(1, "20%");
  EXPECT_EQ(out_, "10%\r\x1b[K20%\r");
  place_.bytes(1, "half");
  EXPECT_EQ(out_, "10%\r\x1b[K20%\r\x1b[Khalf");
  place_.progress(1, "30%");
  EXPECT_EQ(out_, "10%\r\x1b[K20%\r\x1b[Khalf");
  place_.bytes(1, "\n");
  place_.progress(1, "40%");
  line("a");
  EXPECT_EQ(out_, "10%\r\x1b[K20%\r\x1b[Khalf\n40%\r\x1b[Ka\n");
}

TEST(LineSplitter, CutsALineThatNeverEnds) {
  const Lines lines = split({std::string(LineSplitter::kLongest + 5, 'x')});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].size(), LineSplitter::kLongest);
  EXPECT_EQ(lines[1].size(), 5u);
}

} // namespace
} // namespace accel::launcher
