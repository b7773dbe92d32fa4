"""Runs the test groups of a build folder and adds up what they say.

    run_tests.py BUILD_DIR [--built-only] GROUP...

With --built-only test programs that were not built are left out; else they are an
error.

Everything but two groups is registered with CTest under the group's label; the
rewriter's tests are lit's, "sanitizers" are the programs that the build folder's
sanitized_tests.txt lists (test/sanitizers).

All groups are in one pool, so that no core is idle at the end of each: CTest
runs the tests of all its groups in one go. Beside it, with a lower priority, so
that they get what the others leave of the processors, the sanitized programs and
then the rewriter's tests run: these wait for nobody, and no clock is looked at
in them. Their priority is so low that CTest's, most of which wait for processes, end
before them. Tests that have the property RUN_SERIAL come last, with nothing beside.
"""

import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree

LIT = ["/usr/lib/llvm-19/build/utils/lit/lit.py"]
BESIDE = ("sanitizers", "migrate")  # In this order: small tests at the end, so that no core waits for one.

# What CTest's tests take of the two processors, as PROCESSORS of SLOTS: 1, where
# nothing is said, is a test that waits; 2 one that starts programs and waits for them;
# 3 one that computes in one process at a time, or in short-lived ones; 4 one of
# several processes that compute, and wait for each other: by itself it leaves half of
# the time of two processors, so there are places for two of them. (With 5 they ran
# one by one, and last, since places for 5 hardly ever are free at once. Nine places
# were slower.)
SLOTS = 8

printing = threading.Lock()


def say(text):
    with printing:
        print(text, end="" if text.endswith("\n") else "\n", flush=True)


class Counts:
    """What the tests of a group have said, and how long they took, added up."""

    def __init__(self, passed=0, failed=0, skipped=0, seconds=0.0):
        self.passed, self.failed, self.skipped, self.seconds = passed, failed, skipped, seconds

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.seconds += other.seconds


def without(report):
    """`report`, of which there is none from an earlier run."""
    if os.path.exists(report):
        os.remove(report)
    return report


def run_lines(group, command, **options):
    """Runs a command of those beside; its lines, with the group's name in front."""
    with subprocess.Popen(["nice", "-n", "10", *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", **options) as process:
        for line in process.stdout:
            say(f"{group}: {line}")
    return process.returncode


# ---- CTest's groups.

def skips(case):
    """Whether the test itself has said that it cannot run here. CTest also calls "not run" what it cannot start: a fault."""
    element = case.find("skipped")
    return (case.get("status") in ("notrun", "disabled") and element is not None
            and element.get("message", "").startswith("SKIP_"))


NOT_BUILT = "_NOT_BUILT"  # What GoogleTest's module for CMake calls a program without tests.


def tests_of(build, groups, built_only):
    """The tests of these groups: {name: (group, whether it is to run alone)}."""
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, text=True)
    if listed.returncode != 0:
        sys.exit(f"error: CTest cannot list the tests of {build}; what it says: ctest --test-dir {build} -N")
    tests = {}
    for test in json.loads(listed.stdout)["tests"]:
        properties = {entry["name"]: entry["value"] for entry in test.get("properties", [])}
        if test["name"].endswith(NOT_BUILT):
            if built_only:
                continue
            sys.exit(f"error: {test['name'].removesuffix(NOT_BUILT)} is not built")
        if not properties.get("LABELS"):
            sys.exit(f"error: the test {test['name']} is in no group: it needs a label")
        for group in properties["LABELS"]:
            if group in groups:
                tests[test["name"]] = (group, bool(properties.get("RUN_SERIAL")))
    return tests


def pattern(names):
    """CMake's regular expression for exactly these names."""
    return "^(" + "|".join(re.sub(r"([][()*+?.^$|\\])", r"\\\1", name) for name in names) + ")$"


def run_ctest(build, tests, groups, which):
    """One run of CTest, of the tests of the pool or of those that run alone. Adds to the groups' counts."""
    alone = sorted(name for name, (_, is_alone) in tests.items() if is_alone)
    expected = {name: group for name, (group, is_alone) in tests.items() if is_alone == (which == "alone")}
    if not expected:
        return
    chosen = ["-R", pattern(alone)] if which == "alone" else ["-E", pattern(alone)] if alone else []
    report = without(os.path.join(build, f"{which}.junit.xml"))
    subprocess.run(["ctest", "--test-dir", build, "-L", f"^({'|'.join(groups)})$", *chosen, "-j", str(SLOTS),
                    "--output-on-failure", "--no-tests=error", "--output-junit", report], stdin=subprocess.DEVNULL)
    cases = ElementTree.parse(report).getroot().iter("testcase") if os.path.exists(report) else []
    for case in cases:
        group = expected.pop(case.get("name"), None)
        if group is None:
            continue
        counts = Counts(seconds=float(case.get("time") or 0))
        if case.get("status") == "run":
            counts.passed = 1
        elif skips(case):
            counts.skipped = 1
        else:
            counts.failed = 1
        groups[group].add(counts)
    for name, group in expected.items():
        say(f"{name}: CTest says nothing of it")
        groups[group].add(Counts(failed=1))


# ---- What runs beside.

def run_lit(build):
    report = without(os.path.join(build, "migrate.lit.json"))
    run_lines("migrate", [sys.executable, *LIT, "-v", "-j", "2", "--output", report, os.path.join(build, "test", "migrate")])
    if not os.path.exists(report):
        return Counts(failed=1)
    with open(report) as file:
        tests = json.load(file)["tests"]
    codes = [test["code"] for test in tests]
    passed = sum(code in ("PASS", "FLAKYPASS") for code in codes)
    skipped = sum(code in ("UNSUPPORTED", "SKIPPED", "EXCLUDED", "XFAIL") for code in codes)
    return Counts(passed, len(codes) - passed - skipped, skipped, sum(test.get("elapsed") or 0 for test in tests))


def run_sanitized_program(build, line):
    """One program with all of its tests: what a sanitizer finds ends it."""
    suppressions = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "test", "sanitizers")
    environment = dict(
        os.environ,
        # LibTorch's vectors are filled by code that does not say how far.
        ASAN_OPTIONS="detect_container_overflow=0:allocator_may_return_null=1:abort_on_error=0",
        LSAN_OPTIONS=f"suppressions={suppressions}/leaks.txt:print_suppressions=0",
        UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1",
        TSAN_OPTIONS=f"suppressions={suppressions}/threads.txt:history_size=4:print_suppressions=0",
    )
    program, argument = line.split(" ", 1)
    report = without(os.path.join(build, program + ".xml"))
    is_replay = program.startswith("accel_fuzz")
    arguments = [argument] if is_replay else ["--gtest_brief=1", f"--gtest_filter={argument}", f"--gtest_output=xml:{report}"]
    say(f"sanitizers: {program} {argument}")
    start = time.monotonic()
    code = run_lines("sanitizers", [os.path.join(build, "bin", program), *arguments], env=environment)
    counts = Counts(passed=1)
    if not is_replay:
        suites = ElementTree.parse(report).getroot() if os.path.exists(report) else None
        failed = int(suites.get("failures")) + int(suites.get("errors")) if suites is not None else 0
        ran = int(suites.get("tests")) - int(suites.get("disabled")) if suites is not None else 0
        skipped = sum(1 for _ in suites.iter("skipped")) if suites is not None else 0
        counts = Counts(ran - failed - skipped, failed, skipped)
    if code != 0 and counts.failed == 0:
        counts.failed += 1  # a sanitizer's report, or the program has died
    if counts.passed == 0:
        counts.failed += 1  # nothing ran: that is not a pass
    counts.seconds = time.monotonic() - start
    return counts


def run_sanitized(build):
    """The programs, two at a time."""
    with open(os.path.join(build, "sanitized_tests.txt")) as file:
        lines = file.read().splitlines()
    total = Counts()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for counts in pool.map(lambda line: run_sanitized_program(build, line), lines):
            total.add(counts)
    return total


def main():
    build = os.path.abspath(sys.argv[1])
    built_only = "--built-only" in sys.argv[2:]
    groups = {group: Counts() for group in sys.argv[2:] if group != "--built-only"}
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # A folder for the tests' own: a program that `accel verify` runs sees what lies
    # around its folder, which in /tmp can be hundreds of links for each run.
    os.environ["TMPDIR"] = folder = os.path.join(build, "tmp")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    start = time.monotonic()
    of_ctest = [group for group in groups if group not in BESIDE]
    tests = tests_of(build, of_ctest, built_only) if of_ctest else {}
    runs = {"migrate": run_lit, "sanitizers": run_sanitized}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        beside = {group: pool.submit(runs[group], build) for group in BESIDE if group in groups}
        run_ctest(build, tests, groups, "pool")
        for group, result in beside.items():
            groups[group].add(result.result())
    run_ctest(build, tests, groups, "alone")

    total = Counts()
    print()
    for group, counts in groups.items():
        if counts.passed + counts.failed == 0:
            counts.failed = 1  # nothing ran: that is not a pass
        print(f"{group:<12} {counts.passed:>5} passed {counts.failed:>4} failed {counts.skipped:>4} skipped"
              f"  {counts.seconds:6.0f} s, added up")
        total.add(counts)
    print(f"all of them took {time.monotonic() - start:.0f} s")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
