#pragma once

#include <accel/export.h>

#include <torch/arg.h>

#include <chrono>
#include <cstdint>
#include <iterator>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

namespace accel {

/// Options of `ProgressBar`.
struct ProgressBarOptions {
  /// A stream that outlives the bar.
  using Stream = std::ostream*;

  /// Text in front of the bar.
  TORCH_ARG(std::string, desc);
  /// What is counted, in the rate ("it/s").
  TORCH_ARG(std::string, unit) = "it";
  /// Other processes than the (local) main one print nothing.
  TORCH_ARG(bool, main_process) = true;
  /// Where it is printed; null: standard error.
  TORCH_ARG(Stream, stream) = nullptr;
  /// Whether the stream is a terminal, on which one line is redrawn; elsewhere
  /// it prints whole lines, and few of them. Empty: whether standard error is.
  TORCH_ARG(std::optional<bool>, terminal);
  /// Least seconds between two prints. Empty: 0.1 on a terminal, 10 elsewhere.
  TORCH_ARG(std::optional<double>, min_interval);
};

/// What a bar shows, in tqdm's form:
/// `train:  50%|█████     | 5/10 [00:05<00:05,  1.00it/s, loss=0.3]`.
/// Without a total: `5it [00:05,  1.00it/s]`.
ACCEL_API std::string format_progress(
    int64_t n,
    std::optional<int64_t> total,
    double elapsed_seconds,
    const std::string& desc = "",
    const std::string& unit = "it",
    const std::string& postfix = "");

/// Shows how far a loop is. Prints first with the first update and last when it
/// is closed or destroyed.
class ACCEL_API ProgressBar {
 public:
  explicit ProgressBar(
      std::optional<int64_t> total = std::nullopt,
      ProgressBarOptions options = {});
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `n` more are done.
  void update(int64_t n = 1);
  /// Text after the rate, shown with the next print.
  void set_postfix(std::string text);
  /// Prints the last state and ends the line. Later calls do nothing.
  void close();

  /// How many are done.
  int64_t n() const {
    return n_;
  }

 private:
  void print(bool last);

  std::optional<int64_t> total_;
  ProgressBarOptions options_;
  std::ostream* stream_;
  bool terminal_;
  double min_interval_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point printed_;
  size_t printed_width_ = 0;
  int64_t n_ = 0;
  std::string postfix_;
  bool has_printed_ = false;
  bool closed_ = false;
};

/// A range with a progress bar around it.
template <typename Range>
class ProgressRange {
 public:
  ProgressRange(
      Range&& range, std::optional<int64_t> total, ProgressBarOptions options)
      : range_(std::forward<Range>(range)), bar_(total, std::move(options)) {}

  /// An iterator of the range that counts.
  template <typename Inner>
  class Iterator {
   public:
    Iterator(Inner inner, ProgressBar* bar)
        : inner_(std::move(inner)), bar_(bar) {}
    decltype(auto) operator*() {
      return *inner_;
    }
    Iterator& operator++() {
      ++inner_;
      bar_->update();
      return *this;
    }
    template <typename Other>
    bool operator!=(const Other& other) const {
      return inner_ != other.inner();
    }
    /// The range's own iterator.
    const Inner& inner() const {
      return inner_;
    }

   private:
    Inner inner_;
    ProgressBar* bar_;
  };

  /// The first element; moving on counts it.
  auto begin() {
    using std::begin;
    return Iterator<decltype(begin(range_))>(begin(range_), &bar_);
  }
  /// Behind the last element.
  auto end() {
    using std::end;
    return Iterator<decltype(end(range_))>(end(range_), &bar_);
  }
  /// The bar, for `set_postfix`.
  ProgressBar& bar() {
    return bar_;
  }

 private:
  Range range_;
  ProgressBar bar_;
};

/// \code
/// for (auto& batch : accel::tqdm(*loader, batches_per_epoch)) { … }
/// \endcode
template <typename Range>
ProgressRange<Range> tqdm(
    Range&& range,
    std::optional<int64_t> total = std::nullopt,
    ProgressBarOptions options = {}) {
  return {std::forward<Range>(range), total, std::move(options)};
}

} // namespace accel
