#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace accel::verify {

/// A line of a plot; `style` is a class of the page's style sheet.
struct Curve {
  std::string style;
  std::vector<double> values;
};

/// Curves over the steps as an inline SVG. On a logarithmic scale values of
/// zero lie on the bottom. `first` marks a step.
std::string plot(
    const std::vector<Curve>& curves,
    bool logarithmic,
    std::optional<size_t> first);

} // namespace accel::verify
