#include <accel/utils/progress.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>

#include <unistd.h>

namespace accel {
namespace {

constexpr int kBarCells = 10;

std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

/// mm:ss, or h:mm:ss.
std::string interval(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  char text[64];
  if (whole >= 3600) {
    std::snprintf(
        text,
        sizeof text,
        "%lld:%02d:%02d",
        static_cast<long long>(whole / 3600),
        static_cast<int>(whole / 60 % 60),
        static_cast<int>(whole % 60));
  } else {
    std::snprintf(
        text,
        sizeof text,
        "%02d:%02d",
        static_cast<int>(whole / 60),
        static_cast<int>(whole % 60));
  }
  return text;
}

/// Ten cells, the last one in eighths.
std::string bar(double fraction) {
  static const char* const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int filled = static_cast<int>(fraction * kBarCells * 8);
  std::string text;
  for (int cell = 0; cell < kBarCells; ++cell) {
    const int left = filled - cell * 8;
    text += left >= 8 ? "█" : eighths[std::max(left, 0)];
  }
  return text;
}

std::string rate_text(double rate, const std::string& unit) {
  if (rate <= 0) {
    return "?" + unit + "/s";
  }
  return rate < 1 ? format("%5.2f", 1 / rate) + "s/" + unit
                  : format("%5.2f", rate) + unit + "/s";
}

} // namespace

std::string format_progress(
    int64_t n,
    std::optional<int64_t> total,
    double elapsed_seconds,
    const std::string& desc,
    const std::string& unit,
    const std::string& postfix) {
  const double rate =
      elapsed_seconds > 0 ? static_cast<double>(n) / elapsed_seconds : 0;
  std::string text = desc.empty() ? "" : desc + ": ";
  const std::string tail =
      rate_text(rate, unit) + (postfix.empty() ? "" : ", " + postfix) + "]";
  // More than the total is no error, but no percentage either.
  if (!total || *total <= 0 || n > *total) {
    return text + std::to_string(n) + unit + " [" + interval(elapsed_seconds) +
           ", " + tail;
  }
  const double fraction = static_cast<double>(n) / static_cast<double>(*total);
  return text + format("%3.0f", 100 * fraction) + "%|" + bar(fraction) + "| " +
         std::to_string(n) + "/" + std::to_string(*total) + " [" +
         interval(elapsed_seconds) + "<" +
         (rate > 0 ? interval(static_cast<double>(*total - n) / rate) : "?") +
         ", " + tail;
}

ProgressBar::ProgressBar(
    std::optional<int64_t> total, ProgressBarOptions options)
    : total_(total),
      options_(std::move(options)),
      stream_(options_.stream() ? options_.stream() : &std::cerr),
      terminal_(options_.terminal().value_or(
          !options_.stream() && ::isatty(STDERR_FILENO) == 1)),
      min_interval_(options_.min_interval().value_or(terminal_ ? 0.1 : 10.0)),
      start_(std::chrono::steady_clock::now()),
      printed_(start_) {}

ProgressBar::~ProgressBar() {
  close();
}

void ProgressBar::update(int64_t n) {
  n_ += n;
  if (closed_ || !options_.main_process()) {
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> passed = now - printed_;
  if (!has_printed_ || passed.count() >= min_interval_) {
    printed_ = now;
    print(/*last=*/false);
  }
}

void ProgressBar::set_postfix(std::string text) {
  postfix_ = std::move(text);
}

void ProgressBar::close() {
  if (closed_) {
    return;
  }
  closed_ = true;
  if (options_.main_process()) {
    print(/*last=*/true);
  }
}

void ProgressBar::print(bool last) {
  const std::chrono::duration<double> elapsed =
      std::chrono::steady_clock::now() - start_;
  std::string text = format_progress(
      n_, total_, elapsed.count(), options_.desc(), options_.unit(), postfix_);
  if (terminal_) {
    // Blanks cover what a longer line has left.
    const size_t width = text.size();
    text.resize(std::max(width, printed_width_), ' ');
    printed_width_ = width;
    *stream_ << '\r' << text << (last ? "\n" : "");
  } else {
    *stream_ << text << '\n';
  }
  stream_->flush();
  has_printed_ = true;
}

} // namespace accel
