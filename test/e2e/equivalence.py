"""Runs an example as it was written and as it was migrated, and compares.

    equivalence.py --original EXE --recorded FOLDER --example NAME [--double] [--cpu-threads T] [-- ARGUMENT...]
    equivalence.py --recorded FOLDER --migrated EXE --launcher ACCEL --example NAME --processes N [--double]
                   [--cpu-threads T] [-- ARGUMENT...]

The first form runs the original and keeps what it prints and writes in FOLDER, once for all comparisons with it;
the second runs the migrated program and compares.

Promise P1 (one process): the same bytes, and the same saved model.
Promise P2 (several): every printed number within 1e-9 relative in float64; in
float32 within 1e-4 over the first 20 steps, and the final accuracy within one
sample.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile

from compare_runs import Different, compare, numbers_of

FLOAT64_RELATIVE = 1e-9
FLOAT32_RELATIVE = 1e-4


class Example:
    """What an example writes, and what of its output belongs to which test."""

    def __init__(self, saved, early=None, accuracy=None, double_flag=True):
        self.saved = saved  # the file that it writes, or None
        self.early = early  # picks the lines of the first 20 steps
        self.accuracy = accuracy  # last line's accuracy as a count of samples
        self.double_flag = double_flag  # whether it has an option --double


def first_lines(prefix, count):
    """A predicate that is true for the first `count` lines that start so."""
    seen = []

    def pick(line):
        if line.startswith(prefix):
            seen.append(line)
            return len(seen) <= count
        return False

    return pick


def example(name):
    if name == "digits":
        # Lines come after steps 1, 6, 11, 16, 21, …; 23 steps an epoch.
        return Example("digits.pt", first_lines("Train Epoch:  1", 4),
                       accuracy=lambda line: numbers_of(line.split("Accuracy:")[1].split("/")[0])[0])
    if name == "regression":
        # One line after each epoch of 13 steps.
        return Example("regression.pt", first_lines("epoch 0", 1))
    if name == "spirals":
        # One line after 5 epochs of 15 steps: nothing within 20 steps.
        return Example("spirals.pt", lambda line: False,
                       accuracy=lambda line: round(numbers_of(line)[2] * 399))
    if name in ("gan", "ppo", "raw_sgd", "seq2seq", "trainer"):
        return Example(f"{name}.pt")
    if name in ("steps", "values", "memory", "objects", "parallel", "alone", "erased"):
        # Always in float64, and nothing is saved.
        return Example(None, double_flag=name == "steps")
    raise SystemExit(f"unknown example '{name}'")


def run(command, cwd, threads):
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    environment["OMP_NUM_THREADS"] = str(threads)
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def record(options, arguments):
    """The folder's files are the original's, beside them what it prints."""
    shutil.rmtree(options.recorded, ignore_errors=True)
    files = os.path.join(options.recorded, "files")
    os.makedirs(files)
    output = run([options.original] + arguments, files, options.cpu_threads)
    # Last, so that there is none of a run that has failed.
    with open(os.path.join(options.recorded, "output"), "w", encoding="utf-8", newline="") as file:
        file.write(output)
    print(f"{len(output)} bytes, files: {' '.join(sorted(os.listdir(files))) or 'none'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--original", help="record this program")
    parser.add_argument("--recorded", required=True)
    parser.add_argument("--migrated")
    parser.add_argument("--launcher")
    parser.add_argument("--example", required=True)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--double", action="store_true")
    parser.add_argument("--cpu-threads", type=int, default=1)
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()

    what = example(options.example)
    arguments = options.arguments + (["--double"] if options.double and what.double_flag else [])
    if options.original:
        record(options, arguments)
        return
    left = os.path.join(options.recorded, "files")
    with open(os.path.join(options.recorded, "output"), encoding="utf-8", newline="") as file:
        original = file.read()
    with tempfile.TemporaryDirectory() as right:
        command = [options.migrated] + arguments
        if options.processes > 1:
            command = [options.launcher, "launch", "--num-processes", str(options.processes),
                       "--output", "main", "--"] + command
        migrated = run(command, right, options.cpu_threads)

        if options.processes == 1:
            if original != migrated:
                raise SystemExit(f"P1 is broken: other bytes\n--- original\n{original}--- migrated\n{migrated}")
            for name in [what.saved] if what.saved else []:
                with open(os.path.join(left, name), "rb") as a, open(os.path.join(right, name), "rb") as b:
                    if a.read() != b.read():
                        raise SystemExit(f"P1 is broken: {name} differs")
            print(f"{len(original)} bytes{' and ' + what.saved if what.saved else ''} are identical")
            return

        try:
            if options.double:
                result = compare(original, migrated)
                limit = FLOAT64_RELATIVE
            else:
                result = compare(original, migrated, what.early)
                limit = FLOAT32_RELATIVE
        except Different as difference:
            raise SystemExit(f"P2 is broken: {difference}")
        print(f"{result.numbers} numbers, greatest difference {result.absolute:.3g} absolute, "
              f"{result.relative:.3g} relative ({result.where})")
        if result.relative > limit:
            raise SystemExit(f"P2 is broken: {result.relative:.3g} relative is more than {limit:g}; {result.where}")
        if options.double and result.numbers == 0:
            raise SystemExit("nothing was compared")
        if what.accuracy and not options.double:
            a, b = (what.accuracy(text.splitlines()[-1]) for text in (original, migrated))
            print(f"final accuracy: {a:g} samples right in the original, {b:g} in the migrated run")
            if abs(a - b) > 1:
                raise SystemExit("P2 is broken: the final accuracy is off by more than one sample")


if __name__ == "__main__":
    sys.exit(main())
