// Draws from std::random_device and reads the clock, as its library does.

#include <cstdio>
#include <ctime>
#include <random>

unsigned drawn_by_library();

int main(int count, char**) {
  std::random_device device;
  const unsigned first = drawn_by_library();
  if (count > 1 && first == drawn_by_library()) {
    return 1;
  }
  for (int i = 0; i < 2; ++i) {
    const unsigned drawn = device();
    std::printf("%u %ld\n", drawn, static_cast<long>(std::time(nullptr)));
  }
}
