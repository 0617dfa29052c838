(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});
  const element = charllm.element;

  // What a plan may be held to, in the unit that people read, and the values of its slider on a cluster.
  const LIMITS = [
    { name: "memory_peak_bytes", range: ({ memory }) => [memory * 0.3, memory, 1] },
    { name: "temperature_peak_c", range: () => [40, 90, 0.5] },
    { name: "power_peak_sensor_w", range: ({ cap }) => [cap * 0.3, cap * 1.5, 5] },
    { name: "cluster_power_peak_w", range: ({ cap, gpus }) => [cap * gpus * 0.4e-3, cap * gpus * 2.4e-3, gpus > 64 ? 10 : 0.5] },
    { name: "clock_loss_fraction.power", range: () => [0, 40, 0.5] },
  ].map(({ name, range }) => {
    const { spelled, title, unit, meaning } = charllm.metrics[name];
    return { metric: spelled, label: `${title}, ${unit}`, hint: meaning, range };
  });
  const pattern = (metric) => new RegExp(`^${metric.replace(".", "\\.")}<([\\d.]+)$`);

  // A slider for each limit; its last stop is no limit. `change(texts)` is called at every move.
  explorer.limits = function (change) {
    const rows = LIMITS.map((limit) => row(limit, () => change(texts())));
    const texts = () => rows.map((each) => each.text()).filter(Boolean);
    return {
      root: element("fieldset", {}, element("legend", {}, "Limits (at most)"), ...rows.map((each) => each.root)),
      // Show limits such as "temperature_peak_c<80" on a cluster.
      show(limits, facts) {
        rows.forEach((each) => each.show(limits, facts));
      },
    };
  };

  function row({ metric, label, hint, range }, changed) {
    const slider = element("input", { type: "range", "aria-label": `${label}, at most, slider` });
    const field = element("input", { type: "number", step: "any", id: `limit-${metric}`, placeholder: "none" });
    const none = element("button", { type: "button", class: "auto", "aria-pressed": "true", "aria-label": `no limit: ${label}` }, "none");
    const root = element("div", { class: "row automatic", title: hint }, element("label", { for: field.id }, label), slider, field, none);
    const mark = () => {
      root.classList.toggle("automatic", field.value === "");
      none.setAttribute("aria-pressed", String(field.value === ""));
      slider.setAttribute("aria-valuetext", field.value === "" ? "no limit" : `${field.value}`);
    };
    const set = (value) => {
      field.value = value;
      mark();
      changed();
    };
    slider.addEventListener("input", () => set(Number(slider.value) >= Number(slider.max) ? "" : slider.value));
    field.addEventListener("input", () => {
      slider.value = field.value === "" ? slider.max : field.value;
      mark();
      changed();
    });
    none.addEventListener("click", () => {
      slider.value = slider.max;
      set("");
    });
    return {
      root,
      text: () => (field.value === "" ? "" : `${metric}<${field.value}`),
      show(limits, facts) {
        const [low, high, step] = range(facts);
        Object.assign(slider, { min: Math.floor(low / step) * step, step });
        slider.max = (Math.ceil(high / step) + 1) * step;
        const given = limits.map((text) => pattern(metric).exec(text)).find(Boolean);
        field.value = given ? given[1] : "";
        slider.value = given ? given[1] : slider.max;
        mark();
      },
    };
  }
})(window.charllm);
