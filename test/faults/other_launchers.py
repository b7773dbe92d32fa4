"""The same program under other launchers: it computes what it does under accel launch.

    other_launchers.py --launcher ACCEL --program SUBJECT torchrun|openmpi|slurm

The launchers are the real ones, where they are installed: torchrun of a Python
with PyTorch ($ACCEL_TEST_TORCHRUN or on the PATH), Debian's openmpi-bin, and
slurm-wlm, of which a controller and two nodes are started here, without
munge, on ports that are free. Otherwise the exit code is 77: skipped.
"""

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from checks import check, skip

STEPS = "20"


def environment(more=None):
    # Nothing of a launcher that has started these tests.
    own = {name: value for name, value in os.environ.items()
           if not re.match(r"(RANK|WORLD_SIZE|LOCAL_|MASTER_|SLURM_|OMPI_|PMI|TORCHELASTIC_)", name)}
    return {**own, "OMP_NUM_THREADS": "1", "XDG_CONFIG_HOME": "/nonexistent", **(more or {})}


def run(command, cwd, more=None, seconds=90):
    done = subprocess.run(command, cwd=cwd, env=environment(more), capture_output=True, text=True, timeout=seconds)
    return done.returncode, done.stdout, done.stderr


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def expected(options, cwd):
    code, out, err = run([options.launcher, "launch", "-n", "2", "--output", "main", "--", options.program, "train",
                          STEPS], cwd)
    check(code == 0 and out.startswith(f"after {STEPS} steps: 0x"), err)
    return out


def computes_the_same(options, cwd, command, more=None):
    code, out, err = run(command, cwd, more)
    check(code == 0, f"{command}: exit code {code}\n{out}\n{err}")
    check(out == expected(options, cwd), f"{command}: another result:\n{out}")


def torchrun(options, cwd):
    program = os.environ.get("ACCEL_TEST_TORCHRUN") or shutil.which("torchrun")
    if not program:
        skip("torchrun is not installed")
    start = [program, "--no-python", "--nproc-per-node", "2"]
    train = [options.program, "train", STEPS]
    # Its agent hosts the store, or process 0 does.
    computes_the_same(options, cwd, [*start, "--standalone", *train])
    [port] = free_ports(1)
    static = ["--rdzv-backend", "static", "--master-addr", "127.0.0.1", "--master-port", str(port)]
    computes_the_same(options, cwd, [*start, *static, *train])
    # Its restarts, with our checkpoints.
    restarting = os.path.join(cwd, "restarting")
    os.mkdir(restarting)
    code, out, err = run([*start, "--standalone", "--max-restarts", "30", options.program, "kill", "2", STEPS],
                         restarting, {"ACCEL_RESUME": "auto"})
    check(code == 0 and out == expected(options, cwd), f"after restarts: {code}\n{out}\n{err}")


def openmpi(options, cwd):
    if not shutil.which("mpirun"):
        skip("mpirun is not installed")
    _, version, _ = run(["mpirun", "--version"], cwd)
    if "Open MPI" not in version and "OpenRTE" not in version:
        skip("mpirun is not Open MPI's")
    mpirun = ["mpirun", "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    computes_the_same(options, cwd, [*mpirun, "-n", "2", options.program, "train", STEPS])
    # One launcher that starts two processes.
    computes_the_same(options, cwd, [*mpirun, "-n", "1", options.launcher, "launch", "-n", "2", "--output", "main", "--",
                                     options.program, "train", STEPS])
    code, _, err = run([*mpirun, "-n", "2", options.launcher, "launch", "--", options.program, "train", STEPS], cwd)
    check(code == 2 and "Open MPI has started accel launch several times on this host" in err, err)


CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_res
SelectTypeParameters=CR_Core
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
NodeName=n0 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 State=UNKNOWN
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 State=UNKNOWN
PartitionName=all Nodes=n[0-1] Default=YES State=UP OverSubscribe=FORCE:8
"""


class Slurm:
    """A controller and two nodes, all on this machine."""

    def __init__(self, folder):
        import getpass
        self.folder = folder
        self.daemons = []
        self.variables = {"SLURM_CONF": os.path.join(folder, "slurm.conf")}
        for name in ("state", "spool.n0", "spool.n1"):
            os.mkdir(os.path.join(folder, name))
        with open(self.variables["SLURM_CONF"], "w") as file:
            file.write(CONFIGURATION.format(host=socket.gethostname(), user=getpass.getuser(), folder=folder,
                                            ports=free_ports(3)))
        for command in (["slurmctld", "-D", "-c"], ["slurmd", "-D", "-N", "n0"], ["slurmd", "-D", "-N", "n1"]):
            self.daemons.append(subprocess.Popen(command, env=environment(self.variables), stdout=subprocess.DEVNULL,
                                                 stderr=subprocess.DEVNULL))

    def ready(self):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and all(daemon.poll() is None for daemon in self.daemons):
            code, out, _ = run(["sinfo", "-h", "-o", "%T %D"], self.folder, self.variables)
            if code == 0 and out.split() == ["idle", "2"]:
                return True
            time.sleep(0.2)
        return False

    def end(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def slurm(options, cwd):
    os.environ["PATH"] += ":/usr/sbin"
    for tool in ("srun", "slurmctld", "slurmd"):
        if not shutil.which(tool):
            skip(f"{tool} is not installed")
    with tempfile.TemporaryDirectory() as folder:
        daemons = Slurm(folder)
        try:
            if not daemons.ready():
                skip("Slurm's daemons do not run here")
            variables = daemons.variables
            # One task per process: on one node, and on two.
            computes_the_same(options, cwd, ["srun", "-N", "1", "--overcommit", "-n", "2", options.program, "train",
                                             STEPS], variables)
            # (The nodes' names mean nothing here.)
            computes_the_same(options, cwd, ["srun", "-N", "2", "-n", "2", options.program, "train", STEPS],
                              {**variables, "MASTER_ADDR": "127.0.0.1"})
            # One launcher on each of two nodes.
            launcher = [options.launcher, "launch", "--main-process-ip", "127.0.0.1", "--nproc-per-node", "1",
                        "--output", "main", "--start-timeout", "20", "--", options.program, "train", STEPS]
            computes_the_same(options, cwd, ["srun", "-N", "2", "-n", "2", *launcher], variables)
            # Two on one node would start everything twice.
            code, _, err = run(["srun", "-N", "1", "--overcommit", "-n", "2", *launcher], cwd, variables)
            check(code == 2 and "Slurm has started accel launch several times on this host" in err, err)
            stopped_by_the_warning(options, variables)
        finally:
            daemons.end()


def stopped_by_the_warning(options, variables):
    """SIGUSR1, as #SBATCH --signal=USR1@300 sends it: saved, and 75."""
    with tempfile.TemporaryDirectory() as cwd:
        job = subprocess.Popen(["srun", "-N", "1", "--overcommit", "-n", "2", options.program, "stop"], cwd=cwd,
                               env=environment({**variables, "ACCEL_RESUME": "auto"}), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while not os.path.exists(os.path.join(cwd, "begun")):
            check(time.monotonic() < deadline and job.poll() is None, "it does not begin")
            time.sleep(0.02)
        number = run(["squeue", "-h", "-o", "%i"], cwd, variables)[1].split()
        check(len(number) == 1, f"jobs: {number}")
        run(["scancel", "--signal=USR1", number[0]], cwd, variables)
        out, err = job.communicate(timeout=60)
        check(job.returncode == 75 and out == "", f"exit code {job.returncode}\n{out}\n{err}")
        code, out, err = run(["srun", "-N", "1", "--overcommit", "-n", "2", options.program, "stop"], cwd,
                             {**variables, "ACCEL_RESUME": "auto"})
        check(code == 0 and out.startswith("after 40 steps: 0x"), f"exit code {code}\n{out}\n{err}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launcher", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("case", choices=["torchrun", "openmpi", "slurm"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cwd:
        {"torchrun": torchrun, "openmpi": openmpi, "slurm": slurm}[options.case](options, cwd)


if __name__ == "__main__":
    main()
