//===- Templates.cpp - Fills in templates/ --------------------------------===//

#include "accel/migrate/Templates.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/ErrorHandling.h"

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
    const auto *Given = llvm::find_if(
        Values, [&](const auto &Value) { return Value.first == Key; });
    // Without its value the text may compile and be wrong: no build lets that through.
    if (Given == Values.end())
      llvm::report_fatal_error("template '" + Name + "' wants a '" + Key + "'");
    Result += Given->second;
    Rest = Rest.substr(Close + 2);
  }
}
