"""What parallel_steps_fsdp2.py and parallel_steps_dtensor.py have in common: the sizes of parallel_steps.cpp's transformer, the step, the clock."""

import argparse
import time

import torch
import torch.distributed as dist

WORDS, WIDTH, HEADS, INNER, LAYERS, OUTPUTS = 4000, 512, 8, 2048, 12, 64
SENTENCES, LENGTH = 8, 32


def begin(description):
    """The options; the processes have met."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--optimizer", choices=["adam", "sgd"], default="adam")
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    return options


def measure(options, net, words):
    """Prints milliseconds per step, after two steps that do not count."""
    if options.optimizer == "adam":
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        net(words).pow(2).mean().backward()
        optimizer.step()

    step()
    step()
    dist.barrier()
    start = time.perf_counter()
    for _ in range(options.steps):
        step()
    dist.barrier()
    spent = (time.perf_counter() - start) / options.steps * 1e3
    if dist.get_rank() == 0:
        print(f"{spent:.1f}")
    dist.destroy_process_group()
