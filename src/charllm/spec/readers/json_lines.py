"""On which line each key of a JSON text stands."""

import re

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[{}\[\]:,]|\n')


def key_lines(text: str) -> dict[str, int]:
    """Return the line of each key, by its dotted path; keys inside lists have none."""
    lines: dict[str, int] = {}
    stack: list[str] = []
    line, last, key = 1, "", ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            line += 1
            continue
        if token == ":" and last.startswith('"') and "[" not in stack:
            key = last[1:-1]
            lines.setdefault(".".join([*stack[1:], key]), line)
        elif token in "{[":
            stack.append(key if token == "{" else "[")
        elif token in "}]" and stack:
            stack.pop()
        last = token
    return lines
