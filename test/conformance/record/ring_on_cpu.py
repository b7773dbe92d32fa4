"""PyTorch's context parallelism on CPUs.

PyTorch's ring takes the attention of a block as an argument, and its table of operators
that become a ring names those of GPUs alone. `ring_on_cpu` adds the fused attention of
CPUs, which takes and returns what the ring needs. Who has which positions, what is
exchanged, and how blocks and their gradients are put together stay PyTorch's.
"""

import torch
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.experimental._context_parallel import _attention

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
POSITIONS = 2  # of [samples, heads, positions, features]


def _ring(operator, args, kwargs):
    """Instead of `operator` on DTensors of which each process has some positions."""
    names = [argument.name for argument in operator._schema.arguments]
    given = {**dict(zip(names, args)), **kwargs}
    mesh = given["query"].device_mesh
    for name, value in given.items():
        if isinstance(value, DTensor):
            assert value.placements == (Shard(POSITIONS),), name
            given[name] = value.to_local()
    if operator is FORWARD:
        ring = _attention._templated_ring_attention
    else:
        ring = _attention._templated_ring_attention_backward
        given["grad_out_name"] = "grad_out"
    results = ring(mesh.get_group(), POSITIONS, operator, **given)
    return tuple(DTensor.from_local(local, mesh, [Shard(POSITIONS)], run_check=False) for local in results)


def ring_on_cpu(rotate_method, balanced):
    """For `context_parallel` scopes from here on; balanced: each process has a part of
    the head and one of the tail, as PyTorch has it where nothing is said."""
    _attention.custom_ops.update({FORWARD: _ring, BACKWARD: _ring})
    _attention.set_rotate_method(rotate_method)
    _attention._cp_options.enable_load_balance = balanced
    _attention._cp_options.convert_to_f32 = False  # blocks are put together in float64
