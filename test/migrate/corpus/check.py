"""What the tool makes of one program: it is migrated in a copy of its repository,
migrated again, compiled, and taken back."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "e2e"))

from built_programs import ids_of, last_line, refusals_of, run_limited  # noqa: E402
from programs import COPIED, LARGEST_FILE, SKIPPED_FOLDERS  # noqa: E402

# Results, in the order of the totals. The last five are failures of the tool.
MIGRATED, NOTHING, REFUSED, NO_PARSE = "migrated", "nothing", "refused", "does not parse"
CRASH, HANG, UNCOMPILABLE, UNSTABLE, NOT_UNDONE = "CRASH", "HANG", "UNCOMPILABLE", "CHANGES AGAIN", "NOT UNDONE"
FAILURES = (CRASH, HANG, UNCOMPILABLE, UNSTABLE, NOT_UNDONE)


@dataclass
class Result:
    program: object
    state: str
    ids: list = field(default_factory=list)  # of refusals; of all findings when migrated
    detail: str = ""  # the first refusal, or what went wrong
    seconds: float = 0.0
    talk: str = ""  # what the tool said
    diff: str = ""


def flags_in(copy, flags):
    """The flags with the repository's include folders in a copy of it."""
    return [f"-I{os.path.normpath(os.path.join(copy, flag[2:]))}" if flag.startswith("-I") else flag for flag in flags]


def judge(result, done, limit):
    """What `accel-migrate --write` made of a program, as far as its exit code and
    words tell. Whether it did what it was asked for."""
    result.talk = done.stderr
    if done.returncode is None:
        result.state = HANG
        result.detail = f"no end within {limit} s"
    elif done.returncode not in (0, 1, 2, 3) or "ACL0004" in done.stderr:
        result.state = CRASH
        result.detail = f"exit code {done.returncode}: {last_line(done.stderr)}"
    elif done.returncode == 2:
        result.state = CRASH
        result.detail = f"the command was not understood: {last_line(done.stderr)}"
    elif done.returncode in (1, 3):
        result.state = NO_PARSE if done.returncode == 3 else REFUSED
        refusals = refusals_of(done.stderr)
        result.ids = ids_of("\n".join(refusals))
        result.detail = refusals[0] if refusals else last_line(done.stderr)
    else:
        result.ids = ids_of(done.stderr)
        return True
    return False


class Checker:
    def __init__(self, tool, work, timeout, compile_command=None, extra_flags=()):
        self.tool = tool
        self.work = work
        self.timeout = timeout
        self.compile_command = compile_command  # a list, or None
        self.extra_flags = list(extra_flags)

    def _run(self, command, cwd):
        return run_limited(command, cwd, self.timeout)

    def check(self, program):
        copy = os.path.join(self.work, re.sub(r"\W+", "_", f"{program.root}_{program.path}")[-150:])
        shutil.rmtree(copy, ignore_errors=True)
        before = copy_sources(program.root, copy)
        try:
            return self._check_copy(program, copy, before)
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def _check_copy(self, program, copy, before):
        flags = flags_in(copy, program.flags) + self.extra_flags
        behind = [] if program.listed_in_database else ["--", *flags]
        start = time.monotonic()
        first = self._run([self.tool, "--write", program.path, *behind], copy)
        result = Result(program, MIGRATED, seconds=time.monotonic() - start)
        good = judge(result, first, self.timeout)
        if result.state == HANG:
            return result
        after = read_sources(copy, before)
        changed = sorted(path for path in before if after.get(path) != before[path])
        if not good:
            if changed and result.state in (REFUSED, NO_PARSE):
                result.state = NOT_UNDONE
                result.detail = "refused, but changed: " + ", ".join(changed)
        elif not changed:
            result.state = NOTHING
            result.ids = []
            result.detail = last_line(first.stderr)
        else:
            self._check_migrated(result, program, copy, before, after, changed, flags, behind)
        return result

    def _check_migrated(self, result, program, copy, before, after, changed, flags, behind):
        result.detail = f"{len(changed)} changed" if len(changed) > 1 else ""
        result.diff = diff_of(before, after, changed)
        # The name of the state is the worst that happened; all is in the detail.
        troubles = []
        if self.compile_command:
            compiled = self._run([*self.compile_command, *flags, program.path], copy)
            if compiled.returncode != 0:
                errors = [l for l in compiled.stderr.splitlines() if "error:" in l]
                troubles.append((UNCOMPILABLE, errors[0] if errors else "the compiler did not end well"))
        second = self._run([self.tool, "--check", program.path, *behind], copy)
        if second.returncode is None:
            troubles.append((HANG, "the second run does not end"))
        elif second.returncode != 0 or second.stdout:
            troubles.append((UNSTABLE, f"second run: exit code {second.returncode}, {last_line(second.stderr)}"))
        # The manifest lies in the deepest folder that holds what was changed.
        undone = self._run([self.tool, "undo"], os.path.join(copy, os.path.commonpath([os.path.dirname(path) for path in changed])))
        if undone.returncode != 0:
            troubles.append((NOT_UNDONE, "undo: " + ("does not end" if undone.returncode is None else last_line(undone.stderr))))
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
    """As diff tells it: difflib shows lines that occur often as if they were new."""
    said = ""
    with tempfile.TemporaryDirectory() as folder:
        for path in changed:
            names = [os.path.join(folder, name) for name in ("old", "new")]
            for name, text in zip(names, (before, after)):
                with open(name, "wb") as file:
                    file.write(text.get(path, b""))
            said += subprocess.run(["diff", "-u", "--label", path, "--label", path, *names], stdout=subprocess.PIPE,
                                   text=True, errors="replace").stdout
    return said
