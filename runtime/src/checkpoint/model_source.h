#pragma once

#include "checkpoint/load_plan.h"

#include <string>

namespace accel::checkpoint {

/// The tensors of a model file, index or directory (see `load_model`).
TensorSources model_sources(const std::string& path);

} // namespace accel::checkpoint
