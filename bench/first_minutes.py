#!/usr/bin/env python3
"""What somebody waits for who has just cloned the project: scripts/demo and scripts/test, in a fresh clone with empty caches.

    bench/first_minutes.py [--alone] [--demo-only] [--libtorch .deps/libtorch] [--folder DIR]

The unit U is the time of `clang++-19 -std=c++17 -fsyntax-only` for a file with nothing but `#include <torch/torch.h>`, on the same machine:
the least of three runs, before and after. Printed are the ratios with what is wanted of them, the number of compilations, and the ten that took
longest. What has been committed is cloned, into a folder that is removed afterwards (--folder keeps it); LibTorch and Debian's packages are
there already, so that no download is measured. With --alone scripts/test is measured in one more clone, in which nothing is built.

Exit code 1 where a command fails or a ratio is above what is wanted. Other work on the machine counts: leave it alone meanwhile.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def unit(libtorch, folder):
    source = os.path.join(folder, "unit.cpp")
    with open(source, "w") as file:
        file.write("#include <torch/torch.h>\n")
    include = os.path.join(libtorch, "include")
    times = []
    for _ in range(3):
        start = time.monotonic()
        subprocess.run(["clang++-19", "-std=c++17", "-fsyntax-only", "-isystem", include, "-isystem",
                        os.path.join(include, "torch", "csrc", "api", "include"), source], check=True)
        times.append(time.monotonic() - start)
    return min(times)


def run(clone, environment, *command):
    """Seconds from the start to each line that is printed; (seconds of all of it, lines, exit code)."""
    start = time.monotonic()
    lines = []
    with open(os.path.join(clone, os.path.basename(command[0]) + ".log"), "w") as log:
        process = subprocess.Popen(command, cwd=clone, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace")
        for line in process.stdout:
            lines.append((time.monotonic() - start, line.rstrip("\n")))
            log.write(line)
        process.wait()
    return time.monotonic() - start, lines, process.returncode


def between(lines, first, then):
    """Seconds from the line that has `first` in it to the next that has `then`."""
    start = next(at for at, line in lines if first in line)
    return next(at for at, line in lines if then in line and at >= start) - start


def compilations(clone):
    """(seconds, object) of every compilation in the folder of the build, longest first."""
    times = {}
    build = os.path.join(clone, "build", "quick")
    with open(os.path.join(build, ".ninja_log")) as log:
        for line in log:
            if line.startswith("#"):
                continue
            start, end, _, output, _ = line.rstrip("\n").split("\t")
            if output.endswith((".o", ".pch")):
                times[os.path.relpath(output, build) if os.path.isabs(output) else output] = (int(end) - int(start)) / 1000
    return sorted(((seconds, output) for output, seconds in times.items()), reverse=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--demo-only", action="store_true")
    parser.add_argument("--libtorch", default=os.path.join(ROOT, ".deps", "libtorch"))
    parser.add_argument("--folder")
    options = parser.parse_args()
    libtorch = os.path.realpath(options.libtorch)
    if os.path.isdir(os.path.join(libtorch, "torch", "include")):
        libtorch = os.path.join(libtorch, "torch")
    if not os.path.exists(os.path.join(libtorch, "lib", "libtorch_cpu.so")):
        sys.exit(f"error: no LibTorch in {libtorch}; run scripts/setup, or name one with --libtorch")

    folder = options.folder or tempfile.mkdtemp(prefix="accel-first-minutes-")
    os.makedirs(folder, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ACCEL_", "CCACHE_"))}
    environment["ACCEL_LIBTORCH"] = libtorch
    rows, failed = [], False

    def fresh(name):
        clone = os.path.join(folder, name)
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        for variable in ("CCACHE_DIR", "XDG_CACHE_HOME"):
            environment[variable] = os.path.join(folder, name + "-" + variable.lower())
        return clone

    def measured(what, seconds, wanted):
        rows.append((what, seconds, wanted))
        print(f"{what}: {seconds:.0f} s", flush=True)

    try:
        u = unit(libtorch, folder)
        clone = fresh("clone")
        seconds, lines, code = run(clone, environment, "scripts/demo")
        failed |= code != 0
        if code:
            print("\n".join(line for _, line in lines[-20:]), file=sys.stderr)
            sys.exit("error: scripts/demo failed")
        measured("scripts/demo, the build", between(lines, "[2/6", "[3/6"), 20)
        measured("scripts/demo", seconds, 30)
        table = [("scripts/demo", compilations(clone))]
        if not options.demo_only:
            seconds, lines, code = run(clone, environment, "scripts/test")
            failed |= code != 0
            print(lines[-1][1])
            measured("scripts/test after it, the build", between(lines, "Configuring and building", "Built in"), None)
            measured("scripts/test after it", seconds, 70)
            table.append(("both", compilations(clone)))
        if options.alone:
            clone = fresh("alone")
            seconds, lines, code = run(clone, environment, "scripts/test")
            failed |= code != 0
            print(lines[-1][1])
            measured("scripts/test alone", seconds, 110)
        u = min(u, unit(libtorch, folder))

        print(f"\nU = {u:.1f} s: clang++-19 -std=c++17 -fsyntax-only of #include <torch/torch.h>")
        for what, seconds, wanted in rows:
            limit = f", at most {wanted} wanted" if wanted else ""
            print(f"{what:<34} {seconds:6.0f} s {seconds / u:7.1f} U{limit}")
            failed |= wanted is not None and seconds > wanted * u
        for what, times in table:
            print(f"{what}: {len(times)} compilations")
        print("the ten that took longest:")
        for seconds, output in table[-1][1][:10]:
            print(f"{seconds:7.1f} s  {output}")
    finally:
        if not options.folder:
            shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
