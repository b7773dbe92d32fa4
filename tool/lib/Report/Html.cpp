//===- Html.cpp - One page for one run ------------------------------------===//
//
// Self-contained: no script, nothing is loaded. Texts are in templates/.
//
//===----------------------------------------------------------------------===//

#include "Html.h"

#include "accel/migrate/Config.h"
#include "accel/migrate/Findings.h"
#include "accel/migrate/Report.h"
#include "accel/migrate/Templates.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/SHA256.h"

using namespace llvm;

namespace accel::migrate {

std::string escapeHtml(StringRef Text) {
  std::string Result;
  for (char C : json::fixUTF8(Text))
    switch (C) {
    case '&':
      Result += "&amp;";
      break;
    case '<':
      Result += "&lt;";
      break;
    case '>':
      Result += "&gt;";
      break;
    case '"':
      Result += "&quot;";
      break;
    default:
      // No other control character may stand in a page.
      Result += (static_cast<unsigned char>(C) < 32 && C != '\t' && C != '\n')
                    ? '?'
                    : C;
    }
  return Result;
}

std::string anchorOf(StringRef File) {
  // The name could be anything.
  return "file-" + toHex(SHA256::hash(arrayRefFromStringRef(File)),
                         /*LowerCase=*/true)
                       .substr(0, 8);
}

std::string anchorOf(StringRef File, unsigned Line) {
  return anchorOf(File) + "-" + std::to_string(Line);
}

std::string pageLink(StringRef Name) {
  std::string Text = escapeHtml(Name);
  return "<a href=\"#page-" + Text + "\"><code>" + Text + "</code></a>";
}

static std::string section(StringRef Title, StringRef Content) {
  if (Content.empty())
    return "";
  return renderTemplate(
      "report-section",
      {{"attributes", ""}, {"title", Title}, {"content", Content}});
}

static std::string inputs(const RunRecord &Record) {
  std::string List;
  for (const UnitRecord &Unit : Record.Units) {
    std::string Name = outcomeName(Unit.Result).str(), Label = Name;
    std::replace(Label.begin(), Label.end(), '-', ' ');
    if (Unit.Result == Outcome::Migrated &&
        (Record.Mode == "diff" || Record.Mode == "check"))
      Label = "can be migrated";
    List += renderTemplate("report-input",
                           {{"outcome", Name},
                            {"label", Label},
                            {"name", escapeHtml(displayPath(Unit.File))}}) +
            "\n";
  }
  return section("Files", "<ul class=\"inputs\">\n" + List + "</ul>");
}

static std::string results(const RunRecord &Record) {
  std::string List;
  for (const ResultNote &Note : resultNotes(Record))
    List += renderTemplate("report-result", {{"topic", escapeHtml(Note.Topic)},
                                             {"text", escapeHtml(Note.Text)}}) +
            "\n";
  return List.empty() ? ""
                      : section("What changes for the results",
                                "<dl class=\"results\">\n" + List + "</dl>");
}

static std::string findings(const RunRecord &Record) {
  std::string List;
  for (const Finding &F : Record.Findings) {
    std::string Place;
    if (!F.Range.File.empty()) {
      Place = escapeHtml(displayPath(F.Range.File));
      if (F.Line)
        Place += ":" + std::to_string(F.Line);
      Place = "<span class=\"code\">" + Place + "</span>";
      if (F.Line && Record.Texts.count(F.Range.File))
        Place = "<a href=\"#" + anchorOf(F.Range.File, F.Line) + "\">" + Place +
                "</a>";
    }
    List += renderTemplate(
                "report-finding",
                {{"level", severityName(F.Level)},
                 {"label", severityName(F.Level)},
                 {"place", Place},
                 {"id", pageLink(F.Id)},
                 {"message", escapeHtml(F.Message)},
                 {"remedy", F.Remedy.empty()
                                ? ""
                                : "<p class=\"remedy\">" +
                                      escapeHtml(F.Remedy) + "</p>"}}) +
            "\n";
  }
  return section("Findings", List);
}

/// The pages of the rules and findings that the report names.
static std::string pages(const RunRecord &Record) {
  SetVector<StringRef> Names;
  for (const Finding &F : Record.Findings)
    Names.insert(F.Id);
  for (const EditGroup &Group : Record.Groups)
    for (const FileEdit &File : Group.Files)
      for (const Change &C : File.Changes)
        Names.insert(C.Rule);
  std::string List;
  for (StringRef Name : Names)
    if (const EmbeddedPage *Page = findPage(Name)) {
      // "# ACL0001: title" or "# Rule `name`".
      StringRef Text = StringRef(Page->Text).split('\n').second;
      const FindingKind *Kind = findFindingKind(Name);
      StringRef Title = Kind ? StringRef(Kind->Title) : "rule";
      List += renderTemplate("report-page-of",
                             {{"name", escapeHtml(Name)},
                              {"title", escapeHtml(Title)},
                              {"text", escapeHtml(Text.trim())}}) +
              "\n";
    }
  return section("What the rules and findings mean", List);
}

static std::string summaryOf(const RunRecord &Record) {
  unsigned Migrated = 0, Refused = 0, Failed = 0, Others = 0;
  for (const UnitRecord &Unit : Record.Units)
    switch (Unit.Result) {
    case Outcome::Migrated:
      ++Migrated;
      break;
    case Outcome::Refused:
      ++Refused;
      break;
    case Outcome::DoesNotCompile:
    case Outcome::Crashed:
      ++Failed;
      break;
    case Outcome::NothingToDo:
    case Outcome::AlreadyMigrated:
    case Outcome::NoTraining:
      ++Others;
      break;
    }
  bool Writes = Record.Mode == "write" || Record.Mode == "tree";
  std::vector<std::string> Parts;
  auto Add = [&](unsigned Count, StringRef What) {
    if (Count)
      Parts.push_back(formatv("{0} {1}", Count, What));
  };
  Add(Migrated, Writes ? "migrated" : "can be migrated");
  Add(Refused, "refused");
  Add(Failed, "could not be read");
  Add(Others, "with nothing to do");
  size_t Total = Record.Units.size();
  return formatv("{0} {1}: {2}", Total, Total == 1 ? "file" : "files",
                 join(Parts, ", "));
}

void printHtml(raw_ostream &OS, const RunRecord &Record) {
  StringRef Note =
      Record.ExitCode == 4
          ? "Something went wrong; what was written is not what is shown here."
      : Record.Mode == "write" ? "The files were changed; accel-migrate undo "
                                 "takes it back."
      : Record.Mode == "tree" ? "The migrated files were written to a folder of "
                                "their own."
                              : "Nothing was written.";
  OS << renderTemplate("report-page",
                       {{"summary", summaryOf(Record)},
                        {"note", Note},
                        {"style", renderTemplate("report-style", {})},
                        {"inputs", inputs(Record)},
                        {"results", results(Record)},
                        {"findings", findings(Record)},
                        {"sources", htmlSources(Record)},
                        {"pages", pages(Record)},
                        {"version", ACCEL_VERSION}})
     << '\n';
}

} // namespace accel::migrate
