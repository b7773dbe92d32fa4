#!/usr/bin/env python3
"""Training steps with accel against plain LibTorch and against Accelerate, in one interleaved run.

    bench/steps.py --build BUILD --python PYTHON [--rounds 5] [--steps 40]

BUILD is a build folder with -DACCEL_BUILD_BENCH=ON, compiled with optimisation; PYTHON has torch and accelerate. In each round every
program runs once; the ratios are those of the medians over the rounds. Exit code 1 where one is above what is wanted.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys

from paths import built_path, folder_path, program_path


def output_of(command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CONFIG_HOME": "/nonexistent", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=folder_path, required=True)
    parser.add_argument("--python", type=program_path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    program = built_path(options.build, "bin", "step_overhead")
    launcher = [built_path(options.build, "bin", "accel"), "launch", "-n", "2", "--output", "main", "--"]
    torchrun = [options.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = os.path.join(here, "steps_accelerate.py")

    # model, processes, ratio to plain LibTorch that is wanted, ratio to Accelerate that is wanted
    cases = [("small", 1, 1.02, 0.70), ("small", 2, None, 0.60), ("mlp", 2, None, 1.0)]
    failed = False
    times = {}
    for _ in range(options.rounds):
        for model, processes, _, _ in cases:
            arguments = ["--model", model, "--rounds", "3", "--steps", str(options.steps)]
            text = output_of((launcher if processes > 1 else []) + [program] + arguments)
            plain, accel = map(float, re.findall(r"([0-9.]+) us/step", text))
            text = output_of((torchrun if processes > 1 else [options.python]) + [script] + arguments)
            python = float(text.split()[-1])
            times.setdefault((model, processes), []).append((plain, accel, python))
    for model, processes, of_plain, of_python in cases:
        plain, accel, python = (statistics.median(column) for column in zip(*times[model, processes]))
        print(f"{model:<5} {processes} process(es): plain LibTorch {plain:.0f} us, accel {accel:.0f} us, Accelerate {python:.0f} us")
        for name, other, wanted in (("plain LibTorch", plain, of_plain), ("Accelerate", python, of_python)):
            if wanted is not None:
                verdict = "" if accel / other <= wanted else "   MISSED"
                failed |= bool(verdict)
                print(f"      {accel / other:.3f} of {name}, at most {wanted:.2f} wanted{verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
