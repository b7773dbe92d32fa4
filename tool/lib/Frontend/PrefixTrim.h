//===- PrefixTrim.h - What a precompiled header need not list ---*- C++ -*-===//
//
// When a unit names std::is_same, Clang loads every specialization of it that
// the precompiled header has a list of: thousands, of which it needs one or
// none. They are made again in less time than it takes to load them. So the
// lists are written without what may be made twice: an implicit instantiation
// that has no member of its own and that nothing tells from a second one.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_LIB_FRONTEND_PREFIXTRIM_H
#define ACCEL_LIB_FRONTEND_PREFIXTRIM_H

#include "clang/AST/ASTConsumer.h"

#include <memory>

namespace accel::migrate {

/// `Generator` writes the precompiled header, without those entries.
std::unique_ptr<clang::ASTConsumer>
trimPrefix(std::unique_ptr<clang::ASTConsumer> Generator);

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_PREFIXTRIM_H
