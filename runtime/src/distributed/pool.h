#pragma once

#include <c10/macros/Macros.h>

#include <cstddef>
#include <new>

namespace accel::distributed {

// What every operator looks at is found without a call, as in a program's own
// variables: the library is there from the start, and it is few bytes.
#define ACCEL_QUICK_THREAD_LOCAL \
  thread_local __attribute__((tls_model("initial-exec")))

/// How many freed objects of a kind a thread keeps: as many as a forward pass of
/// a thousand operators holds on to. Sanitizers want to see all that are freed.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMostKept = 0;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr int kMostKept = 0;
#else
constexpr int kMostKept = 4096;
#endif
#else
constexpr int kMostKept = 4096;
#endif

/// What a thread keeps goes back when it ends.
template <typename Kept>
struct AtThreadEnd {
  ~AtThreadEnd() {
    Kept::close();
  }
};

/// Memory for objects of one size that every operator makes and frees: blocks
/// that were freed on this thread are taken again first, at half of what
/// `malloc` and `free` cost. As many as a thread has used at a time are kept for
/// it, up to a limit, until it ends. A block may be freed on another thread than it
/// was taken.
template <size_t Size>
class Pool {
 public:
  static void* take() {
    if (Block* block = free_; block != nullptr) {
      free_ = block->next;
      --kept_;
      return block;
    }
    return ::operator new(Size);
  }
  static void give(void* memory) {
    if (C10_UNLIKELY(kept_ == kMostKept || !at_end_)) {
      if (kept_ == kMostKept) {
        ::operator delete(memory);
        return;
      }
      at_end_ = true;
      thread_local const AtThreadEnd<Pool> end;
      (void)end;
    }
    free_ = new (memory) Block{free_};
    ++kept_;
  }

  /// All goes back, and nothing is kept any more: tensors are freed until the very
  /// end of a thread.
  static void close() {
    while (free_ != nullptr) {
      ::operator delete(take());
    }
    kept_ = kMostKept;
  }

 private:
  struct Block {
    Block* next;
  };
  static_assert(Size >= sizeof(Block));
  // They have no destructors.
  static inline ACCEL_QUICK_THREAD_LOCAL Block* free_ = nullptr;
  static inline ACCEL_QUICK_THREAD_LOCAL bool at_end_ = false;
  static inline ACCEL_QUICK_THREAD_LOCAL int kept_ = 0;
};

/// Objects without content that are kept instead of being freed, for a thread:
/// of a class of LibTorch's, which has no pool. Until the thread ends.
template <typename T>
class Spares {
 public:
  static T* take() {
    return all_ != nullptr && kept_ > 0 ? all_[--kept_] : new T();
  }
  /// Takes the object over. False where there are enough.
  static bool keep(T* object) {
    if (kept_ == kMostKept) {
      return false;
    }
    if (all_ == nullptr) {
      all_ = new T*[kMostKept];
      thread_local const AtThreadEnd<Spares> end;
      (void)end;
    }
    all_[kept_++] = object;
    return true;
  }
  /// As `Pool::close`.
  static void close() {
    for (int i = 0; i < kept_; ++i) {
      delete all_[i];
    }
    delete[] all_;
    all_ = nullptr;
    kept_ = kMostKept;
  }

 private:
  static inline ACCEL_QUICK_THREAD_LOCAL T** all_ = nullptr;
  static inline ACCEL_QUICK_THREAD_LOCAL int kept_ = 0;
};

/// A base for classes whose objects come from a pool.
template <typename T>
struct Pooled {
  static void* operator new(size_t size) {
    return size == sizeof(T) ? Pool<sizeof(T)>::take() : ::operator new(size);
  }
  static void* operator new(size_t, void* place) {
    return place;
  }
  static void operator delete(void* memory, size_t size) {
    if (size == sizeof(T)) {
      Pool<sizeof(T)>::give(memory);
    } else {
      ::operator delete(memory);
    }
  }
};

} // namespace accel::distributed
