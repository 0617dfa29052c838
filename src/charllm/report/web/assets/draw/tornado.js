(function (charllm) {
  "use strict";
  const { svg, styled } = charllm;

  const THICK = 20;

  // What single changes bring: bars to both sides of zero, best first, intervals as whiskers, what does not fit in grey.
  charllm.draw.tornado = function (root, figure) {
    charllm.clear(root);
    const columns = charllm.columns(figure.columns);
    const rows = charllm
      .rows(columns)
      .map((row) => change(row, figure.options, columns))
      .sort(byEffect);
    const known = charllm.extent(rows.flatMap((row) => [row.effect, row.low, row.high, 0]));
    if (!rows.length || !known) return charllm.nothing(root);
    if (rows.some((row) => !row.fits)) {
      root.append(
        charllm.legend([
          { label: "gain", token: "series-1" },
          { label: "loss", token: "series-2" },
          { label: "does not fit in memory", token: "part-bubble" },
        ]),
      );
    }
    const layout = arrange(root, figure, rows, known, columns[figure.options.effect]);
    const onPick = figure.onPick && ((mark) => figure.onPick(mark.key));
    charllm.read(
      layout.frame,
      rows.map((row, at) => drawChange(layout, row, at)),
      { pins: !onPick, onPick },
    );
  };

  function change(row, options, columns) {
    const times = (options.unit || "%") === "%" ? 100 : 1;
    const number = (name) => (name && charllm.isNumber(row[name]) ? row[name] * times : null);
    const others = Object.keys(columns).filter(
      (name) => ![options.change, options.effect, options.low, options.high, options.fits, options.note].includes(name),
    );
    return {
      name: charllm.text(row[options.change]),
      effect: number(options.effect),
      low: number(options.low),
      high: number(options.high),
      fits: options.fits ? row[options.fits] !== false : true,
      note: options.note && row[options.note] ? String(row[options.note]) : "",
      others: others.map((name) => [columns[name].label, charllm.quantity(row[name], columns[name])]),
    };
  }

  const byEffect = (one, other) =>
    Number(other.fits) - Number(one.fits) || (other.effect ?? -Infinity) - (one.effect ?? -Infinity);

  function arrange(root, figure, rows, known, column) {
    const narrow = charllm.isNarrow(root);
    const pitch = THICK + (narrow ? 30 : 12);
    const bottom = 10 + pitch * rows.length;
    const frame = charllm.frame(
      root,
      figure,
      bottom + 46,
      `Arrow keys move between changes, Enter ${figure.onPick ? "makes" : "pins"} one.`,
    );
    const left = narrow
      ? 0
      : charllm.labelRoom(
          rows.map((row) => row.name),
          frame.width,
          0.36,
        );
    const room = 12 + Math.max(...rows.map((row) => charllm.textWidth(sign(row.effect, figure.options), 13, 600)));
    const x = d3.scaleLinear(known, [left + (known[0] < 0 ? room : 4), frame.width - room]);
    const unit = figure.options.unit || "%";
    frame.svg.append(
      charllm.xAxis(x, { top: 4, bottom, title: `${column.label}, ${unit}`, format: (value) => signed(value) }),
    );
    frame.svg.append(svg("line", { class: "zero", x1: x(0), x2: x(0), y1: 4, y2: bottom }));
    return { frame, x, left, pitch, narrow, figure };
  }

  const signed = (value) => (value > 0 ? "+" : "") + charllm.number(value, 3);
  const oneDigit = (value) => `${value > 0 ? "+" : ""}${value.toFixed(1).replace("-", "−")}`;
  const sign = (value, options) => (value === null ? "" : `${oneDigit(value)} ${options.unit || "%"}`);

  function drawChange({ frame, x, left, pitch, narrow, figure }, row, at) {
    const y = 10 + at * pitch + (narrow ? 20 : 4);
    const centre = y + THICK / 2;
    frame.svg.append(
      narrow
        ? charllm.label(row.name, 0, y - 6, { class: row.fits ? "halo" : "faint halo" }, frame.width)
        : charllm.label(
            row.name,
            left - 12,
            centre,
            { "text-anchor": "end", dy: "0.35em", class: row.fits ? "" : "faint" },
            left - 12,
          ),
    );
    const unit = figure.options.unit || "%";
    const lines = [["effect", row.effect === null ? "not known" : sign(row.effect, figure.options)]];
    if (row.low !== null && row.high !== null)
      lines.push(["interval", `${oneDigit(row.low)} to ${oneDigit(row.high)} ${unit}`]);
    lines.push(...row.others, ...(figure.options.fits ? [[figure.columns[figure.options.fits].label, row.fits ? "yes" : "no"]] : []));
    const mark = { key: row.name, title: row.name, lines, note: row.note, x: x(0) - 4, y, width: 8, height: THICK };
    if (row.effect === null) {
      const start = narrow ? 0 : x(0) + 8;
      frame.svg.append(
        charllm.label(
          row.note || "not known",
          start,
          centre,
          { dy: "0.35em", class: "faint halo" },
          frame.width - start,
        ),
      );
      return mark;
    }
    const [from, to] = [Math.min(x(0), x(row.effect)), Math.max(x(0), x(row.effect))];
    const token = !row.fits ? "part-bubble" : row.effect >= 0 ? "series-1" : "series-2";
    frame.svg.append(
      styled(
        svg("rect", { x: from, y, width: Math.max(1, to - from), height: THICK, rx: 2 }),
        "fill",
        `var(--${token})`,
      ),
    );
    let [start, end] = [from, to];
    if (row.low !== null && row.high !== null) {
      [start, end] = [Math.min(start, x(row.low)), Math.max(end, x(row.high))];
      frame.svg.append(
        svg("path", {
          class: "whisker",
          d: `M${x(row.low)},${centre}H${x(row.high)}M${x(row.low)},${centre - 4}v8M${x(row.high)},${centre - 4}v8`,
        }),
      );
    }
    const isLoss = row.effect < 0;
    frame.svg.append(
      charllm.label(sign(row.effect, figure.options), isLoss ? start - 8 : end + 8, centre, {
        dy: "0.35em",
        "text-anchor": isLoss ? "end" : "start",
        class: row.fits ? "strong" : "faint",
      }),
    );
    return { ...mark, x: from, width: Math.max(4, to - from) };
  }
})(window.charllm);
