// On top of internal.h: GoogleTest, and what programs see of accel, which takes a
// second to read. That each of its headers includes what it needs is seen where
// the library itself is compiled.
#include <accel/accel.h>
#include <gtest/gtest.h>
