// With `alt`: labels the charts, and tells which point of a chart in `clicks` is clicked on. With `chart`: buttons that
// write that chart to a file.
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

// What a point stands for is its customdata; the server knows which widgets that sets.
function listen(clicks, send) {
  for (const key of clicks) {
    const chart = find(key);
    if (!chart || !chart.on) continue;
    if (!chart.sendClick)
      chart.on("plotly_click", ({ points }) => {
        if (points[0].customdata !== undefined) chart.sendClick([points[0].customdata].flat());
      });
    chart.sendClick = (values) => send("click", { chart: key, values });
  }
}

function save(chart, format, filename) {
  const options = chart._context.toImageButtonOptions;
  Object.assign(options, { format, filename, scale: format === "png" ? 2 : 1 });
  chart.querySelector('.modebar-btn[data-title^="Download plot"]').click(); // plotly's own button does the work
}

export default function ({ parentElement, data, setTriggerValue }) {
  if (data.alt) {
    const attend = () => {
      label(data.alt);
      listen(data.clicks, setTriggerValue);
    };
    attend();
    const observer = new MutationObserver(attend);
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
