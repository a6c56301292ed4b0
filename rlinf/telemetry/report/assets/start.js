// The head of the page, and the beginning: every tab is filled, one is shown.

function stepText(run) {
  if (run.step === null) return "none yet";
  return run.total === null ? `${run.step}` : `${run.step} of ${run.total}`;
}

/** How the run ended, in one line; the History tab has all of it. */
function shortStatus(status) {
  const line = status.split("\n")[0];
  return line.length > MAX_STATUS ? `${line.slice(0, MAX_STATUS)}…` : line;
}

function tile(name, value) {
  return element("div", { className: "tile" }, element("b", {}, formatNumber(value)), element("span", {}, name));
}

const MAX_TILES = 5;
const MAX_STATUS = 120;

function showOneRun(run) {
  const launch = run.history.launches[run.history.launches.length - 1];
  const facts = [run.step === null ? "no step yet" : `step ${stepText(run)}`, run.seconds === null ? null : formatSeconds(run.seconds), launch ? `on ${launch.host}` : null,
    shortStatus(run.history.status), run.history.restarts ? `${run.history.restarts} restarts` : null];
  const latest = Object.entries(run.curves.latest);
  const evals = latest.filter(([name]) => name.startsWith("eval/"));
  const shown = (evals.length ? evals : latest.filter(([name]) => /^(env|train)\//.test(name))).slice(0, MAX_TILES);
  return [
    element("div", { className: "facts" }, facts.filter(Boolean).map((text) => element("span", {}, text))),
    shown.length ? element("div", { className: "tiles" }, shown.map(([name, value]) => tile(name, value))) : null,
  ];
}

function showSeveralRuns() {
  const evals = [...new Set(runs.flatMap((run) => Object.keys(run.curves.latest)))].filter((name) => name.startsWith("eval/")).sort();
  const shown = evals.slice(0, 4);
  return table(["run", "steps", "time", ...shown], runs.map((run, index) => {
    const swatch = element("i", { className: "swatch", style: `background:${runColor(index)};margin-right:8px` });
    schemeListeners.push(() => { swatch.style.background = runColor(index); });
    return [element("td", {}, swatch, run.name), ...[stepText(run), formatSeconds(run.seconds)].map((text) =>
      element("td", { className: "nowrap" }, text)),
      ...shown.map((name) => formatNumber(run.curves.latest[name]))];
  }), { numeric: shown.map((_, index) => index + 3) });
}

function start() {
  const summary = runs.length === 1 ? showOneRun(runs[0]) : [showSeveralRuns()];
  document.getElementById("summary").append(...summary.filter(Boolean));
  if (!runs.some((run) => run.samples) && runs.some((run) => run.episodes || run.videos)) {
    document.getElementById("tab-samples").textContent = "Episodes";
  }
  document.getElementById("written").textContent = `Written ${report.written}. Reload the page of a run that goes on.`;
  showCurves();
  for (const show of [showTimes, showTimeline, showSamples, showRecipe, showHistory]) onRun(show);
  setUpTabs();
  schemeListeners.push(() => { for (const show of [showTimes, showTimeline]) show(runs[chosenRun]); });
}

start();
