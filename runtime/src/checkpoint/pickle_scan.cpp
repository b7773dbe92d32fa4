#include "checkpoint/pickle_scan.h"

#include <c10/util/Exception.h>

#include <cstdint>
#include <cstring>

namespace accel::checkpoint {

namespace {

/// What follows the byte of an instruction.
enum class Argument {
  kUnknown,
  kNone,
  /// So many bytes.
  kOne,
  kTwo,
  kFour,
  kEight,
  /// A length in so many bytes, and as many bytes as it says.
  kLength1,
  kLength4,
  kLength8,
  /// A place in the memo.
  kMemo1,
  kMemo4,
  /// Text up to the end of the line; two of them.
  kLine,
  kTwoLines,
};

/// Python's pickletools.opcodes.
Argument argument_of(unsigned char instruction) {
  switch (instruction) {
    case '(': case '.': case '0': case '1': case '2': case 'N': case 'Q':
    case 'R': case 'a': case 'b': case 'd': case '}': case 'e': case 'l':
    case ']': case 'o': case 's': case 't': case ')': case 'u': case 0x81:
    case 0x85: case 0x86: case 0x87: case 0x88: case 0x89: case 0x8f:
    case 0x90: case 0x91: case 0x92: case 0x93: case 0x94: case 0x97:
    case 0x98:
      return Argument::kNone;
    case 'K': case 0x80: case 0x82:
      return Argument::kOne;
    case 'M': case 0x83:
      return Argument::kTwo;
    case 'J': case 0x84:
      return Argument::kFour;
    case 'G': case 0x95:
      return Argument::kEight;
    case 'U': case 'C': case 0x8a: case 0x8c:
      return Argument::kLength1;
    case 'T': case 'X': case 'B': case 0x8b:
      return Argument::kLength4;
    case 0x8d: case 0x8e: case 0x96:
      return Argument::kLength8;
    case 'h': case 'q':
      return Argument::kMemo1;
    case 'j': case 'r':
      return Argument::kMemo4;
    case 'F': case 'I': case 'L': case 'P': case 'S': case 'V': case 'g':
    case 'p':
      return Argument::kLine;
    case 'c': case 'i':
      return Argument::kTwoLines;
    default:
      return Argument::kUnknown;
  }
}

class Scan {
 public:
  Scan(const void* data, size_t size, const std::string& what)
      : data_(static_cast<const unsigned char*>(data)),
        size_(size),
        what_(what) {}

  void run() {
    while (true) {
      place_ = position_;
      const auto instruction = static_cast<unsigned char>(number(1));
      constexpr unsigned char kStop = '.';
      if (instruction == kStop) {
        return;
      }
      step(argument_of(instruction), instruction);
    }
  }

 private:
  void step(Argument argument, int instruction) {
    switch (argument) {
      case Argument::kUnknown:
        TORCH_CHECK(
            false,
            what_,
            ": byte ",
            place_,
            " of its pickle is ",
            instruction,
            ", which is no instruction. The file is damaged.");
      case Argument::kNone:
        return;
      case Argument::kOne:
        return skip(1);
      case Argument::kTwo:
        return skip(2);
      case Argument::kFour:
        return skip(4);
      case Argument::kEight:
        return skip(8);
      case Argument::kLength1:
        return skip(number(1));
      case Argument::kLength4:
        return skip(number(4));
      case Argument::kLength8:
        return skip(number(8));
      case Argument::kMemo1:
        return memo(number(1));
      case Argument::kMemo4:
        return memo(number(4));
      case Argument::kLine:
        return line();
      case Argument::kTwoLines:
        line();
        return line();
    }
  }

  uint64_t number(size_t bytes) {
    const size_t begin = position_;
    skip(bytes);
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;) {
      value = value << 8 | data_[begin + i];
    }
    return value;
  }

  void skip(uint64_t bytes) {
    TORCH_CHECK(
        bytes <= size_ - position_,
        what_,
        ": byte ",
        place_,
        " of its pickle begins something that goes on for ",
        bytes,
        " bytes, but only ",
        size_ - position_,
        " are left. The file is damaged or cut off.");
    position_ += static_cast<size_t>(bytes);
  }

  void line() {
    const void* end =
        std::memchr(data_ + position_, '\n', size_ - position_);
    TORCH_CHECK(
        end != nullptr,
        what_,
        ": byte ",
        place_,
        " of its pickle begins a line that does not end. The file is damaged "
        "or cut off.");
    position_ =
        static_cast<size_t>(static_cast<const unsigned char*>(end) - data_) + 1;
  }

  void memo(uint64_t place) {
    // Places are filled one after the other, each by two bytes or more; a byte
    // says up to 255 whatever the size.
    TORCH_CHECK(
        place < 256 || place <= size_,
        what_,
        ": byte ",
        place_,
        " of its pickle refers to place ",
        place,
        " of the memo, more than its ",
        size_,
        " bytes can have filled. The file is damaged.");
  }

  const unsigned char* data_;
  size_t size_;
  const std::string& what_;
  size_t position_ = 0;
  /// Where the present instruction begins.
  size_t place_ = 0;
};

} // namespace

void check_pickle_lengths(
    const void* data, size_t size, const std::string& what) {
  Scan(data, size, what).run();
}

} // namespace accel::checkpoint
