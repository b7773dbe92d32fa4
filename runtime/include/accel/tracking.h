#pragma once

/// Recording of training runs; docs/tracking.md has the overview.

#include <accel/tracking/csv.h>
#include <accel/tracking/general_tracker.h>
#include <accel/tracking/json_lines.h>
#include <accel/tracking/log_value.h>
#include <accel/tracking/mlflow.h>
#include <accel/tracking/registry.h>
#include <accel/tracking/tensorboard.h>
#include <accel/tracking/tracker_set.h>
