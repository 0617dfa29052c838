(function (charllm) {
  "use strict";
  const { element, svg } = charllm;

  const NEAR = 28;
  const MOST_PINS = 4;
  const ELSEWHERE = 1e5;
  const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

  // Let marks of a drawing be read: by pointer, by keys, and pinned below it.
  // A mark is {x, y, width, height} in the drawing (width and height 0: a point), a title, lines [[name, value]], and details.
  charllm.read = function (frame, marks, options) {
    const settings = { near: false, pins: true, ...options };
    const state = {
      frame,
      marks,
      settings,
      active: -1,
      cursor: frame.svg.appendChild(svg("g", { class: "cursor" })),
      spoken: frame.box.appendChild(element("div", { class: "hidden-text", "aria-live": "polite" })),
    };
    const find = settings.near ? nearest(marks) : under(marks);
    frame.svg.addEventListener("pointermove", (event) => activate(state, find(place(frame, event)), false));
    frame.svg.addEventListener("pointerleave", () => activate(state, -1, false));
    frame.svg.addEventListener("click", (event) => pin(state, find(place(frame, event))));
    frame.box.addEventListener("keydown", (event) => onKey(state, event));
    frame.box.addEventListener("blur", () => activate(state, -1, false));
    charllm.undo(frame.root, charllm.tip.hide);
    if (settings.pins) {
      state.pins = charllm.pins(settings.pinned || frame.root, frame.root, frame.box, (keys) => {
        for (const mark of marks) if (mark.node) mark.node.classList.toggle("pinned", keys.has(mark.key));
      });
    }
    return state;
  };

  function place(frame, event) {
    const box = frame.svg.getBoundingClientRect();
    return [
      ((event.clientX - box.left) * frame.width) / box.width,
      ((event.clientY - box.top) * frame.height) / box.height,
    ];
  }

  const under =
    (marks) =>
    ([x, y]) =>
      marks.findLastIndex(
        (mark) => !mark.hidden && x >= mark.x && x <= mark.x + mark.width && y >= mark.y && y <= mark.y + mark.height,
      );

  function nearest(marks) {
    return ([x, y]) => {
      let best = -1;
      let least = NEAR * NEAR;
      marks.forEach((mark, at) => {
        const far = (mark.x - x) ** 2 + (mark.y - y) ** 2;
        if (!mark.hidden && far < least) [best, least] = [at, far];
      });
      return best;
    };
  }

  function activate(state, at, spoken) {
    if (at === state.active && !spoken) return;
    state.active = at;
    state.cursor.replaceChildren();
    const mark = state.marks[at];
    if (state.settings.onActive) state.settings.onActive(mark || null);
    if (!mark) return charllm.tip.hide();
    state.cursor.append(outline(mark));
    const box = state.frame.svg.getBoundingClientRect();
    charllm.tip.show(mark, box.left + mark.x + mark.width / 2, box.top + mark.y, mark.height);
    if (spoken) state.spoken.textContent = [mark.title, ...mark.lines.map((line) => line.join(": "))].join(", ");
  }

  const outline = (mark) =>
    mark.width
      ? svg("rect", { x: mark.x - 1.5, y: mark.y - 1.5, width: mark.width + 3, height: mark.height + 3, rx: 3 })
      : svg("circle", { cx: mark.x, cy: mark.y, r: 10 });

  function onKey(state, event) {
    if (event.key in ARROWS) move(state, step(state, ARROWS[event.key]));
    else if (event.key === "Home")
      move(
        state,
        state.marks.findIndex((mark) => !mark.hidden),
      );
    else if (event.key === "End")
      move(
        state,
        state.marks.findLastIndex((mark) => !mark.hidden),
      );
    else if (event.key === "Enter" || event.key === " ") pin(state, state.active);
    else if (event.key === "Escape") activate(state, -1, false);
    else return;
    event.preventDefault();
  }

  function move(state, at) {
    if (at >= 0) activate(state, at, true);
  }

  // The nearest mark in a direction; marks of the same row or column come first.
  function step(state, [across, down]) {
    const here = state.marks[state.active];
    if (!here) return state.marks.findIndex((mark) => !mark.hidden);
    let best = state.active;
    let least = Infinity;
    state.marks.forEach((mark, at) => {
      if (mark.hidden || at === state.active) return;
      const ahead = (middle(mark)[0] - middle(here)[0]) * across + (middle(mark)[1] - middle(here)[1]) * down;
      const aside = across
        ? gap(here.y, here.height, mark.y, mark.height)
        : gap(here.x, here.width, mark.x, mark.width);
      const far =
        ahead +
        (here.width && aside ? ELSEWHERE : 0) +
        4 * aside +
        0.1 * Math.abs(across ? middle(mark)[1] - middle(here)[1] : middle(mark)[0] - middle(here)[0]);
      if (ahead > 0.01 && far < least) [best, least] = [at, far];
    });
    return best;
  }

  // How far two stretches are from each other; 0 where they overlap.
  const gap = (start, length, other, otherLength) =>
    Math.max(0, other - (start + length), start - (other + otherLength));

  const middle = (mark) => [mark.x + mark.width / 2, mark.y + mark.height / 2];

  function pin(state, at) {
    if (!state.marks[at]) return;
    if (state.settings.onPick) state.settings.onPick(state.marks[at]);
    else if (state.settings.pins) state.pins.toggle(state.marks[at]);
  }

  // Cards below a drawing that keep what was read. They outlive a redraw: what is pinned is kept on the drawing's element.
  charllm.pins = function (root, below, box, onChange) {
    const cards = below.appendChild(element("div", { class: "pins" }));
    root.charllmPins = root.charllmPins || [];
    const show = () => {
      cards.replaceChildren(
        ...root.charllmPins.map((mark) =>
          card(mark, () => {
            toggle(mark);
            box.focus();
          }),
        ),
        ...apart(root.charllmPins.filter((mark) => mark.details)),
      );
      if (onChange) onChange(new Set(root.charllmPins.map((mark) => mark.key)));
    };
    const toggle = (mark) => {
      const others = root.charllmPins.filter((one) => one.key !== mark.key);
      const { key, title, lines, details, note } = mark;
      root.charllmPins =
        others.length < root.charllmPins.length
          ? others
          : [...others, { key, title, lines, details, note }].slice(-MOST_PINS);
      show();
    };
    show();
    return { toggle };
  };

  function card(mark, close) {
    const button = element("button", { type: "button", class: "plain", "aria-label": `Unpin ${mark.title}` }, "Unpin");
    button.addEventListener("click", close);
    return element(
      "section",
      { class: "pin", "aria-label": `Pinned: ${mark.title}` },
      element("header", {}, element("strong", {}, mark.title), button),
      lines(mark.lines),
      mark.note ? element("p", {}, mark.note) : null,
      mark.details ? lines(Object.entries(mark.details).map(([name, value]) => [name, charllm.text(value)])) : null,
    );
  }

  // The settings in which pinned marks differ, beside each other; the command of each says all of them and is left out.
  function apart(marks) {
    if (marks.length < 2) return [];
    const names = [...new Set(marks.flatMap((mark) => Object.keys(mark.details)))].filter(
      (name) => name !== "command" && new Set(marks.map((mark) => mark.details[name])).size > 1,
    );
    const head = element(
      "tr",
      {},
      element("th", { scope: "col" }, "setting"),
      ...marks.map((mark) => element("th", { scope: "col" }, mark.title)),
    );
    const rows = names.map((name) =>
      element(
        "tr",
        {},
        element("th", { scope: "row" }, name),
        ...marks.map((mark) => element("td", {}, charllm.text(mark.details[name]))),
      ),
    );
    const table = element(
      "table",
      {},
      element("caption", {}, names.length ? "Settings that differ" : "All settings are equal"),
      element("thead", {}, head),
      element("tbody", {}, ...rows),
    );
    return [
      element("div", { class: "apart", tabindex: 0, role: "region", "aria-label": "Settings that differ" }, table),
    ];
  }

  const lines = (found) =>
    element("dl", {}, ...found.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));

  // The one tip of a document: a title and lines, above or below a point of the window, or beside it.
  charllm.tip = {
    show(mark, x, y, height, beside) {
      const tip =
        charllm.tip.node ||
        (charllm.tip.node = document.body.appendChild(element("div", { class: "tip", role: "tooltip" })));
      tip.replaceChildren(
        element("strong", {}, mark.title),
        lines(mark.lines),
        mark.note ? element("p", {}, mark.note) : "",
      );
      tip.hidden = false;
      const own = tip.getBoundingClientRect();
      const room = document.documentElement.clientWidth - own.width - 8;
      const wanted = !beside ? x - own.width / 2 : x + 18 <= room ? x + 18 : x - own.width - 18;
      const left = Math.max(8, Math.min(wanted, room));
      const above = y - own.height - 12;
      const top = beside ? Math.max(8, y) : above >= 8 ? above : y + (height || 0) + 14;
      tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
    },
    hide() {
      if (charllm.tip.node) charllm.tip.node.hidden = true;
    },
  };
  window.addEventListener("scroll", charllm.tip.hide, { passive: true });
})(window.charllm);
