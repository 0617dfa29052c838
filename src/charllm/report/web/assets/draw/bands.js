(function (charllm) {
  "use strict";

  const MANY_DOTS = 120;

  // Time series in panels that share x: a band from least to most, the mean as a line, dots, and lines that do not move.
  charllm.draw.bands = function (root, figure) {
    charllm.clear(root);
    const options = figure.options;
    const columns = charllm.columns(figure.columns);
    const x = columns[options.x];
    if (!x || !x.values.some(charllm.isNumber)) return charllm.nothing(root);
    const order = d3.sort(
      d3.range(x.values.length).filter((at) => charllm.isNumber(x.values[at])),
      (at) => x.values[at],
    );
    const take = (name) => (name && columns[name] ? order.map((at) => columns[name].values[at]) : null);
    const xs = take(options.x);
    const panels = (options.panels || [])
      .map((panel, at) => ({
        ...panel,
        low_values: take(panel.low),
        mean_values: take(panel.mean),
        high_values: take(panel.high),
        dot_values: take(panel.dots),
        token: `series-${(at % 5) + 1}`,
      }))
      .filter((panel) =>
        [panel.low_values, panel.mean_values, panel.high_values, panel.dot_values].some(
          (values) => values && values.some(charllm.isNumber),
        ),
      );
    if (!panels.length) return charllm.nothing(root);
    charllm.panels(
      root,
      figure,
      panels.map((panel) => plotOf(panel, xs, columns)),
      {
        title: charllm.heading(x),
        whole: xs.length > 1 ? [xs[0], xs[xs.length - 1]] : [xs[0] - 0.5, xs[0] + 0.5],
        describe: (position) => describe(position, xs, x, panels, columns),
      },
    );
  };

  function plotOf(panel, xs, columns) {
    const { low_values: low, mean_values: mean, high_values: high, dot_values: dots } = panel;
    const colour = charllm.colour(panel.token);
    const data = [xs];
    const series = [];
    const add = (values, settings) => {
      if (!values) return 0;
      data.push(values);
      series.push({ spanGaps: false, points: { show: false }, ...settings });
      return data.length - 1;
    };
    const edge = { stroke: charllm.withAlpha(colour, 0.5), width: 0.5 };
    const top = add(high, edge);
    const bottom = add(low, edge);
    add(mean, { stroke: colour, width: 2 });
    add(dots, {
      stroke: charllm.colour("ink"),
      width: 0,
      paths: () => null,
      points: { show: true, fill: charllm.colour("ink"), ...dotOf(dots) },
    });
    const values = [low, mean, high, dots].filter(Boolean).flat();
    return {
      title: charllm.heading(panel),
      height: 170,
      data,
      series,
      legend: legendOf(panel, columns),
      bands: top && bottom ? [{ series: [top, bottom], fill: charllm.withAlpha(colour, 0.25) }] : [],
      range: charllm.rangeOf(values, panel.lines, panel.from_zero),
      over: (plot, pen) => charllm.paintLines(plot, pen, panel.lines || []),
    };
  }

  // Few dots stand out from the line, many would hide it.
  const dotOf = (dots) =>
    dots && dots.filter(charllm.isNumber).length > MANY_DOTS
      ? { size: 3.5, width: 0, stroke: null }
      : { size: 6, width: 1, stroke: charllm.colour("paper") };

  function legendOf(panel, columns) {
    const { token } = panel;
    const items = [];
    if (panel.low_values && panel.high_values)
      items.push({ label: `${columns[panel.low].label} to ${lower(columns[panel.high].label)}`, token, kind: "band" });
    if (panel.mean_values) items.push({ label: columns[panel.mean].label, token, kind: "line" });
    if (panel.dot_values) items.push({ label: columns[panel.dots].label, token: "ink", shape: "circle" });
    return items.length > 1 ? items : null;
  }

  const lower = (text) => text.charAt(0).toLowerCase() + text.slice(1);

  function describe(position, xs, x, panels, columns) {
    const at = charllm.nearestAt(xs, position);
    if (at < 0) return null;
    const lines = panels.flatMap((panel) =>
      [
        ["high", panel.high_values],
        ["mean", panel.mean_values],
        ["low", panel.low_values],
        ["dots", panel.dot_values],
      ]
        .filter(([, values]) => values && values[at] !== null && values[at] !== undefined)
        .map(([name, values]) => [
          columns[panel[name]].label,
          `${charllm.text(values[at], columns[panel[name]])} ${panel.unit || ""}`.trim(),
        ]),
    );
    return { key: `x${at}`, title: `${x.label} ${charllm.quantity(xs[at], x)}`, lines };
  }
})(window.charllm);
