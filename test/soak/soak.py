#!/usr/bin/env python3
"""Faults in numbers: injects many more of them than the tests do, and counts.

    test/soak/soak.py BUILD_DIR [--kills 20] [--jobs 3] [--save-kills 100] [--deaths 10]

--kills N       SIGKILL at random moments to a training job that saves after
                every step, until N processes died; --jobs of them
--save-kills N  SIGKILL at random moments while saving, N times as the next
                numbered checkpoint and N times in place of an old one
--deaths N      one process dies while others wait for it, N times

The last line is "all survived", and the exit code 0, where nothing was lost.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CONFIG_HOME": "/nonexistent"}


class Figures:
    def __init__(self):
        self.rows = []
        self.bad = 0

    def add(self, what, injected, survived, more):
        self.rows.append((what, injected, survived, more))
        self.bad += injected != survived
        print(f"{what}: {survived} of {injected} survived; {more}", flush=True)


def launch(build, cwd, options, arguments, timeout=600):
    start = time.monotonic()
    done = subprocess.run([os.path.join(build, "bin/accel"), "launch", "-n", "2", *options, "--",
                           os.path.join(build, "bin/faults_subject"), *arguments],
                          cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=timeout)
    return done, time.monotonic() - start


def jobs(build, figures, count, kills):
    with tempfile.TemporaryDirectory() as cwd:
        undisturbed, _ = launch(build, cwd, ["--output", "main"], ["train"])
    injected = lost = repeated = 0
    equal = True
    for _ in range(count):
        with tempfile.TemporaryDirectory() as cwd:
            done, _ = launch(build, cwd, ["--output", "main", "--max-restarts", str(5 * kills), "--resume", "auto"],
                             ["kill", str(kills)])
            equal = equal and done.returncode == 0 and done.stdout == undisturbed.stdout
            with open(os.path.join(cwd, "kills")) as file:
                injected += len(file.readlines())
            step = 0
            with open(os.path.join(cwd, "log")) as file:
                for word, number in (line.split() for line in file):
                    if word == "start":
                        lost += step - int(number)
                        repeated = max(repeated, step - int(number))
                    step = int(number)
    figures.add("kills of training processes", injected, injected if equal else 0,
                f"steps done again: {lost}, at most {repeated} at a time; output {'equal' if equal else 'DIFFERENT'}")


def saves(build, figures, kills):
    done = subprocess.run([os.path.join(build, "bin/accel_checkpoint_tests"), "--gtest_filter=Interrupted.Killed*"],
                          env={**ENVIRONMENT, "ACCEL_TEST_KILLS": str(kills)}, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout)
    figures.add("kills while saving", 2 * kills, 2 * kills if done.returncode == 0 else 0,
                f"checkpoints lost: {0 if done.returncode == 0 else 'SOME'}")


def deaths(build, figures, count):
    survived, longest = 0, 0.0
    for _ in range(count):
        with tempfile.TemporaryDirectory() as cwd:
            done, _ = launch(build, cwd, [], ["die"])
            named = "failed first: ended by SIGKILL" in done.stderr
            place = "called at subject.cpp:" in done.stderr
            with open(os.path.join(cwd, "died")) as file:
                seconds = time.time() - float(file.read())
            longest = max(longest, seconds)
            survived += named and place
    figures.add("deaths in a collective", count, survived, f"all ended at most {longest:.2f} s later")


def out_of_step(build, figures):
    for fault in ("main-only", "fewer-batches"):
        with tempfile.TemporaryDirectory() as cwd:
            ENVIRONMENT["ACCEL_STALL_TIMEOUT"] = "2"
            done, seconds = launch(build, cwd, [], [fault])
            named = re.search(r"out of step", done.stderr) and done.returncode != 0
            figures.add(f"out of step ({fault})", 1, 1 if named else 0, f"{seconds:.1f} s from start to end")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--save-kills", type=int, default=100)
    parser.add_argument("--deaths", type=int, default=10)
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    figures = Figures()
    jobs(build, figures, options.jobs, options.kills)
    saves(build, figures, options.save_kills)
    deaths(build, figures, options.deaths)
    out_of_step(build, figures)
    print("all survived" if figures.bad == 0 else f"{figures.bad} kinds of fault were not survived")
    return 1 if figures.bad else 0


if __name__ == "__main__":
    sys.exit(main())
