"""Compares Findings.def, the pages in docs/findings and the pages in the tool."""

import os
import re
import sys

table, folder, embedded = sys.argv[1:]
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
assert titles and inside
sys.exit("\n".join(wrong) or 0)
