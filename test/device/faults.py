#!/usr/bin/env python3
"""Puts faults into the runtime, one at a time, and shows that a test on the simulated device finds each.

    test/device/faults.py --build build/quick [NAME...]
    test/device/faults.py --check

A fault is a patch in test/device/faults; its second line names the program and the test that must fail with it, and
that passes without. The files that it changes must be as they were committed; they are restored, also where this is
interrupted. About a minute and a half of building for each: by hand, not part of the tests. `--check` is: it says
which patches do not apply any more, or name a test that is not there.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "test" / "device" / "faults"


def build(folder):
    done = subprocess.run(["ninja", "-C", folder, "accel_sim_gpu_tests", "accel_sim_runtime_tests", "accel_sim_backend"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"the build failed\n{done.stdout[-4000:]}")


def passes(folder, program, test):
    """Whether the test has run and passed; None where it has not run."""
    environment = dict(os.environ, OMP_NUM_THREADS="1",
                       ACCEL_DEVICE_BACKEND=str(folder / "lib" / "libaccel_sim_backend.so"))
    done = subprocess.run([folder / "bin" / program, f"--gtest_filter={test}"], env=environment, capture_output=True,
                          text=True, timeout=300)
    if f"[ RUN      ] {test}" not in done.stdout:
        return None
    return done.returncode == 0


def apply(patch, *how):
    return subprocess.run(["git", "-C", ROOT, "apply", *how, patch], capture_output=True, text=True)


def read(path):
    """The fault's sentence, and the program and the test that find it."""
    why, test = path.read_text().splitlines()[:2]
    return (why, *test.removeprefix("Test: ").split())


def check(paths):
    """What is wrong with the patches themselves."""
    tests = set()
    for source in [*ROOT.glob("test/device/*.cpp"), *ROOT.glob("test/gpu/*.cpp")]:
        tests.update(".".join(found) for found in re.findall(r"^TEST(?:_F)?\((\w+), (\w+)\)", source.read_text(), re.M))
    wrong = []
    for path in paths:
        applied = apply(path, "--check")
        if applied.returncode != 0:
            wrong.append(f"{path.stem} does not apply any more: {applied.stderr.strip()}")
        test = read(path)[2]
        if test not in tests:
            wrong.append(f"{path.stem}: there is no test {test}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    all_paths = sorted(FOLDER.glob("*.patch"))
    if options.check:
        wrong = check(all_paths)
        print("\n".join(wrong or [f"{len(all_paths)} faults can be put in"]))
        return 1 if wrong or not all_paths else 0
    if options.build is None:
        parser.error("--build FOLDER or --check is needed")
    folder = options.build.resolve()
    names = options.names or [path.stem for path in all_paths]
    patches = {}
    for name in names:
        patch = FOLDER / f"{name}.patch"
        if not patch.exists():
            raise SystemExit(f"there is no fault '{name}'; there are {', '.join(p.stem for p in all_paths)}")
        patches[name] = (patch, *read(patch))

    build(folder)
    for _, _, program, test in patches.values():
        if not passes(folder, program, test):
            raise SystemExit(f"{test} does not pass without any fault")
    missed = []
    for name, (patch, why, program, test) in patches.items():
        applied = apply(patch)
        if applied.returncode != 0:
            raise SystemExit(f"{name} does not apply any more: {applied.stderr}")
        try:
            build(folder)
            found = passes(folder, program, test) is False
        finally:
            apply(patch, "--reverse")
        print(f"{'found ' if found else 'MISSED'} {name}: {why} {test}", flush=True)
        if not found:
            missed.append(name)
    build(folder)
    print(f"{len(patches) - len(missed)} of {len(patches)} faults were found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
