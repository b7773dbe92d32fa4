#include <accel/tracking/csv.h>

#include "append_file.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

namespace accel {
namespace {

using Row = std::vector<std::string>;

/// RFC 4180: quoted where it must be, quotes doubled.
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') {
      quoted += '"';
    }
    quoted += c;
  }
  return quoted + "\"";
}

std::string csv_line(const Row& row) {
  std::string text;
  for (size_t i = 0; i < row.size(); ++i) {
    text += (i == 0 ? "" : ",") + field(row[i]);
  }
  return text + "\n";
}

/// The rows of a file that `line` wrote.
std::vector<Row> parse(const std::string& text) {
  std::vector<Row> rows;
  Row row;
  std::string value;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c != '"') {
        value += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        value += c;
        ++i;
      } else {
        quoted = false;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',' || c == '\n') {
      row.push_back(std::move(value));
      value.clear();
      if (c == '\n') {
        rows.push_back(std::move(row));
        row.clear();
      }
    } else if (c != '\r') {
      value += c;
    }
  }
  if (!row.empty() || !value.empty()) {
    row.push_back(std::move(value));
    rows.push_back(std::move(row));
  }
  return rows;
}

} // namespace

struct CsvTracker::Table {
  explicit Table(std::string file_path) : path(std::move(file_path)) {
    const std::string before = detail::read_if_exists(path);
    auto rows = parse(before);
    if (rows.empty()) {
      columns = {"step", "time"};
      detail::replace_file(path, csv_line(columns));
    } else {
      columns = rows[0];
      TORCH_CHECK(
          columns.size() >= 2 && columns[0] == "step" && columns[1] == "time",
          path,
          " is there already and is not a table of this tracker. Move it "
          "away or give the option 'file'.");
      // A crash may have left the last row short.
      if (before.back() != '\n') {
        rewrite(rows, columns);
      }
    }
    file = std::make_unique<detail::AppendFile>(path);
  }

  void append(const Row& row) {
    file->append(csv_line(row));
  }

  /// Makes the file have the columns `wanted`, which begin with the old ones.
  void widen(const Row& wanted) {
    rewrite(parse(detail::read_if_exists(path)), wanted);
    file = std::make_unique<detail::AppendFile>(path);
    columns = wanted;
  }

  /// Writes all rows anew, each with a field for every column.
  void rewrite(std::vector<Row> rows, const Row& header) {
    std::string text = csv_line(header);
    for (size_t i = 1; i < rows.size(); ++i) {
      rows[i].resize(header.size());
      text += csv_line(rows[i]);
    }
    detail::replace_file(path, text);
  }

  std::string path;
  Row columns;
  bool open = true;
  std::unique_ptr<detail::AppendFile> file;
};

CsvTracker::CsvTracker(const TrackerArguments& arguments) {
  arguments.check_options("csv", {"file"});
  table_ = std::make_unique<Table>(
      arguments.logging_dir + "/" + arguments.project_name + "/" +
      arguments.option("file", "metrics.csv"));
}

CsvTracker::~CsvTracker() = default;

void CsvTracker::store_init_configuration(const LogValues& values) {
  std::string text = csv_line({"name", "value"});
  for (const auto& [name, value] : values) {
    text += csv_line({name, value.str()});
  }
  detail::replace_file(
      std::filesystem::path(table_->path)
          .replace_extension(".config.csv")
          .string(),
      text);
}

void CsvTracker::log(const LogValues& values, std::optional<int64_t> step) {
  TORCH_CHECK(table_->open, "The CSV tracker is finished and cannot log.");
  for (const auto& value : values) {
    TORCH_CHECK(
        value.first != "step" && value.first != "time",
        "The CSV tracker has a column '",
        value.first,
        "' of its own; rename yours.");
  }
  char time[32];
  std::snprintf(time, sizeof time, "%.6f", detail::now());
  Row columns = table_->columns;
  Row row{step ? std::to_string(*step) : "", time};
  row.resize(columns.size());
  for (const auto& [name, value] : values) {
    const auto found = std::find(columns.begin(), columns.end(), name);
    if (found == columns.end()) {
      columns.push_back(name);
      row.push_back(value.str());
    } else {
      row[found - columns.begin()] = value.str();
    }
  }
  if (columns.size() > table_->columns.size()) {
    table_->widen(columns);
  }
  table_->append(row);
}

void CsvTracker::finish() {
  if (table_->open) {
    table_->file->sync();
    table_->open = false;
  }
}

} // namespace accel
