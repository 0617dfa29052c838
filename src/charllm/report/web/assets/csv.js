(function (charllm) {
  "use strict";

  // A table as CSV (RFC 4180): headings with units; full numbers; quotes around what holds a comma, a quote or a line end.
  charllm.csv = function (columns) {
    const heads = Object.values(columns).map((column) =>
      cell(column.unit ? `${column.label}, ${column.unit}` : column.label),
    );
    const rows = charllm.rows(columns).map((row) =>
      Object.entries(row)
        .map(([name, value]) => cell(exact(value, columns[name])))
        .join(","),
    );
    return [heads.join(","), ...rows, ""].join("\r\n");
  };

  // Packed numbers have seven digits; what follows is an accident of their form.
  const exact = (value, column) => (column.rounded && value !== null ? Number(value.toPrecision(7)) : value);

  function cell(value) {
    if (value === null || value === undefined) return "";
    const text = typeof value === "object" ? JSON.stringify(value) : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  // Offer a text as a file.
  charllm.download = function (name, text) {
    const address = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
    const link = charllm.element("a", { href: address, download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  };
})(window.charllm);
