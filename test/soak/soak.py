#!/usr/bin/env python3
"""Faults in numbers: injects many more of them than the tests do, and counts.

    test/soak/soak.py BUILD_DIR [--kills 20] [--jobs 3] [--save-kills 100] [--deaths 4] [--hosts 3]

--kills N       SIGKILL at random moments to a training job that saves after
                every step, until N processes died; --jobs of them
--save-kills N  SIGKILL at random moments while saving, N times as the next
                numbered checkpoint, N times in place of an old one, and N/2
                times while a thread saves
--deaths N      one process dies while others wait for it, N times in each of
                five ways
--hosts N       several hosts (test/faults/hosts.py): N times each a cut link, one
                after which the job goes on with fewer, a death, and processes
                killed on both hosts; once a slow link and one that loses packets

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
    count = 2 * kills + kills // 2
    figures.add("kills while saving", count, count if done.returncode == 0 else 0,
                f"checkpoints lost: {0 if done.returncode == 0 else 'SOME'}")


def left_behind(build, cwd, before):
    """Processes of the program, its port, and shared memory."""
    left = [name for name in os.listdir("/dev/shm") if name not in before]
    with open(os.path.join(cwd, "pids")) as file:
        left += [pid for pid in file.read().split() if os.path.exists(f"/proc/{pid}")]
    with open(os.path.join(cwd, "port")) as file:
        port = f":{int(file.read()):04X} 00000000"
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(name) as file:
            left += [line for line in file if port in line and line.split()[3] == "0A"]
    return left


def deaths(build, figures, count):
    for how, said in {"kill": "ended by SIGKILL", "segv": "ended by SIGSEGV", "exit": "exit code 7",
                      "throw": "ended by SIGABRT", "memory": "ended by SIGABRT"}.items():
        survived, longest, remains = 0, 0.0, 0
        for _ in range(count):
            before = set(os.listdir("/dev/shm"))
            with tempfile.TemporaryDirectory() as cwd:
                done, _ = launch(build, cwd, [], ["die", how])
                with open(os.path.join(cwd, "died")) as file:
                    seconds = time.time() - float(file.read())
                left = left_behind(build, cwd, before)
            named = f"failed first: {said}" in done.stderr
            place = re.search(r"called at subject\.cpp:.*: rank 1: " + said, done.stderr)
            longest = max(longest, seconds)
            remains += len(left)
            survived += bool(named and place and not left)
        figures.add(f"deaths in a collective ({how})", count, survived,
                    f"all had ended at most {longest:.2f} s later; left behind: {remains}")


def hosts(build, figures, count):
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../faults/hosts.py")
    rounds = {"cut": count, "fewer": count, "death": count, "restarts": count, "delay": 1, "loss": 1, "equal": 1}
    for case, times in rounds.items():
        survived, said = 0, []
        for _ in range(times):
            done = subprocess.run([sys.executable, script, "--launcher", os.path.join(build, "bin/accel"), "--program",
                                   os.path.join(build, "bin/faults_subject"), case],
                                  env=ENVIRONMENT, capture_output=True, text=True)
            survived += done.returncode == 0
            said += done.stdout.strip().splitlines() or ["the same result"]
            if done.returncode != 0:
                print(done.stdout, done.stderr)
        figures.add(f"hosts ({case})", times, survived, "; ".join(said))


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
    parser.add_argument("--deaths", type=int, default=4)
    parser.add_argument("--hosts", type=int, default=3)
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    figures = Figures()
    if options.jobs > 0:
        jobs(build, figures, options.jobs, options.kills)
    if options.save_kills > 0:
        saves(build, figures, options.save_kills)
    if options.deaths > 0:
        deaths(build, figures, options.deaths)
    out_of_step(build, figures)
    if options.hosts > 0:
        hosts(build, figures, options.hosts)
    print("all survived" if figures.bad == 0 else f"{figures.bad} kinds of fault were not survived")
    return 1 if figures.bad else 0


if __name__ == "__main__":
    sys.exit(main())
