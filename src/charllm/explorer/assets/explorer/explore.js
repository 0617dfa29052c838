(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});
  const element = charllm.element;
  const SETTLED_MS = 300;
  const READ_MS = 600;

  // Pick a model and a cluster, move settings, see what the run would do.
  explorer.explore = function (choices, client) {
    const state = { request: {}, spec: null, shown: null, base: null };
    const parts = build(state, choices, client);
    let timer = 0;

    function settle() {
      clearTimeout(timer);
      timer = setTimeout(() => {
        const address = query(state.request, parts.pins.requests());
        explorer.route.note("explore", address);
        document.querySelector("nav a[href^='#explore']").setAttribute("href", explorer.route.href("explore", address));
      }, SETTLED_MS);
    }

    parts.change = (word, value) => ask(explorer.request.changed(state.request, { [word]: value }, choices));
    parts.apply = (request) => ask(request);
    // Degrees that an offer leaves alone stay as they are.
    parts.offered = (change) => ask(explorer.request.changed(state.request, change));
    parts.noted = settle;

    function ask(request) {
      if (state.shown && state.shown.coupled && performance.now() - state.shown.since > READ_MS) state.shown.read = true;
      state.request = request;
      parts.controls.show(request, state.spec);
      settle();
      parts.answers.ask(request);
    }

    return {
      root: parts.root,
      // Show what the address asks for.
      show(asked) {
        const given = explorer.request.fromQuery(asked);
        const request = given.model || given.cluster ? { ...pickDefaults(choices, ["model", "cluster"]), ...given } : pickDefaults(choices);
        parts.pins.restore(asked.getAll("pin").map((each) => explorer.request.fromQuery(new URLSearchParams(each))));
        ask(request);
      },
      leave() {
        clearTimeout(timer);
        parts.answers.stop();
        parts.changes.clear();
      },
    };
  };

  function query(request, pins) {
    const made = explorer.request.toQuery(request);
    for (const pin of pins) made.append("pin", explorer.request.key(pin));
    for (const [name, value] of explorer.route.read().query) if (name.startsWith("figure-")) made.append(name, value);
    return made;
  }

  // What is shown before anything was chosen: the server's example.
  function pickDefaults(choices, words = ["model", "cluster", "tp", "pp", "gbs"]) {
    const given = words.filter((word) => choices.defaults[word] !== undefined && choices.defaults[word] !== null);
    return Object.fromEntries(given.map((word) => [word, choices.defaults[word]]));
  }

  function build(state, choices, client) {
    const parts = { change: null, apply: null, offered: null, noted: null };
    parts.controls = explorer.controls(choices, (word, value) => parts.change(word, value));
    parts.pins = explorer.pins(client, { changed: () => parts.noted(), open: (request) => parts.apply(request) });
    parts.changes = explorer.changes(client, (request) => parts.apply(request));
    parts.command = explorer.command();
    parts.answer = explorer.answer((change) => parts.offered(change));
    parts.answers = explorer.answers(client, hear(state, parts));
    const buttons = element("div", { class: "buttons actions" }, ...actions(state, parts));
    parts.root = element("div", { class: "explore" },
      element("aside", { "aria-label": "Settings" }, parts.controls.root),
      element("div", { class: "result" }, parts.answer.head, buttons, parts.command.root, parts.changes.root, parts.pins.root, parts.answer.page));
    return parts;
  }

  // What the buttons above an answer do.
  function actions(state, parts) {
    const make = (label, act) => {
      const made = element("button", { type: "button" }, label);
      made.addEventListener("click", act);
      return made;
    };
    const pin = make("Pin", () => state.shown && state.shown.coupled && parts.pins.add(state.shown.request, state.shown.coupled, state.spec));
    const help = make("What would help?", () => parts.changes.ask(state.request));
    const copy = make("Copy as command", () => {
      parts.command.root.hidden = !parts.command.root.hidden;
      copy.setAttribute("aria-expanded", String(!parts.command.root.hidden));
      parts.command.show(state.request);
    });
    copy.setAttribute("aria-expanded", "false");
    pin.disabled = true;
    parts.allow = (coupled) => (pin.disabled = !coupled);
    return [pin, help, copy];
  }

  // The answer that differences are shown against: the last one that could be read, not one that a moving slider passed.
  function nextBase({ shown, base }, request) {
    return shown && shown.read && explorer.request.key(shown.request) !== explorer.request.key(request) ? shown : base;
  }

  // What happens as answers arrive.
  function hear(state, parts) {
    const forget = (request) => {
      parts.allow(false);
      parts.changes.clear();
      if (!parts.command.root.hidden) parts.command.show(request);
    };
    return {
      waiting(request) {
        forget(request);
        parts.answer.wait();
      },
      fast(request, answer) {
        forget(request);
        parts.controls.refuse(null);
        state.spec = answer.spec;
        state.base = nextBase(state, request);
        state.shown = { request, fast: answer, coupled: null };
        if (explorer.request.key(state.request) === explorer.request.key(request)) parts.controls.show(request, answer.spec);
        parts.answer.fast(state.shown, state.base);
      },
      coupled(request, answer) {
        state.shown = { ...state.shown, request, coupled: answer, since: performance.now() };
        parts.allow(true);
        parts.answer.coupled(state.shown, state.base);
      },
      refused(request, error) {
        parts.controls.refuse(error);
        parts.answer.refuse(error);
      },
    };
  }
})(window.charllm);
