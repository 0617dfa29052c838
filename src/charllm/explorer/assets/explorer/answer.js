(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});
  const element = charllm.element;
  const NO_FIT = { step_time_s: "does not fit" };

  // The answer to a request: how far it has come, its figures with their differences, and its page.
  // `apply(change)` makes a change that is offered: {word: value}, undefined being automatic.
  explorer.answer = function (apply) {
    const badge = element("span", { class: "mark" });
    const state = element("span", { class: "state" });
    const against = element("p", { class: "against quiet" });
    const facts = explorer.facts();
    const warnings = element("ul", { class: "cautions" });
    const offers = element("p", { class: "offers" });
    const spoken = element("div", { class: "hidden-text", role: "status", "aria-live": "polite" });
    const head = element("div", { class: "result-head" }, element("p", { class: "progress" }, badge, " ", state), offers, facts.root, against, warnings, spoken);
    const page = element("div", { class: "sheet" });

    function mark(kind, label, text) {
      head.dataset.state = page.dataset.state = kind;
      badge.textContent = label;
      state.textContent = text;
      offers.replaceChildren();
    }

    // Offer changes as buttons; those that the explorer has no control for are left out.
    function offer(title, changes) {
      const known = changes.filter((each) => each && Object.keys(each).length);
      const buttons = known.map((change) => {
        const made = element("button", { type: "button" }, explorer.request.words(change));
        made.addEventListener("click", () => apply(change));
        return made;
      });
      offers.replaceChildren(...(buttons.length ? [title, ...buttons] : []));
    }

    function warn(texts) {
      warnings.replaceChildren(...(texts || []).map((each) => element("li", {}, each)));
    }

    function compare(shown, base) {
      const found = base ? explorer.request.differences(base, shown) : [];
      against.textContent = found.length ? `Differences from the previous prediction: ${found.join("; ")}.` : "";
    }

    return {
      head,
      page,
      wait() {
        mark("waiting", "asking", "");
      },
      fast(shown, base) {
        const answer = shown.fast;
        const fits = answer.fits !== false;
        mark("fast", "estimate", fits ? "All GPUs at one clock; the full simulation follows." : "Does not fit in memory.");
        facts.show(answer.metrics, base && base.fast.metrics, fits ? { temperature_peak_c: "follows" } : NO_FIT);
        compare(shown, base);
        warn(answer.warnings.filter((each) => each.startsWith("memory")));
      },
      coupled(shown, base) {
        const answer = shown.coupled;
        const fits = answer.metrics.fits !== false;
        mark("coupled", "full simulation", fits ? `Every GPU at its own clock and temperature (computed in ${charllm.number(answer.elapsed_s, 2)} s).` : "Does not fit in memory.");
        facts.show(answer.metrics, base && base.coupled.metrics, fits ? {} : NO_FIT);
        offer("Would fit:", [explorer.request.fromFlags((shown.fast || answer).fits_with || "")]);
        compare(shown, base);
        warn([]);
        showPage(page, answer.page);
        spoken.textContent = answer.page.answer[0] || "";
      },
      refuse(error) {
        const [first] = explorer.settings.blamed(error);
        const where = first ? `See ${first.label}.` : error.message;
        spoken.textContent = error.message;
        mark("refused", error.field ? "not valid" : "no answer", page.childElementCount ? `${where} Showing the last valid result, in grey.` : where);
        offer("Nearest valid:", error.offers.map(({ word, value }) => ({ [word]: value === null ? undefined : value })));
      },
    };
  };

  // Replace a page without moving what the reader looks at.
  function showPage(root, page) {
    root.style.minHeight = `${root.offsetHeight}px`;
    charllm.page.show(root, page, { contents: false });
    root.style.minHeight = "";
  }

})(window.charllm);
