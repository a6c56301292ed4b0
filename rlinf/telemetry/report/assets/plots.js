// Plots: drawn when they are seen first, and again when the colours of the system change.

const plots = new Set();

function cssValue(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function colors() {
  return cssValue("--colors").split(/\s+/);
}

function runColor(index) {
  const all = colors();
  return all[index % all.length];
}

// Parts of a step have one colour throughout; waiting and idling are grey.
const PART_COLORS = {
  rollout: 0, generate: 0, infer: 0, env_step: 2, env: 2, training: 1, forward_backward: 1, advantages: 3, prepare: 3,
  sync_weights: 5, publish_weights: 5, evaluation: 8, evaluate: 8, checkpoint: 6, compute_rewards: 4, data: 7,
  receive_trajectories: 9,
};

function partColor(name, place = 0) {
  if (name === "idle") return cssValue("--idle");
  if (name === "other" || /^(wait|recv)/.test(name)) return cssValue("--wait");
  const all = colors();
  return all[(PART_COLORS[name.replaceAll(" ", "_")] ?? place) % all.length];
}

function baseLayout(extra = {}) {
  const [ink, quiet, line, card] = ["--ink", "--quiet", "--line", "--card"].map(cssValue);
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, tickfont: { color: quiet, size: 11 },
    title: { font: { color: quiet, size: 12 } }, automargin: true };
  const { xaxis = {}, yaxis = {}, ...rest } = extra;
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", color: ink, size: 12 },
    margin: { l: 44, r: 10, t: 8, b: 32 }, showlegend: false,
    hoverlabel: { bgcolor: card, bordercolor: line, font: { color: ink, size: 12 } },
    ...rest,
    xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis },
  };
}

const CONFIG = {
  displaylogo: false, responsive: true, displayModeBar: false, showTips: false,
};

class Plot {
  /** `describe()` returns {data, layout}; it is called when the plot is seen and whenever it has changed. */
  constructor(label, describe, className = "plot") {
    this.holder = element("div", { className, role: "img", "aria-label": label });
    this.describe = describe;
    this.isSeen = false;
    this.isStale = true;
    plots.add(this);
    Plot.observer.observe(this.holder);
    this.holder.plot = this;
  }

  refresh() {
    this.isStale = true;
    if (!this.isSeen || this.holder.offsetParent === null) return;
    this.isStale = false;
    const { data, layout } = this.describe();
    Plotly.react(this.holder, data, layout, CONFIG);
    this.holder.classList.add("drawn");
  }

  forget() {
    plots.delete(this);
    Plot.observer.unobserve(this.holder);
    Plotly.purge(this.holder);
  }
}

Plot.observer = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const plot = entry.target.plot;
    plot.isSeen = entry.isIntersecting;
    if (plot.isSeen && plot.isStale) plot.refresh();
  }
}, { rootMargin: "300px" });

function refreshPlots() {
  for (const plot of plots) plot.refresh();
}

/** What the colours of a plot mean, as HTML, so that it wraps. */
function colorKeys(entries) {
  return element("div", { className: "keys" }, entries.map(([text, color]) =>
    element("span", {}, element("i", { className: "swatch", style: `background:${color}` }), text)));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  refreshPlots();
  for (const redraw of schemeListeners) redraw();
});
const schemeListeners = [];
tabListeners.push(() => {
  for (const plot of plots) {
    if (plot.holder.offsetParent === null) continue;
    if (plot.isStale) plot.refresh();
    else Plotly.Plots.resize(plot.holder);
  }
});
