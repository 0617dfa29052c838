"""nanoGPT and programs like it: ``iter 10: loss 3.2, time 123ms, mfu 30%``."""

import re

from charllm.measure.logs.program import Program

NANOGPT = Program(mark=re.compile(r"\biter (?P<number>\d{1,15}): loss (?=.{0,300}\btime\b)"), words=(b"iter ",))
