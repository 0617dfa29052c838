(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});

  const divisors = (whole, most = whole) => {
    const found = [];
    for (let each = 1; each <= Math.min(whole, most); each += 1) if (whole % each === 0) found.push(each);
    return found;
  };
  const range = (low, high, step) => Array.from({ length: Math.floor((high - low) / step + 1e-9) + 1 }, (_, at) => low + at * step);
  const doublings = (low, high) => {
    const found = [];
    for (let each = low; each <= high; each *= 2) found.push(each);
    return found;
  };
  const MOST_DEGREE = 1024;

  // The settings of a run: the word of `charllm.simulate`, where the spec holds it, and the values that its slider stops at.
  // `values(facts)` gets what is known of model, cluster and the last valid answer: see `facts`.
  const SETTINGS = [
    { word: "model", group: "Model and machine", label: "Model", kind: "pick", path: "model" },
    { word: "cluster", group: "Model and machine", label: "Machine", kind: "pick", path: "cluster",
      hint: "GPU and number, such as h100x512 or 64xH100, or a cluster of the catalog." },
    { word: "network", group: "Model and machine", label: "Network", kind: "choice", path: "cluster.fabric.name", options: "networks",
      hint: "Adapters of each node; automatic: those that are usual for the GPU." },
    { word: "nodes", group: "Model and machine", label: "Nodes", kind: "whole", path: "cluster.nodes", also: "cluster.fabric", dotted: true,
      hint: "Number of nodes, if it differs from the catalog.", values: (facts) => facts.nodes },
    { word: "tp", group: "Parallelism", label: "Tensor, tp", kind: "whole", path: "parallelism.tp",
      hint: "Ranks that share every matrix multiplication.",
      values: (facts) => divisors(facts.gpus, 64).filter((each) => !facts.heads || facts.heads % each === 0) },
    { word: "pp", group: "Parallelism", label: "Pipeline, pp", kind: "whole", path: "parallelism.pp",
      hint: "Stages that the layers are divided into.", values: (facts) => divisors(facts.gpus, facts.layers || 128) },
    { word: "vpp", group: "Parallelism", label: "Virtual, vpp", kind: "whole", path: "parallelism.vpp",
      hint: "Chunks of layers on each stage (interleaved schedule).",
      values: (facts) => (facts.pp > 1 && facts.layers ? divisors(Math.floor(facts.layers / facts.pp)) : [1]) },
    { word: "cp", group: "Parallelism", label: "Context, cp", kind: "whole", path: "parallelism.cp",
      hint: "Ranks that share a sequence.", values: (facts) => divisors(facts.gpus, 64) },
    { word: "ep", group: "Parallelism", label: "Expert, ep", kind: "whole", path: "parallelism.ep",
      hint: "Ranks that the experts are spread over.", values: (facts) => (facts.experts ? divisors(facts.experts) : [1]) },
    { word: "dp", group: "Parallelism", label: "Data, dp", kind: "whole", path: "parallelism.dp",
      hint: "Replicas that share the batch; automatic: all remaining GPUs.", values: (facts) => divisors(facts.gpus, MOST_DEGREE) },
    { word: "zero", group: "Parallelism", label: "ZeRO stage", kind: "whole", path: "parallelism.zero",
      hint: "Replicas shard 1 the optimizer, 2 also gradients, 3 also weights (FSDP).", values: () => [0, 1, 2, 3] },
    { word: "sp", group: "Parallelism", label: "Sequence parallelism", kind: "switch", path: "parallelism.sp",
      hint: "Whether tp ranks also share the sequence outside the matrix multiplications." },
    { word: "gbs", group: "Batch", label: "Global batch", kind: "whole", path: "training.global_batch_size",
      hint: "Sequences per step, over all replicas.", values: (facts) => batches(facts.dp * facts.mbs) },
    { word: "mbs", group: "Batch", label: "Microbatch", kind: "whole", path: "training.micro_batch_size",
      hint: "Sequences that a replica processes at once.",
      values: (facts) => (facts.gbs % facts.dp === 0 ? divisors(facts.gbs / facts.dp, 64) : doublings(1, 64)) },
    { word: "seq_length", group: "Batch", label: "Seq. length", kind: "whole", path: "training.seq_length",
      hint: "Tokens of a sequence; automatic: the model's sequence length.", values: () => doublings(512, 131072) },
    { word: "precision", group: "Execution", label: "Precision", kind: "choice", path: "training.precision", options: "precisions" },
    { word: "recompute", group: "Execution", label: "Recompute", kind: "choice", path: "training.recompute", options: "recomputes",
      hint: "Which activations are recomputed in the backward pass." },
    { word: "lora", group: "Execution", label: "LoRA rank", kind: "whole", path: "training.lora_rank",
      hint: "Rank of the adapters that are trained; 0: all weights are.", values: () => [0, 8, 16, 32, 64, 128] },
    { word: "optimizer_offload", group: "Execution", label: "Offload states", kind: "number", path: "training.optimizer_offload_fraction", dotted: true,
      hint: "Part of the optimizer's states that is kept and updated on the CPU, 0 to 1.", values: () => range(0, 1, 0.25) },
    { word: "activation_offload", group: "Execution", label: "Offload activ.", kind: "number", path: "training.activation_offload_fraction", dotted: true,
      hint: "Part of the activations that is copied to the CPU until the backward pass, 0 to 1.", values: () => range(0, 1, 0.25) },
    { word: "schedule", group: "Execution", label: "Schedule", kind: "choice", path: "parallelism.schedule", options: "schedules" },
    { word: "framework", group: "Execution", label: "Framework", kind: "choice", path: "framework", options: "frameworks" },
    { word: "overlap", group: "Execution", label: "Overlap", kind: "axes", path: "parallelism.overlap", options: "overlaps",
      hint: "Axes whose communication is overlapped with compute." },
    { word: "power_cap", group: "Limits and conditions", label: "Power cap, W", kind: "number", path: "conditions.power_cap_w",
      hint: "Power limit of every GPU; automatic: the GPU's own limit.", values: (facts) => range(facts.leastCap, facts.cap, 25) },
    { word: "clock_cap", group: "Limits and conditions", label: "Clock, MHz", kind: "number", path: "conditions.clock_cap_hz", factor: 1e-6,
      hint: "Highest clock allowed; automatic: the GPU's own.", values: (facts) => range(facts.leastClock, facts.clock, 15) },
    { word: "inlet", group: "Limits and conditions", label: "Inlet air, C", kind: "number", path: "cluster.cooling.inlet_c",
      hint: "Temperature of the air that enters the nodes.", values: () => range(10, 45, 1) },
  ];
  const BY_WORD = Object.fromEntries(SETTINGS.map((setting) => [setting.word, setting]));

  function batches(least) {
    return [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512].map((each) => each * (least || 1)).filter((each) => each <= 16384);
  }

  // The value at a dotted path of a spec; undefined where there is none.
  const at = (spec, path) => path.split(".").reduce((table, name) => (table === undefined || table === null ? undefined : table[name]), spec);

  // A machine of the catalog, or one that its name sizes: "h100x512", "64xH100".
  function machine(choices, name = "") {
    const listed = choices.clusters.find((each) => each.name === name);
    const sized = /^(\d+)x[a-z]|[a-z0-9]x(\d+)$/i.exec(name);
    const gpus = sized && Number(sized[1] || sized[2]);
    return listed || (gpus ? { gpus, nodes: Math.max(1, Math.ceil(gpus / 8)) } : undefined);
  }

  // What the sliders rest on: the catalog's cluster, and the spec of the last valid answer where it is of the same model and cluster.
  function facts(choices, request, spec) {
    const cluster = machine(choices, request.cluster) || { gpus: 8, nodes: 1 };
    const same = (part) => (spec && at(spec, `${part}.name`) === request[part] ? spec[part] : {});
    const [model, gpu] = [same("model"), at(same("cluster"), "node.gpu") || {}];
    const joined = at(same("cluster"), "fabric.nics_per_node") !== 0;
    const nodes = request.nodes || cluster.nodes;
    const gpus = Math.max(1, Math.round((cluster.gpus / cluster.nodes) * nodes));
    const now = (word, fallback) => request[word] || (spec && at(spec, BY_WORD[word].path)) || fallback;
    const cap = gpu.power_cap_w || cluster.power_cap_w || 700;
    const clock = Math.round((gpu.clock_max_hz || 1.98e9) * 1e-6);
    return {
      gpus, layers: model.layers, heads: model.heads, experts: model.experts,
      nodes: joined ? [...new Set([...doublings(1, cluster.nodes * 16), cluster.nodes])] : [cluster.nodes],
      pp: now("pp", 1), dp: now("dp", 1), mbs: now("mbs", 1), gbs: now("gbs", 128),
      cap, leastCap: Math.ceil((gpu.power_cap_min_w || cap * 0.4) / 25) * 25,
      clock, leastClock: clock - 15 * Math.floor((clock * 0.65) / 15),
    };
  }

  explorer.settings = {
    SETTINGS,
    BY_WORD,
    facts,
    machine,

    // What a setting is in a spec, in the unit of its control.
    resolved(setting, spec) {
      if (!spec) return undefined;
      if (setting.kind === "pick" || setting.word === "framework") return at(spec, `${setting.path}.name`);
      const value = at(spec, setting.path);
      if (setting.word === "power_cap" && (value === undefined || value === null)) return at(spec, "cluster.node.gpu.power_cap_w");
      if (setting.word === "clock_cap" && (value === undefined || value === null)) return at(spec, "cluster.node.gpu.clock_max_hz") * setting.factor;
      return typeof value === "number" ? value * (setting.factor || 1) : value;
    },

    // Where the slider of a setting stops, the value in force included.
    stops(setting, facts, value) {
      const stops = setting.values(facts);
      return [...new Set(typeof value === "number" ? [...stops, value] : stops)].sort((a, b) => a - b);
    },

    // The settings that a refusal is about: those of its field; of a whole part, those that its message names.
    blamed({ field = "", message }) {
      const exact = SETTINGS.filter((each) => each.word === field || each.path === field || each.path.startsWith(`${field}.name`) || each.also === field || each.path.replace(/_hz$/, "_mhz") === field);
      if (exact.length) return exact;
      const last = field.split(".").pop();
      const named = SETTINGS.filter((each) => each.path.split(".").pop() === last || each.word === last);
      if (named.length || !field) return named;
      const part = SETTINGS.filter((each) => each.path.startsWith(`${field}.`));
      const told = part.filter((each) => message.split(/[^a-z_]+/).includes(each.word));
      return told.length ? told : part;
    },
  };
})(window.charllm);
