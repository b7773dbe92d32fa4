"""The step of step_overhead.cpp in Python, with Accelerate: prints microseconds per step, the median of blocks.

    steps_accelerate.py [--model small|mlp] [--rounds N] [--steps N]
"""

import argparse
import statistics
import time

import torch
from accelerate import Accelerator

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["small", "mlp"], default="small")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--steps", type=int, default=40)
options = parser.parse_args()

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
nn = torch.nn
if options.model == "small":
    net = nn.Sequential(*[layer for _ in range(200) for layer in (nn.Linear(16, 16), nn.ReLU())])
else:
    net = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(),
                        nn.Linear(2048, 1770), nn.ReLU(), nn.Linear(1770, 64))
inputs = torch.randn(8, 16 if options.model == "small" else 1024)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
net, optimizer = accelerator.prepare(net, optimizer)


def block(steps):
    start = time.perf_counter()
    for _ in range(steps):
        with accelerator.accumulate(net):
            loss = net(inputs).pow(2).mean()
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
    return (time.perf_counter() - start) / steps * 1e6


block(options.steps // 4 + 1)
times = []
for _ in range(options.rounds):
    accelerator.wait_for_everyone()
    times.append(block(options.steps))
if accelerator.is_main_process:
    print(f"{statistics.median(times):.1f}")
