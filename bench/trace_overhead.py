"""What recording costs a program: the time per step with the library that
`accel verify` loads into it, as a ratio to the time without, in turns.

    python3 bench/trace_overhead.py BUILD_DIR [--rounds N]
"""

import argparse
import os
import statistics
import subprocess
import tempfile

from paths import built_path, folder_path


def microseconds(program, model, steps, library):
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ)
        if library:
            environment.update(LD_PRELOAD=library, ACCEL_TRACE_DIRECTORY=folder)
        done = subprocess.run([program, model, str(steps)], env=environment, cwd=folder, check=True,
                              capture_output=True, text=True)
        if library and not os.path.exists(os.path.join(folder, "rank-0.trace")):
            raise SystemExit(f"nothing was recorded\n{done.stderr}")
        return float(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=folder_path)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    program = built_path(options.build, "bin", "trace_overhead")
    library = built_path(options.build, "lib", "libaccel_trace.so")
    for model, steps in (("small", 100), ("mlp", 20), ("conv", 60)):
        ratios, plain, traced = [], [], []
        for _ in range(options.rounds):
            plain.append(microseconds(program, model, steps, None))
            traced.append(microseconds(program, model, steps, library))
            ratios.append(traced[-1] / plain[-1])
        print(f"{model:<6} plain {statistics.median(plain):9.0f} us/step, recorded {statistics.median(traced):9.0f} us/step, "
              f"ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})", flush=True)


if __name__ == "__main__":
    main()
