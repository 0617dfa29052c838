"""torchtitan: ``step: 10  loss: 7.1  memory: 47.9GiB(60.4%)  tps: 1,000  tflops: 300.1  mfu: 30.3%``, rates per GPU."""

import re

from charllm.measure.logs.names import NAMES, Meaning
from charllm.measure.logs.program import Program

TORCHTITAN = Program(
    mark=re.compile(r"\bstep:\s+(?P<number>\d{1,15})\s+loss:(?=.{0,300}\b(?:tps|wps|mfu|memory|iter):)"),
    names={**NAMES, "tps": Meaning("gpu_tokens_per_s"), "wps": Meaning("gpu_tokens_per_s"), "iter": Meaning("seconds")},
    words=(b"step:",),
)
