(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});
  const element = charllm.element;

  // The request that is shown as a line for the shell and a call for Python, each with a button that copies it.
  explorer.command = function () {
    const said = element("p", { class: "quiet", role: "status" });
    const parts = [line("shell command", explorer.request.command, said), line("Python call", explorer.request.call, said)];
    const root = element("section", { class: "panel", "aria-label": "This run as a command", hidden: "" }, ...parts.map((part) => part.root), said);
    return {
      root,
      show(request) {
        said.textContent = "";
        parts.forEach((part) => part.show(request));
      },
    };
  };

  function line(label, write, said) {
    const code = element("code", { tabindex: "0", "aria-label": label });
    const button = element("button", { type: "button" }, `Copy ${label}`);
    button.addEventListener("click", async () => {
      said.textContent = (await charllm.copy(code)) ? `The ${label} is copied.` : "The browser does not allow copying; the text is selected.";
    });
    return {
      root: element("div", { class: "command" }, code, button),
      show: (request) => (code.textContent = write(request)),
    };
  }
})(window.charllm);
