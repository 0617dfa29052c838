(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});

  const GIB = 2 ** 30;

  // The metrics that answers and pins show: key, label, unit, factor to that unit, and which way is better.
  const METRICS = [
    { key: "step_time_s", label: "Step time", unit: "s", better: "lower" },
    { key: "tokens_per_s_per_gpu", label: "Tokens/s/GPU", unit: "", better: "higher" },
    { key: "mfu", label: "MFU", unit: "%", factor: 100, better: "higher" },
    { key: "tokens_per_j", label: "Tokens/J", unit: "", better: "higher" },
    { key: "memory_peak_bytes", label: "Memory", unit: "GiB", factor: 1 / GIB, better: "lower" },
    { key: "power_mean_w", label: "Mean power", unit: "W" },
    { key: "power_peak_sensor_w", label: "Peak power (25 ms)", unit: "W", better: "lower" },
    { key: "clock_mean_hz", label: "Mean clock", unit: "MHz", factor: 1e-6, better: "higher", digits: 4 },
    { key: "temperature_peak_c", label: "Hottest GPU", unit: "C", better: "lower", difference: "K" },
    { key: "margin_to_slowdown_k", label: "Margin to slowdown", unit: "K", better: "higher", difference: "K" },
    { key: "cluster_power_peak_w", label: "Cluster peak power", unit: "kW", factor: 1e-3, better: "lower" },
  ];

  const known = (value) => charllm.isNumber(value);

  const signed = (value) => `${value > 0 ? "+" : "−"}${charllm.number(Math.abs(value), 2)}`;

  explorer.numbers = {
    METRICS,
    known,

    // A metric as it is read: '31.7 s'; a missing one as a dash.
    metric(metric, metrics) {
      const value = metrics && metrics[metric.key];
      if (!known(value)) return "–";
      const text = charllm.number(value * (metric.factor || 1), metric.digits || 3);
      return metric.unit ? `${text} ${metric.unit}` : text;
    },

    // How a metric differs from that of another answer: {text, verdict: "better" | "worse" | "same"}, or null.
    delta(metric, metrics, base) {
      const [value, before] = [metrics && metrics[metric.key], base && base[metric.key]];
      if (!known(value) || !known(before)) return null;
      const change = metric.difference ? value - before : before === 0 ? null : (100 * (value - before)) / before;
      if (change === null) return null;
      if (Math.abs(change) < 0.05) return { text: "no change", verdict: "same" };
      const text = `${signed(change)} ${metric.difference || "%"}`;
      if (!metric.better) return { text, verdict: "same" };
      return { text, verdict: change > 0 === (metric.better === "higher") ? "better" : "worse" };
    },

    // Seconds as a person says them.
    duration(seconds) {
      const whole = Math.round(seconds);
      const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
      const two = (part) => String(part).padStart(2, "0");
      return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
    },
  };
})(window.charllm);
