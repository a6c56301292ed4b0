// Episodes of evaluations in the environments, and videos.

let episodeStep = null;

function mean(values) {
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
}

function showEpisodes(run, controls) {
  const steps = run.episodes;
  const step = steps.find((other) => other.step === episodeStep) ?? steps[steps.length - 1];
  controls.append(labelled("evaluation after step", choice("episode-step", steps.map((other) => [other.step, other.step]),
    (value) => { episodeStep = Number(value); showSamples(run); }, String(step.step))));
  const metrics = [...new Set(step.rows.flatMap((row) => Object.keys(row.metrics)))];
  const hasTasks = step.rows.some((row) => row.task);
  const heads = ["environment", ...(hasTasks ? ["task"] : []), ...metrics];
  const before = hasTasks ? 2 : 1;
  const rows = step.rows.map((row) => [String(row.env ?? "-"), ...(hasTasks ? [row.task] : []),
    ...metrics.map((name) => formatNumber(row.metrics[name]))]);
  const means = ["mean", ...(hasTasks ? [""] : []),
    ...metrics.map((name) => formatNumber(mean(step.rows.map((row) => row.metrics[name]).filter((v) => v !== undefined && v !== null))))];
  const numeric = metrics.map((_, index) => index + before);
  const shown = step.rows.length < step.total ? `The first ${step.rows.length} of ${step.total} episodes.` : `${step.total} episodes.`;
  const meanRow = element("tr", { className: "recipe" }, means.map((text, index) =>
    element("td", { className: numeric.includes(index) ? "number" : "" }, text)));
  return [element("h2", {}, `Episodes of the evaluation after step ${step.step}`), element("p", { className: "quiet" }, shown),
    table(heads, [meanRow, ...rows], { numeric })];
}

function showVideos(run) {
  const { total, videos } = run.videos;
  const cards = videos.map((video) => element("figure", { className: "card video", style: "margin:0" },
    element("video", { controls: true, preload: video.source.startsWith("data:") ? "metadata" : "none", src: video.source,
      muted: true, playsInline: true }),
    element("figcaption", {}, element("a", { href: video.link }, video.name))));
  return [element("h2", {}, "Videos"),
    element("p", { className: "quiet" }, total > videos.length ? `The newest ${videos.length} of ${total}. ` : "",
      "Small ones are within this page, the others are read from the run's folder."),
    element("div", { className: "videos" }, cards)];
}
