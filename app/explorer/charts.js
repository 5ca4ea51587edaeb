// With `alt`: labels the charts. With `chart`: buttons that write that chart to a file.
const find = (key) => document.querySelector(`.st-key-${key} .js-plotly-plot`);

// A chart may be drawn after this component, or again: look for a while, and whenever something changes.
function label(alt) {
  for (const [key, text] of Object.entries(alt)) {
    const chart = find(key);
    if (chart && chart.getAttribute("aria-label") !== text) {
      chart.setAttribute("role", "img");
      chart.setAttribute("aria-label", text);
    }
  }
}

function save(chart, format, filename) {
  const options = chart._context.toImageButtonOptions;
  Object.assign(options, { format, filename, scale: format === "png" ? 2 : 1 });
  chart.querySelector('.modebar-btn[data-title^="Download plot"]').click(); // plotly's own button does the work
}

export default function ({ parentElement, data }) {
  if (data.alt) {
    label(data.alt);
    const observer = new MutationObserver(() => label(data.alt));
    observer.observe(document.body, { childList: true, subtree: true });
    return () => observer.disconnect();
  }
  const buttons = parentElement.querySelector(".buttons");
  buttons.replaceChildren(
    ...["svg", "png"].map((format) => {
      const button = document.createElement("button");
      button.textContent = format.toUpperCase();
      button.onclick = () => save(find(data.chart), format, data.filename);
      return button;
    }),
  );
}
