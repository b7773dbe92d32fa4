// What the rewriter's sources include of Clang: five seconds for each without.
#include <clang/AST/ASTContext.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Lex/Lexer.h>
#include <clang/Lex/Preprocessor.h>
#include <clang/Tooling/Tooling.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/Support/raw_ostream.h>
