(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});
  const element = charllm.element;
  const RETRY_MS = 1500;
  const LIST_MS = 3000;
  const STATES = { waiting: "waiting for the first reading", running: "running", silent: "no new readings", ended: "ended" };

  const reading = (name, factor = 1, digits = 3) => (gpu) => number(gpu.readings.values[name], factor, digits);
  const number = (value, factor = 1, digits = 3) => (charllm.isNumber(value) ? charllm.number(value * factor, digits) : "–");
  const COLUMNS = [
    ["Node", (gpu) => gpu.node],
    ["GPU", (gpu) => String(gpu.gpu)],
    ["Rank", (gpu) => (gpu.rank === null ? "–" : String(gpu.rank))],
    ["Power, W", reading("power_instant_w")],
    ["Mean, W", (gpu) => number(gpu.power_mean_w)],
    ["Cap, W", reading("power_limit_w")],
    ["Temperature, C", reading("temperature_c")],
    ["Clock, MHz", reading("clock_hz", 1e-6, 4)],
    ["Clock held by", (gpu) => ("limits" in gpu.readings.values ? gpu.limited_by.join(", ") || "nothing" : "–")],
    ["Memory, GiB", reading("memory_used_bytes", 1 / 2 ** 30)],
    ["Busy, %", reading("utilization_fraction", 100)],
  ];

  // Runs that are being recorded, to choose from.
  explorer.recordings = function (root) {
    const said = element("p", { class: "quiet", role: "status" }, "Looking for runs that are being recorded ...");
    const list = element("ul", { class: "list" });
    root.replaceChildren(element("h1", {}, "Live"), said, list);
    const show = ({ entries }) => {
      const found = entries.filter((entry) => entry.kind === "recording");
      said.textContent = found.length ? "" : "No run of the store is being recorded. Start one with `charllm measure --out DIR -- COMMAND` inside the store.";
      const shown = found.map((entry) => entry.path + entry.state).join();
      // A list that is the same is left alone: the keyboard may stand on it.
      if (shown === list.dataset.shown) return;
      list.dataset.shown = shown;
      list.replaceChildren(...found.map((entry) => element("li", {},
        element("a", { href: explorer.route.href("live", new URLSearchParams({ path: entry.path })) }, entry.title || entry.path), ` ${STATES[entry.state] || entry.state || ""}`)));
    };
    const look = () => explorer.ask.json("api/store").then(show, (error) => (said.textContent = error.message));
    look();
    const timer = setInterval(look, LIST_MS);
    return () => clearInterval(timer);
  };

  // One run as it is recorded: its totals, a chart that grows, a row for each GPU, and what cannot be read.
  explorer.live = function (root, path) {
    const parts = {
      state: element("p", { class: "progress" }),
      link: element("p", { hidden: "" }, element("a", { href: explorer.route.href("run", new URLSearchParams({ path })) }, "Open the page of this run")),
      totals: element("dl", { class: "strip" }),
      chart: explorer.chart(),
      table: element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "GPUs" }),
      missing: element("div", { class: "quiet" }),
      spoken: element("div", { class: "hidden-text", role: "status", "aria-live": "polite" }),
    };
    root.replaceChildren(element("h1", {}, path), parts.state, parts.link, parts.totals, parts.chart.root, element("h2", {}, "GPUs"), parts.table, parts.missing, parts.spoken);
    const abort = new AbortController();
    let [last, timer] = ["", 0];

    const badge = (kind, text, more = "") => parts.state.replaceChildren(element("span", { class: `mark ${kind}` }, text), more ? ` ${more}` : "");

    function show(snapshot) {
      const elapsed = charllm.isNumber(snapshot.elapsed_s) ? `${explorer.numbers.duration(snapshot.elapsed_s)} since the command began` : "";
      badge(snapshot.state, STATES[snapshot.state] || snapshot.state, elapsed);
      parts.link.hidden = snapshot.state !== "ended";
      showTotals(parts.totals, snapshot);
      parts.chart.add(snapshot);
      showGpus(parts.table, snapshot);
      showMissing(parts.missing, snapshot);
      if (last !== snapshot.state) parts.spoken.textContent = `The run is ${STATES[snapshot.state] || snapshot.state}.`;
      last = snapshot.state;
    }

    async function follow() {
      let why = "The connection was closed.";
      try {
        await explorer.ask.events(`api/live?${new URLSearchParams({ path })}`, {
          snapshot: show,
          error: (told) => (why = told.message),
        }, { signal: abort.signal });
      } catch (error) {
        if (error.name === "AbortError") return;
        why = error.message;
        if (error.field) return badge("refused", "cannot be shown", why);
      }
      if (abort.signal.aborted || last === "ended") return;
      badge("lost", "connection lost", `${why} Trying again ...`);
      timer = setTimeout(follow, RETRY_MS);
    }

    follow();
    return function leave() {
      abort.abort();
      clearTimeout(timer);
      parts.chart.leave();
    };
  };

  function showTotals(root, { power_w, energy_used_j, job, nodes }) {
    const gpus = nodes.reduce((sum, node) => sum + node.gpus.length, 0);
    const figures = [
      ["Power", number(power_w), "W"],
      ["Energy", number(energy_used_j, 1e-3), "kJ"],
      ["Steps", number(job.steps, 1, 9), ""],
      ["Step time", number(job.step_time_s, 1, 4), "s"],
      ["Tokens/s", number(job.tokens_per_s, 1, 4), ""],
      ["Tokens/s/GPU", number(charllm.isNumber(job.tokens_per_s) && gpus ? job.tokens_per_s / gpus : null, 1, 4), ""],
      ["Tokens/J", number(job.tokens_per_j, 1, 3), ""],
      ["Loss", number(job.loss, 1, 4), ""],
    ];
    root.replaceChildren(...figures.map(([label, value, unit]) => element("div", {}, element("dt", {}, label), element("dd", {}, value === "–" || !unit ? value : `${value} ${unit}`))));
  }

  function showGpus(root, snapshot) {
    const gpus = snapshot.nodes.flatMap((node) => node.gpus);
    const columns = COLUMNS.filter(([label]) => label !== "Node" || snapshot.nodes.length > 1);
    const heads = columns.map(([label]) => element("th", { scope: "col" }, label));
    const rows = gpus.map((gpu) => element("tr", {}, ...columns.map(([label, text]) => element(label === "GPU" ? "th" : "td", label === "GPU" ? { scope: "row" } : {}, text(gpu)))));
    root.replaceChildren(element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows)));
  }

  // Why what is missing is missing, each reason once.
  function showMissing(root, snapshot) {
    const reasons = new Map();
    const plain = (text) => text.replaceAll("_", " ");
    const note = (name, why) => reasons.set(`${plain(name)}: ${plain(why)}`, (reasons.get(`${plain(name)}: ${plain(why)}`) || 0) + 1);
    const gpus = snapshot.nodes.flatMap((node) => node.gpus);
    for (const gpu of gpus) for (const [name, why] of Object.entries(gpu.readings.missing)) note(name, why);
    for (const table of [snapshot.job.missing, snapshot.missing, ...snapshot.nodes.map((node) => node.host.missing)]) {
      for (const [name, why] of Object.entries(table || {})) note(name, why);
    }
    const texts = [...reasons].map(([text, count]) => (count > 1 ? `${text} (${count} GPUs)` : text));
    root.replaceChildren(...(texts.length ? [element("h2", {}, "Not read"), element("ul", {}, ...texts.map((text) => element("li", {}, text)))] : []));
  }
})(window.charllm);
