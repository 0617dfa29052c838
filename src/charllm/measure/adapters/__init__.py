"""Training programs: how a run becomes the command that trains it, and how the program's log is read."""

from charllm.measure.adapters.adapter import Adapter, Program, Request
from charllm.measure.adapters.programs import ADAPTERS, prepare_program

__all__ = ["ADAPTERS", "Adapter", "Program", "Request", "prepare_program"]
