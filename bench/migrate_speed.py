#!/usr/bin/env python3
"""accel-migrate against `clang++ -fsyntax-only` with the same flags.

Prints ratios; the two are run in turns, so that what else the machine does
bears on both. The targets are those of the project: warm (LibTorch and accel
precompiled in the cache) 0.10 of the compiler's time, cold (an empty cache) 0.45, a project
of eight files on two cores 0.07 per file, peak memory 0.6. With an empty cache the tool
takes what its build has precompiled, if the flags are the most common ones; with
others it has to do that first ("cold, own headers": an empty --cache-dir). A run of the
tool parses twice, the original and the result. Times of the processor (user and
system) are printed beside those on the clock, which say little while the
machine is shared.

    bench/migrate_speed.py [--rounds N] [--tool PATH] [--file FILE]
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from paths import folder_path, program_path

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Measured:
    def __init__(self, wall, cpu, memory):
        self.wall, self.cpu, self.memory = wall, cpu, memory


def measure(command, environment=None):
    """Runs a command; seconds on the clock and of the processor, and peak KiB."""
    start = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"error: {' '.join(command)} ended with {process.returncode}")
    return Measured(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)


def eight_files(file, folder):
    """A project of eight programs that differ."""
    with open(file, encoding="utf-8") as source:
        text = source.read()
    files = []
    for number in range(8):
        files.append(os.path.join(folder, f"train{number}.cpp"))
        with open(files[-1], "w", encoding="utf-8") as target:
            target.write(text + f"// {number}\n")
    return files


def line(name, limit, tool, peer, share=1):
    wall = statistics.median(t.wall / p.wall / share for t, p in zip(tool, peer))
    cpu = statistics.median(t.cpu / p.cpu / share for t, p in zip(tool, peer))
    print(f"{name:<22} {wall:7.3f} of the time, {cpu:7.3f} of the processor's   (target {limit})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=program_path, default=os.path.join(ROOT, "build", "release", "bin", "accel-migrate"))
    parser.add_argument("--compiler", type=program_path, default="clang++-19")
    parser.add_argument("--libtorch", type=folder_path, default=os.environ.get("ACCEL_LIBTORCH", os.path.join(ROOT, ".deps", "libtorch", "torch")))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--file", type=os.path.abspath, default=os.path.join(ROOT, "examples", "digits", "digits.cpp"))
    arguments = parser.parse_args()
    include = os.path.join(arguments.libtorch, "include")
    flags = ["-std=c++17", "-isystem", include, "-isystem", os.path.join(include, "torch", "csrc", "api", "include")]
    compile_ = [arguments.compiler, "-fsyntax-only", *flags, arguments.file]

    with tempfile.TemporaryDirectory(prefix="migrate-speed-") as folder:
        cache = os.path.join(folder, "cache")
        environment = dict(os.environ, XDG_CACHE_HOME=cache)

        def tool(*files, options=()):
            return measure([arguments.tool, *options, *files, "--", *flags], environment)

        peer, cold, own, warm, project = [], [], [], [], []
        files = eight_files(arguments.file, folder)
        for _ in range(arguments.rounds):
            shutil.rmtree(cache, ignore_errors=True)
            os.makedirs(cache)
            peer.append(measure(compile_))
            cold.append(tool(arguments.file))
            named = os.path.join(folder, "named")
            shutil.rmtree(named, ignore_errors=True)
            own.append(tool(arguments.file, options=[f"--cache-dir={named}"]))
            tool(arguments.file)  # precompiles accel.h, if that is not there, which the first run leaves to the second
            warm.append(tool(arguments.file))
            project.append(tool(*files))
        print(f"{arguments.compiler}: {statistics.median(p.wall for p in peer):.1f} s, of the processor's "
              f"{statistics.median(p.cpu for p in peer):.1f} s, {peer[0].memory // 1024} MiB; {arguments.rounds} rounds")
        line("warm", 0.10, warm, peer)
        line("cold", 0.45, cold, peer)
        line("cold, own headers", "none", own, peer)
        line("8 files, per file", 0.07, project, peer, share=8)
        for name, runs in (("warm", warm), ("8 files", project), ("cold", cold), ("own headers", own)):
            ratio = max(run.memory for run in runs) / min(run.memory for run in peer)
            print(f"{'memory, ' + name:<22} {ratio:7.3f} of the peak" + (f"{'':23}(target 0.6)" if name == "warm" else ""))


if __name__ == "__main__":
    main()
