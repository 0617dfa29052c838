"""Run the agents of a task on nodes of a Slurm cluster: as a batch job, or by srun inside an allocation.

A job is asked after now and then; `sbatch --wait` may answer many seconds late. What the nodes find is in the run's
folder, so that whoever waits may leave: `charllm show RUN` finishes what is there.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from charllm.errors import CharllmError, SpecError, unknown_name
from charllm.measure.client import HEAD_FILE
from charllm.measure.launchers.plan import Plan
from charllm.measure.launchers.task import Task
from charllm.measure.record import NODES, JobRecord
from charllm.measure.rendezvous import ask_to_stop
from charllm.result.store import PRIVATE, write_text

CONTAINERS = ("apptainer", "singularity", "docker", "podman", "nerdctl", "enroot", "shifter", "charliecloud", "ch-run")
IMAGE_FLAG = "--container-image"
"""Of srun, where Slurm itself opens containers (pyxis)."""
SCRIPT, LOG, SETUP_LOG, SETUP_FAILED = "job.sh", "slurm.log", "setup.log", "setup-failed"
END_FILE, CANNOT_SEE = "end.json", "cannot see the folder"
"""How the head saw the run end; what a node says that cannot read the task."""
WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "RESIZING", "SUSPENDED")
ALIVE = (*WAITING, "RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED")
NEVER = (
    "PartitionNodeLimit", "PartitionTimeLimit", "BadConstraints", "InvalidAccount", "InvalidQOS", "AccountNotAllowed",
    "QOSNotAllowed", "PartitionInactive", "PartitionDown",
)  # fmt: skip
"""Reasons of a waiting job that time alone does not remove."""
ASK_S, SLOWEST_S, ANSWER_S = 0.2, 5.0, 30.0
"""A job is asked after this often at first, and less often as time goes by; an answer takes no longer than this."""
SHOW_S = 10.0
SILENT_S = 120.0
"""A head that has not touched its file for this long is lost; a shared file system may show it a minute late."""
LINGER_S, CANCEL_S = 5.0, 30.0
"""A job whose nodes have all ended, or that was asked to end, is cancelled when it is still there after this long."""


class Refused(CharllmError):
    """Slurm does not take the job."""

    exit_code = 2


class State(NamedTuple):
    """What Slurm says of a job."""

    state: str
    reason: str = ""
    nodes: str = ""

    @property
    def alive(self) -> bool:
        """Whether it waits or runs."""
        return self.state in ALIVE


class Handle(NamedTuple):
    """A job that was started: how to ask after it, and how to cancel it."""

    name: str
    ask: Callable[[], State | None]
    cancel: Callable[[], None]


def complete(plan: Plan, environment: Mapping[str, str]) -> Plan:
    """Check a plan against this cluster, and fill in how many nodes it takes."""
    tools = ("srun", "scontrol") if is_inside(environment) else ("sbatch", "scontrol", "scancel")
    for tool in tools:
        if shutil.which(tool) is None:
            raise SpecError("--launcher", "slurm", f"a machine with Slurm: {tool} is not installed here")
    if not is_inside(environment):
        check_partition(plan.partition)
        return replace(plan, nodes=plan.nodes or 1)
    for flag, value in (
        ("--partition", plan.partition),
        ("--account", plan.account),
        ("--time", plan.time),
        ("--slurm-args", plan.slurm_args),
        ("--submit-only", plan.submit_only),
    ):
        if value:
            job = environment["SLURM_JOB_ID"]
            raise SpecError(flag, value, f"nothing inside the allocation of job {job}: it has its nodes already")
    held = int(environment.get("SLURM_NNODES") or environment.get("SLURM_JOB_NUM_NODES") or 1)
    if plan.nodes is not None and plan.nodes > held:
        raise SpecError("--nodes", plan.nodes, f"at most {held}, the nodes of this allocation")
    return replace(plan, nodes=plan.nodes or held)


def node_addresses(environment: Mapping[str, str]) -> list[str]:
    """Return by which addresses or names Slurm reaches the nodes of this job; none where it does not say."""
    nodes = environment.get("SLURM_JOB_NODELIST")
    done = ask_slurm(["scontrol", "show", "node", "--oneliner", nodes]) if nodes else None
    return re.findall(r"\bNodeAddr=(\S+)", done.stdout) if done is not None and done.returncode == 0 else []


def is_inside(environment: Mapping[str, str]) -> bool:
    """Tell whether we are in an allocation."""
    return bool(environment.get("SLURM_JOB_ID"))


def check_partition(name: str | None) -> None:
    """Refuse a partition that the cluster does not have."""
    if name is None:
        return
    done = ask_slurm(["sinfo", "--noheader", "--format=%R"])
    known = set(done.stdout.split()) if done is not None and done.returncode == 0 else set()
    for part in name.split(","):
        if known and part not in known:
            raise unknown_name("--partition", part, known)


def start(task: Task, folder: Path, environment: Mapping[str, str]) -> tuple[Handle, dict[str, Any]]:
    """Write the script of a job and start it; returns its handle and what is worth keeping of it."""
    (folder / NODES).mkdir(exist_ok=True)
    task.write(folder)
    script = folder / SCRIPT
    write_text(write_script(task.plan, folder, Path.cwd()), script, PRIVATE)
    if is_inside(environment):
        log = (folder / LOG).open("ab")
        process = subprocess.Popen(
            ["bash", str(script)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        log.close()
        return _handle_process(process), {"allocation": environment["SLURM_JOB_ID"]}
    number = submit_script(task.plan, script)
    return handle_job(number), {"job_id": number}


def write_script(plan: Plan, folder: Path, work: Path) -> str:
    """Return the script of a job: for sbatch, or for bash inside an allocation."""
    nodes = plan.nodes or 1
    # Slurm reads % in a file name as the start of a placeholder.
    asked = {
        "job-name": "charllm",
        "nodes": nodes,
        "ntasks-per-node": 1,
        "output": str(folder.absolute() / LOG).replace("%", "%%"),
        "partition": plan.partition,
        "account": plan.account,
        "time": plan.time,
        "gres": None if plan.gpus_per_node is None else f"gpu:{plan.gpus_per_node}",
    }
    lines = [f"#SBATCH --{name}={shlex.quote(str(value))}" for name, value in asked.items() if value is not None]
    lines += ["#SBATCH --no-requeue", "#SBATCH --no-kill", "#SBATCH --open-mode=append"]
    lines += [] if plan.shared else ["#SBATCH --exclusive"]
    words = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--overlap", "--cpu-bind=none"]
    # A node that ends does not take the others with it: they write down what they have.
    words += ["--no-kill", "--kill-on-bad-exit=0", "--wait=60", *plan.prefix]
    words += [agent_python(plan.prefix), "-m", "charllm.measure.node", str(folder.absolute())]
    body = [f"cd {shlex.quote(str(work))} || exit 2", *setup_lines(plan.setup, folder.absolute()), shlex.join(words)]
    return "\n".join(["#!/bin/bash", *lines, "", *body, ""])


def agent_python(prefix: Sequence[str]) -> str:
    """Return the Python of the agents: this one, or behind a container runtime the image's own, which has charllm."""
    inside = any(Path(word).name in CONTAINERS or word.startswith(IMAGE_FLAG) for word in prefix)
    return "python3" if inside else sys.executable


def setup_lines(setup: Sequence[str], folder: Path) -> list[str]:
    """Return the lines that prepare a job; one that fails, or that prints an error as old `module` does, ends it."""
    log, failed = shlex.quote(str(folder / SETUP_LOG)), shlex.quote(str(folder / SETUP_FAILED))
    lines = []
    for line in setup:
        tell = f"(umask 077; {{ printf '%s: ' {shlex.quote(line)}; tail -n 1 {log}; }} > {failed}); exit 2"
        lines.append(f"{{ {line}\n}} 2> {log} || {{ {tell}; }}")
        lines.append(f"if grep -q 'Unable to locate a modulefile' {log}; then {tell}; fi")
    return lines


def submit_script(plan: Plan, script: Path) -> str:
    """Submit a script and return the number of its job."""
    done = ask_slurm(["sbatch", "--parsable", *plan.slurm_args, str(script)])
    if done is None:
        raise Refused("Slurm does not answer; nothing was submitted")
    if done.returncode:
        said = "; ".join(line.removeprefix("sbatch: error: ") for line in done.stderr.strip().splitlines())
        raise Refused(f"Slurm rejected the job: {said or 'without a reason'}")
    return done.stdout.strip().split(";")[0]


def ask_slurm(words: Sequence[str]) -> "subprocess.CompletedProcess[str] | None":
    """Run a tool of Slurm; None where it is not there or does not answer."""
    try:
        # Interrupts are for us: a tool that is cut off might have done its work or not.
        return subprocess.run(
            list(words), capture_output=True, text=True, timeout=ANSWER_S, check=False, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def handle_job(number: str) -> Handle:
    """Return the handle of a batch job."""

    def cancel() -> None:
        ask_slurm(["scancel", number])

    return Handle(f"job {number}", lambda: read_state(number), cancel)


def _handle_process(process: "subprocess.Popen[bytes]") -> Handle:
    def ask() -> State:
        code = process.poll()
        return State("RUNNING") if code is None else State("FAILED" if code else "COMPLETED")

    def cancel() -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                os.killpg(process.pid, number)
                time.sleep(1.0)

    return Handle("the job step", ask, cancel)


def read_state(number: str) -> State | None:
    """Ask Slurm for the state of a job; None where it does not answer or knows the job no more."""
    done = ask_slurm(["scontrol", "show", "job", "--oneliner", number])
    if done is not None and done.returncode == 0:
        fields = dict(re.findall(r"\b(JobState|Reason|NodeList)=(\S*)", done.stdout))
        if "JobState" in fields:
            nodes = fields.get("NodeList", "")
            return State(fields["JobState"], fields.get("Reason", ""), "" if nodes == "(null)" else nodes)
    if done is not None and "Invalid job id" in done.stderr:
        found = ask_slurm(["sacct", "--noheader", "--parsable2", "-X", "--format=State,NodeList", "-j", number])
        if found is not None and found.returncode == 0 and found.stdout.strip():
            state, _, nodes = found.stdout.strip().splitlines()[0].partition("|")
            return State(state.split()[0], "", nodes)
        return State("FORGOTTEN")
    return None


def wait(handle: Handle, folder: Path, show: Callable[[str], None]) -> tuple[State, bool]:
    """Wait for a job and return its last state, and whether we were asked to end; an interrupt cancels it."""
    # A batch system ends us by SIGTERM, a terminal by Ctrl-\\ too: the same as an interrupt.
    before = {one: signal.signal(one, signal.default_int_handler) for one in (signal.SIGTERM, signal.SIGQUIT)}
    try:
        return _wait(handle, folder, show, None), False
    except KeyboardInterrupt:
        show(f"ending {handle.name}; what was recorded is kept")
        try:
            return _end(handle, folder, show), True
        except KeyboardInterrupt:
            handle.cancel()
            return _wait(handle, folder, lambda _text: None, CANCEL_S), True
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _wait(handle: Handle, folder: Path, show: Callable[[str], None], patience_s: float | None) -> State:
    pause_s, began_s, over_s, life = ASK_S, time.monotonic(), None, Life()
    shown, shown_s = "", 0.0
    while patience_s is None or time.monotonic() - began_s < patience_s:
        state = handle.ask()
        if state is not None and not state.alive:
            return state
        _refuse_hopeless(handle, folder, state)
        over_s = over_s or (time.monotonic() if (folder / NODES / END_FILE).exists() else None)
        if over_s is None and life.silent_s(folder / NODES / HEAD_FILE) > SILENT_S:
            show(f"{handle.name}: its head node has been silent for {SILENT_S:.0f} s")
            over_s = 0.0
        if over_s is not None and (time.monotonic() - over_s > LINGER_S or (state and state.state == "COMPLETING")):
            # All that will be recorded is there; a job with a lost node lingers for minutes.
            handle.cancel()
            return state or State("UNKNOWN")
        text = _progress(handle, folder, state)
        if text != shown and (text.split(";")[0] != shown.split(";")[0] or time.monotonic() - shown_s > SHOW_S):
            show(text)
            shown, shown_s, pause_s = text, time.monotonic(), ASK_S
        time.sleep(ASK_S if over_s else pause_s)
        pause_s = min(SLOWEST_S, pause_s * 1.3)
    return handle.ask() or State("UNKNOWN")


class Life:
    """How long a file has not been touched, by our own clock."""

    def __init__(self) -> None:
        self._seen: tuple[int, float] | None = None

    def silent_s(self, path: Path) -> float:
        """Return for how long a file is as it was; 0 for one that is not there yet."""
        try:
            touched_ns = path.stat().st_mtime_ns
        except OSError:
            return 0.0
        if self._seen is None or self._seen[0] != touched_ns:
            self._seen = touched_ns, time.monotonic()
        return time.monotonic() - self._seen[1]


def _end(handle: Handle, folder: Path, show: Callable[[str], None]) -> State:
    """End a job: one that runs is asked, so that its nodes write down what they have; then it is cancelled."""
    state = handle.ask()
    if state is None or state.state == "RUNNING":
        ask_to_stop(folder / NODES)
        state = _wait(handle, folder, lambda _text: None, CANCEL_S)
    if state.alive:
        handle.cancel()
        state = _wait(handle, folder, show, CANCEL_S)
    return state


def _refuse_hopeless(handle: Handle, folder: Path, state: State | None) -> None:
    """Cancel a job that can never start, or whose nodes cannot see its folder."""
    if state is not None and state.state == "PENDING" and state.reason in NEVER:
        handle.cancel()
        raise Refused(
            f"{handle.name} can never start ({state.reason}): expected nodes and a time that Slurm can give it"
        )
    log = folder / LOG
    said = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    blind = next((line for line in said.splitlines() if CANNOT_SEE in line), None)
    if blind is not None:
        handle.cancel()
        raise Refused(blind.partition("charllm: ")[2] or blind)


def _progress(handle: Handle, folder: Path, state: State | None) -> str:
    if state is None:
        return f"{handle.name}: Slurm does not answer; still trying"
    if state.state in WAITING:
        reason = f" ({state.reason})" if state.reason not in ("", "None") else ""
        return f"{handle.name} waits for nodes{reason}"
    where = f" on {state.nodes}" if state.nodes else ""
    steps = count_steps(folder)
    return f"{handle.name} runs{where}" + (f"; {steps} steps" if steps else "")


def count_steps(folder: Path) -> int:
    """Return how many steps have been marked by the rank that marked most."""
    counts = (path.read_bytes().count(b",step,") for path in (folder / NODES).glob("*/marks-*.csv"))
    return max(0, max(counts, default=0) - 1)


def settle(_folder: Path, job: JobRecord) -> JobRecord:
    """Complete the record of a job that nobody waited for: ask Slurm how it stands, or how it ended."""
    slurm = job.details.get("slurm") or {}
    number = slurm.get("job_id")
    if not number or job.ended:
        return job
    state = read_state(str(number))
    if state is None:
        return job
    details = {**job.details, "slurm": {**slurm, "state": state.state, "reason": state.reason, "nodes": state.nodes}}
    return replace(job, details=details, ended=not state.alive)


def cancel_left(job: JobRecord) -> None:
    """Cancel the job of a record that nobody waits for any more, and see it gone."""
    number = (job.details.get("slurm") or {}).get("job_id")
    if number and not job.ended:
        handle = handle_job(str(number))
        handle.cancel()
        end_s = time.monotonic() + CANCEL_S
        while (state := handle.ask()) is not None and state.alive and time.monotonic() < end_s:
            time.sleep(ASK_S)


def is_alive(job: JobRecord) -> bool:
    """Tell whether a job of Slurm still waits or runs, as far as is known."""
    return not job.ended and (job.details.get("slurm") or {}).get("state") in ALIVE
