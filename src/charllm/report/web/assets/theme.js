(function (charllm) {
  "use strict";

  const KEPT = "charllm-theme";
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const paper = window.matchMedia("print");

  // Light or dark: the system's, until a button says otherwise. Those who draw on canvases listen and draw again.
  charllm.theme = {
    now: () =>
      document.documentElement.classList.contains("on-paper")
        ? "light"
        : chosen() || (system.matches ? "dark" : "light"),

    choose(theme) {
      document.documentElement.dataset.theme = theme;
      try {
        localStorage.setItem(KEPT, theme);
      } catch {
        // A browser that keeps nothing still switches.
      }
      tell();
    },

    // Call an action whenever the theme changes, or paper replaces the screen.
    listen: (action) => document.addEventListener("charllm-theme", action),

    button() {
      const made = charllm.element("button", { type: "button", class: "theme" });
      const name = () => (made.textContent = charllm.theme.now() === "dark" ? "Light theme" : "Dark theme");
      made.addEventListener("click", () => charllm.theme.choose(charllm.theme.now() === "dark" ? "light" : "dark"));
      charllm.theme.listen(name);
      name();
      return made;
    },
  };

  const chosen = () => document.documentElement.dataset.theme;
  const tell = () => document.dispatchEvent(new CustomEvent("charllm-theme"));

  // Drawings for paper have the width of a page; before and after printing they are drawn again.
  function print(isPaper) {
    if (document.documentElement.classList.contains("on-paper") === isPaper) return;
    document.documentElement.classList.toggle("on-paper", isPaper);
    tell();
  }

  try {
    const kept = localStorage.getItem(KEPT);
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  } catch {
    // Nothing was kept.
  }
  system.addEventListener("change", tell);
  paper.addEventListener("change", () => print(paper.matches));
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
})(window.charllm);
