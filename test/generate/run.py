#!/usr/bin/env python3
"""Generates training programs and tells which are not migrated to programs that compute the same.

    test/generate/run.py --build build/quick --seeds 1-200
    test/generate/run.py --seed 17 --print            # the program
    test/generate/run.py --build build/quick --seed 17 --keep out   # out/17: original, result, what the tool said
    test/generate/run.py --build build/quick --seed 17 --shrink     # choices that the failure needs

A seed is a random but plain LibTorch program as people write them. It is migrated; the original and the
result are compiled and run: the result as one process, which must print the same bytes, and as 2 and 3 processes, whose numbers must be equal to 1e-9 relative (all is trained in float64) and whose other text must
be equal. So must they with parameters or positions in parts, and with several batches for a step against the
same as one process: ways.py has these, of which a seed runs one. Plain programs that are refused are failures, too. Equal programs whose processes
shared nothing out are counted apart.

Programs are shared libraries, eight in one, and their processes are forked from one that has loaded LibTorch; what fails
is tried again by itself. With --launch programs are executables under `accel launch`.

One line is printed for each failure, with the command that repeats it, and a table at the end. The exit code is 1 after a failure.
"""

import argparse
import collections
import concurrent.futures
import os
import shutil
import sys
import tempfile
import time

from check import EQUAL, GOOD, NOT_SHARED, ORDER, Build, Checker
from programs import make_program


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join("build", "quick"), metavar="DIR", help="a build folder with accel-migrate, accel and the runtime")
    seeds = parser.add_mutually_exclusive_group(required=True)
    seeds.add_argument("--seeds", metavar="A-B", help="first and last seed; also a list: 3,7,20-30")
    seeds.add_argument("--seed", metavar="N", help="one seed")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="programs at a time (default 2)")
    parser.add_argument("--together", type=int, default=8, metavar="N", help="programs that are compiled together (default 8)")
    parser.add_argument("--keep", metavar="DIR", help="keep the folders of failed programs there; with --seed in any case")
    parser.add_argument("--keep-all", action="store_true", help="with --keep: those of all programs")
    parser.add_argument("--plain", default="", metavar="NAME,NAME", help="choices that take their plainest option")
    parser.add_argument("--print", action="store_true", help="print the programs and do nothing else")
    parser.add_argument("--choices", action="store_true", help="print what the seed has chosen and do nothing else")
    parser.add_argument("--shrink", action="store_true", help="with --seed: take choices back while the failure stays")
    parser.add_argument("--timeout", type=int, default=60, metavar="SECONDS", help="a run that takes longer hangs (default 60)")
    parser.add_argument("--minutes", type=float, metavar="N", help="begin with no further program after N minutes")
    parser.add_argument("--all-ways", action="store_true", help="each program with every strategy (ways.py), not with one that its seed chooses")
    parser.add_argument("--launch", action="store_true", help="executables under accel launch; slower")
    return parser.parse_args()


def seeds_of(text):
    seeds = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def print_program(program):
    for name, text in program.files.items():
        print(f"// ---- {name}\n{text}")


def shrink(seed, plain, checker):
    """Takes back one choice after the other while the outcome stays."""
    program, choices = make_program(seed, plain)
    first = checker.check(seed, program)
    print(f"seed {seed}: {first.outcome}: {first.detail}")
    if first.outcome == EQUAL:
        return first
    plain = set(plain)
    for name in choices.not_plain():
        candidate, left = make_program(seed, plain | {name})
        if name not in left.taken or candidate.files == program.files:
            continue
        result = checker.check(seed, candidate)
        same = result.outcome == first.outcome and result.ids == first.ids
        print(f"  {'-' if same else 'needs'} {name} = {choices.taken[name][1][:60]}" + ("" if same else f" (else {result.outcome})"), flush=True)
        if same:
            plain.add(name)
            program = candidate
    print_program(program)
    print(f"--seed {seed} --plain {','.join(sorted(plain))}")
    return first


def main():
    arguments = parse_arguments()
    seeds = seeds_of(arguments.seeds or arguments.seed)
    plain = [name for name in arguments.plain.split(",") if name]
    if arguments.print or arguments.choices:
        for seed in seeds:
            program, choices = make_program(seed, plain)
            if arguments.print:
                print_program(program)
            if arguments.choices:
                for name, (index, text) in choices.taken.items():
                    print(f"{name} = {index}: {text}")
        return 0

    settings = Build(arguments.build)
    work = os.path.realpath(tempfile.mkdtemp(prefix="accel-generate-"))
    start = time.monotonic()
    checker = None
    try:
        settings.precompile(work)
        checker = Checker(settings, work, arguments.timeout, arguments.launch, arguments.all_ways)
        if arguments.shrink:
            return 0 if shrink(seeds[0], plain, checker).outcome in GOOD else 1

        def check(seeds):
            if arguments.minutes and time.monotonic() - start > 60 * arguments.minutes:
                return []
            programs = [(seed, make_program(seed, plain)[0]) for seed in seeds]
            found = checker.check_together(programs) if len(programs) > 1 else [checker.check(*programs[0])]
            for result in found:
                folder = os.path.join(work, str(result.seed))
                if arguments.keep and (arguments.keep_all or arguments.seed or result.outcome not in GOOD or result.outcome == NOT_SHARED):
                    kept = os.path.join(arguments.keep, str(result.seed))
                    shutil.rmtree(kept, ignore_errors=True)
                    shutil.copytree(folder, kept)
                shutil.rmtree(folder, ignore_errors=True)
            return found

        results = []
        size = max(1, arguments.together)
        with concurrent.futures.ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
            for found in pool.map(check, [seeds[first:first + size] for first in range(0, len(seeds), size)]):
                results += found
                if len(results) // 100 != (len(results) - len(found)) // 100:
                    print(f"{len(results)} programs, {sum(result.outcome not in GOOD for result in results)} failures", file=sys.stderr, flush=True)
                for result in found:
                    if result.outcome != EQUAL:
                        again = f"test/generate/run.py --build {arguments.build} --seed {result.seed}"
                        print(f"seed {result.seed}: {result.outcome}: {result.detail}" +
                              ("" if result.outcome in GOOD else f"  [{again} --keep DIR]"), flush=True)
    finally:
        if checker:
            checker.close()
        shutil.rmtree(work, ignore_errors=True)
    return table(results, time.monotonic() - start)


def table(results, seconds):
    """Counts by outcome; the exit code."""
    counts = collections.Counter(result.outcome for result in results)
    print(f"\nseeds {results[0].seed} to {results[-1].seed}: {len(results)} programs in {seconds:.0f} s, "
          f"{sum(result.seconds for result in results) / len(results):.1f} s each, {sum(result.numbers for result in results)} numbers compared")
    for outcome in ORDER:
        if counts[outcome]:
            print(f"  {counts[outcome]:5} {outcome}")
    ids = collections.Counter(id for result in results for id in result.ids)
    if ids:
        print("  refused for: " + ", ".join(f"{id} {count}x" for id, count in ids.most_common()))
    return 0 if all(result.outcome in GOOD for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
