(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});
  const { SETTINGS, BY_WORD } = explorer.settings;

  // Words of `charllm simulate` whose flag is not the word itself.
  const FLAGS = { seq_length: "--seq-length", power_cap: "--power-cap", clock_cap: "--clock-cap" };
  const DOTTED = Object.fromEntries(SETTINGS.filter((each) => each.dotted).map((each) => [each.word, each.path]));

  // Setting: those that no longer mean the same once it has changed.
  const FOLLOWS = { cluster: ["nodes", "network", "power_cap", "clock_cap", "dp"], model: ["seq_length", "ep", "vpp"], vpp: ["schedule"] };

  // Degrees that do not divide another cluster's GPUs are left to the defaults.
  function dropDegrees(request, choices) {
    const cluster = explorer.settings.machine(choices, request.cluster);
    const product = () => ["tp", "pp", "cp", "dp"].reduce((sum, word) => sum * (request[word] || 1), 1);
    for (const word of ["dp", "cp", "vpp", "pp", "tp"]) if (cluster && cluster.gpus % product() !== 0) delete request[word];
  }

  const READERS = {
    whole: (text) => (/^-?\d+$/.test(text) ? Number(text) : text),
    number: (text) => (text.trim() && Number.isFinite(Number(text)) ? Number(text) : text),
    switch: (text) => text === "true",
    axes: (text) => (text === "none" ? [] : text.split(",")),
    pick: (text) => text,
    choice: (text) => text,
  };
  const write = (value) => (Array.isArray(value) ? value.join(",") || "none" : String(value));
  const shell = (text) => (/^[\w.,:\/@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

  function python(value) {
    if (typeof value === "boolean") return value ? "True" : "False";
    if (Array.isArray(value)) return JSON.stringify(write(value));
    return JSON.stringify(value);
  }

  explorer.request = {
    // Only what was chosen stands in a request; the server takes its defaults for the rest.
    fromQuery(query) {
      const given = SETTINGS.filter((each) => query.has(each.word));
      return Object.fromEntries(given.map((each) => [each.word, READERS[each.kind](query.get(each.word))]));
    },

    toQuery(request) {
      const query = new URLSearchParams();
      for (const { word } of SETTINGS) if (request[word] !== undefined) query.set(word, write(request[word]));
      return query;
    },

    // Two requests that ask the same have the same key.
    key: (request) => explorer.request.toQuery(request).toString(),

    // The request as the server takes it.
    body: (request) => Object.fromEntries(Object.entries(request).map(([word, value]) => [word, Array.isArray(value) ? write(value) : value])),

    // A request with some settings changed; what follows from a changed one becomes automatic again.
    changed(request, change, choices) {
      const made = { ...request };
      for (const word of Object.keys(change)) for (const other of FOLLOWS[word] || []) delete made[other];
      Object.assign(made, change);
      for (const word of Object.keys(made)) if (made[word] === undefined) delete made[word];
      if (choices && (change.cluster || change.model)) dropDegrees(made, choices);
      return made;
    },

    // What was chosen differently in two answers, as they were carried out: ["Tensor, tp 4 → 8"], in the order of the controls.
    differences(before, after) {
      const text = (answer, setting) => {
        const value = explorer.settings.resolved(setting, answer.fast.spec);
        return value === undefined || value === null ? "automatic" : typeof value === "number" ? charllm.number(value) : write(value);
      };
      const chosen = (answer, { word }) => (answer.request[word] === undefined ? "" : write(answer.request[word]));
      const changed = SETTINGS.filter((each) => chosen(before, each) !== chosen(after, each) && text(before, each) !== text(after, each));
      return changed.map((each) => `${each.label} ${text(before, each)} → ${text(after, each)}`);
    },

    // A change as a button says it: "Tensor, tp 4", "Expert, ep automatic".
    words: (change) => Object.entries(change).map(([word, value]) => `${BY_WORD[word].label} ${value === undefined ? "automatic" : write(value)}`).join(", "),

    // The line that a shell takes.
    command(request) {
      const words = SETTINGS.filter(({ word }) => request[word] !== undefined).map(({ word }) => {
        if (word === "sp") return request.sp ? "--sp" : "--no-sp";
        if (DOTTED[word]) return `--set ${DOTTED[word]}=${write(request[word])}`;
        return `${FLAGS[word] || `--${word}`} ${shell(write(request[word]))}`;
      });
      return ["charllm simulate", ...words].join(" ");
    },

    // The call that Python takes.
    call(request) {
      const given = SETTINGS.filter(({ word }) => request[word] !== undefined);
      const plain = given.filter(({ word }) => !DOTTED[word]).map(({ word }) => `${word}=${python(request[word])}`);
      const dotted = given.filter(({ word }) => DOTTED[word]).map(({ word }) => `"${DOTTED[word]}": ${python(request[word])}`);
      return `charllm.simulate(${[...plain, ...(dotted.length ? [`**{${dotted.join(", ")}}`] : [])].join(", ")})`;
    },

    // What flags such as '--tp 8 --overlap tp,dp' set; null where a word is no setting of the explorer.
    fromFlags(text) {
      const words = text.trim().split(/\s+/).filter(Boolean);
      const changed = {};
      while (words.length) {
        const flag = words.shift();
        if (flag === "--set") {
          const [path, value] = (words.shift() || "").split("=");
          const word = Object.keys(DOTTED).find((each) => DOTTED[each] === path);
          if (!word) return null;
          changed[word] = READERS[BY_WORD[word].kind](value || "");
          continue;
        }
        const name = flag.replace(/^--(no-)?/, "").replaceAll("-", "_");
        const word = { micro_batch_size: "mbs", global_batch_size: "gbs", seq: "seq_length" }[name] || name;
        if (!flag.startsWith("--") || !BY_WORD[word]) return null;
        if (word === "sp") changed.sp = !flag.startsWith("--no-");
        else if (!words.length) return null;
        else changed[word] = READERS[BY_WORD[word].kind](words.shift());
      }
      return changed;
    },
  };
})(window.charllm);
