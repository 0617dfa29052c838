(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});
  let shown = "";

  // The address is the state: '#page?word=value' names what is shown, so that links and the back button work.
  explorer.route = {
    read() {
      const [page, query] = location.hash.slice(1).split(/\?(.*)/s);
      return { page: page || "explore", query: new URLSearchParams(query || "") };
    },

    href: (page, query) => `#${page}${String(query) ? `?${query}` : ""}`,

    // Go to a page and show it.
    go(page, query = "") {
      location.hash = explorer.route.href(page, query);
    },

    // Note in the address what is already shown: one more step for the back button, unless it says the same.
    note(page, query) {
      const hash = explorer.route.href(page, query);
      if (hash === location.hash) return;
      history[location.hash ? "pushState" : "replaceState"](null, "", hash);
      shown = hash;
    },

    // The same without a step for the back button.
    amend(page, query) {
      history.replaceState(null, "", explorer.route.href(page, query));
      shown = location.hash;
    },

    // Show the page that the address names, now and whenever it changes; `pages` are functions of (query).
    start(pages) {
      const show = () => {
        const { page, query } = explorer.route.read();
        if (!pages[page]) return restore(page);
        shown = location.hash;
        pages[page](query, page);
      };
      keepFigures();
      window.addEventListener("hashchange", show);
      document.addEventListener("click", (event) => follow(event, pages));
      show();
    },
  };

  // What a reader chose in a figure stands beside what names the page.
  function keepFigures() {
    charllm.address.read = (name) => explorer.route.read().query.get(`figure-${name}`);
    charllm.address.write = (name, value) => {
      const { page, query } = explorer.route.read();
      if (value === null || value === undefined || value === "") query.delete(`figure-${name}`);
      else query.set(`figure-${name}`, value);
      explorer.route.amend(page, query);
    };
  }

  // A link to a figure of the page that is shown moves there and leaves the address alone.
  function follow(event, pages) {
    const link = event.target.closest && event.target.closest("a[href^='#']");
    if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const name = decodeURIComponent(link.getAttribute("href").slice(1).split("?")[0]);
    if (pages[name]) return;
    event.preventDefault();
    visit(name);
  }

  function restore(name) {
    history.replaceState(null, "", shown || "#explore");
    if (!visit(name)) explorer.route.go("explore");
  }

  function visit(name) {
    const target = document.getElementById(name);
    if (!target) return false;
    if (!target.hasAttribute("tabindex")) target.setAttribute("tabindex", "-1");
    target.focus({ preventScroll: true });
    target.scrollIntoView();
    return true;
  }
})(window.charllm);
