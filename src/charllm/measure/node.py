"""The agent on each node of a run: it samples, runs that node's part of the command, and keeps in touch with the head.

    python -m charllm.measure.node RUN [--name NODE --rank NUMBER]

Everything it finds goes to RUN/nodes/NODE/. It ends with 0 when its record is whole, however the command ended.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from charllm.errors import CharllmError
from charllm.mark import FOLDER_VARIABLE
from charllm.measure.addresses import own_addresses_for
from charllm.measure.client import Client, RendezvousError, join
from charllm.measure.clock import Clock, Comparison, compare
from charllm.measure.device import judge_gpus, telemetry_identities
from charllm.measure.launch import (
    COMMAND_NOT_FOUND,
    COMMAND_NOT_RUNNABLE,
    ENDING,
    UNBUFFERED,
)
from charllm.measure.launchers.plan import fill_template, has_placeholder
from charllm.measure.launchers.slurm import CANNOT_SEE, END_FILE, node_addresses
from charllm.measure.launchers.task import Task, read_task
from charllm.measure.launchers.torchrun import LOGS, around, python_part, torchrun
from charllm.measure.link import TURN_S, pause
from charllm.measure.output import kept_output
from charllm.measure.processes import EndedProcesses, JobProcesses, signal_name
from charllm.measure.record import NODES, JobRecord
from charllm.measure.redaction import describe_command, describe_environment
from charllm.measure.rendezvous import Rendezvous
from charllm.measure.sampling import sampling
from charllm.measure.settings import AFTER_S
from charllm.measure.telemetry.source import GpuIdentity
from charllm.profile import PROFILE_VARIABLE
from charllm.result.store import write_text

UNSEEN = 96
"""Exit code of an agent that cannot see the run's folder."""
CLOSE_S = 60.0
"""Until nodes that have ended must have taken leave."""
PASSED = (signal.SIGUSR1, signal.SIGUSR2)
HEAD_LOST = "head_loss"


class Node(NamedTuple):
    """Which node this is, and what it was started with."""

    name: str
    rank: int
    """0 is the head."""
    environment: Mapping[str, str]


@dataclass
class Signals:
    """Signals that have come for this agent."""

    ending: str = ""
    child: "subprocess.Popen[bytes] | None" = None

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """Note the end, or pass on what is for the command."""
        if number in ENDING:
            self.ending = signal_name(number)
        elif self.child is not None:
            self.child.send_signal(number)


class NodeError(CharllmError):
    """This node cannot take part."""

    exit_code = UNSEEN


def main() -> int:
    """Take part in a run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    # The one who starts us is srun: what it says is in the environment, which is read here and nowhere else.
    environment = dict(os.environ)
    parser.add_argument("--name", default=environment.get("SLURMD_NODENAME") or os.uname().nodename)
    parser.add_argument("--rank", type=int, default=int(environment.get("SLURM_NODEID", "0")))
    arguments = parser.parse_args()
    node = Node(arguments.name, arguments.rank, environment)
    signals = Signals()
    for number in (*ENDING, *PASSED):
        signal.signal(number, signals.receive)
    try:
        take_part(arguments.folder, node, signals)
    except CharllmError as error:
        print(f"charllm: node {arguments.name}: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def take_part(run: Path, node: Node, signals: Signals) -> None:
    """Run this node's part and record it; the head's agent also hosts the rendezvous."""
    task, folder = read_task(run), run / NODES / node.name
    if task is None:
        raise NodeError(f"{CANNOT_SEE} {run}; expected a folder that every node of the job can see")
    try:
        (folder / LOGS).mkdir(parents=True)
    except OSError as error:
        raise NodeError(f"cannot write into {folder} ({error.strerror or error})") from None
    nodes = task.plan.nodes or 1
    if node.rank > 0:
        _attend(task, folder, join(run / NODES, node.name, node.rank), node, signals)
        return

    addresses = own_addresses_for(nodes, node_addresses(node.environment))
    rendezvous = Rendezvous(run / NODES, nodes, partial(judge_gpus, task.plan), task.plan.time_limit_s, addresses)
    try:
        _attend(task, folder, join(run / NODES, node.name, node.rank), node, signals)
    finally:
        verdict = rendezvous.close(CLOSE_S)
        write_text(json.dumps(asdict(verdict), indent=1), run / NODES / END_FILE)
        if any(slot.lost for slot in rendezvous.slots.values()):
            _cancel_remains(node.environment)


def _attend(task: Task, folder: Path, client: Client, node: Node, signals: Signals) -> None:
    try:
        Part(task, folder, client, node, signals).run()
    except CharllmError as error:
        client.say("refuse", why=str(error))
        raise
    finally:
        client.leave()


class Part:
    """One node's part of a run, from its first to its last reading."""

    def __init__(self, task: Task, folder: Path, client: Client, node: Node, signals: Signals) -> None:
        self._task, self._folder, self._client, self._signals = task, folder, client, signals
        self._rank, self._environment = node.rank, node.environment
        self._clock = Clock()
        self._windows: dict[str, list[float]] = {}
        self._stopped = ""
        """Why the command was ended from outside; empty where it ended by itself."""
        self._gone = EndedProcesses()

    def run(self) -> None:
        """Record, meet the other nodes, run the command, and note how it ended."""
        task = self._task
        self._compare_clocks("start")
        gpus = telemetry_identities(task.settings.telemetry, self._environment)
        record = self._describe(gpus).write(self._folder)
        code: int | None = None
        uuids = [gpu.uuid for gpu in gpus]
        settings = task.settings
        with sampling(self._folder, settings, uuids):
            self._client.say("ready", gpus=[gpu.name for gpu in gpus])
            told = self._await_start()
            if told is not None:
                self._windows["idle"] = self._rest(settings.idle_s)
                self._windows["command"] = [time.monotonic()]
                record = replace(record, windows_s=self._windows).write(self._folder)
                code = self._run_command(int(told["port"]))
                self._windows["command"].append(time.monotonic())
                self._client.say("ended", code=code, stopped=self._stopped)
                self._await_others()
                cooldown_s = min(AFTER_S, settings.cooldown_s) if code else settings.cooldown_s
                self._windows["cooldown"] = self._rest(cooldown_s)
        self._compare_clocks("end")
        details = {**record.details, "exit_code": code, "stopped": self._stopped, **self._gone._asdict()}
        replace(record, windows_s=self._windows, details=details, ended=True).write(self._folder)

    def _describe(self, gpus: Sequence[GpuIdentity]) -> JobRecord:
        task = self._task
        command = describe_command(task.command, self._environment)
        details = {
            "command": command,
            "environment": describe_environment(self._environment),
            "exit_code": None,
            "node_rank": self._rank,
            "ranks_per_node": task.plan.ranks_per_node,
            "host": os.uname().nodename,
        }
        return JobRecord("measured", {"command": command}, [gpu.uuid for gpu in gpus], task.settings.rate_hz, details)

    def _compare_clocks(self, when: str) -> None:
        """Compare our clocks with the head's; the head's own agree with themselves."""
        try:
            found = compare(self._client.ask_time) if self._rank else Comparison(time.monotonic(), 0.0, 0.0, 0.0, 0)
        except RendezvousError:
            if when == "start":
                raise
            return
        self._clock = replace(self._clock, **{when: found}).write(self._folder)

    def _await_start(self) -> Mapping[str, Any] | None:
        """Wait until all nodes are ready; None where the run does not begin."""
        while not self._is_over():
            message = self._client.listen(TURN_S)
            if message is not None and message.get("say") == "go":
                return message
            self._note(message)
        return None

    def _run_command(self, port: int) -> int:
        """Run this node's part of the command until it ends or has to."""
        command, more = command_on_node(self._task, self._rank, self._client.head, port, self._folder)
        steps = self._task.settings.profile
        profile = {} if steps is None else {PROFILE_VARIABLE: steps}
        environment = {UNBUFFERED: "1", **self._environment, **profile, **more, FOLDER_VARIABLE: str(self._folder)}
        with kept_output(self._folder, shown=False) as streams:
            out, err = streams.stdout, streams.stderr
            try:
                child = subprocess.Popen(
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
                )
            except OSError as error:
                os.write(err, f"cannot run {command[0]}: {error.strerror or error}\n".encode())
                return COMMAND_NOT_FOUND if isinstance(error, FileNotFoundError) else COMMAND_NOT_RUNNABLE
            streams.started()
            self._signals.child = child
            processes = JobProcesses(child.pid, self._folder)
            while child.poll() is None:
                self._note(self._client.listen(TURN_S))
                if self._is_over():
                    self._gone = processes.end()
                    child.kill()
            code = child.returncode
        return 128 - code if code < 0 else code

    def _await_others(self) -> None:
        """Record on until the command has ended on every node."""
        while not self._signals.ending and not self._client.closed:
            message = self._client.listen(TURN_S)
            if message is not None and message.get("say") == "rest":
                return
            self._note(message)

    def _rest(self, seconds_s: float) -> list[float]:
        """Let the machine be for a while, or until the run is over; returns the window."""
        start_s = time.monotonic()
        while not self._is_over() and time.monotonic() - start_s < seconds_s:
            self._note(self._client.listen(min(TURN_S, seconds_s)))
        return [start_s, time.monotonic()]

    def _note(self, message: Mapping[str, Any] | None) -> None:
        if message is not None and message.get("say") == "stop":
            self._stopped = self._stopped or str(message["kind"])

    def _is_over(self) -> bool:
        self._stopped = self._stopped or self._signals.ending or (HEAD_LOST if self._client.closed else "")
        return bool(self._stopped)


def command_on_node(task: Task, rank: int, head: str, port: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return what this node runs and the variables it needs: torchrun for Python, anything else as it is written."""
    plan = task.plan
    nodes, per_node = plan.nodes or 1, plan.ranks_per_node
    if python_part(task.command) is not None and not has_placeholder(task.command):
        return torchrun(task.command, per_node, around(head, port, nodes, rank), folder / LOGS, shown=True), {}
    values = {
        "node_rank": rank,
        "nodes": nodes,
        "head": head,
        "port": port,
        "ranks_per_node": per_node,
        "ranks": nodes * per_node,
    }
    rendezvous = {"MASTER_ADDR": head, "MASTER_PORT": str(port)}
    alone = {"RANK": rank, "WORLD_SIZE": nodes, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1} if per_node == 1 else {}
    return fill_template(task.command, values), {**rendezvous, **{name: str(value) for name, value in alone.items()}}


def _cancel_remains(environment: Mapping[str, str]) -> None:
    """After a node was lost, end the Slurm step: nobody else can say that its tasks have gone."""
    number, step = environment.get("SLURM_JOB_ID"), environment.get("SLURM_STEP_ID")
    if number and step:
        pause(TURN_S)
        subprocess.Popen(["scancel", f"{number}.{step}"], stderr=subprocess.DEVNULL, start_new_session=True)


if __name__ == "__main__":
    sys.exit(main())
