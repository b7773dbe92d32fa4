#!/usr/bin/env python3
"""Models that are divided between two processes, against plain data parallelism and against Python, in one interleaved run.

    bench/parallel_steps.py --build BUILD --python PYTHON --directory DIR [--optimizer adam|sgd] [--rounds 5] [--steps 8]
        [--megabytes 1000]

BUILD is a build folder with -DACCEL_BUILD_BENCH=ON, compiled with optimisation; PYTHON has torch
(`python3 -m venv DIR && DIR/bin/pip install torch numpy`, outside of this repository), of the same version. In each round every
program runs once: a transformer of 40 million parameters with FULL_SHARD and with tensor parallelism, each beside data parallelism
(parallel_steps.cpp), and with FSDP2 and DTensor's tensor parallelism on Gloo in Python. The ratios are those of the medians over
the rounds. Then checkpoints of MEGABYTES in parts are written to DIR and read, against plain writes and reads of the same files by
the same processes (parallel_checkpoint.cpp), from memory and from the disk. Exit code 1 where a ratio is above what is wanted.
"""

import argparse
import os
import re
import statistics
import sys

from paths import built_path, folder_path, program_path
from steps import output_of


def wanted(what, ratio, most):
    """Prints it; whether it is missed."""
    print(f"      {ratio:.3f} {what}, at most {most:.2f} wanted{'' if ratio <= most else '   MISSED'}", flush=True)
    return ratio > most


def measure_round(options, launcher, times):
    """Appends to lists of milliseconds per step, by name."""
    here = os.path.dirname(os.path.abspath(__file__))
    program = built_path(options.build, "bin", "parallel_steps")
    torchrun = [options.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    arguments = ["--optimizer", options.optimizer, "--steps", str(options.steps)]
    for strategy, peer, script in (("FULL_SHARD", "FSDP2", "parallel_steps_fsdp2.py"),
                                   ("TENSOR_PARALLEL", "DTensor", "parallel_steps_dtensor.py")):
        text = output_of(launcher + [program, "--strategy", strategy, "--rounds", "1"] + arguments)
        plain, divided = map(float, re.findall(r"([0-9.]+) ms/step", text))
        python = float(output_of(torchrun + [os.path.join(here, script)] + arguments).split()[-1])
        for name, time in (("data parallelism", plain), (strategy, divided), (peer, python)):
            times.setdefault(name, []).append(time)


def measure_steps(options, launcher):
    times = {}
    for _ in range(options.rounds):
        measure_round(options, launcher, times)
    median = {name: statistics.median(values) for name, values in times.items()}
    print(f"transformer, {options.optimizer}, 2 processes, medians (least): " +
          ", ".join(f"{name} {value:.0f} ms ({min(times[name]):.0f})" for name, value in median.items()))
    missed = False
    for name, peer, most in (("FULL_SHARD", "data parallelism", 1.2), ("FULL_SHARD", "FSDP2", 0.8), ("TENSOR_PARALLEL", "DTensor", 0.7)):
        least = min(times[name]) / min(times[peer])
        missed |= wanted(f"{name} of {peer} (the least times: {least:.3f})", median[name] / median[peer], most)
    return missed


def measure_checkpoints(options, launcher, source):
    program = built_path(options.build, "bin", "parallel_checkpoint")
    text = output_of(launcher + [program, options.directory, "--megabytes", str(options.megabytes), "--rounds",
                                 str(options.rounds), "--from", source])
    print(text.splitlines()[0])
    missed = False
    for ours, spent, peer, plain, ratio, least in re.findall(
            r"^(.+?) ([0-9.]+) s, (.+?) ([0-9.]+) s, ratio ([0-9.]+) \(least: .* ratio ([0-9.]+)\)$", text, re.M):
        missed |= wanted(f"{ours} of {peer} ({spent} s, {plain} s; the least times: {least})", float(ratio), 1.1)
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=folder_path, required=True)
    parser.add_argument("--python", type=program_path, required=True)
    parser.add_argument("--directory", type=os.path.abspath, required=True)
    parser.add_argument("--optimizer", choices=["adam", "sgd"], default="adam")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--megabytes", type=int, default=1000)
    options = parser.parse_args()
    launcher = [built_path(options.build, "bin", "accel"), "launch", "-n", "2", "--output", "main", "--"]
    missed = measure_steps(options, launcher)
    for source in ("memory", "disk"):
        missed |= measure_checkpoints(options, launcher, source)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
