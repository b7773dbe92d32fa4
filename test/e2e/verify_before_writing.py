"""accel-migrate --verify: a file is changed only where the built programs agree.

    verify_before_writing.py --tool ACCEL_MIGRATE --source FILE --original EXE --migrated EXE --other EXE

The project's build command takes one of the programs that are built already,
according to what it finds in the source.
"""

import argparse
import os
import subprocess
import sys
import tempfile


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("tool", "source", "original", "migrated", "other"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    name = os.path.basename(options.source)
    with open(options.source, "rb") as file:
        original = file.read()

    def migrate(what, migrated, code, *texts):
        """Migrates in a project of its own; returns the source afterwards."""
        with tempfile.TemporaryDirectory() as project:
            os.mkdir(os.path.join(project, ".git"))
            os.mkdir(os.path.join(project, "src"))
            source = os.path.join(project, "src", name)
            with open(source, "wb") as file:
                file.write(original)
            build = f"if grep -q accel/accel.h src/{name}; then {migrated}; else cp '{options.original}' train; fi"
            done = subprocess.run(
                [options.tool, "--verify", "--build", build, "--run", "train --epochs 1", f"src/{name}"], cwd=project,
                capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=280)
            said = done.stdout + done.stderr
            if done.returncode != code:
                raise SystemExit(f"{what}: exit code {done.returncode} instead of {code}\n{said}")
            for text in texts:
                if text not in said:
                    raise SystemExit(f"{what}: '{text}' is not said\n{said}")
            if os.path.exists(os.path.join(project, "train")):
                raise SystemExit(f"{what}: the build was not made in a copy")
            with open(source, "rb") as file:
                return file.read()

    equal = migrate("equal", f"cp '{options.migrated}' train", 0, "1 process     equal", "2 processes   equal", "1 changed")
    if b"accel/accel.h" not in equal:
        raise SystemExit("the programs are equal, and the file was not written")
    for what, command, code, text in (
            ("different", f"cp '{options.other}' train", 1, "the migrated program is not the original"),
            ("not built", "echo no such header; exit 4", 3, "no such header")):
        if migrate(what, command, code, text, "nothing is written", "0 changed") != original:
            raise SystemExit(f"{what}: the file was written")


if __name__ == "__main__":
    sys.exit(main())
