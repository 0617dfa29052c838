"use strict";
// Search, light or dark, and the list of pages on a narrow screen. Works from a file, without a server.
(() => {
  const root = document.currentScript.dataset.root;
  const MOST = 12, AROUND = 60;

  const dark = () => matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  function setTheme(name) {
    document.documentElement.dataset.theme = name;
    const button = document.getElementById("theme");
    if (button) button.textContent = name === "dark" ? "Light" : "Dark";
  }
  const remembered = () => { try { return localStorage.getItem("charllm-theme"); } catch { return null; } };
  setTheme(remembered() || dark());

  // The index is a script, because a page opened from a file may not fetch another file.
  function loadIndex() {
    if (window.charllmIndex || document.getElementById("index")) return;
    const script = document.createElement("script");
    script.id = "index";
    script.src = `${root}/search/index.js`;
    script.addEventListener("load", show);
    document.head.append(script);
  }

  function find(query) {
    const phrase = query.trim().toLowerCase(), words = phrase.split(/\s+/).filter(Boolean);
    if (!words.length || !window.charllmIndex) return [];
    const scored = [];
    for (const entry of window.charllmIndex) {
      const title = `${entry.page} ${entry.title}`.toLowerCase(), text = entry.text.toLowerCase();
      let score = 0;
      for (const word of words) {
        const own = (title.includes(word) ? 10 : 0) + (text.includes(word) ? 1 : 0);
        if (!own) { score = 0; break; }
        score += own;
      }
      if (score) scored.push([score + (text.includes(phrase) ? 5 : 0), entry]);
    }
    return scored.sort((a, b) => b[0] - a[0]).slice(0, MOST).map((pair) => pair[1]);
  }

  function excerpt(entry, query) {
    const word = query.toLowerCase().split(/\s+/)[0];
    const at = Math.max(0, entry.text.toLowerCase().indexOf(word) - AROUND);
    return (at ? "... " : "") + entry.text.slice(at, at + 2 * AROUND) + " ...";
  }

  function show() {
    const query = document.getElementById("search").value, list = document.getElementById("found");
    const entries = find(query);
    list.replaceChildren(...entries.map((entry) => {
      const item = document.createElement("li"), link = document.createElement("a"), small = document.createElement("small");
      link.href = `${root}/${entry.location}`;
      link.textContent = entry.page === entry.title ? entry.title : `${entry.page}: ${entry.title}`;
      small.textContent = excerpt(entry, query);
      link.append(small);
      item.append(link);
      return item;
    }));
    if (!entries.length && window.charllmIndex) {
      const item = document.createElement("li");
      item.textContent = "Nothing found.";
      list.append(item);
    }
    list.hidden = !query.trim();
  }

  function moveFocus(event) {
    const stops = [document.getElementById("search"), ...document.querySelectorAll("#found a")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") { document.getElementById("found").hidden = true; stops[0].focus(); }
    if (!step) return;
    event.preventDefault();
    const next = stops[stops.indexOf(document.activeElement) + step];
    if (next) next.focus();
  }

  document.addEventListener("DOMContentLoaded", () => {
    setTheme(document.documentElement.dataset.theme);
    document.getElementById("theme").addEventListener("click", () => {
      const name = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      setTheme(name);
      try { localStorage.setItem("charllm-theme", name); } catch { /* a file may not remember */ }
    });
    const here = document.querySelector(".pages [aria-current]");
    if (here) here.scrollIntoView({ block: "nearest" });
    const box = document.getElementById("search");
    box.addEventListener("focus", loadIndex);
    box.addEventListener("input", () => { loadIndex(); show(); });
    document.querySelector(".search").addEventListener("keydown", moveFocus);
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && document.activeElement === document.body) { event.preventDefault(); box.focus(); }
    });
    if (matchMedia("(max-width: 800px)").matches) document.querySelector(".pages").removeAttribute("open");
  });
})();
