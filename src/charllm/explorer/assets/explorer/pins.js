(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});
  const { SETTINGS, resolved } = explorer.settings;
  const { METRICS, metric, delta, known } = explorer.numbers;
  const element = charllm.element;
  const KEPT = "charllm-pins";
  const MOST = 8;
  const SHAPES = { simulated: "●", emulated: "▲", measured: "■" };

  // Answers that are kept side by side, at most eight. The address names their requests; the session keeps their answers,
  // and a link that is opened elsewhere asks for them again.
  explorer.pins = function (client, { changed, open }) {
    const kept = read();
    let [requests, fetching] = [[], false];
    const table = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Pinned answers" });
    const said = element("p", { class: "quiet", role: "status" });
    const count = element("span", {});
    const folded = element("details", { open: true }, element("summary", {}, element("h2", {}, "Pinned answers"), count), table);
    const root = element("section", { class: "panel kept", "aria-label": "Pinned answers" }, folded, said);

    const key = explorer.request.key;
    const has = (request) => requests.some((each) => key(each) === key(request));

    function add(request, answer, spec) {
      if (has(request)) return say("This answer is pinned already.");
      if (requests.length >= MOST) return say(`At most ${MOST} answers can be pinned: remove one first.`);
      requests = [...requests, request];
      folded.open = requests.length > 1;
      keep(request, answer, spec);
      say(`Pinned as ${requests.length}.`);
      changed();
    }

    function keep(request, answer, spec) {
      const settings = Object.fromEntries(SETTINGS.map((each) => [each.word, text(resolved(each, spec))]));
      kept[key(request)] = { metrics: Object.fromEntries(METRICS.map((each) => [each.name, answer.metrics[each.name]])), settings, fits: answer.metrics.fits, origin: "simulated" };
      write(kept, requests.map(key));
      show();
    }

    function remove(at) {
      requests = requests.filter((_, place) => place !== at);
      write(kept, requests.map(key));
      show();
      const buttons = table.querySelectorAll("button.remove");
      if (buttons.length) buttons[Math.min(at, buttons.length - 1)].focus();
      say("Removed.");
      changed();
    }

    function say(words) {
      said.textContent = words;
    }

    function show() {
      root.hidden = !requests.length;
      count.textContent = requests.length === 1 ? "1: pin another to compare" : String(requests.length);
      if (requests.length) table.replaceChildren(compare(requests, requests.map((each) => kept[key(each)]), { remove, open }));
    }

    // Show the pins of the address; those whose answer is not at hand are asked for, one after the other.
    async function restore(asked) {
      requests = asked.slice(0, MOST);
      show();
      if (fetching) return;
      fetching = true;
      const failed = new Set();
      const missing = () => requests.find((each) => !kept[key(each)] && !failed.has(key(each)));
      for (let next = missing(); next; next = missing()) {
        await fetchPin(next);
        if (!kept[key(next)]) failed.add(key(next));
      }
      fetching = false;
    }

    async function fetchPin(request) {
      let spec = null;
      try {
        await explorer.ask.events("api/answers", {
          fast: (answer) => (spec = answer.spec),
          coupled: (answer) => has(request) && keep(request, answer, spec || answer.spec),
          error: (error) => say(error.message),
        }, { body: { client: `${client}-pins`, request: explorer.request.body(request), coupled: true } });
      } catch (error) {
        say(error.message);
      }
    }

    show();
    return { root, add, restore, requests: () => requests };
  };

  const text = (value) => (value === undefined || value === null ? "–" : Array.isArray(value) ? value.join(",") || "none" : typeof value === "number" ? charllm.number(value) : String(value));

  function compare(requests, answers, { remove, open }) {
    const heads = requests.map((request, at) => head(at, answers[at], () => remove(at), () => open(request)));
    const differ = SETTINGS.filter(({ word }) => new Set(answers.map((each) => (each ? each.settings[word] : ""))).size > 1);
    const settings = differ.map((each) => row(each.label, answers.map((answer) => cell(answer ? answer.settings[each.word] : ""))));
    const metrics = METRICS.map((each) => row(each.unit ? `${each.title}, ${each.unit}` : each.title, answers.map((answer, at) => value(each, answer, at ? answers[0] : null))));
    return element("table", {},
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Answer"), ...heads)),
      element("tbody", {}, ...settings),
      element("tbody", {}, ...metrics));
  }

  function head(at, answer, onRemove, onOpen) {
    const origin = answer ? answer.origin : "simulated";
    const opener = element("button", { type: "button", class: "plain", "aria-label": `Open pinned answer ${at + 1}` }, "Open");
    const remover = element("button", { type: "button", class: "plain remove", "aria-label": `Remove pinned answer ${at + 1}` }, "Remove");
    opener.addEventListener("click", onOpen);
    remover.addEventListener("click", onRemove);
    return element("th", { scope: "col" }, element("span", { class: `shape ${origin}`, "aria-hidden": "true" }, SHAPES[origin]), ` ${at + 1} `,
      element("small", {}, answer ? origin : "asking ..."), element("div", { class: "buttons" }, opener, remover));
  }

  const row = (label, cells) => element("tr", {}, element("th", { scope: "row" }, label), ...cells);
  const cell = (content) => element("td", {}, content);

  function value(each, answer, base) {
    if (!answer) return cell("");
    if (!known(answer.metrics[each.name])) return cell(answer.fits === false ? "does not fit" : "–");
    const made = element("td", {}, metric({ ...each, unit: "" }, answer.metrics));
    const found = base && delta(each, answer.metrics, base.metrics);
    if (found) {
      const shown = element("small", {});
      explorer.showDelta(shown, found);
      made.append(" ", shown);
    }
    return made;
  }

  function read() {
    try {
      return JSON.parse(sessionStorage.getItem(KEPT)) || {};
    } catch {
      return {};
    }
  }

  function write(kept, keys) {
    for (const each of Object.keys(kept)) if (!keys.includes(each)) delete kept[each];
    try {
      sessionStorage.setItem(KEPT, JSON.stringify(kept));
    } catch {
      // Pins still stand in the address.
    }
  }
})(window.charllm);
