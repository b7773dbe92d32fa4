"""Runs the measurements of bench/ from other folders with relative paths, and with small scripts instead of what they measure.

    bench_paths.py --launcher ACCEL --bench BENCH
"""

import argparse
import os
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("--launcher", required=True)
parser.add_argument("--bench", required=True)
options = parser.parse_args()


def write(path, text):
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)


def run(folder, script, *arguments, **environment):
    done = subprocess.run([sys.executable, os.path.join(options.bench, script), *arguments], cwd=folder, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr


def expect(condition, *what):
    if not condition:
        sys.exit("\n".join(["wrong:", *map(str, what)]))


with tempfile.TemporaryDirectory(prefix="bench-paths-") as top:
    for name in ("build", "build/bin", "build/lib", "elsewhere", "libtorch"):
        os.mkdir(os.path.join(top, name))
    bin_ = os.path.join(top, "build", "bin")
    os.symlink(options.launcher, os.path.join(bin_, "accel"))
    elsewhere = os.path.join(top, "elsewhere")

    write(os.path.join(bin_, "startup"), '#!/bin/sh\n[ "$WORLD_SIZE" = 2 ] && date +%s.%N\n')
    write(os.path.join(bin_, "torchrun"), "#!/bin/sh\ndate +%s.%N\n")
    for folder, here in ((elsewhere, "../build/bin/"), (bin_, "./"), (top, "build/bin/")):
        result = run(folder, "startup.py", "--launcher", here + "accel", "--program", here + "startup", "--torchrun", here + "torchrun",
                     "--rounds", "1")
        expect(result[1].count("median") == 2 and "ratio" in result[1], "startup.py", here, *result)
    # From $PATH, and by names in the current folder.
    path = bin_ + os.pathsep + os.environ["PATH"]
    for folder, environment in ((elsewhere, {"PATH": path}), (bin_, {})):
        result = run(folder, "startup.py", "--launcher", "accel", "--program", "startup", "--torchrun", "torchrun", "--rounds", "1",
                     **environment)
        expect("ratio" in result[1], "startup.py", environment, *result)

    # The plain step, accel's and Accelerate's, with one process and with two.
    write(os.path.join(bin_, "step_overhead"), '#!/bin/sh\n[ "${WORLD_SIZE:-2}" = 2 ] && echo "5.0 us/step 4.0 us/step"\n')
    write(os.path.join(bin_, "python"), "#!/bin/sh\necho 8.0\n")
    for folder, build in ((elsewhere, "../build"), (top, "build"), (os.path.join(top, "build"), ".")):
        code, out, err = run(folder, "steps.py", "--build", build, "--python", os.path.join(build, "bin", "python"), "--rounds", "1")
        expect(code == 0 and out.count("0.500 of Accelerate") == 3, "steps.py", build, code, out, err)

    write(os.path.join(bin_, "trace_overhead"),
          '#!/bin/sh\n[ -n "$ACCEL_TRACE_DIRECTORY" ] && touch "$ACCEL_TRACE_DIRECTORY/rank-0.trace"\necho 2.0\n')
    # Nothing that could be preloaded: the loader says so and goes on.
    write(os.path.join(top, "build", "lib", "libaccel_trace.so"), "")
    for folder, build in ((elsewhere, "../build"), (os.path.join(top, "build"), ".")):
        code, out, err = run(folder, "trace_overhead.py", build, "--rounds", "1")
        expect(code == 0 and out.count("ratio 1.000") == 3, "trace_overhead.py", build, code, out, err)

    write(os.path.join(bin_, "accel-migrate"), "#!/bin/sh\nexit 0\n")
    write(os.path.join(top, "train.cpp"), "int main() {}\n")
    code, out, err = run(elsewhere, "migrate_speed.py", "--tool", "../build/bin/accel-migrate", "--compiler", "../build/bin/accel-migrate",
                         "--libtorch", "../libtorch", "--file", "../train.cpp", "--rounds", "1")
    expect(code == 0 and "8 files, per file" in out, "migrate_speed.py", code, out, err)

    # What is not there is named.
    code, out, err = run(elsewhere, "startup.py", "--launcher", "../build/accel", "--program", "x", "--torchrun", "x")
    expect(code == 2 and "argument --launcher: ../build/accel: there is no program " + os.path.join(top, "build", "accel") in err, code, err)
    code, out, err = run(elsewhere, "steps.py", "--build", "../built", "--python", sys.executable)
    expect(code == 2 and "there is no folder " + os.path.join(top, "built") in err, code, err)
    os.remove(os.path.join(bin_, "step_overhead"))
    code, out, err = run(elsewhere, "steps.py", "--build", "../build", "--python", sys.executable)
    expect(code == 1 and "step_overhead is missing; build it with -DACCEL_BUILD_BENCH=ON" in err, code, err)
