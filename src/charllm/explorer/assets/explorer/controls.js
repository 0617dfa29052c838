(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});
  const { SETTINGS, facts, resolved, stops, blamed } = explorer.settings;
  const element = charllm.element;

  // A control for every setting. What is not chosen follows from the rest, and shows what it was taken as ("auto").
  // `change(word, value)` is called at every move; a value of undefined makes the setting automatic again.
  explorer.controls = function (choices, change) {
    const controls = Object.fromEntries(SETTINGS.map((setting) => [setting.word, MAKERS[setting.kind](setting, choices, change)]));
    const alert = element("p", { class: "refusal", role: "alert" });
    const root = element("form", { class: "settings", "aria-label": "Settings of the run" }, alert, ...groups(controls));
    root.addEventListener("submit", (event) => event.preventDefault());

    return {
      root,

      // Show a request, and for what it leaves open the values of the last valid spec.
      show(request, spec) {
        const known = facts(choices, request, spec);
        for (const setting of SETTINGS) {
          const given = request[setting.word];
          const value = given === undefined ? resolved(setting, spec) : given;
          controls[setting.word].show(value, given === undefined, known);
        }
      },

      // Say what is wrong at the settings that it is about; null: nothing is.
      refuse(error) {
        const about = error ? blamed(error) : [];
        alert.textContent = error && !about.length ? error.message : "";
        const first = about[0];
        for (const setting of SETTINGS) {
          const { row, inputs, note } = controls[setting.word];
          const wrong = about.includes(setting);
          row.classList.toggle("wrong", wrong);
          note.textContent = setting === first ? error.message : "";
          for (const input of inputs) {
            input.setAttribute("aria-invalid", String(wrong));
            if (wrong) input.setAttribute("aria-describedby", controls[first.word].note.id);
            else input.removeAttribute("aria-describedby");
          }
        }
      },
    };
  };

  function groups(controls) {
    const titles = [...new Set(SETTINGS.map((setting) => setting.group))];
    return titles.map((title) => {
      const rows = SETTINGS.filter((setting) => setting.group === title).map((setting) => controls[setting.word].row);
      return element("fieldset", {}, element("legend", {}, title), ...rows);
    });
  }

  // A row: label, the control's own parts, the button that makes it automatic, and a place for what is wrong.
  function row(setting, parts, inputs, change, { optional = true } = {}) {
    const note = element("p", { class: "note", id: `${setting.word}-note` });
    const auto = element("button", { type: "button", class: "auto", "aria-pressed": "true", "aria-label": `auto: ${setting.label}`,
      title: `Leave ${setting.label} to the defaults` }, "auto");
    auto.addEventListener("click", () => change(setting.word, undefined));
    const made = element("div", { class: `row row-${setting.kind}`, ...(setting.hint ? { title: setting.hint } : {}) }, ...parts, ...(optional ? [auto] : []), note);
    const markAuto = (automatic) => {
      made.classList.toggle("automatic", automatic);
      auto.setAttribute("aria-pressed", String(automatic));
    };
    return { row: made, inputs, note, markAuto };
  }

  function makePick(setting, choices, change) {
    const entries = setting.word === "model" ? choices.models.map(describeModel) : choices.clusters.map(describeCluster);
    const free = FREE[setting.word];
    const picked = explorer.pick({ id: `set-${setting.word}`, label: setting.label, entries, free, onPick: (name) => change(setting.word, name) });
    const label = element("label", { for: picked.input.id }, setting.label);
    const made = row(setting, [label, picked.root], [picked.input], change, { optional: false });
    return { ...made, show: (value) => picked.show(value) };
  }

  // Names that no list holds: machines of any size, models by their repository.
  const FREE = {
    cluster: { pattern: /^(\d+x[a-z][\w.-]*|[a-z][\w.-]*x\d+)$/i, note: "so many GPUs, with their usual nodes and network" },
    model: { pattern: /^[\w.-]+\/[\w.-]+$/, note: "a repository of the Hugging Face hub" },
  };

  function describeModel(model) {
    const billions = typeof model.parameters === "number" ? `${charllm.number(model.parameters / 1e9, 3)} B` : "";
    return { name: model.name, note: [billions, model.kind].filter(Boolean).join(", "), words: model.kind === "dense" ? "" : "moe sparse" };
  }

  function describeCluster(cluster) {
    const gpus = typeof cluster.gpus === "number" ? `${cluster.gpus.toLocaleString("en-US")} x ${cluster.gpu}` : cluster.gpu;
    return { name: cluster.name, note: [gpus, cluster.nodes > 1 ? `${cluster.nodes.toLocaleString("en-US")} nodes` : ""].filter(Boolean).join(", ") };
  }

  // A slider that stops at valid values only, and the number itself beside it.
  function makeNumber(setting, _choices, change) {
    const id = `set-${setting.word}`;
    const label = element("label", { for: id, id: `${id}-label` }, setting.label);
    const slider = element("input", { type: "range", min: "0", step: "1", "aria-label": `${setting.label}, slider` });
    const number = element("input", { id, type: "number", step: setting.kind === "whole" ? "1" : "any", inputmode: "decimal" });
    let points = [];
    slider.addEventListener("input", () => {
      const value = points[Number(slider.value)];
      number.value = value;
      slider.setAttribute("aria-valuetext", String(value));
      change(setting.word, value);
    });
    number.addEventListener("input", () => number.value !== "" && change(setting.word, Number(number.value)));
    number.addEventListener("blur", () => number.value === "" && change(setting.word, undefined));
    const made = row(setting, [label, slider, number], [slider, number], change);

    return {
      ...made,
      show(value, automatic, known) {
        made.markAuto(automatic);
        points = stops(setting, known, value);
        slider.max = points.length - 1;
        slider.disabled = points.length < 2;
        const at = points.indexOf(value);
        slider.value = at < 0 ? 0 : at;
        slider.setAttribute("aria-valuetext", value === undefined ? "not known yet" : String(value));
        if (document.activeElement !== number) number.value = typeof value === "number" ? round(value) : value === undefined ? "" : value;
      },
    };
  }

  const round = (value) => Number(value.toPrecision(6));

  function makeChoice(setting, choices, change) {
    const id = `set-${setting.word}`;
    const select = element("select", { id });
    const names = choices[setting.options].map((each) => (typeof each === "string" ? each : each.name));
    select.append(...names.map((name) => element("option", { value: name }, name)));
    select.addEventListener("change", () => change(setting.word, select.value));
    const made = row(setting, [element("label", { for: id }, setting.label), select], [select], change);
    return {
      ...made,
      show(value, automatic) {
        made.markAuto(automatic);
        if (value !== undefined && !names.includes(value)) {
          names.push(value);
          select.append(element("option", { value }, value));
        }
        if (value === undefined) select.selectedIndex = -1;
        else select.value = value;
      },
    };
  }

  function makeSwitch(setting, _choices, change) {
    const id = `set-${setting.word}`;
    const box = element("input", { id, type: "checkbox" });
    box.addEventListener("change", () => change(setting.word, box.checked));
    const made = row(setting, [element("label", { for: id }, setting.label), box], [box], change);
    return {
      ...made,
      show(value, automatic) {
        made.markAuto(automatic);
        box.checked = value === true;
      },
    };
  }

  function makeAxes(setting, choices, change) {
    const axes = choices[setting.options];
    const boxes = axes.map((axis) => element("input", { id: `set-overlap-${axis}`, type: "checkbox", value: axis }));
    const pairs = boxes.map((box) => element("label", { for: box.id }, box, box.value));
    const group = element("div", { class: "axes", role: "group", "aria-labelledby": `set-${setting.word}-label` }, ...pairs);
    for (const box of boxes) {
      box.addEventListener("change", () => change(setting.word, boxes.filter((each) => each.checked).map((each) => each.value)));
    }
    const label = element("span", { class: "name", id: `set-${setting.word}-label` }, setting.label);
    const made = row(setting, [label, group], boxes, change);
    return {
      ...made,
      show(value, automatic) {
        made.markAuto(automatic);
        for (const box of boxes) box.checked = (value || []).includes(box.value);
      },
    };
  }

  const MAKERS = { pick: makePick, whole: makeNumber, number: makeNumber, choice: makeChoice, switch: makeSwitch, axes: makeAxes };
})(window.charllm);
