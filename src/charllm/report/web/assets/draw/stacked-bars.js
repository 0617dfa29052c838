(function (charllm) {
  "use strict";
  const { svg, styled } = charllm;

  const MOST_THICK = 30;
  const LABEL_ROOM = 40;

  // Bars from zero, one a row, each made of parts that have the same order and colour in every bar.
  charllm.draw["stacked-bars"] = function (root, figure) {
    charllm.clear(root);
    const options = figure.options;
    const columns = charllm.columns(figure.columns);
    const rows = charllm.rows(columns).filter((row) => charllm.isNumber(row[options.value]));
    if (!rows.length) return charllm.nothing(root);
    const parts = orderOf(rows, options);
    const bars = [...charllm.groups(rows, options.bar)].map(([name, own]) => stack(name, own, parts, options));
    root.append(charllm.legend(parts.map((part) => ({ label: part.label, token: part.token }))));
    const layout = arrange(root, figure, bars, columns[options.value]);
    const marks = bars.flatMap((bar, at) => drawBar(layout, bar, at, parts));
    drawLimit(layout);
    bars.forEach((bar, at) => drawTotal(layout, bar, at));
    charllm.read(layout.frame, marks);
  };

  // Parts in the order that was asked for, then the rest as they come; those that are zero everywhere are left out.
  function orderOf(rows, options) {
    const some = new Set(rows.filter((row) => row[options.value] !== 0).map((row) => String(row[options.part])));
    const keys = [...(options.order || []).map(String), ...some].filter((key) => some.has(key));
    return [...new Set(keys)].map((key, at) => ({
      key,
      label: charllm.nameOf(key, options.labels),
      token: charllm.token(options.palette, key, at),
    }));
  }

  function stack(name, rows, parts, options) {
    const sums = d3.rollup(
      rows,
      (own) => d3.sum(own, (row) => row[options.value]),
      (row) => String(row[options.part]),
    );
    let end = 0;
    const pieces = parts
      .filter((part) => sums.get(part.key))
      .map((part) => {
        const start = end;
        end += sums.get(part.key);
        return { part, start, end, value: sums.get(part.key) };
      });
    return {
      name,
      pieces,
      total: end,
      isMean: name === String(options.mean_bar),
      group: options.group ? rows[0][options.group] : null,
    };
  }

  function arrange(root, figure, bars, column) {
    const options = figure.options;
    const unit = options.unit || column.unit || "";
    const narrow = charllm.isNarrow(root);
    const thick = Math.min(MOST_THICK, Math.max(14, 520 / bars.length - 8));
    const pitch = thick + (narrow ? 28 : Math.max(4, thick * 0.36));
    const top = options.limit ? 34 : 8;
    const gaps = bars.map((bar, at) => (at > 0 && (bar.isMean || bar.group !== bars[at - 1].group) ? 14 : 0));
    const bottom = top + pitch * bars.length + d3.sum(gaps);
    const frame = charllm.frame(root, figure, bottom + 46, "Arrow keys move between parts, Enter pins one.");
    const left = narrow
      ? 0
      : charllm.labelRoom(
          bars.map((bar) => bar.name),
          frame.width,
          0.3,
          650,
        );
    const totals =
      options.total === false
        ? 12
        : 16 +
          Math.max(
            ...bars.map((bar) => charllm.textWidth(`${charllm.even(bar.total, column.digits)} ${unit}`, 13, 650)),
          );
    const most = Math.max(
      d3.max(bars, (bar) => bar.total),
      options.limit ? options.limit.value : 0,
    );
    const x = d3.scaleLinear([0, most * 1.01 || 1], [left, frame.width - totals]);
    frame.svg.append(charllm.xAxis(x, { top: top - 4, bottom, title: charllm.heading({ label: column.label, unit }) }));
    const rowTop = (at) => top + at * pitch + d3.sum(gaps.slice(0, at + 1)) + (narrow ? 20 : 0);
    return { root, figure, frame, x, thick, top, bottom, left, rowTop, narrow, unit, column };
  }

  function drawBar(layout, bar, at, parts) {
    const { frame, x, thick, rowTop, narrow, left, unit, column } = layout;
    const { limit } = layout.figure.options;
    const y = rowTop(at);
    const text = (value) => `${charllm.text(value, column)} ${unit}`.trim();
    frame.svg.append(
      narrow
        ? charllm.label(bar.name, 0, y - 6, { class: bar.isMean ? "strong" : "" }, frame.width)
        : charllm.label(
            bar.name,
            left - 10,
            y + thick / 2,
            { "text-anchor": "end", dy: "0.35em", class: bar.isMean ? "strong" : "" },
            left - 10,
          ),
    );
    const marks = bar.pieces.map((piece) => {
      const [from, to] = [x(piece.start), x(piece.end)];
      const node = styled(
        svg("rect", { x: from, y, width: Math.max(0.5, to - from), height: thick, class: "piece" }),
        "fill",
        charllm.fill(frame.svg, piece.part.token),
      );
      frame.svg.append(node);
      const inside = charllm.even(piece.value, Math.min(3, column.digits || 3));
      const room = charllm.textWidth(inside, 12) + 12;
      const isCrossed = limit && Math.abs(x(limit.value) - (from + to) / 2) < room / 2;
      if (
        parts.length > 1 &&
        to - from > Math.max(LABEL_ROOM, room) &&
        !isCrossed &&
        thick > 15 &&
        !charllm.isHatched(piece.part.token)
      ) {
        frame.svg.append(
          styled(
            charllm.label(inside, (from + to) / 2, y + thick / 2, {
              "text-anchor": "middle",
              dy: "0.35em",
              class: "inside",
            }),
            "fill",
            charllm.inkOn(charllm.colour(piece.part.token)),
          ),
        );
      }
      return {
        key: `${bar.name}/${piece.part.key}`,
        node,
        x: from,
        y,
        width: Math.max(1, to - from),
        height: thick,
        title: `${bar.name}: ${piece.part.label}`,
        lines: [
          [column.label, text(piece.value)],
          ["share", `${charllm.number((100 * piece.value) / bar.total, 3)} % of ${text(bar.total)}`],
        ],
      };
    });
    return marks;
  }

  // Totals stand in front of the line of the limit, which would cross them otherwise.
  function drawTotal({ frame, x, thick, rowTop, unit, column, figure }, bar, at) {
    if (figure.options.total === false) return;
    const total = `${charllm.even(bar.total, column.digits)} ${unit}`.trim();
    const line = figure.options.limit ? x(figure.options.limit.value) : Infinity;
    // A total that the limit would cross stands behind it.
    const besideLimit = (from) => (from < line + 4 && from + charllm.textWidth(total, 13, 650) > line - 4 ? line + 8 : from);
    frame.svg.append(
      charllm.label(total, besideLimit(x(bar.total) + 8), rowTop(at) + thick / 2, { dy: "0.35em", class: "strong halo" }),
    );
  }

  function drawLimit({ figure, frame, x, top, bottom }) {
    const limit = figure.options.limit;
    if (!limit) return;
    const at = x(limit.value);
    const right = at > frame.width / 2;
    frame.svg.append(
      svg("line", { class: "limit", x1: at, x2: at, y1: top - 12, y2: bottom }),
      charllm.label(
        limit.label,
        at + (right ? 4 : -4),
        14,
        { "text-anchor": right ? "end" : "start", class: "limit-label" },
        right ? at : frame.width - at,
      ),
    );
  }
})(window.charllm);
