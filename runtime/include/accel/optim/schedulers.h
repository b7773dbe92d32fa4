#pragma once

/// The learning-rate schedulers of `torch.optim.lr_scheduler` that LibTorch
/// lacks, and those with warm-up of the transformers library.
/// docs/schedulers.md has the overview.

#include <accel/optim/schedulers/constant_lr.h>
#include <accel/optim/schedulers/cosine_annealing_lr.h>
#include <accel/optim/schedulers/exponential_lr.h>
#include <accel/optim/schedulers/lambda_lr.h>
#include <accel/optim/schedulers/linear_lr.h>
#include <accel/optim/schedulers/lr_scheduler.h>
#include <accel/optim/schedulers/one_cycle_lr.h>
#include <accel/optim/schedulers/polynomial_lr.h>
#include <accel/optim/schedulers/reduce_lr_on_plateau.h>
#include <accel/optim/schedulers/sequential_lr.h>
#include <accel/optim/schedulers/step_lr.h>
#include <accel/optim/schedulers/warmup.h>
