// Everything of the front end hangs on this one object: charllm.draw[kind], charllm.page, and the helpers of these files.
window.charllm = window.charllm || { draw: {} };

(function (charllm) {
  "use strict";

  const SVG = "http://www.w3.org/2000/svg";
  const MISSING = "–";

  // Columns of a figure's table with their values unpacked, once; a missing number is null.
  charllm.columns = function (packed) {
    if (!packed) return {};
    if (!unpacked.has(packed)) {
      const entries = Object.entries(packed).map(([name, column]) => [
        name,
        { ...column, values: unpack(column.values), rounded: Boolean(column.values.f32) },
      ]);
      unpacked.set(packed, Object.fromEntries(entries));
    }
    return unpacked.get(packed);
  };
  const unpacked = new WeakMap();

  function unpack(values) {
    if (Array.isArray(values)) return values;
    if (values.texts) return Array.from(new Uint16Array(bytes(values.u16)), (at) => values.texts[at]);
    return Array.from(new Float32Array(bytes(values.f32)), (value) => (Number.isNaN(value) ? null : value));
  }

  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;

  // Rows of a figure's table: one object a row, keyed by column.
  charllm.rows = function (columns) {
    const names = Object.keys(columns);
    const length = names.length ? columns[names[0]].values.length : 0;
    return Array.from({ length }, (_, at) => Object.fromEntries(names.map((name) => [name, columns[name].values[at]])));
  };

  // Rows of a table grouped by the text of one column, in order of appearance.
  charllm.groups = function (rows, name) {
    const found = new Map();
    for (const row of rows) {
      const key = charllm.text(row[name]);
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(row);
    }
    return found;
  };

  // An element with attributes and children; texts become text nodes, never markup.
  charllm.element = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

  // The same for a part of a drawing. Colours are given as tokens: {fill: "ink"} is the token --ink.
  charllm.svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

  function fill(made, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined && value !== false)
        made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
    return made;
  }

  // A value as it is read: numbers with the digits that matter, truths as words, a missing value as a dash.
  charllm.text = function (value, column) {
    if (value === null || value === undefined) return MISSING;
    if (value === true) return "yes";
    if (value === false) return "no";
    return typeof value === "number" ? charllm.number(value, column && column.digits) : String(value);
  };

  charllm.number = function (value, digits) {
    if (value === null || value === undefined || Number.isNaN(value)) return MISSING;
    if (value !== 0 && (Math.abs(value) >= 1e9 || Math.abs(value) < 1e-4))
      return value.toExponential((digits || 3) - 1).replace("e+", "e");
    const whole = Math.max(1, Math.floor(Math.log10(Math.abs(value) || 1)) + 1);
    return format({ maximumSignificantDigits: Math.min(21, Math.max(digits || 4, whole)) }, value);
  };

  // Making a format takes far longer than using one.
  const formats = new Map();
  function format(settings, value) {
    const key = JSON.stringify(settings);
    if (!formats.has(key)) formats.set(key, new Intl.NumberFormat("en", settings));
    return formats.get(key).format(value).replace("-", "−");
  }

  // How many there are of something: 50,000.
  charllm.count = (value) => format({ maximumFractionDigits: 0 }, value);

  // A number with as many digits as its neighbours have: 16 of three digits is "16.0".
  charllm.even = (value, digits) => {
    if (value === 0) return "0";
    const shown = Number(value.toPrecision(digits || 3));
    const decimals = Math.max(0, (digits || 3) - Math.max(1, Math.floor(Math.log10(Math.abs(shown) || 1)) + 1));
    return format({ minimumFractionDigits: decimals, maximumFractionDigits: decimals }, shown);
  };

  // A number with the unit of its column: "31.7 s".
  charllm.quantity = function (value, column) {
    const shown = charllm.text(value, column);
    return shown === MISSING || !column || !column.unit ? shown : `${shown} ${column.unit}`;
  };

  // A heading with its unit: "Power, W". Words begin with a capital; names such as tp stay as they are.
  charllm.heading = function (column) {
    if (!column) return "";
    const label = column.label.replace(/^[a-z](?=[a-z]{2,}(\s|$|,))/, (letter) => letter.toUpperCase());
    return column.unit ? `${label}, ${column.unit}` : label;
  };

  charllm.isNumber = (value) => typeof value === "number" && Number.isFinite(value);

  // The value of a colour token in the theme that is shown, for canvases; drawings in SVG use var(--token) itself.
  charllm.colour = function (token) {
    if (!colours.has(token)) colours.set(token, probe(token));
    return colours.get(token);
  };
  const colours = new Map();
  document.addEventListener("charllm-theme", () => colours.clear());

  function probe(token) {
    const made = charllm.element("span", { hidden: true });
    made.style.color = `var(--${token})`;
    document.body.append(made);
    const found = getComputedStyle(made).color;
    made.remove();
    return found;
  }

  // Run what a drawing left behind to be undone (listeners, canvases), then empty its element.
  charllm.clear = function (root) {
    for (const held of [root, ...root.querySelectorAll("*")]) {
      if (held.charllmUndo) held.charllmUndo.splice(0).forEach((undo) => undo());
    }
    root.replaceChildren();
  };

  charllm.undo = (root, action) => (root.charllmUndo = root.charllmUndo || []).push(action);
})(window.charllm);
