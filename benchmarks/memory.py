"""Predicted against measured memory: published rows by meaning, as they are and held out by source, and H200 loops."""

from charllm.evaluate.h200.memory import loop_scores, training_scores
from charllm.evaluate.memory import MemoryScore, fit_reserve, held_out, read_rows, resolve_rows, summarise


def main() -> None:
    rows, skipped = resolve_rows(read_rows())
    fitted = fit_reserve([row for row in rows if row.is_fitted])
    print(f"reserve_fraction of allocators that cache: {fitted:.2f} fitted on all sources")
    print(f"median |error|, 90th percentile, mean ({len(skipped)} rows lack a setting)")
    _print("as it is", [row.score() for row in rows])
    _print("held out by source", held_out(rows))
    _print("H200 loops", [*loop_scores(), *training_scores()])


def _print(title: str, scores: list[MemoryScore]) -> None:
    summary = summarise(scores)
    print(title)
    for name, group in {**summary["by_meaning"], **summary["by_source"], "all": summary}.items():
        figures = (group["median_abs_error_fraction"], group["p90_abs_error_fraction"], group["mean_error_fraction"])
        print(f"  {name:10} {group['scored']:4} rows " + " ".join(f"{100 * figure:7.1f} %" for figure in figures))


if __name__ == "__main__":
    main()
