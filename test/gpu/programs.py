#!/usr/bin/env python3
"""Runs whole programs on GPUs: the zoo, the examples and accel verify, as one process and as several.

    programs.py --build BUILD [--only zoo,examples,verify] [--runs TEXT,...] [--every N] [--jobs N] [--logs FOLDER]

BUILD is a build against a LibTorch with CUDA with the programs of test/e2e (docs/gpu.md). Every number that a program
prints or notes must be that of the plain LibTorch program on one GPU, to 1e-9 in float64. Where there are fewer GPUs
than processes they share one: over Gloo, and over NCCL, which takes each for a host of its own then.

The zoo runs under each kind of parallelism; --every N: one model of N. --runs: those whose name has one of the texts.
Prints one line for each run; the exit status is 0 where all passed.
"""

import argparse
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "test", "e2e", "zoo"))
import zoo  # noqa: E402

EXAMPLES = {
    "regression": "--double --epochs 2",
    "raw_sgd": "--double --epochs 5",
    "trainer": "--double --epochs 1",
    "spirals": "--double --epochs 10",
    "gan": "--double --steps 10",
    "ppo": "--double --updates 1",
    "seq2seq": "--double --epochs 1",
    "digits": "--double --epochs 1 --data " + os.path.join(ROOT, "examples", "digits", "digits.csv"),
}
# Kinds of parallelism: processes and environment.
CONFIG = {"ACCELERATE_USE_PARALLELISM_CONFIG": "true"}
KINDS = {
    "data": (2, {}),
    "data.4": (4, {}),
    "FULL_SHARD": (2, {"ACCELERATE_USE_FSDP": "true", "FSDP_SHARDING_STRATEGY": "FULL_SHARD"}),
    "SHARD_GRAD_OP": (2, {"ACCELERATE_USE_FSDP": "true", "FSDP_SHARDING_STRATEGY": "SHARD_GRAD_OP"}),
    "HYBRID_SHARD": (4, {**CONFIG, "PARALLELISM_CONFIG_DP_REPLICATE_SIZE": "2", "PARALLELISM_CONFIG_DP_SHARD_SIZE": "2"}),
    "tensor": (2, {**CONFIG, "PARALLELISM_CONFIG_TP_SIZE": "2"}),
    "context": (2, {**CONFIG, "PARALLELISM_CONFIG_CP_SIZE": "2"}),
    "sequence": (2, {**CONFIG, "PARALLELISM_CONFIG_SP_SIZE": "2"}),
}
# Its model is saved into memory by itself, which is refused where parameters are divided.
NOT_DIVIDED = "early_end"


def run_plain(options, folder):
    """The zoo's plain programs on one GPU; returns those that LibTorch cannot run there."""
    failed = []
    program = os.path.join(options.build, "test/e2e/accel_zoo")
    while True:
        command = [program, "--device", "cuda", "--plain", "--out", folder]
        if failed:
            command += ["--after", failed[-1]]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        models = zoo.read(os.path.join(folder, "0.tsv")) if os.path.exists(os.path.join(folder, "0.tsv")) else {}
        unfinished = [name for name, model in models.items() if not model.ended and name not in failed]
        if done.returncode == 0:
            return failed
        if not unfinished:
            raise SystemExit(f"the plain zoo ended with {done.returncode}\n{done.stdout[-2000:]}")
        failed.append(unfinished[-1])
        print(f"plain LibTorch cannot run {failed[-1]} on a GPU: {(models[failed[-1]].error or '')[:160]}", flush=True)


def jobs_of(options, plain, gpus):
    """(name, command, environment) of each run."""
    accel = os.path.join(options.build, "bin/accel")
    jobs = []

    def add(name, command, environment=None):
        jobs.append((name, command, environment or {}))

    def over(count):
        """What carries the tensors of so many processes: (name, arguments, environment)."""
        yield "gloo", [], {"ACCEL_BACKEND": "gloo"}
        yield "nccl", [] if count <= gpus else ["--own-hosts"], {}

    if "zoo" in options.only:
        folder, failed = plain
        command = [sys.executable, os.path.join(ROOT, "test/e2e/zoo/zoo.py"), "--device", "cuda", "--launcher", accel,
                   "--program", os.path.join(options.build, "test/e2e/accel_zoo"), "--plain", folder, "--timeout", "400"]
        add("zoo.1", command + ["--processes", "1", "--without", ",".join(failed)])
        for kind, (count, environment) in KINDS.items():
            divided = "FSDP" in str(environment) or "SHARD" in kind or kind == "tensor"
            without = ",".join(failed + ([NOT_DIVIDED] if divided else []))
            for transport, arguments, more in over(count):
                if count == 4 and transport == "gloo":
                    continue
                every = ["--every", str(options.every * (2 if count == 4 else 1))]
                add(f"zoo.{kind}.{transport}.{count}",
                    command + ["--processes", str(count), "--without", without] + arguments + every,
                    {**environment, **more})
    for name, arguments in EXAMPLES.items():
        if "examples" not in options.only:
            break
        original = os.path.join(options.build, "test/e2e", f"e2e_{name}")
        command = [sys.executable, os.path.join(ROOT, "test/device/examples.py"), "--cuda", "--launcher", accel,
                   "--program", original + "_accel", "--reference", original, "--reference-on-device"]
        add(f"{name}.1", command + ["--processes", "1", "--"] + arguments.split())
        for count in (2, 3):
            for transport, own, environment in over(count):
                if (count == 3) == (transport == "nccl"):
                    add(f"{name}.{transport}.{count}",
                        command + ["--processes", str(count)] + own + ["--"] + arguments.split(), environment)
    if "verify" in options.only:
        for name in ("regression", "spirals"):
            original = os.path.join(options.build, "test/e2e", f"e2e_{name}")
            add(f"verify.{name}",
                [accel, "verify", "--original", original, "--migrated", original + "_accel", "--num-processes", "1,2",
                 "--no-repeat", "--"] + EXAMPLES[name].split(), {"ACCEL_BACKEND": "gloo"})
    return jobs


def run(job, options):
    name, command, environment = job
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "OMP_NUM_THREADS": "1", **environment})
    if options.logs:
        with open(os.path.join(options.logs, name + ".log"), "w") as log:
            log.write(done.stdout)
    passed = done.returncode == 0
    last = done.stdout.strip().splitlines()[-1:] or [""]
    print(f"{'passed' if passed else 'FAILED'} {name} ({time.monotonic() - started:.0f} s): {last[0][:160]}", flush=True)
    if not passed:
        for line in done.stdout.strip().splitlines()[-12:]:
            print("    " + line[:300], flush=True)
    return passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--only", type=lambda text: text.split(","), default=["zoo", "examples", "verify"])
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 4))
    parser.add_argument("--runs", type=lambda text: text.split(","), default=[""])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--logs")
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    gpus = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout.count("GPU ")

    with tempfile.TemporaryDirectory() as folder:
        plain = (folder, run_plain(options, folder) if "zoo" in options.only else [])
        jobs = [job for job in jobs_of(options, plain, gpus) if any(text in job[0] for text in options.runs)]
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            passed = list(pool.map(lambda job: run(job, options), jobs))
    print(f"{sum(passed)} of {len(passed)} runs passed")
    return 0 if passed and all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
