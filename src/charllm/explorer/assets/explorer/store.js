(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});
  const element = charllm.element;
  const COLUMNS = [
    { key: "title", label: "Name" },
    { key: "kind", label: "Kind" },
    { key: "origin", label: "Origin" },
    { key: "when", label: "When" },
    { key: "state", label: "State" },
    { key: "note", label: "Note" },
  ];
  const ASKED = { sort: "when", order: "descending", search: "", kind: "", origin: "" };
  const SHAPES = { simulated: "●", emulated: "▲", measured: "■" };

  // The runs and studies of the store: search, sort, filter, open one, compare several.
  explorer.store = function (root, query) {
    const state = { entries: [], chosen: new Set(), ...ASKED, ...Object.fromEntries(Object.keys(ASKED).filter((name) => query.has(name)).map((name) => [name, query.get(name)])) };
    const said = element("p", { class: "quiet", role: "status" }, "Reading the store ...");
    const tools = element("div", { class: "tools" });
    const table = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs and studies" });
    const skipped = element("section", {});
    root.replaceChildren(element("h1", {}, "Runs and studies"), tools, said, table, skipped);

    explorer.ask.json("api/store").then((found) => {
      Object.assign(state, { entries: found.entries, note: found.note || "" });
      tools.replaceChildren(...makeTools(state, show));
      showSkipped(skipped, found.skipped || []);
      show();
    }, (error) => (said.textContent = error.message));

    function show() {
      explorer.route.amend("runs", new URLSearchParams(Object.keys(ASKED).filter((name) => state[name] !== ASKED[name]).map((name) => [name, state[name]])));
      const rows = sorted(state.entries.filter((entry) => matches(entry, state)), state);
      said.textContent = state.entries.length ? `${rows.length} of ${state.entries.length} shown; ${state.chosen.size} selected.` : state.note || "The store is empty: `charllm simulate --out`, `charllm sweep --out` and `charllm measure --out` fill it.";
      table.replaceChildren(element("table", { class: "runs" }, element("thead", {}, heading(state, show)), element("tbody", {}, ...rows.map((entry) => row(entry, state, show)))));
      table.hidden = !state.entries.length;
      const compare = tools.querySelector("button.compare");
      if (compare) compare.disabled = state.chosen.size < 2;
    }
  };

  function makeTools(state, show) {
    const search = element("input", { id: "search", type: "search", placeholder: "model, cluster, path", value: state.search });
    search.addEventListener("input", () => {
      state.search = search.value;
      show();
    });
    const compare = element("button", { type: "button", class: "compare", disabled: "" }, "Compare selected");
    compare.addEventListener("click", () => {
      explorer.route.go("compare", new URLSearchParams([...state.chosen].map((path) => ["path", path])));
    });
    return [labelled("Search", search), filter(state, "kind", "Kind", show), filter(state, "origin", "Origin", show), compare];
  }

  const labelled = (label, input) => element("label", { for: input.id }, `${label} `, input);

  function filter(state, key, label, show) {
    const names = [...new Set(state.entries.map((entry) => entry[key]).filter(Boolean))].sort();
    const select = element("select", { id: `filter-${key}` }, element("option", { value: "" }, "all"), ...names.map((name) => element("option", { value: name }, name)));
    select.value = state[key];
    select.addEventListener("change", () => {
      state[key] = select.value;
      show();
    });
    return labelled(label, select);
  }

  const matches = (entry, { search, kind, origin }) =>
    (!kind || entry.kind === kind) && (!origin || entry.origin === origin) && [entry.title, entry.path, entry.note].join(" ").toLowerCase().includes(search.toLowerCase());

  function sorted(entries, { sort, order: way }) {
    const text = (entry) => String(entry[sort] === null || entry[sort] === undefined ? "" : entry[sort]);
    const order = typeof (entries[0] || {})[sort] === "number" ? (a, b) => a[sort] - b[sort] : (a, b) => text(a).localeCompare(text(b), "en", { numeric: true });
    const found = [...entries].sort(order);
    return way === "descending" ? found.reverse() : found;
  }

  function heading(state, show) {
    return element("tr", {}, element("th", { scope: "col" }, element("span", { class: "hidden-text" }, "Select")), ...COLUMNS.map(({ key, label }) => {
      const button = element("button", { type: "button", class: "plain" }, label, state.sort === key ? (state.order === "descending" ? " ▾" : " ▴") : "");
      button.addEventListener("click", () => {
        const turned = state.sort === key ? state.order === "ascending" : key === "when";
        Object.assign(state, { sort: key, order: turned ? "descending" : "ascending" });
        show();
        document.querySelector(`[data-sort="${key}"] button`).focus();
      });
      return element("th", { scope: "col", "data-sort": key, "aria-sort": state.sort === key ? state.order : "none" }, button);
    }));
  }

  function row(entry, state, show) {
    const box = element("input", { type: "checkbox", "aria-label": `Select ${entry.title || entry.path}` });
    box.checked = state.chosen.has(entry.path);
    box.disabled = ["study", "plan", "recording"].includes(entry.kind);
    box.addEventListener("change", () => {
      state.chosen[box.checked ? "add" : "delete"](entry.path);
      show();
      const again = document.querySelector(`input[data-path="${CSS.escape(entry.path)}"]`);
      if (again) again.focus();
    });
    box.dataset.path = entry.path;
    const running = entry.kind === "recording" && entry.state !== "ended";
    const link = element("a", { href: explorer.route.href(running ? "live" : "run", new URLSearchParams({ path: entry.path })) }, entry.title || entry.path);
    const name = element("td", {}, link, ...(entry.title && entry.title !== entry.path ? [element("small", { class: "path" }, entry.path)] : []));
    const origin = element("td", { class: "short" }, ...(entry.origin ? [element("span", { class: `shape ${entry.origin}`, "aria-hidden": "true" }, SHAPES[entry.origin] || "◆"), ` ${entry.origin}`] : []));
    const short = (text) => element("td", { class: "short" }, text || "");
    const rest = (text) => element("td", {}, text === null || text === undefined ? "" : String(text));
    return element("tr", {}, element("td", {}, box), name, short(entry.kind), origin, short(moment(entry.when)), short(entry.state), rest(entry.note));
  }

  // A moment as the reader's clock shows it.
  function moment(when) {
    if (when === null || when === undefined || when === "") return "";
    const date = new Date(typeof when === "number" ? when * 1000 : when);
    if (Number.isNaN(date.getTime())) return String(when);
    const two = (part) => String(part).padStart(2, "0");
    return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
  }

  function showSkipped(root, skipped) {
    if (!skipped.length) return;
    root.replaceChildren(element("h2", {}, "Skipped"), element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Skipped folders" }, element("table", {},
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Folder"), element("th", { scope: "col" }, "Reason"))),
      element("tbody", {}, ...skipped.map((each) => element("tr", {}, element("td", {}, each.path), element("td", {}, each.reason)))))));
  }

  // The page of one stored run or study, or of several side by side.
  explorer.stored = function (root, paths, compare) {
    const query = new URLSearchParams(paths.map((path) => ["path", path]));
    const said = element("p", { class: "quiet", role: "status" }, compare ? "Comparing ..." : "Opening ...");
    const back = element("p", {}, element("a", { href: "#runs" }, "All runs and studies"));
    const page = element("div", { class: "sheet" });
    root.replaceChildren(back, said, page);
    return explorer.ask.json(`api/store/${compare ? "compare" : "page"}?${query}`).then((found) => {
      said.textContent = "";
      charllm.page.show(page, found);
      document.title = `${found.title} - charllm`;
    }, (error) => {
      said.textContent = error.message;
      said.className = "refusal";
    });
  };
})(window.charllm);
