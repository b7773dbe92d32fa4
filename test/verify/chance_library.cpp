#include <random>

unsigned drawn_by_library();
unsigned drawn_by_library() {
  return std::random_device()();
}
