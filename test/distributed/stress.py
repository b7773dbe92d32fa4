"""Runs a LibTorch program under random placements and compares what it prints with the plain program.

    stress.py --library LIB --seeds 1-20 --processes 2 [--check] [--double] -- PROGRAM ARGUMENT...
    stress.py --library LIB --seeds 1-20 --processes 2 [--check] --zoo ACCEL_ZOO [--only MODEL,...] [--every N]
              [--device cuda]

LIB is libaccel_stress_placements.so, which also seeds LibTorch's random numbers. The program is not changed and need
not know accel. It runs twice without placements; it qualifies when both runs print the same. What differs between them
(times, addresses) is left out, and counted. Then it runs for each seed as so many processes, each in a copy of the
working directory. Each process must print what the plain program printed: words alike, integers exactly, other numbers
to --tolerance (relative to what is greater than 1). With --limit a run that is longer is ended, and what all runs have
printed by then is compared.

With --zoo the program is the zoo of test/e2e: everything that its models note is compared to 1e-9, and a model that
ends the run is named and the run goes on behind it.

The outcome of a seed is `equal`, `different`, `stopped` (an error, a crash or no end within --timeout), or `refused`:
the program asked for the raw memory of a part, or used one on a thread of its own (a data loader's worker), which are
errors that say so; with --from-backward such a worker finds its data plain. `refused` is allowed with --may-refuse
(with --zoo: of the models it names); all else but `equal` makes the exit status 1. Exit status 2: the program does not
qualify.
"""

import argparse
import math
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tty

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e", "zoo"))
import zoo

REFUSALS = ("the memory of a distributed tensor was asked for",
            "was called with a distributed tensor on another thread")
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b)")
ZOO_LIMIT = 1e-9


def seeds_of(text):
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def pieces_of(text):
    """What was printed as a list of words and numbers, where a number is (text, value)."""
    pieces = []
    if not text.strip():
        return pieces
    # Where a tensor or a node lies is another address in each run, of which other pieces would be made.
    text = re.sub(r"\b0x[0-9a-fA-F]+", "ADDRESS", text)
    # A progress line that is printed over and over is as many lines.
    for line in text.replace("\r", "\n").rstrip("\n").split("\n"):
        end = 0
        for found in NUMBER.finditer(line):
            pieces.append(line[end:found.start()].split())
            pieces.append((found.group(), float(found.group())))
            end = found.end()
        pieces.append(line[end:].split())
    return pieces


def moving_pieces(one, other):
    """The places of what differs between two plain runs (times, addresses); None where one has printed more."""
    if len(one) != len(other):
        return None
    return {i for i, (a, b) in enumerate(zip(one, other)) if a != b}


def difference(actual, expected, moving, tolerance):
    """The first difference between two lists of pieces, and how many there are; None where there is none."""
    first, count = None, 0
    for i, (a, b) in enumerate(zip(actual, expected)):
        if i in moving or a == b:
            continue
        if isinstance(a, tuple) and isinstance(b, tuple):
            same_text = a[0].lstrip("+") == b[0].lstrip("+")
            is_integer = re.fullmatch(r"[-+]?\d+", b[0]) and re.fullmatch(r"[-+]?\d+", a[0])
            near = not is_integer and abs(a[1] - b[1]) <= 1.001 * tolerance * max(1.0, abs(b[1]))
            if same_text or near or (math.isnan(a[1]) and math.isnan(b[1])):
                continue
            first = first or f"number {i} of {len(expected)}: {a[0]}, not {b[0]}"
        else:
            first = first or f"piece {i} of {len(expected)}: {describe(a)}, not {describe(b)}"
        count += 1
    if len(actual) != len(expected):
        return f"{first + '; ' if first else ''}{len(actual)} pieces printed, not {len(expected)}"
    return f"{first}; {count} differ" if first else None


def describe(piece):
    return piece[0] if isinstance(piece, tuple) else " ".join(piece)[:80] or "nothing"


def is_refusal(text):
    return any(refusal in text for refusal in REFUSALS)


class Reader(threading.Thread):
    """Reads what a process writes to a terminal: there programs write line by line, also those that are ended."""

    def __init__(self):
        super().__init__(daemon=True)
        self.terminal, self.end = pty.openpty()
        tty.setraw(self.end)
        self.bytes = b""

    def run(self):
        while True:
            try:
                read = os.read(self.terminal, 65536)
            except OSError:  # nobody writes any more
                return
            if not read:
                return
            self.bytes += read

    def text(self):
        os.close(self.end)
        self.join(timeout=5)
        os.close(self.terminal)
        return self.bytes.decode(errors="replace")


class Run:
    """The processes of one run: what each printed, and how it ended."""

    def __init__(self, command, folders, environments, timeout, limit=None):
        processes = []
        for folder, environment in zip(folders, environments):
            reader = Reader()
            err = open(os.path.join(folder, ".stress.err"), "w+")
            processes.append((subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=reader.end, stderr=err,
                start_new_session=True), reader, err))
            reader.start()
        self.timed_out = self.limited = False
        started = time.monotonic()
        deadline = started + timeout
        while any(process.poll() is None for process, _, _ in processes):
            if limit and time.monotonic() > started + limit:
                self.limited = not any(process.poll() for process, _, _ in processes)
                break
            if time.monotonic() > deadline:
                self.timed_out = not any(process.poll() for process, _, _ in processes)
                break
            if any(process.poll() for process, _, _ in processes):
                # One has failed: the others get some time to say why they do.
                deadline = min(deadline, time.monotonic() + 3)
            time.sleep(0.01)
        self.codes, self.outputs, self.errors = [], [], []
        for process, reader, err in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            text = reader.text()
            if self.limited:
                text = text[:text.rfind("\n") + 1]
            self.outputs.append(text)
            err.seek(0)
            self.errors.append(err.buffer.read().decode(errors="replace"))
            err.close()
            self.codes.append(0 if self.limited else process.returncode)

    def stopped(self):
        """Why a process has not ended as it should have, or None."""
        if self.timed_out:
            return "no end"
        if any(self.codes):
            return f"ended with {', '.join(str(code) for code in self.codes)}"
        return None

    def said(self):
        """The line in which an error says what it is."""
        for text in self.errors + self.outputs:
            for line in text.splitlines():
                if "accel:" in line and "random placements:" not in line:
                    return line.strip()[:400]
        for text in self.errors + self.outputs:
            if text.strip():
                return text.strip().splitlines()[-1][:400]
        return ""

    def refused(self):
        return any(is_refusal(text) for text in self.errors + self.outputs)

    def placed(self):
        """How many operators process 0 has seen and how many results it has placed."""
        found = re.search(r"saw (\d+) operators on plain tensors and placed (\d+) results", self.errors[0])
        return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def environment_of(options, rank, seed, store):
    environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    environment.update(RANK=str(rank), WORLD_SIZE=str(options.processes if seed is not None else 1))
    environment["LD_PRELOAD"] = os.path.abspath(options.library)
    environment["ACCEL_STRESS_DOUBLE"] = "1" if options.double else "0"
    environment.pop("ACCEL_STRESS_PLACEMENTS", None)
    environment.pop("ACCEL_CHECK_PLACEMENTS", None)
    if seed is not None:
        environment["ACCEL_STRESS_PLACEMENTS"] = str(seed)
        environment["ACCEL_STRESS_STORE"] = store
        environment["ACCEL_STRESS_SHARE"] = str(options.share)
        if options.from_backward:
            environment["ACCEL_STRESS_BEGIN"] = "backward"
        if options.check:
            environment["ACCEL_CHECK_PLACEMENTS"] = "1"
    return environment


def start(options, command, seed, folder, working_directory=None, first=0):
    """One run in `folder`, in folders from number `first` on; seed None: the plain program, one process."""
    ranks = options.processes if seed is not None else 1
    folders = []
    for rank in range(ranks):
        own = os.path.join(folder, str(first + rank))
        if working_directory:
            copied = options.copy or working_directory
            shutil.copytree(copied, own, symlinks=True)
            own = os.path.normpath(os.path.join(own, os.path.relpath(working_directory, copied)))
        else:
            os.makedirs(own)
        folders.append(own)
    environments = [environment_of(options, rank, seed, os.path.join(folder, "store")) for rank in range(ranks)]
    # The plain program is faster.
    limit = options.limit and (options.limit if seed is not None else options.limit / 3)
    return Run(command, folders, environments, options.timeout, limit), folders


def run_program(options):
    """The outcomes by seed of a program that prints."""
    with tempfile.TemporaryDirectory() as folder:
        plain = []
        for turn in range(2):
            # A program that prints where it is: the numbers in the folders' names differ between the two.
            run, _ = start(options, options.command, None, os.path.join(folder, f"run.{turn}"),
                           options.working_directory, first=turn)
            if run.stopped():
                print(f"does not qualify: the plain program {run.stopped()}: {run.said()}")
                return None
            plain.append(pieces_of(run.outputs[0]))
        if options.limit:
            shorter = min(len(pieces) for pieces in plain)
            plain = [pieces[:shorter] for pieces in plain]
        moving = moving_pieces(*plain)
        numbers = sum(isinstance(piece, tuple) for piece in plain[0])
        if moving is None:
            print("does not qualify: one run of the plain program prints more than another")
            return None
        if numbers == 0 or len(moving) > numbers / 4:
            print(f"does not qualify: {numbers} numbers, and {len(moving)} pieces differ between two plain runs")
            return None
        print(f"plain: {numbers} numbers; {len(moving)} differ from run to run", flush=True)
        outcomes = {}
        for seed in options.seeds:
            own = os.path.join(folder, f"run.{2 + seed}")
            run, _ = start(options, options.command, seed, own, options.working_directory)
            shutil.rmtree(own)
            found = None
            compared = []
            for output in run.outputs:
                pieces, expected = pieces_of(output), plain[0]
                if options.limit:
                    # As far as both have come.
                    shorter = min(len(pieces), len(expected))
                    pieces, expected = pieces[:shorter], expected[:shorter]
                found = found or difference(pieces, expected, moving, options.tolerance)
                compared.append(sum(isinstance(piece, tuple) for piece in pieces))
            if run.refused():
                outcomes[seed] = ("refused", run.said())
            elif run.stopped():
                outcomes[seed] = ("stopped", f"{run.stopped()}: {run.said()}")
            elif found:
                outcomes[seed] = ("different", found)
            else:
                outcomes[seed] = ("equal", "")
            operators, placed = run.placed()
            if outcomes[seed][0] == "equal" and (min(compared) == 0 or not (placed or run.limited)):
                outcomes[seed] = ("stopped", "nothing was printed, or nothing placed")
            print(f"seed {seed}: {outcomes[seed][0]} ({min(compared)} numbers, {operators} operators, {placed} placed) "
                  f"{outcomes[seed][1]}", flush=True)
        return outcomes


def zoo_command(options):
    return ([options.zoo, "--plain", "--out", "."] + (["--only", options.only] if options.only else []) +
            (["--every", str(options.every)] if options.every > 1 else []) +
            (["--device", options.device] if options.device else []) +
            (["--without", options.without] if options.without else []))


def run_zoo_seed(options, seed, plain, folder):
    """The models that differ with one seed: name to (outcome, text)."""
    bad = {}
    after = None
    for turn in range(len(plain) + 1):
        own = os.path.join(folder, f"{seed}.{turn}")
        command = zoo_command(options)
        if after:
            command += ["--after", after]
        run, folders = start(options, command, seed, own)
        files = [os.path.join(one, "0.tsv") for one in folders]
        ranks = [zoo.read(file) if os.path.exists(file) else {} for file in files]
        shutil.rmtree(own)
        stopped = None
        for name in ranks[0]:
            for rank, models in enumerate(ranks):
                model = models.get(name)
                found = zoo.difference_of_models(model, plain[name], ZOO_LIMIT)
                if found and name not in bad:
                    outcome = "refused" if is_refusal(found) else "different"
                    bad[name] = (outcome, f"process {rank}: {found[:300]}")
                if model is None or not model.ended:
                    stopped = name
        if stopped is None:
            if run.stopped():
                raise SystemExit(f"seed {seed}: the zoo {run.stopped()} behind its last model: {run.said()}")
            return bad
        if bad[stopped][0] != "refused":
            bad[stopped] = ("stopped", f"{run.stopped()}: {bad[stopped][1]} {run.said()}")
        after = stopped
    return bad


def run_zoo(options):
    """The outcomes by seed; the worst of its models' for each."""
    outcomes = {}
    may_refuse = {name for name in (options.may_refuse or "").split(",") if name}
    with tempfile.TemporaryDirectory() as folder:
        run, folders = start(options, zoo_command(options), None, os.path.join(folder, "plain"))
        if run.stopped():
            print(f"the plain zoo {run.stopped()}: {run.said()}")
            return None
        plain = zoo.read(os.path.join(folders[0], "0.tsv"))
        for seed in options.seeds:
            bad = run_zoo_seed(options, seed, plain, folder)
            worst = [bad[name][0] for name in bad if not (bad[name][0] == "refused" and name in may_refuse)]
            outcomes[seed] = (worst[0] if worst else "equal", "")
            print(f"seed {seed}: {len(plain)} models as {options.processes} processes, {len(worst)} bad", flush=True)
            for name, (outcome, text) in bad.items():
                if not (outcome == "refused" and name in may_refuse):
                    print(f"    {outcome}: {name}: {text}", flush=True)
    return outcomes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--seeds", required=True, type=seeds_of, help="7 or 1-20")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--share", type=float, default=0.3, help="how many results are placed")
    parser.add_argument("--from-backward", action="store_true",
                        help="nothing is placed before the first backward: for programs with data loaders that have workers")
    parser.add_argument("--check", action="store_true", help="with the shadow check (ACCEL_CHECK_PLACEMENTS=1)")
    parser.add_argument("--double", action="store_true", help="both runs with the default dtype float64")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="of printed numbers that are not integers")
    parser.add_argument("--timeout", type=float, default=300, help="seconds of one run")
    parser.add_argument("--limit", type=float, help="seconds after which a run is ended: what was printed counts")
    parser.add_argument("--working-directory", help="what the program starts in; each process gets a copy")
    parser.add_argument("--copy", metavar="DIR", help="a folder above it that is copied instead: the program reads ../data")
    parser.add_argument("--zoo", help="accel_zoo instead of a program")
    parser.add_argument("--only", default="", help="models of the zoo")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one model of N")
    parser.add_argument("--without", default="", help="models of the zoo that are left out")
    parser.add_argument("--device", help="of the zoo's models: cuda")
    parser.add_argument("--may-refuse", nargs="?", const="*", help="may be `refused`")
    parser.add_argument("command", nargs="*")
    options = parser.parse_args()
    if bool(options.zoo) == bool(options.command):
        parser.error("either --zoo or a program after --")
    if options.zoo:
        options.zoo = os.path.abspath(options.zoo)
    elif os.path.sep in options.command[0]:
        options.command[0] = os.path.abspath(options.command[0])

    outcomes = run_zoo(options) if options.zoo else run_program(options)
    if outcomes is None:
        return 2
    counts = {}
    for outcome, _ in outcomes.values():
        counts[outcome] = counts.get(outcome, 0) + 1
    print(f"{len(outcomes)} seeds: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    allowed = {"equal"} | ({"refused"} if options.may_refuse == "*" else set())
    return 0 if set(counts) <= allowed else 1


if __name__ == "__main__":
    sys.exit(main())
