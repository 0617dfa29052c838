(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});
  const MOST_TRIES = 5;
  const NAME = "charllm-token";

  // The address that `charllm serve` prints holds the token. It is kept for this host and port alone, where a cookie would go
  // to every port of the host, and leaves the address, which people share.
  let token = "";
  function keepToken() {
    const query = new URLSearchParams(location.search);
    token = query.get("token") || localStorage.getItem(NAME) || "";
    if (!query.has("token")) return;
    localStorage.setItem(NAME, token);
    query.delete("token");
    history.replaceState(null, "", `${location.pathname}${String(query) && `?${query}`}${location.hash}`);
  }
  keepToken();

  // What went wrong, in the words of the server: {field, message}; field is empty where no setting is to blame.
  // `offers` are changes of one setting each that the server would accept: {word, value}, null being automatic.
  class Refusal extends Error {
    constructor(message, field = "", offers = []) {
      super(message);
      Object.assign(this, { field, offers });
    }
  }

  async function refusal(response) {
    const told = await response.json().catch(() => ({}));
    return new Refusal(told.message || `The server answered ${response.status} ${response.statusText}`.trim(), told.field, told.offers);
  }

  // A server that is busy says when to ask again.
  async function send(path, options, tries = MOST_TRIES) {
    let response;
    try {
      response = await fetch(path, { ...options, headers: { ...options.headers, Authorization: `Bearer ${token}` } });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refusal("The server does not answer. Is `charllm serve` still running?");
    }
    if (response.status !== 429 || tries <= 1) return response;
    await pause(1000 * Number(response.headers.get("Retry-After") || 1), options.signal);
    return send(path, options, tries - 1);
  }

  const pause = (delay, signal) => new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, delay);
    if (signal) signal.addEventListener("abort", () => (clearTimeout(timer), reject(new DOMException("", "AbortError"))), { once: true });
  });

  explorer.ask = {
    Refusal,

    // One answer as JSON.
    async json(path, options = {}) {
      const response = await send(path, options);
      if (!response.ok) throw await refusal(response);
      return response.json();
    },

    // A stream of events: `on[name](data)` is called for each as it arrives; resolves when the stream ends.
    async events(path, on, { body, signal } = {}) {
      const options = { signal, headers: { Accept: "text/event-stream" } };
      if (body !== undefined) {
        Object.assign(options, { method: "POST", body: JSON.stringify(body) });
        options.headers["Content-Type"] = "application/json";
      }
      const response = await send(path, options);
      if (!response.ok) throw await refusal(response);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        const blocks = (text + value.replaceAll("\r\n", "\n")).split("\n\n");
        text = blocks.pop();
        for (const block of blocks) deliver(block, on);
      }
    },
  };

  function deliver(block, on) {
    let name = "message";
    const data = [];
    for (const line of block.split("\n")) {
      if (line.startsWith("event:")) name = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
    }
    if (data.length && on[name]) on[name](JSON.parse(data.join("\n")));
  }
})(window.charllm);
