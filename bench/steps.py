#!/usr/bin/env python3
"""Training steps with accel against plain LibTorch and against Accelerate, in one interleaved run.

    bench/steps.py --build BUILD --python PYTHON [--mode accelerate|single] [--rounds 5] [--steps 40]

BUILD is a build folder with -DACCEL_BUILD_BENCH=ON, compiled with optimisation; PYTHON has torch and accelerate
(`python3 -m venv DIR && DIR/bin/pip install torch accelerate`, outside of this repository). `--mode single` trains with
`match_single_device` as two processes, against Accelerate (DDP) and against Python's DTensor with the same rows for each
process. In each round every program runs once; the ratios are those of the medians over the rounds. Exit code 1 where one
is above what is wanted.
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
    parser.add_argument("--mode", choices=["accelerate", "single"], default="accelerate")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    program = built_path(options.build, "bin", "step_overhead")
    launcher = [built_path(options.build, "bin", "accel"), "launch", "-n", "2", "--output", "main", "--"]
    torchrun = [options.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    peers = {"Accelerate": "steps_accelerate.py", "DTensor": "steps_dtensor.py"}

    # model, processes, ratios that are wanted
    if options.mode == "accelerate":
        cases = [("small", 1, {"plain LibTorch": 1.02, "Accelerate": 0.70}), ("small", 2, {"Accelerate": 0.60}), ("mlp", 2, {"Accelerate": 1.0})]
    else:
        cases = [("small", 2, {"Accelerate": 0.50, "DTensor": 0.30}), ("mlp", 2, {"Accelerate": 0.70})]
    failed = False
    times = {}
    for _ in range(options.rounds):
        for model, processes, wanted in cases:
            arguments = ["--model", model, "--rounds", "3", "--steps", str(options.steps)]
            text = output_of((launcher if processes > 1 else []) + [program, "--mode", options.mode] + arguments)
            plain, accel = map(float, re.findall(r"([0-9.]+) us/step", text))
            row = {"plain LibTorch": plain, "accel": accel}
            for peer in peers.keys() & wanted.keys():
                script = os.path.join(here, peers[peer])
                text = output_of((torchrun if processes > 1 else [options.python]) + [script] + arguments)
                row[peer] = float(text.split()[-1])
            times.setdefault((model, processes), []).append(row)
    for model, processes, wanted in cases:
        rows = times[model, processes]
        median = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        print(f"{model:<5} {processes} process(es): " + ", ".join(f"{name} {value:.0f} us" for name, value in median.items()))
        for name, most in wanted.items():
            ratio = median["accel"] / median[name]
            failed |= ratio > most
            print(f"      {ratio:.3f} of {name}, at most {most:.2f} wanted{'' if ratio <= most else '   MISSED'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
