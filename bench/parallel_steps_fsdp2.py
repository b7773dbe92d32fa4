"""The step of parallel_steps.cpp, FULL_SHARD, in Python with FSDP2 on Gloo: prints milliseconds per step.

    parallel_steps_fsdp2.py [--optimizer adam|sgd] [--steps N]

Each layer is a unit, what is around them another one, as PyTorch's guide has it. Run by torchrun.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from parallel_steps_peer import HEADS, INNER, LAYERS, LENGTH, OUTPUTS, SENTENCES, WIDTH, WORDS, begin, measure


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, dropout=0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS)
        self.out = nn.Linear(WIDTH, OUTPUTS)

    def forward(self, words):
        return self.out(self.layers(self.words(words)))


options = begin(__doc__)
processes = dist.get_world_size()
mesh = init_device_mesh("cpu", (processes,))
net = Transformer()
for layer in net.layers.layers:
    fully_shard(layer, mesh=mesh)
fully_shard(net, mesh=mesh)
batch = torch.randint(WORDS, (SENTENCES, LENGTH))
measure(options, net, batch.chunk(processes)[dist.get_rank()])
