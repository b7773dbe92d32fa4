//===- Threads.h - What runs in a thread of its own -------------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_DIFFERS_THREADS_H
#define ACCEL_MIGRATE_LIB_INVENTORY_DIFFERS_THREADS_H

#include "clang/AST/ExprCXX.h"

namespace accel::migrate {

/// std::thread, std::jthread.
bool isThread(const clang::CXXRecordDecl *D);

/// Whether a call has what it is given run in other threads: std::async,
/// make_unique<std::thread>(…), emplace_back(…) of a vector of threads, an
/// algorithm with a parallel policy, at::parallel_for, a library's pool.
bool runsInThreads(const clang::CallExpr *E, const clang::FunctionDecl *F);

/// Whether `E` is a function or an object that is called, which `F` may hand to
/// the threads of a pool: a class that keeps threads, and functions for them.
bool isGivenToPool(const clang::Expr *E, const clang::FunctionDecl *F);

/// Whether `#pragma omp parallel …` stands before a loop or a block. The tool
/// reads all programs without -fopenmp (CompileCommands.cpp), so that it is text.
bool isOpenMPRegion(const clang::Stmt *S, const clang::SourceManager &SM);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_DIFFERS_THREADS_H
