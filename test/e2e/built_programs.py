"""What the scripts share that compile programs against a build and run them:
the build's compiler and flags, commands with a time limit, what the tool said.
"""

import json
import os
import re
import signal
import subprocess

_ID = re.compile(r"\[(ACL\d{4})\]")


def ids_of(said):
    """The ids of the findings in what accel-migrate said."""
    return sorted(set(_ID.findall(said)))


def refusals_of(said):
    """The lines of what accel-migrate said that refuse."""
    return [line for line in said.splitlines() if ": refused: " in line]


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def run_limited(command, cwd, limit, environment=None):
    """Runs a command without standard input. Its exit code is None where it was
    ended after `limit` seconds, with all that it had started."""
    process = subprocess.Popen(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
    try:
        out, err = process.communicate(timeout=limit)
        return subprocess.CompletedProcess(command, process.returncode, out, err)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # the launcher passes it on
        try:
            out, err = process.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        return subprocess.CompletedProcess(command, None, out, err)


class Build:
    """A build folder: its programs, and what CMake knows of it (test/generate/CMakeLists.txt)."""

    def __init__(self, build):
        self.folder = os.path.abspath(build)
        path = os.path.join(self.folder, "test", "generate", "settings.json")
        if not os.path.isfile(path):
            raise SystemExit(f"error: {path} is not there; configure the build folder with its tests")
        with open(path, encoding="utf-8") as file:
            known = json.load(file)
        self.compiler, self.flags, self.link = known["compiler"], known["flags"], known["link"]
        self.header = known["header"]  # flags that include a precompiled <torch/torch.h>; empty: one is made
        self.result_header = known.get("result_header", [])  # the same, with <accel/accel.h>
        self.runner = known.get("runner")  # test/generate/runner.cpp
        self.tool = os.path.join(self.folder, "bin", "accel-migrate")
        self.launcher = os.path.join(self.folder, "bin", "accel")
        traces = [os.path.join(self.folder, "lib", name) for name in ("libaccel_trace.so", "libaccel_trace_torch.so")]
        for program in (self.tool, self.launcher, *traces):
            if not os.path.isfile(program):
                raise SystemExit(f"error: {program} is not built (accel verify wants accel_trace and accel_trace_torch)")

    def precompile(self, folder):
        """Where the build has no precompiled header of LibTorch: one of our own."""
        if self.header:
            return
        header = os.path.join(folder, "precompiled.h")
        with open(header, "w", encoding="utf-8") as file:
            file.write("#include <torch/torch.h>\n")
        subprocess.run([self.compiler, *self.flags, "-x", "c++-header", header, "-o", header + ".gch"], check=True)
        self.header = ["-include", header]
