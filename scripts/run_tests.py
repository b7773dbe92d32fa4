"""Runs the test groups of a build folder and adds up what they say.

    run_tests.py BUILD_DIR GROUP...

Everything but two groups is registered with CTest under the group's label; the
rewriter's tests are lit's, "sanitizers" are the programs that the build folder's
sanitized_tests.txt lists (test/sanitizers).
"""

import concurrent.futures
import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

LIT = ["/usr/lib/llvm-19/build/utils/lit/lit.py"]

# Tests at a time, for two cores; two where nothing is said. Most of the launcher's
# wait for processes that wait: a hundred of them take four seconds of a processor;
# those that compute have the property PROCESSORS 3, so that they are two at a time.
# A test of the runtime that starts processes which compute has PROCESSORS 2, so that
# two of these, which only get in each other's way, are never together; one that
# computes in one process, or waits, runs beside.
AT_A_TIME = {"launcher": 6, "runtime": 3}


def skips(case):
    """Whether the test itself has said that it cannot run here. CTest also calls "not run" what it cannot start: a fault."""
    element = case.find("skipped")
    return (case.get("status") in ("notrun", "disabled") and element is not None
            and element.get("message", "").startswith("SKIP_"))


def run_ctest(build, group):
    report = os.path.join(build, f"{group}.junit.xml")
    if os.path.exists(report):
        os.remove(report)
    subprocess.run(["ctest", "--test-dir", build, "-L", f"^{group}$", "-j", str(AT_A_TIME.get(group, 2)),
                    "--output-on-failure", "--no-tests=error", "--output-junit", report], stdin=subprocess.DEVNULL)
    if not os.path.exists(report):
        return 0, 1, 0
    passed = failed = skipped = 0
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        status = case.get("status")
        if status == "run":
            passed += 1
        elif skips(case):
            skipped += 1
        else:
            failed += 1
    return passed, failed, skipped


def run_lit(build):
    report = os.path.join(build, "migrate.lit.json")
    if os.path.exists(report):
        os.remove(report)
    subprocess.run([sys.executable, *LIT, "-v", "--output", report, os.path.join(build, "test", "migrate")],
                   stdin=subprocess.DEVNULL)
    if not os.path.exists(report):
        return 0, 1, 0
    with open(report) as file:
        codes = [test["code"] for test in json.load(file)["tests"]]
    passed = sum(code in ("PASS", "FLAKYPASS") for code in codes)
    skipped = sum(code in ("UNSUPPORTED", "SKIPPED", "EXCLUDED", "XFAIL") for code in codes)
    return passed, len(codes) - passed - skipped, skipped


def run_sanitized(build):
    """Each program once, with all of its tests, two at a time: what a sanitizer finds ends it."""
    suppressions = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "test", "sanitizers")
    environment = dict(
        os.environ,
        # LibTorch's vectors are filled by code that does not say how far.
        ASAN_OPTIONS="detect_container_overflow=0:allocator_may_return_null=1:abort_on_error=0",
        LSAN_OPTIONS=f"suppressions={suppressions}/leaks.txt:print_suppressions=0",
        UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1",
        TSAN_OPTIONS=f"suppressions={suppressions}/threads.txt:history_size=4:print_suppressions=0",
    )
    totals = [0, 0, 0]
    with open(os.path.join(build, "sanitized_tests.txt")) as file:
        lines = file.read().splitlines()

    def run(line):
        program, argument = line.split(" ", 1)
        report = os.path.join(build, program + ".xml")
        if os.path.exists(report):
            os.remove(report)
        is_replay = program.startswith("accel_fuzz")
        arguments = [argument] if is_replay else ["--gtest_brief=1", f"--gtest_filter={argument}",
                                                  f"--gtest_output=xml:{report}"]
        result = subprocess.run([os.path.join(build, "bin", program), *arguments], env=environment,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, errors="replace")
        print(f"==> {program} {argument}\n{result.stdout}", end="", flush=True)
        code = result.returncode
        counts = [1, 0, 0]
        if not is_replay:
            suites = ElementTree.parse(report).getroot() if os.path.exists(report) else None
            failed = int(suites.get("failures")) + int(suites.get("errors")) if suites is not None else 0
            ran = int(suites.get("tests")) - int(suites.get("disabled")) if suites is not None else 0
            skipped = sum(1 for _ in suites.iter("skipped")) if suites is not None else 0
            counts = [ran - failed - skipped, failed, skipped]
        if code != 0 and counts[1] == 0:
            counts[1] += 1  # a sanitizer's report, or the program has died
        if counts[0] == 0:
            counts[1] += 1  # nothing ran: that is not a pass
        return counts

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for counts in pool.map(run, lines):
            totals = [total + count for total, count in zip(totals, counts)]
    return totals


def main():
    build = os.path.abspath(sys.argv[1])
    groups = sys.argv[2:]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    totals, lines = [0, 0, 0], []
    for group in groups:
        start = time.monotonic()
        counts = (run_sanitized(build) if group == "sanitizers"
                  else run_lit(build) if group == "migrate" else run_ctest(build, group))
        if counts[0] + counts[1] == 0:
            # Nothing ran: that is not a pass.
            counts = (0, 1, counts[2])
        lines.append(f"{group:<12} {counts[0]:>5} passed {counts[1]:>4} failed {counts[2]:>4} skipped"
                     f"  {time.monotonic() - start:6.0f} s")
        totals = [total + count for total, count in zip(totals, counts)]
    print()
    print("\n".join(lines))
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped", flush=True)
    return 1 if totals[1] else 0


if __name__ == "__main__":
    sys.exit(main())
