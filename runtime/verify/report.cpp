#include "report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "report_plot.h"

namespace accel::verify {

extern const char* const kReportPage;

namespace {

/// Rows of a text or of a table that a page shows at most.
constexpr size_t kMostRows = 400;

std::string escape(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '&':
        result += "&amp;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

const char* class_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kEqual:
      return "equal";
    case Outcome::kDifferent:
      return "different";
    case Outcome::kNotCompared:
      return "unknown";
  }
  return "unknown";
}

const char* word_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kEqual:
      return "equal";
    case Outcome::kDifferent:
      return "different";
    case Outcome::kNotCompared:
      return "not compared";
  }
  return "not compared";
}

std::string command_of(const VerifyOptions& options) {
  std::string text = "accel verify --original " + options.original +
      " --migrated " + options.migrated +
      (options.processes.empty() ? "" : " --num-processes ");
  for (size_t i = 0; i < options.processes.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(options.processes[i]);
  }
  for (const auto& launched : options.launched) {
    text += " --launch '" + launched.text + "'";
  }
  text += options.to_double ? " --double" : "";
  if (options.max_steps != 0) {
    text += " --max-steps " + std::to_string(options.max_steps);
  }
  text += options.arguments.empty() ? "" : " --";
  for (const auto& argument : options.arguments) {
    text += " " + argument;
  }
  return text;
}

/// A differing line is shown with its surroundings; equal ones are left out
/// where there are too many.
void write_text(std::ostream& out, const TextComparison& text) {
  out << "<details" << (text.different ? " open" : "")
      << "><summary>What was printed: "
      << (text.different ? escape(text.first) : "equal") << ", "
      << text.numbers << " numbers in " << text.lines.size()
      << " lines</summary>\n<table class=\"text\"><thead><tr><th></th>"
         "<th>original</th><th>migrated</th></tr></thead><tbody>\n";
  size_t shown = 0;
  size_t left_out = 0;
  for (size_t i = 0; i < text.lines.size(); ++i) {
    const auto& line = text.lines[i];
    if (shown >= kMostRows && !(line.different && shown < 2 * kMostRows)) {
      ++left_out;
      continue;
    }
    ++shown;
    out << "<tr" << (line.different ? " class=\"bad\"" : "")
        << (line.ignored ? " class=\"ignored\"" : "") << "><td>" << i + 1
        << "</td><td data-side=\"original\">" << escape(line.original)
        << "</td><td data-side=\"migrated\">" << escape(line.migrated)
        << "</td></tr>\n";
  }
  out << "</tbody></table>\n";
  if (left_out > 0) {
    out << "<p class=\"quiet\">" << left_out << " more lines.</p>\n";
  }
  out << "</details>\n";
}

/// Three digits, and no exponent for what is neither large nor small.
std::string size_text(double size) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", size);
  return text;
}

void write_tensors(std::ostream& out, const TraceComparison& trace) {
  auto rows = trace.tensors;
  std::stable_sort(rows.begin(), rows.end(), [](auto& a, auto& b) {
    return a.different > b.different;
  });
  const auto number = [](const std::optional<double>& value) {
    return value ? short_number(*value) : std::string("–");
  };
  out << "<h3>Parameters and buffers</h3>\n<div class=\"scroll\"><table>"
         "<thead><tr><th>tensor</th><th class=\"number\">size</th>"
         "<th class=\"number\">at the start</th>"
         "<th class=\"number\">gradients</th>"
         "<th class=\"number\">at the end</th><th>first step that differs</th>"
         "</tr></thead><tbody>\n";
  for (size_t i = 0; i < std::min(rows.size(), kMostRows); ++i) {
    const auto& row = rows[i];
    out << "<tr" << (row.different ? " class=\"bad\"" : "")
        << (row.undetermined ? " class=\"ignored\"" : "") << "><td><code>"
        << escape(row.name) << "</code>"
        << (row.kind == TensorKind::kBuffer ? " buffer" : "")
        << "</td><td class=\"number\">" << size_text(row.size)
        << "</td><td class=\"number\">" << short_number(row.initial)
        << "</td><td class=\"number\">" << number(row.gradient)
        << "</td><td class=\"number\">" << number(row.final) << "</td><td>"
        << (!row.follows.empty() ? "random: follows " + escape(row.follows)
                : row.undetermined ? "random: no gradient but rounding"
                : !row.first_step ? ""
                : *row.first_step < trace.steps.size()
                ? std::to_string(*row.first_step)
                : "the end")
        << "</td></tr>\n";
  }
  out << "</tbody></table></div>\n"
         "<p class=\"quiet\">Greatest relative differences; the size is the "
         "norm at the end of the original.</p>\n";
}

void write_files(std::ostream& out, const FilesComparison& files) {
  if (files.files.empty()) {
    return;
  }
  out << "<h3>Files that were written</h3>\n<div class=\"scroll\"><table>"
         "<thead><tr><th>file</th><th>compared as</th><th>result</th></tr></thead>"
         "<tbody>\n";
  for (size_t i = 0; i < std::min(files.files.size(), kMostRows); ++i) {
    const auto& file = files.files[i];
    out << "<tr" << (file.different ? " class=\"bad\"" : "")
        << (file.ignored ? " class=\"ignored\"" : "") << "><td><code>"
        << escape(file.name) << "</code></td><td>" << file.kind << "</td><td>"
        << escape(file.finding) << "</td></tr>\n";
  }
  out << "</tbody></table></div>\n";
}

void write_plots(std::ostream& out, const TraceComparison& trace) {
  Curve original{"original", {}};
  Curve migrated{"migrated", {}};
  Curve loss{"original", {}};
  Curve gradient{"gradient", {}};
  Curve allowed{"allowed", {}};
  for (const auto& step : trace.steps) {
    original.values.push_back(step.loss_original);
    migrated.values.push_back(step.loss_migrated);
    loss.values.push_back(step.loss);
    gradient.values.push_back(step.gradient);
    allowed.values.push_back(step.allowed);
  }
  std::optional<size_t> first;
  if (trace.first && trace.first->step < trace.steps.size()) {
    first = trace.first->step;
  }
  out << "<div class=\"plots\">\n<figure>"
      << plot({original, migrated}, false, first)
      << "<figcaption><b>Loss at each backward call</b>"
         "<span class=\"key original\">original</span>"
         "<span class=\"key migrated\">migrated</span></figcaption></figure>\n"
         "<figure>"
      << plot({gradient, loss, allowed}, true, first)
      << "<figcaption><b>Relative difference, log scale</b>"
         "<span class=\"key original\">loss</span>"
         "<span class=\"key gradient\">worst gradient</span>"
         "<span class=\"key allowed\">allowed</span></figcaption></figure>\n"
         "</div>\n";
}

void write_verdict(std::ostream& out, const Verdict& verdict) {
  out << "<h2>" << escape(verdict.way) << ": <span class=\""
      << class_of(verdict.outcome) << "\">" << word_of(verdict.outcome)
      << "</span></h2>\n<div class=\"card\"><p>" << escape(summary(verdict))
      << "</p>\n";
  if (!verdict.cause.text.empty()) {
    out << "<p><span class=\"word\">Likely cause:</span> "
        << escape(verdict.cause.text) << ".</p>\n";
  }
  if (!verdict.cause.anchor.empty()) {
    out << "<p class=\"quiet\">More in docs/verify.md#" << verdict.cause.anchor
        << "</p>\n";
  }
  if (!verdict.notes.empty()) {
    out << "<ul>\n";
    for (const auto& note : verdict.notes) {
      out << "<li>" << escape(note) << "</li>\n";
    }
    out << "</ul>\n";
  }
  out << "</div>\n";
  if (verdict.trace) {
    write_plots(out, *verdict.trace);
    write_tensors(out, *verdict.trace);
    write_files(out, verdict.files);
    out << "<h3>Text</h3>\n";
    write_text(out, verdict.text);
  }
}

void replace(std::string& text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

} // namespace

std::string make_report(const Result& result) {
  std::ostringstream body;
  if (!result.obstacle.empty()) {
    body << "<div class=\"card\"><p>" << escape(result.obstacle)
         << "</p></div>\n";
  } else {
    body << "<table class=\"overview\"><caption>The migrated program with"
            "</caption><tbody>\n";
    for (const auto& verdict : result.verdicts) {
      body << "<tr><td>" << escape(verdict.way) << "</td><td class=\"word "
           << class_of(verdict.outcome) << "\">" << word_of(verdict.outcome)
           << "</td><td>" << escape(summary(verdict)) << "</td></tr>\n";
    }
    body << "</tbody></table>\n";
    if (!result.note.empty()) {
      body << "<p>" << escape(result.note) << "</p>\n";
    }
    for (const auto& verdict : result.verdicts) {
      if (verdict.trace) {
        body << "<p class=\"quiet\">Computed in "
             << to_string(verdict.trace->dtype)
             << ". Allowed relative difference: "
             << verdict.trace->tolerance.describe()
             << ". Steps are backward calls, counted from 0.</p>\n";
        break;
      }
    }
    for (const auto& verdict : result.verdicts) {
      write_verdict(body, verdict);
    }
  }
  std::string page = kReportPage;
  replace(page, "{{verdict}}", word_of(result.outcome));
  replace(page, "{{verdict_class}}", class_of(result.outcome));
  replace(page, "{{command}}", escape(command_of(result.options)));
  replace(page, "{{body}}", body.str());
  return page;
}

} // namespace accel::verify
