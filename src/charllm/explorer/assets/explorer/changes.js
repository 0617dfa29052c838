(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});
  const element = charllm.element;

  // Single changes to the run that is shown and what each would bring; a click on one makes it.
  explorer.changes = function (client, apply) {
    const said = element("p", { class: "quiet", role: "status" });
    const drawing = element("div", { class: "drawing" });
    const buttons = element("div", { class: "buttons" });
    const root = element("section", { class: "panel", "aria-label": "What would help?", hidden: "" },
      element("h2", {}, "What would help?"), said, drawing, buttons);
    let abort = null;

    function clear() {
      if (abort) abort.abort();
      abort = null;
      root.hidden = true;
    }

    async function ask(request) {
      clear();
      const mine = (abort = new AbortController());
      root.hidden = false;
      charllm.clear(drawing);
      buttons.replaceChildren();
      said.textContent = "Predicting single changes ...";
      const refuse = (error) => (said.textContent = error.message);
      try {
        await explorer.ask.events("api/changes", {
          changes: ({ figure }) => mine === abort && show(figure, request),
          error: refuse,
        }, { body: { client, request: explorer.request.body(request) }, signal: mine.signal });
      } catch (error) {
        if (error.name !== "AbortError") refuse(error);
      }
    }

    function show(figure, request) {
      said.textContent = figure.missing || `${figure.message} Click a bar to make that change.`;
      if (figure.missing) return;
      const make = (text) => {
        const change = explorer.request.fromFlags(text);
        if (change && request.dp === undefined) delete change.dp;
        if (change) apply(explorer.request.changed(request, change));
        else said.textContent = `"${text}" is no setting of the explorer: it would have to be bought or built.`;
      };
      charllm.draw.tornado(drawing, { ...figure, onPick: make });
      const { change, effect, fits } = figure.options;
      const helps = (row) => row[effect] > 0 && row[fits] !== false && explorer.request.fromFlags(String(row[change]));
      const rows = charllm.rows(charllm.columns(figure.columns)).filter(helps);
      buttons.replaceChildren(...rows.map((row) => button(String(row[change]), make)));
    }

    return { root, ask, clear };
  };

  function button(text, make) {
    const made = element("button", { type: "button" }, text);
    made.addEventListener("click", () => make(text));
    return made;
  }
})(window.charllm);
