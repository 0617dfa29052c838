(function (charllm) {
  "use strict";
  const { element } = charllm;

  const SIGNALS = {
    power: { title: "Power, W", unit: "W", token: "series-1", zero: true },
    clock: { title: "Clock, MHz", unit: "MHz", token: "series-3" },
    temperature: { title: "Temperature, C", unit: "C", token: "series-2" },
  };
  const CAUSES = { power: "power limit", thermal: "temperature limit", brake: "power brake" };

  // One step: a lane for each stage, and below, on the same axis, what one GPU draws, how fast it runs and how warm it is.
  charllm.draw.timeline = function (root, figure) {
    charllm.clear(root);
    const tables = Object.fromEntries(
      Object.entries(figure.tables || {}).map(([name, columns]) => [name, charllm.columns(columns)]),
    );
    const lanes = lanesOf(tables.spans, figure.options);
    const signals = tables.signals && tables.signals.t ? tables.signals : null;
    const whole = charllm.extent([
      ...lanes.flatMap((lane) => [lane.first, lane.last]),
      ...(signals ? charllm.extent(signals.t.values) || [] : []),
    ]);
    if (!whole || whole[0] === whole[1]) return charllm.nothing(root);
    const gpu = chooseGpu(root, figure, signals);
    const panels = [];
    const parts = partsOf(lanes, figure.options);
    if (lanes.length) {
      root.append(charllm.legend(parts.map((part) => ({ label: part.label, token: part.token }))));
      panels.push(lanePanel(lanes, whole, root));
    }
    const curves = signals ? curvesOf(signals, gpu, figure.options.lines || {}) : [];
    const limits = limitsOf(tables.limits, gpu);
    panels.push(...curves.map((curve, at) => curvePanel(curve, limits, at === 0 ? gpu : null)));
    charllm.panels(root, figure, panels, {
      title: "Time, s",
      whole,
      rows: lanes.length,
      describe: (position, panel, height) =>
        describe(
          position,
          lanes.length && panel === 0 ? lanes[lanes.length - 1 - Math.floor(height)] : null,
          curves,
          limits,
          gpu,
        ),
    });
  };

  function chooseGpu(root, figure, signals) {
    const { gpus, gpu } = figure.options;
    const names = gpus && gpus.length ? gpus.map(String) : [...new Set(signals ? signals.gpu.values.map(String) : [])];
    if (!names.length) return null;
    const key = `${figure.name}.gpu`;
    const kept = charllm.address.read(key);
    const chosen = names.includes(kept)
      ? kept
      : gpu !== undefined && names.includes(String(gpu))
        ? String(gpu)
        : names[0];
    if (names.length > 1) {
      const field = element("select", {}, ...names.map((name) => element("option", { value: name }, name)));
      field.value = chosen;
      field.addEventListener("change", () => {
        charllm.address.write(key, field.value);
        charllm.draw.timeline(root, figure);
        root.querySelector("select").focus();
      });
      root.append(
        element("div", { class: "controls" }, element("label", {}, "Power, clock and temperature of", field)),
      );
    }
    return chosen;
  }

  // Spans of each lane in order of time.
  function lanesOf(spans, options) {
    if (!spans || !spans.start) return [];
    const { lane, part, start, end, detail } = Object.fromEntries(
      Object.entries(spans).map(([name, column]) => [name, column.values]),
    );
    const names = (options.lanes && options.lanes.length ? options.lanes : [...new Set(lane)]).map(String);
    const found = new Map(names.map((name) => [name, []]));
    for (let at = 0; at < start.length; at += 1) {
      const own = found.get(String(lane[at]));
      if (own && charllm.isNumber(start[at]) && charllm.isNumber(end[at]))
        own.push({ part: String(part[at]), start: start[at], end: end[at], detail: detail && detail[at] });
    }
    return [...found].map(([name, own]) => {
      own.sort((one, other) => one.start - other.start);
      return { name, spans: own, first: d3.min(own, (span) => span.start), last: d3.max(own, (span) => span.end) };
    });
  }

  function partsOf(lanes, options) {
    const palette = options.palette || "part";
    const keys = charllm.inOrder(palette, [...new Set(lanes.flatMap((lane) => lane.spans.map((span) => span.part)))]);
    const parts = new Map(
      keys.map((key, at) => [
        key,
        { label: charllm.nameOf(key, options.labels), token: charllm.token(palette, key, at) },
      ]),
    );
    for (const lane of lanes) for (const span of lane.spans) Object.assign(span, parts.get(span.part));
    return [...parts.values()];
  }

  function lanePanel(lanes, whole, root) {
    const names = lanes.map((lane) => lane.name).reverse();
    const each = Math.max(5, Math.min(26, 420 / lanes.length));
    const every = Math.ceil(14 / each);
    const room = Math.ceil(
      Math.max(
        58,
        Math.min(charllm.width(root) * 0.25, Math.max(...names.map((name) => charllm.textWidth(name, 12))) + 14),
      ),
    );
    return {
      height: each * lanes.length + 10,
      room,
      data: [whole, [null, null]],
      series: [{ points: { show: false } }],
      points: false,
      range: [0, lanes.length],
      axis: {
        splits: () => names.map((_, at) => at + 0.5).filter((_, at) => (names.length - 1 - at) % every === 0),
        grid: { show: false },
        values: (_, splits) => splits.map((at) => charllm.cut(names[Math.floor(at)], room - 10, 12)),
      },
      over: (plot, pen) => lanes.forEach((lane, at) => paintLane(plot, pen, lane, names.length - 1 - at)),
    };
  }

  // Spans as boxes; those below a pixel are merged, and a pixel has the colour of the part with most time in it.
  function paintLane(plot, pen, lane, row) {
    const top = plot.valToPos(row + 0.88, "y", true);
    const height = plot.valToPos(row + 0.12, "y", true) - top;
    const { min, max } = plot.scales.x;
    const { left, width } = plot.bbox;
    const position = (value) => left + ((value - min) / (max - min)) * width;
    const fills = new Map();
    const fill = (token) => {
      if (!fills.has(token)) fills.set(token, charllm.canvasFill(pen, token));
      return fills.get(token);
    };
    let pixel = null;
    let times = new Map();
    const flush = () => {
      if (pixel === null) return;
      pen.fillStyle = fill(d3.greatest(times, ([, time]) => time)[0]);
      pen.fillRect(pixel, top, 1, height);
      pixel = null;
      times = new Map();
    };
    for (const span of lane.spans) {
      if (span.end < min || span.start > max) continue;
      const [from, to] = [position(span.start), position(span.end)];
      if (to - from >= 1) {
        flush();
        pen.fillStyle = fill(span.token);
        pen.fillRect(from, top, to - from - (to - from > 6 ? 1 : 0), height);
      } else {
        if (pixel !== Math.floor(from)) flush();
        pixel = Math.floor(from);
        times.set(span.token, (times.get(span.token) || 0) + span.end - span.start);
      }
    }
    flush();
  }

  function curvesOf(signals, gpu, lines) {
    const own = d3
      .range(signals.t.values.length)
      .filter((at) => String(signals.gpu.values[at]) === gpu && charllm.isNumber(signals.t.values[at]));
    own.sort((one, other) => signals.t.values[one] - signals.t.values[other]);
    const times = own.map((at) => signals.t.values[at]);
    return Object.entries(SIGNALS)
      .filter(([name]) => signals[name])
      .map(([name, kind]) => ({
        name,
        kind,
        times,
        values: own.map((at) => signals[name].values[at]),
        lines: lines[name] || [],
        column: signals[name],
      }))
      .filter((curve) => curve.values.some(charllm.isNumber));
  }

  function limitsOf(table, gpu) {
    if (!table || !table.start) return [];
    return charllm
      .rows(table)
      .filter((row) => String(row.gpu) === gpu && charllm.isNumber(row.start) && charllm.isNumber(row.end));
  }

  // The first panel says whose readings they are, and what holds the clock.
  function curvePanel(curve, limits, gpu) {
    const causes = [...new Set(limits.map((row) => String(row.cause)))];
    const [what, unit] = curve.kind.title.split(", ");
    return {
      title: gpu ? `${what} of ${gpu}, ${unit}` : curve.kind.title,
      height: 118,
      data: [curve.times, curve.values],
      range: charllm.rangeOf(curve.values, curve.lines, curve.kind.zero),
      series: [{ stroke: charllm.colour(curve.kind.token), width: 1.6, points: { show: false } }],
      heading:
        gpu && causes.length
          ? causes.map((cause, at) => ({
              label: `clock held by the ${CAUSES[cause] || cause}`,
              token: charllm.token("cause", cause, at),
              kind: "band",
            }))
          : null,
      under: (plot, pen) => shade(plot, pen, limits),
      over: (plot, pen) => charllm.paintLines(plot, pen, curve.lines),
    };
  }

  function shade(plot, pen, limits) {
    const { top, height } = plot.bbox;
    const last = new Map();
    pen.globalAlpha = 0.24;
    for (const row of limits) {
      const [from, to] = [plot.valToPos(row.start, "x", true), plot.valToPos(row.end, "x", true)];
      const token = charllm.token("cause", row.cause, 0);
      const start = Math.max(from, last.get(token) ?? -Infinity);
      const end = Math.max(to, from + 1);
      if (end <= start) continue;
      pen.fillStyle = charllm.colour(token);
      pen.fillRect(start, top, end - start, height);
      last.set(token, end);
    }
    pen.globalAlpha = 1;
  }

  function describe(position, lane, curves, limits, gpu) {
    const lines = [];
    const span = lane && lane.spans.findLast((one) => one.start <= position && position < one.end);
    if (lane) lines.push([lane.name, span ? span.label : "idle"]);
    if (span) {
      lines.push(
        ["from", `${charllm.number(span.start, 6)} to ${charllm.number(span.end, 6)} s`],
        ["takes", `${charllm.number((span.end - span.start) * 1000, 4)} ms`],
      );
      if (span.detail) lines.push(["detail", String(span.detail)]);
    }
    if (gpu && curves.length) lines.push(["GPU", gpu]);
    for (const curve of curves) {
      const at = charllm.nearestAt(curve.times, position);
      if (at >= 0)
        lines.push([
          curve.kind.title.split(",")[0],
          `${charllm.text(curve.values[at], curve.column)} ${curve.kind.unit}`,
        ]);
    }
    const held = limits
      .filter((row) => row.start <= position && position <= row.end)
      .map((row) => CAUSES[row.cause] || row.cause);
    if (held.length) lines.push(["clock held by", [...new Set(held)].join(", ")]);
    return { title: `${charllm.number(position, 6)} s`, lines };
  }
})(window.charllm);
