// Tables of the library that a thread uses when its variables are gone.

#include "distributed/thread_table.h"

#include <gtest/gtest.h>

#include <thread>

namespace {

struct Table {
  ~Table() {
    number = 0;
  }
  int number = 7;
};

/// Destroyed after what is made behind it.
struct AtTheEnd {
  ~AtTheEnd() {
    *seen = accel::distributed::thread_table<Table>().number;
  }
  int* seen;
};

} // namespace

TEST(ThreadTable, IsThereWhenTheVariablesOfItsThreadAreGone) {
  int seen = 0;
  std::thread([&seen] {
    thread_local AtTheEnd at_the_end{&seen};
    (void)&at_the_end;
    accel::distributed::thread_table<Table>().number = 8;
    EXPECT_EQ(accel::distributed::thread_table<Table>().number, 8);
  }).join();
  EXPECT_EQ(seen, 7);
}
