"""The real amdsmi package with its C library replaced: built once, then playing machines that a scenario describes.

A scenario is what ``amdsmi_stand_in.c`` reads: ``play(folder, model="mi250", gpus=4, lost=2)``. The library is compiled
into ``FOLDER/lib`` as ROCm has it, so that the package finds it by ROCM_PATH, in this process and in others.
"""

import atexit
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

SOURCE = Path(__file__).with_suffix(".c")
SYMBOL = re.compile(r"_libraries\['libamd_smi\.so'\]\.(\w+)")
WRITTEN = re.compile(r"^(?:int|void) (amdsmi_\w+)\(", re.MULTILINE)
SCENARIO_VARIABLE = "AMDSMI_STAND_IN"


def wrapper_symbols() -> set[str]:
    """List the functions that the wrapper looks for when it is imported."""
    found = importlib.util.find_spec("amdsmi")
    assert found is not None
    assert found.submodule_search_locations is not None
    return set(SYMBOL.findall((Path(found.submodule_search_locations[0]) / "amdsmi_wrapper.py").read_text()))


@cache
def rocm(without: Sequence[str] = ()) -> Path:
    """Build the library, without some functions as an older one is, and return the folder to call ROCM_PATH."""
    folder = Path(mkdtemp(prefix="rocm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "lib").mkdir()
    rest = sorted(wrapper_symbols() - set(WRITTEN.findall(SOURCE.read_text())) - set(without))
    stubs = "".join(f"int {name}(void) {{ return 2; }}\n" for name in rest)
    hidden = [f"-D{name}=hidden_{name}" for name in without]
    library = folder / "lib" / "libamd_smi.so"
    command = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *hidden]
    (folder / "stubs.c").write_text(stubs)
    subprocess.run([*command, "-o", str(library), str(SOURCE), str(folder / "stubs.c")], check=True)
    return folder


def play(scenario: Path, *failures: tuple[str, int], **settings: float | str) -> None:
    """Write a scenario; the library reads it when it is initialised next."""
    lines = [f"{key} {value}" for key, value in settings.items()]
    lines += [f"fail {function} {status}" for function, status in failures]
    scenario.write_text("\n".join(lines) + "\n")
