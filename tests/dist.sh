#!/bin/sh
# Build the source archive and from it the wheel, install the wheel with its core dependencies alone, and use it.
# Usage: sh tests/dist.sh FOLDER; writes both files into FOLDER (make dist: dist/).
set -eu
folder=${1:-dist} # inside the repository
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
root=$(pwd)

rm -rf "$folder"
"${PYTHON:-python3}" -m venv "$place/build"
"$place/build/bin/pip" install --quiet --disable-pip-version-check build
"$place/build/bin/python" -m build --outdir "$folder" . > "$place/build.log" 2>&1 || { tail -20 "$place/build.log"; exit 1; }
ls -l "$folder"

"${PYTHON:-python3}" -m venv "$place/empty"
"$place/empty/bin/pip" install --quiet --disable-pip-version-check -c constraints.txt "$folder"/*.whl
cd "$place"

expect() { # STATUS COMMAND...: run it outside the repository, and check how it ends
    wanted=$1
    shift
    status=0
    "$place/empty/bin/charllm" "$@" > "$place/out" 2> "$place/err" || status=$?
    if [ "$status" != "$wanted" ]; then
        echo "charllm $*: ended with $status; expected $wanted"
        cat "$place/err"
        exit 1
    fi
    lines=$(wc -l < "$place/err")
    if [ "$wanted" = 2 ] && [ "$lines" != 1 ]; then
        echo "charllm $*: $lines lines of error; expected one"
        cat "$place/err"
        exit 1
    fi
    echo "ok: charllm $*"
}

expect 0 --version
grep -q "$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$root/src/charllm/__init__.py")" "$place/out"
expect 0 simulate --model llama3-8b --cluster h200x8 --tp 2 --gbs 32 --uncertainty --json
cp "$place/out" run.json
expect 0 simulate --model llama3-8b --cluster h200x8 --tp 2 --gbs 32 --report run.html
expect 0 report run.json -o again.html
expect 0 catalog gpus h200
expect 0 serve --help
# What needs an extra says which, in one line.
expect 2 simulate --model llama3-8b --cluster h200x8 --tp 2 --gbs 32 --out runs/one
expect 2 serve --port 0
expect 2 query "select 1" runs
expect 2 place --model llama3-8b --cluster h200x8 --tp 2 --gbs 32
# Without numba these take many minutes.
"$place/empty/bin/pip" install --quiet --disable-pip-version-check -c "$root/constraints.txt" "$(ls "$root/$folder"/*.whl)[fast]"
expect 0 validate known
expect 0 validate all --quick
echo "the wheel works in an empty environment"
