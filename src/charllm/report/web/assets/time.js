(function (charllm) {
  "use strict";
  const { element } = charllm;

  const LEFT = 58;
  const RIGHT = 14;
  const ZOOM = 0.6;
  const LEAST_VIEW = 1e-5;
  const FONT = '12px system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';

  // Panels one below the other that share a horizontal axis, its zoom and its cursor.
  // A panel: {title, height, data, series, bands, range, axis, under(plot, pen), over(plot, pen)}; see draw/bands.js.
  // options: {title of the axis, whole: [least, most], describe(position, panel, height) -> mark, rows: steps of the up and down keys}.
  charllm.panels = function (root, figure, panels, options) {
    const box = element("div", {
      class: "chart panels",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "chart",
      "aria-label": `${figure.question} Left and right move the cursor, plus and minus zoom, 0 shows everything, Enter pins what is under the cursor.`,
    });
    const picture = element("div", { role: "img", "aria-label": figure.message || figure.question });
    const bar = zoomButtons();
    root.append(box);
    box.append(picture);
    const state = {
      root,
      box,
      options,
      plots: [],
      left: Math.max(LEFT, ...panels.map((panel) => panel.room || 0)),
      view: root.charllmView || options.whole,
      at: null,
      panel: 0,
      height: 0,
      spoken: box.appendChild(element("div", { class: "hidden-text", "aria-live": "polite" })),
    };
    panels.forEach((panel, at) => state.plots.push(makePlot(state, picture, panel, at, at === panels.length - 1)));
    picture.append(element("p", { class: "axis-title" }, options.title));
    root.append(bar.box);
    bar.on(state);
    state.pins = charllm.pins(root, root, box);
    box.addEventListener("keydown", (event) => onKey(state, event));
    box.addEventListener("blur", () => leave(state));
    picture.addEventListener("pointerleave", () => leave(state));
    charllm.undo(root, () => {
      charllm.tip.hide();
      state.plots.forEach((plot) => plot.destroy());
    });
    if (root.charllmView) show(state, root.charllmView);
    return state;
  };

  function makePlot(state, picture, panel, at, isLast) {
    const host = element(
      "div",
      { class: "panel" },
      panel.title ? element("p", { class: "panel-title" }, panel.title) : "",
    );
    if (panel.legend) host.append(charllm.legend(panel.legend));
    if (panel.heading) picture.append(charllm.legend(panel.heading));
    picture.append(host);
    const ink = charllm.colour("quiet");
    const grid = { stroke: charllm.colour("grid"), width: 1 };
    const axis = { stroke: ink, font: FONT, grid, ticks: { show: false }, border: { show: false } };
    const plot = new uPlot(
      {
        width: charllm.width(state.root),
        height: panel.height + (isLast ? 26 : 0),
        padding: [6, RIGHT, isLast ? 0 : 4, 0],
        legend: { show: false },
        cursor: { y: false, points: { show: panel.points !== false, size: 6 }, drag: { x: true, y: false, dist: 6 } },
        scales: { x: { time: false, range: () => state.view }, y: { range: () => panel.range } },
        axes: [
          {
            ...axis,
            size: isLast ? 26 : 0,
            gap: 6,
            space: 70,
            values: isLast
              ? (_, splits) => splits.map((value) => (value === null ? "" : charllm.number(value, 6)))
              : () => [],
          },
          {
            ...axis,
            size: state.left,
            gap: 8,
            space: 24,
            values: (_, splits) => splits.map((value) => (value === null ? "" : charllm.number(value))),
            ...panel.axis,
          },
        ],
        series: [{}, ...panel.series],
        bands: panel.bands,
        hooks: {
          drawAxes: panel.under ? [(one) => clipped(one, panel.under)] : [],
          draw: panel.over ? [(one) => clipped(one, panel.over)] : [],
          setSelect: [(one) => zoomTo(state, one)],
          setCursor: [(one) => onCursor(state, one, at)],
        },
      },
      panel.data,
      host,
    );
    plot.over.addEventListener("dblclick", () => show(state, state.options.whole));
    plot.over.addEventListener("click", () => pinHere(state));
    return plot;
  }

  function clipped(plot, paint) {
    const { left, top, width, height } = plot.bbox;
    plot.ctx.save();
    plot.ctx.beginPath();
    plot.ctx.rect(left, top, width, height);
    plot.ctx.clip();
    paint(plot, plot.ctx);
    plot.ctx.restore();
  }

  // Zoom to what was dragged over.
  function zoomTo(state, plot) {
    const { left, width } = plot.select;
    if (width < 4) return;
    const chosen = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    show(state, chosen);
  }

  function show(state, [from, to]) {
    const [least, most] = state.options.whole;
    const width = Math.max(Math.min(to - from, most - least), (most - least) * LEAST_VIEW);
    const start = Math.max(least, Math.min(from, most - width));
    state.view = [start, start + width];
    const isWhole = width >= (most - least) * 0.9999;
    state.root.charllmView = isWhole ? null : state.view;
    for (const plot of state.plots) plot.setScale("x", { min: state.view[0], max: state.view[1] });
    state.buttons.reset.disabled = isWhole;
  }

  function zoom(state, times) {
    const [from, to] = state.view;
    const middle = state.at !== null && state.at >= from && state.at <= to ? state.at : (from + to) / 2;
    show(state, [middle - (middle - from) * times, middle + (to - middle) * times]);
    if (state.at !== null) moveTo(state, state.at);
  }

  function zoomButtons() {
    const make = (text, name) => element("button", { type: "button", "aria-label": name }, text);
    const [closer, wider, reset] = [
      make("+", "Zoom in"),
      make("−", "Zoom out"),
      make("Show all", "Show the whole time"),
    ];
    reset.disabled = true;
    const box = element(
      "div",
      { class: "zoom" },
      closer,
      wider,
      reset,
      element("span", { class: "hint" }, "Drag across the chart to zoom; double-click to show all."),
    );
    return {
      box,
      on(state) {
        state.buttons = { reset };
        closer.addEventListener("click", () => zoom(state, ZOOM));
        wider.addEventListener("click", () => zoom(state, 1 / ZOOM));
        reset.addEventListener("click", () => show(state, state.options.whole));
      },
    };
  }

  // One cursor for all panels: the one under the pointer tells the others.
  function onCursor(state, plot, at) {
    if (state.busy || plot.cursor.left < 0 || plot.cursor.left === undefined) return;
    state.at = plot.posToVal(plot.cursor.left, "x");
    state.panel = at;
    state.height = plot.posToVal(plot.cursor.top, "y");
    follow(state, plot);
    tell(state, false);
  }

  function follow(state, leader) {
    state.busy = true;
    for (const plot of state.plots)
      if (plot !== leader) plot.setCursor({ left: plot.valToPos(state.at, "x"), top: 10 });
    state.busy = false;
  }

  function moveTo(state, at, spoken) {
    const [from, to] = state.view;
    const width = to - from;
    if (at > to) show(state, [at - width * 0.9, at + width * 0.1]);
    if (at < from) show(state, [at - width * 0.1, at + width * 0.9]);
    state.at = Math.max(state.options.whole[0], Math.min(at, state.options.whole[1]));
    follow(state, null);
    tell(state, spoken);
  }

  function tell(state, spoken) {
    state.mark = state.options.describe(state.at, state.panel, state.height);
    if (!state.mark) return charllm.tip.hide();
    const plot = state.plots[state.panel];
    const box = plot.over.getBoundingClientRect();
    charllm.tip.show(state.mark, box.left + plot.valToPos(state.at, "x"), box.top, 20, true);
    if (spoken)
      state.spoken.textContent = [state.mark.title, ...state.mark.lines.map((line) => line.join(": "))].join(", ");
  }

  function leave(state) {
    charllm.tip.hide();
    state.busy = true;
    for (const plot of state.plots) plot.setCursor({ left: -10, top: -10 });
    state.busy = false;
    state.mark = null;
  }

  function pinHere(state) {
    if (state.mark) state.pins.toggle({ ...state.mark, key: `${state.panel}:${state.at}` });
  }

  function onKey(state, event) {
    const [from, to] = state.view;
    const here = state.at === null ? (from + to) / 2 : state.at;
    const by = ((to - from) / 100) * (event.shiftKey ? 10 : 1);
    const actions = {
      ArrowRight: () => moveTo(state, here + by, true),
      ArrowLeft: () => moveTo(state, here - by, true),
      ArrowDown: () => changeRow(state, 1),
      ArrowUp: () => changeRow(state, -1),
      "+": () => zoom(state, ZOOM),
      "=": () => zoom(state, ZOOM),
      "-": () => zoom(state, 1 / ZOOM),
      0: () => show(state, state.options.whole),
      Enter: () => pinHere(state),
      Escape: () => leave(state),
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[event.key]();
  }

  // Up and down go from row to row of the first panel that has rows, then from panel to panel.
  function changeRow(state, by) {
    const rows = state.options.rows || 0;
    const places = state.plots.flatMap((_, panel) =>
      panel === 0 && rows ? d3.range(rows - 1, -1, -1).map((row) => [0, row + 0.5]) : [[panel, 0]],
    );
    const here = places.findIndex(
      ([panel, row]) => panel === state.panel && (panel !== 0 || !rows || Math.floor(row) === Math.floor(state.height)),
    );
    [state.panel, state.height] = places[Math.max(0, Math.min(places.length - 1, here + by))];
    moveTo(state, state.at === null ? (state.view[0] + state.view[1]) / 2 : state.at, true);
  }

  // Paint lines across a panel, each with its label above its right end: [{label, value}].
  charllm.paintLines = function (plot, pen, lines) {
    const ratio = devicePixelRatio;
    pen.font = FONT.replace("12px", `${12 * ratio}px`);
    pen.textAlign = "right";
    for (const line of lines.filter((one) => charllm.isNumber(one.value))) {
      const y = Math.round(plot.valToPos(line.value, "y", true));
      const { left, width, top } = plot.bbox;
      pen.strokeStyle = pen.fillStyle = charllm.colour("ink");
      pen.lineWidth = 1.5 * ratio;
      pen.setLineDash([6 * ratio, 4 * ratio]);
      pen.beginPath();
      pen.moveTo(left, y);
      pen.lineTo(left + width, y);
      pen.stroke();
      pen.setLineDash([]);
      const above = y - 6 * ratio > top + 10 * ratio;
      haloText(pen, line.label, left + width - 4 * ratio, above ? y - 6 * ratio : y + 15 * ratio, ratio);
    }
  };

  function haloText(pen, text, x, y, ratio) {
    pen.strokeStyle = charllm.colour("paper");
    pen.lineWidth = 4 * ratio;
    pen.lineJoin = "round";
    pen.strokeText(text, x, y);
    pen.fillText(text, x, y);
  }

  // A range that holds values and lines, with a little air; from zero where asked.
  charllm.rangeOf = function (values, lines, fromZero) {
    const own = charllm.extent(values) || [];
    const found = charllm.extent([...own, ...(lines || []).map((line) => line.value), ...(fromZero ? [0] : [])]);
    if (!found) return [0, 1];
    const [least, most] = found;
    const air = (most - least || Math.abs(most) || 1) * 0.08;
    const named = (lines || []).some((line) => charllm.isNumber(line.value) && line.value >= most - 2 * air);
    return [fromZero && least === 0 ? 0 : least - air, most + air * (named ? 3 : 1)];
  };

  // The place of the value nearest to a position in sorted values.
  charllm.nearestAt = function (values, position) {
    const at = d3.bisectCenter(values, position);
    return at >= 0 && at < values.length ? at : -1;
  };
})(window.charllm);
