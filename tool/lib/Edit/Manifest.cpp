//===- Manifest.cpp - What a migration replaced ---------------------------===//

#include "Manifest.h"

#include "AtomicFile.h"

#include "accel/migrate/Config.h"
#include "accel/migrate/Write.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Base64.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"

using namespace llvm;

namespace accel::migrate {

static constexpr int FormatVersion = 1;
static constexpr llvm::StringLiteral RootFromManifest = "../..";

std::string hashOf(StringRef Text) {
  return toHex(SHA256::hash(arrayRefFromStringRef(Text)), /*LowerCase=*/true);
}

std::vector<std::string> manifestsIn(StringRef Folder) {
  std::vector<std::string> Found;
  std::error_code Code;
  for (sys::fs::directory_iterator It(Folder, Code), End; It != End && !Code;
       It.increment(Code)) {
    StringRef Name = sys::path::filename(It->path());
    unsigned Number;
    if (Name.consume_back(".json") && !Name.getAsInteger(10, Number))
      Found.push_back(It->path());
  }
  sort(Found, [](StringRef A, StringRef B) {
    unsigned X = 0, Y = 0;
    sys::path::stem(A).getAsInteger(10, X);
    sys::path::stem(B).getAsInteger(10, Y);
    return X > Y;
  });
  return Found;
}

std::string Manifest::pathOf(const Entry &E) const {
  return Root + "/" + E.Path;
}

std::string Manifest::folderFor(StringRef Root, StringRef StateDir) {
  return StateDir.empty() ? (Root + "/.accel/undo").str() : StateDir.str();
}

Manifest Manifest::forEdits(ArrayRef<FileEdit> Files, StringRef Root,
                            StringRef StateDir) {
  Manifest M;
  M.Root = Root.str();
  std::string Folder = folderFor(M.Root, StateDir);
  unsigned Number = 0;
  std::vector<std::string> Older = manifestsIn(Folder);
  if (!Older.empty())
    sys::path::stem(Older.front()).getAsInteger(10, Number);
  raw_string_ostream(M.Location)
      << Folder << '/' << format("%04u", Number + 1) << ".json";
  for (const FileEdit &File : Files)
    M.Entries.push_back({StringRef(File.File).drop_front(M.Root.size() + 1).str(),
                         hashOf(File.Before), hashOf(File.After), File.Before});
  return M;
}

Error Manifest::save() const {
  StringRef Folder = sys::path::parent_path(Location);
  bool IsBeside = Folder == Root + "/.accel/undo";
  json::Array Files;
  for (const Entry &E : Entries)
    Files.push_back(json::Object{{"path", E.Path},
                                 {"before", E.BeforeHash},
                                 {"after", E.AfterHash},
                                 {"original", encodeBase64(E.Original)}});
  json::Object Document{{"format", FormatVersion},
                        {"tool", "accel-migrate " ACCEL_VERSION},
                        {"root", IsBeside ? RootFromManifest.str() : Root},
                        {"files", std::move(Files)}};
  std::string Text;
  raw_string_ostream(Text) << formatv("{0:2}\n", json::Value(std::move(Document)));
  if (IsBeside) { // Version control need not see it.
    std::string Ignore = Root + "/.accel/.gitignore";
    AtomicFile::removeLeftovers(Ignore);
    if (!sys::fs::exists(Ignore))
      if (Error E = writeAtomically(Ignore, "*\n"))
        return E;
    syncFolder(Root);
    syncFolder(Root + "/.accel");
  }
  AtomicFile::removeLeftovers(Location);
  return writeAtomically(Location, Text);
}

void Manifest::remove() const {
  sys::fs::remove(Location);
  StringRef Folder = sys::path::parent_path(Location);
  if (Folder != Root + "/.accel/undo" || !manifestsIn(Folder).empty())
    return;
  // rmdir leaves alone what is not empty.
  if (sys::fs::remove(Folder))
    return;
  sys::fs::remove(Root + "/.accel/.gitignore");
  sys::fs::remove(Root + "/.accel");
}

Expected<Manifest> Manifest::load(StringRef Location) {
  Expected<std::string> Text = readFile(Location);
  if (!Text)
    return Text.takeError();
  auto Damaged = [&](const Twine &Why) {
    return createStringError("the undo manifest '" + Location +
                             "' cannot be used: " + Why);
  };
  Expected<json::Value> Parsed = json::parse(*Text);
  if (!Parsed)
    return Damaged(toString(Parsed.takeError()));
  const json::Object *Document = Parsed->getAsObject();
  if (!Document || Document->getInteger("format") != FormatVersion)
    return Damaged("it is not of format " + Twine(FormatVersion));
  const json::Array *Files = Document->getArray("files");
  std::optional<StringRef> Root = Document->getString("root");
  if (!Files || !Root)
    return Damaged("it names no files");

  Manifest M;
  M.Location = Location.str();
  SmallString<256> Absolute(*Root);
  sys::fs::make_absolute(sys::path::parent_path(Location), Absolute);
  sys::path::remove_dots(Absolute, /*remove_dot_dot=*/true);
  M.Root = std::string(Absolute);
  for (const json::Value &File : *Files) {
    const json::Object *O = File.getAsObject();
    auto Get = [&](StringRef Name) {
      std::optional<StringRef> Value;
      if (O)
        Value = O->getString(Name);
      return Value.value_or("").str();
    };
    Entry E{Get("path"), Get("before"), Get("after"), ""};
    std::vector<char> Original;
    if (Error Bad = decodeBase64(Get("original"), Original))
      return Damaged(toString(std::move(Bad)));
    E.Original.assign(Original.begin(), Original.end());
    if (E.Path.empty() || hashOf(E.Original) != E.BeforeHash)
      return Damaged("an original in it is damaged");
    M.Entries.push_back(std::move(E));
  }
  return M;
}

} // namespace accel::migrate
