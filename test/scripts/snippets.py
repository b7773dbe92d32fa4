"""snippets.py BUILD_DIR COMPILER: every code block of the pages and of the headers' comments compiles or runs.

What a piece of C++ uses and does not declare is in snippets.h. Commands are run in a folder with a small project; those
that would train, install or connect are replaced by programs that do nothing. What commands print is no code.
"""

import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest

BUILD, COMPILER = os.path.abspath(sys.argv.pop(1)), sys.argv.pop(1)
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "packaging", "site"))
import code_blocks

# Pages that show what does not compile.
BROKEN = {"docs/findings/ACL0001.md": "expected ';'"}
# One of these at the margin: declarations, not statements.
DECLARATIONS = re.compile(r"^(template|struct|static [^=]*\)|inline|namespace|int main|void \w+\(|using namespace|[\w:]+ \w+::\w+\(.*\{)", re.M)


def files(folder, suffix):
    for path, _, names in os.walk(os.path.join(ROOT, folder)):
        for name in sorted(names):
            if name.endswith(suffix):
                yield os.path.relpath(os.path.join(path, name), ROOT)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def blocks():
    """Every code block, (page, line, language, code)."""
    for page in ["README.md", *files("docs", ".md")]:
        for language, code, line in code_blocks.parts(read(page)):
            if language is not None:
                yield page, line, language, code
    for header in files("runtime/include/accel", ".h"):
        if "/detail/" in header or header.endswith("-inl.h"):
            continue
        for found in re.finditer(r"^ *///$\n((?: *///     .*\n)(?: *///     .*\n| *///$\n)*)|^ */// \\code$\n((?: *///.*\n)+?)(?= */// \\endcode)",
                                 read(header), re.M):
            code = textwrap.dedent(re.sub(r"^ *///", "", found[1] or found[2], flags=re.M)).strip()
            yield header, read(header)[:found.start(1 if found[1] else 2)].count("\n") + 1, "cpp", code


def columns(code):
    """Two files beside each other are two pieces."""
    heads = [found.start() for found in re.finditer(r"// \w+\.(?:cpp|h)(?=\s|$)", code.split("\n")[0])]
    if len(heads) != 2:
        return [code]
    return ["\n".join(line[:heads[1]].rstrip() for line in code.split("\n")),
            "\n".join(line[heads[1]:] for line in code.split("\n"))]


def commands(code):
    """What is typed of a block that may show what is printed, too."""
    if not re.search(r"^\w*\$ ", code, re.M):
        return code
    typed, goes_on = [], False
    for line in code.split("\n"):
        if goes_on or re.match(r"\w*\$ ", line):
            typed.append(re.sub(r"^\w*\$ ", "", line))
            goes_on = line.endswith("\\")
    return "\n".join(typed)


# A command cannot be started while a file descriptor writes it ("Text file busy"), and what another thread starts just
# then holds that descriptor until it is the other program: so no thread writes while one starts something.
STARTING = threading.Lock()


def write(path, text, executable=False):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with STARTING, open(path, "w", encoding="utf-8") as file:
        file.write(text)
    if executable:
        os.chmod(path, 0o755)


def run(command, **options):
    """What subprocess.run() gives, output and errors in one text."""
    with STARTING: # Popen returns when the other program runs
        process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    with process:
        said, _ = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, said)


# What a block looks like that is no code: messages, the lines of a test, a synopsis, columns, arrows.
OUTPUT = re.compile(r"^(accel: |process \d|\[\d\] |RUN: )| \[-| \[options\]|\S {3,}\S|──")

# Commands that train, install, connect or build do nothing here.
NOTHING = ["apt", "c++", "clang-apply-replacements-19", "cmake", "docker", "gdb", "lit.py", "patch", "pip", "vi", "accel_zoo"]
# Those that start what stands behind their options.
STARTERS = ["mpirun", "srun", "torchrun"]
ACCEL = """#!/bin/sh
command=$1; shift
case $command in
  launch) exec {bin}/accel launch --dry-run "$@" ;;
  flags) exec {bin}/accel flags "$@" ;;
  config) [ $# = 0 ] || exec {bin}/accel config "$@" ;; # else it asks
  estimate-memory) shift; exec {bin}/accel estimate-memory --parameters 1M "$@" ;; # for MODEL
  verify) ;;
  *) exit 2 ;;
esac
"""
# A refusal is an answer; wrong usage is none.
MIGRATE = """#!/bin/sh
case " $* " in *" --verify "*) exit 0 ;; esac
{bin}/accel-migrate "$@" && exit 0
[ $? = 1 ] || case " $* " in *" nonsense "*) ;; *) exit 1 ;; esac
"""
PROGRAM = '#include "model.h"\n' + "".join(f"int line_{i};\n" for i in range(2, 30)) + "int main() { return model(); }\n"


def project(folder):
    """A project that holds nothing to migrate, and the commands."""
    write(f"{folder}/train.cpp", PROGRAM)
    write(f"{folder}/src/train.cpp", "int main() {}\n")
    write(f"{folder}/model.h", "#pragma once\n" + "\n" * 20 + "inline int model() { return 0; }\n")
    write(f"{folder}/new_file.cpp", PROGRAM)
    write(f"{folder}/include/empty.h", "")
    write(f"{folder}/build/compile_commands.json",
          json.dumps([{"directory": folder, "file": "train.cpp", "command": "c++ -c train.cpp"}]))
    for name in ("train", "train_before"):
        write(f"{folder}/{name}", "#!/bin/sh\n", True)
    for name in NOTHING:
        write(f"{folder}/bin/{name}", "#!/bin/sh\n[ $# -gt 0 ] && [ -t 0 ] || cat >/dev/null\n", True)
    for name in STARTERS:
        write(f"{folder}/bin/{name}", '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do case $1 in -n|--nproc-per-node) shift ;; esac; shift; done\nexec "$@"\n', True)
    write(f"{folder}/bin/accel", ACCEL.format(bin=f"{BUILD}/bin"), True)
    write(f"{folder}/bin/accel-migrate", MIGRATE.format(bin=f"{BUILD}/bin"), True)


def sides(code):
    """What a diff is made from, and what it makes."""
    return ["\n".join(line[1:] for line in code.split("\n") if line[:1] != sign) for sign in "+-"]


def piece(name, page, line, code, context):
    """A piece of C++ behind its context; (includes, text). What it leaves open is closed, what it leaves out is nothing."""
    code = re.sub(r"(?<=[\s{(])(?:\.\.\.|…)(?=[\s}]|$)|^(?:\.\.\.|…)", ";", code, flags=re.M)
    includes = re.findall(r"^#include <.*>$", re.sub(r"#include .*not on this machine.*", "", code), re.M)
    code = re.sub(r"^#include .*$", "", code, flags=re.M)
    bare = re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|//.*', "", code)
    code += "\n" + "};" * max(0, bare.count("{") - bare.count("}"))
    if not DECLARATIONS.search(code):
        code = f"  do {{\n#line {line} \"{page}\"\n{code}\n  }} while (false);\n  return 0;"
        code = f"int statements() {{\n{code}\n}}"
    text = f"#line 1 \"snippets.h: {page}\"\n{context}\n#line {line} \"{page}\"\n{code}\n"
    # A specialization belongs to the template's namespace.
    return includes, text if code.lstrip().startswith("template <>") else f"namespace {name} {{\n{text}}}\n"


class Snippets(unittest.TestCase):
    def compile(self, text):
        flags = subprocess.run([os.path.join(BUILD, "bin", "accel"), "flags", "--compile"], text=True, check=True,
                               stdout=subprocess.PIPE).stdout.split()
        return subprocess.run([COMPILER, "-O0", "-fPIC", "-DNDEBUG", "-fclang-abi-compat=17", *flags, "-include-pch",
                               os.path.join(BUILD, "precompiled", "results.pch"), "-Xclang", "-fno-validate-pch",
                               "-fsyntax-only", "-ferror-limit=0", "-I", HERE, "-x", "c++", "-"], input=text, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_cpp_compiles(self):
        context = re.split(r"^//// (\S+)\n", read("test/scripts/snippets.h"), flags=re.M)
        common, special = context[0], dict(zip(context[1::2], context[2::2]))
        quoted = "".join("".join(read(path).split()) for suffix in (".cpp", ".h", ".def") for path in files("tool", suffix))
        texts, broken, seen, used = [[], []], [], 0, set()
        includes = set()
        for page, line, language, code in blocks():
            pieces = sides(code) if language == "diff" else columns(code) if language == "cpp" else []
            # Code of the tool itself, which is quoted with gaps, is compiled with the tool.
            if page == "docs/contributing.md" and all("".join(part.split()) in quoted for part in re.split(r"….*", code)):
                continue
            for part in pieces:
                seen += 1
                found, text = piece(f"piece_{seen}", page, line, part, special.get(page, ""))
                includes.update(found)
                used.add(page)
                (broken if page in BROKEN else texts[seen % 2]).append((page, text))
        self.assertGreater(seen, 120)
        self.assertEqual(set(special) - used, set(), "parts of snippets.h that no page needs")
        head = "\n".join(sorted(includes)) + "\n" + common
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            said = list(pool.map(lambda part: self.compile(head + "\n".join(text for _, text in part)), texts))
        self.assertEqual([0, 0], [one.returncode for one in said], "".join(one.stdout for one in said))
        self.assertEqual({page for page, _ in broken}, set(BROKEN))
        for page, text in broken:
            said = self.compile(head + text)
            self.assertTrue(said.returncode and BROKEN[page] in said.stdout, f"{page} compiles:\n{said.stdout}")

    def run_block(self, place, language, code):
        """Runs a block of commands; what is wrong with it, or None."""
        with tempfile.TemporaryDirectory(prefix="accel-snippet-") as folder:
            project(folder)
            typed = commands(code)
            for path in set(re.findall(r"(?<![\w/.])(?:scripts|test|bench)/[\w./-]+", typed)):
                # A script of the repository: it and its options are there.
                if not os.access(os.path.join(ROOT, path), os.X_OK):
                    return f"{place}: {path} is no command"
                write(f"{folder}/{path}", "#!/bin/sh\n", True)
                for call in re.findall(rf"{re.escape(path)}([^\n#]*)", typed):
                    for option in re.findall(r"(?<= )--[a-z][a-z0-9-]*", re.sub(r"'[^']*'", "", call)):
                        if option not in read(path):
                            return f"{place}: {path} has no option {option}"
            lit = "/usr/lib/llvm-19/build/utils/lit/lit.py"
            environment = {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": folder, "XDG_CONFIG_HOME": folder, "LANG": "C.UTF-8",
                           "XDG_STATE_HOME": folder, "XDG_CACHE_HOME": folder}
            said = run(["bash", "-euo", "pipefail", "-c", typed.replace(lit, "lit.py")], cwd=folder, env=environment,
                       stdin=subprocess.DEVNULL)
            return f"{place}: exit code {said.returncode} of\n{typed}\n{said.stdout}" if said.returncode else None

    def test_commands_run(self):
        found = [(f"{page}:{line}", language, code) for page, line, language, code in blocks()
                 if language in ("console", "bash")]
        self.assertGreater(len(found), 50)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            wrong = [one for one in pool.map(lambda block: self.run_block(*block), found) if one]
        if wrong:
            self.fail("\n".join(wrong))

    def test_cmake_runs(self):
        """CMake knows the commands; the packages that they ask for are stand-ins."""
        seen = 0
        for page, line, language, code in blocks():
            if language != "cmake":
                continue
            seen += 1
            with tempfile.TemporaryDirectory(prefix="accel-snippet-") as folder:
                write(f"{folder}/train.cpp", "int main() {}\n")
                write(f"{folder}/accel/CMakeLists.txt", "add_library(accel_it INTERFACE)\nadd_library(accel::accel ALIAS accel_it)\n")
                write(f"{folder}/packages/accelConfig.cmake", "add_library(accel::accel INTERFACE IMPORTED)\n")
                write(f"{folder}/packages/accelConfigVersion.cmake", "set(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
                target = re.search(r"target_link_libraries\((\w+) PRIVATE accel::accel\)", code)
                self.assertTrue(target, f"{page}:{line} does not link accel::accel")
                write(f"{folder}/CMakeLists.txt", "cmake_minimum_required(VERSION 3.18)\nproject(train CXX)\n"
                      f"add_executable({target[1]} train.cpp)\n{code}\n")
                said = subprocess.run(["cmake", "-S", folder, "-B", f"{folder}/build", f"-Daccel_DIR={folder}/packages",
                                       f"-DFETCHCONTENT_SOURCE_DIR_ACCEL={folder}/accel"], text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                self.assertEqual(0, said.returncode, f"{page}:{line}\n{said.stdout}")
        self.assertGreater(seen, 3)

    def test_every_other_block_is_data_or_output(self):
        import yaml
        for page, line, language, code in blocks():
            place = f"{page}:{line}"
            self.assertIn(language, ("cpp", "diff", "console", "bash", "cmake", "yaml", "json", "text"), place)
            if language == "yaml":
                self.assertIsInstance(yaml.safe_load(code), (dict, list), place)
            elif language == "json":
                json.loads(re.sub(r",\s*…", "", code))
            elif language == "text":
                self.assertEqual("text", code_blocks.language_of(code), f"{place} is code")
                self.assertRegex(code, OUTPUT, place)


if __name__ == "__main__":
    unittest.main()
