// Runs the targets of an executable over the inputs that are stored in
// corpus/TARGET/, without libFuzzer: seconds, with any compiler. It fails where
// a target has no input, since that would be a test that cannot fail.
//
//   replay CORPUS

#include "fuzz.h"

#include <cstdio>
#include <fstream>
#include <iterator>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS\n", argv[0]);
    return 2;
  }
  int inputs = 0;
  for (const auto& [name, target] : accel::fuzz::targets()) {
    const auto folder = std::filesystem::path(argv[1]) / name;
    int here = 0;
    if (std::filesystem::is_directory(folder)) {
      for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        std::ifstream file(entry.path(), std::ios::binary);
        const std::string bytes{std::istreambuf_iterator<char>(file), {}};
        std::fprintf(stderr, "%s\n", entry.path().c_str());
        target(bytes);
        ++here;
      }
    }
    if (here == 0) {
      std::fprintf(stderr, "no inputs in %s\n", folder.c_str());
      return 1;
    }
    inputs += here;
  }
  std::printf("%d inputs\n", inputs);
}
