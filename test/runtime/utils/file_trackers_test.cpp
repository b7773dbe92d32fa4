// The JSON lines and CSV trackers.

#include "support.h"

#include <accel/tracking/csv.h>
#include <accel/tracking/json_lines.h>

#include <c10/core/Scalar.h>

#include <cmath>
#include <limits>

namespace {

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    result.push_back(line);
  }
  return result;
}

/// A CSV file's lines without the `time` column, which must be a number.
std::vector<std::string> without_time(const std::string& text) {
  auto result = lines(text);
  for (size_t i = 1; i < result.size(); ++i) {
    const size_t begin = result[i].find(',') + 1;
    const size_t end = std::min(result[i].find(',', begin), result[i].size());
    EXPECT_GT(std::stod(result[i].substr(begin, end - begin)), 1.6e9);
    result[i].replace(begin, end - begin, "T");
  }
  return result;
}

using Lines = std::vector<std::string>;

} // namespace

TEST(LogValue, KeepsTypeAndValue) {
  using accel::LogValue;
  EXPECT_EQ(LogValue(0.1).str(), "0.1");
  EXPECT_EQ(LogValue(1.0 / 3).str(), "0.3333333333333333");
  EXPECT_EQ(LogValue(-7).str(), "-7");
  EXPECT_EQ(LogValue(true).str(), "true");
  EXPECT_EQ(LogValue("x").str(), "x");
  EXPECT_EQ(LogValue(size_t{5}).number(), 5.0);
  EXPECT_EQ(LogValue(c10::Scalar(2.5)).number(), 2.5);
  EXPECT_EQ(LogValue(c10::Scalar(3)).str(), "3");
  EXPECT_EQ(LogValue(c10::Scalar(true)).str(), "true");
  EXPECT_EQ(std::stod(LogValue(0.1 + 0.2).str()), 0.1 + 0.2);
  EXPECT_THROWS_WITH(
      LogValue{std::numeric_limits<uint64_t>::max()}, "does not fit");
  EXPECT_THROWS_WITH(
      LogValue(c10::Scalar(c10::complex<double>(1, 2))), "Complex");
  EXPECT_THROWS_WITH(LogValue("x").number(), "'x' is not a number");
}

TEST(JsonLines, WritesOneObjectPerCall) {
  const test::TemporaryDirectory directory;
  const accel::TrackerArguments arguments{
      "project", directory.path().string(), {}};
  const auto path = directory.path() / "project" / "metrics.jsonl";
  {
    accel::JsonLinesTracker tracker(arguments);
    tracker.store_init_configuration({{"lr", 1e-3}, {"name", "a\nb"}});
    tracker.log({{"z", 0.1}, {"a", 2}, {"flag", true}, {"text", "\"q\""}}, 5);
    tracker.log({{"nan", std::nan("")}, {"inf", -INFINITY}});
    EXPECT_EQ(lines(test::read_file(path)).size(), 3u);
    tracker.finish();
    EXPECT_THROWS_WITH(tracker.log({{"a", 1}}), "is finished");
    EXPECT_THROWS_WITH(
        accel::JsonLinesTracker(arguments).log({{"_step", 1}}), "'_step'");
  }
  const auto all = lines(test::read_file(path));
  ASSERT_EQ(all.size(), 3u);
  const auto config = nlohmann::json::parse(all[0]);
  EXPECT_EQ(
      config, (nlohmann::json{{"_config", {{"lr", 1e-3}, {"name", "a\nb"}}}}));
  auto first = nlohmann::ordered_json::parse(all[1]);
  EXPECT_GT(first.at("_time").get<double>(), 1.6e9);
  EXPECT_TRUE(first.at("a").is_number_integer());
  first.erase("_time");
  // In the order in which the values were given.
  EXPECT_EQ(
      first.dump(), R"({"_step":5,"z":0.1,"a":2,"flag":true,"text":"\"q\""})");
  const auto second = nlohmann::json::parse(all[2]);
  EXPECT_EQ(second.at("nan"), "NaN");
  EXPECT_EQ(second.at("inf"), "-Infinity");
  EXPECT_FALSE(second.contains("_step"));
}

TEST(JsonLines, AppendsAndSurvivesATornLine) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "p" / "run.jsonl";
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << "{\"_step\":1}\n{\"_st";
  accel::JsonLinesTracker tracker(
      {"p", directory.path().string(), {{"file", "run.jsonl"}}});
  tracker.log({{"x", 1}}, 2);
  const auto all = lines(test::read_file(path));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[1], "{\"_st");
  EXPECT_EQ(nlohmann::json::parse(all[2]).at("_step"), 2);
}

TEST(Csv, ColumnsMayAppearLater) {
  const test::TemporaryDirectory directory;
  const accel::TrackerArguments arguments{
      "project", directory.path().string(), {}};
  const auto path = directory.path() / "project" / "metrics.csv";
  accel::CsvTracker tracker(arguments);
  EXPECT_EQ(test::read_file(path), "step,time\n");
  tracker.log({{"loss", 0.5}, {"epoch", 0}}, 1);
  tracker.log({{"epoch", 1}}, 2);
  tracker.log({{"a,b", "say \"hi\"\nthere"}, {"loss", std::nan("")}});
  tracker.log({{"loss", 0.25}}, 4);
  const Lines expected{"step,time,loss,epoch,\"a,b\"", "1,T,0.5,0,", "2,T,,1,"};
  auto got = lines(test::read_file(path));
  ASSERT_EQ(got.size(), 6u);
  const auto head = without_time(got[0] + "\n" + got[1] + "\n" + got[2] + "\n");
  EXPECT_EQ(head, expected);
  EXPECT_EQ(got[3].substr(got[3].find(",nan")), ",nan,,\"say \"\"hi\"\"");
  EXPECT_EQ(got[4], "there\"");
  EXPECT_EQ(got[5].substr(got[5].find(",0.25")), ",0.25,,");
  for (const auto& file :
       std::filesystem::directory_iterator(path.parent_path())) {
    EXPECT_EQ(file.path().filename(), "metrics.csv");
  }

  tracker.finish();
  EXPECT_THROWS_WITH(tracker.log({{"a", 1}}), "is finished");
  EXPECT_THROWS_WITH(
      accel::CsvTracker(arguments).log({{"time", 1}}), "column 'time'");

  // Another run: the quoted field and its line break come through.
  accel::CsvTracker resumed(arguments);
  resumed.log({{"new", 7}, {"epoch", 2}}, 5);
  got = lines(test::read_file(path));
  ASSERT_EQ(got.size(), 7u);
  EXPECT_EQ(got[0], "step,time,loss,epoch,\"a,b\",new");
  EXPECT_EQ(got[4], "there\",");
  EXPECT_EQ(got[6].substr(got[6].find(",,")), ",,2,,7");
}

TEST(Csv, ConfigurationAndForeignFiles) {
  const test::TemporaryDirectory directory;
  accel::CsvTracker tracker({"p", directory.path().string(), {}});
  tracker.store_init_configuration({{"lr", 0.1}, {"name", "x,y"}});
  EXPECT_EQ(
      test::read_file(directory.path() / "p" / "metrics.config.csv"),
      "name,value\nlr,0.1\nname,\"x,y\"\n");

  const auto foreign = directory.path() / "p" / "mine.csv";
  std::ofstream(foreign) << "a,b\n1,2\n";
  EXPECT_THROWS_WITH(
      accel::CsvTracker(
          {"p", directory.path().string(), {{"file", "mine.csv"}}}),
      "is not a table of this tracker");
  EXPECT_EQ(test::read_file(foreign), "a,b\n1,2\n");
}

TEST(Csv, RowThatACrashCutIsFilledUp) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "p" / "metrics.csv";
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << "step,time,a,b\n1,1700000000,5,6\n2,1700000001,7";
  accel::CsvTracker tracker({"p", directory.path().string(), {}});
  tracker.log({{"b", 8}}, 3);
  EXPECT_EQ(
      without_time(test::read_file(path)),
      (Lines{"step,time,a,b", "1,T,5,6", "2,T,7,", "3,T,,8"}));
}

TEST(FileTrackers, SayWhyTheyCannotWrite) {
  const test::TemporaryDirectory directory;
  const auto file = directory.path() / "file";
  std::ofstream(file) << "x";
  EXPECT_THROWS_WITH(
      accel::JsonLinesTracker({"p", file.string(), {}}),
      "Could not create the folder " + (file / "p").string());
}
