#!/usr/bin/env python3
"""Every test that docs/parity.md names must exist in the sources of the tests.

    check_parity.py PARITY.md TEST_FOLDER
"""
import pathlib
import re
import sys

parity, tests = map(pathlib.Path, sys.argv[1:])
known = set()
for source in tests.rglob("*.cpp"):
    for suite, name in re.findall(r"^TEST(?:_F)?\((\w+),\s*(\w+)\)", source.read_text(), re.M):
        known.update((f"{suite}.{name}", f"{suite}.*"))

named = missing = 0
row = re.compile(r"`([A-Z]\w+\.(?:\w+|\*))`")
for number, line in enumerate(parity.read_text().splitlines(), 1):
    for test in row.findall(line):
        named += 1
        if test not in known:
            missing += 1
            print(f"{parity}:{number}: there is no test {test}")
if named < 60:
    missing += 1
    print(f"only {named} tests are named: is {parity} the right file?")
sys.exit(1 if missing else 0)
