(function (charllm) {
  "use strict";
  const { element } = charllm;

  const BATCH = 200;
  const MOST_PRINTED = 2000;
  const SHORT = 24;
  const LONG = 40;

  // A table that can be searched, filtered and sorted; what was chosen stands in the address.
  charllm.draw.table = function (root, figure) {
    charllm.clear(root);
    const options = figure.options || {};
    const columns = charllm.columns(figure.columns);
    const names = Object.keys(columns);
    if (!names.length) return charllm.nothing(root);
    const controls = element("div", { class: "controls" });
    const count = element("p", { class: "count", role: "status" });
    const grid = charllm.grid(columns, figure.question);
    const tests = [];
    const apply = () => count.replaceChildren(grid.show((row) => tests.every((test) => test(row))));
    if (options.search) tests.push(search(controls, figure.name, columns, apply));
    for (const name of options.filters || []) {
      if (columns[name]) tests.push(charllm.filter(controls, figure.name, name, columns[name], apply));
    }
    if (tests.length) root.append(controls, count);
    if (!tests.length) grid.box.classList.add("whole");
    root.append(grid.box);
    apply();
  };

  function search(controls, figure, columns, apply) {
    const key = `${figure}.search`;
    const field = element("input", { type: "search", value: charllm.address.read(key) || "", autocomplete: "off" });
    controls.append(element("label", {}, "Search", field));
    field.addEventListener("input", () => {
      charllm.address.write(key, field.value);
      apply();
    });
    return (row) => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      const text = Object.keys(columns)
        .map((name) => charllm.text(row[name], columns[name]))
        .join(" ")
        .toLowerCase();
      return words.every((word) => text.includes(word));
    };
  }

  // A scrolling table of any length: rows are added as they come into view. show(test) returns a sentence that counts them.
  charllm.grid = function (columns, caption) {
    const all = charllm.rows(columns);
    const state = { columns, rows: all, shown: 0, sorted: null, body: element("tbody") };
    const heads = Object.entries(columns).map(([name, column]) => head(state, name, column));
    const table = element(
      "table",
      {},
      element("caption", { class: "hidden-text" }, caption || "Table"),
      element("thead", {}, element("tr", {}, ...heads)),
      state.body,
    );
    const box = element(
      "div",
      { class: "table-box", tabindex: 0, role: "region", "aria-label": `Table: ${caption || ""}` },
      table,
    );
    box.addEventListener(
      "scroll",
      () => {
        if (box.scrollTop + box.clientHeight > box.scrollHeight - 400) extend(state);
      },
      { passive: true },
    );
    const print = () => (state.body.isConnected ? extend(state) : document.removeEventListener("charllm-theme", print));
    document.addEventListener("charllm-theme", print);
    state.show = (test) => {
      state.test = test;
      state.rows = sorted(state, test ? all.filter(test) : all);
      state.body.replaceChildren();
      state.shown = 0;
      extend(state);
      return state.rows.length === all.length
        ? `${charllm.count(all.length)} rows`
        : `${charllm.count(state.rows.length)} of ${charllm.count(all.length)} rows`;
    };
    return { box, show: state.show };
  };

  function head(state, name, column) {
    const button = element("button", { type: "button", class: "sort" }, charllm.heading(column));
    const cell = element("th", { scope: "col", class: isNumeric(column) ? "number" : "" }, button);
    button.addEventListener("click", () => {
      const down = cell.getAttribute("aria-sort") === "ascending";
      for (const other of cell.parentNode.children) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      state.sorted = { name, down };
      state.show(state.test);
    });
    return cell;
  }

  const isNumeric = (column) => {
    const known = column.values.find((value) => value !== null && value !== undefined);
    return typeof known === "number";
  };

  // Missing values stand last whichever way a table is sorted.
  function sorted(state, rows) {
    if (!state.sorted) return rows;
    const { name, down } = state.sorted;
    const missing = (value) => value === null || value === undefined;
    return [...rows].sort((one, other) => {
      const [a, b] = [one[name], other[name]];
      if (missing(a) || missing(b)) return Number(missing(a)) - Number(missing(b));
      const order =
        typeof a === "number" && typeof b === "number"
          ? a - b
          : String(a).localeCompare(String(b), "en", { numeric: true });
      return down ? -order : order;
    });
  }

  function extend(state) {
    const more = document.documentElement.classList.contains("on-paper")
      ? Math.max(0, MOST_PRINTED - state.shown)
      : BATCH;
    const next = state.rows.slice(state.shown, state.shown + more);
    state.shown += next.length;
    const entries = Object.entries(state.columns);
    state.body.append(
      ...next.map((row) => element("tr", {}, ...entries.map(([name, column]) => cell(row[name], column)))),
    );
  }

  function cell(value, column) {
    const isObject = value !== null && typeof value === "object";
    const text = isObject
      ? Object.entries(value)
          .map(([name, part]) => `${name}: ${charllm.text(part)}`)
          .join("; ")
      : charllm.text(value, column);
    const size = text.length <= SHORT ? "short" : text.length > LONG ? "long" : "";
    return element("td", { class: typeof value === "number" ? "number" : size }, text);
  }
})(window.charllm);
