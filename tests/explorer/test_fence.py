"""What a worker may open and hold: its store, Python and its packages; so much memory."""

import subprocess
import sys
from pathlib import Path

TRY = """
import sys
from pathlib import Path
from charllm.errors import CharllmError
from charllm.explorer.fence import bound_memory, fence_reads

bound_memory()
store, outside = map(Path, sys.argv[1:])
fence_reads(store)
import charllm.catalog.tables as tables  # code and catalog are still read
tables.entries("models")
import numba  # and what compiles, which reads what the CPU can do
print((store / "inside.txt").read_text())
for path in (outside, store / "link.txt", store / ".." / outside.name, "/proc/self/environ"):
    try:
        open(path)
    except CharllmError as error:
        print("refused")
try:
    bytearray(4 * 2**30)
except MemoryError:
    print("bounded")
"""


def test_files_outside_of_the_store_are_not_opened_and_memory_is_bounded(tmp_path: Path) -> None:
    store, outside = tmp_path / "store", tmp_path / "outside.txt"
    store.mkdir()
    (store / "inside.txt").write_text("inside")
    outside.write_text("secret")
    (store / "link.txt").symlink_to(outside)
    command = [sys.executable, "-c", TRY, str(store), str(outside)]
    # Nor are those of the folder that the server was started in.
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["inside", *["refused"] * 4, "bounded"]
