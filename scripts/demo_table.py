"""Runs the demo's programs and prints how the runs compare.

    demo_table.py WORK EXAMPLE      (`accel` is on the PATH)
"""

import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "test", "e2e"))
from compare_runs import Different, compare  # noqa: E402
from equivalence import FLOAT32_RELATIVE, FLOAT64_RELATIVE, example  # noqa: E402


def run(program, arguments, folder, processes=None):
    command = [program] + arguments
    if processes:
        command = ["accel", "launch", "--num-processes", str(processes), "--output", "main", "--"] + command
    start = time.monotonic()
    # One thread a process: the machine's cores are what the processes share.
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout, time.monotonic() - start


def result_of(what, output):
    last = output.splitlines()[-1]
    return f"{what.accuracy(last):g} right" if what.accuracy else last.split()[-1]


def main():
    work, name = sys.argv[1], sys.argv[2]
    broken = []
    rows = []
    for dtype, extra, limit in (("float64", ["--double"], FLOAT64_RELATIVE), ("float32", [], FLOAT32_RELATIVE)):
        what = example(name)
        arguments = what.arguments + extra
        original, seconds = run(os.path.join(work, "original", name), arguments, os.path.join(work, "original"))
        if dtype == "float64":
            print(original, end="")
        rows.append((dtype, "original", "", result_of(what, original), seconds))
        for processes in (1, 2, 3):
            output, seconds = run(os.path.join(work, "migrated", name), arguments,
                                  os.path.join(work, "migrated"), processes)
            label = f"migrated, {processes} process{'es' if processes > 1 else ''}"
            try:
                if processes == 1:
                    same = output == original
                    verdict = "identical bytes" if same else "OTHER BYTES"
                    kept = same
                elif dtype == "float64":
                    all_numbers = compare(original, output)
                    verdict = f"{all_numbers.numbers} numbers, at most {all_numbers.absolute:.1e} off"
                    kept = all_numbers.relative <= limit and all_numbers.numbers > 0
                else:
                    early = compare(original, output, example(name).early)
                    verdict = f"at most {early.absolute:.1e} off in 20 steps, {compare(original, output).absolute:.1e} in all"
                    kept = early.relative <= limit
                    if what.accuracy:
                        a, b = (what.accuracy(text.splitlines()[-1]) for text in (original, output))
                        kept = kept and abs(a - b) <= 1
            except Different as difference:
                verdict, kept = f"DIFFERENT: {difference}", False
            if not kept:
                broken.append(f"{'P1' if processes == 1 else 'P2'} ({dtype}, {label}: {verdict})")
            rows.append((dtype, label, verdict, result_of(what, output), seconds))

    print()
    header = ("dtype", "run", "printed numbers against the original's", "result", "seconds")
    table = [header] + [(*row[:4], f"{row[4]:.1f}") for row in rows]
    widths = [max(len(row[i]) for row in table) for i in range(5)]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    print()
    if broken:
        sys.exit("BROKEN: " + "; ".join(broken))
    print("Kept: P1 (one process: the same bytes), P2 (2 and 3 processes: float64 within 1e-9, float32 within 1e-4 "
          "over 20 steps), P3 (it compiles), P5 (a second run changes nothing).")


if __name__ == "__main__":
    main()
