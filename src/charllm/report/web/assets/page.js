(function (charllm) {
  "use strict";
  const { element, svg } = charllm;

  const LONG_LIST = 6;

  charllm.page = {
    // Show the page whose data stands in this document.
    open() {
      const data = JSON.parse(document.getElementById("page-data").textContent);
      const root = document.getElementById("page");
      root.before(topBar());
      charllm.page.show(root, data);
      const goThere = () => charllm.page.goTo(charllm.address.read("at"));
      // A browser looks for the target of an address by itself, and forgets the focus, once the document is loaded.
      window.addEventListener("load", () => setTimeout(goThere));
      window.addEventListener("hashchange", () => {
        document
          .querySelectorAll(".drawing")
          .forEach((drawing) => drawing.charllmDrawn && charllm.figure.redraw(drawing));
        goThere();
      });
    },

    // Build a page inside an element: the answer, its facts, then every section with its figures.
    show(root, page, options) {
      const settings = { contents: true, ...options };
      charllm.clear(root);
      const sections = page.sections || [];
      // With further words to fold away, a page opens with its first figure.
      const opens = (page.further || []).length > 0;
      const built = sections.map(section);
      const body = element(
        "article",
        { class: "page" },
        header(page),
        ...built.slice(0, opens),
        opens ? further(page.further) : "",
        facts(page.facts || []),
        warnings(page.warnings || []),
        ...built.slice(opens),
        provenance(page.provenance || {}),
      );
      root.append(...(settings.contents ? [contents(sections)] : []), body);
      if (settings.contents) followContents(root, body);
      charllm.figure.drawLazily(root, body);
    },

    // Bring a figure into view, drawn, with the keyboard on it.
    goTo(name) {
      const target = name && document.getElementById(name);
      if (!target) return;
      for (let box = target.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
      for (const drawing of document.querySelectorAll(".drawing")) {
        const isBefore = drawing.compareDocumentPosition(target) & Node.DOCUMENT_POSITION_FOLLOWING;
        if (target.contains(drawing) || (isBefore && !charllm.figure.isFolded(drawing))) charllm.figure.draw(drawing);
      }
      target.scrollIntoView({ block: "start" });
      const heading = target.querySelector("h2, h3") || target;
      heading.setAttribute("tabindex", "-1");
      heading.focus({ preventScroll: true });
    },
  };

  function topBar() {
    const print = element("button", { type: "button" }, "Print");
    print.addEventListener("click", () => window.print());
    return element(
      "header",
      { class: "top-bar" },
      element("span", { class: "brand" }, "charllm report"),
      charllm.theme.button(),
      print,
    );
  }

  function header(page) {
    const [first, ...others] = page.answer || [];
    return element(
      "header",
      { class: "answer" },
      page.origin ? badge(page.origin) : null,
      element("h1", {}, page.title),
      first ? element("p", { class: "lead" }, first) : null,
      ...others.map((text) => element("p", {}, text)),
    );
  }

  function further(texts) {
    const paragraphs = texts.map((text) => element("p", {}, text));
    return element("details", { class: "further" }, element("summary", {}, "More, in words"), ...paragraphs);
  }

  // The origin of a page: a shape and a word.
  function badge(origin) {
    const drawing = svg("svg", { width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": "true" });
    drawing.append(
      charllm.styled(
        svg("path", { d: charllm.shapePath(charllm.shape(origin), 80), transform: "translate(7,7)" }),
        "fill",
        `var(--${charllm.token("origin", origin)})`,
      ),
    );
    return element("p", { class: "badge" }, drawing, origin);
  }

  function facts(found) {
    if (!found.length) return "";
    return element(
      "ul",
      { class: "facts", "aria-label": "The answer in numbers" },
      ...found.map((fact) => {
        const body = [
          element("span", { class: "name" }, charllm.heading(fact)),
          amount(fact.value),
          fact.interval ? element("span", { class: "interval" }, fact.interval) : null,
          fact.note ? element("span", { class: "note" }, fact.note) : null,
        ];
        return element("li", {}, fact.link ? jump(fact.link, body) : element("div", {}, ...body.filter(Boolean)));
      }),
    );
  }

  // A number stands out from the unit behind it; a value of another form is one text.
  function amount(value) {
    const [, number, unit] = /^([+−-]?[\d.,]+(?: %)?)( .+)?$/.exec(value) || [null, value, ""];
    return element("span", { class: "value" }, number, unit ? element("span", { class: "unit" }, unit) : null);
  }

  // A link to a figure of this page that leaves filters in the address as they are.
  function jump(name, body) {
    const link = element("a", { href: `#${name}` }, ...body);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      charllm.address.write("at", name);
      charllm.page.goTo(name);
    });
    return link;
  }

  function warnings(texts) {
    if (!texts.length) return "";
    const list = element("ul", {}, ...texts.map((text) => element("li", {}, text)));
    const title = texts.length === 1 ? "One thing to know" : `${texts.length} things to know`;
    if (texts.length <= 3)
      return element(
        "aside",
        { class: "warnings", "aria-label": "Warnings" },
        element("p", { class: "heading" }, title),
        list,
      );
    return element(
      "aside",
      { class: "warnings", "aria-label": "Warnings" },
      element("details", {}, element("summary", {}, title), list),
    );
  }

  function contents(sections) {
    const entries = sections.map((one, at) =>
      element(
        "li",
        {},
        jump(anchor(at), [one.title]),
        element(
          "ol",
          {},
          ...one.figures
            .filter((figure) => !figure.folded)
            .map((figure) => element("li", {}, jump(figure.name, [figure.question]))),
        ),
      ),
    );
    const list = element("ol", {}, ...entries);
    const folded = element("details", {}, element("summary", {}, "On this page"), list);
    folded.open = window.matchMedia("(min-width: 1100px)").matches;
    return element("nav", { class: "contents", "aria-label": "On this page" }, folded);
  }

  // The entry of the figure that is read now is marked in the table of contents.
  function followContents(root, body) {
    const links = new Map(
      [...root.querySelectorAll("nav.contents a")].map((link) => [link.getAttribute("href").slice(1), link]),
    );
    const inView = new Set();
    const watch = new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting } of entries) inView[isIntersecting ? "add" : "delete"](target.id);
        const first = [...links.keys()].find((name) => inView.has(name));
        for (const [name, link] of links)
          link[name === first ? "setAttribute" : "removeAttribute"]("aria-current", "true");
      },
      { rootMargin: "-10% 0px -50% 0px" },
    );
    body.querySelectorAll("figure").forEach((one) => watch.observe(one));
    charllm.undo(root, () => watch.disconnect());
  }

  const anchor = (at) => `section-${at + 1}`;

  function section(data, at) {
    return element(
      "section",
      { id: anchor(at), "aria-labelledby": `${anchor(at)}-title` },
      element("h2", { id: `${anchor(at)}-title` }, data.title),
      ...unfold(data.figures),
    );
  }

  // Figures in order; neighbours that are folded under the same heading share one element that opens and closes.
  function unfold(figures) {
    const found = [];
    let last = null;
    for (const data of figures) {
      if (!data.folded) found.push(charllm.figure(data));
      else if (last && last.heading === data.folded) last.box.append(charllm.figure(data));
      else
        found.push(
          (last = {
            heading: data.folded,
            box: element("details", { class: "folded" }, element("summary", {}, data.folded), charllm.figure(data)),
          }).box,
        );
    }
    return found;
  }

  function provenance(found) {
    const entries = Object.entries(found);
    if (!entries.length) return "";
    return element(
      "section",
      { class: "provenance", "aria-labelledby": "provenance-title" },
      element("h2", { id: "provenance-title" }, "How this page was made"),
      element(
        "dl",
        {},
        ...entries.flatMap(([name, value]) => [
          element("dt", {}, name.replaceAll("_", " ")),
          element("dd", {}, ...origins(value)),
        ]),
      ),
    );
  }

  // What an entry of the provenance says: a value, or its parts by name; a long list is folded behind its length.
  function origins(value) {
    if (Array.isArray(value)) {
      const list = value.map((part) => charllm.text(part)).join(", ");
      if (value.length <= LONG_LIST) return [list];
      return [element("details", {}, element("summary", {}, `${charllm.count(value.length)} entries`), list)];
    }
    if (value === null || typeof value !== "object") return [charllm.text(value)];
    return Object.entries(value).map(([name, part]) => element("div", {}, `${name}: `, ...origins(part)));
  }
})(window.charllm);
