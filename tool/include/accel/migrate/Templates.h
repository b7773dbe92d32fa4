//===- Templates.h - The texts that the tool writes -------------*- C++ -*-===//
//
// Every text that ends up in a person's program stands in templates/, not in
// C++: `{{name}}` is replaced, everything else is literal.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_TEMPLATES_H
#define ACCEL_MIGRATE_TEMPLATES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <string>
#include <utility>

namespace accel::migrate {

struct EmbeddedTemplate {
  const char *Name;
  const char *Text;
};

/// All of templates/*.in, ended by a null name.
extern const EmbeddedTemplate EmbeddedTemplates[];

/// The template `Name` with each `{{key}}` replaced by its value and the final
/// line break removed. Asserts that the template exists and that every
/// placeholder is given.
std::string
renderTemplate(llvm::StringRef Name,
               llvm::ArrayRef<std::pair<llvm::StringRef, llvm::StringRef>> Values);

/// Whether the template `Name` has `{{key}}`.
bool hasPlaceholder(llvm::StringRef Name, llvm::StringRef Key);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_TEMPLATES_H
