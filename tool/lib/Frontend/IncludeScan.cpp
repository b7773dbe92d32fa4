//===- IncludeScan.cpp - What a file includes -----------------------------===//

#include "IncludeScan.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace llvm;

namespace accel::migrate {

StringRef directiveOf(StringRef Line, StringRef &Rest) {
  Line = Line.ltrim();
  if (!Line.consume_front("#"))
    return "";
  Line = Line.ltrim();
  const StringRef Word = Line.take_while(isAlpha);
  Rest = Line.drop_front(Word.size()).trim();
  return Word;
}

StringRef includedName(StringRef Line) {
  StringRef Rest;
  if (directiveOf(Line, Rest) != "include")
    return "";
  if (Rest.consume_front("<"))
    return Rest.take_until([](char C) { return C == '>'; });
  if (Rest.consume_front("\""))
    return Rest.take_until([](char C) { return C == '"'; });
  return "";
}

/// The text of a file, without a byte order mark; `Buffer` keeps it alive.
static StringRef textOf(const std::string &RealPath, const TextOverlay &Overlay,
                        std::unique_ptr<MemoryBuffer> &Buffer) {
  StringRef Text;
  if (auto Entry = Overlay.find(RealPath); Entry != Overlay.end()) {
    Text = Entry->second;
  } else if (auto Read = MemoryBuffer::getFile(RealPath)) {
    Buffer = std::move(*Read);
    Text = Buffer->getBuffer();
  }
  Text.consume_front("\xef\xbb\xbf");
  return Text;
}

MentionedHeaders mentionedHeaders(StringRef File, const UnitCommand &Command,
                                  const TextOverlay &Overlay) {
  MentionedHeaders Found;
  std::vector<std::string> Dirs;
  for (size_t I = 0; I + 1 < Command.Arguments.size(); ++I)
    if ((Command.Arguments[I] == "-I" || Command.Arguments[I] == "-iquote" ||
         Command.Arguments[I] == "-idirafter") &&
        !is_contained(Command.TorchDirs, realPath(Command.Arguments[I + 1])))
      Dirs.push_back(Command.Arguments[I + 1]);

  std::vector<std::string> ToSee = {realPath(File)};
  StringSet<> Seen;
  while (!ToSee.empty()) {
    std::string Path = std::move(ToSee.back());
    ToSee.pop_back();
    if (!Seen.insert(Path).second)
      continue;
    std::unique_ptr<MemoryBuffer> Buffer;
    StringRef Text = textOf(Path, Overlay, Buffer);
    while (!Text.empty()) {
      auto [Line, Rest] = Text.split('\n');
      Text = Rest;
      StringRef Name = includedName(Line);
      if (Name.empty())
        continue;
      Found.Torch |= Name == "torch/torch.h" || Name == "torch/all.h";
      Found.Accel |= Name == "accel/accel.h";
      if (Found.Torch && Found.Accel)
        return Found;
      auto See = [&](StringRef Dir) {
        std::string Included = sys::path::is_absolute(Name)
                                   ? Name.str()
                                   : (Dir + "/" + Name).str();
        if (!sys::fs::exists(Included))
          return false;
        ToSee.push_back(realPath(Included));
        return true;
      };
      if (!See(sys::path::parent_path(Path)))
        (void)any_of(Dirs, See);
    }
  }
  return Found;
}

} // namespace accel::migrate
