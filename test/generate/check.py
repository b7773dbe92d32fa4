"""Migrates, compiles and runs one generated program, and compares its runs."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))

from built_programs import Build, ids_of, last_line, refusals_of, run_limited  # noqa: E402
from compare_runs import Different, compare  # noqa: E402
from structure import HEADERS  # noqa: E402
from ways import BESIDE, WAYS  # noqa: E402

# Outcomes. All but the first three are failures.
EQUAL, NOT_SHARED, MEANT = "equal", "equal, nothing shared out", "refused as meant"
REFUSED, UNCOMPILABLE, DIFFERENT, CRASHED, HANG = "refused", "does not compile", "different", "crashed", "hang"
UNCHANGED, TOOL_FAILED, INVALID = "nothing changed", "tool failed", "original invalid"
GOOD = (EQUAL, NOT_SHARED, MEANT)
ORDER = GOOD + (REFUSED, UNCHANGED, UNCOMPILABLE, DIFFERENT, CRASHED, HANG, TOOL_FAILED, INVALID)

RELATIVE = 1e-9
# Numbers that are nearly zero are differences of larger ones: their rounding is that of those.
ABSOLUTE = 1e-11
PROCESSES = (2, 3)


class Failure(Exception):
    def __init__(self, outcome, detail):
        super().__init__(f"{outcome}: {detail}")
        self.outcome, self.detail = outcome, detail


@dataclass
class Result:
    seed: int
    outcome: str
    detail: str = ""
    ids: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    seconds: float = 0.0
    shared: float = 0.0  # calls in parts, of those on distributed tensors
    numbers: int = 0


def outcome_of(returncode):
    return HANG if returncode is None else CRASHED


class Runner:
    """The program that forks for each run (runner.cpp)."""

    def __init__(self, program):
        environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        environment["OMP_NUM_THREADS"] = "1"
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def run(self, processes, library, folder, timeout, environment):
        """Exit code (None: it hung), standard output of process 0, standard error of all."""
        variables = [f"{name}={value}" for name, value in environment.items()]
        self.process.stdin.write("\t".join([str(processes), str(timeout), library, folder, *variables]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer:
            raise RuntimeError(f"{self.process.args[0]} has ended with exit code {self.process.wait()}")
        said = []
        for rank in range(processes):
            with open(f"{folder}.{rank}.err", encoding="utf-8", errors="replace") as file:
                said.append(file.read())
        with open(f"{folder}.0.out", encoding="utf-8", errors="replace") as file:
            out = file.read()
        # Of the others only what explains a failure is of interest.
        return None if answer == "timeout" else int(answer), out, said[0] if answer == "0" else "".join(said)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# What a source of several programs begins with: each is read in a namespace of its
# own, where no header may be read for the first time.
TOGETHER = "".join(f"#include <{name}>\n" for name in ("torch/torch.h", *HEADERS)) + """
int call(int (*main)(), int, char**) { return main(); }
template <typename V> int call(int (*main)(int, V), int count, char** values) { return main(count, const_cast<V>(values)); }
"""


class Checker:
    """`launched`: processes are started by `accel launch`, from executables; otherwise
    they are forked from a process that has loaded LibTorch, which is quicker."""

    def __init__(self, settings, work, timeout=60, launched=False, all_ways=False):
        self.settings, self.work, self.timeout, self.launched = settings, work, timeout, launched or not settings.runner
        self.all_ways = all_ways
        self._runners, self._of_thread = [], threading.local()
        self._together = {}  # folder of a program -> the library and function that it is

    def close(self):
        for runner in self._runners:
            runner.close()

    def _runner(self):
        if not hasattr(self._of_thread, "runner"):
            self._of_thread.runner = Runner(self.settings.runner)
            self._runners.append(self._of_thread.runner)
        return self._of_thread.runner

    def run(self, command, cwd, environment=None, timeout=None):
        """Exit code (None: it hung), standard output, standard error."""
        variables = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        variables.update({"OMP_NUM_THREADS": "1"}, **(environment or {}))
        done = run_limited(command, cwd, timeout or self.timeout, variables)
        return done.returncode, done.stdout, done.stderr

    def _run_program(self, folder, run, processes, environment):
        """Runs the program of `folder` in the folder `run`."""
        if not self.launched:
            library = self._together.get(folder) or os.path.join(folder, "program.so") + "#main"
            return self._runner().run(processes, library, run, self.timeout, environment)
        command = ["../program"]
        if processes > 1:
            command = [self.settings.launcher, "launch", "--config-file", "/dev/null", "--num-processes", str(processes), "--output", "main",
                       "--", *command]
        return self.run(command, run, environment)

    def check(self, seed, program):
        start = time.monotonic()
        folder = os.path.join(self.work, str(seed))
        shutil.rmtree(folder, ignore_errors=True)
        result = Result(seed, EQUAL)
        try:
            self._check(program, folder, result)
        except Failure as failure:
            result.outcome, result.detail = failure.outcome, failure.detail
        except Different as different:
            result.outcome, result.detail = DIFFERENT, str(different)
        result.seconds = time.monotonic() - start
        return result

    def check_together(self, programs):
        """Results of (seed, program) pairs, which are compiled together: LibTorch's templates, which most
        of a compilation is spent on, are instantiated once. What fails so is checked by itself."""
        started, results, ready = time.monotonic(), {}, []
        for seed, program in programs:
            folder = os.path.join(self.work, str(seed))
            shutil.rmtree(folder, ignore_errors=True)
            results[seed] = result = Result(seed, EQUAL)
            try:
                self._prepare(program, folder, result)
                ready.append((seed, program, folder))
            except Failure as failure:
                result.outcome, result.detail = failure.outcome, failure.detail
        alone = set()
        if self.launched or len(ready) < 2 or not self._compile_together(ready):
            alone = {seed for seed, _, _ in ready}
        for seed, program, folder in ready:
            if seed not in alone:
                try:
                    self._compare(program, folder, results[seed])
                except (Failure, Different):
                    alone.add(seed)
            for way in ("plain", "migrated"):
                self._together.pop(os.path.join(folder, way), None)
        for result in results.values():
            result.seconds = (time.monotonic() - started) / len(programs)
        for seed, program, _ in ready:
            if seed in alone:
                results[seed] = self.check(seed, program)
        return list(results.values())

    def _compile_together(self, ready):
        """Two libraries, of the originals and of the results. Whether they compiled."""
        settings, first = self.settings, ready[0][0]
        for way, header in (("plain", settings.header), ("migrated", settings.result_header or settings.header)):
            path = os.path.join(self.work, f"{way}{first}")
            with open(path + ".cpp", "w", encoding="utf-8") as file:
                file.write(TOGETHER + ("" if way == "plain" else "#include <accel/accel.h>\n"))
                for seed, program, folder in ready:
                    end_main(os.path.join(folder, way, "main.cpp"), os.path.join(folder, way, "together.cpp"))
                    file.write(f"namespace program{seed} {{\n")
                    for source in program.sources:
                        name = "together.cpp" if source == "main.cpp" else source
                        file.write(f'#include "{os.path.join(folder, way, name)}"\n')
                    file.write(f"}}\nextern \"C\" int main{seed}(int count, char** values) {{ return call(program{seed}::main, count, values); }}\n")
            flags = [*settings.flags, "-fPIC", *header, "-shared", *(flag for flag in settings.link if flag.startswith("-fuse-ld"))]
            code, _, _ = self.run([settings.compiler, *flags, path + ".cpp", "-o", path + ".so"], self.work, timeout=600)
            if code != 0:
                return False
            for seed, _, folder in ready:
                self._together[os.path.join(folder, way)] = f"{path}.so#main{seed}"
        return True

    def _prepare(self, program, folder, result):
        plain, migrated = os.path.join(folder, "plain"), os.path.join(folder, "migrated")
        os.makedirs(migrated)
        write_program(program, plain)
        self._migrate(program, plain, migrated, result)

    def _check(self, program, folder, result):
        self._prepare(program, folder, result)
        self._compare(program, folder, result)

    def _compare(self, program, folder, result):
        plain, migrated = os.path.join(folder, "plain"), os.path.join(folder, "migrated")
        self._compile(program, plain, INVALID)
        original = self._run_alone(plain, INVALID)
        self._compile(program, migrated, UNCOMPILABLE)
        alone = self._run_alone(migrated, CRASHED)
        if original != alone and self._run_alone(plain, INVALID) != original:
            raise Failure(INVALID, "the original prints something else each time")
        for name, left, right in zip(("standard output", "standard error"), original[:2], alone[:2]):
            if left != right:
                raise Failure(DIFFERENT, f"1 process: other bytes in the {name}: {first_difference(left, right)}")
        if original[2] != alone[2]:
            names = sorted(name for name in {*original[2], *alone[2]} if original[2].get(name) != alone[2].get(name))
            raise Failure(DIFFERENT, f"1 process: other files: {', '.join(names)}")
        for processes in PROCESSES:
            report = os.path.join(folder, f"placement{processes}.json")
            environment = {"ACCEL_PLACEMENT_REPORT": report} if processes == PROCESSES[0] else {}
            self._run_several(migrated, f"{processes} processes", processes, original, result, environment)
            if environment:
                with open(report, encoding="utf-8") as file:
                    totals = json.load(file)["totals"]
                calls = {key: sums["calls"] for key, sums in totals.items()}
                result.shared = calls.get("in_parts", 0) / max(1, sum(calls.values()))
        for way in WAYS if self.all_ways else [WAYS[result.seed % len(WAYS)]]:
            expected = self._run_alone(migrated, CRASHED, way.common) if way.common else original
            self._run_several(migrated, f"{way.name}, {way.processes} processes", way.processes, expected, result, {**way.environment, **way.common})
        if not result.shared:
            result.outcome = NOT_SHARED

    def _migrate(self, program, plain, migrated, result):
        command = [self.settings.tool, "--out-root", migrated, *program.sources]
        code, _, err = self.run(command, plain, timeout=120)
        with open(os.path.join(os.path.dirname(plain), "migrate.txt"), "w", encoding="utf-8") as file:
            file.write(err)
        result.notes = ids_of(err)
        if code == 1:
            refusals = refusals_of(err)
            result.ids = ids_of("\n".join(refusals))
            outcome = MEANT if result.ids and set(result.ids) <= program.may_refuse else REFUSED
            raise Failure(outcome, f"{' '.join(result.ids)} {refusals[0] if refusals else err.strip()[-300:]}")
        if code != 0:
            # An original that does not compile is the generator's fault.
            self._compile(program, plain, INVALID)
            raise Failure(HANG if code is None else TOOL_FAILED, f"accel-migrate: exit code {code}: {err.strip()[-300:]}")
        changed = os.listdir(migrated)
        for name in program.files:
            if name not in changed:
                shutil.copyfile(os.path.join(plain, name), os.path.join(migrated, name))
        if not changed:
            raise Failure(UNCHANGED, err.strip()[-300:])

    def _compile(self, program, folder, outcome):
        settings = self.settings
        name = "program" if self.launched else "program.so"
        if folder in self._together or os.path.exists(os.path.join(folder, name)):
            return
        header = settings.result_header if os.path.basename(folder) == "migrated" and settings.result_header else settings.header
        flags = [*settings.flags, *([] if self.launched else ["-fPIC"])]
        objects = []
        for source in program.sources:
            objects.append(source.replace(".cpp", ".o"))
            code, _, err = self.run([settings.compiler, *flags, *header, "-c", source, "-o", objects[-1]], folder, timeout=300)
            if code != 0:
                errors = [line for line in err.splitlines() if "error" in line]
                raise Failure(outcome, f"{os.path.basename(folder)}: " + (errors[0] if errors else err[-300:]))
        # What a library misses is found in the process that loads it, or named there.
        link = settings.link if self.launched else ["-shared", *(flag for flag in settings.link if flag.startswith("-fuse-ld"))]
        code, _, err = self.run([settings.compiler, *objects, "-o", name, *link], folder, timeout=300)
        if code != 0:
            raise Failure(outcome, f"{os.path.basename(folder)}: the linker: {err.strip()[-300:]}")

    def _run_alone(self, folder, outcome, environment=None):
        """What the program prints, and the files that it writes."""
        run = os.path.join(folder, "alone")
        shutil.rmtree(run, ignore_errors=True)
        os.makedirs(run)
        code, out, err = self._run_program(folder, run, 1, environment or {})
        if code != 0:
            raise Failure(outcome if outcome == INVALID else outcome_of(code), f"1 process: exit code {code}: {last_line(err)}")
        return out, err, files_of(run)

    def _run_several(self, folder, name, processes, original, result, environment):
        run = os.path.join(folder, "several")
        shutil.rmtree(run, ignore_errors=True)
        os.makedirs(run)
        os.makedirs(run + ".beside", exist_ok=True)
        environment = {variable: value.replace(BESIDE, run + ".beside") for variable, value in environment.items()}
        code, out, err = self._run_program(folder, run, processes, environment)
        if code != 0:
            told = [line for line in err.splitlines() if "what():" in line] or [line for line in err.splitlines() if "accel:" in line or "error" in line.lower()]
            raise Failure(outcome_of(code), f"{name}: exit code {code}: {told[0] if told else last_line(err)}")
        expected_out, expected_err, expected_files = original
        result.numbers += compare_within(expected_out, out, f"{name}, standard output")
        if not self._prepares(folder):
            err = "".join(line for line in err.splitlines(True) if "nothing is divided between the processes" not in line)
        compare_within(without_times(expected_err), without_times(err), f"{name}, standard error")
        files = files_of(run)
        if sorted(files) != sorted(expected_files):
            raise Failure(DIFFERENT, f"{name}: files {sorted(files)} instead of {sorted(expected_files)}")
        for file, content in expected_files.items():
            if not file.endswith(".pt"):
                compare_within(content.decode(), files[file].decode(), f"{name}, {file}")

    @staticmethod
    def _prepares(folder):
        """Whether a program passes a model to prepare: of others, with tensors of their own, nothing can be divided, as they are told."""
        sources = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith((".cpp", ".h"))]
        for source in sources:
            with open(source, encoding="utf-8") as file:
                if ".prepare(" in file.read():
                    return True
        return False


def without_times(said):
    """LibTorch's warnings begin with the time."""
    return re.sub(r"^\[W\S* \S* ", "[W ", said, flags=re.MULTILINE)


def write_program(program, folder):
    os.makedirs(folder, exist_ok=True)
    for name, text in program.files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)


def end_main(path, copy):
    """Copies a source and gives its main a return at the end, which only a main outside of namespaces has by itself."""
    with open(path, encoding="utf-8") as file:
        before, main, behind = re.split(r"(^int main\(.*\n)", file.read(), flags=re.MULTILINE)
    with open(copy, "w", encoding="utf-8") as file:
        file.write(before + main + re.sub(r"^}", "return 0;\n}", behind, count=1, flags=re.MULTILINE))


def files_of(folder):
    contents = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            # An optimizer's file has the addresses of its parameters in it.
            contents[name] = b"" if name == "optimizer.pt" else file.read()
    return contents


def compare_within(original, migrated, what):
    """Equal texts, and equal numbers within rounding; how many these were."""
    try:
        result = compare(original, migrated, floor=ABSOLUTE)
    except Different as different:
        raise Different(f"{what}: {different}") from None
    if result.relative > RELATIVE:
        raise Different(f"{what}, {result.where}: a number differs by {result.relative:.2g} relative")
    return result.numbers


def first_difference(left, right):
    for a, b in zip(left.splitlines(), right.splitlines()):
        if a != b:
            return f"'{a}' / '{b}'"
    return f"{len(left.splitlines())} lines / {len(right.splitlines())} lines"
