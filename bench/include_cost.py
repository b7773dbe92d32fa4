#!/usr/bin/env python3
"""What <accel/accel.h> costs to compile on top of <torch/torch.h>.

    bench/include_cost.py [--rounds 5] [--compiler clang++-19] [--libtorch .deps/libtorch/torch]

Both includes are compiled in turn (-fsyntax-only, so that only the headers count); the ratio is that of the least user times, which other
work on the machine disturbs least. Exit code 1 where it is above 1.08.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--compiler", default="clang++-19")
parser.add_argument("--libtorch", default=os.path.join(root, ".deps", "libtorch", "torch"))
options = parser.parse_args()

flags = ["-std=c++17", "-fsyntax-only", "-I" + os.path.join(root, "runtime", "include"),
         "-isystem", os.path.join(options.libtorch, "include"),
         "-isystem", os.path.join(options.libtorch, "include", "torch", "csrc", "api", "include")]
sources = {"torch": "#include <torch/torch.h>\n", "accel": "#include <torch/torch.h>\n#include <accel/accel.h>\n"}
times = {name: [] for name in sources}
with tempfile.TemporaryDirectory() as folder:
    for name, text in sources.items():
        with open(os.path.join(folder, name + ".cpp"), "w") as file:
            file.write(text)
    for _ in range(options.rounds):
        for name in sources:
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            subprocess.run([options.compiler, *flags, os.path.join(folder, name + ".cpp")], check=True)
            times[name].append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
ratio = min(times["accel"]) / min(times["torch"])
print(f"torch/torch.h {min(times['torch']):.2f} s, with accel/accel.h {min(times['accel']):.2f} s: ratio {ratio:.3f}, at most 1.08 wanted")
sys.exit(0 if ratio <= 1.08 else 1)
