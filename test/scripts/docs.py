"""docs.py BUILD_DIR COMPILER: what the pages say is so.

Links between the pages, options and scripts that examples use, the programs of the guides and the examples of the
reference, which are compiled against the headers, and messages, which are those of the sources. snippets.py looks at
all code blocks, scripts/docs at the site itself.
"""

import concurrent.futures
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
# Messages on the pages that are not ours.
OF_COMPILERS = {"accel/accel.h: No such file or directory"}


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


def sources(*folders):
    """What is in quotation marks in the sources, strings that the compiler joins as one."""
    for folder in folders:
        for path, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in sorted(names):
                if name.endswith((".cpp", ".h", ".cmake", ".in", ".py", ".def")):
                    with open(os.path.join(path, name), encoding="utf-8") as file:
                        yield re.sub(r'"\s*"', "", file.read()).replace('\\"', '"')


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
                known[command] = set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", said))
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
                for option in re.findall(r"(?<![\w'/-])(--?[a-z][a-z0-9-]*)", arguments):
                    seen += 1
                    command = tuple(call[1].split())
                    self.assertIn(option, options(*command), f"{page}: {line.strip()}")
        self.assertGreater(seen, 60)

    def compile(self, programs):
        """Compiles texts, [(name, text)], two at a time."""
        flags = subprocess.run([os.path.join(BUILD, "bin", "accel"), "flags", "--compile"], text=True, check=True,
                               stdout=subprocess.PIPE).stdout.split()

        def one(program):
            # What includes accel/accel.h has it precompiled, too.
            name = "results.pch" if "#include <accel/accel.h>" in program[1] else "torch.pch"
            header = os.path.join(BUILD, "precompiled", name)
            with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
                file.write(program[1])
                file.flush()
                return subprocess.run([COMPILER, "-O0", "-fPIC", "-DNDEBUG", "-fclang-abi-compat=17", *flags, "-include-pch",
                                       header, "-Xclang", "-fno-validate-pch", "-fsyntax-only", file.name], text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for (name, _), said in zip(programs, pool.map(one, programs)):
                self.assertEqual(0, said.returncode, f"{name}:\n{said.stdout}")

    def test_programs_of_the_guides_compile(self):
        programs = [(page, program) for page in pages() for program in blocks(text_of(page), "cpp")
                    if "#include" in program and "int main" in program]
        self.assertGreater(len(programs), 0)
        self.compile(programs)

    def test_examples_of_the_reference_compile(self):
        folder = os.path.join(ROOT, "docs", "reference")
        programs = [(name, text_of(os.path.join("docs/reference", name))) for name in sorted(os.listdir(folder))]
        self.assertGreater(len(programs), 5)
        self.compile(programs)

    def test_before_and_after_of_the_start_page_is_what_the_tool_makes(self):
        before, after = blocks(text_of("docs/index.md"), "cpp")
        head = """#include <torch/torch.h>
#include <iostream>
using torch::data::transforms::Stack;
struct Data : torch::data::datasets::Dataset<Data> {
  torch::data::Example<> get(size_t) override { return {torch::rand({4}), torch::tensor(1)}; }
  torch::optional<size_t> size() const override { return 8; }
};
Data dataset() { return {}; }
struct NetImpl : torch::nn::Module {
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(4, 2));
  torch::Tensor forward(torch::Tensor x) { return linear->forward(x).log_softmax(1); }
};
TORCH_MODULE(Net);
"""
        with tempfile.TemporaryDirectory(prefix="accel-docs-") as folder:
            with open(f"{folder}/train.cpp", "w") as file:
                file.write(head + before)
            said = subprocess.run([os.path.join(BUILD, "bin", "accel-migrate"), "--quiet", "--write", f"{folder}/train.cpp"],
                                  text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  env=dict(os.environ, XDG_STATE_HOME=f"{folder}/state"))
            self.assertEqual(0, said.returncode, said.stdout)
            with open(f"{folder}/train.cpp") as file:
                made = file.read()

        def words(text):
            return "".join(text[text.index("int main"):].split())

        self.assertEqual(words(made), words(after))

    def test_messages_of_the_pages_are_those_of_the_sources(self):
        known = "\n".join(sources("tool", "runtime", "cmake"))
        seen = 0
        for page in ("docs/guides/troubleshooting.md", "docs/failures.md"):
            for row in re.findall(r"^\| (.*?) \| ", text_of(page), re.M):
                for message in set(re.findall(r"`([^`]+)`", row)) - OF_COMPILERS:
                    # What is not the same each time stands there as …, as a number, or in capitals.
                    for part in re.split(r"…|\d+|\b[A-Z]{4,}\b|#", message):
                        part = part.strip(" :,;'[]")
                        if len(part) < 8 or not part.count(" "):
                            continue
                        seen += 1
                        self.assertTrue(part in known, f"{page}: no source says '{part}'")
        self.assertGreater(seen, 20)

    def test_configurations_of_the_pages_are_read(self):
        import yaml
        seen = 0
        for page in pages():
            for text in blocks(text_of(page), "yaml"):
                seen += 1
                self.assertIsNotNone(yaml.safe_load(text), page)
            for text in blocks(text_of(page), "bash"):
                seen += 1
                said = subprocess.run(["bash", "-n"], input=text, text=True, stderr=subprocess.PIPE)
                self.assertEqual((0, ""), (said.returncode, said.stderr), page)
        self.assertGreater(seen, 3)


if __name__ == "__main__":
    unittest.main()
