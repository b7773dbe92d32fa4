//===- Heap.h - Memory for syntax trees -------------------------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_TOOL_HEAP_H
#define ACCEL_MIGRATE_TOOL_HEAP_H

namespace accel::migrate {

/// Sets the heap up for many small objects that go all at once: a unit's syntax
/// tree is some 100 MB, and getting these from the system 4 KB at a time is a
/// tenth of the time of reading one. To be called before there are threads.
/// Where the system does not offer it, nothing changes.
void prepareHeap();

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_TOOL_HEAP_H
