"""The step of parallel_steps.cpp, TENSOR_PARALLEL, in Python with torch.distributed.tensor.parallel on Gloo: prints milliseconds per step.

    parallel_steps_dtensor.py [--optimizer adam|sgd] [--steps N]

The plan is the one that accel makes of this model: words between columns, attention by heads, linear1 and out colwise,
out_proj and linear2 rowwise. PyTorch cannot cut its own nn.MultiheadAttention, so that the layers are written here. Queries, keys
and values of a head lie beside each other in one weight: one sum in backward, the least that there can be. Run by torchrun.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from parallel_steps_peer import HEADS, INNER, LAYERS, LENGTH, OUTPUTS, SENTENCES, WIDTH, WORDS, begin, measure


class Layer(nn.Module):
    """nn.TransformerEncoderLayer without dropout."""

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(WIDTH, 3 * WIDTH)
        self.out_proj = nn.Linear(WIDTH, WIDTH)
        self.linear1 = nn.Linear(WIDTH, INNER)
        self.linear2 = nn.Linear(INNER, WIDTH)
        self.norm1 = nn.LayerNorm(WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)

    def attention(self, x):
        # The heads of this process: as many as in_proj has given.
        heads = self.in_proj(x).view(*x.shape[:2], -1, 3, WIDTH // HEADS).transpose(1, 2)
        joined = nn.functional.scaled_dot_product_attention(*heads.unbind(3))
        return self.out_proj(joined.transpose(1, 2).flatten(2))

    def forward(self, x):
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.linear2(self.linear1(x).relu()))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.Sequential(*[Layer() for _ in range(LAYERS)])
        self.out = nn.Linear(WIDTH, OUTPUTS)

    def forward(self, words):
        return self.out(self.layers(self.words(words)))


options = begin(__doc__)
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
net = parallelize_module(Transformer(), mesh, {
    "words": ColwiseParallel(output_layouts=Replicate()),
    "layers.*.in_proj": ColwiseParallel(),
    "layers.*.out_proj": RowwiseParallel(),
    "layers.*.linear1": ColwiseParallel(),
    "layers.*.linear2": RowwiseParallel(),
    # The loss is computed on parts.
    "out": ColwiseParallel(use_local_output=False),
})
measure(options, net, torch.randint(WORDS, (SENTENCES, LENGTH)))
