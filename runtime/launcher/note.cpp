#include "note.h"

#include <sys/mman.h>
#include <unistd.h>

#include "error.h"

namespace accel::launcher {

Note::Note() : sheet_(::memfd_create("accel-failure-note", MFD_CLOEXEC)) {
  if (!sheet_) {
    throw_errno("cannot make a file in memory");
  }
}

std::string Note::path() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" +
         std::to_string(sheet_.get());
}

std::string Note::read() const {
  char text[4096];
  const ssize_t count = ::pread(sheet_.get(), text, sizeof(text), 0);
  std::string result(text, static_cast<size_t>(count > 0 ? count : 0));
  while (!result.empty() && result.back() == '\n') {
    result.pop_back();
  }
  return result;
}

void Note::say(const std::string& text) {
  (void)!::pwrite(sheet_.get(), text.data(), text.size(), 0);
}

void Note::erase() {
  (void)!::ftruncate(sheet_.get(), 0);
}

} // namespace accel::launcher
