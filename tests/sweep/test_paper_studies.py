from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.sweep.study import load_study

STUDIES = (
    "parallelism",
    "optimization-h200",
    "microbatch-h200",
    "lora-h200",
    "mi250",
    "scale",
    "network",
    "datacenter",
)


def test_the_papers_runs_overlap_and_interleave_only_what_they_state() -> None:
    for study in STUDIES:
        for case in load_study(f"charllm-ppt-{study}").cases:
            try:
                run = resolve_run(case.request)
            except SpecError:
                # Strategies that are no run are refused when they are simulated.
                continue
            assert not run.defaults_taken, case.name
            assert run.parallelism.vpp == 1
            assert set(run.parallelism.overlap) == set(case.request["parallelism"].get("overlap", ()))
