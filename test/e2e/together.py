"""together.py [--suffix TEXT] OUT NAME=SOURCE...: one source of several programs, each of which is run by the name
e2e_NAME (and the suffix). LibTorch's templates, which most of a compilation is spent on, are instantiated once.
"""

import argparse
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "generate"))

from check import TOGETHER, end_main  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--suffix", default="")
parser.add_argument("out")
parser.add_argument("programs", nargs="+", metavar="NAME=SOURCE")
options = parser.parse_args()
headers, parts, calls = set(), [], []
for name, source in (program.split("=", 1) for program in options.programs):
    copy = f"{options.out}.{name}.inc"
    end_main(source, copy)
    with open(source, encoding="utf-8") as file:
        headers.update(re.findall(r"^#include <.+>", file.read(), flags=re.MULTILINE))
    parts.append(f'namespace program_{name} {{\n#include "{copy}"\n}}\n')
    calls.append(f'  if (name == "e2e_{name}{options.suffix}") return call(program_{name}::main, count, values);\n')
with open(options.out, "w", encoding="utf-8") as file:
    # Inside of a namespace no header may be read for the first time.
    file.write("\n".join(sorted(headers)) + "\n" + TOGETHER + "\n".join(parts))
    file.write("int main(int count, char** values) {\n  const std::string path = values[0];\n"
               "  const auto name = path.substr(path.rfind('/') + 1);\n" + "".join(calls) +
               '  std::cerr << "no program is called " << name << std::endl;\n  return 2;\n}\n')
