//===- Templates.cpp - Fills in templates/ --------------------------------===//

#include "accel/migrate/Templates.h"

#include <cassert>

using namespace accel::migrate;
using llvm::StringRef;

static StringRef findTemplate(StringRef Name) {
  for (const EmbeddedTemplate *T = EmbeddedTemplates; T->Name; ++T)
    if (Name == T->Name)
      return StringRef(T->Text).rtrim("\r\n");
  assert(false && "no such template");
  return "";
}

bool accel::migrate::hasPlaceholder(StringRef Name, StringRef Key) {
  return findTemplate(Name).contains(("{{" + Key + "}}").str());
}

std::string accel::migrate::renderTemplate(
    StringRef Name, llvm::ArrayRef<std::pair<StringRef, StringRef>> Values) {
  StringRef Rest = findTemplate(Name);
  std::string Result;
  while (true) {
    const size_t Open = Rest.find("{{");
    Result += Rest.substr(0, Open);
    if (Open == StringRef::npos)
      return Result;
    const size_t Close = Rest.find("}}", Open);
    assert(Close != StringRef::npos && "a placeholder is not closed");
    const StringRef Key = Rest.slice(Open + 2, Close);
    [[maybe_unused]] bool Given = false;
    for (const auto &[Name, Value] : Values)
      if (Name == Key) {
        Result += Value;
        Given = true;
      }
    assert(Given && "a placeholder is not given");
    Rest = Rest.substr(Close + 2);
  }
}
