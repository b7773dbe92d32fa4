#!/usr/bin/env python3
"""Start to first optimizer step: accel launch -n 2 against torchrun and Accelerate.

    bench/startup.py --launcher ACCEL --program STARTUP --torchrun TORCHRUN [--rounds 5]

STARTUP is bench/startup.cpp, TORCHRUN belongs to a Python that has torch and
accelerate. Both train the same model as two processes on the CPU. Measured is
the time from the start of the launcher to the end of the first step, one after
the other in each round; the ratio of the medians is to be at most 0.10.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

from paths import program_path


def measure(command, cwd):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CONFIG_HOME": "/nonexistent", "CUDA_VISIBLE_DEVICES": ""}
    start = time.time()
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command}: exit code {done.returncode}\n{done.stderr}")
    return float(done.stdout.split()[-1]) - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launcher", type=program_path, required=True)
    parser.add_argument("--program", type=program_path, required=True)
    parser.add_argument("--torchrun", type=program_path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    commands = {
        "accel launch": [options.launcher, "launch", "-n", "2", "--output", "main", "--", options.program],
        "torchrun": [options.torchrun, "--standalone", "--nproc-per-node", "2",
                     os.path.join(here, "startup_accelerate.py")],
    }
    seconds = {name: [] for name in commands}
    for name, command in commands.items():
        measure(command, here)  # The files are in memory then.
    for _ in range(options.rounds):
        for name, command in commands.items():
            seconds[name].append(measure(command, here))
    for name, values in seconds.items():
        print(f"{name:<14} median {statistics.median(values):6.3f} s  ({min(values):.3f} to {max(values):.3f})")
    ratio = statistics.median(seconds["accel launch"]) / statistics.median(seconds["torchrun"])
    print(f"ratio {ratio:.3f}, at most 0.10 wanted")
    return 0 if ratio <= 0.10 else 1


if __name__ == "__main__":
    sys.exit(main())
