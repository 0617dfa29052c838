(function (charllm) {
  "use strict";
  const HINT = "Select a point to see its settings, and a second one to see how they differ.";
  const { element, svg, styled } = charllm;

  const MARGIN = { top: 34, right: 26, bottom: 48 };
  const MOST_LABELS = 14;
  const MANY = 40;
  const MOST_LARGE = 300;
  const LOG_FROM = 30;

  // Points, with their intervals, on linear or log axes; filters narrow them, and the front among those left stands out.
  charllm.draw.scatter = function (root, figure) {
    charllm.clear(root);
    const columns = charllm.columns(figure.columns);
    const options = withAxes(figure, columns);
    const rows = charllm
      .rows(columns)
      .map((row, at) => ({ ...row, place: at }))
      .filter((row) => fits(row[options.x], options.x_scale) && fits(row[options.y], options.y_scale));
    const controls = element("div", { class: "controls" });
    axisControls(controls, root, figure, columns, options);
    if (!rows.length)
      return root.append(controls, element("p", { class: "missing" }, "Nothing to draw: no row has both values."));
    const kinds = kindsOf(rows, columns, options);
    const tests = [];
    const count = element("p", { class: "count", role: "status" });
    const area = element("div");
    const apply = () => {
      const left = rows.filter((row) => tests.every((test) => test(row)));
      const best = markBest(rows, left, options);
      if (tests.length) count.textContent = `${charllm.count(left.length)} of ${charllm.count(rows.length)} points${tellBest(best, options, columns)}`;
      charllm.clear(area);
      plot({
        root: area,
        pinned: root,
        figure,
        options,
        columns,
        kinds,
        rows,
        left: markFront(left, options, columns),
      });
    };
    for (const name of options.filters || [])
      if (columns[name]) tests.push(charllm.filter(controls, figure.name, name, columns[name], apply));
    const sliders = element("div", { class: "controls sliders", role: "group", "aria-label": "Limits" });
    for (const limit of options.limits || [])
      tests.push(charllm.slider(sliders, figure.name, limit, columns[limit.column], apply));
    root.append(
      ...[sliders, controls].filter((group) => group.children.length),
      ...(tests.length ? [count] : []),
      ...legends(kinds, options, columns),
      area,
      ...(options.details ? [element("p", { class: "hint" }, HINT)] : []),
    );
    apply();
  };

  const fits = (value, scale) => charllm.isNumber(value) && (scale !== "log" || value > 0);

  // The axes that were asked for, or those that a reader chose among options.choices; intervals belong to the former only.
  function withAxes(figure, columns) {
    const given = figure.options;
    const choose = (axis) => {
      const kept = charllm.address.read(`${figure.name}.${axis}`);
      return (given.choices || []).includes(kept) && columns[kept] ? kept : given[axis];
    };
    const [x, y] = [choose("x"), choose("y")];
    const scale = (name, own) =>
      name === given.x || name === given.y ? own : spread(columns[name]) > LOG_FROM ? "log" : "linear";
    return {
      ...given,
      x,
      y,
      x_scale: x === given.x ? given.x_scale : scale(x, given.y_scale),
      y_scale: y === given.y ? given.y_scale : scale(y, given.x_scale),
      ...(x === given.x ? {} : { x_low: null, x_high: null }),
      ...(y === given.y ? {} : { low: null, high: null }),
      lines: x === given.x && y === given.y ? given.lines : [],
    };
  }

  function spread(column) {
    const found = charllm.extent(column.values);
    return found && found[0] > 0 ? found[1] / found[0] : 1;
  }

  function axisControls(controls, root, figure, columns, options) {
    const names = (options.choices || []).filter((name) => columns[name]);
    if (names.length < 2) return;
    for (const [axis, word] of [
      ["y", "Vertical axis"],
      ["x", "Horizontal axis"],
    ]) {
      const field = element(
        "select",
        {},
        ...names.map((name) => element("option", { value: name }, charllm.heading(columns[name]))),
      );
      field.value = options[axis];
      field.addEventListener("change", () => {
        charllm.address.write(`${figure.name}.${axis}`, field.value);
        charllm.draw.scatter(root, figure);
        root.querySelectorAll("select")[axis === "y" ? 0 : 1].focus();
      });
      controls.append(element("label", {}, word, field));
    }
  }

  // Which colour and which shape a row has: by the words of a column, in order of appearance; a column of numbers is a magnitude.
  function kindsOf(rows, columns, options) {
    const word = (row, name) => charllm.text(row[name], columns[name]);
    const words = (name) => (name && columns[name] ? [...new Set(rows.map((row) => word(row, name)))] : []);
    const [colours, shapes] = [words(options.colour), words(options.shape)];
    const isMagnitude =
      colours.length > 8 && columns[options.colour].values.every((value) => value === null || charllm.isNumber(value));
    const scale = isMagnitude
      ? d3.scaleSequential(charllm.extent(columns[options.colour].values), d3.interpolateCividis)
      : null;
    const palette = charllm.paletteOf(colours);
    const token = (key) => charllm.token(palette, key, colours.indexOf(key));
    return {
      colours: isMagnitude ? [] : colours,
      shapes,
      scale,
      token,
      palette,
      group: (row) =>
        colours.length && !isMagnitude && palette === "series" && !options.one_front ? word(row, options.colour) : "",
      colour: (row) =>
        !colours.length
          ? "var(--series-1)"
          : scale
            ? scale(row[options.colour])
            : `var(--${token(word(row, options.colour))})`,
      shape: (row) =>
        shapes.length ? charllm.shape(word(row, options.shape), shapes.indexOf(word(row, options.shape))) : "circle",
    };
  }

  function legends(kinds, options, columns) {
    const same = options.colour === options.shape;
    const found = [];
    if (kinds.colours.length > 1)
      found.push(
        ...kinds.colours.map((key, at) => ({
          label: key,
          token: kinds.token(key),
          shape: same ? charllm.shape(key, at) : "circle",
        })),
      );
    if (kinds.shapes.length > 1 && !same)
      found.push(...kinds.shapes.map((key, at) => ({ label: key, token: "quiet", shape: charllm.shape(key, at) })));
    if (options.front) found.push({ label: "Pareto front: nothing is better in both", token: "ink", kind: "dotted" });
    if (options.marked && columns[options.marked])
      found.push({ label: columns[options.marked].label, token: "ring", kind: "ring" });
    if (options.best) found.push({ label: "best among those shown", token: "ring", kind: "ring" });
    return [
      ...(kinds.scale
        ? [charllm.scaleBar(columns[options.colour].label, kinds.scale.domain(), columns[options.colour].unit)]
        : []),
      ...(found.length ? [charllm.legend(found)] : []),
    ];
  }

  // Rows with the truth whether they are on the front. Where it is known which way is better it is found among those left.
  function markFront(rows, options, columns) {
    const better = options.better || {};
    if (!options.front) return rows;
    if (!better[options.x] || !better[options.y])
      return rows.map((row) => Object.assign(row, { onFront: row[options.front] === true }));
    const sign = (axis) => (better[options[axis]] === "lower" ? -1 : 1);
    const score = (row, axis) => sign(axis) * row[options[axis]];
    const family = options.colour && columns[options.colour] && !options.one_front ? options.colour : "";
    for (const own of charllm.groups(rows, family).values()) {
      let best = -Infinity;
      for (const row of [...own].sort(
        (one, other) => score(other, "x") - score(one, "x") || score(other, "y") - score(one, "y"),
      )) {
        row.onFront = score(row, "y") > best;
        best = Math.max(best, score(row, "y"));
      }
    }
    return rows;
  }

  // Among the rows that are left, the one that is best in what was asked for.
  function markBest(rows, left, options) {
    rows.forEach((row) => (row.isBest = false));
    const known = options.best ? left.filter((row) => charllm.isNumber(row[options.best])) : [];
    if (!known.length) return null;
    const sign = (options.better || {})[options.best] === "lower" ? -1 : 1;
    const best = known.reduce((one, other) => (sign * other[options.best] > sign * one[options.best] ? other : one));
    best.isBest = true;
    return best;
  }

  function tellBest(best, options, columns) {
    if (!options.best) return "";
    if (!best) return "; none keeps these limits";
    return `; best: ${charllm.text(best[options.name])} (${charllm.quantity(best[options.best], columns[options.best])})`;
  }

  const isRinged = (row, options) => row.isBest || Boolean(options.marked && row[options.marked]);
  const rank = (row, options) => (isRinged(row, options) ? 2 : row.onFront ? 1 : 0);

  function plot(view) {
    const { options, kinds, rows, left } = view;
    const layout = arrange(view);
    const { frame } = layout;
    const kept = new Set(left);
    const marks = rows.map((row) => markOf(row, layout, view, !kept.has(row)));
    const drawn = rows.map((row, at) => ({ row, mark: marks[at] })).filter(({ row }) => kept.has(row));
    drawn.sort((one, other) => rank(one.row, options) - rank(other.row, options));
    const taken = drawn.map(({ row, mark }) => around(mark, isRinged(row, options) ? 13 : 6));
    const lines = (options.lines || []).flatMap((line, at) => drawLine(layout, line, at, taken));
    if (options.front)
      for (const own of d3
        .group(
          drawn.filter(({ row }) => row.onFront),
          ({ row }) => kinds.group(row),
        )
        .values())
        drawFront(
          frame,
          own.map(({ mark }) => mark),
          taken,
        );
    for (const { row, mark } of drawn) {
      drawInterval(layout, row, mark, options, drawn.length);
      const off = options.front && !row.onFront;
      mark.node = styled(
        svg("path", {
          d: charllm.shapePath(kinds.shape(row), drawn.length > MOST_LARGE ? 34 : off ? 44 : 84),
          transform: `translate(${mark.x},${mark.y})`,
          class: off ? "point off" : drawn.length > MOST_LARGE ? "point many" : "point",
        }),
        "fill",
        kinds.colour(row),
      );
      frame.svg.append(mark.node);
      if (isRinged(row, options))
        frame.svg.append(svg("circle", { class: "ring", cx: mark.x, cy: mark.y, r: 10 }));
    }
    drawLabels(layout, drawn, options, [...taken, ...lines]);
    charllm.read(frame, marks, { near: true, pinned: view.pinned });
  }

  function arrange({ root, figure, options, columns, rows }) {
    const width = charllm.width(root);
    const height = Math.round(Math.max(320, Math.min(480, width * 0.58)));
    const frame = charllm.frame(root, figure, height, "Arrow keys move between points, Enter pins one.");
    const own = (names) =>
      rows.flatMap((row) => names.filter((name) => name && columns[name]).map((name) => row[name]));
    const lines = options.lines || [];
    const points = lines.flatMap((line) => line.points || []);
    const ys = [
      ...own([options.y, options.low, options.high]),
      ...points.map((point) => point[1]),
      ...lines.map((line) => line.y),
    ];
    const xs = [...own([options.x, options.x_low, options.x_high]), ...points.map((point) => point[0])];
    const [top, bottom, right] = [MARGIN.top, height - MARGIN.bottom, width - MARGIN.right];
    const y = scaleOf(options.y_scale, ys, [bottom, top + (lines.some((line) => charllm.isNumber(line.y)) ? 16 : 0)]);
    const left =
      14 +
      Math.max(0, ...charllm.ticks(y, Math.round((bottom - top) / 50)).map((tick) => charllm.textWidth(tick.text, 12)));
    const x = scaleOf(options.x_scale, xs, [left, right]);
    frame.svg.append(
      charllm.xAxis(x, { top, bottom, title: charllm.heading(columns[options.x]) }),
      charllm.yAxis(y, { left, right, above: top, title: charllm.heading(columns[options.y]) }),
    );
    return { frame, x, y, left, right, top, bottom };
  }

  function scaleOf(kind, values, range) {
    if (kind === "log") {
      const [least, most] = charllm.extent(values.filter((value) => value > 0)) || [1, 10];
      return d3.scaleLog([least / 1.25, most * 1.25], range);
    }
    const [least, most] = charllm.extent(values) || [0, 1];
    const air = (most - least || Math.abs(most) || 1) * 0.06;
    return d3.scaleLinear([least >= 0 && least - air < 0 ? 0 : least - air, most + air], range);
  }

  function markOf(row, { x, y }, { columns, options }, hidden) {
    const names = (options.shown ? [options.x, options.y, ...options.shown] : Object.keys(columns)).filter(
      (name) =>
        columns[name] &&
        name !== options.name &&
        name !== options.details &&
        row[name] !== null &&
        typeof row[name] !== "object" &&
        typeof row[name] !== "boolean",
    );
    const first = names.filter((name) => name === options.x || name === options.y);
    const title = options.name ? charllm.text(row[options.name]) : charllm.quantity(row[options.y], columns[options.y]);
    return {
      key: row.place,
      hidden,
      x: x(row[options.x]),
      y: y(row[options.y]),
      width: 0,
      height: 0,
      title,
      details: options.details ? row[options.details] : null,
      lines: [...new Set([...first, ...names])].map((name) => [
        columns[name].label,
        charllm.quantity(row[name], columns[name]),
      ]),
    };
  }

  // Where there are many points, the intervals of those that do not stand out are faint; of very many, left to tip and table.
  function drawInterval({ frame, x, y }, row, mark, options, points) {
    const faint = points > MANY && !rank(row, options);
    if (faint && points > MOST_LARGE) return;
    const draw = (d) => frame.svg.append(svg("path", { class: faint ? "whisker faint" : "whisker", d }));
    const [low, high, least, most] = [options.low, options.high, options.x_low, options.x_high].map((name) =>
      name ? row[name] : null,
    );
    if (charllm.isNumber(low) && charllm.isNumber(high)) draw(`M${mark.x},${y(low)}V${y(high)}`);
    if (charllm.isNumber(least) && charllm.isNumber(most)) draw(`M${x(least)},${mark.y}H${x(most)}`);
  }

  const around = ({ x, y }, by) => [x - by, y - by, x + by, y + by];

  function drawFront(frame, marks, taken) {
    const sorted = d3.sort(marks, (mark) => mark.x);
    for (const [one, other] of d3.pairs(sorted)) {
      for (const share of d3.range(0.1, 1, 0.1))
        taken.push(around({ x: one.x + share * (other.x - one.x), y: one.y + share * (other.y - one.y) }, 2));
    }
    if (sorted.length > 1)
      frame.svg.append(svg("path", { class: "front", d: `M${sorted.map((mark) => `${mark.x},${mark.y}`).join("L")}` }));
  }

  // A line through points, at one height, or y = slope x with a band of a fraction around it; returns where it lies.
  function drawLine(layout, line, at, taken) {
    const { frame, x, y, left, right, top, bottom } = layout;
    const clip = `clip-${frame.figure.name}-${at}`;
    const path = (points) => `M${points.map(([a, b]) => `${x(a)},${y(b)}`).join("L")}`;
    const steps = d3.range(0, 1.001, 0.02).map((share) => x.invert(left + share * (right - left)));
    const points = charllm.isNumber(line.y)
      ? steps.map((value) => [value, line.y])
      : charllm.isNumber(line.slope)
        ? steps.map((value) => [value, line.slope * value])
        : line.points || [];
    const shown = points.filter(([a, b]) => (!x.base || a > 0) && (!y.base || b > 0));
    if (!shown.length) return [];
    frame.svg.append(
      svg("clipPath", { id: clip }, svg("rect", { x: left, y: top, width: right - left, height: bottom - top })),
    );
    if (line.band_fraction) {
      const edge = (times) => shown.map(([a, b]) => [a, b * times]);
      frame.svg.append(
        svg("path", {
          class: "line-band",
          "clip-path": `url(#${clip})`,
          d: `${path([...edge(1 + line.band_fraction), ...edge(1 - line.band_fraction).reverse()])}Z`,
        }),
      );
    }
    frame.svg.append(
      svg("path", { class: line.faint ? "line faint-line" : "line", "clip-path": `url(#${clip})`, d: path(shown) }),
    );
    const places = shown.map(([a, b]) => [x(a), y(b)]);
    if (line.label) labelLine(layout, line, places, taken);
    return places.map(([a, b]) => around({ x: a, y: b }, 2));
  }

  // The label of a line stands where no point is: tried from its right end, above it, and below it where it climbs.
  function labelLine({ frame, left, right, top, bottom }, line, points, taken) {
    const width = charllm.textWidth(line.label, 13);
    const flat = Math.abs(points[0][1] - points[points.length - 1][1]) < 4;
    const inside = points
      .filter(([a, b]) => a >= left + width + 8 && a <= right + 1 && b >= top + (flat ? 0 : 14) && b <= bottom - 24)
      .reverse();
    const boxAt = ([a, b]) => (flat ? [a - width - 4, b - 20, a - 4, b - 4] : [a - width + 40, b + 16, a + 40, b + 32]);
    const fitting =
      inside.find((point) => {
        const box = boxAt(point);
        return box[2] <= right && !taken.some((other) => overlap(wider(box), other));
      }) || inside[0];
    if (!fitting) return;
    const box = boxAt(fitting);
    taken.push(box);
    frame.svg.append(charllm.label(line.label, box[0], box[3] - 3, { class: "quiet halo" }));
  }

  const wider = ([left, top, right, bottom]) => [left - 6, top, right + 6, bottom];
  const overlap = (one, other) => one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3];

  // Names beside the points that matter, where there is room: right, left, above, below.
  function drawLabels({ frame, left, right, top, bottom }, drawn, options, taken) {
    if (!options.name) return;
    const wanted =
      drawn.length <= MOST_LABELS
        ? [...drawn].reverse()
        : drawn
            .filter(({ row }) => rank(row, options) > 0)
            .reverse()
            .slice(0, MOST_LABELS);
    for (const { mark } of wanted) {
      const text = charllm.cut(mark.title, 190, 12);
      const width = charllm.textWidth(text, 12);
      const { x, y } = mark;
      const places = [
        [x + 13, y - 8],
        [x - 13 - width, y - 8],
        [x - width / 2, y - 25],
        [x - width / 2, y + 9],
        [x - width, y - 25],
        [x - width, y + 9],
      ].map(([a, b]) => [a, b, a + width, b + 16]);
      const box = places.find(
        (one) =>
          one[0] >= left &&
          one[2] <= right + MARGIN.right &&
          one[1] >= top - 16 &&
          one[3] <= bottom &&
          !taken.some((other) => overlap(one, other)),
      );
      if (!box) continue;
      taken.push(box);
      frame.svg.append(charllm.label(text, box[0], box[3] - 4, { class: "tick halo point-name" }));
    }
  }
})(window.charllm);
