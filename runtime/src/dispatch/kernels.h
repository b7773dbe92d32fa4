#pragma once

#include <torch/library.h>

namespace accel::detail {

/// The parts of `install_dispatch_kernels`: each adds its kernels for the
/// dispatch keys that its parameters name, those of class losses and scaled
/// tables for any.
void add_batch_norm(torch::Library& autograd);
void add_dropout(torch::Library& autograd);
void add_random_numbers(torch::Library& cpu);
void add_class_losses(torch::Library& library);
void add_row_checks(torch::Library& autograd, torch::Library& cpu);
void add_scaled_tables(torch::Library& library);

/// The parts of `install_table_kernels`.
void add_shortened_tables(torch::Library& cpu);
void add_shortened_tables_cuda(torch::Library& autograd);

} // namespace accel::detail
