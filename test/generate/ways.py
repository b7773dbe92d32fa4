"""Ways to start a migrated program that change where parts lie, and not what it prints."""

from dataclasses import dataclass, field


# In a variable's value: a folder beside the program's working folder.
BESIDE = "{beside}"


@dataclass(frozen=True)
class Way:
    name: str
    processes: int
    environment: dict = field(default_factory=dict)
    # What changes the numbers: for the run as one process, too, which is then compared with instead of the original's.
    common: dict = field(default_factory=dict)


def _fsdp(strategy, **more):
    return {"ACCELERATE_USE_FSDP": "true", "FSDP_SHARDING_STRATEGY": strategy, **more}


def _mesh(**sizes):
    return {"ACCELERATE_USE_PARALLELISM_CONFIG": "true", **{f"PARALLELISM_CONFIG_{axis.upper()}_SIZE": str(size) for axis, size in sizes.items()}}


def _accumulate(steps):
    return {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": str(steps)}


WAYS = (
    Way("FULL_SHARD", 2, _fsdp("FULL_SHARD")),
    Way("tp 2", 2, _mesh(tp=2)),
    Way("SHARD_GRAD_OP", 3, _fsdp("SHARD_GRAD_OP")),
    Way("dp_shard 2 x tp 2", 4, _mesh(dp_shard=2, tp=2)),
    Way("2 batches for a step", 2, common=_accumulate(2)),
    Way("FULL_SHARD, activations again", 3, _fsdp("FULL_SHARD", FSDP_ACTIVATION_CHECKPOINTING="true", FSDP_AUTO_WRAP_POLICY="SIZE_BASED_WRAP", FSDP_MIN_NUM_PARAMS="20")),
    Way("cp 2", 2, _mesh(cp=2)),
    Way("dp_replicate 2 x dp_shard 2", 4, _mesh(dp_replicate=2, dp_shard=2)),
    Way("tp 3", 3, _mesh(tp=3)),
    Way("FULL_SHARD, 3 batches for a step", 2, _fsdp("FULL_SHARD"), common=_accumulate(3)),
    Way("sp 2", 2, _mesh(sp=2)),
    Way("dp_replicate 2 x tp 2", 4, _mesh(dp_replicate=2, tp=2)),
    Way("ZeRO-3 into files", 2, {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3",
                                 "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": "nvme", "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE": "nvme",
                                 "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH": BESIDE, "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH": BESIDE}),
)
