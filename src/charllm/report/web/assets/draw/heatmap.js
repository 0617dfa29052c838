(function (charllm) {
  "use strict";
  const { svg, styled } = charllm;

  const TALL = 24;
  const HEAD = 30;
  const LEAST_TEXT = 34;

  // A value for each pair of a row and a column: a coloured cell, its number where there is room, a ring where asked for.
  charllm.draw.heatmap = function (root, figure) {
    charllm.clear(root);
    const options = figure.options;
    const columns = charllm.columns(figure.columns);
    const rows = charllm.rows(columns);
    const extent = charllm.extent(rows.map((row) => row[options.value]));
    if (!rows.length || !extent) return charllm.nothing(root);
    const colour = d3.scaleSequential(
      extent[0] < extent[1] ? extent : [extent[0] - 1, extent[1] + 1],
      d3.interpolateCividis,
    );
    root.append(charllm.scaleBar(options.label || columns[options.value].label, extent, options.unit));
    if (options.ring)
      root.append(charllm.legend([{ label: options.ring_label || "ringed", token: "ring", kind: "ring" }]));
    const names = [...new Set([...(options.rows || []), ...rows.map((row) => String(row[options.row]))])];
    const heads = [...new Set(rows.map((row) => String(row[options.column])))];
    drawCells(root, figure, rows, columns, { names, heads, colour });
  };

  function drawCells(root, figure, rows, columns, { names, heads, colour }) {
    const options = figure.options;
    const frame = charllm.frame(root, figure, HEAD + names.length * TALL + 8);
    const left = charllm.labelRoom(names, frame.width, 0.36);
    const wide = (frame.width - left) / heads.length;
    const every = Math.ceil(LEAST_TEXT / wide);
    names.forEach((name, at) => {
      const style = { "text-anchor": "end", dy: "0.35em" };
      frame.svg.append(charllm.label(name, left - 10, HEAD + (at + 0.5) * TALL, style, left - 10));
    });
    heads.forEach((head, at) => {
      if (at % every) return;
      frame.svg.append(charllm.label(head, left + (at + 0.5) * wide, HEAD - 10, { "text-anchor": "middle", class: "tick" }));
    });
    const marks = rows.map((row) => {
      const [x, y] = [
        left + heads.indexOf(String(row[options.column])) * wide,
        HEAD + names.indexOf(String(row[options.row])) * TALL,
      ];
      return drawCell(frame, row, { x, y, wide, colour, column: columns[options.value], options });
    });
    charllm.read(frame, marks);
  }

  function drawCell(frame, row, { x, y, wide, colour, column, options }) {
    const value = row[options.value];
    const known = charllm.isNumber(value);
    const fill = known ? colour(value) : "none";
    const node = styled(
      svg("rect", { x: x + 0.5, y: y + 0.5, width: Math.max(1, wide - 1), height: TALL - 1, class: "piece" }),
      "fill",
      fill,
    );
    frame.svg.append(node);
    if (options.ring && row[options.ring])
      frame.svg.append(
        styled(
          svg("rect", { x: x + 2, y: y + 2, width: Math.max(1, wide - 4), height: TALL - 4, fill: "none", "stroke-width": 2.5 }),
          "stroke",
          "var(--ring)",
        ),
      );
    const text = charllm.text(value, { ...column, digits: column.digits || 3 });
    if (wide > Math.max(LEAST_TEXT, charllm.textWidth(text, 12) + 8))
      frame.svg.append(
        styled(
          charllm.label(text, x + wide / 2, y + TALL / 2, { "text-anchor": "middle", dy: "0.35em", class: "inside" }),
          "fill",
          known ? charllm.inkOn(fill) : "var(--quiet)",
        ),
      );
    return {
      key: `${row[options.row]}/${row[options.column]}`,
      node,
      x,
      y,
      width: wide,
      height: TALL,
      title: `${row[options.row]}: ${row[options.column]}`,
      lines: [[column.label, charllm.quantity(value, column)]],
    };
  }
})(window.charllm);
