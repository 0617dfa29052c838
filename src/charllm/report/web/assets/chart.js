(function (charllm) {
  "use strict";
  const { element, svg } = charllm;

  const LEAST_WIDTH = 280;
  const FONT = 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
  const pen = document.createElement("canvas").getContext("2d");

  charllm.width = (root) => Math.max(LEAST_WIDTH, Math.floor(root.clientWidth || 0));
  charllm.isNarrow = (root) => charllm.width(root) < 560;

  // The element that a drawing stands in: one stop of the Tab key, whose picture says in words what it shows.
  charllm.frame = function (root, figure, height, keys) {
    const width = charllm.width(root);
    const drawing = svg("svg", {
      role: "img",
      "aria-label": figure.message || figure.question,
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
    });
    const box = element(
      "div",
      {
        class: "chart",
        tabindex: 0,
        role: "application",
        "aria-roledescription": "chart",
        "aria-label": `${figure.question || "Chart"} ${keys || "Arrow keys move between values, Enter pins one."}`,
      },
      drawing,
    );
    root.append(box);
    return { root, figure, box, svg: drawing, width, height };
  };

  charllm.textWidth = function (text, size, weight) {
    const font = `${weight || 400} ${size || 13}px ${FONT}`;
    if (font !== pen.charllmFont) pen.charllmFont = pen.font = font;
    return pen.measureText(text).width;
  };

  // A text cut to a width, with an ellipsis.
  charllm.cut = function (text, width, size, weight) {
    if (charllm.textWidth(text, size, weight) <= width) return text;
    let kept = text.slice(0, 200);
    while (kept.length > 1 && charllm.textWidth(`${kept}…`, size, weight) > width) kept = kept.slice(0, -1);
    return `${kept.trimEnd()}…`;
  };

  // A text in a drawing; what was cut is told by the browser's own tip.
  charllm.label = function (text, x, y, attributes, room) {
    const { class: kind, ...others } = attributes || {};
    const shown =
      room === undefined
        ? text
        : charllm.cut(
            text,
            room,
            /^(tick|title)/.test(kind || "") ? 12 : 13,
            (kind || "").startsWith("strong") || kind === "title" ? 650 : 400,
          );
    const made = svg("text", { x, y, class: `label ${kind || ""}`.trim(), ...others }, shown);
    if (shown !== text) made.append(svg("title", {}, text));
    return made;
  };

  // The width that row labels need, at most a share of the drawing.
  charllm.labelRoom = (texts, width, share, weight) =>
    Math.ceil(
      Math.min(width * (share || 0.3), Math.max(0, ...texts.map((text) => charllm.textWidth(text, 13, weight))) + 14),
    );

  // Ticks of a scale with their texts; a log scale keeps powers of ten, and 2 and 5 of them where there is room.
  charllm.ticks = function (scale, count) {
    if (!scale.base) {
      const format = scale.tickFormat(count);
      return scale.ticks(count).map((value) => ({ value, text: format(value) }));
    }
    const [least, most] = scale.domain();
    const decades = Math.log10(most / least);
    const kept = decades > count ? [1] : decades > count / 3 ? [1] : [1, 2, 5];
    const found = [];
    const every = Math.max(1, Math.ceil(decades / count));
    for (let power = Math.floor(Math.log10(least)); power <= Math.ceil(Math.log10(most)); power += 1) {
      if (kept.length === 1 && power % every) continue;
      for (const times of kept) {
        const value = times * 10 ** power;
        if (value >= least * 0.999 && value <= most * 1.001) found.push({ value, text: charllm.number(value, 2) });
      }
    }
    return found;
  };

  // As many ticks as stand apart from each other.
  function spacedTicks(scale, count, format) {
    const ticks = charllm
      .ticks(scale, count)
      .map((tick) => ({ ...tick, text: format ? format(tick.value) : tick.text }));
    const half = (tick) => charllm.textWidth(tick.text, 12) / 2;
    const close = ticks.some(
      (tick, at) => at && scale(tick.value) - half(tick) < scale(ticks[at - 1].value) + half(ticks[at - 1]) + 8,
    );
    if (!close) return ticks;
    return count > 2 ? spacedTicks(scale, count - 1, format) : [ticks[0], ticks[ticks.length - 1]];
  }

  // A horizontal axis below a panel, with its grid lines and its title.
  charllm.xAxis = function (scale, { top, bottom, title, count, format }) {
    const [left, right] = scale.range();
    const group = svg("g", { class: "axis" });
    for (const tick of spacedTicks(
      scale,
      count || Math.max(2, Math.round((right - left) / (scale.base ? 60 : 90))),
      format,
    )) {
      const x = scale(tick.value);
      const isCut = x < charllm.textWidth(tick.text, 12) / 2;
      group.append(
        svg("line", { class: "grid-line", x1: x, x2: x, y1: top, y2: bottom }),
        charllm.label(tick.text, x, bottom + 18, { "text-anchor": isCut ? "start" : "middle", class: "tick" }),
      );
    }
    const wide = charllm.textWidth(title || "", 12, 650) > right;
    if (title)
      group.append(
        charllm.label(title, wide ? 0 : right, bottom + 38, { "text-anchor": wide ? "start" : "end", class: "title" }),
      );
    return group;
  };

  // A vertical axis left of a panel, with its grid lines; its title stands above it, to be read without turning the head.
  charllm.yAxis = function (scale, { left, right, title, above }) {
    const [bottom, top] = scale.range();
    const group = svg("g", { class: "axis" });
    for (const tick of charllm.ticks(scale, Math.max(2, Math.round((bottom - top) / 50)))) {
      const y = scale(tick.value);
      group.append(
        svg("line", { class: "grid-line", x1: left, x2: right, y1: y, y2: y }),
        charllm.label(tick.text, left - 8, y, { "text-anchor": "end", dy: "0.35em", class: "tick" }),
      );
    }
    if (title) group.append(charllm.label(title, 0, (above ?? top) - 14, { class: "title" }, right));
    return group;
  };

  // What colours and shapes mean: [{label, token, shape}].
  charllm.legend = function (items) {
    return element(
      "ul",
      { class: "legend" },
      ...items.map((item) => {
        const swatch = svg("svg", { width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": "true" });
        swatch.append(mark(swatch, item));
        return element("li", {}, swatch, item.label);
      }),
    );
  };

  function mark(swatch, { token, shape, kind }) {
    if (kind === "line") return styled(svg("path", { d: "M0,7H14", "stroke-width": 2.5 }), "stroke", `var(--${token})`);
    if (kind === "dotted")
      return styled(
        svg("path", { d: "M0,7H14", "stroke-width": 1.5, "stroke-dasharray": "2 3" }),
        "stroke",
        `var(--${token})`,
      );
    if (kind === "dashed")
      return styled(
        svg("path", { d: "M0,7H14", "stroke-width": 2, "stroke-dasharray": "4 3" }),
        "stroke",
        `var(--${token})`,
      );
    if (kind === "band")
      return styled(
        svg("rect", { width: 14, height: 14, rx: 2, "fill-opacity": 0.3, class: "swatch" }),
        "fill",
        `var(--${token})`,
      );
    if (kind === "ring")
      return styled(
        svg("circle", { cx: 7, cy: 7, r: 5, "stroke-width": 2.5, fill: "none" }),
        "stroke",
        `var(--${token})`,
      );
    if (shape)
      return styled(
        svg("path", { d: charllm.shapePath(shape, 70), transform: "translate(7,7)" }),
        "fill",
        `var(--${token})`,
      );
    return styled(svg("rect", { width: 14, height: 14, rx: 2, class: "swatch" }), "fill", charllm.fill(swatch, token));
  }

  // The colours of a magnitude, from its least to its most.
  charllm.scaleBar = function (label, [least, most], unit) {
    const strip = styled(
      element("span", { class: "strip", "aria-hidden": "true" }),
      "background",
      `linear-gradient(to right, ${d3
        .range(0, 1.01, 0.1)
        .map((at) => d3.interpolateCividis(at))
        .join(", ")})`,
    );
    return element(
      "div",
      { class: "scale" },
      element("span", {}, label || ""),
      element(
        "span",
        { class: "range" },
        charllm.number(least, 3),
        strip,
        `${charllm.number(most, 3)} ${unit || ""}`.trim(),
      ),
    );
  };

  // A part with one style property: a token in an attribute would not be resolved.
  function styled(made, name, value) {
    made.style[name] = value;
    return made;
  }
  charllm.styled = styled;

  // What stands in place of a drawing that has no data.
  charllm.nothing = (root, reason) =>
    root.append(element("p", { class: "missing" }, reason || "Nothing to draw: the table is empty."));

  // The least and the most of some values, missing ones left out; null where there is none.
  charllm.extent = function (values) {
    const known = values.filter(charllm.isNumber);
    return known.length ? [d3.min(known), d3.max(known)] : null;
  };
})(window.charllm);
