"""Logs of training programs: steps, losses and throughput, from whole, mixed or half-written logs."""

from charllm.measure.logs.log import Log, LoggedStep
from charllm.measure.logs.read import KINDS, read_log

__all__ = ["KINDS", "Log", "LoggedStep", "read_log"]
