"""Records golden/parallel_training.json: a small language model, trained by PyTorch's
own engines on two processes over Gloo, in float64.

    python parallel_training.py > ../golden/parallel_training.json

needs torch 2.11. Per engine: the losses of all steps, the names of the state dict in
its order, and the values of the trained parameters. What is trained is the model of
parallel_training.cpp; weights and words are formulas, so that neither needs the
other's random numbers. PyTorch's context parallelism names no attention of CPUs; it
takes the one that ring_on_cpu.py adds. As Accelerate has it, FSDP2 divides the weights
over the processes that share the positions. Ulysses' exchange is DeepSpeed's, which is
not recorded: ours is compared with one process.
"""

import json
import os
import sys
import tempfile
from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from ring_on_cpu import ring_on_cpu

STEPS, SAMPLES, TIME, WORDS, FEATURES, HEADS = 5, 4, 6, 11, 8, 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(FEATURES, FEATURES) for _ in range(4))

    def forward(self, x):
        # With its projections cut each process has some of the heads.
        def split(y):
            return y.unflatten(-1, (-1, FEATURES // HEADS)).transpose(1, 2)

        y = F.scaled_dot_product_attention(split(self.q(x)), split(self.k(x)), split(self.v(x)), is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WORDS, FEATURES)
        self.norm = nn.LayerNorm(FEATURES)
        self.attention = Attention()
        self.up = nn.Linear(FEATURES, 2 * FEATURES)
        self.down = nn.Linear(2 * FEATURES, FEATURES)
        self.head = nn.Linear(FEATURES, WORDS, bias=False)

    def forward(self, words):
        x = self.table(words)
        x = x + self.attention(self.norm(x))
        x = x + self.down(F.gelu(self.up(self.norm(x))))
        return self.head(x)


def model():
    net = Reader().double()
    with torch.no_grad():
        for k, parameter in enumerate(net.parameters()):
            numbers = torch.arange(parameter.numel(), dtype=torch.double)
            parameter.copy_(torch.sin(numbers * 0.7 + k).view_as(parameter) * 0.4)
    return net


def batch(step, time):
    words = (torch.arange(SAMPLES * time) * (step + 3) + step).remainder(WORDS).view(SAMPLES, time)
    return words, (words * 3 + 1).remainder(WORDS)


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def train(net, own, average, time=TIME, scope=lambda *both: nullcontext()):
    """`own`: this process's part of a batch; `average`: losses of the processes are of
    parts of equal size; `scope`: of forward and backward."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
    losses = []
    for step in range(STEPS):
        words, following = own(*batch(step, time))
        optimizer.zero_grad()
        with scope(words, following):
            loss = F.cross_entropy(net(words).flatten(0, 1), following.flatten())
            loss.backward()
        optimizer.step()
        shown = whole(loss.detach()).clone()
        if average:
            dist.all_reduce(shown)
            shown /= dist.get_world_size()
        losses.append(shown.item())
    return losses


def result(net, losses):
    state = {name: whole(value).detach() for name, value in net.state_dict().items()}
    return {
        "losses": losses,
        "names": list(state),
        "sizes": {name: list(value.shape) for name, value in state.items()},
        "values": {name: value.flatten().tolist() for name, value in state.items()},
    }


def own_samples(words, following):
    share = slice(dist.get_rank() * SAMPLES // 2, (dist.get_rank() + 1) * SAMPLES // 2)
    return words[share], following[share]


def one_process():
    net = model()
    return result(net, train(net, lambda *both: both, average=False))


def fsdp2():
    net = model()
    mesh = init_device_mesh("cpu", (2,))
    fully_shard(net.attention, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return result(net, train(net, own_samples, average=True))


def tensor_parallel():
    net = model()
    plan = {
        "attention.q": ColwiseParallel(), "attention.k": ColwiseParallel(), "attention.v": ColwiseParallel(),
        "attention.out": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel(),
    }
    parallelize_module(net, init_device_mesh("cpu", (2,)), plan)
    return result(net, train(net, lambda *both: both, average=False))


def context(rotate_method, balanced, time):
    ring_on_cpu(rotate_method, balanced)
    net = model()
    mesh = init_device_mesh("cpu", (2,))
    fully_shard(net, mesh=mesh)

    def positions(*both):
        return context_parallel(mesh, buffers=list(both), buffer_seq_dims=[1, 1])

    losses = train(net, lambda *both: both, average=True, time=time, scope=positions)
    return {"time": time, **result(net, losses)}


ENGINES = {
    "fsdp2": fsdp2,
    "tensor_parallel": tensor_parallel,
    # Balanced, each process has as many positions of the head as of the tail.
    "context_allgather": partial(context, "allgather", balanced=True, time=8),
    "context_alltoall": partial(context, "alltoall", balanced=True, time=8),
    "context_allgather_in_order": partial(context, "allgather", balanced=False, time=TIME),
    "context_alltoall_in_order": partial(context, "alltoall", balanced=False, time=TIME),
}


def process(rank, folder):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    recorded = {"torch": torch.__version__.split("+")[0], "one_process": one_process()}
    for name, engine in ENGINES.items():
        recorded[name] = engine()
    if rank == 0:
        with open(os.path.join(folder, "recorded.json"), "w", encoding="ascii") as file:
            json.dump(recorded, file)
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(process, (folder,), nprocs=2)
        with open(os.path.join(folder, "recorded.json"), encoding="ascii") as file:
            sys.stdout.write(file.read() + "\n")


if __name__ == "__main__":
    main()
