"""The wheel, where it is used: a new virtual environment, away from the sources.

    wheel.py WHEEL --libtorch DIR --example DIR [--self-contained] [--transcript FILE]

Installs WHEEL without a network, migrates examples/digits with it, starts a program as two processes, removes it, and
looks for what has stayed. With --self-contained the commands may need nothing of the machine but its C library, and
the wheel may have 60 MB at the most. LibTorch is found where pip puts it: as `torch` in the environment.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

MEGABYTES = 60


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("wheel")
    parser.add_argument("--libtorch", required=True)
    parser.add_argument("--example", required=True)
    parser.add_argument("--self-contained", action="store_true")
    parser.add_argument("--transcript")
    options = parser.parse_args()
    transcript = open(options.transcript, "w") if options.transcript else None

    def fail(what):
        sys.exit("FAILED: " + what)

    size = os.path.getsize(options.wheel) / 1e6
    if options.self_contained and size > MEGABYTES:
        fail(f"{options.wheel} has {size:.1f} MB, more than {MEGABYTES}")
    with zipfile.ZipFile(options.wheel) as archive:
        foreign = [name for name in archive.namelist() if re.search(r"libtorch|libc10|libgloo|libcudart", name)]
        if foreign:
            fail(f"LibTorch is in the wheel: {foreign}")
        stamps = {entry.date_time for entry in archive.infolist()}
        if len(stamps) != 1:
            fail(f"the wheel's files have more than one date: {sorted(stamps)[:3]}")

    with tempfile.TemporaryDirectory(prefix="accel-wheel-") as folder:
        environment = {"PATH": f"{folder}/venv/bin:/usr/bin:/bin", "HOME": folder, "LANG": "C.UTF-8",
                       "XDG_CACHE_HOME": os.environ.get("ACCEL_TEST_CACHE", f"{folder}/cache"), "NO_COLOR": "1"}

        def run(command, expect=0):
            result = subprocess.run(command, shell=True, executable="/bin/bash", cwd=f"{folder}/work", env=environment,
                                    text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if transcript:
                transcript.write(f"$ {command}\n{result.stdout}")
            if result.returncode != expect:
                fail(f"exit code {result.returncode} of: {command}\n{result.stdout}")
            return result.stdout

        os.mkdir(f"{folder}/work")
        subprocess.run([sys.executable, "-m", "venv", f"{folder}/venv"], check=True)
        site = subprocess.run([f"{folder}/venv/bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                              check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
        # What `pip install torch` would have put there, without its 500 MB.
        os.symlink(os.path.realpath(options.libtorch), f"{site}/torch")
        for name in ("digits.cpp", "digits.csv"):
            shutil.copy(os.path.join(options.example, name), f"{folder}/work")
        shutil.copy(options.wheel, f"{folder}/work")

        def tree():
            # pip leaves folders outside of site-packages behind, empty.
            found = set()
            for path, folders, names in os.walk(f"{folder}/venv"):
                if os.path.basename(path) != "__pycache__":
                    found.update(os.path.join(path, name) for name in names)
            return found

        before = tree()
        # The three commands of the documentation.
        run("pip install --disable-pip-version-check --no-index accel_migrate-*.whl")
        report = run("accel-migrate --report digits.html digits.cpp")
        run("accel-migrate --write digits.cpp")

        for change in ("+  accelerator.prepare(model, optimizer);", "-    loss.backward();", "+    accelerator.backward(loss);"):
            if change not in report:
                fail(f"the diff has no line '{change}':\n{report}")
        with open(f"{folder}/work/digits.html", encoding="utf-8") as file:
            if "accelerator.backward(loss)" not in file.read():
                fail("the report does not show the change")
        with open(f"{folder}/work/digits.cpp") as ours, open(os.path.join(options.example, "digits.accel.cpp")) as kept:
            # What is above the first include says of each file what it is.
            if ours.read().split("#include", 1)[1] != kept.read().split("#include", 1)[1]:
                fail("the migrated digits.cpp is not examples/digits/digits.accel.cpp")
        ranks = run("accel launch -n 2 --output plain -- bash -c 'echo rank $RANK of $WORLD_SIZE'")
        if sorted(ranks.split("\n"))[-2:] != ["rank 0 of 2", "rank 1 of 2"]:
            fail(f"accel launch did not start two processes:\n{ranks}")
        run("accel-migrate undo")
        if options.self_contained:
            used = run("cd ../venv/bin && strings -a accel accel-migrate | grep -E '^/(work|home|root|tmp|build)/' || true")
            if used.strip():
                fail(f"folders of the machine that built them are in the commands:\n{used[:2000]}")
            for name in ("accel", "accel-migrate"):
                needed = set(re.findall(r"NEEDED +(\S+)", run(f"objdump -p ../venv/bin/{name}")))
                strange = {lib for lib in needed if not re.match(r"lib(c|m|dl|rt|pthread|util)\.so|ld-linux", lib)}
                if strange:
                    fail(f"{name} needs libraries that not every machine has: {sorted(strange)}")
            found = run("accel-migrate --stats digits.cpp 2>&1 >/dev/null; ls ../venv/lib/accel/clang/*/include/stddef.h")
            if "stddef.h" not in found:
                fail("Clang's builtin headers are not in the environment")
        for page in ("man/man1/accel-migrate.1", "man/man1/accel-launch.1", "bash-completion/completions/accel"):
            if not os.path.exists(f"{folder}/venv/share/{page}"):
                fail(f"share/{page} was not installed")
        run("pip uninstall --disable-pip-version-check --yes accel-migrate")
        left = tree() - before
        if left:
            fail(f"pip uninstall has left {sorted(left)[:10]}")
    print(f"ok: {os.path.basename(options.wheel)}, {size:.1f} MB: installed, migrated digits, launched, removed")


if __name__ == "__main__":
    main()
