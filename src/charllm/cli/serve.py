"""Serve the explorer: change a run in a browser and see its predicted time, power and temperature at once.

STORE is a folder of stored runs and studies to browse, compare and watch while they are measured; nothing outside of
it is read. The server accepts connections from this machine only; with --host other machines can connect, and every
client needs a token. Ctrl-C ends it.
"""

import argparse
import sys
from pathlib import Path

from charllm.cli import INTERRUPTED
from charllm.errors import MissingExtra, SpecError

PORT = 8765
EXAMPLES = (
    "charllm serve",
    "charllm serve runs --port 8080",
    "charllm serve runs --host 0.0.0.0",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("store", type=Path, nargs="?", metavar="STORE", help="folder of stored runs and studies")
    parser.add_argument(
        "--port", type=int, default=PORT, metavar="N", help=f"port to listen on (default {PORT}; 0: any free port)"
    )
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--token", metavar="T", help="token that clients must send (default with --host: a random one)")


def run(arguments: argparse.Namespace) -> int:
    """Serve until interrupted."""
    store = arguments.store
    if store is not None and not store.is_dir():
        raise SpecError("STORE", str(store), "a folder")
    try:
        from charllm.explorer.server import serve
    except ImportError as error:
        raise MissingExtra(f"the explorer needs {error.name}", "web") from None

    def tell(address: str) -> None:
        print(f"Explorer at {address} (Ctrl-C ends it)", flush=True)

    print("charllm: starting the workers of the explorer", file=sys.stderr, flush=True)
    try:
        serve(store, arguments.host, arguments.port, arguments.token, tell)
    except KeyboardInterrupt:
        print("charllm: the explorer has ended", file=sys.stderr)
        return INTERRUPTED
    return 0
