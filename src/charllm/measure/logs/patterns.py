"""Programs whose every step is one line with a pattern of its own."""

import re

from charllm.measure.logs.names import NAMES, Meaning
from charllm.measure.logs.program import Program

MEGATRON = Program(
    mark=re.compile(
        r"\biteration:?\s+(?P<number>\d{1,15})\s*/\s*(?:\d+|infinity)\s*\|(?=.{0,300}(?:elapsed|loss|consumed|learning.rate))"
    ),
    ending="|",
    words=(b"iteration",),
)
"""Megatron-LM of any year and its descendants: Megatron-DeepSpeed, Megatron-Bridge, Primus, MindSpeed."""
NANOTRON = Program(
    mark=re.compile(r"\biteration: (?P<number>\d{1,15}) / \d+ \|(?=.{0,300}_ms:)"), words=(b"iteration: ",)
)
DEEPSPEED = Program(
    mark=re.compile(r"\bsteps: (?P<number>\d{1,15}) loss: (?=.{0,300}(?:iter time|samples/sec))"),
    needs=("seconds", "samples_per_s"),
    words=(b"steps: ",),
)
"""DeepSpeed's pipeline engine."""
DEEPSPEED_TIMER = Program(
    mark=re.compile(r"(?:\bglobal_step=|:stop\] \d{1,9}/)(?P<number>\d{1,15}), (?=RunningAvgSamplesPerSec=)"),
    words=(b"RunningAvgSamplesPerSec=",),
    below=True,
)
"""DeepSpeed's engine, below a trainer of the user's own. Its rate is that of one step; time stamps tell of all."""
NANOGPT = Program(mark=re.compile(r"\biter (?P<number>\d{1,15}): loss (?=.{0,300}\btime\b)"), words=(b"iter ",))
TORCHTITAN = Program(
    mark=re.compile(r"\bstep:\s+(?P<number>\d{1,15})\s+loss:(?=.{0,300}\b(?:tps|wps|mfu|memory|iter):)"),
    names={**NAMES, "tps": Meaning("gpu_tokens_per_s"), "wps": Meaning("gpu_tokens_per_s"), "iter": Meaning("seconds")},
    words=(b"step:",),
)
"""``step: 10  loss: 7.1  memory: 47.9GiB(60.4%)  tps: 1,000  tflops: 300.1  mfu: 30.3%``, rates per GPU."""
