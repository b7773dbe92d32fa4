#!/usr/bin/env python3
"""save_state and load_state of the same model with accel and with Accelerate, in one interleaved run.

    PYTHON bench/checkpoint_accelerate.py --program CHECKPOINT_SPEED --directory DIR [--megabytes 1000] [--rounds 5]
        [--from memory|disk]

PYTHON has torch and accelerate. Accelerate syncs nothing to the disk, so that its figures are those of a save that may be lost when the
machine stops. Both are compared with the same syncing: its save as it is with one of ours that does not sync, and its save followed by the
calls of fsync that save_state makes (each file, the directory, its parent) with one that does. Nor does it look at checksums when it loads, or
write in the background: a load without checksums, and how long a save in the background holds the program up, are compared with what it can do. With --from disk the files are taken out of the
system's memory before they are loaded, as after a restart on another day.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import time

import torch
from accelerate import Accelerator

from paths import program_path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--program", type=program_path, required=True)
parser.add_argument("--directory", type=os.path.abspath, required=True)
parser.add_argument("--megabytes", type=int, default=1000)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--from", dest="source", choices=["memory", "disk"], default="memory")
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


def sync(name):
    descriptor = os.open(name, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def forget(directory):
    """Takes the files out of the system's memory."""
    for folder, _, files in os.walk(directory):
        for name in files:
            descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def save_and_sync(directory):
    accelerator.save_state(directory)
    for folder, _, files in os.walk(directory):
        for name in files:
            sync(os.path.join(folder, name))
        sync(folder)
    sync(os.path.dirname(directory))


os.makedirs(options.directory, exist_ok=True)
save_and_sync(path)
rows = []
for _ in range(options.rounds):
    done = subprocess.run([options.program, options.directory, "--megabytes", str(options.megabytes), "--rounds", "1",
                           "--only", "accel", "--from", options.source], check=True, capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    times = [*map(float, done.stdout.split()), seconds(accelerator.save_state)]
    os.sync()  # The disk has nothing else to do when the next one begins.
    if options.source == "disk":
        forget(path)
    rows.append([*times, seconds(accelerator.load_state), seconds(save_and_sync)])
shutil.rmtree(path)
columns = list(zip(*rows))


def compare(what, ours, theirs):
    ours, theirs = columns[ours], columns[theirs]
    print(f"{what}: accel {statistics.median(ours):.3f} s, Accelerate {statistics.median(theirs):.3f} s, "
          f"ratio {statistics.median(ours) / statistics.median(theirs):.3f} "
          f"(least: {min(ours):.3f} s, {min(theirs):.3f} s, ratio {min(ours) / min(theirs):.3f}), at most 0.50 wanted")


compare("save_state, neither synced", 1, 5)
compare("save_state, both synced", 0, 7)
compare("save_state, ours synced", 0, 5)
compare("asynchronous save_state, until it returns", 4, 5)
compare("load_state without checksums, neither looks at them", 3, 6)
compare("load_state", 2, 6)
