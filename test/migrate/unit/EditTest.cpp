// Merging, applying, includes and diffs, on text alone.

#include "accel/migrate/Edit.h"
#include "accel/migrate/Report.h"
#include "accel/migrate/Write.h"

#include <gtest/gtest.h>

using namespace accel::migrate;

namespace {

Change change(unsigned Offset, unsigned Length, std::string Text,
              int Priority = 0, std::string File = "/p/a.cpp") {
  Change C;
  C.Range = {std::move(File), Offset, Length};
  C.Replacement = std::move(Text);
  C.Rule = "rule";
  C.Why = "why";
  C.Priority = Priority;
  return C;
}

std::string apply(llvm::StringRef Before, std::vector<Change> Changes) {
  Change Culprit;
  llvm::Expected<std::string> After = applyChanges(Before, Changes, Culprit);
  if (After)
    return *After;
  return "error at " + std::to_string(Culprit.Range.Offset) + ": " +
         llvm::toString(After.takeError());
}

UnitPlan unit(std::string Main, std::map<std::string, std::string> Files,
              std::vector<Change> Changes) {
  UnitPlan U;
  U.MainFile = std::move(Main);
  U.Files = std::move(Files);
  U.ThePlan.Changes = std::move(Changes);
  U.ThePlan.HasTraining = true;
  return U;
}

std::vector<EditGroup> merge(const std::vector<UnitPlan> &Units) {
  return mergePlans(Units, [](llvm::StringRef File) {
    return File.starts_with("/p/");
  });
}

std::string idsOf(const EditGroup &Group) {
  std::string Ids;
  for (const Finding &F : Group.Problems)
    Ids += F.Id + " ";
  return Ids;
}

/// With the include that a change wants which puts `accel;` before `Use`.
std::string withInclude(llvm::StringRef Text, llvm::StringRef Use = "") {
  std::vector<Change> Changes;
  if (!Use.empty())
    Changes.push_back(change(Text.find(Use), 0, "accel;"));
  std::optional<Change> C = accelInclude("/p/a.cpp", Text, Changes);
  return C ? apply(Text, {*C}) : Text.str();
}

std::string diff(std::string Before, std::vector<Change> Changes) {
  FileEdit Edit;
  Edit.File = "/p/a.cpp";
  Edit.Before = std::move(Before);
  Change Culprit;
  Edit.After = llvm::cantFail(applyChanges(Edit.Before, Changes, Culprit));
  Edit.Changes = std::move(Changes);
  std::string Text;
  llvm::raw_string_ostream OS(Text);
  printDiff(OS, Edit, /*Colored=*/false);
  return Text;
}

} // namespace

TEST(Apply, OrdersInsertionsByPriorityThenAsGiven) {
  EXPECT_EQ(apply("ab", {change(1, 0, "3", 1), change(1, 0, "1"),
                         change(1, 0, "2"), change(1, 0, "0", -1)}),
            "a0123b");
}

TEST(Apply, InsertsBeforeWhatIsReplacedAndBehindWhatWasReplaced) {
  EXPECT_EQ(apply("abcd", {change(1, 2, "XY", -5), change(1, 0, "("),
                           change(3, 0, ")")}),
            "a(XY)d");
}

TEST(Apply, RefusesOverlaps) {
  EXPECT_EQ(apply("abcd", {change(0, 2, "x"), change(1, 2, "y")}),
            "error at 1: it changes text that another change replaces");
  EXPECT_EQ(apply("abcd", {change(0, 3, "x"), change(1, 0, "y")}),
            "error at 1: it changes text that another change replaces");
  EXPECT_EQ(apply("abcd", {change(3, 2, "x")}),
            "error at 3: it lies behind the end of the file");
}

TEST(Merge, MakesAChangeOfASharedHeaderOnce) {
  std::map<std::string, std::string> Header = {{"/p/h.h", "f(x);\n"}};
  auto A = Header, B = Header;
  A["/p/a.cpp"] = "a";
  B["/p/b.cpp"] = "b";
  std::vector<Change> Wrap = {change(0, 0, "g(", 0, "/p/h.h"),
                              change(4, 0, ")", 0, "/p/h.h"),
                              change(4, 0, ")", 0, "/p/h.h"),
                              change(0, 1, "F", 0, "/p/h.h")};
  auto WithOwn = Wrap;
  WithOwn.push_back(change(0, 1, "A", 0, "/p/a.cpp"));
  auto Groups = merge({unit("/p/a.cpp", A, WithOwn), unit("/p/b.cpp", B, Wrap)});
  ASSERT_EQ(Groups.size(), 1u);
  ASSERT_FALSE(Groups[0].Refused);
  ASSERT_EQ(Groups[0].Files.size(), 2u);
  EXPECT_EQ(Groups[0].Files[0].After, "A");
  EXPECT_EQ(Groups[0].Files[1].After, "g(F(x)));\n");
}

TEST(Merge, TakesWhatOnlyOneUnitSeesInAHeader) {
  // A template that one unit instantiates and the other does not.
  std::map<std::string, std::string> A = {{"/p/h.h", "f"}, {"/p/a.cpp", ""}},
                                     B = {{"/p/h.h", "f"}, {"/p/b.cpp", ""}};
  auto Groups = merge({unit("/p/a.cpp", A, {change(0, 1, "g", 0, "/p/h.h")}),
                       unit("/p/b.cpp", B, {})});
  ASSERT_EQ(Groups.size(), 1u);
  EXPECT_EQ(Groups[0].Units.size(), 2u) << "b.cpp must be parsed again too";
  ASSERT_EQ(Groups[0].Files.size(), 1u);
  EXPECT_EQ(Groups[0].Files[0].After, "g");
}

TEST(Merge, KeepsUnitsThatShareNothingApart) {
  auto Bad = unit("/p/b.cpp", {{"/p/b.cpp", "b"}}, {});
  Bad.ThePlan.Findings.push_back(Finding{"ACL0105", Severity::Refusal, {}, 0, 0, "no", ""});
  auto Groups = merge({unit("/p/a.cpp", {{"/p/a.cpp", "a"}}, {change(0, 1, "A")}), Bad});
  ASSERT_EQ(Groups.size(), 2u);
  EXPECT_FALSE(Groups[0].Refused);
  EXPECT_TRUE(Groups[1].Refused);
}

TEST(Merge, RefusesAllThatMustChangeTogether) {
  std::map<std::string, std::string> A = {{"/p/h.h", "f"}, {"/p/a.cpp", ""}},
                                     B = {{"/p/h.h", "f"}, {"/p/b.cpp", ""}};
  auto Bad = unit("/p/b.cpp", B, {});
  Bad.ThePlan.Findings.push_back(Finding{"ACL0105", Severity::Refusal, {}, 0, 0, "no", ""});
  auto Groups = merge({unit("/p/a.cpp", A, {change(0, 1, "g", 0, "/p/h.h")}), Bad});
  ASSERT_EQ(Groups.size(), 1u);
  EXPECT_TRUE(Groups[0].Refused);
  EXPECT_TRUE(Groups[0].Files.empty());
  EXPECT_EQ(idsOf(Groups[0]), "ACL0015 ");
  EXPECT_EQ(Groups[0].Problems[0].Range.File, "/p/a.cpp");
}

TEST(Merge, RefusesConflicts) {
  auto Overlap = merge({unit("/p/a.cpp", {{"/p/a.cpp", "x\nabcd"}},
                             {change(2, 2, "x"), change(3, 2, "y")})});
  EXPECT_EQ(idsOf(Overlap[0]), "ACL0016 ");
  EXPECT_EQ(Overlap[0].Problems[0].Line, 2u);
  EXPECT_EQ(Overlap[0].Problems[0].Column, 2u);

  std::map<std::string, std::string> A = {{"/p/h.h", "f"}, {"/p/a.cpp", ""}},
                                     B = {{"/p/h.h", "f"}, {"/p/b.cpp", ""}};
  for (unsigned Length : {0u, 1u}) {
    auto Disagree =
        merge({unit("/p/a.cpp", A, {change(0, Length, "g", 0, "/p/h.h")}),
               unit("/p/b.cpp", B, {change(0, Length, "h", 0, "/p/h.h")})});
    EXPECT_EQ(idsOf(Disagree[0]), "ACL0016 ") << Length;
    EXPECT_TRUE(Disagree[0].Refused);
    EXPECT_TRUE(Disagree[0].Files.empty());
  }
}

TEST(Merge, RefusesChangesOutsideOfTheProject) {
  auto Groups = merge({unit("/p/a.cpp", {{"/p/a.cpp", ""}, {"/q/h.h", "f"}},
                            {change(0, 1, "g", 0, "/q/h.h")})});
  EXPECT_EQ(idsOf(Groups[0]), "ACL0014 ");
  EXPECT_EQ(Groups[0].Problems[0].Range.File, "/q/h.h");
}

TEST(Include, StandsBehindTheLastTorchInclude) {
  EXPECT_EQ(withInclude("#include <a>\n#include <torch/torch.h>\n\n#include <b>\n"),
            "#include <a>\n#include <torch/torch.h>\n#include <accel/accel.h>\n\n"
            "#include <b>\n");
  EXPECT_EQ(withInclude("#include \"torch/torch.h\"\r\n#  include <torch/script.h> // x\r\nint i;"),
            "#include \"torch/torch.h\"\r\n#  include <torch/script.h> // x\r\n"
            "#include <accel/accel.h>\r\nint i;");
}

TEST(Include, AvoidsInnerConditionals) {
  EXPECT_EQ(withInclude("#ifndef A_H\n#define A_H\n#include <torch/torch.h>\n#ifdef CUDA\n"
                        "#include <torch/cuda.h>\n#endif\n#endif\n"),
            "#ifndef A_H\n#define A_H\n#include <torch/torch.h>\n#include <accel/accel.h>\n"
            "#ifdef CUDA\n#include <torch/cuda.h>\n#endif\n#endif\n");
}

TEST(Include, IsNotFooledByCommentsAndStrings) {
  EXPECT_EQ(withInclude("#include <torch/torch.h>\n/*\n#include <torch/script.h>\n*/\n"
                        "const char* s = R\"(\n#include <torch/nn.h>\n)\";\n"),
            "#include <torch/torch.h>\n#include <accel/accel.h>\n/*\n#include "
            "<torch/script.h>\n*/\nconst char* s = R\"(\n#include <torch/nn.h>\n)\";\n");
}

TEST(Include, FindsAPlaceInEveryFile) {
  EXPECT_EQ(withInclude("#include <torch/torch.h>"),
            "#include <torch/torch.h>\n#include <accel/accel.h>");
  EXPECT_EQ(withInclude("#include \"net.h\"\nint i;\n"),
            "#include \"net.h\"\n#include <accel/accel.h>\nint i;\n");
  // Neither a list that a function reads nor what a namespace holds is a place.
  EXPECT_EQ(withInclude("#include \"net.h\"\nint f() {\n#include \"list.def\"\n}\n"),
            "#include \"net.h\"\n#include <accel/accel.h>\nint f() {\n#include \"list.def\"\n}\n");
  EXPECT_EQ(withInclude("// About.\n#pragma once\nint i;\n"),
            "// About.\n#pragma once\n#include <accel/accel.h>\nint i;\n");
  EXPECT_EQ(withInclude("\xEF\xBB\xBFint i;\r\n"),
            "\xEF\xBB\xBF#include <accel/accel.h>\r\nint i;\r\n");
}

TEST(Include, IsThereOnce) {
  EXPECT_FALSE(accelInclude("/p/a.cpp", "#include <torch/torch.h>\n#include <accel/accel.h>\n", {}));
  EXPECT_FALSE(accelInclude("/p/a.cpp", "#include \"accel/accel.h\"\n#include <torch/torch.h>\n", {}));
}

TEST(Include, ComesBeforeTheFirstUse) {
  EXPECT_EQ(withInclude("#include <torch/torch.h>\nint i;\n#include <torch/script.h>\nint j;\n", "int i"),
            "#include <torch/torch.h>\n#include <accel/accel.h>\nint i;\n#include <torch/script.h>\nint j;\n");
  EXPECT_EQ(withInclude("#include <torch/torch.h>\nint i;\n#include <accel/accel.h>\n", "int i"),
            "#include <torch/torch.h>\n#include <accel/accel.h>\nint i;\n#include <accel/accel.h>\n");
  EXPECT_EQ(withInclude("int i;\n#include <torch/torch.h>\n", "int i"),
            "#include <accel/accel.h>\nint i;\n#include <torch/torch.h>\n");
  // What a macro is replaced by is used behind the includes.
  EXPECT_EQ(withInclude("#define SHOW \\\n  std::cout\n#include <torch/torch.h>\n", "std::cout"),
            "#define SHOW \\\n  std::cout\n#include <torch/torch.h>\n#include <accel/accel.h>\n");
}

TEST(Diff, SeparatesDistantChangesAndJoinsNearOnes) {
  std::string Before;
  for (int Line = 1; Line <= 30; ++Line)
    Before += std::to_string(Line) + "\n";
  auto At = [&](const char *Line) { return unsigned(Before.find(Line)) + 1; };
  EXPECT_EQ(diff(Before, {change(At("\n5\n"), 1, "five"), change(At("\n9\n"), 1, "nine"),
                          change(At("\n29\n"), 0, "new\n")}),
            "# /p/a.cpp:5: why [rule]\n# /p/a.cpp:29: why [rule]\n--- a/p/a.cpp\n+++ b/p/a.cpp\n"
            "@@ -2,11 +2,11 @@ why [rule]\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n-9\n+nine\n 10\n 11\n 12\n"
            "@@ -26,5 +26,6 @@ why [rule]\n 26\n 27\n 28\n+new\n 29\n 30\n");
}

TEST(Diff, RemovesAndAddsLines) {
  EXPECT_EQ(diff("a\nb\nc\nd\n", {change(2, 4, "")}),
            "# /p/a.cpp:2: why [rule]\n--- a/p/a.cpp\n+++ b/p/a.cpp\n@@ -1,4 +1,2 @@ why [rule]\n a\n-b\n-c\n d\n");
  EXPECT_EQ(diff("a\nb\n", {change(2, 1, "x\ny"), change(1, 0, ";")}),
            "# /p/a.cpp:1: why [rule]\n--- a/p/a.cpp\n+++ b/p/a.cpp\n@@ -1,2 +1,3 @@ why [rule]\n-a\n-b\n+a;\n+x\n+y\n");
}

TEST(Diff, SaysWhereTheLastLineHasNoEnd) {
  EXPECT_EQ(diff("a\nb", {change(2, 1, "c")}),
            "# /p/a.cpp:2: why [rule]\n--- a/p/a.cpp\n+++ b/p/a.cpp\n@@ -1,2 +1,2 @@ why [rule]\n a\n-b\n\\ No newline at end of "
            "file\n+c\n\\ No newline at end of file\n");
  EXPECT_EQ(diff("a", {change(1, 0, "\nb")}),
            "# /p/a.cpp:1: why [rule]\n--- a/p/a.cpp\n+++ b/p/a.cpp\n@@ -1,1 +1,2 @@ why [rule]\n-a\n\\ No newline at end of file\n"
            "+a\n+b\n\\ No newline at end of file\n");
}

TEST(Diff, NamesTheRulesOfAHunkWithSeveralReasons) {
  Change Second = change(2, 1, "B");
  Second.Rule = "other";
  Second.Why = "because";
  EXPECT_EQ(diff("a\nb\n", {change(0, 1, "A"), Second}),
            "# /p/a.cpp:1: why [rule]\n# /p/a.cpp:2: because [other]\n"
            "--- a/p/a.cpp\n+++ b/p/a.cpp\n@@ -1,2 +1,2 @@ [rule, other], see above\n"
            "-a\n-b\n+A\n+B\n");
}

static std::string separated(std::string Before, std::vector<Change> Changes) {
  FileEdit Edit;
  Edit.Before = std::move(Before);
  Change Culprit;
  Edit.After = llvm::cantFail(applyChanges(Edit.Before, Changes, Culprit));
  Edit.Changes = std::move(Changes);
  std::string Text;
  for (const Change &C : separateChanges(Edit))
    Text += std::to_string(C.Range.Offset) + "+" + std::to_string(C.Range.Length) +
            "=" + C.Replacement + "(" + C.Rule + "/" + C.Why + ") ";
  return Text;
}

TEST(SeparateChanges, JoinsWhatMeets) {
  Change Other = change(3, 1, "D");
  Other.Rule = "other";
  // Two insertions at one place, one that ends where the next begins, and one
  // a character away.
  EXPECT_EQ(separated("abcdefg", {change(1, 0, "x"), change(1, 0, "y"), change(2, 1, "C"), Other,
                                  change(5, 1, "F")}),
            "1+0=xy(rule/why) 2+2=CD(rule, other/why) 5+1=F(rule/why) ");
}

TEST(Paths, CommonFolder) {
  EXPECT_EQ(commonFolder({"/p/a.cpp"}), "/p");
  EXPECT_EQ(commonFolder({"/p/src/a.cpp", "/p/source/b.cpp"}), "/p");
  EXPECT_EQ(commonFolder({"/p/src/a.cpp", "/q/b.cpp"}), "");
}

TEST(Places, LineAndColumn) {
  EXPECT_EQ(lineAndColumn("ab\ncd", 0), std::make_pair(1u, 1u));
  EXPECT_EQ(lineAndColumn("ab\ncd", 3), std::make_pair(2u, 1u));
  EXPECT_EQ(lineAndColumn("ab\ncd", 4), std::make_pair(2u, 2u));
}
