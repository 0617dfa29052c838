"""Megatron-LM of any year and its descendants: Megatron-DeepSpeed, Megatron-Bridge, Primus, MindSpeed, Nanotron."""

import re

from charllm.measure.logs.program import Program

MEGATRON = Program(
    mark=re.compile(
        r"\biteration:?\s+(?P<number>\d{1,15})\s*/\s*(?:\d+|infinity)\s*\|(?=.{0,300}(?:elapsed|loss|consumed|learning.rate))"
    ),
    ending="|",
    words=(b"iteration",),
)
NANOTRON = Program(
    mark=re.compile(r"\biteration: (?P<number>\d{1,15}) / \d+ \|(?=.{0,300}_ms:)"), words=(b"iteration: ",)
)
DEEPSPEED = Program(
    mark=re.compile(r"\bsteps: (?P<number>\d{1,15}) loss: (?=.{0,300}(?:iter time|samples/sec))"),
    needs=("seconds", "samples_per_s"),
    words=(b"steps: ",),
)
"""DeepSpeed's pipeline engine."""
