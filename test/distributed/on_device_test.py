"""on_device.py finds what is wrong on the device, and goes on behind it.

    on_device_test.py --program accel_sample_calls --device sim --preload libaccel_sim.so
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

TABLE = """sgn: g[7,4]
mm: f[N,4], f[4,5]
bernoulli.p: f[7,4], 0.4
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--preload")
    options = parser.parse_args()
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "on_device.py")

    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, "table.txt")
        with open(table, "w") as file:
            file.write(TABLE)

        def run(*arguments, groups=1, filter="sgn,mm,bernoulli"):
            command = [sys.executable, script, "--program", options.program, "--device", options.device, "--groups",
                       str(groups), "--without", ""]
            if options.preload:
                command += ["--preload", options.preload]
            done = subprocess.run(command + ["--", "--table", table, "--golden", "none", "--filter", filter, *arguments],
                                  capture_output=True, text=True, timeout=60)
            summary = re.search(r"ranks on .*: (\d+) calls of (\d+) operators, (\d+) placed .*; (\d+) wrong, (\d+) throw, "
                                r"(\d+) end a process", done.stdout)
            if not summary:
                raise SystemExit(f"no summary:\n{done.stdout}{done.stderr}")
            return done, *map(int, summary.groups())

        done, calls, operators, placed, *bad = run()
        if done.returncode != 0 or bad != [0, 0, 0] or operators < 5 or placed < 20:
            raise SystemExit(f"{done.returncode}\n{done.stdout}{done.stderr}")
        # Two groups make the same calls.
        both, *counts = run(groups=2)
        if both.returncode != 0 or counts != [calls, operators, placed, 0, 0, 0]:
            raise SystemExit(f"{both.returncode}\n{both.stdout}{both.stderr}")
        for how, kind in [("wrong", "WRONG  aten::sgn"), ("waits", " aten::sgn")]:
            done, *counts, wrong, threw, ended = run("--break-sgn", how, "--patience", "1", "--placements", "20",
                                                     filter="aten::sgn$,aten::mm$")
            if done.returncode != 1 or kind not in done.stdout or counts[1] < 2 or ended != 0 or wrong + threw == 0 \
                    or "bad: aten::mm" in done.stdout or how == "wrong" and threw != 0:
                raise SystemExit(f"{how}: {done.returncode}\n{done.stdout}{done.stderr}")
        # These end the processes: they are started again behind each such run.
        for how in ["lost", "exits"]:
            done, *counts, wrong, threw, ended = run("--break-sgn", how, "--placements", "2", filter="aten::sgn$,aten::mm$")
            if done.returncode != 1 or "goes on behind run" not in done.stdout or "bad: aten::sgn" not in done.stdout \
                    or "bad: aten::mm" in done.stdout or wrong + threw + ended == 0 or counts[1] < 2:
                raise SystemExit(f"{how}: {done.returncode}\n{done.stdout}{done.stderr}")
    print("failures are found, and the run goes on behind them")


if __name__ == "__main__":
    main()
