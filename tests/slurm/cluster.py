"""A real Slurm cluster of two nodes on this machine: its own munge, free ports, all of it in one temporary folder."""

import getpass
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.ports import free_port

NODES = ("n1", "n2")
GPUS = 2
READY_S = 120.0
SBIN = "/usr/sbin:/sbin"
TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "faketime")

CONF = """
ClusterName=charllm
SlurmctldHost=localhost(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
SlurmctldPort={port}
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
SlurmdSpoolDir={place}/spool-%n
StateSaveLocation={place}/state
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,batch_sched_delay=0,default_queue_depth=20
GresTypes=gpu
KillWait=2
OverTimeLimit=0
SlurmdTimeout=10
{nodes}
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=60 State=UP
"""
NODE = "NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=2000 Gres=gpu:{gpus}"


class Cluster:
    """Two nodes that can be killed and brought back."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.environment = {
            **os.environ,
            "PATH": f"{os.environ['PATH']}:{SBIN}",
            "SLURM_CONF": str(place / "slurm.conf"),
        }
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        missing = [tool for tool in TOOLS if shutil.which(tool, path=self.environment["PATH"]) is None]
        assert not missing, f"not installed: {', '.join(missing)}; make packages installs them"
        self._write_files()
        (self.place / "key").touch(0o600)
        (self.place / "key").write_bytes(secrets.token_bytes(128))
        names = ("socket", "pid-file", "log-file", "seed-file")
        words = [f"--{name}={self.place}/munge.{name.split('-')[0]}" for name in names]
        self._run("munged", ["munged", "--foreground", "--force", f"--key-file={self.place}/key", *words])
        self._await((self.place / "munge.socket").exists, "munged")
        self._run("slurmctld", ["slurmctld", "-D"])
        for node in NODES:
            self.bring_back(node)

    def stop(self) -> None:
        for daemon in reversed(self._daemons.values()):
            daemon.kill()
        for daemon in self._daemons.values():
            daemon.wait()

    def bring_back(self, node: str) -> None:
        """Start the daemon of a node, and wait until it takes jobs."""
        self._run(node, ["slurmd", "-D", "-N", node])

        def is_idle() -> bool:
            code = self._daemons[node].poll()
            assert code is None, f"slurmd of {node} has ended with {code}; see {self.place}"
            return self.ask("sinfo", "-h", "-n", node, "-o", "%T").strip() == "idle"

        self._await(is_idle, node)

    def kill(self, node: str) -> None:
        """Let a node lose its power: its daemon and all that runs on it end at once, and are gone.

        A daemon that starts while the keeper of a job is still dying talks to it, and dies of its broken pipe.
        """
        killed = {self._daemons[node].pid, *self.processes(node)}
        for process in killed:
            _kill(process)
        self._daemons[node].wait()

        def all_are_gone() -> bool:
            late = self.processes(node)
            for process in late:
                _kill(process)
            killed.update(late)
            return not any(_is_alive(process) for process in killed)

        self._await(all_are_gone, f"the end of {node}")

    def processes(self, node: str) -> list[int]:
        """Return all that runs on a node for jobs, and what of Slurm looks after it; other tests have clusters, too."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                variables = (place / "environ").read_bytes().split(b"\0")
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                keeper = (Path("/proc") / str(parent) / "comm").read_text().strip()
            except OSError:
                continue
            mine = f"SLURM_CONF={self.environment['SLURM_CONF']}".encode() in variables
            if mine and f"SLURMD_NODENAME={node}".encode() in variables:
                found += [int(place.name), *([parent] if keeper == "slurmstepd" else [])]
        return found

    def ask(self, *words: str) -> str:
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False, timeout=30)
        return done.stdout

    def await_free(self) -> None:
        """Wait until all nodes take jobs."""
        self._await(lambda: self.ask("sinfo", "-h", "-o", "%T %D").split() == ["idle", str(len(NODES))], "all nodes")

    def _write_files(self) -> None:
        ports = [free_port() for _ in range(3)]
        nodes = "\n".join(
            NODE.format(name=name, port=port, gpus=GPUS) for name, port in zip(NODES, ports[1:], strict=True)
        )
        text = CONF.format(user=getpass.getuser(), place=self.place, port=ports[0], nodes=nodes)
        (self.place / "slurm.conf").write_text(text)
        for gpu in range(GPUS):
            (self.place / f"gpu{gpu}").symlink_to("/dev/null")
        files = f"{self.place}/gpu[0-{GPUS - 1}]"
        (self.place / "gres.conf").write_text(f"AutoDetect=off\nNodeName=n[1-2] Name=gpu File={files}\n")
        (self.place / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (self.place / name).mkdir()

    def _run(self, name: str, words: list[str]) -> None:
        with (self.place / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(words, env=self.environment, stdout=log, stderr=log)

    def _await(self, is_there: Callable[[], bool], what: str) -> None:
        end_s = time.monotonic() + READY_S
        while not is_there():
            assert time.monotonic() < end_s, f"{what} did not come; see {self.place}\n{self.ask('sinfo', '-lN')}"
            time.sleep(0.05)


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@contextmanager
def running(place: Path) -> Iterator[Cluster]:
    """Run a cluster for a while."""
    cluster = Cluster(place)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
