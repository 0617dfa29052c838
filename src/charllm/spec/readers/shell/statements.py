"""Statements of a shell script, followed in order: assignments, branches, loops, functions, commands.

Nothing is executed. Tests of the script's own variables choose between branches. A test that only running the script
would decide is taken as false, or as true where its else branch would end the script, and is listed as undecided.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from charllm.errors import SpecError
from charllm.spec.readers.shell import conditions
from charllm.spec.readers.shell.script import (
    MAX_NESTING,
    NO_INPUTS,
    Command,
    Inputs,
    Script,
    Value,
    is_known,
    items_of,
    plain,
)
from charllm.spec.readers.shell.syntax import Node, holds_exit, line_of, parse, text_of
from charllm.spec.readers.shell.words import array_value, assign_arithmetic, fields, heredoc, matches, text
from charllm.units import format_bytes

MAX_SCRIPT = 2**20
MAX_LOOPS = 256

_SHELLS = ("bash", "sh", "zsh", "dash", "ksh", "/bin/bash", "/bin/sh", "/usr/bin/bash")
_STARTERS = ("sbatch", "source", ".", "exec", "nohup", "time", "sudo", "command")
_PRINTING = ("echo", "printf")
_PLACEHOLDER = re.compile(r"(?<=[=\s\"'])<([A-Za-z][^<>\n$|&;()]{0,80}[\w.])>")
"""What an example leaves to be filled in: <path to data>."""
_HEADER = re.compile(r"^[ \t]*#SBATCH[ \t]+(.*?)(?:[ \t]#.*)?$", re.MULTILINE)


class _Exit(Exception):
    """The script ends."""


class _Return(Exception):
    """A function ends."""


class _Break(Exception):
    """A loop ends."""


class _Continue(Exception):
    """A turn of a loop ends."""


def read_script(script_text: str, path: str, inputs: Inputs = NO_INPUTS, flipped: int = -1) -> Script:
    """Follow a script and collect the commands that it starts."""
    folder = Path(path).parent if path else None
    script = Script(path, folder, inputs, flipped=flipped)
    script.arguments = list(inputs.arguments or ())
    script.arguments_known = inputs.arguments is not None
    script.variables.update(inputs.environment)
    with suppress(_Exit, _Return, _Break, _Continue):
        _follow_text(script, script_text)
    return script


def _follow_text(script: Script, content: str) -> None:
    """Follow a script, a sourced file or the text given to ``bash -c`` and ``eval``."""
    if len(content) > MAX_SCRIPT:
        raise SpecError("--from", script.path, f"a script of at most {format_bytes(MAX_SCRIPT)}")
    if script.nesting >= MAX_NESTING:
        raise SpecError("--from", script.path, f"scripts and functions nested at most {MAX_NESTING} deep")
    script.nesting += 1
    if "#SBATCH" in content:
        _read_headers(script, content)
    content = _PLACEHOLDER.sub("PLACEHOLDER", content.replace("\r\n", "\n").replace("\r", "\n"))
    _block(script, parse(content).children)
    script.nesting -= 1


def _read_headers(script: Script, content: str) -> None:
    """Keep the words of #SBATCH lines, and what Slurm makes of them in the environment."""
    for line in _HEADER.findall(content):
        script.headers += line.split()
    found = slurm_counts(script.headers)
    names = {"nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), "gpus": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"),
             "tasks": ("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE")}  # fmt: skip
    for key, variables in names.items():
        for name in variables if key in found else ():
            script.variables.setdefault(name, str(found[key]))
    if {"nodes", "tasks"} <= found.keys():
        script.variables.setdefault("SLURM_NTASKS", str(found["nodes"] * found["tasks"]))


_SLURM = {
    "nodes": re.compile(r"(?:^|\s)(?:--nodes[= ]|-N\s*=?)(\d{1,6})(?=\s|$)", re.ASCII),
    "tasks": re.compile(r"(?:^|\s)--n?tasks-per-node[= ](\d{1,4})(?=\s|$)", re.ASCII),
    "gpus": re.compile(
        r"(?:^|\s)(?:--gpus-per-node|--gres)[= ](?:gpu:)?(?:[a-zA-Z]\w*:)?(\d{1,4})(?=\s|$|\()", re.ASCII
    ),
    "all_tasks": re.compile(r"(?:^|\s)(?:--ntasks[= ]|-n\s*)(\d{1,7})(?=\s|$)", re.ASCII),
}  # fmt: skip


def slurm_counts(words: list[str]) -> dict[str, int]:
    """Return nodes, tasks and GPUs of a node that words for sbatch or srun ask for."""
    line = " ".join(words)
    found = {key: pattern.findall(line) for key, pattern in _SLURM.items()}
    return {key: int(values[-1]) for key, values in found.items() if values}


def _block(script: Script, nodes: list[Node]) -> None:
    for node in nodes:
        if node.is_named:
            _follow(script, node)


def _follow(script: Script, node: Node) -> bool | None:
    """Follow one statement; returns its success where that is known."""
    script.count_statement()
    step = _STATEMENTS.get(node.type)
    if step is not None:
        return step(script, node)
    if node.type == "ERROR" or node.type in _GROUPS:
        _block(script, node.children)
    return None


def _assignment(script: Script, node: Node) -> bool:
    target, value = node.children[0], node.children[-1]
    appends = any(child.type == "+=" for child in node.children)
    subscript = target.type == "subscript"
    name = text_of(target.children[0] if subscript else target).strip()
    if value.type in ("=", "+="):
        found: Value = ""
    elif value.type == "array":
        found = array_value(script, value)
    else:
        found = text(script, value)
    if subscript:
        _assign_element(script, name, text_of(target), found)
    else:
        script.variables[name] = _appended(script, script.variables.get(name), found) if appends else found
    return True


def _assign_element(script: Script, name: str, target: str, value: Value) -> None:
    key = target[target.find("[") + 1 : target.rfind("]")].strip("\"'")
    if key.startswith("$"):
        key = plain(script.lookup(key.strip("${}")))
    held = script.variables.get(name, {})
    entries = {str(index): item for index, item in enumerate(held)} if isinstance(held, list) else held
    script.variables[name] = {**(entries if isinstance(entries, dict) else {}), key: plain(value)}


def _appended(script: Script, under: Value | None, over: Value) -> Value:
    if under is None:
        return over
    if isinstance(under, str) and isinstance(over, str):
        return script.checked(under + over)
    if isinstance(under, dict) and isinstance(over, dict):
        return {**under, **over}
    return [*items_of(under), *items_of(over)]


def _declaration(script: Script, node: Node) -> bool:
    for child in node.children:
        if child.type == "variable_assignment":
            _assignment(script, child)
        elif child.type in ("word", "concatenation", "string") and "=" in text_of(child):
            name, _, value = text(script, child).partition("=")
            if name.isidentifier():
                script.variables[name] = value
    return True


def _if(script: Script, node: Node) -> bool | None:
    """Follow the branch whose test holds."""
    branches = [(node, _parts(node))]
    branches += [(child, _parts(child)) for child in node.children if child.type == "elif_clause"]
    otherwise = next((child for child in node.children if child.type == "else_clause"), None)
    for index, (_, (tests, body)) in enumerate(branches):
        rest: list[Node] = [branch for branch, _ in branches[index + 1 :]]
        rest += [otherwise] if otherwise is not None else []
        if _decide(script, tests, body, rest):
            _block(script, body)
            return None
    if otherwise is not None:
        _block(script, otherwise.children)
    return None


def _parts(node: Node) -> tuple[list[Node], list[Node]]:
    """Split an if, elif or while into the statements of its test and those of its body."""
    tests: list[Node] = []
    body: list[Node] = []
    part = tests
    for child in node.children:
        if child.type in ("then", "do"):
            part = body
        elif child.type in ("elif_clause", "else_clause"):
            continue
        elif child.type == "do_group":
            body += [inner for inner in child.children if inner.is_named]
        elif child.is_named:
            part.append(child)
    return tests, body


def _decide(script: Script, tests: list[Node], body: list[Node], rest: list[Node]) -> bool:
    found: bool | None = None
    for test in tests:
        found = _condition(script, test)
    if found is not None:
        return found
    shown = " ".join(" ".join(text_of(test) for test in tests).split())
    ends = any(holds_exit(child) for child in rest) and not any(holds_exit(child) for child in body)
    return _undecided(script, line_of(tests[0]) if tests else 0, shown, ends)


def _undecided(script: Script, line: int, shown: str, otherwise: bool) -> bool:
    """Note a test that cannot be decided; one reading at a time answers it the other way."""
    number = len(script.undecided)
    script.undecided.append((line, shown))
    return not otherwise if script.flipped == number else otherwise


def _condition(script: Script, node: Node) -> bool | None:
    if node.type in ("test_command", "binary_expression", "unary_expression"):
        return conditions.answer(script, node)
    if node.type == "negated_command":
        inner = [child for child in node.children if child.is_named]
        found = _condition(script, inner[0]) if inner else None
        return None if found is None else not found
    if node.type == "list":
        return _list(script, node)
    if node.type == "command":
        words = conditions.words_of(script, node)
        if words[:1] == ["test"] or words[:1] == ["["]:
            return conditions.answer_words(script, [word for word in words[1:] if word != "]"], line_of(node))
        if words[:1] in (["true"], [":"]):
            return True
        if words[:1] in (["false"], ["getopts"]):
            return False
        if words and words[0].startswith("$(("):
            return None
        if words[:1] and words[0] in script.functions:
            return _command(script, node)
        return None
    if node.type == "compound_statement" and text_of(node).startswith("(("):
        value = assign_arithmetic(script, _inner_text(node))
        return None if value is None else value != 0
    if node.type == "variable_assignment":
        return _assignment(script, node)
    return None


def _list(script: Script, node: Node) -> bool | None:
    """Follow ``a && b`` and ``a || b``."""
    inner = [child for child in node.children if child.is_named]
    operator = next((child.type for child in node.children if child.type in conditions.JOINS), "&&")
    if len(inner) != 2:
        _block(script, inner)
        return None
    left = _follow(script, inner[0])
    if left is (operator == "||"):
        return left
    if left is None and inner[0].type in ("test_command", "negated_command"):
        if not _undecided(script, line_of(node), " ".join(text_of(inner[0]).split()), False):
            return None
    elif left is None and operator == "||":
        # A command of unknown outcome is taken to succeed.
        return None
    if left is None and holds_exit(inner[1]):
        return None
    right = _follow(script, inner[1])
    return conditions.join(conditions.JOINS[operator], left, right)


def _case(script: Script, node: Node) -> bool | None:
    subject = next((child for child in node.children if child.is_named), None)
    value = text(script, subject) if subject is not None else ""
    # Comparing notes what the value depends on.
    decided = conditions.compare(script, value, "==", "", line_of(node))
    value = "" if not is_known(value) else value
    items = [child for child in node.children if child.type == "case_item"]
    for item in items:
        patterns, body = _case_parts(item)
        if decided is None and patterns != ["*"]:
            if _undecided(script, line_of(item), f"case {value} in {'|'.join(patterns)}", False):
                _block(script, body)
                return None
            continue
        if any(matches(value, _pattern(script, pattern)) for pattern in patterns):
            _block(script, body)
            return None
    return None


def _case_parts(item: Node) -> tuple[list[str], list[Node]]:
    patterns: list[str] = []
    body: list[Node] = []
    before = True
    for child in item.children:
        if child.type == ")":
            before = False
        elif before and child.is_named:
            patterns.append(text_of(child).strip("\"'"))
        elif not before and child.is_named:
            body.append(child)
    return patterns, body


def _pattern(script: Script, pattern: str) -> str:
    return re.sub(r"\$\{?(\w+)\}?", lambda match: plain(script.lookup(match[1])), pattern, flags=re.ASCII)


def _for(script: Script, node: Node) -> bool | None:
    named = [child for child in node.children if child.is_named]
    name, body = text_of(named[0]), named[-1]
    listed = fields(script, named[1:-1]) if any(child.type == "in" for child in node.children) else script.arguments
    for value in listed[:MAX_LOOPS]:
        script.variables[name] = value
        if not _turn(script, body):
            break
    return None


def _counted_for(script: Script, node: Node) -> bool | None:
    parts = text_of(node)[text_of(node).find("((") + 2 : text_of(node).find("))")].split(";")
    body = node.children[-1]
    if len(parts) != 3:
        return None
    assign_arithmetic(script, parts[0])
    for _ in range(MAX_LOOPS):
        if not assign_arithmetic(script, _bare(parts[1])) or not _turn(script, body):
            break
        assign_arithmetic(script, parts[2])
    return None


def _while(script: Script, node: Node) -> bool | None:
    tests, body = _parts(node)
    until = text_of(node).startswith("until")
    for _ in range(MAX_LOOPS):
        found: bool | None = None
        for test in tests:
            found = _condition(script, test)
        if found is None or found == until:
            break
        if not _turn(script, body):
            break
    return None


def _turn(script: Script, body: Node | list[Node]) -> bool:
    """Follow one turn of a loop; False when it ends the loop."""
    try:
        _block(script, body if isinstance(body, list) else body.children)
    except _Continue:
        return True
    except _Break:
        return False
    return True


def _function(script: Script, node: Node) -> bool:
    named = [child for child in node.children if child.is_named]
    script.functions[text_of(named[0])] = named[-1]
    return True


def _redirected(script: Script, node: Node) -> bool | None:
    """Follow a command with redirections; text that it writes to a file is kept."""
    target, body = _redirections(script, node)
    if target and text_of(node).lstrip().startswith("sed"):
        edited = _edited(script, [node])
        if edited is not None:
            script.files[target] = edited
        return True
    command = node.children[0] if node.children and node.children[0].is_named else None
    words = conditions.words_of(script, command) if command is not None and command.type == "command" else []
    if body is not None and words and _feeds_shell(words):
        _follow_inner(script, script.shown(body), words)
        return None
    if target and words[:1] == ["cat"] and body is not None:
        script.files[target] = body
        return True
    if target and words[:1] and words[0] in _PRINTING:
        script.files[target] = script.files.get(target, "") + " ".join(words[1:]) + "\n"
        return True
    if command is not None and not (target and words[:1] == ["cat"]):
        return _follow(script, command)
    return True


def _redirections(script: Script, node: Node) -> tuple[str, str | None]:
    target, body = "", None
    waiting = list(node.children[1:])
    while waiting:
        child = waiting.pop(0)
        if child.type == "file_redirect" and not any(part.type == "file_descriptor" for part in child.children):
            named = [part for part in child.children if part.is_named]
            if named and child.children[0].type in (">", ">>", "&>", ">|"):
                target = text(script, named[-1])
        elif child.type == "heredoc_body":
            body = heredoc(script, child)
        elif child.type == "heredoc_redirect":
            waiting += child.children
        elif child.type == "herestring_redirect":
            body = text(script, child.children[-1])
    return target, body


def _feeds_shell(words: list[str]) -> bool:
    return words[0] in ("sbatch", *_SHELLS) and not any(word.endswith(".sh") for word in words)


def _edited(script: Script, nodes: list[Node]) -> str | None:
    """Return a template beside the script after the ``sed s/A/B/`` commands of a pipeline; None when there is none."""
    content: str | None = None
    for command in _commands_in(nodes):
        words = conditions.words_of(script, command)
        if words[:1] != ["sed"]:
            return None
        for word in words[1:]:
            change = re.fullmatch(r"s(\W)(.*?)\1(.*?)\1g?", word, re.DOTALL)
            if change is None and not word.startswith("-"):
                content = _find_file(script, word)
            elif change is not None and content is not None:
                content = script.checked(content.replace(change[2], change[3]))
            elif change is not None:
                # The file to edit stands after the change.
                content = _find_file(script, words[-1])
                content = None if content is None else content.replace(change[2], change[3])
                break
    return content


def _commands_in(nodes: list[Node]) -> list[Node]:
    found: list[Node] = []
    for node in nodes:
        found += [node] if node.type == "command" else _commands_in(node.children)
    return found


def _pipeline(script: Script, node: Node) -> bool | None:
    last = node.children[-1]
    if text_of(node).lstrip().startswith("sed") and last.type == "redirected_statement":
        target, _ = _redirections(script, last)
        edited = _edited(script, [node])
        if target and edited is not None:
            script.files[target] = edited
        return True
    for child in node.children:
        if child.is_named:
            _follow(script, child)
    return None


def _group(script: Script, node: Node) -> bool | None:
    if text_of(node).startswith("(("):
        value = assign_arithmetic(script, _inner_text(node))
        return None if value is None else value != 0
    _block(script, node.children)
    return None


def _inner_text(node: Node) -> str:
    return _bare(text_of(node).strip()[2:-2])


def _bare(expression: str) -> str:
    return re.sub(r"\$\{?(\w+)\}?", r"\1", expression, flags=re.ASCII)


def _command(script: Script, node: Node) -> bool | None:
    """Follow a command: a builtin, a function, a shell inside the shell, or a program that is noted."""
    for child in node.children:
        if child.type == "variable_assignment":
            _assignment(script, child)
    named = [child for child in node.children if child.is_named and child.type not in _NO_WORDS]
    words = fields(script, named)
    if not words:
        return True
    builtin = _BUILTINS.get(words[0])
    if builtin is not None:
        return builtin(script, words[1:], line_of(node))
    if words[0] in script.functions:
        return _call(script, words)
    if words[0] in _PRINTING:
        return _print(script, words)
    if _start_inner(script, words, line_of(node)):
        return None
    if len(script.commands) < 10_000:
        script.commands.append(Command(words, line_of(node), script.outer))
    return None


def _print(script: Script, words: list[str]) -> bool:
    """Keep what ``printf -v NAME`` assigns; other text goes to the screen."""
    if words[:2] == ["printf", "-v"] and len(words) > 3 and words[2].isidentifier():
        filled = words[3]
        for value in words[4:]:
            filled = re.sub(r"%[sd]", value.replace("\\", r"\\"), filled, count=1)
        script.variables[words[2]] = script.checked(filled)
    return True


def _call(script: Script, words: list[str]) -> bool | None:
    held, known = script.arguments, script.arguments_known
    if script.nesting >= MAX_NESTING:
        return None
    script.nesting += 1
    script.arguments, script.arguments_known = words[1:], True
    try:
        _follow(script, script.functions[words[0]])
    except _Return:
        pass
    finally:
        script.nesting -= 1
        script.arguments, script.arguments_known = held, known
    return None


def _start_inner(script: Script, words: list[str], line: int) -> bool:
    """Follow ``bash -c TEXT``, ``bash FILE`` and ``sbatch FILE``, wherever they stand in a command."""
    for index, word in enumerate(words):
        if word in _SHELLS:
            rest = words[index + 1 :]
            options = []
            while rest and rest[0].startswith("-") and not rest[0].startswith("--"):
                options.append(rest.pop(0))
            if rest and any("c" in option for option in options):
                _follow_inner(script, script.shown(rest[0]), words[:index])
                return True
            if rest and re.search(r"\.(sh|slurm|sbatch)$", rest[0]):
                return _start_file(script, rest[0], rest[1:], words[:index], line)
        if word.endswith(".py"):
            break
    first = next((word for word in words if word not in _STARTERS and not word.startswith("-")), "")
    if re.search(r"\.(sh|slurm|sbatch)$", first) and words[0] in (*_STARTERS, first):
        after = words[words.index(first) + 1 :]
        return _start_file(script, first, after, words[: words.index(first)], line)
    return False


def _follow_inner(script: Script, content: str, outer: list[str]) -> None:
    held = script.outer
    script.outer = (*held, *outer)
    _follow_text(script, content)
    script.outer = held


def _start_file(script: Script, name: str, arguments: list[str], outer: list[str], line: int) -> bool:
    content = _find_file(script, name)
    if content is None:
        script.not_found.setdefault(script.shown(name), line)
        return True
    held, known = script.arguments, script.arguments_known
    script.arguments, script.arguments_known = arguments, True
    try:
        _follow_inner(script, content, outer)
    except _Exit:
        pass
    finally:
        script.arguments, script.arguments_known = held, known
    return True


def _find_file(script: Script, name: str) -> str | None:
    """Return the text of another script: one written by this script, or one that lies beside it."""
    if name in script.files:
        return script.files[name]
    plain_name = re.sub(r"^.*\ue001", "", name).lstrip("/")
    if script.folder is None or not plain_name or not plain_name.isprintable() or ".." in Path(plain_name).parts:
        return None
    for path in (script.folder / plain_name, script.folder / Path(plain_name).name):
        try:
            if path.is_file() and path.stat().st_size <= MAX_SCRIPT:
                return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError, ValueError):
            return None
    return None


def _source(script: Script, words: list[str], line: int) -> bool:
    content = _find_file(script, words[0]) if words else None
    if content is None:
        if words:
            script.not_found.setdefault(script.shown(words[0]), line)
        return True
    with suppress(_Return):
        _follow_text(script, content)
    return True


def _eval(script: Script, words: list[str], _line: int) -> bool:
    _follow_text(script, script.shown(" ".join(words)))
    return True


def _shift(script: Script, words: list[str], _line: int) -> bool:
    count = int(words[0]) if words and words[0].isdigit() and len(words[0]) < 4 else 1
    enough = count <= len(script.arguments)
    script.arguments = script.arguments[count:] if enough else script.arguments
    return enough


def _set(script: Script, words: list[str], _line: int) -> bool:
    if "--" in words:
        script.arguments = words[words.index("--") + 1 :]
        script.arguments_known = True
    return True


def _unset(script: Script, words: list[str], _line: int) -> bool:
    for name in words:
        script.variables.pop(name, None)
    return True


def _read(script: Script, words: list[str], _line: int) -> bool | None:
    for name in words:
        if name.isidentifier():
            script.variables[name] = script.unknown(f"${name}", "command")
    return None


def _let(script: Script, words: list[str], _line: int) -> bool:
    for word in words:
        assign_arithmetic(script, word)
    return True


def _exit(script: Script, _words: list[str], line: int) -> bool:
    script.exited = line
    raise _Exit


def _return(_script: Script, _words: list[str], _line: int) -> bool:
    raise _Return


def _break(_script: Script, _words: list[str], _line: int) -> bool:
    raise _Break


def _continue(_script: Script, _words: list[str], _line: int) -> bool:
    raise _Continue


def _pass(_script: Script, _words: list[str], _line: int) -> bool:
    return True


def _fail(_script: Script, _words: list[str], _line: int) -> bool:
    return False


def _test(script: Script, words: list[str], line: int) -> bool | None:
    return conditions.answer_words(script, [word for word in words if word != "]"], line)


_BUILTINS: dict[str, Callable[[Script, list[str], int], bool | None]] = {
    "source": _source,
    ".": _source,
    "eval": _eval,
    "shift": _shift,
    "set": _set,
    "unset": _unset,
    "read": _read,
    "let": _let,
    "exit": _exit,
    "return": _return,
    "break": _break,
    "continue": _continue,
    "test": _test,
    "[": _test,
    "true": _pass,
    ":": _pass,
    "false": _fail,
    "cd": _pass,
    "mkdir": _pass,
}
_NO_WORDS = ("variable_assignment", "file_redirect", "heredoc_redirect", "herestring_redirect", "comment")
_GROUPS = ("program", "subshell", "do_group", "compound_statement", "else_clause")
_STATEMENTS: dict[str, Callable[[Script, Node], bool | None]] = {
    "variable_assignment": _assignment,
    "variable_assignments": lambda script, node: _pipeline(script, node),
    "declaration_command": _declaration,
    "command": _command,
    "if_statement": _if,
    "case_statement": _case,
    "for_statement": _for,
    "c_style_for_statement": _counted_for,
    "while_statement": _while,
    "function_definition": _function,
    "redirected_statement": _redirected,
    "pipeline": _pipeline,
    "list": _list,
    "compound_statement": _group,
    "test_command": conditions.answer,
    "negated_command": _condition,
}
