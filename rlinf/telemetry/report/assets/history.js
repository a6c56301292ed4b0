// Launches, versions, restarts and warnings.

function pairs(entries) {
  return element("dl", { className: "pairs" }, entries.filter(([, value]) => value !== "" && value !== null && value !== undefined)
    .flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

function launchCard(launch, index) {
  const versions = Object.entries(launch.versions).map(([name, version]) => `${name} ${version}`).join(", ");
  const commit = launch.commit ? `${launch.commit.slice(0, 12)}${launch.changed ? ", with changes that are not committed" : ""}` : "";
  return element("div", { className: "card block" },
    element("h2", {}, `Launch ${index + 1}${launch.resumed ? ", a resume" : ""}`),
    pairs([["started", launch.started_at], ["host", launch.host], ["seed", launch.seed === null ? "" : String(launch.seed)],
      ["commit", commit], ["versions", versions], ["command", element("code", {}, launch.command)]]));
}

function eventTable(history) {
  return table(["time", "step", "", "what"], history.events.map((event) => [
    element("td", { className: "nowrap quiet" }, event.time.replace("T", " ")),
    event.step === null ? "" : String(event.step),
    element("span", { className: `badge ${event.kind}` }, event.kind), event.text]), { numeric: [1] });
}

function showHistory(run) {
  const history = run.history;
  const parts = [element("div", { className: "controls" }, runChoice("history"))];
  if (history.status) parts.push(element("p", {}, history.status));
  parts.push(element("p", { className: "quiet" }, `${history.restarts} restarts of workers, ${history.warnings} warnings. ${run.folder}`));
  for (const problem of history.problems) parts.push(element("p", { className: "bad" }, problem));
  if (history.events.length) {
    parts.push(element("h2", {}, "Events"));
    if (history.hidden_events) parts.push(element("p", { className: "quiet" }, `${history.hidden_events} older ones are left out.`));
    parts.push(eventTable(history));
  }
  if (history.worker_warnings.length) {
    parts.push(element("h2", {}, "Warnings of workers"), table(["time", "worker", "", "what"], history.worker_warnings.map((line) => [
      element("td", { className: "nowrap quiet" }, line.time), line.worker,
      element("span", { className: `badge ${line.level}` }, line.level), line.text])));
  }
  parts.push(element("h2", {}, "Launches"));
  parts.push(...(history.launches.length ? history.launches.map(launchCard).reverse() : [note("The folder holds no run.json.")]));
  fill(panel("history"), parts);
}
