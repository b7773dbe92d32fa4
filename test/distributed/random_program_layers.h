#pragma once

#include "random_program_machine.h"

namespace accel::distributed::test {

/// A layer of torch::nn, or a function that is made of several operators.
void module(Machine& machine, const Instruction& instruction);

} // namespace accel::distributed::test
