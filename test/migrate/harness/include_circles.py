"""Fails where folders, or files, include each other in a circle.

    include_circles.py FOLDER

Prints how the folders below FOLDER depend on each other. An include with a folder
in it ("Code/Unit.h") is looked up from FOLDER, one without beside the file.
"""

import os
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def included(root):
    """What each file includes, of the files below root."""
    graph = {}
    for folder, _, names in os.walk(root):
        for name in names:
            if not name.endswith((".h", ".cpp", ".def")):
                continue
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as file:
                text = file.read()
            found = set()
            for target in INCLUDE.findall(text):
                for base in (folder, root):
                    candidate = os.path.normpath(os.path.join(base, target))
                    if os.path.exists(candidate):
                        found.add(os.path.relpath(candidate, root))
                        break
            graph[os.path.relpath(path, root)] = found
    return graph


def circle(graph):
    """A way that leads back to where it begins, or None."""
    done = set()

    def follow(node, way):
        if node in way:
            return way[way.index(node):] + [node]
        if node in done:
            return None
        for target in sorted(graph.get(node, ())):
            if found := follow(target, way + [node]):
                return found
        done.add(node)
        return None

    for node in sorted(graph):
        if found := follow(node, []):
            return found
    return None


def main():
    files = included(os.path.abspath(sys.argv[1]))
    if not files:
        sys.exit(f"{sys.argv[1]}: no sources")
    folders = {}
    for path, targets in files.items():
        here = os.path.dirname(path) or "."
        folders.setdefault(here, set()).update(
            other for other in (os.path.dirname(target) or "." for target in targets) if other != here)
    for folder in sorted(folders):
        print(f"{folder}: {' '.join(sorted(folders[folder]))}".rstrip())
    for kind, graph in (("files", files), ("folders", folders)):
        if found := circle(graph):
            sys.exit(f"{kind} include each other in a circle: {' -> '.join(found)}")


main()
