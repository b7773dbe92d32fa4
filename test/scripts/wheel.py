"""wheel.py BUILD_DIR LIBTORCH: the wheel of this build is the same each time, and is installed, used and removed.

The build links LLVM's shared libraries, so this wheel is none for other machines; scripts/check-packages looks at that
one.
"""

import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main():
    build, libtorch = sys.argv[1:]
    if subprocess.run([sys.executable, "-c", "import ensurepip, venv"], stderr=subprocess.DEVNULL).returncode:
        print("python3 cannot make virtual environments here")
        return 77
    with tempfile.TemporaryDirectory(prefix="accel-wheel-") as folder:
        wheels = []
        for turn in ("one", "two"):
            stage = f"{folder}/{turn}/stage"
            for component in ("tool", "launcher"):
                subprocess.run(["cmake", "--install", build, "--prefix", stage, "--component", component, "--strip"],
                               check=True, stdout=subprocess.DEVNULL)
            wheels.append(subprocess.run(
                [sys.executable, f"{ROOT}/packaging/wheel/build_wheel.py", "--stage", stage, "--version", "0.1.0",
                 "--epoch", "1700000000", "--out", f"{folder}/{turn}", "--readme", f"{ROOT}/packaging/wheel/README.md"],
                check=True, text=True, stdout=subprocess.PIPE).stdout.strip())
            shutil.rmtree(stage)
        contents = [open(wheel, "rb").read() for wheel in wheels]
        if contents[0] != contents[1] or os.path.basename(wheels[0]) != os.path.basename(wheels[1]):
            print("two wheels of one build differ")
            return 1
        # LibTorch's headers are precompiled already: the build has migrated programs.
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        return subprocess.run([sys.executable, f"{ROOT}/packaging/check/wheel.py", wheels[0], "--libtorch", libtorch,
                               "--example", f"{ROOT}/examples/digits"],
                              env=dict(os.environ, ACCEL_TEST_CACHE=cache)).returncode


if __name__ == "__main__":
    sys.exit(main())
