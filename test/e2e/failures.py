"""What happens when one process of a real program dies, or cannot start.

    failures.py --program FAULTY --launcher ACCEL CASE

The launcher must end soon, return the promised code, name the process that
failed first, and leave no process behind.
"""

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

# case: (exit code, what the summary says)
DEATHS = {
    "exit": (7, r"exit code 7"),
    "exception": (128 + signal.SIGABRT, r"SIGABRT"),
    "abort": (128 + signal.SIGABRT, r"SIGABRT"),
    "kill": (128 + signal.SIGKILL, r"SIGKILL"),
    "segv": (128 + signal.SIGSEGV, r"SIGSEGV"),
}
SECONDS = 30  # far less than the collectives' own time-out


def check(condition, message):
    if not condition:
        raise SystemExit(message)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def launch(options, cwd, processes, arguments, extra=(), environment=None):
    command = [options.launcher, "launch", "--num-processes", str(processes), *extra, "--", options.program, *arguments]
    start = time.monotonic()
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120,
                          env={**os.environ, **(environment or {})})
    return done, time.monotonic() - start


def one_dies(options, how, rank, cwd):
    code, said = DEATHS[how]
    done, seconds = launch(options, cwd, 3, [str(rank), "5", how])
    print(done.stderr)
    check(done.returncode == code, f"exit code {done.returncode}, expected {code}")
    check(re.search(rf"rank {rank}\b", done.stderr), f"the summary does not name rank {rank}")
    check(re.search(said, done.stderr), f"the summary does not say {said}")
    if how == "exception":
        check("the data set is on fire" in done.stderr, "the exception's message is lost")
    check("done" not in done.stdout, "training went on without the process that died")
    check(seconds < SECONDS, f"took {seconds:.0f} s")
    for other in range(3):
        with open(os.path.join(cwd, f"faulty.{other}.pid")) as file:
            check(not alive(int(file.read())), f"process {other} is still there")


def one_leaves(options, rank, cwd):
    """A process catches its exception and leaves main with 0: the others notice."""
    done, seconds = launch(options, cwd, 3, [str(rank), "5", "caught"])
    print(done.stderr)
    check(done.returncode != 0, "nobody noticed that a process has left")
    check("the data set is on fire" in done.stderr, "the exception's message is lost")
    check("done" not in done.stdout, "training went on without the process that left")
    # It waits for the others for a while before it cuts the connections.
    check(seconds < 2 * SECONDS, f"took {seconds:.0f} s")
    for other in range(3):
        with open(os.path.join(cwd, f"faulty.{other}.pid")) as file:
            check(not alive(int(file.read())), f"process {other} is still there")


def port_taken(options, cwd):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        done, seconds = launch(options, cwd, 2, ["9", "0", "exit"], ["--main-process-port", str(port)])
        print(done.stderr)
        check(done.returncode not in (0, None), "a port that is taken was not noticed")
        check(str(port) in done.stderr, "the message does not name the port")
        check(len(done.stderr.strip().splitlines()) <= 3, "more than one message")
        check(seconds < SECONDS, f"took {seconds:.0f} s")
        # The same without the launcher: the program itself must say so.
        env = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        done = subprocess.run([options.program, "9", "0", "exit"], cwd=cwd, capture_output=True, text=True,
                              timeout=SECONDS, env={**os.environ, **env})
        print(done.stderr)
        check(done.returncode != 0 and str(port) in done.stderr, "the program does not name the port that is taken")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--launcher", required=True)
    parser.add_argument("case")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cwd:
        if options.case == "port":
            port_taken(options, cwd)
        elif options.case == "none":
            done, _ = launch(options, cwd, 3, ["9", "0", "exit"])
            check(done.returncode == 0 and done.stdout.count("done") == 1, done.stdout + done.stderr)
        else:
            how, rank = options.case.split(":")
            if how == "caught":
                one_leaves(options, int(rank), cwd)
            else:
                one_dies(options, how, int(rank), cwd)


if __name__ == "__main__":
    sys.exit(main())
