(function (charllm) {
  "use strict";
  const explorer = (charllm.explorer = charllm.explorer || {});

  // The metrics that answers and pins show; charllm.metrics has how each is declared (explorer/frontend.py).
  const METRICS = [
    "step_time_s", "tokens_per_s_per_gpu", "mfu", "tokens_per_j", "memory_need_bytes", "power_mean_w", "power_peak_sensor_w",
    "clock_mean_hz", "temperature_peak_c", "margin_to_slowdown_k", "cluster_power_peak_w",
  ].map((name) => charllm.metrics[name]);
  const DIGITS = 3;

  const known = (value) => charllm.isNumber(value);

  const signed = (value) => `${value > 0 ? "+" : "−"}${charllm.number(Math.abs(value), 2)}`;

  explorer.numbers = {
    METRICS,
    known,

    // A metric as it is read: '31.7 s'; a missing one as a dash.
    metric(metric, metrics) {
      const value = metrics && metrics[metric.name];
      if (!known(value)) return "–";
      const [shown, places] = [value / metric.scale, metric.places];
      const text = places === null ? charllm.number(shown, DIGITS) : shown.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
      return metric.unit ? `${text} ${metric.unit}` : text;
    },

    // How a metric differs from that of another answer: {text, verdict: "better" | "worse" | "same"}, or null.
    delta(metric, metrics, base) {
      const [value, before] = [metrics && metrics[metric.name], base && base[metric.name]];
      if (!known(value) || !known(before)) return null;
      const isDifference = metric.unit === "C" || metric.unit === "K";
      const change = isDifference ? value - before : before === 0 ? null : (100 * (value - before)) / before;
      if (change === null) return null;
      if (Math.abs(change) < 0.05) return { text: "no change", verdict: "same" };
      const text = `${signed(change)} ${isDifference ? "K" : "%"}`;
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
