#!/usr/bin/env python3
"""Runs the zoo as several processes and compares it with the plain program.

    zoo.py --program ACCEL_ZOO --launcher ACCEL --plain FOLDER --processes N

FOLDER holds what `accel_zoo --plain --out FOLDER` has written; without --plain it is made. Every process's notes must
be the plain program's: the same ones in the same order, numbers to 1e-9 (relative to what is greater than 1), integers
and truth values exactly, and so the initial weights; with one process to 1e-15. Each model that differs is named with its first difference. A
model that fails or hangs ends the run; it is named, and the run goes on behind it.

--only takes names of models, --without those that are left out; --every 4 runs one model of four. --expect-different
takes names of those that must be found to differ, and no others.
--device NAME: both programs on such devices; --preload LIBRARY: the one that makes them. --own-hosts: NCCL takes each
process for a host of its own, and lets several use one GPU.
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time

LIMIT = 1e-9
# LAPACK does not round alike in two runs of one program.
LIMIT_OF_ONE_PROCESS = 1e-15
# Kernels of GPUs may add in any order.
LIMIT_OF_CUDA = 1e-9
OWN_HOST = ["sh", "-c", 'NCCL_HOSTID=host$RANK NCCL_SOCKET_IFNAME=lo exec "$0" "$@"']


class Model:
    """What one process has written of a model: notes are (name, type and sizes, values as text)."""

    def __init__(self):
        self.notes = []
        self.ended = False
        self.error = None
        self.seconds = 0.0


def read(path):
    """The models of a file, in their order."""
    models = {}
    with open(path) as file:
        for line in file:
            model, what, *rest = line.rstrip("\n").split("\t")
            if what == "#begin":
                models[model] = Model()
            elif what == "#end":
                models[model].ended = True
                models[model].seconds = float(rest[1])
            elif what == "#error":
                models[model].error = rest[1]
            else:
                models[model].notes.append((what, rest[0], rest[1]))
    return models


def near(actual, expected, limit):
    if math.isnan(expected) or math.isinf(expected):
        return repr(actual) == repr(expected)
    return abs(actual - expected) <= limit * max(1.0, abs(expected))


def difference_of_notes(actual, expected, limit):
    """What differs between two notes, or None."""
    if actual[:2] != expected[:2]:
        return f"{actual[0]} ({actual[1]}) where the plain program notes {expected[0]} ({expected[1]})"
    if actual[2] == expected[2]:
        return None
    a, b = actual[2].split(), expected[2].split()
    if len(a) != len(b):
        return f"{expected[0]} has {len(a)} values, not {len(b)}"
    exact = expected[0].startswith("initial ") or not expected[1].startswith(("number", "double"))
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y and (exact or not near(float(x), float(y), limit)):
            return f"{expected[0]} ({expected[1]}), value {i}: {x}, not {y} (off by {abs(float(x) - float(y)):.3g})"
    return None


def difference_of_models(actual, expected, limit):
    """The first difference between two models' notes and how many notes differ, or None."""
    if actual is None:
        return "it did not run"
    if actual.error is not None:
        return f"error: {actual.error}"
    if not actual.ended:
        return "it did not end"
    first, count = None, 0
    for i, (a, b) in enumerate(zip(actual.notes, expected.notes)):
        found = difference_of_notes(a, b, limit)
        if found is not None:
            count += 1
            first = first or f"note {i}: {found}"
    if len(actual.notes) != len(expected.notes):
        return f"{first + '; ' if first else ''}{len(actual.notes)} notes, not {len(expected.notes)}"
    return f"{first}; {count} of {len(expected.notes)} notes differ" if first else None


def program(options):
    """The zoo on the device that was asked for. The launcher itself uses no LibTorch, and is given no library."""
    command = ["env", f"LD_PRELOAD={options.preload}"] if options.preload else []
    command += OWN_HOST if options.own_hosts else []
    command += [options.program]
    if options.device:
        command += ["--device", options.device]
    if options.without:
        command += ["--without", options.without]
    if options.every > 1:
        command += ["--every", str(options.every)]
    return command


def run_plain(options, folder):
    command = [*program(options), "--plain", "--out", folder]
    if options.only:
        command += ["--only", options.only]
    subprocess.run(command, check=True, timeout=options.timeout)


def unfinished(folder, known):
    """The model in which the processes were when they ended, but for those that are known."""
    for name in sorted(os.listdir(folder)):
        if name.endswith(".tsv"):
            for model, what in read(os.path.join(folder, name)).items():
                if not what.ended and model not in known:
                    return model
    return None


def run_processes(options, folder):
    """Runs all models, beginning again behind each that fails; returns what the failures said, by model."""
    failures = {}
    after = None
    while True:
        command = [options.launcher, "launch", "--num-processes", str(options.processes), "--", *program(options),
                   "--out", folder]
        if options.only:
            command += ["--only", options.only]
        if after:
            command += ["--after", after]
        # The launcher ends its processes when it is asked to.
        launched = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            output, _ = launched.communicate(timeout=options.timeout)
            said = f"ended with {launched.returncode}"
        except subprocess.TimeoutExpired:
            launched.terminate()
            output, _ = launched.communicate()
            said = f"no end after {options.timeout:g} seconds"
        if launched.returncode == 0 and said.startswith("ended"):
            return failures
        model = unfinished(folder, failures)
        if model is None:
            raise SystemExit(f"the launcher {said}, and no model was running\n{output}")
        # What matters is at the end: the launcher repeats it.
        failures[model] = "\n".join([said] + output.strip().splitlines()[-30:])
        after = model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--launcher", required=True)
    parser.add_argument("--plain")
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--without", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--expect-different", default="")
    parser.add_argument("--device")
    parser.add_argument("--preload")
    parser.add_argument("--own-hosts", action="store_true")
    parser.add_argument("--timeout", type=float, default=240)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        plain_folder = options.plain
        if not plain_folder:
            plain_folder = os.path.join(folder, "plain")
            os.mkdir(plain_folder)
            run_plain(options, plain_folder)
        plain = read(os.path.join(plain_folder, "0.tsv"))
        out = os.path.join(folder, "out")
        os.mkdir(out)
        start = time.monotonic()
        failures = run_processes(options, out)
        seconds = time.monotonic() - start
        ranks = [read(os.path.join(out, f"{rank}.tsv")) for rank in range(options.processes)]

    limit = LIMIT if options.processes > 1 else LIMIT_OF_ONE_PROCESS
    if options.device == "cuda":
        limit = LIMIT_OF_CUDA
    left_out = options.without.split(",")
    chosen = [name for name in plain
              if name not in left_out and (not options.only or name in options.only.split(","))][::options.every]
    different = {}
    for name in chosen:
        if not plain[name].ended:
            different[name] = ["the plain program did not end"]
            continue
        found = []
        for rank, models in enumerate(ranks):
            difference = difference_of_models(models.get(name), plain[name], limit)
            if difference is not None:
                found.append(f"process {rank}: {difference}")
        if name in failures:
            found.append(failures[name])
        if found:
            different[name] = found
    for name, found in different.items():
        print(f"DIFFERENT {name}")
        for line in "\n".join(found).splitlines():
            print(f"    {line}")
    notes = sum(len(plain[name].notes) for name in chosen)
    print(f"{len(chosen)} models, {notes} notes on each of {options.processes} processes, "
          f"{len(different)} models differ; {seconds:.1f} s")
    slowest = sorted(chosen, key=lambda name: -(ranks[0][name].seconds if name in ranks[0] else 0))[:5]
    print("slowest:", ", ".join(f"{name} {ranks[0][name].seconds:.2f} s" for name in slowest if name in ranks[0]))

    expected = {name for name in options.expect_different.split(",") if name}
    if not chosen or notes == 0:
        raise SystemExit("nothing was compared")
    if set(different) != expected:
        missed = sorted(expected - set(different))
        raise SystemExit(f"not found to differ: {', '.join(missed)}" if missed else "models differ")


if __name__ == "__main__":
    sys.exit(main())
