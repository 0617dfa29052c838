(function (charllm) {
  "use strict";

  const AXES = ["tp", "pp", "dp", "ep", "cp"];
  const PALETTES = {
    part: [
      "forward",
      "backward",
      "weight",
      "step",
      "compute",
      "recompute",
      "optimizer",
      ...AXES,
      "straggler",
      "bubble",
      "overhead",
    ],
    axis: AXES,
    memory: ["weights", "gradients", "optimizer", "activations", "scratch", "reserve", "communication", "context"],
    cause: ["power", "thermal", "brake"],
    origin: ["simulated", "emulated", "measured"],
  };
  // Greys that lie beside each other are told apart by a hatch as well.
  const HATCHED = ["part-straggler", "memory-context"];
  const SERIES = 8;
  const SHAPES = { simulated: "circle", emulated: "triangle", measured: "square" };
  const OTHER_SHAPES = ["circle", "triangle", "square", "diamond", "cross", "star"];

  const wordOf = (key) => String(key).replace(/_(exposed|wait)$/, "");

  // The token of a key: that of its palette where it has one ("tp_exposed" is "tp"), else one of the series by its place.
  charllm.token = function (palette, key, place) {
    const word = wordOf(key);
    if ((PALETTES[palette] || []).includes(word)) return palette === "axis" ? `part-${word}` : `${palette}-${word}`;
    return `series-${((place || 0) % SERIES) + 1}`;
  };

  // The palette that has all of some keys; else that of plain series.
  charllm.paletteOf = (keys) =>
    ["origin", "axis"].find((name) => keys.length && keys.every((key) => PALETTES[name].includes(key))) || "series";

  // Keys in the order in which their palette has them, the others as they come.
  charllm.inOrder = function (palette, keys) {
    const known = (PALETTES[palette] || [])
      .map((word) => keys.find((key) => wordOf(key) === word))
      .filter((key) => key !== undefined);
    return [...new Set([...known, ...keys])];
  };

  // How a key reads where nobody has named it: "tp_exposed" is "exposed tp".
  charllm.nameOf = (key, labels) =>
    (labels || {})[key] ||
    String(key)
      .replace(/^(.+)_exposed$/, "exposed $1")
      .replaceAll("_", " ");

  charllm.isHatched = (token) => HATCHED.includes(token);

  // The fill of a token inside one drawing: a colour, or a hatch whose pattern is added to the drawing once.
  charllm.fill = function (drawing, token) {
    if (!charllm.isHatched(token)) return `var(--${token})`;
    const name = `hatch-${token}-${(drawing.dataset.serial = drawing.dataset.serial || String((serial += 1)))}`;
    if (!drawing.querySelector(`#${name}`)) drawing.prepend(hatch(name, token));
    return `url(#${name})`;
  };
  let serial = 0;

  function hatch(name, token) {
    const svg = charllm.svg;
    const pattern = svg("pattern", {
      id: name,
      width: 5,
      height: 5,
      patternUnits: "userSpaceOnUse",
      patternTransform: "rotate(45)",
    });
    const back = svg("rect", { width: 5, height: 5 });
    const stroke = svg("rect", { width: 2.6, height: 5 });
    back.style.fill = "var(--paper)";
    stroke.style.fill = `var(--${token})`;
    pattern.append(back, stroke);
    return svg("defs", {}, pattern);
  }

  // The same for a canvas.
  charllm.canvasFill = function (context, token) {
    const colour = charllm.colour(token);
    if (!charllm.isHatched(token)) return colour;
    const tile = charllm.element("canvas", { width: 6, height: 6 });
    const pen = tile.getContext("2d");
    pen.fillStyle = charllm.colour("paper");
    pen.fillRect(0, 0, 6, 6);
    pen.strokeStyle = colour;
    pen.lineWidth = 2;
    for (const shift of [-6, 0, 6]) {
      pen.beginPath();
      pen.moveTo(shift, 6);
      pen.lineTo(shift + 6, 0);
      pen.stroke();
    }
    return context.createPattern(tile, "repeat");
  };

  charllm.withAlpha = function (colour, alpha) {
    const found = d3.color(colour);
    found.opacity = alpha;
    return found.formatRgb();
  };

  // Black or white, whichever reads better on a colour.
  charllm.inkOn = function (colour) {
    const found = d3.rgb(colour);
    const linear = [found.r, found.g, found.b].map((part) =>
      part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4,
    );
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.18 ? "#111" : "#fff";
  };

  // The shape of a kind of point: origins have theirs everywhere, other kinds take the next.
  charllm.shape = (key, place) => SHAPES[key] || OTHER_SHAPES[(place || 0) % OTHER_SHAPES.length];

  const PATHS = {
    circle: d3.symbolCircle,
    triangle: d3.symbolTriangle,
    square: d3.symbolSquare,
    diamond: d3.symbolDiamond,
    cross: d3.symbolCross,
    star: d3.symbolStar,
  };
  const paths = new Map();
  charllm.shapePath = function (shape, area) {
    const key = `${shape}${area}`;
    if (!paths.has(key)) paths.set(key, d3.symbol(PATHS[shape], area || 60)());
    return paths.get(key);
  };
})(window.charllm);
