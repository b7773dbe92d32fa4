"""Builds the site: build.py WORK

The folder WORK gets src/, the pages as MkDocs reads them (docs/ with the tables and the reference that are made), and
site/. What docs/ links outside of itself has no page and is left as text.
"""

import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_links
import reference

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def table_of(folder, introduction, title_of):
    rows = []
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".md") or name in ("index.md", "retired.md"):
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            text = file.read()
        rows.append(title_of(name, text))
    return introduction + "\n\n| | |\n|---|---|\n" + "\n".join(f"| [{left}]({name}) | {right} |" for name, left, right in rows) + "\n"


def finding(name, text):
    identity, _, about = text.splitlines()[0].lstrip("# ").partition(": ")
    return name, identity, about


def rule(name, text):
    parts = [part for part in text.split("\n\n") if part.strip()]
    return name, f"`{name[:-3]}`", " ".join(parts[1].split())


def main():
    work = os.path.abspath(sys.argv[1])
    src = os.path.join(work, "src")
    shutil.rmtree(src, ignore_errors=True)
    shutil.copytree(os.path.join(ROOT, "docs"), src)
    outside = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:test|runtime|tool|templates|examples|bench|scripts)/[^)]*\)")
    for folder, _, names in os.walk(src):
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".md"):
                with open(path, encoding="utf-8") as file:
                    text = file.read()
                with open(path, "w", encoding="utf-8") as file:
                    file.write(outside.sub(r"\1", text))
    with open(f"{src}/findings/index.md", "w", encoding="utf-8") as file:
        file.write(table_of(f"{src}/findings", "# Findings\n\nWhat `accel-migrate` says of a program, by number. "
                            "`accel-migrate --explain ACL0105` prints a page; [retired](retired.md) numbers are not used again.", finding))
    with open(f"{src}/rules/index.md", "w", encoding="utf-8") as file:
        file.write(table_of(f"{src}/rules", "# Rules\n\nEach kind of change has a name, which stands behind it in diffs "
                            "and reports. `accel-migrate --explain backward` prints a page.", rule))
    os.makedirs(f"{src}/assets")
    shutil.copy(os.path.join(ROOT, "packaging/site/site.css"), f"{src}/assets/site.css")
    pages, undocumented = reference.write_reference(os.path.join(ROOT, "runtime/include"), work, f"{src}/reference")
    with open(os.path.join(ROOT, "packaging/site/mkdocs.yml"), encoding="utf-8") as file:
        configuration = file.read()
    # The classes stand in the navigation by namespace.
    lines = []
    for name, page in sorted(pages, key=lambda entry: entry[0].lower()):
        lines.append(f"      - \"{name.replace('accel::', '', 1)}\": reference/{page}")
    configuration = configuration.replace("      - reference/index.md\n", "      - reference/index.md\n" + "\n".join(lines) + "\n")
    if os.path.exists(f"{src}/parallelism.md"):
        configuration = configuration.replace("      - Checkpoints: ", "      - Parallelism: parallelism.md\n      - Checkpoints: ")
    if os.path.exists(f"{src}/contributing.md"):
        configuration = configuration.replace("      - Testing: ", "      - Contributing: contributing.md\n      - Testing: ")
    with open(f"{work}/mkdocs.yml", "w", encoding="utf-8") as file:
        file.write(configuration)
    with open(f"{work}/undocumented.txt", "w", encoding="utf-8") as file:
        file.write("".join(name + "\n" for name in sorted(undocumented)))
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "--clean", "-f", f"{work}/mkdocs.yml"], check=True,
                   env=dict(os.environ, NO_MKDOCS_2_WARNING="1"))
    problems = check_links.check(f"{work}/site")
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(pages)} pages of the reference, {len(undocumented)} public names without a comment ({work}/undocumented.txt)")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
