#!/usr/bin/env python3
"""save_state and load_state of the same model with accel and with Accelerate, in one interleaved run.

    PYTHON bench/checkpoint_accelerate.py --program CHECKPOINT_SPEED --directory DIR [--megabytes 1000] [--rounds 5]

PYTHON has torch and accelerate. Accelerate syncs nothing to the disk, so that its figures are those of a save that may be lost.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import time

import torch
from accelerate import Accelerator

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--program", required=True)
parser.add_argument("--directory", required=True)
parser.add_argument("--megabytes", type=int, default=1000)
parser.add_argument("--rounds", type=int, default=5)
options = parser.parse_args()

torch.set_num_threads(1)
accelerator = Accelerator(cpu=True)
# A third parameters, two thirds Adam's averages, as in checkpoint_speed.
model = torch.nn.Sequential(*[torch.nn.Linear(2000, 2000, bias=False) for _ in range(options.megabytes // 48)])
model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.1))
for parameter in model.parameters():
    parameter.grad = torch.rand_like(parameter)
optimizer.step()
optimizer.zero_grad()
path = os.path.join(options.directory, "python")


def seconds(work):
    start = time.perf_counter()
    work(path)
    return time.perf_counter() - start


accelerator.save_state(path)
rows = []
for _ in range(options.rounds):
    done = subprocess.run([options.program, options.directory, "--megabytes", str(options.megabytes), "--rounds", "1",
                           "--only", "accel"], check=True, capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    rows.append([*map(float, done.stdout.split()), seconds(accelerator.save_state), seconds(accelerator.load_state)])
shutil.rmtree(path)
save, load, python_save, python_load = (statistics.median(column) for column in zip(*rows))
print(f"save_state: accel {save:.3f} s, Accelerate {python_save:.3f} s, ratio {save / python_save:.3f}, at most 0.50 wanted")
print(f"load_state: accel {load:.3f} s, Accelerate {python_load:.3f} s, ratio {load / python_load:.3f}, at most 0.50 wanted")
