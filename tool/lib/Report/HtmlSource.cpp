//===- HtmlSource.cpp - Old and new text side by side ---------------------===//

#include "Blocks.h"
#include "Html.h"

#include "accel/migrate/Report.h"
#include "accel/migrate/Templates.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <set>

using namespace llvm;

namespace accel::migrate {

/// Lines that are shown around changes and findings; longer stretches between
/// them are folded.
static constexpr size_t ContextLinesOfPage = 5;

static constexpr size_t None = ~size_t(0);

namespace {

/// A line of the old text beside one of the new text; either may be missing.
struct Pair {
  size_t Old, New;
};

/// Renders one file. Without an edit, old and new text are the same and there
/// is one side.
class SourceWriter {
public:
  SourceWriter(const std::string &File, StringRef Before, const FileEdit *Edit,
               ArrayRef<const Finding *> Findings)
      : File(File), Edit(Edit), Findings(Findings), Old(linesOf(Before)),
        New(linesOf(Edit ? StringRef(Edit->After) : Before)) {}

  std::string render();

private:
  void renderSame(size_t OldBegin, size_t OldEnd, size_t NewBegin);
  void renderBlock(const LineBlock &B);
  void row(const Pair &P, bool Changed);
  void side(StringRef Class, const std::vector<StringRef> &Lines, size_t Line,
            const std::string &Marked, bool Changed);
  void findingsAt(size_t OldLine);
  std::vector<Pair> align(const LineBlock &B) const;
  bool isInteresting(size_t OldLine) const {
    return FindingLines.count(OldLine) != 0;
  }
  std::string table(const std::string &Content) const {
    return renderTemplate(Edit ? "report-table-two" : "report-table-one",
                          {{"rows", Content}});
  }
  void flush() {
    if (!Rows.empty())
      Tables += table(Rows) + "\n";
    Rows.clear();
  }

  const std::string &File;
  const FileEdit *Edit;
  ArrayRef<const Finding *> Findings;
  std::vector<StringRef> Old, New;
  std::set<size_t> FindingLines; ///< From 0.
  std::string Rows, Tables;
};

} // namespace

/// A line without its end.
static StringRef bare(StringRef Line) { return Line.rtrim("\r\n"); }

/// The line with what differs from the other one marked.
static std::string markDifference(StringRef Line, StringRef Other) {
  size_t Most = std::min(Line.size(), Other.size());
  size_t Front = 0, Back = 0;
  while (Front < Most && Line[Front] == Other[Front])
    ++Front;
  while (Back < Most - Front &&
         Line[Line.size() - 1 - Back] == Other[Other.size() - 1 - Back])
    ++Back;
  // No character is cut in two.
  auto IsInside = [&](size_t At) {
    return At < Line.size() && (Line[At] & 0xC0) == 0x80;
  };
  while (Front && IsInside(Front))
    --Front;
  while (Back && IsInside(Line.size() - Back))
    --Back;
  StringRef Middle = Line.slice(Front, Line.size() - Back);
  std::string Result = escapeHtml(Line.take_front(Front));
  if (!Middle.empty())
    Result += "<mark>" + escapeHtml(Middle) + "</mark>";
  return Result + escapeHtml(Line.take_back(Back));
}

/// Puts the lines beside those that they became: the cheapest way to edit one
/// list into the other, where lines that are alike cost little.
std::vector<Pair> SourceWriter::align(const LineBlock &B) const {
  size_t M = B.OldEnd - B.OldBegin, N = B.NewEnd - B.NewBegin;
  constexpr double Alone = 0.55; // Of a line without a partner.
  std::vector<std::vector<double>> Cost(M + 1, std::vector<double>(N + 1));
  auto Beside = [&](size_t I, size_t J) {
    StringRef A = Old[B.OldBegin + I].trim(), Z = New[B.NewBegin + J].trim();
    size_t Longest = std::max<size_t>({A.size(), Z.size(), 1});
    return double(A.edit_distance(Z)) / double(Longest);
  };
  for (size_t I = M + 1; I-- > 0;)
    for (size_t J = N + 1; J-- > 0;) {
      if (I == M || J == N) {
        Cost[I][J] = Alone * double((M - I) + (N - J));
        continue;
      }
      Cost[I][J] = std::min({Cost[I + 1][J + 1] + Beside(I, J),
                             Cost[I + 1][J] + Alone, Cost[I][J + 1] + Alone});
    }
  std::vector<Pair> Pairs;
  for (size_t I = 0, J = 0; I < M || J < N;) {
    if (J < N && (I == M || Cost[I][J] == Cost[I][J + 1] + Alone))
      Pairs.push_back({None, B.NewBegin + J++});
    else if (I < M && (J == N || Cost[I][J] == Cost[I + 1][J] + Alone))
      Pairs.push_back({B.OldBegin + I++, None});
    else
      Pairs.push_back({B.OldBegin + I++, B.NewBegin + J++});
  }
  return Pairs;
}

void SourceWriter::side(StringRef Class, const std::vector<StringRef> &Lines,
                        size_t Line, const std::string &Marked, bool Changed) {
  if (Line == None) {
    Rows += "<td class=\"number none\"></td><td class=\"none\"></td>";
    return;
  }
  std::string Side = (Class + "-side").str();
  Rows += "<td class=\"number " + Side + "\">" + std::to_string(Line + 1) +
          "</td><td class=\"" + Side + (Changed ? " " + Class.str() : "") +
          "\">" + Marked + "</td>";
}

void SourceWriter::row(const Pair &P, bool Changed) {
  std::string OldText, NewText;
  if (P.Old != None)
    OldText = P.New != None && Changed
                  ? markDifference(bare(Old[P.Old]), bare(New[P.New]))
                  : escapeHtml(bare(Old[P.Old]));
  if (P.New != None)
    NewText = P.Old != None && Changed
                  ? markDifference(bare(New[P.New]), bare(Old[P.Old]))
                  : escapeHtml(bare(New[P.New]));
  bool IsSame = P.Old != None && P.New != None &&
                bare(Old[P.Old]) == bare(New[P.New]);
  Rows += "<tr class=\"" + std::string(IsSame ? "same" : "change") + "\"";
  if (P.Old != None)
    Rows += " id=\"" + anchorOf(File, P.Old + 1) + "\"";
  Rows += ">";
  side("old", Old, P.Old, OldText, !IsSame);
  if (Edit)
    side("new", New, P.New, NewText, !IsSame);
  Rows += "</tr>\n";
  if (P.Old != None)
    findingsAt(P.Old);
}

void SourceWriter::findingsAt(size_t OldLine) {
  for (const Finding *F : Findings)
    if (F->Line == OldLine + 1) {
      std::string Level = severityName(F->Level).str();
      Rows += "<tr class=\"inline " + Level + "-level\"><td colspan=\"" +
              std::string(Edit ? "4" : "2") +
              "\"><p><span class=\"badge " + Level + "-level\">" + Level +
              "</span> " + escapeHtml(F->Message) + " " + pageLink(F->Id) +
              "</p>";
      if (!F->Remedy.empty())
        Rows += "<p class=\"remedy\">" + escapeHtml(F->Remedy) + "</p>";
      Rows += "</td></tr>\n";
    }
}

/// Lines that do not change; far from everything they are folded.
void SourceWriter::renderSame(size_t OldBegin, size_t OldEnd, size_t NewBegin) {
  size_t Shift = NewBegin - OldBegin;
  auto IsNear = [&](size_t Line) {
    bool BehindBlock = OldBegin != 0 && Line < OldBegin + ContextLinesOfPage;
    bool BeforeBlock = OldEnd != Old.size() && Line + ContextLinesOfPage >= OldEnd;
    auto Finding = FindingLines.lower_bound(
        Line < ContextLinesOfPage ? 0 : Line - ContextLinesOfPage);
    bool AtFinding =
        Finding != FindingLines.end() && *Finding <= Line + ContextLinesOfPage;
    return BehindBlock || BeforeBlock || AtFinding;
  };
  for (size_t Line = OldBegin; Line < OldEnd;) {
    size_t End = Line;
    while (End < OldEnd && !IsNear(End))
      ++End;
    // Folding a line or two hides more than it saves.
    bool Folds = End - Line > 3;
    if (Folds)
      flush();
    for (; Line < End; ++Line)
      row({Line, Line + Shift}, false);
    if (Folds) {
      unsigned Count = StringRef(Rows).count("<tr class=\"same\"");
      Tables += renderTemplate("report-folded",
                               {{"count", std::to_string(Count)},
                                {"table", table(Rows)}}) +
                "\n";
      Rows.clear();
    }
    for (; Line < OldEnd && IsNear(Line); ++Line)
      row({Line, Line + Shift}, false);
  }
}

void SourceWriter::renderBlock(const LineBlock &B) {
  std::vector<LineReason> Reasons = reasonsOf(B);
  if (!Reasons.empty()) {
    Rows += "<tr class=\"why\"><td colspan=\"4\">";
    for (const LineReason &R : Reasons)
      Rows += "<p>" + pageLink(R.Of->Rule) + " " + escapeHtml(R.Of->Why) +
              "</p>";
    Rows += "</td></tr>\n";
  }
  for (const Pair &P : align(B))
    row(P, true);
}

std::string SourceWriter::render() {
  for (const Finding *F : Findings)
    FindingLines.insert(F->Line - 1);
  size_t OldAt = 0, NewAt = 0;
  if (Edit)
    for (const LineBlock &B : changedBlocks(*Edit, Old, New)) {
      renderSame(OldAt, B.OldBegin, NewAt);
      renderBlock(B);
      OldAt = B.OldEnd;
      NewAt = B.NewEnd;
    }
  renderSame(OldAt, Old.size(), NewAt);
  flush();
  return renderTemplate(
      "report-file",
      {{"anchor", anchorOf(File)},
       {"name", escapeHtml(displayPath(File))},
       {"sides", Edit ? "<p class=\"sides\" style=\"margin:0\"><span>before"
                        "</span><span>after</span></p>"
                      : ""},
       {"tables", Tables}});
}

std::string htmlSources(const RunRecord &Record) {
  std::string Result;
  for (const auto &[File, Text] : Record.Texts) {
    const FileEdit *Edit = nullptr;
    for (const EditGroup &Group : Record.Groups)
      for (const FileEdit &E : Group.Files)
        if (E.File == File)
          Edit = &E;
    std::vector<const Finding *> Findings;
    for (const Finding &F : Record.Findings)
      if (F.Range.File == File && F.Line)
        Findings.push_back(&F);
    if (Edit || !Findings.empty())
      Result += SourceWriter(File, Text, Edit, Findings).render() + "\n";
  }
  return Result;
}

} // namespace accel::migrate
