// Prompts and answers of a language model; episodes and videos where the run has those instead.

const PAGE = 20;
const sampleState = { source: null, step: null, find: "", order: "file", count: PAGE };

const ORDERS = {
  file: ["as recorded", null],
  best: ["highest reward first", (a, b) => (b.reward ?? -Infinity) - (a.reward ?? -Infinity)],
  worst: ["lowest reward first", (a, b) => (a.reward ?? Infinity) - (b.reward ?? Infinity)],
  long: ["longest first", (a, b) => (b.num_tokens ?? 0) - (a.num_tokens ?? 0)],
};

function fact(name, value) {
  return element("span", {}, `${name} `, element("b", {}, value));
}

function quote(name, text) {
  return element("div", {}, element("dt", {}, name), element("dd", { className: "code" }, text));
}

function sampleCard(row) {
  const terms = Object.entries(row.terms);
  const [low, high] = row.versions;
  return element("article", { className: "card sample" },
    element("div", { className: "facts" },
      fact("reward", formatNumber(row.reward)),
      terms.length > 1 ? terms.map(([name, value]) => fact(name, formatNumber(value))) : null,
      fact("tokens", formatNumber(row.num_tokens)), row.finish ? fact("ended by", row.finish) : null,
      row.versions.length ? fact("weights", low === high ? `version ${low}` : `versions ${low} to ${high}`) : null,
      row.group !== null ? fact("group", `${row.group} / ${row.member}`) : null),
    element("dl", {},
      quote("prompt", row.prompt), quote("answer", row.answer),
      row.reference && row.reference !== "None" ? quote("reference", row.reference) : null));
}

function matchingSamples(step) {
  const find = sampleState.find.toLowerCase();
  const rows = step.rows.filter((row) => !find || `${row.prompt}\n${row.answer}\n${row.reference}`.toLowerCase().includes(find));
  const order = ORDERS[sampleState.order][1];
  return order ? rows.sort(order) : rows;
}

function listSamples(place, step) {
  const rows = matchingSamples(step);
  const total = step.total === null ? `more than ${step.rows.length}` : step.total;
  const more = rows.length > sampleState.count ? element("button", { className: "plain", type: "button",
    onclick: () => { sampleState.count += PAGE; listSamples(place, step); } },
  `show ${Math.min(PAGE, rows.length - sampleState.count)} more`) : null;
  place.replaceChildren(
    element("p", { className: "quiet" }, `${rows.length} answers shown of ${step.rows.length} on this page; the step has ${total}.`),
    ...rows.slice(0, sampleState.count).map(sampleCard), ...(more ? [more] : []));
}

function showAnswers(run, controls) {
  const sources = Object.keys(run.samples);
  if (!sources.includes(sampleState.source)) sampleState.source = sources[0];
  const steps = run.samples[sampleState.source];
  const step = steps.find((other) => other.step === sampleState.step) ?? steps[steps.length - 1];
  const list = element("div", { id: "answers" });
  const again = () => { sampleState.count = PAGE; showSamples(run); };
  const find = element("input", { type: "search", placeholder: "part of a text", value: sampleState.find, id: "find",
    oninput: () => { sampleState.find = find.value; sampleState.count = PAGE; listSamples(list, step); } });
  controls.append(
    labelled("from", choice("source", sources.map((name) => [name, name]), (value) => { sampleState.source = value; again(); }, sampleState.source)),
    labelled("step", choice("sample-step", steps.map((other) => [other.step, other.step]),
      (value) => { sampleState.step = Number(value); again(); }, String(step.step))),
    labelled("with", find),
    labelled("order", choice("order", Object.entries(ORDERS).map(([key, [text]]) => [key, text]),
      (value) => { sampleState.order = value; listSamples(list, step); }, sampleState.order)));
  listSamples(list, step);
  return list;
}

function showSamples(run) {
  const controls = element("div", { className: "controls" }, runChoice("samples"));
  const parts = [controls];
  if (run.samples) parts.push(showAnswers(run, controls));
  if (run.episodes) parts.push(...showEpisodes(run, controls));
  if (run.videos) parts.push(...showVideos(run));
  if (parts.length === 1) {
    parts.push(note("This run has recorded no answers, episodes or videos. Answers are written by runs of language models; " +
      "episodes by evaluations (", element("code", {}, "runner.val_check_interval"), "), videos with ",
      element("code", {}, "env.eval.video_cfg.save_video=true"), "."));
  }
  fill(panel("samples"), parts);
}
