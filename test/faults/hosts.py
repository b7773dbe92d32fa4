"""Several hosts, each a network namespace of its own on this machine.

    hosts.py --launcher ACCEL --program SUBJECT CASE

Nothing outside of the namespaces is touched: they belong to processes that
this one starts, and are gone with them. Where the system does not allow that,
the exit code is 77: skipped.

Cases: equal (2 and 3 hosts compute what one does), delay (the same with 50 ms
between them), loss (with 2 % of the packets lost), cut (the link is cut in the
middle), strangers (wrong ranks, programs and names).
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

PORT = "29511"
INSIDE = "ACCEL_TEST_INSIDE_NAMESPACE"
DIE_WITH_PARENT = lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def check(condition, message):
    if not condition:
        raise SystemExit(message)


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


class Hosts:
    """A bridge in this process's namespace, and `count` hosts at it."""

    def __init__(self, count):
        ip("link", "add", "switch", "type", "bridge")
        ip("link", "set", "switch", "up")
        ip("link", "set", "lo", "up")
        self.holders = []
        for i in range(count):
            holder = subprocess.Popen(["unshare", "--net", "sleep", "600"], preexec_fn=DIE_WITH_PARENT)
            self.holders.append(holder)
            own = os.readlink("/proc/self/ns/net")
            while os.readlink(f"/proc/{holder.pid}/ns/net") == own:
                time.sleep(0.01)
            ip("link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
            ip("link", "set", f"port{i}", "master", "switch", "up")
            for command in (["addr", "add", f"10.9.0.{i + 1}/24", "dev", "eth0"], ["link", "set", "eth0", "up"],
                            ["link", "set", "lo", "up"]):
                subprocess.run(self.enter(i) + ["ip", *command], check=True)

    def enter(self, host):
        return ["nsenter", "-t", str(self.holders[host].pid), "-n", "--"]

    def start(self, host, command, cwd, environment=None):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "ACCEL_STALL_TIMEOUT": "20", "XDG_CONFIG_HOME": "/nonexistent",
               **(environment or {})}
        return subprocess.Popen(self.enter(host) + command, cwd=cwd, env=env, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, preexec_fn=DIE_WITH_PARENT)

    def qdisc(self, *arguments):
        for i in range(len(self.holders)):
            done = subprocess.run(["tc", "qdisc", "add", "dev", f"port{i}", "root", "netem", *arguments],
                                  capture_output=True, text=True)
            if done.returncode != 0:
                skip("no netem here: " + done.stderr.strip())

    def end(self):
        for i, holder in enumerate(self.holders):
            holder.kill()
            holder.wait()
            subprocess.run(["ip", "link", "del", f"port{i}"], stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "del", "switch"])


def launch(options, host, hosts, processes, arguments, program=None):
    return [options.launcher, "launch", "--num-machines", str(hosts), "--machine-rank", str(host), "--main-process-ip",
            "10.9.0.1", "--main-process-port", PORT, "--num-processes", str(processes), "--grace-period", "3",
            "--output", "main", "--", program or options.program, *arguments]


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


def trained(options, hosts, processes, seconds, *qdisc):
    network = Hosts(hosts)
    try:
        if qdisc:
            network.qdisc(*qdisc)
        with tempfile.TemporaryDirectory() as cwd:
            results = finish([network.start(host, launch(options, host, hosts, processes, ["train", "20"]), cwd)
                              for host in range(hosts)], seconds)
            for code, out, err in results:
                check(code == 0, f"{hosts} hosts: exit code {code}\n{out}\n{err}")
            return results[0][1]
    finally:
        network.end()


def alone(options, processes):
    with tempfile.TemporaryDirectory() as cwd:
        done = subprocess.run([options.launcher, "launch", "-n", str(processes), "--output", "main", "--",
                               options.program, "train", "20"], cwd=cwd, capture_output=True, text=True, timeout=120)
        check(done.returncode == 0, done.stderr)
        return done.stdout


def cut(options):
    network = Hosts(2)
    try:
        with tempfile.TemporaryDirectory() as cwd:
            processes = [network.start(host, launch(options, host, 2, 2, ["sum", "120"]), cwd) for host in range(2)]
            deadline = time.monotonic() + 60
            while not os.path.exists(os.path.join(cwd, "begun")):
                check(time.monotonic() < deadline, "they never met")
                time.sleep(0.05)
            ip("link", "set", "port1", "down")
            start = time.monotonic()
            for host, (code, out, err) in enumerate(finish(processes, 40)):
                check(code not in (0, None), f"host {host} did not notice")
                check(re.search(r"(all_reduce|broadcast|all_gather) #\d+.* failed on process %d of 2" % host, err), err)
            seconds = time.monotonic() - start
            print(f"noticed by both after {seconds:.1f} s")
            check(seconds < 16, f"{seconds:.0f} s")
    finally:
        network.end()


def strangers(options):
    network = Hosts(2)
    try:
        with tempfile.TemporaryDirectory() as cwd:
            other = os.path.join(cwd, "other")
            shutil.copy(options.program, other)
            with open(other, "ab") as file:
                file.write(b"another build")
            wrong = launch(options, 1, 2, 2, ["sum", "1"])
            cases = {
                "another program (checksum)": launch(options, 1, 2, 2, ["sum", "1"], other),
                "another number of processes (WORLD_SIZE)": launch(options, 1, 2, 4, ["sum", "1"]),
                "two processes with the rank": None,
            }
            for said, command in cases.items():
                processes = [network.start(0, launch(options, 0, 2, 2, ["sum", "1"]), cwd)]
                if command:
                    processes.append(network.start(1, command, cwd))
                else:
                    processes += [network.start(1, wrong, cwd), network.start(1, wrong, cwd)]
                results = finish(processes, 40)
                check(any(said in err for _, _, err in results), f"{said}: {results}")
            name = list(wrong)
            name[name.index("10.9.0.1")] = "no-such-host.invalid"
            [(code, _, err)] = finish([network.start(1, name, cwd)], 40)
            check(code == 125 and "no-such-host.invalid" in err and len(err.splitlines()) == 1, err)
            here = list(launch(options, 0, 2, 2, ["sum", "1"]))
            here[here.index("10.9.0.1")] = "10.9.0.77"
            [(code, _, err)] = finish([network.start(0, here, cwd)], 40)
            check(code == 125 and "none of this host's addresses" in err, err)
    finally:
        network.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launcher", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("case", choices=["equal", "delay", "loss", "cut", "strangers"])
    options = parser.parse_args()
    if INSIDE not in os.environ:
        for tool in ("ip", "unshare", "nsenter"):
            if not shutil.which(tool):
                skip(f"{tool} is not installed")
        flags = ["--net"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--net"]
        if subprocess.run(["unshare", *flags, "true"], capture_output=True).returncode != 0:
            skip("network namespaces are not allowed")
        os.execvpe("unshare", ["unshare", *flags, sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})
    if options.case == "cut":
        cut(options)
    elif options.case == "strangers":
        strangers(options)
    elif options.case == "delay":
        check(trained(options, 2, 2, 110, "delay", "25ms") == alone(options, 2), "another result")
    elif options.case == "loss":
        check(trained(options, 2, 2, 110, "loss", "2%") == alone(options, 2), "another result")
    else:
        for hosts in (2, 3):
            # Two processes on each of two hosts; one on each of three.
            processes = 4 if hosts == 2 else 3
            check(trained(options, hosts, processes, 110) == alone(options, processes), f"{hosts} hosts: another result")


if __name__ == "__main__":
    main()
