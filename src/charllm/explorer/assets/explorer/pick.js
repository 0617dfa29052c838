(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});
  const element = charllm.element;
  const MOST_SHOWN = 60;

  // A select that can be searched: type to filter, arrow keys to move, Enter to take, Escape to leave.
  // `entries` are {name, note, words}, words being found but not shown; `onPick(name)` is called when one is taken.
  // What is typed and matches `free.pattern` can be taken as it is.
  explorer.pick = function ({ id, label, entries, free, onPick }) {
    const list = element("ul", { id: `${id}-list`, role: "listbox", "aria-label": `${label}: choices`, hidden: "" });
    const input = element("input", {
      id, type: "text", role: "combobox", autocomplete: "off", spellcheck: "false",
      "aria-expanded": "false", "aria-controls": list.id, "aria-autocomplete": "list",
    });
    const root = element("div", { class: "pick" }, input, list);
    let [value, active, found] = ["", -1, []];

    const matches = (text) => {
      const words = text.toLowerCase().split(/\s+/).filter(Boolean);
      return entries.filter((each) => words.every((word) => `${each.name} ${each.note} ${each.words || ""}`.toLowerCase().includes(word)));
    };

    function open(text) {
      const [typed, listed] = [text.trim(), matches(text)];
      const own = free && free.pattern.test(typed) && !entries.some((each) => each.name === typed);
      const all = own ? [{ name: typed, note: free.note }, ...listed] : listed;
      found = all.slice(0, MOST_SHOWN);
      const options = found.map((each, at) => option(each, at));
      const more = all.length > found.length ? `${all.length - found.length} more: type to narrow` : all.length ? "" : "Nothing matches";
      list.replaceChildren(...options, ...(more ? [element("li", { class: "quiet", role: "option", "aria-disabled": "true" }, more)] : []));
      list.hidden = false;
      input.setAttribute("aria-expanded", "true");
      move(Math.max(0, found.findIndex((each) => each.name === value)));
    }

    function option(entry, at) {
      const made = element("li", { id: `${id}-${at}`, role: "option", "aria-selected": "false" }, element("span", {}, entry.name), element("small", {}, entry.note));
      made.addEventListener("mousedown", (event) => {
        event.preventDefault();
        take(entry.name);
      });
      return made;
    }

    function move(to) {
      active = found.length ? (to + found.length) % found.length : -1;
      [...list.children].forEach((child, at) => child.setAttribute("aria-selected", String(at === active)));
      const chosen = list.children[active];
      if (active < 0 || !chosen) return input.removeAttribute("aria-activedescendant");
      input.setAttribute("aria-activedescendant", chosen.id);
      list.scrollTop = Math.min(chosen.offsetTop, Math.max(list.scrollTop, chosen.offsetTop + chosen.offsetHeight - list.clientHeight));
    }

    function close() {
      list.hidden = true;
      input.setAttribute("aria-expanded", "false");
      input.removeAttribute("aria-activedescendant");
      input.value = value;
    }

    function take(name) {
      const changed = name !== value;
      value = name;
      close();
      if (changed) onPick(name);
    }

    const KEYS = {
      ArrowDown: () => (list.hidden ? open("") : move(active + 1)),
      ArrowUp: () => (list.hidden ? open("") : move(active - 1)),
      Enter: () => (list.hidden ? open("") : found[active] && take(found[active].name)),
      Escape: () => !list.hidden && close(),
    };
    input.addEventListener("keydown", (event) => {
      if (!KEYS[event.key]) return;
      event.preventDefault();
      KEYS[event.key]();
    });
    input.addEventListener("input", () => open(input.value));
    input.addEventListener("click", () => list.hidden && open(""));
    input.addEventListener("focus", () => input.select());
    input.addEventListener("blur", close);

    return {
      root,
      input,
      show(name) {
        value = name || "";
        if (document.activeElement !== input) input.value = value;
      },
    };
  };
})(window.charllm);
