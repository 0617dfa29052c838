"""Shell scripts as they are read: the commands that they would start."""

import contextlib
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from charllm.errors import MissingExtra, SpecError
from charllm.spec.readers.megatron import read_megatron
from charllm.spec.readers.shell import Inputs, Script, read_script, syntax


def script_of(text: str, arguments: str | None = None, path: str = "job.sh", **environment: str) -> Script:
    return read_script(text, path, Inputs(None if arguments is None else tuple(arguments.split()), environment))


def last_words(text: str, arguments: str | None = None, **environment: str) -> list[str]:
    script = script_of(text, arguments, **environment)
    return [script.shown(word) for word in script.commands[-1].words]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("run a b", ["run", "a", "b"]),
        ("run 'a b' \"c $X\" d", ["run", "a b", "c $X", "d"]),
        ("X='a b'\nrun $X \"$X\"", ["run", "a", "b", "a b"]),
        ("A=(1 2)\nA+=(3)\nrun ${A[@]} ${#A[@]} ${A[1]}", ["run", "1", "2", "3", "3", "2"]),
        ("A=('a b' c)\nrun \"${A[@]}\"", ["run", "a b", "c"]),
        ("declare -A M=([x]=1 [y]=2)\nK=y\nrun ${M[$K]} ${M[x]}", ["run", "2", "1"]),
        ("run ${X:-4} ${X-5} ${X:=6} $X", ["run", "4", "5", "6", "6"]),
        ("X=7B\nrun ${X%B} ${X,,} ${X/7/8} ${X#7} ${#X} ${X:0:1}", ["run", "7", "7b", "8B", "B", "2", "7"]),
        ("X=Y\nY=3\nrun ${!X}", ["run", "3"]),
        ("X=3\nrun $((X * (2 + 1))) $(( $X > 2 ? 10 : 20 )) $((2**5)) $((7/2))", ["run", "9", "10", "32", "3"]),
        (
            "run $(expr 4 \\* 3) $(echo hi) $(echo 2*8 | bc) $(echo ABC | tr '[:upper:]' '[:lower:]')",
            ["run", "12", "hi", "16", "abc"],
        ),
        ("run $(nvidia-smi -L | wc -l)", ["run", "$(nvidia-smi -L | wc -l)"]),
        ("let X=3+4\n((Y = X * 2))\n((Y++))\nrun $X $Y", ["run", "7", "15"]),
        ("run a \\\n  b \\\n  c", ["run", "a", "b", "c"]),
        ('X=" \\\n  a \\\n  $Y \\\n  `pwd`/z \\\n"\nrun $X', ["run", "a", "$Y", "`pwd`/z"]),
        ("A=(\n a # no\n # neither\n b\n)\nrun ${A[@]}", ["run", "a", "b"]),
        ("N=3\nA=(--f [0]*$N+[1]*$N)\nrun ${A[@]}", ["run", "--f", "[0]*3+[1]*3"]),
        ("D=<path to data>_text\nrun $D x", ["run", "PLACEHOLDER_text", "x"]),
        ('f() { local n=$1; run $n "$@"; }\nf 1 2', ["run", "1", "1", "2"]),
        ('for i in 1 2 3; do X="$X$i"; done\nrun ${X}', ["run", "$X123"]),
        ("X=\nfor ((i=0; i<3; i++)); do if ((i < 1)); then X+=0; else X+=1; fi; done\nrun $X", ["run", "011"]),
        ("arr=(0 1)\nprintf -v L '[%s]' \"$(IFS=', '; echo \"${arr[*]}\")\"\nrun $L", ["run", "[0,1]"]),
        ("i=0\nwhile [ $i -lt 5 ]; do i=$((i+1)); if [ $i -eq 3 ]; then break; fi; done\nrun $i", ["run", "3"]),
        ("CMD='run a'\neval $CMD b", ["run", "a", "b"]),
        ('X=1\nsrun -N 2 bash -c "run \\$X $X"', ["run", "1", "1"]),
        ("bash <<EOF\nrun x\nEOF", ["run", "x"]),
        ("set -- a b c\nshift\nrun $1 $#", ["run", "b", "2"]),
        ("X=1 Y=2 run $Z", ["run", "$Z"]),
        ('run "a#b" c#d', ["run", "a#b", "c#d"]),
        ("run {1..3}", ["run", "1", "2", "3"]),
        ("run a\r\nrun b\r\n", ["run", "b"]),
    ],
)
def test_words_are_those_of_a_shell(text: str, words: list[str]) -> None:
    assert last_words(text) == words


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('X=a; if [[ "$X" = "b" || "$X" = "a" ]]; then run yes; fi', "yes"),
        ("X=a; if [ $X = b -o $X = a ]; then run yes; fi", "yes"),
        ("X=7b; if [[ $X == 7* && -n $X ]]; then run yes; fi", "yes"),
        ("X=7b; if [[ ! $X =~ ^8 ]]; then run yes; fi", "yes"),
        ("if [[ ! ( 1 -gt 2 ) ]]; then run yes; fi", "yes"),
        ("X=1; [ $X -eq 1 ] && run yes || run no", "yes"),
        ("if false; then run no; elif true; then run yes; fi", "yes"),
        ("case $X in '') run yes;; *) run no;; esac", "yes"),
        ("run yes; if grep -q x y; then run no; fi", "yes"),
        ("if [ -f /no/where ]; then exit 1; fi; run yes", "yes"),
        ("[ -f /no/where ] || exit 1; run yes", "yes"),
        ("if [ -z $DATA ]; then exit 1; fi; run yes", "yes"),
        ("if [ $# -lt 2 ]; then usage; exit 1; fi; run yes", "yes"),
        ('[[ "${HOSTNAME%%.*}" != node1 ]] && exit 1; run yes', "yes"),
    ],
)
def test_tests_are_answered_from_the_script_alone(text: str, word: str) -> None:
    assert last_words(text) == ["run", word]


def test_arguments_and_environment_are_taken_from_the_user() -> None:
    assert last_words("run $1 ${2} $# $NODES", "x y", NODES="4") == ["run", "x", "y", "2", "4"]


def test_options_in_the_arguments_are_followed() -> None:
    text = "while [[ $# -gt 0 ]]; do case $1 in --tp) TP=$2; shift 2;; *) shift;; esac; done\nrun $TP"
    assert last_words(text, "--x --tp 8") == ["run", "8"]


def test_a_header_for_sbatch_sets_the_variables_of_slurm() -> None:
    header = "#!/bin/bash\n#SBATCH --nodes=16\n#SBATCH --gres=gpu:8   # all\n#SBATCH --ntasks-per-node=1\n"
    text = f"{header}run $SLURM_NNODES $SLURM_GPUS_ON_NODE"
    assert last_words(text) == ["run", "16", "8"]


def test_a_sourced_script_beside_is_read(tmp_path: Path) -> None:
    (tmp_path / "common.sh").write_text("X=5", encoding="utf-8")
    script = read_script("source $(dirname $0)/common.sh\nrun $X", str(tmp_path / "job.sh"))
    assert script.commands[-1].words == ["run", "5"]


def test_a_script_that_is_started_gets_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "inner.sh").write_text("run $1 $Y", encoding="utf-8")
    script = read_script("export Y=2\nbash inner.sh 1", str(tmp_path / "job.sh"))
    assert script.commands[-1].words == ["run", "1", "2"]


def test_a_script_that_cannot_be_found_is_noted() -> None:
    assert script_of("source settings.sh").not_found == {"settings.sh": 1}


def test_without_the_parser_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    syntax._parser.cache_clear()
    monkeypatch.setitem(sys.modules, "tree_sitter_bash", None)
    with pytest.raises(MissingExtra, match=r"needs tree-sitter: pip install 'charllm\[readers\]'"):
        script_of("run")
    syntax._parser.cache_clear()


def test_variables_that_a_test_takes_as_empty_are_noted() -> None:
    script = script_of('if [ "$FP8" = 1 ]; then X=1; fi\nif [ $1 = a ]; then X=2; fi\nif [ -z $OK ]; then X=3; fi')
    assert (script.assumed_empty, script.asked_arguments) == ({"$FP8": 1}, {"$1": 2})


LLAMA = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 8 --micro-batch-size 1 --vocab-size 9 --bf16 "
    "--use-mcore-models"
)


def test_a_test_that_cannot_be_decided_is_noted_where_it_matters() -> None:
    text = f"if [ -d /a ]; then R=--recompute-activations; L=1; fi\nif [ -d /b ]; then L=2; fi\nrun t.py {LLAMA} $R"
    notes = read_megatron(text, "train.sh").notes
    assert len(notes) == 1
    assert "line 1: `[ -d /a ]`" in notes[0]
    assert "training.recompute" in notes[0]


def test_words_after_a_comment_are_not_passed_and_noted() -> None:
    reading = read_megatron(f"run t.py {LLAMA} \\\n  # --sp \\\n  --tensor-model-parallel-size 8\n", "train.sh")
    assert reading.request["parallelism"]["tp"] == 1
    assert "not passed to the training program" in reading.notes[0]


@pytest.mark.parametrize(
    "text",
    [
        "while true; do X=1; done",
        "f() { f; }\nf",
        "A=x" + "\nA=$A$A" * 40,
        "(" * 400,
        "if " * 300 + "x",
        "f(){ f|f; }\nf",
    ],
)
def test_scripts_without_end_are_ended(text: str) -> None:
    start_s = time.process_time()
    with contextlib.suppress(SpecError):
        script_of(text)
    assert time.process_time() - start_s < 1


FLOW = "if |then |else |fi\n|for i in |do |done\n|case $X in |a) |;; |esac\n|while |f() { |f |exit |shift |eval "
MARKUP = (
    "[ | ]|[[ | ]]|$((|))|${A|[@]}|}|$(|)|`|'|\"|\\|\n|<<EOF\n|EOF\n|A=|A+=(|=|$A|${B:-|${#|${!|; |&& |> x |source |"
)
WORDS = "--num-layers 2 |--hidden-size |torchrun |t.py |#SBATCH --nodes=|\ue000|\ue0001\ue001|é|\0"
PIECES = st.sampled_from(["| ", "|| ", *FLOW.split("|"), *MARKUP.split("|"), *WORDS.split("|")])


@settings(deadline=None, max_examples=300)
@given(text=st.lists(PIECES, max_size=60).map("".join) | st.text(max_size=300))
def test_any_text_is_read_or_refused_within_a_second(text: str) -> None:
    for whole in (text, f"{text}\ntorchrun t.py {LLAMA} $A"):
        start_s = time.process_time()
        with contextlib.suppress(SpecError):
            read_megatron(whole, "job.sh", Inputs(("a", "b")))
        assert time.process_time() - start_s < 1
