#pragma once

/// Everything that a program needs.

#include <accel/accelerator.h>
#include <accel/distributed/register_sharding.h>
#include <accel/distributed/tensor.h>
#include <accel/data/data_loader.h>
#include <accel/data/iterable_dataset_shard.h>
#include <accel/detail/print.h>
#include <accel/gradient_state.h>
#include <accel/grad_scaler.h>
#include <accel/optim/optimizer.h>
#include <accel/optim/scheduler.h>
#include <accel/options.h>
#include <accel/parallel/sharded_init.h>
#include <accel/script_values.h>
#include <accel/state.h>
#include <accel/utils/tensors.h>
#include <accel/version.h>

#include <tuple>
