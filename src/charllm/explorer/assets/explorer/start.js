(function (charllm) {
  "use strict";
  const explorer = charllm.explorer;
  const element = charllm.element;
  const root = document.getElementById("content");
  const client = crypto.getRandomValues(new Uint32Array(4)).reduce((text, part) => text + part.toString(36), "");
  const TITLES = { explore: "Explore", plan: "Plan", runs: "Runs", live: "Live", compare: "Compare", run: "Run" };
  let [leave, page] = [null, ""];
  const kept = {};

  // Show a page; the one before stops what it was doing.
  function enter(name, show) {
    if (leave) leave();
    leave = null;
    if (page && page !== name) root.focus({ preventScroll: true });
    page = name;
    document.title = `${TITLES[name]} - charllm`;
    for (const link of document.querySelectorAll("nav a")) {
      const current = link.getAttribute("href").split("?")[0] === `#${{ run: "runs", compare: "runs" }[name] || name}`;
      if (current) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    window.scrollTo(0, 0);
    leave = show() || null;
  }

  // A page that is built once, from what the catalog has, and keeps its state while others are shown.
  const showKept = (name) => async (query) => {
    if (kept[name] && page === name) return kept[name].show(query);
    enter(name, () => () => kept[name] && kept[name].leave());
    if (!kept[name]) root.replaceChildren(element("p", { class: "quiet", role: "status" }, "Reading the catalog ..."));
    try {
      kept[name] = kept[name] || explorer[name](await explorer.ask.json("api/choices"), client);
    } catch (error) {
      return root.replaceChildren(element("p", { class: "refusal", role: "alert" }, error.message));
    }
    if (page !== name) return;
    root.replaceChildren(kept[name].root);
    kept[name].show(query);
  };

  document.getElementById("theme").replaceWith(charllm.theme.button());
  explorer.route.start({
    explore: showKept("explore"),
    plan: showKept("plan"),
    runs: (query) => enter("runs", () => void explorer.store(root, query)),
    run: (query) => enter("run", () => void explorer.stored(root, query.getAll("path"), false)),
    compare: (query) => enter("compare", () => void explorer.stored(root, query.getAll("path"), true)),
    live: (query) => enter("live", () => (query.get("path") ? explorer.live(root, query.get("path")) : explorer.recordings(root))),
  });
})(window.charllm);
