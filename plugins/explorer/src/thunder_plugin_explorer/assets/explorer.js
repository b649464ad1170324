// The page: header, tabs, the chosen view and the panel with details; keyboard, and the theme.

const STATE = { program: PROGRAMS.length - 1, view: programView, query: "", executor: "", decliner: "", line: null };

function PROGRAM() {
  return PROGRAMS[STATE.program];
}

function words() {
  return STATE.query.toLowerCase().split(/\s+/).filter(Boolean);
}

const search = element("input", { type: "search", id: "search", placeholder: "Search: op, module, file:line, executor  ( / )", "aria-label": "Search" });
const executors = element("select", { "aria-label": "Ops on this executor", onchange: (event) => { STATE.executor = event.target.value; refresh(); } });
const decliners = element("select", { "aria-label": "Ops that this executor declined", onchange: (event) => { STATE.decliner = event.target.value; refresh(); } });
const programs = element("select", { "aria-label": "Compiled program", onchange: (event) => chooseProgram(Number(event.target.value)) });
const viewNode = element("div", { id: "view", role: "tabpanel" });
const panel = element("aside", { id: "panel", "aria-label": "Details of the chosen row" });
const help = element(
  "dialog",
  { id: "help" },
  element("h2", {}, "Keys"),
  table(["", ""], [["/", "search"], ["Escape", "clear the search, close this"], ["arrows, j, k, Page Up, Page Down", "move in a list"], ["Home, End", "first and last row"], ["[ and ]", "the view before and after"], ["1 to 9", "a view"], ["t", "light or dark"], ["?", "this list"]]),
  element("p", { class: "faint" }, "In a list, ! marks ops that an executor declined, s those that forward saves for backward."),
  button("Close", () => help.close()),
);

let pending = 0;
search.addEventListener("input", () => {
  clearTimeout(pending);
  pending = setTimeout(() => {
    STATE.query = search.value;
    refresh();
  }, 60);
});

function chooseProgram(number) {
  STATE.program = number;
  STATE.line = null;
  STATE.executor = "";
  STATE.decliner = "";
  stagesView.chosen = 1;
  fillFilters();
  showDetails(null);
  refresh();
}

function chooseView(view) {
  STATE.view = view;
  refresh();
  const focus = viewNode.querySelector("[tabindex]");
  if (focus && document.activeElement !== search) focus.focus({ preventScroll: true });
}

function showDetails(node) {
  panel.replaceChildren(node || element("p", { class: "faint empty" }, "Choose a row to see its line of the program, who runs it, and who declined it, and why."));
  panel.scrollTop = 0;
}

// Show the details of a line, without leaving the view.
function select(line) {
  STATE.line = line;
  showDetails(lineDetails(line, goTo, showCode));
}

// Show a line among the ops of the program.
function goTo(line) {
  select(line);
  STATE.query = search.value = "";
  STATE.executor = executors.value = "";
  STATE.decliner = decliners.value = "";
  STATE.view = programView;
  for (const row of foldLayers(programView.lines([]), programView.open)) {
    if (row.kind === "layers" && row.hidden.some((segment) => segment.lines.includes(line))) programView.open.add(row.key);
  }
  refresh();
}

function showCode(code) {
  STATE.view = regionsView;
  STATE.query = search.value = "";
  regionsView.chosen = Math.max(0, regionsView.regions([]).findIndex((line) => line === STATE.line || line.op.code === code));
  refresh();
}

function fillFilters() {
  const options = (first, names) => [element("option", { value: "" }, first), ...names.map((name) => element("option", { value: name }, name))];
  executors.replaceChildren(...options("any executor", PROGRAM().executors));
  decliners.replaceChildren(...options("declined or not", PROGRAM().decliners));
  decliners.options[0].after(element("option", { value: "*" }, "declined by any"));
  for (const option of [...decliners.options].slice(2)) option.textContent = `declined by ${option.value}`;
  programs.replaceChildren(...PROGRAMS.map((program, index) => element("option", { value: index }, `program ${index}: ${program.data.reason}`.slice(0, 60))));
  programs.value = String(STATE.program);
  programs.hidden = PROGRAMS.length < 2;
}

function refresh() {
  const query = words();
  if (!STATE.view.shown()) STATE.view = programView;
  document.getElementById("tabs").replaceChildren(
    ...VIEWS.filter((view) => view.shown()).map((view) => {
      const count = query.length || ((STATE.executor || STATE.decliner) && (view === programView || view === decisionsView)) ? view.count(query) : null;
      return button(element("span", {}, view.name, count === null ? "" : element("span", { class: `hits ${count ? "" : "none"}` }, count)), () => chooseView(view), { role: "tab", "aria-selected": view === STATE.view });
    }),
  );
  viewNode.className = STATE.view.name.toLowerCase();
  viewNode.replaceChildren(...STATE.view.node(query));
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}

function theme() {
  return document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !help.open) {
    search.value = STATE.query = "";
    search.blur();
    refresh();
    return;
  }
  if (event.key === "Enter" && document.activeElement === search) {
    const list = viewNode.querySelector(".list");
    if (list) list.focus();
    return;
  }
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
  const views = VIEWS.filter((view) => view.shown());
  const index = views.indexOf(STATE.view);
  if (event.key === "/") search.focus();
  else if (event.key === "[") chooseView(views[(index + views.length - 1) % views.length]);
  else if (event.key === "]") chooseView(views[(index + 1) % views.length]);
  else if (/^[1-9]$/.test(event.key) && views[event.key - 1]) chooseView(views[event.key - 1]);
  else if (event.key === "t") setTheme(theme() === "dark" ? "light" : "dark");
  else if (event.key === "?") help.open ? help.close() : help.showModal();
  else return;
  event.preventDefault();
});

document.getElementById("header").append(
  element("h1", {}, DATA.name, element("small", {}, "Thunder explorer")),
  programs,
  search,
  executors,
  decliners,
  button("theme", () => setTheme(theme() === "dark" ? "light" : "dark"), { title: "light or dark ( t )" }),
  button("?", () => help.showModal(), { "aria-label": "Keys" }),
);
document.getElementById("main").append(viewNode, panel);
document.body.append(help);
fillFilters();
showDetails(null);
refresh();
