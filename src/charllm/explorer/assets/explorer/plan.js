(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});
  const element = charllm.element;
  const SETTLED_MS = 700;
  const JOB = ["model", "cluster", "network", "nodes", "gbs", "seq_length", "precision", "framework", "inlet", "lora", "activation_offload"];

  const BUDGET = ["machines", "tokens"];

  // Find the best strategy under limits, or what the job takes on several machines. What is set on the left is fixed, the rest is searched.
  explorer.plan = function (choices, client) {
    const state = { request: {}, objective: "throughput", limits: [], sensitivity: false, machines: "", tokens: "", shown: null, abort: null };
    const parts = build(choices, state);
    let timer = 0;

    // Once a plan is shown, every change searches again; the search before it ends.
    function changed() {
      note(state);
      parts.show();
      clearTimeout(timer);
      if (state.shown || state.abort) timer = setTimeout(search, SETTLED_MS);
    }

    async function search() {
      stop();
      const mine = (state.abort = new AbortController());
      parts.controls.refuse(null);
      parts.say("searching", "Begins ...");
      const { request, objective, limits: limit, sensitivity } = state;
      const machines = state.machines.split(/[\s,]+/).filter(Boolean);
      const whole_run = state.tokens ? { tokens: Number(state.tokens) * 1e9 } : {};
      const body = { client, request: explorer.request.body(request), objective, limit, sensitivity, machines, whole_run };
      const fail = (error) => state.abort === mine && parts.refuse(error);
      try {
        await explorer.ask.events("api/plan", {
          progress: (told) => state.abort === mine && parts.progress(told),
          plan: (answer) => state.abort === mine && parts.found((state.shown = answer)),
          error: (told) => fail(new explorer.ask.Refusal(told.message, told.field)),
        }, { body, signal: mine.signal });
      } catch (error) {
        if (error.name !== "AbortError") fail(error);
      }
      if (state.abort === mine) state.abort = null;
    }

    function stop() {
      clearTimeout(timer);
      if (state.abort) state.abort.abort();
      state.abort = null;
    }

    parts.on = {
      change(word, value) {
        state.request = explorer.request.changed(state.request, { [word]: value }, choices);
        changed();
      },
      set(name, value) {
        state[name] = value;
        changed();
      },
      search,
      cancel() {
        stop();
        parts.say("cancelled", "The search was cancelled.");
      },
    };
    return {
      root: parts.root,
      show(query) {
        read(state, query, choices);
        parts.show();
      },
      leave: stop,
    };
  };

  function read(state, query, choices) {
    const given = explorer.request.fromQuery(query);
    const begin = Object.fromEntries(["model", "cluster", "gbs"].map((word) => [word, choices.defaults[word]]));
    state.request = given.model || given.cluster ? given : begin;
    state.objective = query.get("objective") || "throughput";
    state.limits = query.getAll("limit");
    state.sensitivity = query.get("sensitivity") === "yes";
    for (const name of BUDGET) state[name] = query.get(name) || "";
  }

  function note(state) {
    const query = explorer.request.toQuery(state.request);
    query.set("objective", state.objective);
    for (const limit of state.limits) query.append("limit", limit);
    if (state.sensitivity) query.set("sensitivity", "yes");
    for (const name of BUDGET) if (state[name]) query.set(name, state[name]);
    explorer.route.amend("plan", query);
  }

  function build(choices, state) {
    const parts = { on: null };
    const controls = explorer.controls(choices, (word, value) => parts.on.change(word, value));
    const limits = explorer.limits((texts) => parts.on.set("limits", texts));
    const objective = element("select", { id: "plan-objective" },
      ...Object.entries(choices.objectives).map(([name, meaning]) => element("option", { value: name, title: meaning }, name)));
    const meaning = element("p", { class: "quiet" });
    objective.addEventListener("change", () => parts.on.set("objective", objective.value));
    const machines = element("input", { type: "checkbox", id: "plan-sensitivity" });
    machines.addEventListener("change", () => parts.on.set("sensitivity", machines.checked));
    const head = headOf(parts, state);
    const budget = {
      machines: element("input", { id: "plan-machines", type: "text", placeholder: "none", autocomplete: "off", spellcheck: "false" }),
      tokens: element("input", { id: "plan-tokens", type: "text", inputmode: "decimal", placeholder: "none", pattern: "[0-9.]*" }),
    };
    for (const name of BUDGET) budget[name].addEventListener("change", () => parts.on.set(name, budget[name].value.trim()));
    const aim = element("form", { class: "settings", "aria-label": "What to search for" },
      element("fieldset", {}, element("legend", {}, "Objective"),
        element("div", { class: "row row-pick" }, element("label", { for: objective.id }, "Best for"), objective), meaning,
        element("div", { class: "row row-switch" }, element("label", { for: machines.id }, "Would it still win on another machine?"), machines)),
      element("fieldset", {}, element("legend", {}, "Budget"),
        element("div", { class: "row row-pick", title: "Further machines, such as h100x64, 128xH200: GPUs, days, money, MWh and CO2 of each." },
          element("label", { for: "plan-machines" }, "Compare with"), budget.machines),
        element("div", { class: "row row-pick", title: "Tokens of the whole run; empty: a trillion tokens." },
          element("label", { for: "plan-tokens" }, "Run, G tokens"), budget.tokens)),
      limits.root);
    aim.addEventListener("submit", (event) => event.preventDefault());
    const about = element("p", { class: "quiet" }, "Fixed settings are below. Degrees, sharding, microbatch, recompute, overlap, schedule and caps on auto are searched; italics show their values in the best strategy.");
    const facts = () => {
      const known = explorer.settings.facts(choices, state.request, null);
      const cluster = choices.clusters.find((each) => each.name === state.request.cluster) || {};
      return { ...known, memory: cluster.memory_gib || 80 };
    };
    return Object.assign(parts, head, {
      controls,
      root: element("div", { class: "explore" }, element("aside", { "aria-label": "Settings" }, aim, about, controls.root),
        element("div", { class: "result" }, head.head, head.buttons, head.page)),
      show() {
        controls.show(state.request, state.shown ? state.shown.spec : null);
        limits.show(state.limits, facts());
        objective.value = state.objective;
        meaning.textContent = choices.objectives[state.objective] || "";
        machines.checked = state.sensitivity;
        for (const name of BUDGET) if (document.activeElement !== budget[name]) budget[name].value = state[name];
      },
    });
  }

  // How far the search is, its buttons, and the page of the plan.
  function headOf(parts, state) {
    const badge = element("span", { class: "mark" }, "not searched yet");
    const said = element("span", { class: "state", role: "status" }, "Set the job and its limits, then search.");
    const bar = element("progress", { hidden: "", "aria-label": "Progress of the search" });
    const head = element("div", { class: "result-head", "data-state": "idle" }, element("p", { class: "progress" }, badge, " ", said), bar);
    const page = element("div", { class: "sheet" });
    const make = (label, act) => {
      const made = element("button", { type: "button" }, label);
      made.addEventListener("click", act);
      return made;
    };
    const find = make("Find the best strategy", () => parts.on.search());
    const cancel = make("Cancel", () => parts.on.cancel());
    const open = make("Open the best in Explore", () => explorer.route.go("explore", explorer.request.toQuery(bestOf(state))));
    const say = (kind, text) => {
      head.dataset.state = page.dataset.state = kind === "searching" ? "waiting" : kind;
      badge.textContent = kind;
      said.textContent = text;
      bar.hidden = cancel.hidden = kind !== "searching";
      open.hidden = !state.shown || !bestOf(state);
    };
    cancel.hidden = open.hidden = true;
    return {
      head, page, say,
      buttons: element("div", { class: "buttons actions" }, find, cancel, open),
      progress({ title, done, total }) {
        Object.assign(bar, { max: total || 1, value: done });
        said.textContent = `${WORDS[title] || title}: ${charllm.count(done)} of ${charllm.count(total)}`;
      },
      found(answer) {
        say("coupled", `Found in ${charllm.number(answer.elapsed_s, 2)} s.`);
        badge.textContent = "found";
        charllm.page.show(page, answer.page, { contents: false });
        parts.show();
      },
      refuse(error) {
        say("refused", error.message);
        badge.textContent = "no plan";
        parts.controls.refuse(explorer.settings.blamed(error).length ? error : null);
      },
    };
  }
  const WORDS = { memory: "Dropping strategies that do not fit", rank: "Ranking strategies", simulate: "Simulating the best in full", sensitivity: "Trying other machines", machines: "Planning on each machine" };

  // The best strategy as a request of the explorer; null where it has a setting that the explorer does not know.
  function bestOf(state) {
    if (!state.shown.flags) return null;
    const flags = explorer.request.fromFlags(state.shown.flags);
    const job = Object.fromEntries(JOB.filter((word) => state.request[word] !== undefined).map((word) => [word, state.request[word]]));
    return flags && { ...job, ...flags };
  }
})(window.charllm);
