(function (charllm) {
  "use strict";
  const { element } = charllm;

  // Heights that drawings have before they are drawn, so that a page hardly moves when they are.
  const HEIGHTS = {
    "stacked-bars": 320,
    timeline: 640,
    bands: 420,
    "node-map": 360,
    scatter: 460,
    multiples: 420,
    tornado: 360,
    sides: 360,
    table: 320,
    commands: 120,
  };
  const AHEAD = "600px";

  // One figure with its heading, drawing, caption, and the table behind it.
  charllm.figure = function (data) {
    const drawing = element("div", { class: "drawing", "data-kind": data.kind });
    const made = element(
      "figure",
      { id: data.name, "aria-labelledby": `${data.name}-title` },
      element("h3", { id: `${data.name}-title` }, data.question),
    );
    if (data.missing) {
      made.append(element("p", { class: "missing" }, charllm.heading({ label: data.missing })));
      return made;
    }
    drawing.charllmFigure = data;
    drawing.style.minHeight = `${HEIGHTS[data.kind] || 320}px`;
    const caption = element(
      "figcaption",
      {},
      element("p", { class: "message" }, data.message),
      data.conditions ? element("p", { class: "conditions" }, data.conditions) : null,
    );
    made.append(drawing, caption, tools(data, made));
    return made;
  };

  // Buttons of a figure: the table behind it, and its CSV; one of each for every table.
  function tools(data, made) {
    const own = Object.entries(data.tables || {});
    const tables = (own.length ? own : [["", data.columns]]).filter(([, columns]) => Object.keys(columns || {}).length);
    const bar = element("div", { class: "tools" });
    if (data.kind !== "table" && tables.length) bar.append(tableButton(data, tables, made));
    for (const [name, columns] of tables) {
      const word = name ? ` of ${name}` : "";
      const csv = element("button", { type: "button" }, `CSV${word}`);
      csv.setAttribute("aria-label", `Download CSV${word}: ${data.question}`);
      csv.addEventListener("click", () =>
        charllm.download(`${[data.name, name].filter(Boolean).join("-")}.csv`, charllm.csv(charllm.columns(columns))),
      );
      bar.append(csv);
    }
    return bar;
  }

  function tableButton(data, tables, made) {
    const button = element(
      "button",
      { type: "button", "aria-expanded": "false", "aria-label": `Table: ${data.question}` },
      "Table",
    );
    let box = null;
    button.addEventListener("click", () => {
      box =
        box ||
        made.appendChild(
          element(
            "div",
            { class: "behind", hidden: true },
            ...tables.map(([name, columns]) => tableOf(name, columns, data)),
          ),
        );
      box.hidden = !box.hidden;
      button.setAttribute("aria-expanded", String(!box.hidden));
    });
    return button;
  }

  function tableOf(name, columns, data) {
    const grid = charllm.grid(charllm.columns(columns), [name, data.question].filter(Boolean).join(": "));
    return element(
      "div",
      {},
      element("p", { class: "count" }, [name, grid.show(null)].filter(Boolean).join(": ")),
      grid.box,
    );
  }

  // Draw a figure once; a drawing that fails says so and leaves the others alone.
  charllm.figure.draw = function (drawing) {
    if (!drawing.charllmDrawn) redraw(drawing);
  };

  function redraw(drawing) {
    const data = drawing.charllmFigure;
    drawing.charllmDrawn = true;
    try {
      if (!charllm.draw[data.kind]) throw new Error(`no drawing of kind ${data.kind}`);
      charllm.draw[data.kind](drawing, data);
    } catch (error) {
      console.error(error);
      charllm.clear(drawing);
      drawing.append(
        element("p", { class: "missing" }, `This figure could not be drawn: ${error.message}. Its table is below.`),
      );
    }
    drawing.charllmWidth = drawing.clientWidth;
    drawing.style.minHeight = "";
  }
  charllm.figure.redraw = redraw;

  // Whether a drawing stands in a part of the page that is closed.
  const isFolded = (drawing) => drawing.closest("details:not([open])") !== null;
  charllm.figure.isFolded = isFolded;

  // Figures are drawn when they come near, the rest when nothing else is to do, all of them before printing.
  charllm.figure.drawLazily = function (root, body) {
    const drawings = [...body.querySelectorAll(".drawing")];
    const near = new IntersectionObserver(
      (entries) =>
        entries.filter((entry) => entry.isIntersecting).forEach((entry) => charllm.figure.draw(entry.target)),
      { rootMargin: AHEAD },
    );
    const sizes = new ResizeObserver((entries) =>
      entries.forEach(({ target }) => {
        if (target.charllmDrawn && target.clientWidth && Math.abs(target.clientWidth - target.charllmWidth) > 1)
          requestAnimationFrame(() => redraw(target));
      }),
    );
    drawings.forEach((drawing) => {
      near.observe(drawing);
      sizes.observe(drawing);
    });
    const later = (action) =>
      window.requestIdleCallback ? requestIdleCallback(action, { timeout: 100 }) : setTimeout(action, 30);
    const next = () => {
      const waiting = drawings.find((drawing) => !drawing.charllmDrawn && !isFolded(drawing));
      if (!waiting || !waiting.isConnected) return;
      charllm.figure.draw(waiting);
      later(next);
    };
    later(next);
    // Events of parts that open and close do not bubble, hence caught on their way down.
    body.addEventListener("toggle", () => later(next), true);
    // What is folded away is drawn again when it is opened.
    const again = () => {
      for (const drawing of drawings) {
        if (isFolded(drawing)) drawing.charllmDrawn = false;
        else redraw(drawing);
      }
    };
    document.addEventListener("charllm-theme", again);
    charllm.undo(root, () => {
      near.disconnect();
      sizes.disconnect();
      document.removeEventListener("charllm-theme", again);
    });
  };
})(window.charllm);
