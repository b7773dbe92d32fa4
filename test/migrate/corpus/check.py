"""What the tool makes of one program: it is migrated in a copy of its repository,
migrated again, compiled, and taken back."""

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass, field

from programs import COPIED, LARGEST_FILE, SKIPPED_FOLDERS

# Results, in the order of the totals. The last five are failures of the tool.
MIGRATED, NOTHING, REFUSED, NO_PARSE = "migrated", "nothing", "refused", "does not parse"
CRASH, HANG, UNCOMPILABLE, UNSTABLE, NOT_UNDONE = "CRASH", "HANG", "UNCOMPILABLE", "CHANGES AGAIN", "NOT UNDONE"
FAILURES = (CRASH, HANG, UNCOMPILABLE, UNSTABLE, NOT_UNDONE)

_ID = re.compile(r"\[(ACL\d{4})\]")


@dataclass
class Result:
    program: object
    state: str
    ids: list = field(default_factory=list)  # of refusals; of all findings when migrated
    detail: str = ""  # the first refusal, or what went wrong
    seconds: float = 0.0
    talk: str = ""  # what the tool said
    diff: str = ""


class Checker:
    def __init__(self, tool, work, timeout, compile_command=None, extra_flags=()):
        self.tool = tool
        self.work = work
        self.timeout = timeout
        self.compile_command = compile_command  # a list, or None
        self.extra_flags = list(extra_flags)

    def _run(self, command, cwd):
        try:
            return subprocess.run(command, cwd=cwd, capture_output=True, text=True, errors="replace",
                                  stdin=subprocess.DEVNULL, timeout=self.timeout)
        except subprocess.TimeoutExpired:
            return None

    def _flags(self, program, copy):
        """The program's flags with the folders of the copy."""
        flags = [f"-I{os.path.normpath(os.path.join(copy, flag[2:]))}" if flag.startswith("-I") else flag
                 for flag in program.flags]
        return flags + self.extra_flags

    def check(self, program):
        copy = os.path.join(self.work, re.sub(r"\W+", "_", f"{program.root}_{program.path}")[-150:])
        shutil.rmtree(copy, ignore_errors=True)
        before = copy_sources(program.root, copy)
        try:
            return self._check_copy(program, copy, before)
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def _check_copy(self, program, copy, before):
        flags = self._flags(program, copy)
        behind = [] if program.listed_in_database else ["--", *flags]
        start = time.monotonic()
        first = self._run([self.tool, "--write", program.path, *behind], copy)
        result = Result(program, HANG, seconds=time.monotonic() - start)
        if first is None:
            result.detail = f"no end within {self.timeout} s"
            return result
        result.talk = first.stderr
        after = read_sources(copy, before)
        changed = sorted(path for path in before if after.get(path) != before[path])

        if first.returncode not in (0, 1, 2, 3) or "ACL0004" in first.stderr:
            result.state = CRASH
            result.detail = f"exit code {first.returncode}: {last_line(first.stderr)}"
        elif first.returncode == 2:
            result.state = CRASH
            result.detail = f"the command was not understood: {last_line(first.stderr)}"
        elif first.returncode in (1, 3):
            result.state = NO_PARSE if first.returncode == 3 else REFUSED
            refusals = [line for line in first.stderr.splitlines() if ": refused: " in line]
            result.ids = sorted(set(_ID.findall("\n".join(refusals))))
            result.detail = refusals[0] if refusals else last_line(first.stderr)
            if changed:
                result.state = NOT_UNDONE
                result.detail = "refused, but changed: " + ", ".join(changed)
        elif not changed:
            result.state = NOTHING
            result.detail = last_line(first.stderr)
        else:
            self._check_migrated(result, program, copy, before, after, changed, flags, behind)
        return result

    def _check_migrated(self, result, program, copy, before, after, changed, flags, behind):
        result.state = MIGRATED
        result.ids = sorted(set(_ID.findall(result.talk)))
        result.detail = f"{len(changed)} changed" if len(changed) > 1 else ""
        result.diff = diff_of(before, after, changed)
        # The name of the state is the worst that happened; all is in the detail.
        troubles = []
        if self.compile_command:
            compiled = self._run([*self.compile_command, *flags, program.path], copy)
            if compiled is None or compiled.returncode != 0:
                errors = [] if compiled is None else [l for l in compiled.stderr.splitlines() if "error:" in l]
                troubles.append((UNCOMPILABLE, errors[0] if errors else "the compiler did not end well"))
        second = self._run([self.tool, "--check", program.path, *behind], copy)
        if second is None:
            troubles.append((HANG, "the second run does not end"))
        elif second.returncode != 0 or second.stdout:
            troubles.append((UNSTABLE, f"second run: exit code {second.returncode}, {last_line(second.stderr)}"))
        # The manifest lies in the deepest folder that holds what was changed.
        undone = self._run([self.tool, "undo"], os.path.join(copy, os.path.commonpath([os.path.dirname(path) for path in changed])))
        if undone is None or undone.returncode != 0:
            troubles.append((NOT_UNDONE, "undo: " + ("does not end" if undone is None else last_line(undone.stderr))))
        elif read_sources(copy, before) != before:
            troubles.append((NOT_UNDONE, "undo left other bytes"))
        if troubles:
            result.state = troubles[0][0]
            result.detail = "; ".join(f"{state}: {what}" for state, what in troubles)


def copy_sources(root, copy):
    """Copies what a program may be made of; returns path: bytes."""
    texts = {}
    for folder, folders, names in os.walk(root):
        databases = [os.path.join(place, "compile_commands.json") for place in (folder, os.path.join(folder, "build"))]
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS - {"vendor", "external", "third_party",
                                                                                      "thirdparty"})
        for path in [os.path.join(folder, name) for name in names
                     if name.endswith(COPIED) or name == "CMakeLists.txt"] + databases:
            if not os.path.isfile(path) or os.path.getsize(path) > LARGEST_FILE:
                continue
            relative = os.path.relpath(path, root)
            with open(path, "rb") as file:
                text = file.read()
            if path in databases:
                text = text.replace(os.fsencode(root), os.fsencode(copy))
            os.makedirs(os.path.dirname(os.path.join(copy, relative)), exist_ok=True)
            with open(os.path.join(copy, relative), "wb") as file:
                file.write(text)
            texts[relative] = text
    # The tool changes nothing outside of the project, which is this copy.
    os.makedirs(os.path.join(copy, ".git"), exist_ok=True)
    return texts


def read_sources(copy, paths):
    texts = {}
    for path in paths:
        try:
            with open(os.path.join(copy, path), "rb") as file:
                texts[path] = file.read()
        except FileNotFoundError:
            pass
    return texts


def diff_of(before, after, changed):
    import difflib
    lines = []
    for path in changed:
        old, new = (text.get(path, b"").decode("utf-8", "replace").splitlines(keepends=True) for text in (before, after))
        lines += difflib.unified_diff(old, new, path, path)
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
