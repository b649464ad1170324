// The panel about one op: the user's line, the decisions of the executors, what it reads and who reads its results.

function section(title, ...children) {
  const shown = children.flat().filter(Boolean);
  return shown.length ? element("section", {}, element("h3", {}, title), shown) : null;
}

function badge(executor) {
  return element("span", { class: `badge ${executorClass(executor)}` }, executor);
}

const KNOWN_EXECUTORS = [...new Set(PROGRAMS.flatMap((program) => program.executors))].filter((name) => name !== "reference").sort();

function executorClass(name) {
  const index = KNOWN_EXECUTORS.indexOf(name.split(".")[0]);
  return index < 0 ? "plain" : `color${index % 6}`;
}

function decisionNode(decision) {
  const names = { pattern: "recognized in the program", joint: "before differentiation" };
  const phase = names[decision.phase] || decision.phase;
  const declined = decision.declined.map(([name, reason]) =>
    element("li", { class: "declined" }, element("span", { class: "mark" }, "declined"), badge(name), element("span", {}, reason)),
  );
  const runs = element("li", { class: "claimed" }, element("span", { class: "mark" }, "runs on"), badge(decision.runs));
  const amounts = [
    decision.bytes === null ? "" : `${bytesText(decision.bytes)} read and written`,
    decision.flops ? `${amountText(decision.flops)} floating-point operations` : "",
  ].filter(Boolean);
  return element(
    "div",
    { class: "decision" },
    element("div", { class: "decision-head" }, element("code", {}, decision.symbol), element("span", { class: "faint" }, phase)),
    element("ul", {}, declined, runs),
    amounts.length ? element("div", { class: "faint" }, amounts.join(", ")) : null,
  );
}

// The values of an op as buttons that go to the op that computes each, or to those that read it.
function valueNode(name, line, go) {
  return line ? button(name, () => go(line), { class: "value", title: line.op.text }) : element("span", { class: "value plain" }, name);
}

function whereNode(op) {
  if (op.place < 0) return element("p", { class: "faint" }, "This op has no line of the program: a pass added it.");
  return element(
    "div",
    {},
    op.module ? element("div", {}, "module ", element("code", { class: "module" }, op.module)) : null,
    element("div", { class: "faint path", title: op.file }, `${shortPath(op.file)}:${op.line} in ${op.function}`),
    op.source ? element("pre", { class: "source" }, op.source) : null,
  );
}

function savedNode(program, line, go) {
  const saved = line.op.outputs.filter((name) => program.saved.has(name));
  if (line.phase !== "forward" || !saved.length) return null;
  return section(
    "Saved for backward",
    saved.map((name) =>
      element(
        "div",
        {},
        element("code", {}, name),
        ` ${bytesText(program.saved.get(name).bytes)}, read by `,
        (program.users.get(`backward ${name}`) || []).map((user) => [valueNode(user.op.outputs[0] || user.op.symbol, user, go), " "]),
      ),
    ),
  );
}

// One of the decisions that say the same.
function different(decisions) {
  return [...new Map(decisions.map((each) => [JSON.stringify([each.phase, each.symbol, each.runs, each.declined]), each])).values()];
}

function lineDetails(line, go, showCode) {
  const { op, program, phase } = line;
  // Of a region only what was declined, and composites: the ops inside follow.
  const decisions = op.parts.length ? different(line.allDecisions().filter((each) => each.declined.length)) : line.decisions();
  const parts = op.parts.map((part) => OPS[part]);
  const measured = program.data.measured.filter((row) => row[0] === phase && row[3] === op.described);
  const inputs = op.inputs.map((name) => valueNode(name, program.producer(phase, name), go));
  const users = op.outputs.map((name) =>
    element(
      "div",
      {},
      element("code", {}, name),
      " ",
      program.usersOf(phase, name).map((user) => [valueNode(`${user.phase === phase ? "" : `${user.phase} `}${user.op.outputs[0] || user.op.symbol}`, user, go), " "]),
      program.usersOf(phase, name).length ? "" : element("span", { class: "faint" }, "returned, or not read"),
    ),
  );
  const partNodes = parts.map((part) => {
    const own = program.decisionsOf(part, phase);
    const declines = own.flatMap((each) => each.declined);
    return element(
      "details",
      {},
      element("summary", {}, element("code", {}, part.text.split("  # ")[0]), declines.length ? element("span", { class: "faint" }, ` ${declines.length} declined`) : ""),
      whereNode(part),
      own.map(decisionNode),
    );
  });
  return element(
    "article",
    { class: "details", "aria-label": "Details" },
    element("h2", {}, op.symbol.replace(/^torch\.nn\.functional\./, "")),
    element("div", { class: "faint" }, `${phase}, op ${line.index}`, " ", badge(line.executor)),
    element("pre", { class: "source" }, op.text.split("  # ").join("\n# ")),
    decisions.length || !parts.length
      ? section(parts.length ? "Declined in this region" : "Why this executor", decisions.length ? decisions.map(decisionNode) : element("p", { class: "faint" }, "Executors were not asked: a pass or transform added this op."))
      : null,
    section("Where", whereNode(op)),
    parts.length ? section(`${countText(parts.length, "op")} in this region`, partNodes) : null,
    op.code >= 0 ? section("Generated code", button("Show the code", () => showCode(op.code))) : null,
    section("Reads", inputs.length ? element("div", { class: "values" }, inputs) : null),
    section("Read by", users),
    savedNode(program, line, go),
    measured.length
      ? section("Measured", measured.map(([, operation, executor, , clock, calls, seconds]) => element("div", {}, `${secondsText(seconds / calls)} per call on ${clock}, ${countText(calls, "call")}: ${operation} `, badge(executor))))
      : null,
  );
}

function groupDetails(group, go) {
  const [first] = group.decisions;
  const places = group.decisions.slice(0, 200).map((decision) => {
    const line = first.phase === "pattern" || decision.outputs.length ? PROGRAM().lineOf(decision.phase, decision.outputs) : null;
    const text = decision.location || "no line";
    return element("li", {}, line ? button(decision.outputs.join(", ") || "op", () => go(line), { class: "value" }) : element("code", {}, decision.outputs.join(", ")), " ", element("span", { class: "path faint", title: text }, shortPath(text)));
  });
  return element(
    "article",
    { class: "details", "aria-label": "Details" },
    element("h2", {}, first.symbol.replace(/^torch\.nn\.functional\./, "")),
    section(`${countText(group.decisions.length, "op")} decided in this way`, decisionNode(first)),
    section("Where", element("ul", { class: "places" }, places), group.decisions.length > 200 ? element("p", { class: "faint" }, `and ${group.decisions.length - 200} more`) : null),
  );
}
