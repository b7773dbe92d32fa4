"""The step of step_overhead.cpp, mode `single`, in Python with DTensor: prints microseconds per step, the median of blocks.

    steps_dtensor.py [--model small|mlp] [--rounds N] [--steps N]

Parameters are replicated, one batch is cut along its rows; all else is DTensor's own affair. Run by torchrun.
"""

import argparse
import statistics
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_module, distribute_tensor

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["small", "mlp"], default="small")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--steps", type=int, default=40)
options = parser.parse_args()

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
nn = torch.nn
if options.model == "small":
    net = nn.Sequential(*[layer for _ in range(200) for layer in (nn.Linear(16, 16), nn.ReLU())])
else:
    net = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(),
                        nn.Linear(2048, 1770), nn.ReLU(), nn.Linear(1770, 64))
net = distribute_module(net, mesh)
inputs = torch.randn(8 * dist.get_world_size(), 16 if options.model == "small" else 1024)
inputs = distribute_tensor(inputs, mesh, [Shard(0)])
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)


def block(steps):
    start = time.perf_counter()
    for _ in range(steps):
        loss = net(inputs).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (time.perf_counter() - start) / steps * 1e6


block(options.steps // 4 + 1)
times = []
for _ in range(options.rounds):
    dist.barrier()
    times.append(block(options.steps))
if dist.get_rank() == 0:
    print(f"{statistics.median(times):.1f}")
dist.destroy_process_group()
