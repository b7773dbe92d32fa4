"""Builds an executable as it is and as it was migrated, runs both under `accel
verify` as 1, 2 and 3 processes, and says how much work was shared out.
"""

import glob
import json
import os
import re
import shlex
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field

from check import (CRASH, HANG, MIGRATED, NO_PARSE, NOTHING, REFUSED, UNCOMPILABLE, Result, diff_of, flags_in, judge,
                   read_sources)
from built_programs import last_line, run_limited
from executables import ROOT
from fixtures import localise, provide
from programs import COPIED, LARGEST_FILE

_HERE = os.path.dirname(os.path.abspath(__file__))
_STRESS = os.path.join(_HERE, "..", "..", "distributed", "stress.py")

# Results of a run, beside those of check.py.
EQUAL, DIFFERENT, STOPPED, SLOW, ROUNDING = "equal", "DIFFERENT", "STOPPED", "too slow", "rounding"
NOT_RUN, NOT_BUILT, UNMIGRATED_ERRORS = "not runnable", "not linked", "does not compile"
FAILURES = (CRASH, HANG, UNCOMPILABLE, DIFFERENT, STOPPED)
ORDER = (EQUAL, ROUNDING, SLOW, NOT_RUN, NOT_BUILT, NOTHING, REFUSED, NO_PARSE, UNMIGRATED_ERRORS) + FAILURES

# Where Debian puts headers that are included without their folder.
_FOLDERS = [folder for folder in ("/usr/include/opencv4", "/usr/include/jsoncpp", "/usr/include/stb", "/usr/include/eigen3") if os.path.isdir(folder)]

# What GCC only warns of, or does not say, and what Clang needs for GCC's omp.h.
_AS_GCC = ["-Wno-c++11-narrowing", "-Wno-enum-constexpr-conversion"]
for _OPENMP in sorted(glob.glob("/usr/lib/gcc/*/*/include/omp.h"))[-1:]:
    _AS_GCC += ["-idirafter", os.path.dirname(_OPENMP), "-D__malloc__(f)="]

# Windows that a program opens, by OpenCV or Matplotlib, are shown nowhere.
_NO_SCREEN = {"DISPLAY": "", "QT_QPA_PLATFORM": "offscreen", "MPLBACKEND": "agg"}

_LIBRARIES = (  # a pattern of #include, and what to link
    (r"opencv2/", ["-lopencv_core", "-lopencv_imgproc", "-lopencv_imgcodecs", "-lopencv_highgui", "-lopencv_videoio",
                   "-lopencv_dnn", "-lopencv_objdetect", "-lopencv_video", "-lopencv_calib3d", "-lopencv_features2d"]),
    (r"boost/program_options", ["-lboost_program_options"]),
    (r"experimental/filesystem", ["-lstdc++fs"]),
    (r"boost/filesystem", ["-lboost_filesystem", "-lboost_system"]),
    (r"png\.h|png\+\+/", ["-lpng"]),
    (r"json/\w+\.h", ["-ljsoncpp"]),
    (r"omp\.h", ["-lgomp"]),
    (r"yaml-cpp/", ["-lyaml-cpp"]),
    (r"matplot/matplot\.h", ["-lmatplot"]),
    (r"curl/curl\.h", ["-lcurl"]),
    (r"spdlog/", ["-lspdlog", "-lfmt"]),
    (r"fmt/", ["-lfmt"]),
)


@dataclass
class Outcome(Result):
    shared: float = None  # share of the operator time of training steps, percent
    of_all: float = None  # the same with what data sets and optimizers do
    rows: int = 0  # of the largest batch
    stress: list = field(default_factory=list)  # (seed, outcome, numbers compared, what was said), under random placements


def _only_rounding(said):
    """Whether accel verify found each run equal, or as far off as the original is from itself."""
    verdicts = re.findall(r"^(?:\d+ process(?:es)?|-n .*?)  +((?:equal|DIFFERENT|NOT COMPARED).*)", said, re.MULTILINE)
    return bool(verdicts) and all(
        verdict.startswith("equal") or "computed with other instructions, the original differs from itself" in verdict for verdict in verdicts)


class Runner:
    """`build` is a built_programs.Build; its precompiled header serves programs of
    the build's C++ standard."""

    def __init__(self, build, work, store, extra_flags, max_steps, limit, recipes, stress=None, launches=()):
        self.build, self.work, self.store, self.stress = build, work, store, stress
        self.launches = [word for options in launches for word in ("--launch", options)]
        self.extra_flags = [*extra_flags, *(flag for folder in _FOLDERS for flag in ("-isystem", folder))]
        self.max_steps, self.limit, self.recipes = max_steps, limit, recipes

    # -- building ----------------------------------------------------------

    def _build(self, executable, copy, target, header):
        """Returns (state, error text) or (None, ''). `header` are flags for a precompiled header."""
        build = self.build
        flags = [*build.flags, *_AS_GCC, *flags_in(copy, executable.flags), *self.extra_flags]
        standards = {flag for flag in flags if flag.startswith("-std=")}
        if len(standards) == 1:
            flags += header
        objects, text = [], ""
        for number, source in enumerate(executable.sources):
            path = os.path.join(copy, source)
            with open(path, encoding="utf-8", errors="replace") as file:
                text += file.read()
            objects.append(f"{target}.{number}.o")
            built = run_limited([build.compiler, *flags, "-c", path, "-o", objects[-1]], os.path.dirname(path), 300)
            if built.returncode != 0:
                errors = [line for line in built.stderr.splitlines() if "error:" in line]
                return UNCOMPILABLE, errors[0] if errors else "the compiler did not end well"
        for header in executable.headers:
            with open(os.path.join(copy, header), encoding="utf-8", errors="replace") as file:
                text += file.read()
        includes = "\n".join(re.findall(r"#\s*include\s*[<\"][^>\"]*", text))
        libraries = [name for pattern, names in _LIBRARIES if re.search(pattern, includes) for name in names]
        linked = run_limited([build.compiler, *objects, "-o", target, *build.link, *libraries, "-lpthread"], copy, 300)
        for path in objects:
            os.remove(path)
        if linked.returncode != 0:
            errors = [line for line in linked.stderr.splitlines() if "undefined" in line or "error" in line]
            return NOT_BUILT, errors[0] if errors else "the linker did not end well"
        return None, ""

    # -- running -----------------------------------------------------------

    def _places(self, executable, copy):
        """Folders that a person would start it in."""
        cmake = os.path.join(copy, executable.folder)
        places = [os.path.join(cmake, "build"), cmake, os.path.join(copy, "build"), copy,
                  os.path.join(copy, os.path.dirname(executable.main), "build"),
                  os.path.dirname(os.path.join(copy, executable.main))]
        places = [os.path.normpath(place) for place in places]
        return [place for index, place in enumerate(places) if place not in places[:index]]

    def _try(self, program, arguments, place, root):
        """Runs the original for a while; returns None where it works, else why not."""
        os.makedirs(place, exist_ok=True)
        environment = dict(os.environ, OMP_NUM_THREADS="1", **_NO_SCREEN)
        # Of processor time: on a busy machine a program begins late.
        limited = ["bash", "-c", 'ulimit -t 6; exec "$@"', "bash", program, *arguments]
        for _ in range(6):
            done = run_limited(limited, place, 60, environment)
            if done.returncode in (None, 0, -signal.SIGXCPU, -signal.SIGKILL):
                return None
            said = done.stdout[-4000:] + done.stderr
            if not provide(self.store, said, place, root):
                interesting = [line for line in said.splitlines() if "what()" in line] or \
                    [line for line in said.splitlines() if re.search(r"[Ee]rror|not |[Cc]ould", line)]
                return f"exit code {done.returncode}: {(interesting or [last_line(said)])[0]}"
        return "it goes on missing files"

    def _recipe(self, executable):
        for pattern, recipe in self.recipes.items():
            if re.search(pattern, executable.name):
                return recipe
        return {}

    def check(self, executable):
        started = time.monotonic()
        folder = os.path.join(self.work, re.sub(r"\W+", "_", executable.name)[-120:])
        shutil.rmtree(folder, ignore_errors=True)
        flags = executable.flags
        try:
            outcome = self._check(executable, folder)
            # It names CUDA without looking whether there is one.
            if outcome.state == NOT_RUN and re.search(r"CUDA|NVIDIA", outcome.detail, re.IGNORECASE):
                shutil.rmtree(folder, ignore_errors=True)
                executable.flags = flags
                outcome = self._check(executable, folder, without_cuda=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        outcome.seconds = time.monotonic() - started
        return outcome

    def _check(self, executable, folder, without_cuda=False):
        copy = os.path.join(folder, "o", "p")
        migrated = os.path.join(folder, "m", "p")
        for place in (copy, migrated):
            shutil.copytree(executable.root, place, symlinks=True, ignore_dangling_symlinks=True,
                            ignore=shutil.ignore_patterns(".git", ".accel"))
            # The tool changes nothing outside of the project, which is this copy.
            os.makedirs(os.path.join(place, ".git"))
            localise(place, COPIED, self._recipe(executable).get("replace", ()), without_cuda)
        # Both read and write in the folder of the original.
        executable.flags = [flag.replace(ROOT, copy) for flag in executable.flags]
        original = os.path.join(folder, "original")
        state, why = self._build(executable, copy, original, self.build.header)
        while state is not None and mended(executable, state, why):
            state, why = self._build(executable, copy, original, self.build.header)
        if state is not None:
            return Outcome(executable, UNMIGRATED_ERRORS if state == UNCOMPILABLE else state, detail=why)

        # LibTorch's folders, and the standard.
        told = [flag for flag in self.build.flags if not flag.startswith(("-O", "-D", "-w", "-f", "-I"))]
        texts = [path for path in relative_files(migrated) if path.endswith(COPIED)
                 and os.path.getsize(os.path.join(migrated, path)) <= LARGEST_FILE]
        before = read_sources(migrated, texts)
        done = run_limited([self.build.tool, "--write", *executable.sources, "--", *told, *flags_in(migrated, executable.flags),
                            *self.extra_flags], migrated, self.limit)
        outcome = Outcome(executable, MIGRATED)
        if not judge(outcome, done, self.limit):
            return outcome
        after = read_sources(migrated, before)
        changed = sorted(path for path in before if after.get(path) != before[path])
        outcome.diff = diff_of(before, after, changed)
        if not changed:
            outcome.state, outcome.detail = NOTHING, last_line(done.stderr)
            return outcome

        result = os.path.join(folder, "migrated")
        state, why = self._build(executable, migrated, result, self.build.result_header or self.build.header)
        if state is not None:
            outcome.state, outcome.detail = UNCOMPILABLE, why
            return outcome
        self._compare(outcome, executable, copy, folder, original, result)
        return outcome

    def _compare(self, outcome, executable, copy, folder, original, result):
        recipe = self._recipe(executable)
        arguments = recipe.get("arguments", [])
        if "script" in recipe:
            arguments = arguments_of(os.path.join(copy, executable.folder, recipe["script"]), recipe.get("instead", {}))
        if "prepare" in recipe:
            made = run_limited([sys.executable, os.path.join(os.path.dirname(__file__), "recipes", recipe["prepare"]), *arguments],
                               os.path.join(copy, executable.folder), 120)
            if made.returncode != 0:
                outcome.state, outcome.detail = NOT_RUN, "the recipe's preparation failed: " + last_line(made.stderr)
                return
        reasons = []
        for place in [os.path.join(copy, executable.folder, recipe["cwd"])] if "cwd" in recipe else self._places(executable, copy):
            why = self._try(original, arguments, place, folder)
            if why is None:
                break
            reasons.append(why)
        else:
            outcome.state, outcome.detail = NOT_RUN, reasons[0]
            return
        if self.stress:
            self._stress(outcome, original, arguments, place, os.path.dirname(copy))
        report = os.path.join(folder, "placement.json")
        environment = dict(os.environ, OMP_NUM_THREADS="1", ACCEL_PLACEMENT_REPORT=report, **_NO_SCREEN)
        command = [self.build.launcher, "verify", "--original", original, "--migrated", result, "-n", "1,2,3", *self.launches,
                   "--max-steps", str(recipe.get("max_steps", self.max_steps)), "--timeout", str(self.limit // 2), "--jobs", "1",
                   "--double", "--", *arguments]
        for _ in range(4):
            done = run_limited(command, place, 6 * self.limit, environment)
            if done.returncode is None:
                outcome.state, outcome.detail = SLOW, "accel verify does not end"
                return
            said = done.stdout + done.stderr
            outcome.talk += "\n" + shlex.join(command) + "\n" + said
            diverged = re.search(r"^NOT COMPARED .* NaN in (\d+) of (\d+) steps", said, re.MULTILINE)
            if diverged and int(diverged.group(2)) > int(diverged.group(1)):
                # The steps before can be compared.
                command[command.index("--max-steps") + 1] = str(int(diverged.group(2)) - int(diverged.group(1)))
            # Some programs mix float64 with the float32 that they name.
            elif done.returncode == 2 and "the original failed" in said and "--double" in command:
                command.remove("--double")
            else:
                break
        if done.returncode == 0:
            outcome.state = EQUAL
        elif done.returncode == 1:
            outcome.state = DIFFERENT
        elif re.search(r"the original(?:, again)?: timed out", said):
            outcome.state = SLOW
        elif re.search(r"^NOT COMPARED  (?:the original|two runs of the original)", said, re.MULTILINE):
            outcome.state = NOT_RUN
        elif _only_rounding(said):
            outcome.state = ROUNDING
        elif re.search(r"no end within|timed? ?out|longer than", said):
            outcome.state = SLOW
        else:
            outcome.state = STOPPED
        if outcome.state != EQUAL:
            lines = [line for line in said.splitlines() if re.search(r"differ|error|stopp|ended|exit|what", line)]
            outcome.detail = (lines or [last_line(said)])[0].strip()
        try:
            with open(report.replace(".json", ".2.json"), encoding="utf-8") as file:
                placement = json.load(file)
            outcome.shared, outcome.of_all = share_of(placement), share_of(placement, of_all=True)
            outcome.rows = placement["rows"]
            outcome.talk += "\n" + json.dumps({way: entries[:6] for way, entries in placement["operators"].items()}, indent=1)
        except (OSError, ValueError):
            pass
        if outcome.shared is not None:
            outcome.detail = (f"{outcome.shared:.0f} % shared, {outcome.of_all:.0f} % of all operators, "
                              f"batches of {outcome.rows}  {outcome.detail}")

    def _stress(self, outcome, original, arguments, place, above):
        """Runs the original under random placements, as 2 processes, with the shadow check.
        `above` has all that it reads."""
        command = [sys.executable, _STRESS, "--library", os.path.join(self.build.folder, "lib", "libaccel_stress_placements.so"),
                   "--seeds", self.stress, "--processes", "2", "--limit", "12", "--may-refuse", "--check", "--double",
                   "--working-directory", place, "--copy", above, "--", original, *arguments]
        environment = dict(os.environ, **_NO_SCREEN)
        for _ in range(2):
            done = run_limited(command, place, 4 * self.limit, environment)
            outcome.talk += "\n" + shlex.join(command) + "\n" + done.stdout + done.stderr
            outcome.stress = re.findall(r"^seed (\d+): (\w+) \((\d+) numbers[^)]*\) ?(.*)$", done.stdout, re.MULTILINE)
            unfit = re.search(r"does not qualify: (.*)", done.stdout)
            if not outcome.stress:
                why = unfit.group(1) if unfit else last_line(done.stderr)
                outcome.stress = [("-", "does not qualify" if unfit else "no outcome", "0", why)]
            # As below: a program may mix float64 with the float32 that it names.
            ended = (unfit and "plain program" in unfit.group(1)) or any(how == "stopped" for _, how, _, _ in outcome.stress)
            if "--double" not in command or not ended:
                return
            command.remove("--double")


# Headers that the author's compiler or LibTorch included by the way.
_ALL_OF_STD = "-includebits/stdc++.h"


def mended(executable, state, why):
    """Changes how an executable is built, once for each way in which an author's build is known to take
    more than ours; returns whether there is something to try again."""
    flags = executable.flags
    # GCC takes `auto` parameters and concepts where an older standard is asked for, or the build file is not CMake's.
    if state == UNCOMPILABLE and re.search(r"'auto' not allowed in function prototype|type name '(?:concept|requires)'", why):
        if "-std=c++20" in flags:
            return False
        executable.flags = [*(flag for flag in flags if not flag.startswith("-std=")), "-std=c++20"]
        return True
    if state == UNCOMPILABLE and _ALL_OF_STD not in flags and \
            re.search(r"undefined template 'std::|(?:member|template|type) named '\w+' in namespace 'std'|library function '\w+'", why):
        executable.flags = [*flags, _ALL_OF_STD]
        return True
    if state == NOT_BUILT and "undefined symbol" in why and executable.libraries:
        executable.sources, executable.libraries = executable.sources + executable.libraries, []
        return True
    return False


def arguments_of(script, instead):
    """The options that a shell script starts a program with; those that are in
    `instead`, too, have its values."""
    with open(script, encoding="utf-8") as file:
        text = file.read().replace("\\\n", " ")
    variables = dict(re.findall(r"^(\w+)=['\"]?([^'\"\n]*)", text, re.MULTILINE))
    command = next(line for line in text.splitlines() if line.startswith("./"))
    words = shlex.split(re.sub(r"\$\{?(\w+)\}?", lambda match: variables.get(match.group(1), ""), command))[1:]
    for option, value in instead.items():
        if option in words:
            words[words.index(option) + 1] = value
    return words


# Work that is not done on a batch: making it, and updating parameters.
_ELSEWHERE = ("loading", "updating")


def share_of(report, of_all=False):
    """Percent of the operators' time that was shared out, of a report of
    ACCEL_PLACEMENT_REPORT; None where it is of one process. What training steps
    (accumulate) take without data sets and optimizers; all of the program where it has
    none, or `of_all`, which also has the time of data sets and optimizers. The time in
    which processes wait for each other is in none."""
    in_steps = not of_all and any(sums["calls"] for sums in report["totals_in_steps"].values())
    totals = report["totals_in_steps" if in_steps else "totals"]
    times = {way: sums["milliseconds"] for way, sums in totals.items() if of_all or way not in _ELSEWHERE}
    if report["processes"] < 2 or sum(times.values()) <= 0:
        return None
    return 100 * (times["in_parts"] + times["in_parts_communicating"]) / sum(times.values())


def relative_files(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                yield os.path.relpath(path, root)
