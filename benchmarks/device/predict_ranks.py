"""Predict what an H200 will read while it plays the ranks of campaign.py, before it does.

    python -m benchmarks.device.predict_ranks -o FILE.csv [--timelines DIR]
    python -m benchmarks.device.predict_ranks --part sparse-ranks -o FILE.csv --timelines DIR

Each rank is the simulator's own timeline; with --timelines they are written for the machine that plays them
(emulate_ranks.py), which need not simulate.
"""

import argparse
import csv
import json
from pathlib import Path

from charllm.catalog.resolve import resolve_cluster, resolve_run
from charllm.evaluate.h200.rank_cases import PARTS
from charllm.simulate.emulated import predict_emulated
from charllm.simulate.rank_timeline import generate_timeline
from charllm.timeline.rank_timeline import to_text
from charllm.units import MEGA

COLUMNS = ("name", "step_time_s", "power_mean_w", "power_peak_sensor_w", "clock_mean_mhz", "temperature_mean_c",
           "temperature_peak_c", "kernel_items", "transfer_s", "wait_s")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--timelines", type=Path)
    parser.add_argument("--part", choices=list(PARTS), default="ranks")
    parser.add_argument("--only", default="", help="ranks whose names contain one of these, apart by |")
    arguments = parser.parse_args()
    alone = resolve_cluster("h200x1")
    rows = []
    ranks, seconds_s = PARTS[arguments.part]
    for name, (request, rank) in ranks.items():
        if not any(text in name for text in arguments.only.split("|")):
            continue
        timeline = generate_timeline(resolve_run(request), rank)
        seen = predict_emulated(timeline, alone, seconds_s)
        kernels = sum(segment.repeat * sum(item.kind == "kernel" for item in segment.items)
                      for segment in timeline.segments)  # fmt: skip
        cells = (seen.busy_s, seen.power_mean_w, seen.power_peak_shown_w, seen.clock_mean_hz / MEGA,
                 seen.temperature_mean_c, seen.temperature_peak_c, kernels, timeline.total_s("communication"),
                 timeline.total_s("wait"))  # fmt: skip
        rows.append([name, *(f"{cell:.5g}" for cell in cells)])
        print(dict(zip(COLUMNS, rows[-1], strict=True)), flush=True)
        if arguments.timelines:
            arguments.timelines.mkdir(parents=True, exist_ok=True)
            (arguments.timelines / f"{name}.json").write_text(to_text(timeline))
    if arguments.out:
        with arguments.out.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    print(json.dumps({"ranks": len(rows)}))


if __name__ == "__main__":
    main()
