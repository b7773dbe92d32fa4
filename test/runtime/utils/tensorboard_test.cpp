#include "event_decoder.h"
#include "support.h"

#include <accel/tracking/tensorboard.h>

#include <cmath>
#include <ctime>

namespace {

using test::Message;

struct Entry {
  std::string tag;
  int64_t step;
  double wall_time;
  Message value;
};

std::vector<Entry> entries(const std::string& path) {
  std::vector<Entry> result;
  const auto records = test::records(test::read_file(path));
  for (size_t i = 1; i < records.size(); ++i) {
    const Message event(records[i]);
    const Message summary = event.message(5);
    for (const auto& value : summary.fields.at(1)) {
      const Message decoded(value);
      result.push_back(
          {decoded.bytes(1),
           event.has(2) ? event.number<int64_t>(2) : 0,
           event.number<double>(1),
           decoded});
    }
  }
  return result;
}

} // namespace

TEST(TensorBoard, TheTestsOwnChecksumIsCastagnolis) {
  // RFC 3720, B.4.
  EXPECT_EQ(test::castagnoli(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(test::castagnoli(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(test::castagnoli("123456789"), 0xE3069283u);
}

TEST(TensorBoard, EventFile) {
  const test::TemporaryDirectory directory;
  accel::TensorBoardTracker tracker({"project", directory.path().string(), {}});
  EXPECT_EQ(tracker.name(), "tensorboard");
  const std::string path = tracker.path();
  EXPECT_EQ(
      path.rfind(
          (directory.path() / "project/events.out.tfevents.").string(), 0),
      0u);
  const double before = static_cast<double>(std::time(nullptr)) - 1;

  tracker.log({{"train/loss", 0.1}, {"epoch", 3}, {"done", true}}, 7);
  tracker.log({{"note", "h\xC3\xA4llo"}}, 300);
  tracker.log({{"lr", std::nan("")}});
  tracker.log({}, 9);
  tracker.log({{"negative step", 1.5f}}, -2);

  // Everything is there before the tracker is finished.
  const Message first(test::records(test::read_file(path)).at(0));
  EXPECT_EQ(first.bytes(3), "brain.Event:2");
  const auto all = entries(path);
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[0].tag, "train/loss");
  EXPECT_EQ(all[0].value.number<float>(2), 0.1f);
  EXPECT_EQ(all[1].tag, "epoch");
  EXPECT_EQ(all[1].value.number<float>(2), 3.0f);
  EXPECT_EQ(all[2].value.number<float>(2), 1.0f);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(all[i].step, 7);
    EXPECT_GT(all[i].wall_time, before);
    EXPECT_LT(all[i].wall_time, before + 300);
  }
  EXPECT_EQ(all[3].tag, "note/text_summary");
  EXPECT_EQ(all[3].step, 300);
  const Message tensor = all[3].value.message(8);
  EXPECT_EQ(tensor.number<uint64_t>(1), 7u);                       // DT_STRING
  EXPECT_EQ(tensor.message(2).message(2).number<uint64_t>(1), 1u); // [1]
  EXPECT_EQ(tensor.bytes(8), "h\xC3\xA4llo");
  EXPECT_EQ(all[3].value.message(9).message(1).bytes(1), "text");
  EXPECT_TRUE(std::isnan(all[4].value.number<float>(2)));
  EXPECT_EQ(all[4].step, 0);
  EXPECT_EQ(all[5].step, -2);

  tracker.finish();
  tracker.finish();
  EXPECT_THROWS_WITH(tracker.log({{"a", 1}}, 1), "is finished");
}

TEST(TensorBoard, Configuration) {
  const test::TemporaryDirectory directory;
  accel::TensorBoardTracker tracker({"p", directory.path().string(), {}});
  tracker.store_init_configuration(
      {{"lr", 1e-5},
       {"big", 1e30},
       {"epochs", 3},
       {"half", 0.5},
       {"whole", 2.0},
       {"shuffle", false},
       {"name", "a|b \"c\""},
       {"limit", INFINITY}});
  const auto all = entries(tracker.path());
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].tag, "hparams/text_summary");
  const std::string table = all[0].value.message(8).bytes(8);
  EXPECT_NE(table.find("| lr | 1e-05 |\n"), std::string::npos) << table;
  EXPECT_NE(table.find("| name | a\\|b \"c\" |\n"), std::string::npos) << table;

  std::string yaml;
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(directory.path() / "p")) {
    if (file.path().filename() == "hparams.yml") {
      yaml += test::read_file(file.path());
    }
  }
  // With the point that YAML 1.1 wants in a number.
  EXPECT_EQ(
      yaml,
      "\"lr\": 1.0e-05\n\"big\": 1.0e+30\n\"epochs\": 3\n\"half\": 0.5\n"
      "\"whole\": 2.0\n\"shuffle\": false\n\"name\": \"a|b \\\"c\\\"\"\n"
      "\"limit\": .inf\n");
}

TEST(TensorBoard, TwoTrackersInOneFolderHaveTheirOwnFiles) {
  const test::TemporaryDirectory directory;
  const accel::TrackerArguments arguments{"p", directory.path().string(), {}};
  accel::TensorBoardTracker one(arguments);
  accel::TensorBoardTracker two(arguments);
  EXPECT_NE(one.path(), two.path());
  EXPECT_THROWS_WITH(
      accel::TensorBoardTracker(
          {"p", directory.path().string(), {{"flush", 3}}}),
      "'tensorboard' has no option 'flush'; it has: none");
}
