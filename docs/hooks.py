"""What the site needs beside its pages: reference, ARCHITECTURE.md, outputs of the notebook, colours, search index."""

import json
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

HERE = Path(__file__).parent
ROOT = HERE.parent
TOKENS = ROOT / "src" / "charllm" / "report" / "web" / "assets" / "tokens.css"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is written from the code, ARCHITECTURE.md and the style sheet of colours; run the notebook."""
    sys.path.insert(0, str(HERE))
    try:
        from notebook import run_notebook
        from reference import pages
    finally:
        sys.path.remove(str(HERE))
    files.remove(files.get_file_from_path("guides/python.ipynb"))
    files.append(File.generated(config, "guides/python.ipynb", content=run_notebook()))
    for name, text in pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    architecture = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "architecture.md", content=architecture))
    files.append(File.generated(config, "tokens.css", content=TOKENS.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to ARCHITECTURE.md, which work in the repository, work in the site."""
    return re.sub(r"\]\((\.\./)+ARCHITECTURE\.md", "](architecture.md", markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Write the search index as a script: a page that was opened from a file cannot fetch it as data."""
    folder = Path(config.site_dir) / "search"
    entries = json.loads((folder / "search_index.json").read_text(encoding="utf-8"))["docs"]
    titles = {entry["location"]: entry["title"] for entry in entries}
    divided = {location.split("#")[0] for location in titles if "#" in location}
    # A page that has sections is found by them; its own entry would repeat their text.
    kept = [
        {**entry, "page": titles[entry["location"].split("#")[0]]}
        for entry in entries
        if entry["location"] not in divided
    ]
    index = json.dumps(kept, ensure_ascii=False, separators=(",", ":"))
    (folder / "index.js").write_text(f"window.charllmIndex={index};\n", encoding="utf-8")
    (folder / "search_index.json").unlink()
