"""Builds the site: build.py WORK

The folder WORK gets src/, the pages as MkDocs reads them (docs/ with the tables and the reference that are made), and
site/. What docs/ links outside of itself has no page and is left as text.
"""

import html
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_links
import code_blocks
import reference

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def table_of(folder, introduction, heading, title_of):
    rows = []
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".md") or name in ("index.md", "retired.md"):
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            text = file.read()
        rows.append(title_of(name, text))
    return introduction + f"\n\n| {heading} |\n|---|---|\n" + "\n".join(f"| [{left}]({name}) | {right} |" for name, left, right in rows) + "\n"


def bars_in_code(text):
    """The tables with | in code as MkDocs wants it; elsewhere it is written \\|."""
    code = re.compile(r"`([^`]*\\\|[^`]*)`")
    return "\n".join(code.sub(lambda found: "<code>" + html.escape(found[1]).replace("\\|", "&#124;") + "</code>", line)
                     if line.startswith("|") else line for line in text.split("\n"))


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
                    file.write(code_blocks.fenced(bars_in_code(outside.sub(r"\1", text))))
    with open(f"{src}/findings/index.md", "w", encoding="utf-8") as file:
        file.write(table_of(f"{src}/findings", "# Findings\n\nWhat `accel-migrate` says of a program, by number. "
                            "`accel-migrate --explain ACL0105` prints a page; [retired](retired.md) numbers are not used again.",
                            "finding | what it says", finding))
    with open(f"{src}/rules/index.md", "w", encoding="utf-8") as file:
        file.write(table_of(f"{src}/rules", "# Rules\n\nEach kind of change has a name, which stands behind it in diffs "
                            "and reports. `accel-migrate --explain backward` prints a page.", "rule | what it does", rule))
    os.makedirs(f"{src}/assets")
    shutil.copy(os.path.join(ROOT, "packaging/site/site.css"), f"{src}/assets/site.css")
    shutil.rmtree(f"{src}/reference", ignore_errors=True)  # the examples, which have pages of their own
    pages, problems = reference.write_reference(os.path.join(ROOT, "runtime/include"), os.path.join(ROOT, "docs/reference"),
                                                work, f"{src}/reference")
    with open(os.path.join(ROOT, "packaging/site/mkdocs.yml"), encoding="utf-8") as file:
        configuration = file.read()
    lines = ["      - reference/index.md"]
    for group, names in pages:
        lines.append(f"      - \"{group}\":")
        for name, page in names:
            short = "functions and types" if name == group else name.removeprefix(f"{group}::").removeprefix("accel::")
            lines.append(f"          - \"{short}\": reference/{page}")
    configuration = configuration.replace("      - reference/index.md\n", "\n".join(lines) + "\n")
    for kind in ("rules", "findings"):
        # A rule is known by its name; a finding's page has its number and what it says as a title.
        pages_of = sorted(name for name in os.listdir(f"{src}/{kind}") if name.endswith(".md") and name != "index.md")
        lines = [f"          - {kind}/index.md"] + [f"          - {name[:-3] + ': ' if kind == 'rules' else ''}{kind}/{name}"
                                                     for name in pages_of]
        configuration = configuration.replace(f"          - {kind}/index.md\n", "\n".join(lines) + "\n")
    # Tables need the room.
    for page in ("operators", "parity"):
        with open(f"{src}/{page}.md", encoding="utf-8") as file:
            text = file.read()
        with open(f"{src}/{page}.md", "w", encoding="utf-8") as file:
            file.write("---\nhide:\n  - toc\n---\n\n" + text)
    with open(f"{work}/mkdocs.yml", "w", encoding="utf-8") as file:
        file.write(configuration)
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "--clean", "-f", f"{work}/mkdocs.yml"], check=True,
                   env=dict(os.environ, NO_MKDOCS_2_WARNING="1"))
    problems += check_links.check(f"{work}/site")
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{sum(len(names) for _, names in pages)} pages of the reference, each name with a comment and an example"
          if not problems else f"{len(problems)} faults")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
