"""What a reading of a launch script assumes: undecided tests, empty variables, other commands, files not found."""

from collections.abc import Callable
from dataclasses import replace

from charllm.errors import SpecError
from charllm.spec.readers.megatron.family import Family
from charllm.spec.readers.megatron.launch import ENVIRONMENTS, Launch
from charllm.spec.readers.reading import Reading
from charllm.spec.readers.shell import Script

MOST_UNDECIDED = 8
"""Undecided tests of a script that are tried both ways."""
MOST_NAMED = 6


def launch_notes(launch: Launch, family: Family) -> list[str]:
    """List what is assumed of the program that a command starts, and that others are not read."""
    notes = []
    if launch.others:
        notes.append(
            f"the script starts {launch.others + 1} different training commands; the first is read (line {launch.line})"
        )
    if family.year_open and launch.program:
        notes.append(
            "attention is taken as one fused kernel, as in Megatron-LM since 2024; "
            "--set framework.attention=unfused for an older version"
        )
    return notes


def with_notes(reading: Reading, script: Script, read_flipped: Callable[[int], Reading]) -> Reading:
    """Add what was assumed: empty variables, tests that could not be decided, scripts that could not be read.

    `read_flipped` reads the script with one of its undecided tests answered the other way.
    """
    notes = [*reading.notes, *_undecided_notes(reading, script, read_flipped)]
    if script.asked_arguments:
        notes.append(
            "arguments that the script compares were not given and are taken as empty: "
            f"{_listed(script.asked_arguments)}; --args 'WORDS' gives them"
        )
    if script.assumed_empty:
        notes.append(
            f"variables that the script compares but does not set are taken as empty: {_listed(script.assumed_empty)}; "
            "--env NAME=VALUE sets one"
        )
    sourced = {name: line for name, line in script.not_found.items() if not ENVIRONMENTS.search(name)}
    if sourced:
        notes.append(f"scripts that this one starts or sources are not in the same folder: {_listed(sourced)}")
    lost = {word: command.line for command in script.commands for word in command.words[:1] if word.startswith("--")}
    if lost and len(lost) < len(script.commands):
        notes.append(f"not passed to the training program, as the line before does not continue: {_listed(lost)}")
    return replace(reading, notes=tuple(notes))


def _listed(found: dict[str, int]) -> str:
    names = [f"{name[:80]} (line {line})" for name, line in found.items()]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _undecided_notes(reading: Reading, script: Script, read_flipped: Callable[[int], Reading]) -> list[str]:
    """Try each undecided test the other way, and say which fields depend on it."""
    notes = []
    for number, (line, shown) in enumerate(script.undecided[:MOST_UNDECIDED]):
        try:
            other = read_flipped(number)
        except SpecError:
            continue
        changed = _changed(reading, other)
        if changed:
            notes.append(
                f"line {line}: `{shown[:80]}` cannot be decided without running the script; the other answer changes "
                f"{', '.join(changed[:MOST_NAMED])}"
            )
    return notes


def _changed(reading: Reading, other: Reading) -> list[str]:
    """List the fields in which two readings differ."""
    changed = []
    for part in {**reading.request, **other.request}:
        ours, theirs = reading.request.get(part), other.request.get(part)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            changed += [f"{part}.{key}" for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
        elif ours != theirs:
            changed.append(part)
    for name in ("nodes", "gpus_per_node", "unmodelled"):
        changed += [name] if getattr(reading, name) != getattr(other, name) else []
    return changed
