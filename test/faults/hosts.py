"""Several hosts, each a network namespace of its own on this machine.

    hosts.py --launcher ACCEL --program SUBJECT CASE...

Several cases run at the same time: most of their time they wait.
Nothing outside of the namespaces is touched: they belong to processes that
this one starts, and are gone with them. Where the system does not allow that,
the exit code is 77: skipped.

Cases:
  equal      2 and 3 hosts compute what one does
  delay      the same with 50 ms between them
  loss       the same with 2 % of the packets lost
  cut        the link is cut in the middle: both hosts notice, and say so
  fewer      the same with --min-processes: host 0 goes on alone
  death      a process dies: the other host knows which one, and how
  restarts   processes are killed on both hosts, again and again
  preflight  a host cannot reach another one; names; wrong processes without a
             launcher of ours
"""

import argparse
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from checks import check, skip

PORT = "29511"
SWITCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "switch.py")
INSIDE = "ACCEL_TEST_INSIDE_NAMESPACE"
DIE_WITH_PARENT = lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


class Hosts:
    """A switch in this process's namespace, and `count` hosts at it: host0 is
    10.9.0.1 and so on. With `delay` (seconds) or `loss` (a share of the
    packets) the switch is a program, since not every kernel has netem."""

    def __init__(self, count, delay=0.0, loss=0.0):
        ip("link", "set", "lo", "up")
        slow = delay > 0 or loss > 0
        if not slow:
            ip("link", "add", "switch", "type", "bridge")
            ip("link", "set", "switch", "up")
        self.holders = []
        for i in range(count):
            holder = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", f"hostname host{i} && exec sleep 600"],
                                      preexec_fn=DIE_WITH_PARENT)
            self.holders.append(holder)
            own = os.readlink("/proc/self/ns/net")
            while os.readlink(f"/proc/{holder.pid}/ns/net") == own:
                time.sleep(0.01)
            ip("link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
            for command in (["addr", "add", f"10.9.0.{i + 1}/24", "dev", "eth0"], ["link", "set", "eth0", "up"],
                            ["link", "set", "lo", "up"]):
                subprocess.run(self.enter(i) + ["ip", *command], check=True)
            if slow:
                subprocess.run(self.enter(i) + [sys.executable, SWITCH, "--prepare", "eth0"], check=True)
            else:
                ip("link", "set", f"port{i}", "master", "switch")
            ip("link", "set", f"port{i}", "up")
        self.switch = None
        if slow:
            self.switch = subprocess.Popen(
                [sys.executable, SWITCH, "--delay", str(delay), "--loss", str(loss),
                 *(f"port{i}" for i in range(count))], preexec_fn=DIE_WITH_PARENT, stdout=subprocess.PIPE, text=True)
            if self.switch.stdout.readline() != "ready\n":
                skip("the switch cannot be made here: no packet sockets")

    def enter(self, host):
        return ["nsenter", "-t", str(self.holders[host].pid), "-n", "-u", "--"]

    def start(self, host, command, cwd, environment=None):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "ACCEL_STALL_TIMEOUT": "20", "XDG_CONFIG_HOME": "/nonexistent",
               **(environment or {})}
        return subprocess.Popen(self.enter(host) + command, cwd=cwd, env=env, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, preexec_fn=DIE_WITH_PARENT)

    def end(self):
        if self.switch:
            self.switch.terminate()
            out, _ = self.switch.communicate()
            print(out.strip())
        for i, holder in enumerate(self.holders):
            holder.kill()
            holder.wait()
            subprocess.run(["ip", "link", "del", f"port{i}"], stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "del", "switch"], stderr=subprocess.DEVNULL)


def launch(options, host, hosts, processes, arguments, *more, program=None):
    return [options.launcher, "launch", "--num-machines", str(hosts), "--machine-rank", str(host), "--main-process-ip",
            "10.9.0.1", "--main-process-port", PORT, "--num-processes", str(processes), "--grace-period", "3",
            "--start-timeout", "20", "--output", "main", *more, "--", program or options.program, *arguments]


def finish(processes, seconds):
    deadline = time.monotonic() + seconds
    results = []
    for process in processes:
        try:
            out, err = process.communicate(timeout=max(1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            for other in processes:
                other.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=30)
            raise SystemExit(f"still running after {seconds} s:\n{out}\n{err}")
        results.append((process.returncode, out, err))
    return results


def trained(options, hosts, processes, seconds, **network_options):
    network = Hosts(hosts, **network_options)
    try:
        with tempfile.TemporaryDirectory() as cwd:
            results = finish([network.start(host, launch(options, host, hosts, processes, ["train", "20"]), cwd)
                              for host in range(hosts)], seconds)
            for code, out, err in results:
                check(code == 0, f"{hosts} hosts: exit code {code}\n{out}\n{err}")
            return results[0][1]
    finally:
        network.end()


def alone(options, processes, arguments=("train", "20")):
    # Between hosts sums go through Gloo, which adds in another order than processes that share memory.
    environment = {**os.environ, "ACCEL_SHARED_MEMORY": "0"}
    with tempfile.TemporaryDirectory() as cwd:
        done = subprocess.run([options.launcher, "launch", "-n", str(processes), "--output", "main", "--",
                               options.program, *arguments], cwd=cwd, env=environment, capture_output=True, text=True,
                              timeout=120)
        check(done.returncode == 0, done.stderr)
        return done.stdout


def wait_for(cwd, name, processes):
    deadline = time.monotonic() + 60
    while not os.path.exists(os.path.join(cwd, name)):
        if time.monotonic() > deadline or any(process.poll() is not None for process in processes):
            raise SystemExit(f"{name} never came: {finish(processes, 1)}")
        time.sleep(0.02)


WAITED = r"[a-z_]+ #\d+.* failed on process %d of 2, called at subject\.cpp:\d+.*: "


def cut(options):
    network = Hosts(2)
    try:
        with tempfile.TemporaryDirectory() as cwd:
            processes = [network.start(host, launch(options, host, 2, 2, ["sum", "120"]), cwd) for host in range(2)]
            wait_for(cwd, "begun", processes)
            ip("link", "set", "port1", "down")
            start = time.monotonic()
            for host, (code, out, err) in enumerate(finish(processes, 40)):
                check(code not in (0, None), f"host {host} did not notice")
                check(re.search(WAITED % host, err), err)
                check("lost with its host" in err if host == 0 else "(--machine-rank 0) is lost" in err, err)
            seconds = time.monotonic() - start
            print(f"noticed by both after {seconds:.1f} s")
            check(seconds < 12, f"{seconds:.0f} s")
    finally:
        network.end()


def numbers(text):
    """Behind "after N steps: " there are two hexadecimal numbers."""
    match = re.search(r"after (\d+) steps: (\S+) (\S+)", text)
    check(match, text)
    return int(match[1]), float.fromhex(match[2]), float.fromhex(match[3])


def fewer(options):
    network = Hosts(2)
    try:
        with tempfile.TemporaryDirectory() as cwd:
            more = ["--max-restarts", "2", "--min-processes", "1", "--resume", "auto"]
            processes = [network.start(host, launch(options, host, 2, 2, ["saving", "30"], *more), cwd)
                         for host in range(2)]
            wait_for(cwd, "begun", processes)
            ip("link", "set", "port1", "down")
            start = time.monotonic()
            first, second = finish(processes, 60)
            print(f"went on and ended {time.monotonic() - start:.1f} s after the cut")
            check(first[0] == 0, first)
            for part in ("rank 1 on host1 failed first: lost with its host",
                         "starting 1 processes instead of 2, since host1 is lost",
                         "What changes with 1 processes instead of 2"):
                check(part in first[2], first[2])
            check(second[0] == 125 and "host0 (--machine-rank 0) is lost" in second[2], second)
            steps, *found = numbers(first[1])
            _, *expected = numbers(alone(options, 1, ["saving", "30"]))
            check(steps == 30 and all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(found, expected)),
                  f"{found} instead of {expected}")
            with open(os.path.join(cwd, "log")) as file:
                starts = [line.split()[1] for line in file if line.startswith("start")]
            check(len(starts) == 2 and int(starts[1]) > 0, f"it began anew: {starts}")
    finally:
        network.end()


def death(options):
    network = Hosts(2)
    try:
        with tempfile.TemporaryDirectory() as cwd:
            processes = [network.start(host, launch(options, host, 2, 2, ["die"]), cwd) for host in range(2)]
            results = finish(processes, 60)
            with open(os.path.join(cwd, "died")) as file:
                seconds = time.time() - float(file.read())
            print(f"both hosts had ended {seconds:.2f} s after the death")
            check(seconds < 10, f"{seconds:.1f} s")
            for code, out, err in results:
                check(code == 137, err)
                check(re.search(r"rank 1 \(pid \d+ on host1\) failed first: ended by SIGKILL \(Killed\)", err), err)
                check(re.search(r"could not go on without the others: rank 0 on host0 \(.*, in [a-z_]+ #\d+", err), err)
            # What the process itself says, which has waited on the other host.
            check(re.search(WAITED % 0 + r"rank 1 on host1: ended by SIGKILL \(Killed\)", results[0][2]), results[0][2])
    finally:
        network.end()


def restarts(options):
    network = Hosts(2)
    try:
        with tempfile.TemporaryDirectory() as cwd:
            more = ["--max-restarts", "30", "--resume", "auto"]
            results = finish([network.start(host, launch(options, host, 2, 2, ["kill", "4", "40"], *more), cwd)
                              for host in range(2)], 150)
            with open(os.path.join(cwd, "kills")) as file:
                print(f"{len(file.readlines())} kills")
            for code, out, err in results:
                check(code == 0, err)
            with tempfile.TemporaryDirectory() as other:
                check(results[0][1] == alone(options, 2, ["train", "40"]), f"another result: {results}")
    finally:
        network.end()


def preflight(options):
    network = Hosts(3)
    try:
        with tempfile.TemporaryDirectory() as cwd:
            # One way out of six is closed.
            subprocess.run(network.enter(1) + ["ip", "route", "add", "unreachable", "10.9.0.3"], check=True)
            for code, out, err in finish([network.start(host, launch(options, host, 3, 3, ["sum", "1"]), cwd)
                                          for host in range(3)], 40):
                check(code == 125 and len(err.splitlines()) == 1, err)
                check("host1 cannot connect to host2 (10.9.0.3): No route to host" in err, err)
            # Names.
            name = launch(options, 1, 2, 2, ["sum", "1"])
            name[name.index("10.9.0.1")] = "no-such-host.invalid"
            [(code, _, err)] = finish([network.start(1, name, cwd)], 40)
            check(code == 125 and "no-such-host.invalid" in err and len(err.splitlines()) == 1, err)
            here = launch(options, 0, 2, 2, ["sum", "1"])
            here[here.index("10.9.0.1")] = "10.9.0.77"
            [(code, _, err)] = finish([network.start(0, here, cwd)], 40)
            check(code == 125 and "none of this host's addresses" in err, err)

            # Without a launcher that looks: the processes themselves do.
            other = os.path.join(cwd, "other")
            shutil.copy(options.program, other)
            with open(other, "ab") as file:
                file.write(b"another build")

            def process(host, rank=None, world=2, program=options.program):
                rank = host if rank is None else rank
                return network.start(host, [program, "sum", "1"], cwd, {
                    "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                    "MASTER_ADDR": "10.9.0.1", "MASTER_PORT": PORT})

            for said, start in {
                    "another program (checksum)": lambda: [process(0), process(1, program=other)],
                    "another number of processes (WORLD_SIZE)": lambda: [process(0), process(1, world=4)],
                    "two processes with the rank": lambda: [process(0), process(1), process(2, rank=1)]}.items():
                results = finish(start(), 40)
                check(any(said in err for _, _, err in results), f"{said}: {results}")
    finally:
        network.end()


def together(options):
    """Each case in a process, and namespaces, of its own."""
    command = [sys.executable, __file__, "--launcher", options.launcher, "--program", options.program]
    runs = [subprocess.Popen([*command, case], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             preexec_fn=DIE_WITH_PARENT) for case in options.case]
    codes = []
    for case, run in zip(options.case, runs):
        out, _ = run.communicate()
        print(f"{case}: exit code {run.returncode}\n{out}", flush=True)
        codes.append(run.returncode)
    failed = [code for code in codes if code not in (0, 77)]
    sys.exit(failed[0] if failed else max(codes))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launcher", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("case", nargs="+", choices=["equal", "delay", "loss", "cut", "fewer", "death", "restarts",
                                                    "preflight"])
    options = parser.parse_args()
    if len(options.case) > 1:
        together(options)
    [options.case] = options.case
    if INSIDE not in os.environ:
        for tool in ("ip", "unshare", "nsenter"):
            if not shutil.which(tool):
                skip(f"{tool} is not installed")
        flags = ["--net"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--net"]
        if subprocess.run(["unshare", *flags, "true"], capture_output=True).returncode != 0:
            skip("network namespaces are not allowed")
        os.execvpe("unshare", ["unshare", *flags, sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})
    if options.case == "delay":
        check(trained(options, 2, 2, 110, delay=0.025) == alone(options, 2), "another result")
    elif options.case == "loss":
        check(trained(options, 2, 2, 110, loss=0.02) == alone(options, 2), "another result")
    elif options.case == "equal":
        for hosts in (2, 3):
            # Two processes on each of two hosts; one on each of three.
            processes = 4 if hosts == 2 else 3
            check(trained(options, hosts, processes, 110) == alone(options, processes), f"{hosts} hosts: another result")
    else:
        {"cut": cut, "fewer": fewer, "death": death, "restarts": restarts, "preflight": preflight}[options.case](options)


if __name__ == "__main__":
    main()
