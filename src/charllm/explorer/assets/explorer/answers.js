(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});
  const LEAST_GAP_MS = 40;
  const PATIENCE_MS = 1000;
  const MOST_KEPT = 24;

  // Asks the server, one request at a time; the newest wins.
  // While a slider moves, the fast answer that is under way may still arrive (for PATIENCE_MS), then the newest request
  // replaces it: so that a long drag shows answers all along. A coupled answer that nobody waits for is cancelled at once.
  // `on` has fast(request, answer), coupled(request, answer), refused(request, error), waiting(request).
  explorer.answers = function (client, on) {
    const kept = new Map();
    let [running, next, timer, last] = [null, null, 0, -Infinity];

    function ask(request) {
      next = request;
      clearTimeout(timer);
      if (kept.has(explorer.request.key(request))) return begin();
      const wait = running && !running.fast ? PATIENCE_MS : LEAST_GAP_MS;
      timer = setTimeout(begin, Math.max(0, last + wait - performance.now()));
    }

    function begin() {
      clearTimeout(timer);
      if (running) running.abort.abort();
      const request = next;
      [running, next] = [null, null];
      const answer = kept.get(explorer.request.key(request));
      if (answer) {
        on.fast(request, answer.fast);
        on.coupled(request, answer.coupled);
      } else if (request) {
        fetchAnswer(request);
      }
    }

    async function fetchAnswer(request) {
      const mine = { abort: new AbortController(), fast: null };
      running = mine;
      last = performance.now();
      on.waiting(request);
      const body = { client, request: explorer.request.body(request), coupled: true };
      const fail = (error) => running === mine && on.refused(request, error);
      try {
        await explorer.ask.events("api/answers", {
          fast(answer) {
            if (running !== mine) return;
            mine.fast = answer;
            on.fast(request, answer);
            if (next) begin();
          },
          coupled(answer) {
            if (running !== mine) return;
            keep(request, { fast: mine.fast || answer, coupled: answer });
            on.coupled(request, answer);
          },
          error: (told) => fail(new explorer.ask.Refusal(told.message, told.field, told.offers)),
        }, { body, signal: mine.abort.signal });
      } catch (error) {
        if (error.name !== "AbortError") fail(error);
      }
      if (running !== mine) return;
      running = null;
      if (next) begin();
    }

    function keep(request, answer) {
      const key = explorer.request.key(request);
      kept.delete(key);
      kept.set(key, answer);
      if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
    }

    function stop() {
      clearTimeout(timer);
      next = null;
      if (running) running.abort.abort();
      running = null;
    }

    return { ask, stop };
  };
})(window.charllm);
