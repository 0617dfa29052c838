"""The search against all strategies of small problems, and its rules against those of the spec and the simulator."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.plan_problems import ASKED, TOP, Problem, build_problem, decide_exhaustively, judge
from charllm.api.plan import build_space, plan
from charllm.catalog.export import export_run
from charllm.errors import SpecError
from charllm.plan import rank as ranking
from charllm.plan import search as searching
from charllm.plan.candidate import Candidate
from charllm.plan.feasible import Feasible, divide_space
from charllm.plan.limits import parse_limits
from charllm.plan.metrics import USUAL
from charllm.plan.objectives import parse_objective
from charllm.plan.overlaps import traits_of
from charllm.plan.rank import Caps, Item, Ranked, _Search, rank
from charllm.plan.runnable import find_refusal
from charllm.plan.scores import score_of
from charllm.plan.space import Cell, Space, Variant
from charllm.result.memory_verdict import RISK, judge_memory
from charllm.simulate.fast import predict_fast
from charllm.spec.run import check_run
from charllm.tracking import untracked
from charllm.workload.step import build_step

JOBS: dict[str, tuple[dict[str, Any], dict[str, list[Any]]]] = {
    "dense": (
        {"model": "llama3-8b", "cluster": "h100x8", "gbs": 16, "cp": 1},
        {"mbs": [1, 2], "recompute": ["none", "full:4"], "vpp": [1, 2]},
    ),
    "sparse": (
        {"model": "mixtral-8x7b", "cluster": "h200x8", "gbs": 16, "cp": 1, "etp": 1},
        {
            "mbs": [1],
            "recompute": ["none", "full"],
            "vpp": [1, 2],
            "ep": [1, 4, 8],
            "schedule": ["1f1b", "interleaved", "dualpipe"],
        },
    ),
}


@pytest.fixture(scope="module", params=JOBS)
def feasible(request: pytest.FixtureRequest) -> Feasible:
    words, axes = JOBS[request.param]
    return divide_space(build_space(None, axes, words).space)


@pytest.fixture(scope="module")
def space(feasible: Feasible) -> Space:
    return feasible.space


def test_cells_are_the_combinations_that_the_spec_accepts(space: Space) -> None:
    cells = {space.cell(place) for place in range(space.cells.size)}
    axes, gpus = space.axes, space.base.cluster.gpus
    accepted = set()
    for tp, cp, pp, sp, mbs in product(axes.tp, axes.cp, axes.pp, axes.sp, axes.mbs):
        for ep, etp in product(axes.ep, axes.etp or {1, tp}):
            dp = max(1, gpus // (tp * cp * pp))
            cell = Cell(tp, cp, dp, pp, 1, ep, etp, sp, "1f1b", mbs)
            try:
                check_run(space.run(cell, Variant("none", 0, 0, (), None, None)))
            except SpecError:
                continue
            accepted.add(cell)
    assert {cell for cell in cells if cell.schedule == "1f1b"} == accepted


def search_for(feasible: Feasible, name: str, caps: list[Caps]) -> _Search:
    score = score_of(feasible.space.base, parse_objective(name), USUAL)
    found = _Search(feasible, score, caps, lambda _memory: True)
    for place in range(len(feasible.shares)):
        found.open_share(place)
    return found


def some_items(search: _Search, seed: int, count: int) -> list[Item]:
    items = [(share, place) for share, found in search.items.items() for place in range(len(found.score))]
    return [items[one] for one in np.random.default_rng(seed).integers(0, len(items), count).tolist()]


@pytest.mark.parametrize("name", ["throughput", "tokens-per-joule", "edp", "cost"])
def test_no_bound_is_above_the_price_nor_far_below_it(feasible: Feasible, name: str) -> None:
    caps: list[Caps] = [(None, None), (0.7 * feasible.space.base.cluster.gpu.power_cap_w, None)]
    search = search_for(feasible, name, caps)
    tight = []
    for item in some_items(search, 1, 20):
        closer = search.raise_bound(item)
        priced = search.price(item) if closer is not None else None
        own, share = search.items[item[0]].score[item[1]], search.bound_share(item[0])
        assert closer is None or (priced and share <= own <= closer <= priced.score)
        tight += [(share / priced.score, own / priced.score, closer / priced.score)] if priced and closer else []
    # A bound that is far below the price rules nothing out: half of them lie within these shares of it.
    assert (np.median(tight, axis=0) > [0.5, 0.7, 0.7]).all()
    assert (np.min(tight, axis=0) > [0.3, 0.5, 0.5]).all()


def test_price_and_memory_are_those_of_the_simulators_fast_path(feasible: Feasible) -> None:
    search = search_for(feasible, "throughput", [(None, None)])
    for item in some_items(search, 2, 8):
        run, _recompute = search._run(item)
        fast = predict_fast(run).metrics
        fits = fast["memory_fit_probability"] >= 1 - RISK
        assert (search.raise_bound(item) is not None) == fits
        if fits:
            priced = search.price(item)
            assert priced
            assert {**fast, **priced.metrics} == fast


def test_strategies_set_aside_for_memory_do_not_fit(feasible: Feasible) -> None:
    space = feasible.space
    kept = {
        key
        for share in feasible.shares
        if (batch := share.batch)
        for key in zip(*(part.tolist() for part in batch.rows[:4]), strict=True)
    }
    checked = 0
    for place in np.random.default_rng(3).permutation(space.cells.size).tolist():
        cell = space.cell(place)
        for (way, recompute), (zero, size) in product(enumerate(space.recomputes(cell)), space.shardings(cell)):
            if (place, way, zero, size) not in kept and checked < 100:
                run = space.run(cell, Variant(recompute, zero, size, (), None, None))
                assert not judge_memory(build_step(run)).fits_within()
                checked += 1
    assert checked > 0


def test_a_lower_cap_never_makes_a_step_shorter(feasible: Feasible) -> None:
    """Why caps need no price where step time alone counts."""
    score = score_of(feasible.space.base, parse_objective("throughput"), USUAL)
    for one in rank(feasible, score, [(None, None)], 2).best:
        found = [one.score]
        for share in (0.8, 0.6):
            asked = replace(one.run.conditions, power_cap_w=share * one.run.cluster.gpu.power_cap_w)
            found.append(predict_fast(replace(one.run, conditions=asked)).metrics["step_time_s"])
        assert found == sorted(found)


PROBLEMS = [
    Problem("llama3-8b", "h100x8", 16, ("tp=1,2", "pp=1,2", "cp=1", "mbs=1", "zero=1", "vpp=1", "recompute=none"), 0),
    Problem(
        "mixtral-8x7b",
        "h200x8",
        16,
        ("tp=1", "pp=2,4", "cp=1", "ep=4,8", "mbs=1", "zero=1,3", "schedule=1f1b,zero-bubble"),
        1,
    ),
    Problem(
        "llama3-8b", "h200x8", 32, ("tp=2", "pp=2", "cp=1", "mbs=1,2", "zero=0,3", "recompute=none,full", "vpp=1,2"), 2
    ),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: f"{one.seed}")
@pytest.mark.parametrize("name", ["throughput", "tokens-per-joule"])
def test_bounds_never_drop_the_best_of_all_strategies(problem: Problem, name: str) -> None:
    space = build_problem(problem)
    score = score_of(space.base, parse_objective(name), USUAL)
    feasible, everything = divide_space(space), decide_exhaustively(space, score)
    found = rank(feasible, score, list(space.caps), 3)
    assert found.proven
    assert [one.score for one in found.best] == pytest.approx([one.score for one in everything[:3]], rel=1e-9)
    assert found.priced + found.misfits <= feasible.visited - feasible.pruned_memory


def test_the_simulators_best_is_among_the_first_of_the_fast_path() -> None:
    outcome = judge(build_problem(PROBLEMS[0]))
    assert outcome
    assert outcome.place <= TOP
    assert np.median(outcome.differences) < ASKED["difference"]


TINY: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": "h200x8",
    "gbs": 16,
    "pp": 1,
    "cp": 1,
    "mbs": 1,
    "zero": 1,
    "recompute": "none",
}


def test_a_plan_counts_every_strategy_and_names_the_winners_flags() -> None:
    found = plan(**TINY, top=3)
    table = json.loads(found.to_json())
    counts = table["counts"]
    assert counts["visited"] == counts["pruned_memory"] + counts["pruned_bound"] + counts["priced"]
    assert counts["simulated"] == len(table["best"]) == 3
    assert [one["metrics"]["tokens_per_s"] for one in table["best"]] == sorted(
        (one["metrics"]["tokens_per_s"] for one in table["best"]), reverse=True
    )
    assert "--tp" in table["best"][0]["flags"]
    assert sum(one["probability_best"] for one in table["best"]) == pytest.approx(1)


def test_the_strategy_of_a_file_is_ranked_and_not_pinned() -> None:
    own = {"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 8}, "training": {"global_batch_size": 16}}
    found = plan(own, pp=1, cp=1, mbs=1, zero=1, recompute="none", top=2)
    assert found.own is not None
    assert found.own.run.parallelism.tp == 8
    assert found.own_rank == 3
    assert "--tp" in {change["flag"] for change in found.as_table()["best"][0]["diff"]}


def test_limits_are_kept_and_one_that_none_keeps_is_named() -> None:
    found = plan(**TINY, tp=1, top=2, limit="power_mean_w<500")
    assert all(one.metrics["power_mean_w"] < 500 for one in found.best)
    with pytest.raises(
        SpecError, match=r"some strategy meets: step_time_s<.* above\), met by .* comes nearest to step_time_s<0.001"
    ):
        plan(**TINY, tp=1, top=1, limit="step_time_s<0.001")


def test_a_plan_is_a_frame_of_its_best_strategies() -> None:
    found = plan(**TINY, tp=1, top=2)
    frame = found.to_frame()
    assert list(frame["tokens_per_s"]) == [one.metrics["tokens_per_s"] for one in found.best]
    assert "--tp 1" in frame["flags"][0]


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({"axis": "rows=1,2"}, "axis"),
        ({"axis": "tp=one"}, "parallelism.tp"),
        ({"tp": 3}, "parallelism"),
        ({"top": 0}, "top"),
        ({"objective": "speed"}, "objective"),
        ({"limit": "memory_peak_gib<5"}, "memory"),
        ({"model": "kimi-k2"}, "memory"),
    ],
)
def test_what_cannot_be_planned_names_the_field(words: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        plan(**dict[str, Any]({**TINY, **words}))
    assert caught.value.field == field


def test_under_limits_no_more_are_listed_than_asked_for_and_the_front_keeps_the_limits() -> None:
    found = plan(**TINY, tp=1, top=1, limit="power_mean_w<500", pareto=True)
    assert len(found.best) == 1 == len(found.probability_best or [])
    assert all(one.metrics["power_mean_w"] < 500 for one in found.pareto)
    assert found.best[0].run in [one.run for one in found.pareto]


SMALL: dict[str, Any] = {"cluster": "charllm-ppt-h200", "gbs": 64, "cp": 1, "mbs": 1, "top": 2}


@pytest.mark.parametrize("program", ["megatron", "nemo"])
@pytest.mark.parametrize("model", ["llama3-70b", "mixtral-8x22b"])
def test_winners_are_strategies_that_their_program_runs(program: str, model: str) -> None:
    axes = ["tp=2", "pp=2,4", "vpp=1,2", "ep=1,8", "recompute=none,full"]
    found = plan(**SMALL, model=model, framework=program, axis=axes, etp=1)
    assert found.counts.refused == 0
    for one in found.best:
        assert export_run(one.run, program).text
    assert not found.warnings


def test_no_strategy_hides_the_sends_of_plain_1f1b() -> None:
    found = plan(**SMALL, model="llama3-70b", tp=4, pp=4, recompute="none", schedule="1f1b", overlap=["tp", "dp", "pp"])
    assert found.best
    assert any("pp has no effect: 1f1b stages wait for their sends" in text for text in found.warnings)
    assert not any("pp" in one.run.parallelism.overlap for one in found.best)


@pytest.mark.parametrize("framework", ["torchtitan", "fsdp"])
def test_torchtitan_is_planned_as_fsdp(framework: str) -> None:
    found = plan(**SMALL, model="llama3-8b", framework=framework, axis=["tp=1,2", "pp=1,2"])
    assert found.counts.refused == 0
    for one in found.best:
        degrees = one.run.parallelism
        assert (degrees.zero >= 2, degrees.sp, "dp" in degrees.overlap) == (True, degrees.tp > 1, True)
        assert export_run(one.run, "torchtitan").text


def test_a_plan_is_written_as_a_report(tmp_path: Path) -> None:
    plan(**TINY, report=tmp_path / "plan.html")
    assert "Which strategy is best under your limits?" in (tmp_path / "plan.html").read_text()
    with pytest.raises(SpecError, match="a folder that exists"):
        plan(**TINY, report=tmp_path / "missing" / "plan.html")


def test_a_schedule_that_the_program_lacks_is_tried_where_it_is_asked_for() -> None:
    found = plan(**SMALL, model="llama3-70b", tp=4, pp=4, schedule="zero-bubble", recompute="none")
    assert found.best[0].run.parallelism.schedule == "zero-bubble"
    assert "megatron cannot run it: parallelism.schedule: got 'zero-bubble'; expected 1f1b or" in found.warnings[0]


@pytest.mark.parametrize(
    ("framework", "model"),
    [("megatron", "mixtral-8x7b"), ("nemo", "mixtral-8x7b"), ("pytorch-eager", "mixtral-8x7b"),
     ("torchtitan", "qwen3-30b-a3b"), ("fsdp", "llama3-8b")],
)  # fmt: skip
def test_the_space_holds_what_the_profiles_program_runs(framework: str, model: str) -> None:
    space = build_space(
        None, {}, {"model": model, "cluster": "charllm-ppt-h200", "gbs": 64, "framework": framework}
    ).space
    draw, refused = np.random.default_rng(4), 0
    for place in draw.integers(0, space.cells.size, 40).tolist():
        cell = space.cell(place)
        recompute = draw.choice(space.recomputes(cell)).item()
        zero, size = draw.choice(space.shardings(cell)).tolist()
        overlaps = space.overlaps(traits_of(cell, recompute.startswith("full"), zero))
        run = space.run(cell, Variant(recompute, zero, size, overlaps[draw.integers(len(overlaps))], None, None))
        refused += find_refusal(space.program, run) is not None
    assert refused == 0
    assert ("zero-bubble" in space.cells.schedule) == (framework == "pytorch-eager")


def simulated_of(monkeypatch: pytest.MonkeyPatch, seconds: list[float | None], top: int, limit: str) -> list[float]:
    """Simulate strategies whose step times are given, None where one takes too long; returns those that were."""

    def simulate(run: Any, _economics: object, _longest_s: float) -> Candidate | None:
        return None if seconds[run] is None else Candidate(run, {}, {"step_time_s": seconds[run]}, True)

    monkeypatch.setattr(searching, "simulate_candidate", simulate)
    wanted: list[Any] = [Ranked(0.0, place, {}) for place in range(len(seconds))]  # type: ignore[arg-type]
    found = searching._simulate(wanted, parse_limits([limit]), top, USUAL, 1.0, untracked)
    return [one.metrics["step_time_s"] for one in found]


def test_where_limits_reject_all_that_were_simulated_as_many_again_are_four_times_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds: list[float | None] = [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.5]
    assert simulated_of(monkeypatch, seconds, 2, "step_time_s<8.5") == seconds[:2]
    assert simulated_of(monkeypatch, seconds, 2, "step_time_s<6.5") == seconds[:4]
    assert simulated_of(monkeypatch, seconds, 2, "step_time_s<0.7") == seconds[:8]
    assert simulated_of(monkeypatch, [None, None, 7.0, *seconds], 2, "step_time_s<8") == [7.0, 9.0]
    with pytest.raises(SpecError, match=r"10 strategies.*can be simulated in time"):
        simulated_of(monkeypatch, [None] * 10, 2, "step_time_s<8")


def test_the_own_strategy_is_placed_behind_those_that_are_better_where_it_fits_and_keeps_the_limits() -> None:
    def candidate(run: int, seconds: float, probability: float = 1.0) -> Any:
        metrics = {"step_time_s": seconds, "tokens_per_s": 1 / seconds, "memory_fit_probability": probability}
        return Candidate(run, {}, metrics, True)  # type: ignore[arg-type]

    kept, objective = [candidate(0, 1.0), candidate(1, 2.0), candidate(2, 3.0)], parse_objective("throughput")
    assert searching._place(candidate(9, 2.5), kept, objective, (), 0.05) == 3
    assert searching._place(candidate(9, 0.5), kept, objective, (), 0.05) == 1
    assert searching._place(candidate(1, 2.0), kept, objective, (), 0.05) == 2
    assert searching._place(candidate(9, 2.5, 0.95), kept, objective, (), 0.05) == 3
    assert searching._place(candidate(9, 2.5, 0.94), kept, objective, (), 0.05) is None
    assert searching._place(candidate(9, 2.5), kept, objective, parse_limits(["step_time_s<2"]), 0.05) is None
    assert searching._place(None, kept, objective, (), 0.05) is None


def test_a_ranking_that_ends_early_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    feasible = divide_space(build_space(None, {}, TINY).space)
    score = score_of(feasible.space.base, parse_objective("tokens-per-joule"), USUAL)
    whole = rank(feasible, score, [(None, None)], 3)
    assert (whole.proven, len(whole.best)) == (True, 3)
    assert [one.score for one in whole.best] == sorted(one.score for one in whole.best)
    assert ranking.MOST_PRICED == 5_000
    assert ranking.MOST_CHECKED == 40_000
    monkeypatch.setattr(ranking, "MOST_PRICED", 2)
    few = rank(feasible, score, [(None, None)], 3)
    assert (few.proven, few.priced, len(few.best)) == (False, 2, 2)
    monkeypatch.setattr(ranking, "MOST_PRICED", 5_000)
    monkeypatch.setattr(ranking, "MOST_CHECKED", 2)
    assert not rank(feasible, score, [(None, None)], 3).proven


def test_strategies_whose_memory_is_not_accepted_are_counted_and_not_priced() -> None:
    feasible = divide_space(build_space(None, {}, TINY).space)
    score = score_of(feasible.space.base, parse_objective("throughput"), USUAL)
    found = rank(feasible, score, [(None, None)], 100, lambda memory: memory["memory_need_bytes"] < 6e10)
    whole = rank(feasible, score, [(None, None)], 100)
    needs = [one.metrics["memory_need_bytes"] for one in whole.best]
    kept = [one.run for one, need in zip(whole.best, needs, strict=True) if need < 6e10]
    assert 0 < len(kept) < len(needs)
    assert [one.run for one in found.best] == kept
    assert found.priced == len(kept)
    assert found.misfits - whole.misfits == len(needs) - len(kept)
