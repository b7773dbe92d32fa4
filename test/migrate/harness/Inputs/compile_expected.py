#!/usr/bin/env python3
"""Compiles what the tests expect, all in one: expected.cpp of each test that has the
tool's output compared with it, so that the output itself need not be compiled. Each
is read in a namespace of its own; most of the time goes into LibTorch's and accel's
templates, which are instantiated once.

    compile_expected.py --work DIR TEST... -- COMPILER OPTION...
"""

import os
import re
import subprocess
import sys

COMPARED = "diff -u %t/expected.cpp %t/train.cpp"
# What adds to a namespace of somebody else's, or names what is global, means another one
# inside of a namespace: the test compiles it by itself.
GLOBAL = re.compile(r"^(namespace (std|torch|at|c10|accel)\b|template <>)", re.MULTILINE)
ALONE = re.compile(r"RUN: .*%clangxx(_plain)? .*%t/train\.cpp")


def sections(text):
    """The files that split-file makes of a test."""
    parts = re.split(r"^(?://|#)--- (\S+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def main():
    split = sys.argv.index("--")
    work, tests, compiler = sys.argv[2], sys.argv[3:split], sys.argv[split + 1:]
    headers, programs = {"torch/torch.h", "accel/accel.h"}, []
    for test in tests:
        with open(test, encoding="utf-8") as file:
            text = file.read()
        if COMPARED not in text or ALONE.search(text):
            continue
        folder = os.path.join(work, os.path.splitext(os.path.basename(test))[0])
        for name, content in sections(text).items():
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(content)
        expected = sections(text)["expected.cpp"]
        if GLOBAL.search(expected):
            sys.exit(f"{test}: what is expected cannot stand in a namespace: add RUN: %clangxx %t/train.cpp")
        headers.update(re.findall(r"^#include <(.+)>", "".join(sections(text).values()), flags=re.MULTILINE))
        programs.append(folder)
    together = os.path.join(work, "together.cpp")
    with open(together, "w", encoding="utf-8") as file:
        file.writelines(f"#include <{header}>\n" for header in sorted(headers))
        for number, folder in enumerate(programs):
            file.write(f'namespace program{number} {{\n#include "{os.path.join(folder, "expected.cpp")}"\n}}\n')
    # A main in a namespace needs a return at its end.
    done = subprocess.run([*compiler, "-Wno-return-type", together])
    print(f"{len(programs)} programs compiled")
    sys.exit(done.returncode)


main()
