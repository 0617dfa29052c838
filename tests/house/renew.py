"""Renew the outputs that the documents show: ``python -m tests.house.renew [PAGE ...]``.

A line that is no longer printed is replaced by the next printed line that begins alike; look at the difference.
"""

import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tests.house.documents import PAGES, ROOT, Block, Trial, prepare, try_page

ALIKE = 12
"""Characters at the beginning that two versions of a line have in common."""


@dataclass
class Renewal(Trial):
    """A trial that notes what is printed where another text is shown."""

    found: dict[str, str] = field(default_factory=dict)

    def try_text(self, text: str, block: Block, _: str) -> None:
        """Note the block as it would be printed today."""
        if self.printed is not None:
            self.found[text] = renew(text, [line.rstrip() for line in self.printed.splitlines()])


def renew(shown: str, printed: list[str]) -> str:
    """Return a shown output with today's lines."""
    lines, place = [], 0
    for line in shown.splitlines():
        rest = printed[place:]
        same = next((at for at, other in enumerate(rest) if other == line), None)
        alike = next((at for at, other in enumerate(rest) if other[:ALIKE] == line[:ALIKE]), None)
        at = same if same is not None else alike
        if line == "..." or at is None:
            lines.append(line)
            continue
        lines.append(rest[at])
        place += at + 1
    return "\n".join(lines) + "\n"


def main() -> None:
    """Renew every document, or those that are named."""
    os.environ["COLUMNS"] = "100"
    for page in [Path(name).resolve() for name in sys.argv[1:]] or PAGES:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            prepare(Path(folder))
            renewal = Renewal()
            try_page(page, renewal)
        os.chdir(ROOT)
        text = page.read_text()
        for shown, printed in renewal.found.items():
            text = text.replace(f"```text\n{shown}```", f"```text\n{printed}```")
        page.write_text(text)


if __name__ == "__main__":
    main()
