"""Compares Findings.def, the pages in docs/findings and the pages in the tool.

What the tool's sources can give has a test that names it; what they cannot has
no row and no page, and is in the list of retired findings.
"""

import os
import re
import sys

table, folder, embedded, sources, tests = sys.argv[1:]


def texts(where):
    for directory, _, names in os.walk(where):
        for name in names:
            if name.endswith((".cpp", ".h", ".test")):
                yield open(os.path.join(directory, name), encoding="utf-8").read()


given = {finding for text in texts(sources) for finding in re.findall(r'"(ACL\d{4})"', text)}
tested = {finding for text in texts(tests) for finding in re.findall(r"ACL\d{4}", text)}
titles = dict(re.findall(r'^ACCEL_FINDING\((ACL\d{4}), \w+, "(.*)"\)', open(table).read(), re.MULTILINE))
pages = {name[:-3] for name in os.listdir(folder) if name.startswith("ACL")}
inside = set(open(embedded).read().split())
wrong = [f"{finding} is in the table or has a page, but not both" for finding in set(titles) ^ pages]
wrong += [f"{finding} is not compiled into the tool" for finding in pages - inside]
for finding, title in titles.items():
    if finding in pages:
        first = open(os.path.join(folder, finding + ".md")).readline().strip()
        if first != f"# {finding}: {title}":
            wrong.append(f"the page of {finding} begins with '{first}', the table says '{title}'")
wrong += [f"no test names {finding}" for finding in given - tested]
wrong += [f"the tool never gives {finding}" for finding in pages - given]
retired = set(re.findall(r"ACL\d{4}", open(os.path.join(folder, "retired.md")).read()))
wrong += [f"{finding} is retired, and used" for finding in retired & (set(titles) | given)]
assert titles and inside and len(given) > 30 and len(tested) > 30 and retired
sys.exit("\n".join(wrong) or 0)
