#!/usr/bin/env python3
"""Runs accel_sample_calls with all tensors on a device, each rank a program of its own (sample_ranks.h).

    on_device.py --program accel_sample_calls --device cuda --world 2 --groups 4 --seconds 540 [-- ARGUMENT...]

What the program's help says about --filter, --seed, --placements, --table and --golden goes behind `--`. `--device sim
--preload libaccel_sim.so` is the simulated device of test/device/sim, `--device cpu` the host.

Each of the --groups has all ranks, and every --groups'th sample. When a group's processes end before they are done, or
stand still, they are started again behind what ended them, which counts as a failure: a call that leaves a device which
computes nothing any more, a crash, a process that hangs. A plain call that does so is skipped. After --seconds all end,
and the summary says how far they came.

Prints the failures as they come (the first of each operator and group; --all behind `--` for all), operators and lines
that the device refuses with --refused, and at the end

    2 ranks on cuda: 4711 calls of 812 operators, 15000 placed (9000 with gradients, 8000 with second ones); 0 wrong, ...

Exit status 0 where all runs were made and none was wrong or threw, 1 where something failed, 2 for bad arguments,
3 where the time was over and nothing had failed until then.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time

FIELDS = "calls placed once twice wrong threw skipped".split()


class Position:
    """What a rank did last (the file STORE.at.RANK)."""

    def __init__(self, path):
        try:
            with open(path) as file:
                fields = file.read().split("\t")
        except OSError:
            fields = []
        if len(fields) < 12:
            fields = ["start", 0, 0] + [0] * len(FIELDS) + ["", ""]
        self.state = fields[0]
        self.number, self.next = int(fields[1]), int(fields[2])
        self.counts = {name: int(value) for name, value in zip(FIELDS, fields[3:])}
        self.name, self.origin = fields[10], fields[11]

    def at(self):
        return self.state, self.number, self.name


class Group:
    """All ranks, for one part of the samples."""

    def __init__(self, options, number, folder):
        self.options, self.number, self.folder = options, number, folder
        self.begin, self.without, self.starts = 0, list(options.without), 0
        self.totals = dict.fromkeys(FIELDS, 0)
        self.failures, self.operators, self.bad = 0, set(), set()
        self.skipped, self.refused = {}, set()
        self.done = False
        self.start()

    def start(self):
        self.starts += 1
        self.store = os.path.join(self.folder, f"{self.number}.{self.starts}")
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        if self.options.preload:
            environment["LD_PRELOAD"] = self.options.preload
        self.ranks, self.errors = [], []
        for rank in range(self.options.world):
            command = [self.options.program, "--device", self.options.device, "--store", self.store, "--rank", str(rank),
                       "--world", str(self.options.world), "--from", str(self.begin), "--part", str(self.number),
                       "--parts", str(self.options.groups)]
            if self.without:
                command += ["--without", ",".join(map(str, self.without))]
            # Rank 0 alone prints failures; LibTorch warns a lot, which is looked at where a process crashes.
            self.errors.append(f"{self.store}.err.{rank}")
            with open(self.errors[-1], "w") as errors:
                self.ranks.append(subprocess.Popen(command + self.options.arguments, env=environment, stderr=errors,
                                                   stdout=None if rank == 0 else subprocess.DEVNULL))
        self.moved = time.monotonic()
        self.last = None

    def position(self, rank=0):
        return Position(f"{self.store}.at.{rank}")

    def end(self):
        """Ends the processes, and adds up what they have done."""
        for process in self.ranks:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
        for name, value in self.position().counts.items():
            self.totals[name] += value
        try:
            with open(self.store + ".log", errors="replace") as file:
                lines = file.read().splitlines()
        except OSError:
            lines = []
        for line in lines:
            kind, _, text = line.partition(" ")
            if kind == "operator":
                self.operators.add(text)
            elif kind == "bad":
                self.bad.add(text)
            elif kind == "skipped":
                name, _, why = text.partition(": ")
                self.skipped.setdefault(name, why)
            elif kind in ("refused", "unknown"):
                self.refused.add(text)
        os.path.exists(self.store) and os.remove(self.store)

    def look(self):
        """Whether there is more to do; starts the processes again where they have ended early."""
        if self.done:
            return False
        codes = [process.poll() for process in self.ranks]
        ended = [code for code in codes if code is not None]
        if ended and all(code in (0, 1) for code in ended):
            if len(ended) == len(codes):
                self.end()
                self.done = True
                return False
            # The others come to the same end; what takes longer stands still.
        where = [self.position(rank).at() for rank in range(len(self.ranks))]
        if where != self.last:
            self.last, self.moved = where, time.monotonic()
        still = time.monotonic() - self.moved > self.options.still
        if still or any(code not in (0, 1) for code in ended):
            self.restart("stands still" if still else next(
                f"ends with {code}" for code in ended if code not in (0, 1)), codes)
        return not self.done

    def restart(self, why, codes):
        for process in self.ranks:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
        # The rank that has ended by itself tells where, or the one that the others wait for.
        positions = [self.position(rank) for rank in range(len(self.ranks))]
        ended = [p for p, code in zip(positions, codes) if code not in (None, 0, 1, 5)] or positions
        last = min(ended, key=lambda p: (["start", "sample", "plain", "run", "done"].index(p.state), p.number))
        counted = positions[0].counts
        self.end()
        if last.state == "run":
            self.begin = last.number + 1
            if not (4 in codes and counted["wrong"] + counted["threw"] > 0):
                self.failures += 1
                self.bad.add(last.name)
                print(f"ENDS   {last.name} on {self.options.world} ranks, {last.origin}, run {last.number}: {why}",
                      flush=True)
        elif last.state == "plain":
            self.begin = last.next
            self.skipped[f"{last.name}, {last.origin}"] = f"the plain call {why}"
            self.totals["skipped"] += 1
        elif last.state == "sample":
            self.without.append(last.number)
            self.skipped[f"{last.name}, tried call {last.number}"] = f"the plain call {why}"
        if last.state != "sample" and 4 not in codes:
            self.print_errors()
        if last.state in ("start", "done") or self.starts > self.options.restarts:
            print(f"group {self.number} is given up: it {why} ({last.state}, {self.starts} starts)", flush=True)
            self.failures += 1
            self.done = True
            return
        print(f"group {self.number} goes on behind {last.state} {last.number} ({last.name}), which {why}", flush=True)
        self.start()


    def print_errors(self):
        for path in self.errors:
            with open(path, errors="replace") as file:
                for line in [line for line in file.read().splitlines() if not line.startswith("[W")][-5:]:
                    print("  ", line[:300])


def collect(options, folder, over):
    """Makes the samples once: the numbers of calls that end the process."""
    if options.without is not None:
        return [int(number) for number in options.without.split(",") if number]
    without = []
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    if options.preload:
        environment["LD_PRELOAD"] = options.preload
    for start in range(options.restarts):
        store = os.path.join(folder, f"samples.{start}")
        command = [options.program, "--device", options.device, "--store", store, "--rank", "0", "--world",
                   str(options.world), "--collect", *options.arguments]
        if without:
            command += ["--without", ",".join(map(str, without))]
        began = time.monotonic()
        try:
            done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, errors="replace",
                                  timeout=max(1.0, over - began))
        except subprocess.TimeoutExpired:
            last = Position(f"{store}.at.0")
            raise SystemExit(f"the samples are not made in time: at call {last.number}, {last.name}") from None
        if done.returncode == 0:
            print(f"samples are made in {time.monotonic() - began:.1f} seconds"
                  + (f", without {','.join(map(str, without))}" if without else ""), flush=True)
            return without
        last = Position(f"{store}.at.0")
        if done.returncode == 2 or last.state != "sample":
            raise SystemExit(f"the samples cannot be made: {done.returncode}\n{done.stderr[-2000:]}")
        print(f"the plain call {last.number} of {last.name} ends the process ({done.returncode})", flush=True)
        without.append(last.number)
    raise SystemExit("the samples cannot be made: too many calls end the process")


def summary(options, groups, over):
    total = {name: sum(group.totals[name] for group in groups) for name in FIELDS}
    failures = sum(group.failures for group in groups)
    operators = set().union(*(group.operators for group in groups))
    bad = set().union(*(group.bad for group in groups))
    skipped = {name: why for group in groups for name, why in group.skipped.items()}
    refused = set().union(*(group.refused for group in groups))
    if options.refused:
        for line in sorted(refused):
            print("refused:", line)
    for name, why in sorted(skipped.items()):
        print(f"skipped: {name}: {why}")
    for name in sorted(bad):
        print("bad:", name)
    print(f"{options.world} ranks on {options.device}: {total['calls']} calls of {len(operators)} operators, {total['placed']} "
          f"placed ({total['once']} with gradients, {total['twice']} with second ones); {total['wrong']} wrong, "
          f"{total['threw']} throw, {failures} end a process ({len(bad)} operators); {len(skipped)} skipped, "
          f"{len(refused)} refused", flush=True)
    if over:
        where = ", ".join(f"group {group.number} at {' '.join(map(str, group.last[0]))}" for group in groups
                          if not group.done and group.last)
        print(f"the time of {options.seconds} seconds is over: {where}", flush=True)
    if total["wrong"] or total["threw"] or failures:
        return 1
    return 3 if over else 0


def main():
    arguments = sys.argv[1:]
    rest = []
    if "--" in arguments:
        rest = arguments[arguments.index("--") + 1:]
        arguments = arguments[:arguments.index("--")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--world", type=int, default=2, choices=(2, 3))
    parser.add_argument("--groups", type=int, default=1, help="sets of ranks beside each other, each with its part")
    parser.add_argument("--seconds", type=float, default=540, help="of all")
    parser.add_argument("--still", type=float, default=90, help="seconds after which a run that stands still has hung")
    parser.add_argument("--restarts", type=int, default=100, help="of each group")
    parser.add_argument("--preload", help="a library to preload: the simulated device")
    parser.add_argument("--without", help="numbers of calls that are not tried, as an earlier run has printed them "
                        "('' for none); otherwise they are found out first")
    parser.add_argument("--refused", action="store_true", help="prints what the device refuses")
    options = parser.parse_args(arguments)
    options.arguments = rest
    options.program = os.path.abspath(options.program)
    options.preload = options.preload and os.path.abspath(options.preload)
    over = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        options.without = collect(options, folder, over)
        groups = [Group(options, number, folder) for number in range(options.groups)]
        try:
            while any([group.look() for group in groups]) and time.monotonic() < over:
                time.sleep(0.05)
        finally:
            left = [group for group in groups if not group.done]
            for group in left:
                group.end()
        return summary(options, groups, bool(left))


if __name__ == "__main__":
    sys.exit(main())
