#pragma once

namespace accel::distributed {

/// A thread's own table, one for each type, made when it is first asked for.
///
/// Tensors are used when the variables of the thread that ran main are gone, too:
/// by destructors of globals, and by what atexit() was given. They get a new
/// table, which nobody takes away.
template <typename Table>
Table& thread_table() {
  // Without a destructor, so that it can be looked at until the very end.
  thread_local Table* table = nullptr;
  if (table == nullptr) {
    struct Owner {
      ~Owner() {
        delete table;
        table = nullptr;
      }
    };
    table = new Table;
    thread_local Owner owner;
    (void)&owner;
  }
  return *table;
}

} // namespace accel::distributed
