// The resolved recipe: what differs from the defaults, what the command line asked for, where everything runs.

const recipeState = { find: "", all: false };

const ORIGINS = { command: "command line", recipe: "recipe", default: "default", unknown: "" };

function keyTable(recipe) {
  const find = recipeState.find.toLowerCase();
  const keys = recipe.keys.filter((key) => (recipeState.all || key.origin !== "default") &&
    (!find || `${key.path} ${key.value}`.toLowerCase().includes(find)));
  if (!keys.length) return note("No key.");
  return table(["key", "value", "default", "from"], keys.map((key) => element("tr", { className: recipeState.all ? key.origin : "" },
    element("td", { className: "code" }, key.path),
    element("td", { className: "code" }, key.value),
    element("td", { className: "code quiet" }, key.default ?? ""),
    element("td", {}, ORIGINS[key.origin] ? element("span", { className: `badge ${key.origin}` }, ORIGINS[key.origin]) : ""))));
}

/** Keys in which the runs of the page differ; the places that every run has for itself are left out. */
function runDifferences() {
  const places = /(^runner\.logger\.|_dir$|\.folder$|_path$)/;
  const maps = runs.map((run) => new Map((run.recipe?.keys ?? []).map((key) => [key.path, key.value])));
  const paths = [...new Set(maps.flatMap((map) => [...map.keys()]))].filter((path) => !places.test(path));
  const differing = paths.filter((path) => new Set(maps.map((map) => map.get(path))).size > 1);
  if (!differing.length) return note("The recipes are equal.");
  return table(["key", ...runs.map((run) => run.name)], differing.map((path) => [
    element("td", { className: "code" }, path),
    ...maps.map((map) => element("td", { className: "code" }, map.get(path) ?? "-"))]));
}

function earlierRecipes(recipe) {
  return recipe.earlier.flatMap((earlier) => [
    element("h2", {}, `Changed since ${earlier.file}, of an earlier launch`),
    table(["key", "then", "now"], earlier.changes.map((change) => [change.path, change.then ?? "-", change.now ?? "-"].map((text) =>
      element("td", { className: "code" }, text))))]);
}

function showRecipe(run) {
  const recipe = run.recipe;
  const parts = [element("div", { className: "controls" }, runChoice("recipe"))];
  if (runs.length > 1) parts.unshift(element("h2", {}, "Differences between the runs"), runDifferences(), element("h2", {}, "A run's recipe"));
  if (!recipe) {
    fill(panel("recipe"), parts, note("The folder holds no config.yaml."));
    return;
  }
  const list = element("div", { id: "keys" }, keyTable(recipe));
  const redraw = () => list.replaceChildren(keyTable(recipe));
  const find = element("input", { type: "search", placeholder: "part of a key", id: "find-key", value: recipeState.find,
    oninput: () => { recipeState.find = find.value; redraw(); } });
  const all = element("input", { type: "checkbox", checked: recipeState.all, id: "all-keys",
    onchange: () => { recipeState.all = all.checked; redraw(); } });
  const changed = recipe.keys.filter((key) => key.origin !== "default").length;
  const head = element("p", {}, recipe.recipe ? ["Recipe ", element("b", {}, recipe.recipe)] : "Recipe",
    `: ${recipe.keys.length} keys, ${changed} of them not the defaults.`,
    recipe.overrides.length ? [" On the command line: ", recipe.overrides.flatMap((text, index) =>
      [index ? ", " : "", element("code", {}, text)])] : null);
  parts.push(head, element("div", { className: "controls" }, labelled("keys", find), labelled("", [all, "defaults too"])), list);
  if (recipe.placement) parts.push(element("h2", {}, "Placement"), element("pre", { className: "card" }, recipe.placement));
  fill(panel("recipe"), parts, earlierRecipes(recipe));
}
