(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});
  const { METRICS, metric, delta, known } = explorer.numbers;
  const element = charllm.element;

  const SHOWN = ["step_time_s", "tokens_per_s_per_gpu", "mfu", "tokens_per_j", "memory_need_bytes", "power_mean_w", "clock_mean_hz", "temperature_peak_c"];
  const CARDS = METRICS.filter((each) => SHOWN.includes(each.name));

  // The figures of an answer, each with its difference to the answer before.
  explorer.facts = function () {
    const cards = CARDS.map((each) => ({ metric: each, value: element("dd", {}, "–"), delta: element("dd", { class: "delta" }) }));
    const root = element("dl", { class: "strip" },
      ...cards.map((card) => element("div", {}, element("dt", {}, card.metric.title), card.value, card.delta)));
    return {
      root,
      // `whyMissing` says by metric why it is not known.
      show(metrics, base, whyMissing) {
        for (const card of cards) {
          const missing = !known(metrics[card.metric.name]);
          card.value.textContent = missing ? whyMissing[card.metric.name] || "–" : metric(card.metric, metrics);
          card.value.classList.toggle("quiet", missing);
          showDelta(card.delta, delta(card.metric, metrics, base));
        }
      },
    };
  };

  // A signed difference, marked better or worse by a shape as well as by its colour.
  function showDelta(root, found) {
    root.className = `delta ${found ? found.verdict : ""}`;
    root.textContent = found ? found.text : "";
    if (!found || found.verdict === "same") return;
    root.append(element("span", { class: "hidden-text" }, `, ${found.verdict}`));
  }

  explorer.showDelta = showDelta;
})(window.charllm);
