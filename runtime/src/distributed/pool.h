#pragma once

#include <c10/macros/Macros.h>

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

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
    Block* const block = free_;
    if (C10_UNLIKELY(block == nullptr)) {
      return ::operator new(Size);
    }
    free_ = block->next;
    ++room_;
    return block;
  }
  static void give(void* memory) {
    if (C10_UNLIKELY(room_ == 0 && !open())) {
      ::operator delete(memory);
      return;
    }
    free_ = new (memory) Block{free_};
    --room_;
  }

  /// All goes back, and nothing is kept any more: tensors are freed until the very
  /// end of a thread.
  static void close() {
    while (free_ != nullptr) {
      ::operator delete(take());
    }
    room_ = 0;
  }

 private:
  struct Block {
    Block* next;
  };
  static_assert(Size >= sizeof(Block));

  /// There is room from the first block on. False later.
  C10_NOINLINE static bool open() {
    if (kMostKept == 0 || opened_) {
      return false;
    }
    opened_ = true;
    room_ = kMostKept;
    thread_local const AtThreadEnd<Pool> end;
    (void)end;
    return true;
  }

  // They have no destructors.
  static inline ACCEL_QUICK_THREAD_LOCAL Block* free_ = nullptr;
  /// For how many more.
  static inline ACCEL_QUICK_THREAD_LOCAL int room_ = 0;
  static inline ACCEL_QUICK_THREAD_LOCAL bool opened_ = false;
};

/// Objects that are kept instead of being freed, for a thread: of classes of
/// LibTorch's, which have no pool, or as good as new. Until the thread ends. An
/// empty `T` has nothing.
template <typename T>
class Spares {
 public:
  /// An empty one where there are none.
  C10_ALWAYS_INLINE static T take() {
    T* const last = end_;
    if (C10_UNLIKELY(last == all_)) {
      return T();
    }
    end_ = last - 1;
    T object = std::move(last[-1]);
    last[-1].~T(); // is empty now
    return object;
  }
  /// Where there are enough, `object` stays as it is.
  C10_ALWAYS_INLINE static void keep(T&& object) {
    if (C10_UNLIKELY(end_ == most_ && !open())) {
      return;
    }
    new (end_) T(std::move(object));
    ++end_;
  }
  /// As `Pool::close`.
  static void close() {
    T* const all = std::exchange(all_, nullptr);
    T* const end = std::exchange(end_, nullptr);
    most_ = nullptr;
    std::destroy(all, end);
    ::operator delete(all);
  }

 private:
  /// As `Pool::open`.
  C10_NOINLINE static bool open() {
    if (kMostKept == 0 || opened_) {
      return false;
    }
    opened_ = true;
    all_ = static_cast<T*>(::operator new(kMostKept * sizeof(T)));
    end_ = all_;
    most_ = all_ + kMostKept;
    thread_local const AtThreadEnd<Spares> at_end;
    (void)at_end;
    return true;
  }

  static inline ACCEL_QUICK_THREAD_LOCAL T* all_ = nullptr;
  static inline ACCEL_QUICK_THREAD_LOCAL T* end_ = nullptr;
  static inline ACCEL_QUICK_THREAD_LOCAL T* most_ = nullptr;
  static inline ACCEL_QUICK_THREAD_LOCAL bool opened_ = false;
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
