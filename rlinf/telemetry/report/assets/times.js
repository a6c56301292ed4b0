// Where the time of steps goes: a stacked bar for each step, of the loop or of a worker group, and means over the run.

// More of them, and gaps between would only flicker.
const FEW_BARS = 40;

let shownView = 0;

function viewTitle(name) {
  return name === "loop" ? "the loop" : `the group "${name}"`;
}

/** Parts from the longest to the shortest; what is left and idling last, so that it lies on top. */
function orderedParts(view) {
  const last = (name) => (name === "idle" ? 2 : name === "other" ? 1 : 0);
  return Object.keys(view.means).sort((a, b) => last(a) - last(b) || view.means[b] - view.means[a]);
}

/** All parts of all views: the place of a part gives its colour. */
function allParts(times) {
  return [...new Set(times.views.flatMap(orderedParts))];
}

function timePlot(times, view) {
  const names = orderedParts(view);
  const all = allParts(times);
  const labels = times.labels.map(String);
  return new Plot(`Seconds of each step of ${viewTitle(view.name)}, by part`, () => ({
    data: names.map((name) => ({
      type: "bar", name, x: labels, y: view.parts[name], marker: { color: partColor(name, all.indexOf(name)), line: { width: 0 } },
      hovertemplate: "%{y:.3~s}s",
    })),
    layout: baseLayout({ barmode: "stack", bargap: labels.length > FEW_BARS ? 0 : 0.15, hovermode: "x unified",
      xaxis: { type: "category", title: { text: "step" }, nticks: 12, showgrid: false }, yaxis: { title: { text: "seconds" } } }),
  }), "plot tall");
}

function meanTable(times, view) {
  const names = orderedParts(view);
  const all = allParts(times);
  const total = names.reduce((sum, name) => sum + view.means[name], 0) || 1;
  return table(["part", "mean seconds", "share", ""], names.map((name) => {
    const bar = element("i", { className: "bar" });
    bar.style.width = `${(100 * view.means[name]) / total}%`;
    bar.style.background = partColor(name, all.indexOf(name));
    return [name.replaceAll("_", " "), formatNumber(view.means[name]), `${((100 * view.means[name]) / total).toFixed(1)} %`,
      element("td", { className: "share" }, bar)];
  }), { numeric: [1, 2] });
}

function groupPlot(times) {
  const views = [...times.views].reverse();
  const all = allParts(times);
  const names = [...all].sort((a, b) => (a === "idle") - (b === "idle"));
  return new Plot("Mean seconds of a step of each worker group, by part", () => ({
    data: names.map((name) => ({
      type: "bar", orientation: "h", name, y: views.map((view) => view.name),
      x: views.map((view) => view.means[name] ?? 0), marker: { color: partColor(name, all.indexOf(name)), line: { width: 0 } },
      hovertemplate: "%{x:.3~s}s",
    })),
    layout: baseLayout({ barmode: "stack", bargap: 0.35, hovermode: "closest",
      xaxis: { title: { text: "seconds" } }, yaxis: { type: "category" } }),
  }), "plot");
}

function showTimes(run) {
  const place = panel("times");
  for (const plot of [...plots].filter((plot) => place.contains(plot.holder))) plot.forget();
  const times = run.times;
  if (!times) {
    fill(place, element("div", { className: "controls" }, runChoice("times")), note("No step has been timed yet."));
    return;
  }
  shownView = Math.min(shownView, times.views.length - 1);
  const view = times.views[shownView];
  const all = allParts(times);
  const keys = (names) => colorKeys(names.map((name) => [name.replaceAll("_", " "), partColor(name, all.indexOf(name))]));
  const views = times.views.map((other, index) => [index, other.name === "loop" ? "loop" : `group ${other.name}`]);
  fill(place,
    element("div", { className: "controls" }, runChoice("times"),
      labelled("time of", choice("view", views, (value) => { shownView = Number(value); showTimes(run); }, String(shownView)))),
    element("div", { className: "card block" },
      element("h2", {}, `Steps of ${viewTitle(view.name)}`),
      times.steps_per_bar > 1 ? element("p", { className: "quiet" }, `Each bar is the mean of ${times.steps_per_bar} steps.`) : null,
      timePlot(times, view).holder, keys(orderedParts(view))),
    element("h2", {}, "Means over the run"), meanTable(times, view),
    element("h2", {}, "Loop and worker groups, mean step"),
    element("div", { className: "card block" }, groupPlot(times).holder, keys(all)),
    element("p", { className: "quiet" }, "A group's time is that of its slowest rank; what is left of the step is idle. The time " +
      "of an evaluation counts for the step before it in the loop, and for the step after it in the groups. " +
      "A trace (Timeline) shows each worker by itself."));
}
