(function (charllm) {
  "use strict";
  const { element } = charllm;

  // Texts to be copied, each under what it is for.
  charllm.draw.commands = function (root, figure) {
    charllm.clear(root);
    const { label, text } = figure.options;
    const rows = charllm.rows(charllm.columns(figure.columns));
    if (!rows.length) return charllm.nothing(root);
    const said = element("p", { class: "count", role: "status" });
    root.append(...rows.map((row) => block(charllm.text(row[label]), charllm.text(row[text]), said)), said);
  };

  function block(label, text, said) {
    const code = element("code", { tabindex: 0, "aria-label": label }, text);
    const button = element("button", { type: "button", "aria-label": `Copy: ${label}` }, "Copy");
    button.addEventListener("click", async () => {
      said.textContent = (await charllm.copy(code)) ? "Copied." : "The browser does not allow copying; the text is selected.";
    });
    return element("div", { class: "command" }, element("p", {}, label), element("pre", {}, code), button);
  }

  // Browsers give pages the clipboard only on https and on this machine; elsewhere the selected text is copied.
  charllm.copy = async function (code) {
    try {
      await navigator.clipboard.writeText(code.textContent);
      return true;
    } catch {
      getSelection().selectAllChildren(code);
      return document.execCommand("copy");
    }
  };
})(window.charllm);
