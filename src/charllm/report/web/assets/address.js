(function (charllm) {
  "use strict";

  // What a reader chose (filters, the figure in view) stands in the address, so that a copied link shows the same.
  charllm.address = {
    read: (name) => words().get(name),

    write(name, value) {
      const kept = words();
      if (value === null || value === undefined || value === "") kept.delete(name);
      else kept.set(name, value);
      const text = kept.toString();
      history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
    },
  };

  // A plain #name is the figure to go to, as a link from elsewhere would say it.
  function words() {
    const text = location.hash.slice(1);
    return new URLSearchParams(text && !text.includes("=") ? `at=${text}` : text);
  }
})(window.charllm);
