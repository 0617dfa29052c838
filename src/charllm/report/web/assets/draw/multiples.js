(function (charllm) {
  "use strict";
  const { element, svg, styled } = charllm;

  const PITCH = 26;
  const HEAD = 40;
  const LEAST_PANEL = 182;
  const PAD = 10;

  // Small multiples: a block for each facet, rows the same in each panel of a block, one panel for each metric.
  charllm.draw.multiples = function (root, figure) {
    charllm.clear(root);
    const options = figure.options;
    const columns = charllm.columns(figure.columns);
    const rows = charllm.rows(columns);
    const panels = (options.panels || []).filter((panel) => columns[panel.column]?.values.some(charllm.isNumber));
    if (!rows.length || !panels.length) return charllm.nothing(root);
    const facets = options.facet ? [...charllm.groups(rows, options.facet)] : [["", rows]];
    const named = panels.map((panel) => panelOf(panel, columns, facets));
    const kinds = kindsOf(rows, columns, options);
    const labels = charllm.labelRoom(
      rows.map((row) => charllm.text(row[options.row])),
      charllm.width(root),
      0.32,
    );
    if (kinds.length > 1)
      root.append(charllm.legend(kinds.map(({ key, token, shape }) => ({ label: key, token, shape }))));
    const view = { root, figure, options, panels: named, kinds, labels };
    for (const [name, own] of facets) drawFacet(view, name, own);
    const inside = (label) => label.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase());
    const free = named.filter((panel) => !panel.shared).map((panel) => inside(panel.label));
    if (facets.length > 1 && free.length)
      root.append(element("p", { class: "count" }, `Scales differ between blocks: ${free.join(", ")}.`));
  };

  // A panel with what its column says where it is silent itself.
  function panelOf(panel, columns, facets) {
    const { label, unit, digits } = columns[panel.column];
    const named = { ...panel, label: panel.label || label, unit: panel.unit || unit || "", digits: digits || 3 };
    return { ...named, shared: share(panel, facets) };
  }

  // One scale for all facets, unless they lie so far apart that differences inside a facet could not be seen.
  function share(panel, facets) {
    const ranges = facets.map(([, rows]) => charllm.extent(valuesOf(rows, panel))).filter(Boolean);
    const whole = [d3.min(ranges, (range) => range[0]), d3.max(ranges, (range) => range[1])];
    const typical = d3.median(ranges, (range) => range[1] - range[0]);
    return ranges.length < 2 || typical > (whole[1] - whole[0]) * 0.3 ? whole : null;
  }

  const valuesOf = (rows, panel) =>
    rows
      .flatMap((row) => [row[panel.column], panel.low && row[panel.low], panel.high && row[panel.high]])
      .concat(charllm.isNumber(panel.threshold) ? [panel.threshold] : []);

  function kindsOf(rows, columns, options) {
    const name = options.colour || options.shape;
    if (!name || !columns[name]) return [];
    const keys = options.kinds || [...new Set(rows.map((row) => charllm.text(row[name])))];
    const palette = charllm.paletteOf(keys);
    return keys.map((key, at) => ({
      key,
      name,
      token: charllm.token(palette, key, at),
      shape: options.shape ? charllm.shape(key, at) : "circle",
    }));
  }

  function drawFacet(view, facet, rows) {
    const { root, figure, options, panels, labels } = view;
    const names = [...new Set(rows.map((row) => charllm.text(row[options.row])))];
    if (facet) root.append(element("h4", { class: "facet" }, facet));
    const width = charllm.width(root) - labels;
    const perLine = Math.max(1, Math.min(panels.length, Math.floor(width / LEAST_PANEL)));
    const tall = HEAD + names.length * PITCH + 34;
    const frame = charllm.frame(root, figure, Math.ceil(panels.length / perLine) * tall);
    const marks = panels.flatMap((panel, at) => {
      const top = Math.floor(at / perLine) * tall;
      const box = { left: labels + ((at % perLine) * width) / perLine, top: top + HEAD, width: width / perLine };
      box.bottom = box.top + names.length * PITCH;
      if (at % perLine === 0) drawNames(frame, names, labels, box.top);
      return drawPanel(view, { frame, facet, rows, names, panel, box, isFirst: at === 0, room: width });
    });
    charllm.read(frame, marks);
  }

  function drawNames(frame, names, room, top) {
    names.forEach((name, at) => {
      const style = { "text-anchor": "end", dy: "0.35em" };
      frame.svg.append(charllm.label(name, room - PAD, top + (at + 0.5) * PITCH, style, room - PAD));
    });
  }

  function drawPanel(view, place) {
    const { frame, rows, names, panel, box } = place;
    const known = panel.shared || charllm.extent(valuesOf(rows, panel)) || [0, 1];
    const air = (known[1] - known[0] || Math.abs(known[1]) || 1) * 0.1;
    const numbers = Math.max(...rows.map((row) => charllm.textWidth(charllm.text(row[panel.column], panel), 12)));
    const x = d3.scaleLinear(
      [known[0] >= 0 ? Math.max(0, known[0] - air) : known[0] - air, known[1] + air],
      [box.left + PAD, box.left + box.width - numbers - 22],
    );
    const { lower_is_better: lower } = panel;
    const hint = typeof lower !== "boolean" ? "" : lower ? "lower is better" : "higher is better";
    frame.svg.append(
      charllm.label(charllm.heading(panel), box.left + PAD, box.top - 26, { class: "title" }, box.width - 12),
      charllm.label(hint, box.left + PAD, box.top - 10, { class: "tick" }),
      charllm.xAxis(x, { top: box.top, bottom: box.bottom, count: Math.max(3, Math.floor(box.width / 60)) }),
    );
    if (charllm.isNumber(panel.threshold))
      frame.svg.append(svg("path", { class: "line", d: `M${x(panel.threshold)},${box.top}V${box.bottom}` }));
    const best = bestOf(rows, panel);
    // Where several kinds share a row, the number beside it is that of the first.
    const told = new Set();
    return rows.map((row) => {
      const name = charllm.text(row[view.options.row]);
      const isTold = told.has(name);
      told.add(name);
      const y = box.top + (names.indexOf(name) + 0.5) * PITCH;
      return drawValue(view, { ...place, x, y, best, isTold }, row);
    });
  }

  function bestOf(rows, panel) {
    if (typeof panel.lower_is_better !== "boolean") return null;
    const known = rows.map((row) => row[panel.column]).filter(charllm.isNumber);
    return known.length > 1 ? (panel.lower_is_better ? d3.min(known) : d3.max(known)) : null;
  }

  function drawValue({ options, panels, kinds }, { frame, facet, panel, box, isFirst, isTold, room, x, y, best }, row) {
    const value = row[panel.column];
    const name = charllm.text(row[options.row]);
    const kind = kinds.find((one) => one.key === charllm.text(row[one.name])) || { token: "series-1", shape: "circle" };
    const note = options.note && row[options.note] ? String(row[options.note]) : "";
    const lines = [[panel.label, charllm.quantity(value, panel)]];
    const mark = {
      key: `${facet}/${name}/${panel.column}/${kind.key || ""}`,
      title: facet ? `${facet}: ${name}` : name,
      lines,
      note,
      x: box.left + 4,
      y: y - 11,
      width: box.width - 8,
      height: 22,
    };
    if (!charllm.isNumber(value)) {
      // A row without any value has its note once, across all panels.
      const isEmpty = panels.every((one) => !charllm.isNumber(row[one.column]));
      const text = isTold || (isEmpty && !isFirst) ? "" : note || "–";
      const width = isEmpty ? room - PAD : box.width - 20;
      frame.svg.append(charllm.label(text, box.left + PAD, y, { dy: "0.35em", class: "tick halo" }, width));
      return mark;
    }
    const [low, high] = [panel.low && row[panel.low], panel.high && row[panel.high]];
    if (charllm.isNumber(low) && charllm.isNumber(high)) {
      lines.push(["interval", `${charllm.text(low, panel)} to ${charllm.quantity(high, panel)}`]);
      frame.svg.append(svg("path", { class: "whisker", d: `M${x(low)},${y}H${x(high)}` }));
    }
    const point = { class: "point", d: charllm.shapePath(kind.shape, 70), transform: `translate(${x(value)},${y})` };
    const style = { "text-anchor": "end", dy: "0.35em", class: value === best ? "tick best" : "tick" };
    frame.svg.append(
      styled(svg("path", point), "fill", `var(--${kind.token})`),
      charllm.label(isTold ? "" : charllm.text(value, panel), box.left + box.width - PAD, y, style),
    );
    return mark;
  }
})(window.charllm);
