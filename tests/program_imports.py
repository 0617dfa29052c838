"""All that a command may import, and the machine code that a simulation loads; see program.py."""

from importlib import import_module

from charllm.api.simulation import simulate
from charllm.cli import COMMANDS

for name in COMMANDS:
    import_module(f"charllm.cli.{name}")
simulate(model="llama3-8b", cluster="h200x8", tp=2, pp=2, gbs=8)
