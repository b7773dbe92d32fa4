#pragma once

#include <accel/optim/schedulers/lambda_lr.h>

namespace accel::optim {

/// The factors of the transformers library's schedules, for `LambdaLR`. All
/// rise linearly from 0 to 1 over `num_warmup_steps` (0: no warm-up); with
/// AcceleratedScheduler:
///
/// \code
/// accel::AcceleratedScheduler<accel::optim::LambdaLR> scheduler(
///     optimizer, accel::optim::linear_with_warmup(100, 1000));
/// \endcode
///
/// Behind the warm-up the factor stays 1.
ACCEL_API LRLambda constant_with_warmup(int64_t num_warmup_steps);
/// Behind the warm-up it falls linearly to 0 at `num_training_steps` and stays there.
ACCEL_API LRLambda
linear_with_warmup(int64_t num_warmup_steps, int64_t num_training_steps);
/// Behind the warm-up it follows `num_cycles` periods of a cosine between 1 and 0 until
/// `num_training_steps`; the default, half a period, falls to 0. Past the end
/// the cosine goes on, as it does in Python: a factor that rises again means
/// that `num_training_steps` was too small.
ACCEL_API LRLambda cosine_with_warmup(
    int64_t num_warmup_steps,
    int64_t num_training_steps,
    double num_cycles = 0.5);

/// A scheduler over `constant_with_warmup`. This one and the next two have the
/// names of the transformers library.
ACCEL_API LambdaLR get_constant_schedule_with_warmup(
    torch::optim::Optimizer& optimizer, int64_t num_warmup_steps);
/// A scheduler over `linear_with_warmup`.
ACCEL_API LambdaLR get_linear_schedule_with_warmup(
    torch::optim::Optimizer& optimizer,
    int64_t num_warmup_steps,
    int64_t num_training_steps);
/// A scheduler over `cosine_with_warmup`.
ACCEL_API LambdaLR get_cosine_schedule_with_warmup(
    torch::optim::Optimizer& optimizer,
    int64_t num_warmup_steps,
    int64_t num_training_steps,
    double num_cycles = 0.5);

} // namespace accel::optim
