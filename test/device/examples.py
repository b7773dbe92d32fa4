"""Runs a migrated example on simulated devices and compares what it prints.

    examples.py --program EXE --sim LIB --backend LIB --launcher ACCEL --processes N --reference cpu|device|EXE
                [--reference-on-device] [-- ARGUMENT...]
    examples.py --program EXE --cuda [--own-hosts] --launcher ACCEL …

The reference is the program on the CPU, one process; with `device` it is the program on one simulated device, for
programs that draw random numbers there, and with a file that program on the CPU, or, with --reference-on-device, on
one simulated device. In float64 every printed number is
the reference's to 1e-9; with one process on one device and the CPU as the reference, too, since the kernels are the
CPU's. --cuda: on GPUs; with --own-hosts NCCL takes each process for a host of its own, and lets several use one GPU.
"""

import argparse
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e", "zoo"))
from zoo import OWN_HOST  # noqa: E402
from compare_runs import Different, compare  # noqa: E402

LIMIT = 1e-9


def run(command, **variables):
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    environment.update(OMP_NUM_THREADS="1", **variables)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=250)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--sim")
    parser.add_argument("--backend")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--own-hosts", action="store_true")
    parser.add_argument("--launcher", required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--reference", required=True)
    parser.add_argument("--reference-on-device", action="store_true")
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()

    # The launcher itself uses no LibTorch: only the program is given the device.
    on_device = [] if options.cuda else ["env", f"LD_PRELOAD={options.sim}"]
    program = on_device + [options.program] + options.arguments
    variables = {} if options.cuda else {
        "ACCEL_DEVICE_TYPE": "sim", "ACCEL_DEVICE_BACKEND": options.backend,
        "ACCEL_SIM_DEVICES": str(max(2, options.processes))}
    command = program
    if options.processes > 1:
        command = [options.launcher, "launch", "--num-processes", str(options.processes), "--output", "main", "--"]
        command += (OWN_HOST if options.own_hosts else []) + program
    if options.reference == "cpu":
        expected = run([options.program] + options.arguments, ACCELERATE_USE_CPU="1")
    elif options.reference == "device":
        expected = run(program, **variables)
    else:
        reference = [options.reference] + options.arguments
        expected = run(on_device + reference, **variables) if options.reference_on_device else run(reference)
    actual = run(command, **variables)
    try:
        result = compare(expected, actual)
    except Different as difference:
        raise SystemExit(f"not as the reference: {difference}")
    print(f"{result.numbers} numbers, greatest difference {result.relative:.3g} relative ({result.where})")
    if result.numbers == 0:
        raise SystemExit("nothing was compared")
    if result.relative > LIMIT:
        raise SystemExit(f"{result.relative:.3g} relative is more than {LIMIT:g}")


if __name__ == "__main__":
    sys.exit(main())
