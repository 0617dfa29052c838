"""Kinds of hostile input: each copies sound files into a folder, damages some, and says what charllm is asked then."""

import json
import shlex
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from charllm.cli import main
from charllm.errors import SpecError
from charllm.explorer.answers import Waiting, write_answer
from charllm.explorer.request import read_run_request
from charllm.measure.client import HEAD_FILE, join
from charllm.measure.handshake import answer_challenge
from charllm.measure.link import CONNECT_S
from charllm.measure.rendezvous import Rendezvous
from charllm.measure.settings import LOOPBACK
from tests.hostile.mutations import damage_bytes, damage_file, damage_json, damage_text
from tests.hostile.requests import Asked, change_body
from tests.random_specs.inputs import draw_input, write_files

OUT = "out"
"""Below the folder of a case: the only place that a refused command leaves untouched, and others write to."""


class Case(NamedTuple):
    """What is asked, and how it is shown."""

    ask: Callable[[], int]
    words: list[str]
    grows: bool = False
    """Whether the answer may be stored beside the damaged files."""


Draw = Callable[[Random, Path, Path], Case]
"""Draws a case from sound files into an empty folder."""


def command(*words: str | Path, grows: bool = False) -> Case:
    """Return a case that runs a command of charllm."""
    said = [str(word) for word in words]
    return Case(partial(main, said), said, grows=grows)


def _copy(original: Path, folder: Path, random: Random, most: int = 2) -> Path:
    """Copy a folder or a file, and damage one or two of its files."""
    place = folder / original.name
    if original.is_dir():
        shutil.copytree(original, place)
    else:
        shutil.copy(original, place)
    files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    for path in random.sample(files, min(len(files), random.randint(1, most))):
        if path.exists():
            damage_file(path, random)
    return place


def _ask(commands: Sequence[str], random: Random, folder: Path, place: Path, originals: Path) -> Case:
    """Draw one of some command lines and fill in its paths; a command may complete what a killed one has left."""
    files = {"IN": place, "STORE": place.parent, "PAGE": folder / OUT / "page.html", "OUT": folder / OUT / "made",
             "GPU": folder / OUT / "gpu.toml", "OTHER": originals / "runs" / "b",
             "STUDY": originals / "specs" / "study.toml",
             "LOG": originals / "logs" / "iterations.log",
             "READINGS": originals / "foreign" / "nvidia-smi.csv"}  # fmt: skip
    words = shlex.split(random.choice(commands))
    filled = (
        word.replace("=IN", f"={place}") if word.endswith("=IN") else str(files.get(word, word)) for word in words
    )
    return command(*filled, grows=words[0] in GROWING)


GROWING = (
    "show",
    "doctor",
    "calibrate",
    "compare",
    "report",
    "sweep",
    "query",
    "watch",
    "simulate",
    "export",
    "caps",
    "trace",
)
"""Commands that complete an interrupted recording in its folder, or continue a study."""
RUN_COMMANDS = (
    "show IN", "show IN", "show IN --full", "show IN --json", "show IN --csv", "show IN --plots", "show IN --plot all",
    "report IN -o PAGE", "report IN -o PAGE", "report OTHER IN -o PAGE", "compare IN OTHER", "compare OTHER IN --csv",
    "compare IN OTHER --plots", "doctor IN", "doctor IN --json", "query IN", "query STORE 'SELECT * FROM runs'",
    *(f"query STORE 'SELECT * FROM {name}'" for name in ("gpus", "nodes", "ops", "memory", "signals", "timeline")),
    "simulate IN --json", "export IN --to megatron", "caps IN", "compare --ops IN", "trace IN", "calibrate IN -o GPU",
)  # fmt: skip


def stored_run(random: Random, originals: Path, folder: Path) -> Case:
    """Damage what a stored run consists of; its result most often."""
    name = random.choice(("a", "a", "b", "converted", "measured"))
    place = folder / name
    shutil.copytree(originals / "runs" / name, place)
    files = sorted(place.iterdir())
    for _ in range(random.choice((1, 1, 2))):
        path = place / "result.json" if random.random() < 0.6 else random.choice(files)
        if path.is_file():
            damage_file(path, random)
    return _ask(RUN_COMMANDS, random, folder, place, originals)


def recording(random: Random, originals: Path, folder: Path) -> Case:
    """Damage a recording whose result was not stored yet."""
    place = _copy(originals / "recording", folder, random)
    commands = (
        "show IN",
        "show IN --json",
        "doctor IN",
        "calibrate IN -o GPU",
        "query IN",
        "compare IN OTHER",
        "watch IN --once",
    )
    return _ask(commands, random, folder, place, originals)


def study(random: Random, originals: Path, folder: Path) -> Case:
    """Damage the folder of a study."""
    place = _copy(originals / "study", folder, random, most=4)
    commands = ("show IN", "show IN --csv", "report IN -o PAGE", "query IN", "query IN 'SELECT * FROM runs'",
                "sweep STUDY --out IN --resume")  # fmt: skip
    return _ask(commands, random, folder, place, originals)


def plan(random: Random, originals: Path, folder: Path) -> Case:
    """Damage a stored plan."""
    place = _copy(originals / "plans" / "plan.json", folder, random)
    return _ask(("report IN -o PAGE",), random, folder, place, originals)


def trace(random: Random, originals: Path, folder: Path) -> Case:
    """Damage traces of a profiler, of Chakra, or execution traces."""
    place = _copy(random.choice(sorted((originals / "traces").iterdir())), folder, random)
    commands = ("trace IN", "trace IN", "trace IN --json", "replay IN --launch 0.5", "replay IN --nic 2 --json",
                "compare --ops IN IN", "trace IN --model gpt2 --cluster h200x8",
                "messages --model gpt2 --cluster h200x8 --execution-trace IN")  # fmt: skip
    return _ask(commands, random, folder, place, originals)


def foreign(random: Random, originals: Path, folder: Path) -> Case:
    """Damage readings of other tools."""
    place = _copy(random.choice(sorted((originals / "foreign").iterdir())), folder, random)
    formats = ("auto", "auto", "auto", "csv", "dcgm", "prometheus", "nvidia-smi", "amd-smi")
    commands = (f"convert {random.choice(formats)} IN -o OUT", "convert auto IN -o OUT --log LOG")
    return _ask(commands, random, folder, place, originals)


def log(random: Random, originals: Path, folder: Path) -> Case:
    """Damage logs of training programs."""
    place = _copy(random.choice(sorted((originals / "logs").iterdir())), folder, random)
    commands = ("convert auto IN -o OUT", "convert log IN -o OUT", "convert megatron-log IN -o OUT",
                "convert nvidia-smi READINGS --log IN -o OUT")  # fmt: skip
    return _ask(commands, random, folder, place, originals)


def measured_table(random: Random, originals: Path, folder: Path) -> Case:
    """Damage tables of measurements that predictions are scored against or fitted to."""
    place = _copy(random.choice(sorted((originals / "tables").iterdir())), folder, random)
    kind = {"ops.csv": "ops IN --gpu h200", "heat.csv": "heat IN --gpu h200"}.get(
        place.name, "nccl IN --cluster h200x8"
    )
    # To fit the constants of ops takes longer than any answer should, whatever the table holds.
    calibrate = ("calibrate IN -o GPU",) if place.name != "ops.csv" else ()
    commands = (f"validate {kind}", f"validate {kind}", "validate results IN --open", *calibrate)
    return _ask(commands, random, folder, place, originals)


def spec_file(random: Random, originals: Path, folder: Path) -> Case:
    """Damage files that describe a run, a study or a part of a catalog."""
    place = _copy(random.choice(sorted((originals / "specs").iterdir())), folder, random)
    return _ask(SPEC_COMMANDS.get(place.name, SPEC_COMMANDS[place.suffix]), random, folder, place, originals)


SPEC_COMMANDS: dict[str, tuple[str, ...]] = {
    "study.toml": ("sweep IN --out OUT",),
    "cluster.toml": ("simulate --model gpt2 --cluster IN --json",),
    "model.toml": ("simulate --model IN --cluster h200x8 --json",),
    "node.toml": ("simulate --model gpt2 --cluster h200x8 --set cluster.node=IN --json",),
    "gpu.toml": ("simulate --model gpt2 --cluster h200x8 --set cluster.node.gpu=IN --json",),
    ".toml": ("simulate IN --json", "export IN --to megatron"),
    ".yaml": ("simulate --from IN --json",),
    ".sh": ("simulate --from IN --cluster h200x8 --json",),
    ".json": ("simulate --from IN --cluster h200x8 --json", "simulate --model IN --cluster h200x8 --json"),
}
"""File, or its ending: what reads it."""


def flags(random: Random, _originals: Path, folder: Path) -> Case:
    """Draw wrong and hostile flags, settings and files of a simulation."""
    return command(*write_files(draw_input(random), folder))


def placement(random: Random, originals: Path, folder: Path) -> Case:
    """Damage a placement of ranks."""
    place = folder / "placement.json"
    place.write_bytes(damage_text(json.dumps(list(range(8))).encode(), random))
    return _ask(("simulate --model gpt2 --cluster h200x8 --placement IN --json",), random, folder, place, originals)


def timeline(random: Random, originals: Path, folder: Path) -> Case:
    """Damage the timeline of a rank that is emulated."""
    place = _copy(originals / "timelines" / "timeline.json", folder, random)
    return _ask(
        ("emulate --timeline IN --predict", "emulate --timeline IN --print-timeline"), random, folder, place, originals
    )


def explorer_request(random: Random, _originals: Path, _folder: Path) -> Case:
    """Damage the body of a request to the explorer; `benchmarks.hostile_requests` sends whole ones to a server."""
    asked = Asked("POST", "/api/answers", body=b"")
    change_body(random, asked)
    body, job = asked.body or b"", random.choice(("fast", "coupled"))
    return Case(partial(_answer, job, body), [job, body.decode("utf-8", "replace")])


def _answer(job: str, body: bytes) -> int:
    """Answer a body as the explorer does: read it, and let a worker compute."""
    try:
        words = read_run_request(body).words
    except SpecError as error:
        print(f"charllm: {error}", file=sys.stderr)
        return error.exit_code
    event, _space, data = write_answer({"kind": job, "words": words}, Waiting(lambda: None, print)).partition(" ")
    answer = json.loads(data)
    if event != "error":
        return 0
    assert answer["status"] < 500, answer
    print(answer["message"], file=sys.stderr)
    return 2


SAID: tuple[dict[str, Any], ...] = (
    {"say": "hello", "node": "n1", "rank": 1}, {"say": "time"}, {"say": "ready", "gpus": ["NVIDIA H200"]},
    {"say": "ended", "code": 0, "stopped": ""}, {"say": "beat"}, {"say": "bye"},
)  # fmt: skip
"""What a node says to the head of a run."""
SOUND_RANK = 777


def node_messages(random: Random, _originals: Path, folder: Path) -> Case:
    """Damage what a node, or a stranger, says to the head of a run."""
    lines = [json.dumps(message).encode() for message in SAID]
    for at in random.sample(range(len(lines)), random.randint(1, 2)):
        lines[at] = random.choice((damage_json, damage_text, damage_bytes))(lines[at], random)
    sent, proves = b"\n".join(lines) + b"\n", random.random() < 0.8
    return Case(partial(_speak, folder / OUT, sent, proves=proves), [str(proves), repr(sent)])


def _speak(folder: Path, sent: bytes, *, proves: bool) -> int:
    """Say it to a head, which then still answers a sound node."""
    head = Rendezvous(folder, 1 + SOUND_RANK, addresses=[LOOPBACK])
    try:
        where = json.loads((folder / HEAD_FILE).read_text())
        with socket.create_connection(where["addresses"][0], CONNECT_S) as link, suppress(OSError):
            if proves:
                assert answer_challenge(link, where["token"], CONNECT_S)
            link.sendall(sent)
            link.shutdown(socket.SHUT_WR)
            while link.recv(1 << 16):
                pass
        client = join(folder, "sound", SOUND_RANK, CONNECT_S)
        client.ask_time()
        client.leave()
    finally:
        verdict = head.close(0.0)
    json.dumps(asdict(verdict))
    return 0


KINDS: dict[str, Draw] = {
    "stored run": stored_run,
    "recording": recording,
    "study": study,
    "plan": plan,
    "trace": trace,
    "foreign": foreign,
    "log": log,
    "measured table": measured_table,
    "spec file": spec_file,
    "flags": flags,
    "placement": placement,
    "timeline": timeline,
    "explorer request": explorer_request,
    "node messages": node_messages,
}
"""Kind of hostile input: what draws a case of it."""
WEIGHTS = {"stored run": 5, "trace": 3, "foreign": 2, "log": 2, "flags": 2, "recording": 2, "study": 2, "spec file": 2}
"""How often a kind is drawn, against the others."""
