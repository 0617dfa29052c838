(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});
  const element = charllm.element;
  const PANELS = [
    { quantity: "power_instant_w", label: "Power, W", factor: 1, zero: true },
    { quantity: "temperature_c", label: "Temperature, C", factor: 1 },
    { quantity: "clock_hz", label: "Clock, MHz", factor: 1e-6, zero: true },
  ];
  const MINUTES = [1, 5, 15, 60];
  const MOST_LINES = 5;
  const MOST_POINTS = 20000;

  // Power, temperature and clock over the last minutes: a line for each of a few GPUs; of many, the lowest, mean and highest.
  explorer.chart = function () {
    const points = [];
    const gpus = new Map();
    let [minutes, drawn, frame] = [5, [], 0];
    const select = element("select", { id: "minutes" }, ...MINUTES.map((each) => element("option", { value: each }, `last ${each} minute${each > 1 ? "s" : ""}`)));
    select.value = String(minutes);
    select.addEventListener("change", () => {
      minutes = Number(select.value);
      draw();
    });
    const legend = element("ul", { class: "legend" });
    const panels = PANELS.map((panel) => element("div", { class: "panel-chart", role: "img", "aria-label": `${panel.label} over time` }));
    const root = element("section", { class: "live-chart", "aria-label": "Readings over time" },
      element("div", { class: "tools" }, element("label", { for: "minutes" }, "Show ", select), legend), ...panels);
    const redraw = () => {
      rebuild();
      draw();
    };
    const observer = new ResizeObserver(redraw);
    observer.observe(root);
    charllm.theme.listen(redraw);

    // Add what a snapshot brings that is new.
    function add(snapshot) {
      const known = gpus.size;
      const newest = points.length ? points[points.length - 1].t : -Infinity;
      for (const point of readings(snapshot)) {
        // After a reconnection the server tells again what is known already.
        if (point.t <= newest) continue;
        points.push(point);
        for (const name of Object.keys(point.gpus)) if (!gpus.has(name)) gpus.set(name, gpus.size);
      }
      if (points.length > MOST_POINTS) points.splice(0, points.length - MOST_POINTS);
      if (gpus.size !== known || !drawn.length) rebuild();
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(draw);
    }

    function rebuild() {
      drawn.forEach((plot) => plot.destroy());
      const width = root.clientWidth;
      if (!width || !gpus.size) return (drawn = []);
      const lines = series([...gpus.keys()]);
      showLegend(legend, lines);
      drawn = PANELS.map((panel, at) => new uPlot(options(panel, lines, width), [[], ...lines.map(() => [])], panels[at]));
    }

    function draw() {
      if (!drawn.length || !points.length) return;
      const last = points[points.length - 1].t;
      const since = last - minutes * 60;
      const shown = points.filter((point) => point.t >= since);
      const times = shown.map((point) => point.t);
      const lines = series([...gpus.keys()]);
      PANELS.forEach((panel, at) => {
        const columns = lines.map((line) => shown.map((point) => line.of(values(point, panel))));
        drawn[at].setData([times, ...columns]);
        drawn[at].setScale("x", { min: Math.max(since, Math.min(points[0].t, last - 20)), max: last });
      });
    }

    return {
      root,
      add,
      leave() {
        observer.disconnect();
        cancelAnimationFrame(frame);
        drawn.forEach((plot) => plot.destroy());
        drawn = [];
        gpus.clear();
      },
    };
  };

  const values = (point, panel) => Object.fromEntries(Object.entries(point.gpus).map(([name, gpu]) => [name, charllm.isNumber(gpu[panel.quantity]) ? gpu[panel.quantity] * panel.factor : null]));

  const over = (found, reduce) => {
    const numbers = Object.values(found).filter((value) => value !== null);
    return numbers.length ? reduce(numbers) : null;
  };

  function series(names) {
    if (names.length <= MOST_LINES) return names.map((name, at) => ({ label: name, token: `series-${at + 1}`, of: (found) => (found[name] === undefined ? null : found[name]) }));
    return [
      { label: "lowest GPU", token: "series-1", of: (found) => over(found, (all) => Math.min(...all)) },
      { label: `mean of ${names.length} GPUs`, token: "ink", of: (found) => over(found, (all) => all.reduce((a, b) => a + b) / all.length) },
      { label: "highest GPU", token: "series-2", of: (found) => over(found, (all) => Math.max(...all)) },
    ];
  }

  function showLegend(root, lines) {
    root.replaceChildren(...lines.map((line) => {
      const swatch = element("span", { class: "line-swatch", "aria-hidden": "true" });
      swatch.style.background = `var(--${line.token})`;
      return element("li", {}, swatch, line.label);
    }));
  }

  function options(panel, lines, width) {
    const axis = { stroke: charllm.colour("quiet"), grid: { stroke: charllm.colour("grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    return {
      width, height: 170, legend: { show: false }, cursor: { sync: { key: "live" }, drag: { x: false, y: false } },
      scales: { x: { time: true }, y: { range: (_plot, low, high) => span(low, high, panel.zero) } },
      axes: [{ ...axis, values: (_plot, times) => times.map(clock), space: 90, size: 30 }, { ...axis, label: panel.label, labelFont: "12px system-ui, sans-serif", labelSize: 20, size: 56 }],
      series: [{}, ...lines.map((line) => ({ label: line.label, stroke: charllm.colour(line.token), width: 1.5, spanGaps: false, points: { show: false } }))],
    };
  }

  const clock = (seconds) => new Date(seconds * 1000).toTimeString().slice(0, 8);

  function span(low, high, zero) {
    if (low === null || high === null) return [0, 1];
    const room = Math.max((high - low) * 0.1, Math.abs(high) * 0.02, 1);
    return [zero ? 0 : low - room, high + room];
  }

  // The points that a snapshot brings: {t, gpus: {name: {quantity: value}}}.
  function readings({ history, nodes }) {
    const name = (gpu) => (nodes.length > 1 ? `${gpu.node}, GPU ${gpu.gpu}` : `GPU ${gpu.gpu}`);
    return (history || []).filter((moment) => moment.gpus.length).map((moment) => ({
      t: moment.wall_s, gpus: Object.fromEntries(moment.gpus.map((gpu) => [name(gpu), gpu])),
    }));
  }
})(window.charllm);
