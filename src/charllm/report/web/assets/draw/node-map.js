(function (charllm) {
  "use strict";
  const { element, svg, styled } = charllm;

  const GAP = 10;
  const BETWEEN = 28;
  const CELL = [52, 76];

  // Nodes as they stand: GPUs in their rows, air from front to rear, a number in each cell, a ring around the one that paces.
  charllm.draw["node-map"] = function (root, figure) {
    charllm.clear(root);
    const options = figure.options;
    const columns = charllm.columns(figure.columns);
    const rows = charllm.rows(columns);
    const extent = charllm.extent(rows.map((row) => row[options.value]));
    if (!rows.length) return charllm.nothing(root);
    const colour = d3.scaleSequential(
      extent && extent[0] < extent[1] ? extent : [extent ? extent[0] - 1 : 0, extent ? extent[1] + 1 : 1],
      d3.interpolateCividis,
    );
    const nodes = [...charllm.groups(rows, "node")];
    const shown = root.charllmAll ? nodes.length : Math.min(nodes.length, options.nodes_shown || nodes.length);
    const paced = rows.some((row) => row.ring);
    root.append(scaleBar(extent, options, paced));
    drawNodes(root, figure, nodes.slice(0, shown), colour, columns, false);
    if (nodes.length > shown) rest(root, figure, nodes.slice(shown), colour, columns);
    if (options.more) root.append(element("p", { class: "count" }, options.more));
  };

  // The rest: small, without numbers; a button draws every node in full.
  function rest(root, figure, nodes, colour, columns) {
    const button = element("button", { type: "button" }, "Show all nodes in full");
    button.addEventListener("click", () => {
      root.charllmAll = true;
      charllm.draw["node-map"](root, figure);
      root.querySelector(".chart").focus();
    });
    root.append(
      element(
        "div",
        { class: "rest" },
        element("p", { class: "count" }, `The other ${nodes.length} nodes, small; hover for their numbers.`),
        button,
      ),
    );
    drawNodes(root, figure, nodes, colour, columns, true);
  }

  function drawNodes(root, figure, nodes, colour, columns, small) {
    const layout = arrange(root, nodes, figure.options, small);
    const frame = charllm.frame(root, figure, layout.height, "Arrow keys move between GPUs, Enter pins one.");
    const marks = nodes.flatMap(([name, rows], at) => {
      const [left, top] = layout.corner(at);
      frame.svg.append(
        charllm.label(
          nodeName(name),
          left,
          top + (small ? 10 : 14),
          { class: small ? "tick" : "strong" },
          layout.width,
        ),
      );
      if (!small) drawAir(frame, layout, left, top, figure.options);
      if (!small) drawGroups(frame, layout, left, top, rows, columns);
      return rows.map((row) => drawCell(frame, layout, left, top, row, colour, columns, figure.options, name, small));
    });
    charllm.read(frame, marks, { pins: !small });
  }

  const nodeName = (name) => (/^\d+$/.test(name) ? `node ${name}` : name);

  function arrange(root, nodes, options, small) {
    const all = nodes.flatMap(([, rows]) => rows);
    const across = 1 + (d3.max(all, (row) => row.place) || 0);
    const deep = 1 + (d3.max(all, (row) => row.row) || 0);
    const room = charllm.width(root);
    const air = small || !options.airflow ? 0 : 64;
    const [cell, tall, gap] = small ? [11, 11, 2] : [cellWidth(room, nodes.length, across, air), 44, GAP];
    const named = small ? Math.max(...nodes.map(([name]) => charllm.textWidth(nodeName(name), 12))) : 0;
    const width = Math.max(across * (cell + gap) - gap + air, Math.min(named, 120));
    const head = small ? 16 : 28;
    const height = head + deep * (tall + gap) - gap + (small ? 0 : 20);
    const between = small ? 16 : BETWEEN;
    const pitch = [width + between, height + (small ? 10 : 16)];
    const perRow = Math.max(1, Math.floor((room + between + 1) / pitch[0]));
    return {
      width,
      air,
      cell,
      tall,
      gap,
      head,
      deep,
      across,
      height: Math.ceil(nodes.length / perRow) * pitch[1],
      corner: (at) => [(at % perRow) * pitch[0], Math.floor(at / perRow) * pitch[1]],
      place: (row) => [air + (row.place || 0) * (cell + gap), head + (row.row || 0) * (tall + gap)],
    };
  }

  // As many nodes beside each other as leave room for the numbers, then cells as wide as that allows.
  function cellWidth(room, nodes, across, air) {
    const fitting = (count) => ((room + BETWEEN) / count - BETWEEN - air + GAP) / across - GAP;
    let count = 1;
    while (count < nodes && fitting(count + 1) >= CELL[0]) count += 1;
    return Math.max(40, Math.min(CELL[1], fitting(count)));
  }

  // An arrow from the front, where air enters, to the rear.
  function drawAir(frame, { head, deep, tall, gap }, left, top, options) {
    if (!options.airflow) return;
    const [from, to] = [top + head, top + head + deep * (tall + gap) - gap];
    const x = left + 24;
    const words =
      deep > 1 && charllm.isNumber(options.inlet) ? ["air in", `${charllm.number(options.inlet, 3)} C`] : ["air in"];
    words.forEach((word, at) =>
      frame.svg.append(charllm.label(word, x, from + 10 + 15 * at, { "text-anchor": "middle", class: "tick" })),
    );
    if (deep > 1) frame.svg.append(charllm.label("rear", x, to - 2, { "text-anchor": "middle", class: "tick" }));
    frame.svg.append(
      svg("path", {
        class: "air",
        d: `M${x},${from + 1 + 15 * words.length}V${to - (deep > 1 ? 18 : 2)}m-5,-6l5,7l5,-7`,
      }),
    );
  }

  // Trays and packages: a line around the GPUs that share one.
  function drawGroups(frame, { place, cell, tall }, left, top, rows, columns) {
    for (const kind of ["tray", "package"].filter((name) => columns[name])) {
      for (const [name, own] of charllm.groups(
        rows.filter((row) => row[kind] !== null),
        kind,
      )) {
        if (own.length < 2) continue;
        const corners = own.map(place);
        const [x0, x1] = d3.extent(corners, (corner) => corner[0]);
        const [y0, y1] = d3.extent(corners, (corner) => corner[1]);
        frame.svg.append(
          svg(
            "rect",
            {
              class: "shared",
              x: left + x0 - 3,
              y: top + y0 - 3,
              width: x1 - x0 + cell + 6,
              height: y1 - y0 + tall + 6,
              rx: 6,
            },
            svg("title", {}, `${columns[kind].label} ${name}`),
          ),
        );
      }
    }
  }

  function drawCell(frame, layout, left, top, row, colour, columns, options, node, small) {
    const [x, y] = layout.place(row).map((value, at) => value + [left, top][at]);
    const value = row[options.value];
    const known = charllm.isNumber(value);
    const paint = known ? colour(value) : null;
    const rect = svg("rect", {
      x,
      y,
      width: layout.cell,
      height: layout.tall,
      rx: small ? 2 : 4,
      class: known ? "cell" : "cell unknown",
    });
    if (paint) rect.style.fill = paint;
    frame.svg.append(rect);
    if (row.ring)
      frame.svg.append(
        svg("rect", {
          class: "ring",
          x: x - 2,
          y: y - 2,
          width: layout.cell + 4,
          height: layout.tall + 4,
          rx: small ? 3 : 6,
        }),
      );
    if (!small) {
      const ink = paint ? charllm.inkOn(paint) : "var(--quiet)";
      frame.svg.append(
        styled(
          charllm.label(
            known ? charllm.text(value, columns[options.value]) : "–",
            x + layout.cell / 2,
            y + layout.tall / 2 + 1,
            { "text-anchor": "middle", class: "cell-value" },
          ),
          "fill",
          ink,
        ),
        styled(
          charllm.label(slotName(row), x + layout.cell / 2, y + layout.tall / 2 + 15, {
            "text-anchor": "middle",
            class: "cell-slot",
          }),
          "fill",
          ink,
        ),
      );
    }
    const hidden = new Set(["node", "slot", "row", "place", "ring"]);
    const lines = Object.keys(columns)
      .filter((name) => !hidden.has(name) && row[name] !== null)
      .map((name) => [columns[name].label, charllm.quantity(row[name], columns[name])]);
    if (row.ring) lines.push(["bottleneck", "yes"]);
    return {
      key: `${node}/${row.slot}`,
      node: rect,
      x,
      y,
      width: layout.cell,
      height: layout.tall,
      title: `${nodeName(node)}, ${slotName(row)}`,
      lines,
    };
  }

  const slotName = (row) =>
    row.slot === null || row.slot === undefined
      ? ""
      : /^\d+$/.test(String(row.slot))
        ? `slot ${row.slot}`
        : String(row.slot);

  function scaleBar(extent, options, paced) {
    const bar = extent
      ? charllm.scaleBar(charllm.heading({ label: options.label || "" }), extent, options.unit)
      : element("div", { class: "scale" });
    if (paced) bar.append(charllm.legend([{ label: "bottleneck", token: "ring", kind: "ring" }]));
    return bar;
  }
})(window.charllm);
