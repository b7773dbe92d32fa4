"""docs.py BUILD_DIR COMPILER: what the pages say is so.

Links between the pages, options that examples use, and the programs of the guides, which are compiled against the
headers.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

BUILD, COMPILER = os.path.abspath(sys.argv.pop(1)), sys.argv.pop(1)
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Made by scripts/docs.
MADE = {"docs/rules/index.md", "docs/findings/index.md", "docs/reference/index.md"}


def pages():
    yield "README.md"
    for folder, _, names in os.walk(os.path.join(ROOT, "docs")):
        for name in sorted(names):
            if name.endswith(".md"):
                yield os.path.relpath(os.path.join(folder, name), ROOT)


def text_of(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return file.read()


def without_code(text):
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    return re.sub(r"`[^`\n]*`", "", "\n".join(line for line in text.splitlines() if not line.startswith("    ")))


def anchor(heading):
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.strip().lower()))


def blocks(text, language):
    return re.findall(rf"^```{language}[^\n]*\n(.*?)^```", text, re.S | re.M)


class Docs(unittest.TestCase):
    def test_links_lead_somewhere(self):
        links = 0
        for page in pages():
            for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text_of(page))):
                if re.match(r"[a-z]+:", target):
                    continue
                path, _, place = target.partition("#")
                links += 1
                file = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
                if file in MADE:
                    continue
                self.assertTrue(os.path.exists(os.path.join(ROOT, file)), f"{page}: {target} leads nowhere")
                if place and file.endswith(".md"):
                    headings = {anchor(re.sub(r"[`*]", "", heading)) for heading in re.findall(r"^#+ (.*)$", text_of(file), re.M)}
                    self.assertIn(place, headings, f"{page}: {target}: {file} has no such heading")
        self.assertGreater(links, 50)

    def test_options_of_examples_exist(self):
        known = {}

        def options(*command):
            if command not in known:
                said = subprocess.run([os.path.join(BUILD, "bin", command[0]), *command[1:], "--help"], text=True,
                                      check=True, stdout=subprocess.PIPE).stdout
                known[command] = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", said))
            return known[command]

        seen = 0
        for page in pages():
            commands = "".join(blocks(text_of(page), "(?:console|bash|sh)"))
            commands += "\n".join(line for line in text_of(page).splitlines() if line.startswith("    "))
            for line in commands.replace("\\\n", " ").splitlines():
                call = re.search(r"(?:^|[\s(|&])(accel-migrate|accel (?:launch|verify|flags|config|test|env|estimate-memory|merge-weights))((?: [^|>#;]*)?)", line)
                if not call or " is " in line or re.search(r"\baccel: ", line):
                    continue
                arguments = re.split(r"\s--(?:\s|$)|…|\)", call[2])[0]
                arguments = re.sub(r"'[^']*'", "", arguments)
                for option in re.findall(r"(?<![\w'/-])(--?[a-z][a-z-]*)", arguments):
                    seen += 1
                    command = tuple(call[1].split())
                    self.assertIn(option, options(*command), f"{page}: {line.strip()}")
        self.assertGreater(seen, 60)

    def test_programs_of_the_guides_compile(self):
        compiled = 0
        header = os.path.join(BUILD, "precompiled", "torch.pch")
        flags = subprocess.run([os.path.join(BUILD, "bin", "accel"), "flags", "--compile"], text=True, check=True,
                               stdout=subprocess.PIPE).stdout.split()
        for page in pages():
            for program in blocks(text_of(page), "cpp"):
                if "#include" not in program or "int main" not in program or "dataset()" in program:
                    continue
                with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
                    file.write(program)
                    file.flush()
                    said = subprocess.run([COMPILER, "-O0", "-fPIC", "-DNDEBUG", "-fclang-abi-compat=17", *flags, "-include-pch", header, "-Xclang",
                                           "-fno-validate-pch", "-fsyntax-only", file.name], text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                self.assertEqual(0, said.returncode, f"{page}:\n{said.stdout}")
                compiled += 1
        self.assertGreater(compiled, 0)


if __name__ == "__main__":
    unittest.main()
