(function (charllm) {
  "use strict";
  const { element } = charllm;

  const MOST_CHOICES = 40;

  // A filter of one column, kept in the address: a choice for texts, a least and a most for numbers. Returns its test of a row.
  charllm.filter = function (controls, figure, name, column, apply) {
    const known = column.values.filter((value) => value !== null);
    const isRange = known.length > 0 && known.every(charllm.isNumber) && new Set(known).size > 6;
    return (isRange ? range : choice)(controls, `${figure}.${name}`, name, column, apply);
  };

  function choice(controls, key, name, column, apply) {
    const texts = [...new Set(column.values.map((value) => charllm.text(value, column)))].slice(0, MOST_CHOICES);
    const field = element(
      "select",
      {},
      element("option", { value: "" }, "all"),
      ...texts.map((text) => element("option", { value: text }, text)),
    );
    const kept = charllm.address.read(key);
    if (kept && texts.includes(kept)) field.value = kept;
    controls.append(element("label", {}, charllm.heading(column), field));
    field.addEventListener("change", () => {
      charllm.address.write(key, field.value);
      apply();
    });
    return (row) => !field.value || charllm.text(row[name], column) === field.value;
  }

  function range(controls, key, name, column, apply) {
    const [least, most] = charllm.extent(column.values);
    const fields = ["least", "most"].map((word) => {
      const field = element("input", {
        type: "number",
        step: "any",
        placeholder: charllm.number(word === "least" ? least : most, 3),
        "aria-label": `${charllm.heading(column)}: ${word}`,
        value: charllm.address.read(`${key}.${word}`) || "",
      });
      field.addEventListener("input", () => {
        charllm.address.write(`${key}.${word}`, field.value);
        apply();
      });
      return field;
    });
    controls.append(
      element(
        "span",
        { class: "range" },
        element("span", {}, charllm.heading(column)),
        element("span", {}, fields[0], " to ", fields[1]),
      ),
    );
    return (row) => {
      const bounds = fields.map((field) => (field.value === "" ? null : Number(field.value)));
      if (bounds[0] === null && bounds[1] === null) return true;
      const value = row[name];
      return (
        charllm.isNumber(value) &&
        (bounds[0] === null || value >= bounds[0]) &&
        (bounds[1] === null || value <= bounds[1])
      );
    };
  }

  // A limit on one column, kept in the address: a slider between its least and its most. Returns its test of a row;
  // a row without the value breaks a limit that was moved, or that came with the figure.
  charllm.slider = function (controls, figure, { column: name, sense, value }, column, apply) {
    const key = `${figure}.${name}.limit`;
    const isLeast = sense === "least";
    const [low, high] = charllm.extent([...column.values, value]);
    const power = Math.floor(Math.log10((high - low || 1) / 50));
    const step = 10 ** power;
    // The last stop, beyond every value, is no limit; its digits are those of a step, so that a slider can reach it.
    const stop = (count) => Number((count * step).toFixed(Math.max(0, -power)));
    const [least, most] = [stop(Math.floor(low / step) - 1), stop(Math.ceil(high / step) + 1)];
    const heading = `${charllm.heading(column)}, ${isLeast ? "at least" : "at most"}`;
    const field = element("input", { type: "range", min: least, max: most, step, "aria-label": heading });
    field.value = charllm.address.read(key) ?? value ?? (isLeast ? least : most);
    const shown = element("output");
    const isFree = () => (isLeast ? field.value < least + step / 2 : field.value > most - step / 2);
    const show = () => {
      const text = isFree() ? "no limit" : charllm.quantity(Number(field.value), { ...column, digits: 4 });
      shown.textContent = text;
      field.setAttribute("aria-valuetext", text);
    };
    field.addEventListener("input", () => {
      charllm.address.write(key, field.value);
      show();
      apply();
    });
    controls.append(element("label", { class: "slider" }, element("span", {}, heading), field, shown));
    show();
    return (row) =>
      isFree() ||
      (charllm.isNumber(row[name]) && (isLeast ? row[name] >= field.value : row[name] <= field.value));
  };
})(window.charllm);
