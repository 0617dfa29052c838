(function (charllm) {
  "use strict";
  const { svg, styled } = charllm;

  const PITCH = 24;
  const TOP = 26;

  // Runs side by side: each metric as a share of the first run's, shapes by origin, exact numbers beside.
  charllm.draw.sides = function (root, figure) {
    charllm.clear(root);
    const options = figure.options;
    const columns = charllm.columns(figure.columns);
    const rows = charllm.rows(columns);
    const runs = [...charllm.groups(rows, options.run)].map(([name, own], at) => ({
      name,
      origin: options.origin ? charllm.text(own[0][options.origin]) : "",
      token: `series-${(at % 8) + 1}`,
    }));
    const metrics = [...charllm.groups(rows, options.metric)].map(([name, own]) => metricOf(name, own, runs, options));
    const known = charllm.extent(
      metrics.flatMap((metric) => metric.points.flatMap((point) => [point.share, point.low_share, point.high_share])),
    );
    if (!known) return charllm.nothing(root);
    root.append(
      charllm.legend(
        runs.map((run) => ({
          label: run.origin ? `${run.name} (${run.origin})` : run.name,
          token: run.token,
          shape: charllm.shape(run.origin, 0),
        })),
      ),
    );
    const layout = arrange(root, figure, metrics, runs, known, columns);
    charllm.read(
      layout.frame,
      metrics.flatMap((metric, at) => drawMetric(layout, metric, at)),
    );
  };

  function metricOf(name, rows, runs, options) {
    const first = rows.find(
      (row) =>
        charllm.text(row[options.run]) === runs[0].name &&
        charllm.isNumber(row[options.value]) &&
        row[options.value] !== 0,
    );
    const base = first ? first[options.value] : null;
    const share = (value) => (base !== null && charllm.isNumber(value) ? (100 * value) / base : null);
    return {
      name,
      points: rows.map((row) => ({
        row,
        run: runs.find((run) => run.name === charllm.text(row[options.run])),
        value: row[options.value],
        unit: options.unit ? row[options.unit] || "" : "",
        low: options.low && row[options.low],
        high: options.high && row[options.high],
        share: share(row[options.value]),
        low_share: options.low ? share(row[options.low]) : null,
        high_share: options.high ? share(row[options.high]) : null,
        error: options.error ? row[options.error] : null,
      })),
    };
  }

  const quantity = (point, narrow) =>
    charllm.isNumber(point.value) ? `${charllm.text(point.value)} ${narrow ? "" : point.unit}`.trim() : "not known";

  function arrange(root, figure, metrics, runs, known, columns) {
    const options = figure.options;
    const narrow = charllm.isNarrow(root);
    const heights = metrics.map((metric) => metric.points.length * PITCH + (narrow ? 38 : 18));
    const bottom = TOP + d3.sum(heights);
    const frame = charllm.frame(root, figure, bottom + 46, "Arrow keys move between values, Enter pins one.");
    const left = narrow
      ? 0
      : charllm.labelRoom(
          metrics.map((metric) => metric.name),
          frame.width,
          0.3,
          650,
        );
    const texts = metrics.flatMap((metric) => metric.points.map((point) => quantity(point, narrow)));
    const errors = metrics.flatMap((metric) => metric.points.map((point) => errorText(point.error)));
    const heads = [
      charllm.heading({ label: columns[options.value].label }),
      options.error && columns[options.error] ? charllm.heading({ label: columns[options.error].label }) : "",
    ];
    const room = [texts, errors].map(
      (own, at) => Math.max(...[...own, heads[at]].map((text) => charllm.textWidth(text))) + 16,
    );
    const right = frame.width - room[0] - (errors.some(Boolean) ? room[1] : 0);
    const air = Math.max(2, (known[1] - known[0]) * 0.08);
    const x = d3.scaleLinear(
      [Math.min(known[0], 100) - air, Math.max(known[1], 100) + air],
      [left + 8, Math.max(left + 90, right)],
    );
    frame.svg.append(
      charllm.xAxis(x, { top: TOP, bottom, title: `share of ${runs[0].name}, %` }),
      svg("line", { class: "zero", x1: x(100), x2: x(100), y1: TOP, y2: bottom }),
    );
    const numbers = right + room[0] - 4;
    frame.svg.append(charllm.label(heads[0], numbers, 14, { "text-anchor": "end", class: "title" }));
    if (errors.some(Boolean))
      frame.svg.append(charllm.label(heads[1], frame.width, 14, { "text-anchor": "end", class: "title" }));
    return { frame, x, left, narrow, heights, numbers, errors: frame.width };
  }

  const errorText = (error) =>
    error === null || error === undefined
      ? ""
      : charllm.isNumber(error)
        ? `${error > 0 ? "+" : ""}${charllm.number(100 * error, 3)} %`
        : String(error);

  function drawMetric({ frame, x, left, narrow, heights, numbers, errors }, metric, at) {
    const top = TOP + d3.sum(heights.slice(0, at));
    if (at) frame.svg.append(svg("line", { class: "grid-line", x1: 0, x2: frame.width, y1: top, y2: top }));
    frame.svg.append(
      narrow
        ? charllm.label(
            charllm.heading({ label: metric.name, unit: metric.points[0].unit }),
            0,
            top + 16,
            { class: "strong halo" },
            frame.width,
          )
        : charllm.label(
            metric.name,
            left - 10,
            top + heights[at] / 2,
            { "text-anchor": "end", dy: "0.35em", class: "strong" },
            left - 10,
          ),
    );
    return metric.points.map((point, place) => {
      const y = top + (narrow ? 20 : 0) + 9 + (place + 0.5) * PITCH;
      const lines = [["value", quantity(point)]];
      if (point.low_share !== null && point.high_share !== null) {
        frame.svg.append(
          svg("path", {
            class: "whisker",
            d: `M${x(point.low_share)},${y}H${x(point.high_share)}m0,-4v8M${x(point.low_share)},${y - 4}v8`,
          }),
        );
        lines.push(["interval", `${charllm.text(point.low)} to ${charllm.text(point.high)} ${point.unit}`]);
      }
      if (point.share !== null) {
        frame.svg.append(
          styled(
            svg("path", {
              class: "point",
              d: charllm.shapePath(charllm.shape(point.run.origin, 0), 90),
              transform: `translate(${x(point.share)},${y})`,
            }),
            "fill",
            `var(--${point.run.token})`,
          ),
        );
        lines.push(["share of the first run", `${charllm.number(point.share, 4)} %`]);
      }
      frame.svg.append(
        charllm.label(quantity(point, narrow), numbers, y, { "text-anchor": "end", dy: "0.35em" }),
        charllm.label(errorText(point.error), errors, y, { "text-anchor": "end", dy: "0.35em", class: "tick" }),
      );
      if (point.error !== null && point.error !== undefined) lines.push(["error", errorText(point.error)]);
      if (point.run.origin) lines.push(["origin", point.run.origin]);
      return {
        key: `${metric.name}/${point.run.name}`,
        title: `${metric.name}: ${point.run.name}`,
        lines,
        x: left + 4,
        y: y - PITCH / 2 + 1,
        width: frame.width - left - 8,
        height: PITCH - 2,
      };
    });
  }
})(window.charllm);
