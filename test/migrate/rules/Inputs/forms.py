#!/usr/bin/env python3
"""The tests of the rules in other forms: what a rule does to a program it does
wherever the program's text stands.

For the train.cpp of each test that has a rule's name:

  header   the text of main is a function template in a header. The same rules
           change it as often as in the source, and the tool, which looks at
           that itself, says that the output compiles.
  macro    for each rule: the first line that it changes is written by a macro.
           The program is refused with a finding that names the macro, or what
           is written by it stays as it is.

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


def sections(test):
    """The files that split-file makes of a test."""
    with open(test, encoding="utf-8") as file:
        parts = re.split(r"^//--- (\S+)\n", file.read(), flags=re.MULTILINE)
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


def count(changes):
    """How often each rule changes something. Where an accelerator comes from is
    another line in each function, and each file has its #include."""
    return collections.Counter(c["rule"] for c in changes if c["rule"] not in ("accelerator", "include"))


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

sources = {}
for test in options.tests:
    rule = os.path.splitext(os.path.basename(test))[0]
    files = sections(test)
    if "train.cpp" in files and os.path.exists(os.path.join(options.pages, rule + ".md")):
        sources[rule] = {name: text for name, text in files.items() if not name.startswith("expected")}
for name, files in sources.items():
    write(os.path.join(options.work, "plain", name), files)
plain = run(*(os.path.join(options.work, "plain", name, "train.cpp") for name in sources))

header = {}
for name, files in sources.items():
    forms = in_header(files["train.cpp"])
    if forms:
        header[name] = dict(files, **forms)
        write(os.path.join(options.work, "header", name), header[name])
if not header:
    sys.exit("no test has the form that is looked for")
paths = [os.path.join(options.work, "header", name, "train.cpp") for name in header]
done = run("--write", *paths)
for name in header:
    was, now = count(plain[f"plain/{name}"]["changes"]), count(done[f"header/{name}"]["changes"])
    if was != now:
        problem(f"header/{name}: {dict(was - now)} are missing, {dict(now - was)} are new")
    if options.show:
        print(name, dict(now))
if options.second:
    again = run("--check", *paths)
    for name in header:
        if again[f"header/{name}"]["changes"]:
            problem(f"header/{name}: a second run changes {dict(count(again[f'header/{name}']['changes']))}")

macro = {}
for name, files in sources.items():
    for change in plain[f"plain/{name}"]["changes"]:
        whole_line = change["length"] == 0 and change["replacement"].endswith("\n")
        if change["rule"] in macro or whole_line or not change["path"].endswith("/train.cpp"):
            continue
        text = by_macro(files["train.cpp"], change["line"])
        if text:
            macro[change["rule"]] = dict(files, **{"train.cpp": text})
            write(os.path.join(options.work, "macro", change["rule"]), macro[change["rule"]])
done = run(*(os.path.join(options.work, "macro", rule, "train.cpp") for rule in macro))
for rule, files in macro.items():
    result = done[f"macro/{rule}"]
    if rule in STAYS:
        if not any(f["id"].startswith(STAYS[rule]) for f in result["findings"]) and STAYS[rule]:
            problem(f"macro/{rule}: no note {STAYS[rule]}")
        continue
    refusals = [f["id"] + " " + f["message"] for f in result["findings"] if f["level"] == "refusal"]
    if not any("macro" in text or text.startswith(INSTEAD.get(rule, "macro")) for text in refusals):
        problem(f"macro/{rule}: not refused for its macro: {refusals or dict(count(result['changes']))}")
    if options.show:
        print(rule, refusals)
print(f"{len(header)} programs in a header, {len(macro)} rules by a macro")
sys.exit(1 if problems else 0)
