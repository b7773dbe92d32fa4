// On top of internal.h: GoogleTest.
#include <gtest/gtest.h>
