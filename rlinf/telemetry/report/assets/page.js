"use strict";

// What all tabs share: the data, elements, numbers as text, the choice of a run, and the tabs themselves.

const report = JSON.parse(document.getElementById("data").textContent);
const runs = report.runs;

/** Makes an element. Texts become text nodes, so nothing that a run has written is ever read as markup. */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && name !== "list" && name !== "style") made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

function panel(name) {
  return document.getElementById(`panel-${name}`);
}

function note(...children) {
  return element("p", { className: "note" }, ...children);
}

function formatNumber(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return String(value);
  const size = Math.abs(value);
  return size >= 1e9 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

function formatSeconds(seconds) {
  if (seconds === null || seconds === undefined) return "-";
  if (seconds < 120) return `${formatNumber(Number(seconds.toFixed(1)))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** A table in a box that scrolls by itself where the window is narrow. `rows` hold arrays of cells. */
function table(heads, rows, { numeric = [] } = {}) {
  const kind = (index) => (numeric.includes(index) ? "number" : "");
  return element("div", { className: "scroll card" },
    element("table", {},
      element("thead", {}, element("tr", {}, heads.map((head, index) =>
        element("th", { scope: "col", className: kind(index) }, head)))),
      element("tbody", {}, rows.map((row) => row instanceof Node ? row : element("tr", {}, row.map((cell, index) =>
        cell instanceof HTMLTableCellElement ? cell : element("td", { className: kind(index) }, cell)))))));
}

function labelled(text, control) {
  return element("label", {}, text, control);
}

/** A drop-down list; `options` are [value, text]. */
function choice(id, options, onchange, value = null) {
  const list = element("select", { id, onchange: () => onchange(list.value) },
    options.map(([key, text]) => element("option", { value: key }, text)));
  if (value !== null) list.value = value;
  return list;
}

/** Replaces what a place holds; the control that was in use keeps the focus by its id. */
function fill(place, ...children) {
  const id = document.activeElement?.id;
  place.replaceChildren(...children.flat(Infinity).filter((child) => child !== null));
  const again = id ? document.getElementById(id) : null;
  if (again && again !== document.activeElement && place.contains(again)) again.focus();
}

let chosenRun = 0;
const runListeners = [];

/** Calls `show(run)` now and whenever another run is chosen. */
function onRun(show) {
  runListeners.push(show);
  show(runs[chosenRun]);
}

/** The list on a tab that chooses the run that all such tabs show; nothing where there is one run. */
function runChoice(tab) {
  if (runs.length === 1) return [];
  return labelled("run", choice(`run-${tab}`, runs.map((run, index) => [index, run.name]), (value) => {
    chosenRun = Number(value);
    for (const show of runListeners) show(runs[chosenRun]);
  }, chosenRun));
}

const tabListeners = [];

/** Tabs as the ARIA practices describe them: arrows, Home and End move and choose; only the chosen one is in the tab order. */
function setUpTabs() {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const select = (tab, focus) => {
    for (const other of tabs) {
      const chosen = other === tab;
      other.setAttribute("aria-selected", String(chosen));
      other.tabIndex = chosen ? 0 : -1;
      document.getElementById(other.getAttribute("aria-controls")).hidden = !chosen;
    }
    if (focus) tab.focus();
    tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    for (const listener of tabListeners) listener();
  };
  const moves = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
  tabs.forEach((tab, index) => {
    tab.addEventListener("click", () => {
      select(tab, false);
      history.replaceState(null, "", `#${tab.id.slice("tab-".length)}`);
    });
    tab.addEventListener("keydown", (event) => {
      if (!(event.key in moves)) return;
      event.preventDefault();
      const move = moves[event.key];
      const last = tabs.length - 1;
      select(tabs[Number.isFinite(move) ? (index + move + tabs.length) % tabs.length : move < 0 ? 0 : last], true);
    });
  });
  const named = document.getElementById(`tab-${location.hash.slice(1)}`);
  select(named ?? tabs[0], false);
}
