"""Whether what a plan recommends runs: the first of each plan is simulated, and must have no memory warning.

Jobs are those of `benchmarks.plan_problems`, whose axes are narrowed, so that a plan takes seconds.
Run as: python -m benchmarks.plan_winners [COUNT [SEED]]
"""

import sys

import charllm
from benchmarks.plan_problems import Problem, draw_problem
from charllm.errors import SpecError

WANTED, TOP = 60, 5


def winner_warnings(problem: Problem) -> list[str] | None:
    """Return what a simulation of the best strategy says of memory; None where the plan says that none fits safely."""
    job = {"model": problem.model, "cluster": problem.cluster, "gbs": problem.batch}
    try:
        found = charllm.plan(**job, axis=problem.axes, top=TOP)  # type: ignore[arg-type]
    except SpecError:
        return None
    if any(text.startswith("memory") for text in found.warnings):
        return None
    result = charllm.simulate(found.best[0].run.as_table())
    return [text for text in result.warnings if text.startswith("memory")]


def main() -> None:
    count, seed = (int(word) for word in (*sys.argv[1:], *(str(WANTED), "0")[len(sys.argv) - 1 :]))
    warned = planned = 0
    while planned < count:
        problem, seed = draw_problem(seed), seed + 1
        warnings = winner_warnings(problem)
        if warnings is None:
            continue
        planned += 1
        warned += bool(warnings)
        for text in warnings:
            print(f"{problem.model} on {problem.cluster}, seed {problem.seed}: {text}")
    print(f"winners of {planned} plans: {warned} simulate with a memory warning (asked: 0)")
    sys.exit(bool(warned))


if __name__ == "__main__":
    main()
