//===- ProvenTemplates.h - What has compiled before -------------*- C++ -*-===//
//
// Whether `torch::nn::Linear(4, 1)` compiles down to the last template depends
// on LibTorch's headers alone. What has compiled once against a precompiled
// header need not be instantiated again with it: beside that file lies a list of
// what has, which every unit without errors adds to. Listed is only what is made
// of nothing but what that header declares; units that add to a namespace of it
// neither use the list nor add to it.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_LIB_FRONTEND_PROVENTEMPLATES_H
#define ACCEL_LIB_FRONTEND_PROVENTEMPLATES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <string>

namespace accel::migrate {

/// One per unit.
class ProvenTemplates {
public:
  /// Reads the list that lies beside a precompiled header; it is empty where
  /// there is none, or one that belongs to another version of the header.
  explicit ProvenTemplates(llvm::StringRef Prefix);

  bool contains(uint64_t Key) const { return Keys.contains(Key); }

  /// Writes the list with these keys in it, too. That others may write it at the
  /// same time, or that it cannot be written, costs time later and no more.
  void add(llvm::ArrayRef<uint64_t> More);

  /// The key of a mangled name.
  static uint64_t keyOf(llvm::StringRef Name);

private:
  static llvm::DenseSet<uint64_t> read(llvm::StringRef Path,
                                       llvm::StringRef Stamp);

  std::string Path;
  std::string Stamp; ///< Tells versions of the precompiled header apart.
  llvm::DenseSet<uint64_t> Keys;
};

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_PROVENTEMPLATES_H
