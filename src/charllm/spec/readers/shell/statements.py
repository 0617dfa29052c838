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
from charllm.spec.readers.shell.assignments import assignment, declaration
from charllm.spec.readers.shell.builtins import BUILTINS, Break, Continue, Exit, Return, print_words
from charllm.spec.readers.shell.files import MAX_SCRIPT, SHELLS, edited, feeds_shell, find_file, redirections
from charllm.spec.readers.shell.script import MAX_NESTING, NO_INPUTS, Command, Inputs, Script, is_known, plain
from charllm.spec.readers.shell.slurm import read_headers
from charllm.spec.readers.shell.syntax import Node, branch_parts, case_parts, holds_exit, line_of, parse, text_of
from charllm.spec.readers.shell.values import assign_arithmetic, bare, matches
from charllm.spec.readers.shell.words import fields, text
from charllm.units import format_bytes

MAX_LOOPS = 256

_STARTERS = ("sbatch", "source", ".", "exec", "nohup", "time", "sudo", "command")
_PRINTING = ("echo", "printf")
_PLACEHOLDER = re.compile(r"(?<=[=\s\"'])<([A-Za-z][^<>\n$|&;()]{0,80}[\w.])>")
"""What an example leaves to be filled in: <path to data>."""


def read_script(script_text: str, path: str, inputs: Inputs = NO_INPUTS, flipped: int = -1) -> Script:
    """Follow a script and collect the commands that it starts."""
    folder = Path(path).parent if path else None
    script = Script(path, folder, inputs, flipped=flipped)
    script.arguments = list(inputs.arguments or ())
    script.arguments_known = inputs.arguments is not None
    script.variables.update(inputs.environment)
    with suppress(Exit, Return, Break, Continue):
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
        read_headers(script, content)
    content = _PLACEHOLDER.sub("PLACEHOLDER", content.replace("\r\n", "\n").replace("\r", "\n"))
    _block(script, parse(content).children)
    script.nesting -= 1


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


def _if(script: Script, node: Node) -> bool | None:
    """Follow the branch whose test holds."""
    branches = [(node, branch_parts(node))]
    branches += [(child, branch_parts(child)) for child in node.children if child.type == "elif_clause"]
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


def _decide(script: Script, tests: list[Node], body: list[Node], rest: list[Node]) -> bool:
    found: bool | None = None
    before = script.guesses
    for test in tests:
        found = _condition(script, test)
    if found and script.guesses > before and any(holds_exit(child) for child in body):
        # A script that ends because something was not given is read on as if it had been.
        return False
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
        value = assign_arithmetic(script, bare(text_of(node).strip()[2:-2]))
        return None if value is None else value != 0
    if node.type == "variable_assignment":
        return assignment(script, node)
    return None


def _list(script: Script, node: Node) -> bool | None:
    """Follow ``a && b`` and ``a || b``."""
    inner = [child for child in node.children if child.is_named]
    operator = next((child.type for child in node.children if child.type in conditions.JOINS), "&&")
    if len(inner) != 2:
        _block(script, inner)
        return None
    before = script.guesses
    left = _follow(script, inner[0])
    if left is (operator == "||"):
        return left
    if script.guesses > before and holds_exit(inner[1]):
        return None
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
        patterns, body = case_parts(item)
        if decided is None and patterns != ["*"]:
            if _undecided(script, line_of(item), f"case {value} in {'|'.join(patterns)}", False):
                _block(script, body)
                return None
            continue
        if any(matches(value, _pattern(script, pattern)) for pattern in patterns):
            _block(script, body)
            return None
    return None


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
        if not assign_arithmetic(script, bare(parts[1])) or not _turn(script, body):
            break
        assign_arithmetic(script, parts[2])
    return None


def _while(script: Script, node: Node) -> bool | None:
    tests, body = branch_parts(node)
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
    except Continue:
        return True
    except Break:
        return False
    return True


def _function(script: Script, node: Node) -> bool:
    named = [child for child in node.children if child.is_named]
    script.functions[text_of(named[0])] = named[-1]
    return True


def _redirected(script: Script, node: Node) -> bool | None:
    """Follow a command with redirections; text that it writes to a file is kept."""
    target, body = redirections(script, node)
    if target and text_of(node).lstrip().startswith("sed"):
        return _keep_edited(script, target, node)
    command = node.children[0] if node.children and node.children[0].is_named else None
    words = conditions.words_of(script, command) if command is not None and command.type == "command" else []
    if body is not None and words and feeds_shell(words):
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


def _keep_edited(script: Script, target: str, node: Node) -> bool:
    content = edited(script, [node])
    if target and content is not None:
        script.files[target] = content
    return True


def _pipeline(script: Script, node: Node) -> bool | None:
    last = node.children[-1]
    if text_of(node).lstrip().startswith("sed") and last.type == "redirected_statement":
        target, _ = redirections(script, last)
        return _keep_edited(script, target, node)
    for child in node.children:
        if child.is_named:
            _follow(script, child)
    return None


def _group(script: Script, node: Node) -> bool | None:
    if text_of(node).startswith("(("):
        value = assign_arithmetic(script, bare(text_of(node).strip()[2:-2]))
        return None if value is None else value != 0
    _block(script, node.children)
    return None


def _command(script: Script, node: Node) -> bool | None:
    """Follow a command: a builtin, a function, a shell inside the shell, or a program that is noted."""
    for child in node.children:
        if child.type == "variable_assignment":
            assignment(script, child)
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
        return print_words(script, words)
    if _start_inner(script, words, line_of(node)):
        return None
    if len(script.commands) < 10_000:
        script.commands.append(Command(words, line_of(node), script.outer))
    return None


def _call(script: Script, words: list[str]) -> bool | None:
    held, known = script.arguments, script.arguments_known
    if script.nesting >= MAX_NESTING:
        return None
    script.nesting += 1
    script.arguments, script.arguments_known = words[1:], True
    try:
        _follow(script, script.functions[words[0]])
    except Return:
        pass
    finally:
        script.nesting -= 1
        script.arguments, script.arguments_known = held, known
    return None


def _start_inner(script: Script, words: list[str], line: int) -> bool:
    """Follow ``bash -c TEXT``, ``bash FILE`` and ``sbatch FILE``, wherever they stand in a command."""
    for index, word in enumerate(words):
        if word in SHELLS:
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
    content = find_file(script, name)
    if content is None:
        script.not_found.setdefault(script.shown(name), line)
        return True
    held, known = script.arguments, script.arguments_known
    script.arguments, script.arguments_known = arguments, True
    try:
        _follow_inner(script, content, outer)
    except Exit:
        pass
    finally:
        script.arguments, script.arguments_known = held, known
    return True


def _source(script: Script, words: list[str], line: int) -> bool:
    content = find_file(script, words[0]) if words else None
    if content is None:
        if words:
            script.not_found.setdefault(script.shown(words[0]), line)
        return True
    with suppress(Return):
        _follow_text(script, content)
    return True


def _eval(script: Script, words: list[str], _line: int) -> bool:
    _follow_text(script, script.shown(" ".join(words)))
    return True


_BUILTINS: dict[str, Callable[[Script, list[str], int], bool | None]] = {
    **BUILTINS,
    "source": _source,
    ".": _source,
    "eval": _eval,
}
_NO_WORDS = ("variable_assignment", "file_redirect", "heredoc_redirect", "herestring_redirect", "comment")
_GROUPS = ("program", "subshell", "do_group", "compound_statement", "else_clause")
_STATEMENTS: dict[str, Callable[[Script, Node], bool | None]] = {
    "variable_assignment": assignment,
    "variable_assignments": lambda script, node: _pipeline(script, node),
    "declaration_command": declaration,
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
