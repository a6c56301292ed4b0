// What every process did within a chosen step, from the trace.

let shownStep = null;

function isWaiting(name) {
  return /^(wait|recv|idle)/.test(name);
}

function spanPlot(timeline, step) {
  const rows = new Map();
  for (const [process, row] of step.spans) rows.set(process, Math.max(rows.get(process) ?? 0, row + 1));
  const tops = [];
  let top = 0;
  timeline.processes.forEach((_, process) => {
    tops.push(top);
    top += (rows.get(process) ?? 1) + 0.6;
  });
  const names = [...new Set(step.spans.map((span) => span[4]))].sort((a, b) => a - b);
  const plot = new Plot(`What each process did in step ${step.label}`, () => ({
    data: names.map((name) => {
      const spans = step.spans.filter((span) => span[4] === name);
      return {
        type: "bar", orientation: "h", name: timeline.names[name], base: spans.map((span) => span[2]),
        x: spans.map((span) => span[3]), y: spans.map((span) => tops[span[0]] + span[1] + 0.5),
        width: spans.map(() => 0.9), text: spans.map((span) => timeline.processes[span[0]]), textposition: "none",
        marker: { color: partColor(timeline.names[name], name), line: { width: 0 } },
        hovertemplate: "%{text}: %{fullData.name}<br>%{x:.4~g} ms from %{base:.4~g} ms<extra></extra>",
      };
    }),
    layout: baseLayout({ barmode: "overlay", hovermode: "closest", dragmode: "pan",
      xaxis: { title: { text: "milliseconds" }, range: [0, step.ms] },
      yaxis: { range: [top, -0.3], tickvals: tops.map((place, p) => place + ((rows.get(p) ?? 1) / 2)),
        ticktext: timeline.processes.map(shorten), showgrid: false, zeroline: false, fixedrange: true } }),
  }), "plot");
  plot.holder.style.height = `${Math.min(Math.max(60 + top * 22, 200), 1400)}px`;
  return [plot.holder, colorKeys(names.map((name) => [timeline.names[name], partColor(timeline.names[name], name)]))];
}

/** Plotly reads some markup in texts of axes; names of processes have none. */
function shorten(name) {
  const plain = name.replaceAll("<", "‹").replaceAll(">", "›");
  return plain.length > 24 ? `${plain.slice(0, 23)}…` : plain;
}

function ownPlot(timeline, step) {
  const names = timeline.names.filter((name) => step.own.some((process) => (process[name] ?? 0) > 0.002 * step.ms));
  names.sort((a, b) => isWaiting(a) - isWaiting(b));
  const rest = step.own.map((process) => Math.max(step.ms - names.reduce((sum, name) => sum + (process[name] ?? 0), 0), 0));
  const labels = timeline.processes.map(shorten);
  const plot = new Plot(`Time of each process in step ${step.label}, by what it did`, () => ({
    data: [...names, "idle"].map((name) => ({
      type: "bar", orientation: "h", name, y: labels,
      x: name === "idle" ? rest : step.own.map((process) => process[name] ?? 0),
      marker: { color: partColor(name, timeline.names.indexOf(name)), line: { width: 0 } },
      hovertemplate: "%{fullData.name}: %{x:.4~g} ms<extra></extra>",
    })),
    layout: baseLayout({ barmode: "stack", bargap: 0.3, hovermode: "closest", xaxis: { title: { text: "milliseconds" } },
      yaxis: { type: "category", autorange: "reversed" } }),
  }), "plot");
  plot.holder.style.height = `${Math.min(Math.max(70 + labels.length * 30, 180), 1400)}px`;
  return [plot.holder, colorKeys([...names, "idle"].map((name) => [name, partColor(name, timeline.names.indexOf(name))]))];
}

function showTimeline(run) {
  const place = panel("timeline");
  for (const plot of [...plots].filter((plot) => place.contains(plot.holder))) plot.forget();
  const timeline = run.timeline;
  const controls = element("div", { className: "controls" }, runChoice("timeline"));
  if (timeline.note || !timeline.steps.length) {
    fill(place, controls, note(timeline.note ?? "The trace holds no step.",
      timeline.key ? [" Tracing is switched on by the key ", element("code", {}, timeline.key), "."] : null));
    return;
  }
  const last = timeline.steps.length - 1;
  const index = Math.min(shownStep ?? last, last);
  const step = timeline.steps[index];
  controls.append(labelled("step", choice("timeline-step", timeline.steps.map((other, i) => [i, other.label]),
    (value) => { shownStep = Number(value); showTimeline(run); }, String(index))),
    element("span", { className: "quiet" }, `${formatNumber(step.ms)} ms`));
  const omitted = [
    step.omitted ? `${step.omitted} of the shortest spans are left out` : null,
    timeline.hidden_steps ? `${timeline.hidden_steps} steps of the trace are left out` : null,
    timeline.hidden_processes ? `${timeline.hidden_processes} processes are left out` : null,
  ].filter(Boolean).join("; ");
  fill(place, controls,
    element("div", { className: "card block" }, element("h2", {}, "What each process did, and when"), spanPlot(timeline, step)),
    element("div", { className: "card block" }, element("h2", {}, "How long each process did what"), ownPlot(timeline, step)),
    element("p", { className: "quiet" }, omitted ? `${omitted}. ` : "", "The whole trace opens in ui.perfetto.dev."));
}
