"""Serve the explorer: change a run in a browser and see its predicted time, power and temperature at once.

STORE is a folder of stored runs and studies to browse, compare and watch while they are measured; nothing outside of
it is read. The server accepts connections from this machine only, with --host from others, and every client must send
the token that the printed address contains. A terminal's browser is opened at that address. Ctrl-C ends it.
"""

import argparse
import sys
import webbrowser
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

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
    parser.add_argument("--token", metavar="T", help="token that clients must send (default: a random one)")
    parser.add_argument("--no-browser", action="store_true", help="print the address without opening a browser")


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
        if sys.stdout.isatty() and not arguments.no_browser:
            Thread(target=open_browser, args=(address, opened), daemon=True).start()

    print("charllm: starting the workers of the explorer", file=sys.stderr, flush=True)
    with TemporaryDirectory(prefix="charllm-") as opened:
        try:
            serve(store, arguments.host, arguments.port, arguments.token, tell)
        except KeyboardInterrupt:
            print("charllm: the explorer has ended", file=sys.stderr)
            return INTERRUPTED
    return 0


def open_browser(address: str, folder: str) -> None:
    """Open a browser through a private file that leads to the address: its token is in no list of processes."""
    page = Path(folder) / "open.html"
    page.touch(0o600)
    page.write_text(f'<meta http-equiv="refresh" content="0;url={escape(address)}">', encoding="utf-8")
    webbrowser.open(page.as_uri())
