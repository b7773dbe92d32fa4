"""Runs test/gpu/run on simulated devices: every test passes, and the report names each; and with one that fails.

    gpu_run.py --run SCRIPT --build FOLDER
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile


def run(options, folder, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ACCEL_")}
    environment.update(ACCEL_GPU_DIR=folder, **variables)
    done = subprocess.run([options.run, "--simulated", options.build], env=environment, capture_output=True, text=True,
                          timeout=280)
    with open(os.path.join(folder, "gpu_report.md")) as file:
        report = file.read()
    # What is printed is what is reported.
    rows = re.findall(r"^\| (\S+\.\S+|accel test, \d processes) \| (.+?) \|", report, re.M)
    for name, result in rows:
        if f"| {name} | {result} |" not in done.stdout:
            raise SystemExit(f"{name} is not printed:\n{done.stdout}")
    return done, dict(rows), report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", required=True)
    parser.add_argument("--build", required=True)
    options = parser.parse_args()
    listed = subprocess.run([os.path.join(options.build, "bin", "accel_sim_gpu_tests"), "--gtest_list_tests"],
                            capture_output=True, text=True, check=True).stdout
    suite, tests = "", set()
    for line in listed.splitlines():
        if line.endswith("."):
            suite = line
        elif line.startswith("  "):
            tests.add(suite + line.strip())
    expected = tests | {"accel test, 1 processes", "accel test, 2 processes"}

    with tempfile.TemporaryDirectory() as folder:
        done, rows, report = run(options, folder)
    if done.returncode != 0 or set(rows) != expected or set(rows.values()) != {"passed"}:
        raise SystemExit(f"exit code {done.returncode}, {rows}\n{done.stdout}{done.stderr}")
    if "everything that ran passed" not in report or "2 simulated devices" not in report:
        raise SystemExit(report)

    # One test that fails, the others left out: half of the tests' own words is not enough.
    with tempfile.TemporaryDirectory() as folder:
        done, rows, report = run(options, folder, GTEST_FILTER="Gpu.TrainsAsTheCpuDoes", ACCEL_SIM_MEMORY_MB="0")
    if done.returncode == 0 or "**failed**" not in rows.values() or "everything that ran passed" in report or (
            "out of memory" not in report.lower()):
        raise SystemExit(f"a failure is not reported: exit code {done.returncode}, {rows}\n{report}")
    print(f"{len(tests)} tests and accel test, with a report of each")


if __name__ == "__main__":
    sys.exit(main())
