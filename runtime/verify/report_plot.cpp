#include "report_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <sstream>

namespace accel::verify {
namespace {

constexpr double kWidth = 560;
constexpr double kHeight = 260;
constexpr double kLeft = 62;
constexpr double kRight = 12;
constexpr double kTop = 12;
constexpr double kBottom = 28;
/// More points than this are drawn as the extremes of groups.
constexpr size_t kMostPoints = 600;

std::string label(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

/// Values as heights: 0 at the bottom, 1 at the top.
struct Scale {
  bool logarithmic;
  double low;
  double high;

  double at(double value) const {
    double x = value;
    if (logarithmic) {
      x = value > 0 ? std::log10(value) : low;
    }
    return std::clamp((x - low) / (high - low), 0.0, 1.0);
  }
};

Scale make_scale(const std::vector<Curve>& curves, bool logarithmic) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const auto& curve : curves) {
    for (const double value : curve.values) {
      if (!std::isfinite(value) || (logarithmic && value <= 0)) {
        continue;
      }
      const double x = logarithmic ? std::log10(value) : value;
      low = std::min(low, x);
      high = std::max(high, x);
    }
  }
  if (!(low <= high)) {
    low = 0;
    high = 1;
  }
  if (logarithmic) {
    low = std::floor(low) - 1;
    high = std::ceil(high);
  }
  if (high - low < 1e-12 * std::max(1.0, std::abs(high))) {
    high = low + 1;
  }
  return {logarithmic, low, high};
}

class Plot {
 public:
  Plot(size_t steps, Scale scale) : steps_(steps), scale_(scale) {}

  void axes() {
    out_ << "<rect class=\"axis\" fill=\"none\" x=\"" << kLeft << "\" y=\""
         << kTop << "\" width=\"" << kWidth - kLeft - kRight << "\" height=\""
         << kHeight - kTop - kBottom << "\"/>";
    if (scale_.logarithmic) {
      const double every =
          std::max(1.0, std::ceil((scale_.high - scale_.low) / 6));
      for (double power = scale_.low; power <= scale_.high; power += every) {
        // The bottom stands for zero as well.
        mark(
            std::pow(10, power),
            power == scale_.low ? "0" : "1e" + label("%.0f", power));
      }
    } else {
      for (int i = 0; i <= 4; ++i) {
        const double value =
            scale_.low + (scale_.high - scale_.low) * i / 4;
        mark(value, label("%.4g", value));
      }
    }
    out_ << text(kLeft, kHeight - 10, "start", "0")
         << text(
                kWidth - kRight,
                kHeight - 10,
                "end",
                "step " + std::to_string(steps_ == 0 ? 0 : steps_ - 1));
  }

  void line(const Curve& curve) {
    out_ << "<polyline class=\"" << curve.style << "\" points=\"";
    const size_t group =
        std::max<size_t>(1, 2 * curve.values.size() / kMostPoints);
    for (size_t begin = 0; begin < curve.values.size(); begin += group) {
      const auto first = curve.values.begin() + static_cast<long>(begin);
      const auto last = curve.values.begin() +
          static_cast<long>(std::min(begin + group, curve.values.size()));
      const auto [low, high] = std::minmax_element(first, last);
      point(begin, *low);
      if (group > 1) {
        point(begin, *high);
      }
    }
    out_ << "\"/>";
  }

  void first(size_t step) {
    out_ << "<line class=\"first\" x1=\"" << x(step) << "\" x2=\"" << x(step)
         << "\" y1=\"" << kTop << "\" y2=\"" << kHeight - kBottom << "\"/>";
    const bool left = x(step) > kWidth / 2;
    out_ << text(
        x(step) + (left ? -6 : 6),
        kTop + 14,
        left ? "end" : "start",
        "differs from step " + std::to_string(step),
        " class=\"first-label\"");
  }

  std::string finish() const {
    return "<svg role=\"img\" viewBox=\"0 0 " + label("%.0f", kWidth) + " " +
        label("%.0f", kHeight) + "\">" + out_.str() + "</svg>";
  }

 private:
  double x(size_t step) const {
    const double width = kWidth - kLeft - kRight;
    return steps_ < 2 ? kLeft + width / 2
                      : kLeft +
            width * static_cast<double>(step) /
                static_cast<double>(steps_ - 1);
  }
  double y(double value) const {
    return kHeight - kBottom -
        (kHeight - kTop - kBottom) * scale_.at(value);
  }
  void point(size_t step, double value) {
    if (std::isfinite(value)) {
      out_ << label("%.1f", x(step)) << "," << label("%.1f", y(value)) << " ";
    }
  }
  void mark(double value, const std::string& name) {
    out_ << "<line class=\"axis\" x1=\"" << kLeft << "\" x2=\""
         << kWidth - kRight << "\" y1=\"" << y(value) << "\" y2=\"" << y(value)
         << "\"/>" << text(kLeft - 6, y(value) + 4, "end", name);
  }
  static std::string text(
      double x,
      double y,
      const char* anchor,
      const std::string& content,
      const char* more = "") {
    return "<text" + std::string(more) + " x=\"" + label("%.1f", x) +
        "\" y=\"" + label("%.1f", y) + "\" text-anchor=\"" + anchor + "\">" +
        content + "</text>";
  }

  size_t steps_;
  Scale scale_;
  std::ostringstream out_;
};

} // namespace

std::string plot(
    const std::vector<Curve>& curves,
    bool logarithmic,
    std::optional<size_t> first) {
  const size_t steps = curves.empty() ? 0 : curves[0].values.size();
  Plot plot(steps, make_scale(curves, logarithmic));
  plot.axes();
  for (const auto& curve : curves) {
    plot.line(curve);
  }
  if (first) {
    plot.first(*first);
  }
  return plot.finish();
}

} // namespace accel::verify
