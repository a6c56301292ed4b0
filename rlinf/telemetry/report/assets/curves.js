// Learning curves of all metrics, all runs in one plot.

// Evaluations first: they are what a run is for.
const GROUPS = ["eval", "env", "rollout", "train"];
const FEW_POINTS = 40;

const curveState = { smoothing: 0, axis: "step", hidden: new Set() };

/** Exponential moving average without the bias of its start; a gap stays a gap. */
function smooth(values, weight) {
  let sum = 0;
  let share = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = sum * weight + value * (1 - weight);
    share = share * weight + (1 - weight);
    return sum / share;
  });
}

/** Minutes at which a run had made `step` steps. */
function minutesAt(run, step) {
  const [steps, seconds] = run.curves.clock;
  let high = steps.findIndex((known) => known >= step);
  if (high < 0) high = steps.length - 1;
  const low = Math.max(high - 1, 0);
  const span = steps[high] - steps[low];
  const share = span ? (step - steps[low]) / span : 1;
  return (seconds[low] + share * (seconds[high] - seconds[low])) / 60;
}

function curveData(name) {
  const data = [];
  runs.forEach((run, index) => {
    const series = run.curves.series[name];
    if (!series || curveState.hidden.has(index)) return;
    const steps = run.curves.xs[series[0]];
    const x = curveState.axis === "step" ? steps : steps.map((step) => minutesAt(run, step));
    const line = { x, y: series[1], name: run.name, type: "scatter", line: { color: runColor(index), width: 2 },
      marker: { size: 5 }, mode: steps.length <= FEW_POINTS ? "lines+markers" : "lines",
      hovertemplate: `%{y:.5g}${runs.length > 1 ? "" : "<extra></extra>"}` };
    if (curveState.smoothing > 0) {
      data.push({ ...line, opacity: 0.25, hoverinfo: "skip", hovertemplate: null, mode: "lines" });
      data.push({ ...line, y: smooth(series[1], curveState.smoothing), mode: "lines" });
    } else {
      data.push(line);
    }
  });
  return data;
}

function curveCard(name, group) {
  const latest = runs.length === 1 ? formatNumber(runs[0].curves.latest[name]) : "";
  const plot = new Plot(`${name}: ${latest || "a curve for each run"}`, () => ({
    data: curveData(name),
    layout: baseLayout({ hovermode: "x unified", uirevision: curveState.axis,
      xaxis: { title: { text: curveState.axis === "step" ? null : "minutes" }, nticks: 6 },
      yaxis: { nticks: 5, tickformat: "~g", exponentformat: "e" } }),
  }));
  const title = group && name.startsWith(`${group}/`) ? name.slice(group.length + 1) : name;
  return element("article", { className: "card curve", name },
    element("div", {}, element("h3", { title: name }, title), element("span", { className: "value" }, latest)),
    plot.holder);
}

function curveGroups() {
  const groups = new Map();
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.curves.series)))].sort();
  for (const name of names) {
    const group = name.includes("/") ? name.slice(0, name.indexOf("/")) : "";
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push(name);
  }
  const rank = (group) => (group === "time" ? 99 : GROUPS.includes(group) ? GROUPS.indexOf(group) : 50);
  return [...groups].sort((a, b) => rank(a[0]) - rank(b[0]) || a[0].localeCompare(b[0]));
}

function runSwitches() {
  if (runs.length === 1) return [];
  return runs.map((run, index) => {
    const swatch = element("i", { className: "swatch", style: `background:${runColor(index)}` });
    schemeListeners.push(() => { swatch.style.background = runColor(index); });
    return labelled("", [element("input", { type: "checkbox", checked: true, onchange: (event) => {
      if (event.target.checked) curveState.hidden.delete(index);
      else curveState.hidden.add(index);
      refreshPlots();
    } }), swatch, run.name]);
  });
}

function curveControls() {
  const shown = element("output", {}, "0");
  let waiting = 0;
  const slider = element("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: 0, id: "smoothing",
    oninput: () => {
      curveState.smoothing = Number(slider.value);
      shown.value = slider.value;
      cancelAnimationFrame(waiting);
      waiting = requestAnimationFrame(refreshPlots);
    } });
  const filter = element("input", { type: "search", placeholder: "part of a name", id: "filter",
    oninput: () => filterCurves(filter.value.trim().toLowerCase()) });
  return element("div", { className: "controls" },
    labelled("smoothing", [slider, shown]),
    labelled("over", choice("axis", [["step", "steps"], ["time", "time"]], (value) => {
      curveState.axis = value;
      refreshPlots();
    })),
    labelled("metrics", filter), runSwitches());
}

function filterCurves(part) {
  for (const group of panel("curves").querySelectorAll("details.group")) {
    let any = false;
    for (const card of group.querySelectorAll("article")) {
      card.hidden = !card.getAttribute("name").toLowerCase().includes(part);
      any ||= !card.hidden;
    }
    group.hidden = !any;
    if (part && any) group.open = true;
  }
}

function curveNotes() {
  const lines = [];
  const thinned = runs.reduce((sum, run) => sum + run.curves.thinned, 0);
  if (thinned) {
    lines.push(`Curves of more than ${runs[0].curves.max_points} points are thinned (here ${thinned}): of each ` +
      "stretch the lowest and the highest value are drawn.");
  }
  for (const run of runs) {
    if (run.unreadable) lines.push(`${run.name}: ${run.unreadable} lines of metrics.jsonl could not be read.`);
  }
  return lines.map((text) => element("p", { className: "quiet" }, text));
}

function showCurves() {
  const groups = curveGroups();
  if (!groups.length) {
    panel("curves").append(note("No metrics have been recorded yet."), ...curveNotes());
    return;
  }
  const sections = groups.map(([group, names]) => element("details",
    { className: "group", open: group !== "time", ontoggle: refreshPlots },
    element("summary", {}, group || "others", element("span", {}, `${names.length}`)),
    element("div", { className: "grid" }, names.map((name) => curveCard(name, group)))));
  panel("curves").append(curveControls(), ...sections, ...curveNotes());
}
