#!/usr/bin/env python3
"""The tests of the rules in other forms: what a rule does to a program it does
wherever the program's text stands.

For the train.cpp of each test that has a rule's name:

  header   the text of main is a function template in a header. It becomes what
           the test expects, line for line, and the tool, which looks at that
           itself, says that the output compiles.
  macro    for each rule: the first line that it changes is written by a macro.
           The program is refused with a finding that names the macro, or what
           is written by it stays as it is, or is changed in the macro.

Rules that only put lines of their own between a program's have no macro form.
What a rule would have mended may be what is refused then.

    forms.py --tool accel-migrate --pages docs/rules --work DIR [--second] [--show] TEST...
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--tool", required=True)
parser.add_argument("--pages", required=True, help="the folder with a page for each rule")
parser.add_argument("--work", required=True)
parser.add_argument("--second", action="store_true", help="run the tool on its output, too: it must change nothing")
parser.add_argument("--show", action="store_true", help="print what was done to each program")
parser.add_argument("tests", nargs="+")
options = parser.parse_args()
problems = []


def problem(text):
    problems.append(text)
    print(text)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def sections(test):
    """The files that split-file makes of a test."""
    parts = re.split(r"^//--- (\S+)\n", read(test), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def write(folder, files):
    os.makedirs(folder)
    for name, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)


def run(*arguments):
    """The tool's report, per program."""
    done = subprocess.run([options.tool, "--format=json", *arguments], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"the tool ended with {done.returncode}\n{done.stdout}{done.stderr}")
    report = json.loads(done.stdout)
    result = collections.defaultdict(lambda: {"changes": [], "findings": []})
    entries = [("changes", file["path"], change) for file in report["files"] for change in file["changes"]]
    entries += [("findings", finding["path"], finding) for finding in report["findings"]]
    for what, path, entry in entries:
        path = os.path.relpath(os.path.join(report["directory"], path), os.path.realpath(options.work))
        result[os.path.dirname(path)][what].append(dict(entry, path=path))
    return result


MAKES_ACCELERATOR = ("accel::Accelerator accelerator(", "auto& accelerator = accel::accelerator();", "#include <accel/")


def line_changes(before, after):
    """(1, line) for the lines that `after` has more of, (-1, line) for those it has less of, and how many. Where an accelerator
    comes from is another line in each function, each file has its #include, and what hides a name differs."""
    lines = [collections.Counter(re.sub(r"(?<!\w)::", "", line.strip()) for line in text.splitlines()
                                 if not line.strip().startswith(MAKES_ACCELERATOR)) for text in (before, after)]
    changes = [(1, lines[1] - lines[0]), (-1, lines[0] - lines[1])]
    return collections.Counter({(sign, line): count for sign, counts in changes for line, count in counts.items()})


MAIN = re.compile(r"^int main\(([^)]*)\) \{\n", re.MULTILINE)


def in_header(text):
    """main's text in a function template; None where it is not the last of the file."""
    main = MAIN.search(text)
    if not main or not text.endswith("}\n"):
        return None
    body = text[main.end():-2]
    if re.search(r"^\}", body, re.MULTILINE):
        return None
    parameters = main.group(1)
    names = ", ".join(re.findall(r"(\w+)(?:\[\])?(?:,|$)", parameters))
    kind, call = ("int", "return run") if "return " in body else ("void", "run")
    comma = ", " if parameters else ""
    return {"train.h": f"#pragma once\n{text[:main.start()]}template <typename Unused>\n"
                       f"{kind} run({parameters}{comma}Unused) {{\n{body}}}\n",
            "train.cpp": f'#include "train.h"\n\nint main({parameters}) {{\n  {call}({names}{comma}0);\n}}\n'}


def by_macro(text, line):
    """The statement that begins on that line, written by a macro."""
    lines = text.split("\n")
    last, depth = line - 1, 0
    while True:
        code = lines[last].split("//")[0].rstrip()
        depth += code.count("(") - code.count(")")
        if depth <= 0 and code.endswith((";", "{", "}", ":")):
            break
        last += 1
        if last == len(lines):
            return None
    statement = " ".join(l.split("//")[0].strip() for l in lines[line - 1:last + 1])
    if "#" in statement:
        return None
    include = max(i for i, l in enumerate(lines) if l.startswith("#include"))
    return "\n".join(lines[:include + 1] + ["", f"#define WRITTEN {statement}"] + lines[include + 1:line - 1]
                     + ["  WRITTEN"] + lines[last + 1:])


# The file that is read before it is written.
INSTEAD = {"readable-path": "ACL0226"}
# What stays LibTorch's where it is written by a macro, with a note.
STAYS = {"optimizer": "ACL0182", "scheduler": "ACL0178", "distribute": ""}
# What cannot be changed in the macro. All else is: of what was put there this is a part.
REFUSED = {"device"}
INSIDE = collections.defaultdict(lambda: "accel::accelerator().", {"loader": "accel::data::", "deferred": "std::launch::deferred"})

sources = {}
for test in options.tests:
    rule = os.path.splitext(os.path.basename(test))[0]
    files = sections(test)
    if "train.cpp" in files and os.path.exists(os.path.join(options.pages, rule + ".md")):
        sources[rule] = files

header, wanted = {}, {}
for name, files in sources.items():
    forms = in_header(files["train.cpp"])
    if forms:
        header[name] = dict({path: text for path, text in files.items() if not path.startswith("expected")}, **forms)
        wanted[name] = line_changes(files["train.cpp"], files["expected.cpp"])
        write(os.path.join(options.work, "header", name), header[name])
if not header:
    sys.exit("no test has the form that is looked for")
paths = [os.path.join(options.work, "header", name, "train.cpp") for name in header]
done = run("--write", *paths)
for name, files in header.items():
    now = sum((line_changes(files[path], read(os.path.join(options.work, "header", name, path)))
               for path in ("train.h", "train.cpp")), collections.Counter())
    if wanted[name] != now:
        problem(f"header/{name}: {dict(wanted[name] - now)} are missing, {dict(now - wanted[name])} are new")
    if options.show:
        print(name, *now, sep="\n  ")
if options.second:
    again = run("--check", *paths)
    for name in header:
        if again[f"header/{name}"]["changes"]:
            problem(f"header/{name}: a second run changes {again[f'header/{name}']['changes']}")

macro = {}
for name, files in header.items():
    text = sources[name]["train.cpp"]
    main = text[:MAIN.search(text).start()].count("\n") + 1
    for change in done[f"header/{name}"]["changes"]:
        whole_line = change["length"] == 0 and change["replacement"].endswith("\n")
        if change["rule"] in macro or whole_line or not change["path"].endswith("/train.h"):
            continue
        # The header has a line before the first, and main's has become two.
        line = change["line"] - (1 if change["line"] <= main else 2)
        written = by_macro(text, line)
        if written:
            macro[change["rule"]] = {"train.cpp": written}
            write(os.path.join(options.work, "macro", change["rule"]),
                  dict({path: text for path, text in files.items() if path not in ("train.h", "train.cpp")}, **macro[change["rule"]]))
done = run(*(os.path.join(options.work, "macro", rule, "train.cpp") for rule in macro))
for rule, files in macro.items():
    result = done[f"macro/{rule}"]
    if rule in STAYS:
        if not any(f["id"].startswith(STAYS[rule]) for f in result["findings"]) and STAYS[rule]:
            problem(f"macro/{rule}: no note {STAYS[rule]}")
        continue
    if rule not in REFUSED and rule not in INSTEAD:
        defined = files["train.cpp"].split("\n#define WRITTEN")[0].count("\n") + 2
        if not any(c["line"] == defined and INSIDE[rule] in c["replacement"] for c in result["changes"]):
            problem(f"macro/{rule}: not changed in the macro: {result['changes']}")
        continue
    refusals = [f["id"] + " " + f["message"] for f in result["findings"] if f["level"] == "refusal"]
    if not any("macro" in text or text.startswith(INSTEAD.get(rule, "macro")) for text in refusals):
        changes = [change["replacement"] for change in result["changes"] if change["rule"] == rule]
        problem(f"macro/{rule}: not refused for its macro: {refusals or changes}")
    if options.show:
        print(rule, refusals)
print(f"{len(header)} programs in a header, {len(macro)} rules by a macro")
sys.exit(1 if problems else 0)
