//===- Merge.cpp - Several units' changes, file by file -------------------===//

#include "accel/migrate/Edit.h"

#include "accel/migrate/Findings.h"

#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Path.h"

#include <set>
#include <tuple>

using namespace llvm;

namespace accel::migrate {

std::pair<unsigned, unsigned> lineAndColumn(StringRef Text, unsigned Offset) {
  StringRef Before = Text.take_front(Offset);
  size_t Break = Before.rfind('\n');
  return {unsigned(Before.count('\n')) + 1,
          unsigned(Break == StringRef::npos ? Offset : Offset - Break - 1) + 1};
}

static bool breaksAtBegin(StringRef Text) {
  return Text.starts_with("\n") || Text.starts_with("\r\n");
}

Expected<std::string> applyChanges(StringRef Before,
                                   std::vector<Change> &Changes,
                                   Change &Culprit) {
  stable_sort(Changes, [](const Change &A, const Change &B) {
    // Insertions come first; the priority only orders those.
    auto Key = [](const Change &C) {
      bool Replaces = C.Range.Length != 0;
      return std::tuple(C.Range.Offset, Replaces, Replaces ? 0 : C.Priority);
    };
    return Key(A) < Key(B);
  });
  std::string After;
  unsigned Done = 0;
  for (const Change &C : Changes) {
    if (C.Range.Offset < Done ||
        size_t(C.Range.Offset) + C.Range.Length > Before.size()) {
      Culprit = C;
      return createStringError(C.Range.Offset < Done
                                   ? "it changes text that another change "
                                     "replaces"
                                   : "it lies behind the end of the file");
    }
    // Two lines in a block that had none break the line behind them once.
    if (C.Range.Offset == Done && breaksAtBegin(C.Replacement) &&
        StringRef(After).rtrim(" \t").ends_with("\n"))
      After.resize(StringRef(After).rtrim().size());
    After += Before.slice(Done, C.Range.Offset);
    After += C.Replacement;
    Done = C.Range.Offset + C.Range.Length;
  }
  After += Before.drop_front(Done);
  return After;
}

static auto identityOf(const Change &C) {
  return std::tie(C.Range.Offset, C.Range.Length, C.Replacement, C.Priority);
}

static bool isSame(const Change &A, const Change &B) {
  return identityOf(A) == identityOf(B);
}

/// The changes of one plan in one file. Replacing the same text by the same
/// twice is doing it once; two equal insertions are two (closing parentheses).
static std::vector<Change> changesIn(const Plan &P, StringRef File) {
  std::vector<Change> Result;
  for (const Change &C : P.Changes)
    if (C.Range.File == File &&
        (C.Range.Length == 0 ||
         none_of(Result, [&](const Change &R) { return isSame(C, R); })))
      Result.push_back(C);
  return Result;
}

/// Adds to `All` what `More` has and it has not, counting equal ones.
static void unite(std::vector<Change> &All, const std::vector<Change> &More) {
  std::vector<bool> Used(All.size());
  for (const Change &C : More) {
    size_t I = 0;
    while (I != Used.size() && (Used[I] || !isSame(All[I], C)))
      ++I;
    if (I != Used.size())
      Used[I] = true;
    else
      All.push_back(C);
  }
}

/// Two units replace overlapping text, or insert different texts at one place.
static const Change *findDisagreement(const std::vector<Change> &A,
                                      const std::vector<Change> &B) {
  for (const Change &X : A)
    for (const Change &Y : B) {
      if (isSame(X, Y))
        continue;
      unsigned XEnd = X.Range.Offset + X.Range.Length;
      unsigned YEnd = Y.Range.Offset + Y.Range.Length;
      bool SamePlace = X.Range.Offset == Y.Range.Offset && X.Range.Length == 0 &&
                       Y.Range.Length == 0 && X.Priority == Y.Priority;
      if (SamePlace || (X.Range.Offset < YEnd && Y.Range.Offset < XEnd))
        return &Y;
    }
  return nullptr;
}

static std::set<std::string> filesChangedBy(const Plan &P) {
  std::set<std::string> Files(P.NeedInclude.begin(), P.NeedInclude.end());
  for (const Change &C : P.Changes)
    Files.insert(C.Range.File);
  return Files;
}

namespace {

/// Merges the plans of one group.
class GroupMerger {
public:
  GroupMerger(ArrayRef<UnitPlan> Units, EditGroup &Group,
              function_ref<bool(StringRef)> MayEdit)
      : Units(Units), Group(Group), MayEdit(MayEdit) {}

  void run() {
    std::set<std::string> Files;
    for (size_t U : Group.Units) {
      std::set<std::string> OfUnit = filesChangedBy(Units[U].ThePlan);
      Files.insert(OfUnit.begin(), OfUnit.end());
    }
    for (const std::string &File : Files)
      mergeFile(File);
    for (size_t U : Group.Units)
      Group.Refused |= Units[U].ThePlan.refused();
    Group.Refused |= !Group.Problems.empty();
    if (!Group.Refused)
      return;
    Group.Files.clear();
    explainToOthers();
  }

private:
  /// A unit that has nothing wrong itself is told why it is refused.
  void explainToOthers() {
    std::string Why;
    for (size_t U : Group.Units)
      if (Why.empty() && Units[U].ThePlan.refused())
        Why = Units[U].MainFile;
    if (Why.empty())
      return; // The problems name the files themselves.
    for (size_t U : Group.Units)
      if (!Units[U].ThePlan.refused() && !Units[U].ThePlan.Changes.empty())
        Group.Problems.push_back(
            makeFinding("ACL0015", {Units[U].MainFile, 0, 0},
                        "it shares a header that must change with '" + Why +
                            "', which is refused",
                        "Solve what is said about that file, then migrate both "
                        "in one run."));
  }

  void problem(StringRef Id, const Change &C, StringRef Text, std::string What,
               std::string Remedy) {
    Finding F = makeFinding(Id, C.Range, std::move(What), std::move(Remedy));
    std::tie(F.Line, F.Column) = lineAndColumn(Text, C.Range.Offset);
    Group.Problems.push_back(std::move(F));
  }

  /// Whether a macro that changes is used by a unit that leaves it as it is.
  bool isKeptElsewhere(const std::string &File, const FileEdit &Edit) {
    for (size_t U : Group.Units)
      for (const UsedMacro &Use : Units[U].ThePlan.refused()
                                      ? ArrayRef<UsedMacro>()
                                      : ArrayRef(Units[U].ThePlan.KeptMacros))
        for (const Change &C : Edit.Changes) {
          if (C.Rule == "print" || C.Range.File != File || !C.Range.isIn(Use.Text))
            continue;
          problem("ACL0102", C, Edit.Before,
                  "the macro " + Use.Macro + " must change here, and is used at " +
                      sys::path::filename(Use.At.File).str() + ":" +
                      std::to_string(Use.Line) +
                      ", too, where nothing has to change in it",
                  "Write the call out instead of using the macro, or give what "
                  "differs a macro of its own.");
          return true;
        }
    return false;
  }

  void mergeFile(const std::string &File) {
    FileEdit Edit;
    Edit.File = File;
    bool WantsInclude = false, IsKnown = false;
    for (size_t U : Group.Units) {
      const UnitPlan &Unit = Units[U];
      auto Text = Unit.Files.find(File);
      if (Text == Unit.Files.end())
        continue;
      std::vector<Change> Changes = changesIn(Unit.ThePlan, File);
      if (IsKnown)
        if (const Change *C = findDisagreement(Edit.Changes, Changes)) {
          problem("ACL0016", *C, Text->second,
                  "'" + Unit.MainFile +
                      "' and another file want different changes here (" +
                      C->Rule + ")",
                  "The header means different things in the two files; give "
                  "each its own text, or make the change by hand.");
          return;
        }
      unite(Edit.Changes, Changes);
      WantsInclude |= is_contained(Unit.ThePlan.NeedInclude, File);
      Edit.Before = Text->second;
      IsKnown = true;
    }
    if (!IsKnown || !MayEdit(File)) {
      std::string Rule = "include";
      for (size_t U : Group.Units)
        for (const Change &C : Units[U].ThePlan.Changes)
          if (C.Range.File == File)
            Rule = C.Rule;
      Group.Problems.push_back(makeFinding(
          "ACL0014", {File, 0, 0},
          "the rule '" + Rule + "' must change this file, which is not part of "
          "the project of '" + Units[Group.Units.front()].MainFile + "'",
          "Copy what is needed into the project, or make the change by hand."));
      return;
    }
    if (isKeptElsewhere(File, Edit))
      return;
    if (WantsInclude)
      if (std::optional<Change> Include =
              accelInclude(File, Edit.Before, Edit.Changes))
        Edit.Changes.push_back(std::move(*Include));
    Change Culprit;
    Expected<std::string> After =
        applyChanges(Edit.Before, Edit.Changes, Culprit);
    if (!After) {
      problem("ACL0016", Culprit, Edit.Before,
              "the rule '" + Culprit.Rule + "' cannot be followed here: " +
                  toString(After.takeError()),
              "Split the statement into simpler ones.");
      return;
    }
    Edit.After = std::move(*After);
    if (Edit.After != Edit.Before)
      Group.Files.push_back(std::move(Edit));
  }

  ArrayRef<UnitPlan> Units;
  EditGroup &Group;
  function_ref<bool(StringRef)> MayEdit;
};

} // namespace

std::vector<EditGroup> mergePlans(ArrayRef<UnitPlan> Units,
                                  function_ref<bool(StringRef)> MayEdit) {
  // Units belong together if one changes a file that the other consists of.
  EquivalenceClasses<size_t> Classes;
  for (size_t U = 0; U != Units.size(); ++U)
    Classes.insert(U);
  for (size_t U = 0; U != Units.size(); ++U)
    for (const std::string &File : filesChangedBy(Units[U].ThePlan))
      for (size_t V = 0; V != Units.size(); ++V)
        if (Units[V].Files.count(File))
          Classes.unionSets(U, V);

  std::vector<EditGroup> Groups;
  std::map<size_t, size_t> GroupOfLeader;
  for (size_t U = 0; U != Units.size(); ++U) {
    auto [Entry, IsNew] =
        GroupOfLeader.try_emplace(Classes.getLeaderValue(U), Groups.size());
    if (IsNew)
      Groups.emplace_back();
    Groups[Entry->second].Units.push_back(U);
  }
  for (EditGroup &Group : Groups)
    GroupMerger(Units, Group, MayEdit).run();
  return Groups;
}

} // namespace accel::migrate
