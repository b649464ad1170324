// The views: each has a name, `shown()`, whether it has content, `count(query)`, how many of its rows match, and
// `node(query)`, its content.

function opText(op) {
  const [call, comment] = op.text.split("  # ");
  return [element("span", {}, call), comment ? element("span", { class: "comment" }, `  # ${comment}`) : ""];
}

function lineRow(line, program) {
  const declined = line.allDecisions().some((each) => each.declined.length);
  const saved = line.phase === "forward" && line.op.outputs.some((name) => program.saved.has(name));
  return element(
    "div",
    { class: "line" },
    element("span", { class: "index" }, line.index),
    badge(line.executor),
    element("span", { class: "flags", title: [declined ? "an executor declined" : "", saved ? "saved for backward" : ""].filter(Boolean).join(", ") }, declined ? "!" : " ", saved ? "s" : " "),
    element("span", { class: "where", title: line.op.module }, endOf(line.op.module, 30)),
    element("span", { class: "code" }, opText(line.op)),
  );
}

function layersRow(row) {
  const [first, last] = [row.hidden[0], row.hidden[row.hidden.length - 1]];
  const names = row.hidden.length > 1 ? `${first.layer} to ${last.layer}` : first.layer;
  const state = row.open ? "fold" : "unfold";
  return element(
    "div",
    { class: "layers" },
    element("span", { class: "mark" }, row.open ? "-" : "+"),
    `${names}: ${row.hidden.length} x the same ${countText(first.lines.length, "op")} as ${row.first.layer} (${state})`,
  );
}

// Whether the executor of the filter declined; `*` is any executor.
function declinedBy(decision) {
  return decision.declined.some(([name]) => STATE.decliner === "*" || name === STATE.decliner);
}

// ---- the program that runs ----------------------------------------------------------------------------------------

const programView = {
  name: "Program",
  open: new Set(),
  shown: () => true,
  lines(query) {
    const { executor, decliner } = STATE;
    return PROGRAM().lines.filter(
      (line) =>
        (!executor || line.executor === executor) &&
        (!decliner || line.allDecisions().some(declinedBy)) &&
        (!query.length || matches(lineWords(line), query)),
    );
  },
  count: (query) => programView.lines(query).length,
  node(query) {
    const program = PROGRAM();
    const lines = programView.lines(query);
    const flat = query.length || STATE.executor || STATE.decliner;
    const rows = () => (flat ? lines.map((line) => ({ kind: "line", line })) : foldLayers(lines, programView.open));
    const list = new List({
      label: "Ops of the program",
      render(row) {
        if (row.kind === "line") return lineRow(row.line, program);
        if (row.kind === "layers") return layersRow(row);
        return element("div", { class: "phase" }, `${row.phase}: ${countText(row.count, "op")}`);
      },
      choose(row, index) {
        if (row.kind === "line") select(row.line);
        if (row.kind !== "layers") return;
        if (!programView.open.delete(row.key)) programView.open.add(row.key);
        const top = list.node.scrollTop;
        list.set(rows(), index);
        list.node.scrollTop = top;
      },
    });
    const all = rows();
    const chosen = all.findIndex((row) => row.kind === "line" && row.line === STATE.line);
    queueMicrotask(() => list.set(all, chosen));
    return [list.node];
  },
};

// The words that a search looks at: those of the op, and the names of the ops inside of a region and of composites.
const LINE_WORDS = new Map();

function lineWords(line) {
  let words = LINE_WORDS.get(line);
  if (words === undefined) {
    const inner = line.op.parts.map((part) => OPS[part].words);
    const composites = line.allDecisions().map((each) => each.symbol.toLowerCase());
    words = [line.op.words, ...inner, ...composites, line.executor].join("\n");
    LINE_WORDS.set(line, words);
  }
  return words;
}

// ---- decisions ----------------------------------------------------------------------------------------------------

const decisionsView = {
  name: "Decisions",
  shown: () => PROGRAM().decisions.length > 0,
  groups(query) {
    const groups = new Map();
    for (const decision of PROGRAM().every()) {
      const { executor, decliner } = STATE;
      if (executor && decision.executor !== executor) continue;
      if (decliner && !declinedBy(decision)) continue;
      if (query.length && !matches(decision.words, query)) continue;
      const key = JSON.stringify([decision.phase, decision.symbol, decision.runs, decision.declined, decision.parent && decision.parent.symbol]);
      if (!groups.has(key)) groups.set(key, { decisions: [] });
      groups.get(key).decisions.push(decision);
    }
    return [...groups.values()];
  },
  count: (query) => decisionsView.groups(query).length,
  node(query) {
    const list = new List({
      label: "Decisions of executors",
      render(group) {
        const [first] = group.decisions;
        return element(
          "div",
          { class: "line" },
          element("span", { class: "index" }, `${group.decisions.length} x`),
          badge(first.runs),
          element("span", { class: "where" }, first.phase),
          element("span", { class: "code" }, first.parent ? "  " : "", first.symbol, first.declined.map(([name, reason]) => element("span", { class: "comment" }, `   not ${name}: ${reason}`))),
        );
      },
      choose: (group) => showDetails(groupDetails(group, goTo)),
    });
    queueMicrotask(() => list.set(decisionsView.groups(query)));
    return [list.node];
  },
};

// ---- stages -------------------------------------------------------------------------------------------------------

const stagesView = {
  name: "Stages",
  shown: () => PROGRAM().data.traces.length > 1,
  chosen: 1,
  changes: true,
  count: (query) => (stagesView.shown() ? stagesView.rows(query).length : 0),
  // The stage before: that of the same phase; of the joint trace the last one before differentiation.
  before(index) {
    const traces = PROGRAM().data.traces;
    const { phase, title } = traces[index];
    if (phase === "joint") return traces.findLast((each, position) => position < index && each.stage === "functional" && each.title !== "Partition") || traces[0];
    return index && traces[index - 1].phase === phase ? traces[index - 1] : traces.find((each) => each.phase === "joint" && title === "Partition") || null;
  },
  rows(query) {
    const index = Math.min(stagesView.chosen, PROGRAM().data.traces.length - 1);
    const before = stagesView.before(index);
    const rows = differences(before ? before.ops : [], PROGRAM().data.traces[index].ops);
    return rows.filter(
      ([left, right]) =>
        (!stagesView.changes || left !== right) &&
        (!query.length || [left, right].some((op) => op !== null && matches(OPS[op].words, query))),
    );
  },
  node(query) {
    const traces = PROGRAM().data.traces;
    const index = Math.min(stagesView.chosen, traces.length - 1);
    const before = stagesView.before(index);
    const steps = traces.map((trace, position) => {
      const other = stagesView.before(position);
      const [all, kept] = [new Set(trace.ops), new Set(other ? other.ops : [])];
      const added = trace.ops.filter((op) => !kept.has(op)).length;
      const removed = other ? other.ops.filter((op) => !all.has(op)).length : 0;
      return button(
        element("span", {}, trace.title, element("small", {}, `${trace.phase}, ${trace.ops.length} ops`), element("small", {}, element("span", { class: "added" }, `+${added}`), " ", element("span", { class: "removed" }, `-${removed}`))),
        () => {
          stagesView.chosen = position;
          refresh();
        },
        { class: "step", "aria-pressed": position === index },
      );
    });
    // The regions that ops of the stage before are in now, by the results of these ops.
    const regions = new Map(traces[index].ops.flatMap((op) => OPS[op].parts.flatMap((part) => OPS[part].outputs.map((name) => [name, OPS[op].symbol]))));
    const absent = (other) => regions.get(OPS[other].outputs[0]) || "";
    const side = (op, other, kind) => element("span", { class: `side ${op === null ? "absent" : op === other ? "" : kind}` }, op !== null ? opText(OPS[op]) : kind === "added" && absent(other) ? `in ${absent(other)}` : "");
    const list = new List({
      label: "Ops before and after the pass",
      render: ([left, right]) => element("div", { class: "pair" }, side(left, right, "removed"), side(right, left, "added")),
      choose: ([left, right]) => showDetails(stageDetails(left, right)),
    });
    const rows = stagesView.rows(query);
    queueMicrotask(() => list.set(rows));
    const box = element("input", { type: "checkbox", onchange: (event) => { stagesView.changes = event.target.checked; refresh(); } });
    box.checked = stagesView.changes;
    const deletions = Object.values(traces[index].deleted).flat().length;
    const silent = rows.length ? "" : stagesView.changes && !query.length ? `No op changed${deletions ? `; ${deletions} values are deleted after their last use` : "; the inputs or the output did"}.` : "";
    return [
      element("div", { class: "steps", role: "group", "aria-label": "Passes" }, steps),
      element("div", { class: "bar" }, element("span", {}, before ? `${before.title} (${before.phase})` : "nothing"), element("span", {}, `${traces[index].title} (${traces[index].phase})`), element("label", {}, box, " changes only"), element("span", { class: "faint" }, silent)),
      list.node,
    ];
  },
};

function stageDetails(left, right) {
  const part = (title, position) => (position === null ? null : section(title, element("pre", { class: "source" }, OPS[position].text.split("  # ").join("\n# "))));
  const op = OPS[right === null ? left : right];
  const line = PROGRAM().lineOf(PROGRAM().data.traces[stagesView.chosen].phase, op.outputs);
  return element(
    "article",
    { class: "details", "aria-label": "Details" },
    element("h2", {}, op.symbol),
    left === right ? part("Unchanged", left) : [part("Before", left), part("After", right)].filter(Boolean),
    section("Where", whereNode(op)),
    line ? section("In the program that runs", valueNode(line.op.outputs.join(", "), line, goTo)) : null,
    section("Why this executor", PROGRAM().decisionsOf(op, "forward").concat(PROGRAM().decisionsOf(op, "backward")).filter((each, index, all) => all.indexOf(each) === index).map(decisionNode)),
  );
}

// ---- regions ------------------------------------------------------------------------------------------------------

const regionsView = {
  name: "Regions",
  chosen: 0,
  shown: () => regionsView.regions([]).length > 0,
  regions: (query) => PROGRAM().lines.filter((line) => line.op.executor && line.op.parts.length && (!query.length || matches(lineWords(line), query))),
  count: (query) => regionsView.regions(query).length,
  node(query) {
    const regions = regionsView.regions(query);
    const index = Math.min(regionsView.chosen, regions.length - 1);
    const list = new List({
      label: "Regions",
      render: (line) => element("div", { class: "line" }, element("span", { class: "index" }, line.index), badge(line.executor), element("span", { class: "where" }, line.phase), element("span", { class: "code" }, `${line.op.symbol}: ${countText(line.op.parts.length, "op")}`, element("span", { class: "comment" }, `  ${line.op.parts.map((part) => OPS[part].symbol.split(".").pop()).join(", ")}`))),
      choose(line, position) {
        regionsView.chosen = position;
        select(line);
        fill(line);
      },
    });
    const code = element("pre", { class: "generated", tabindex: 0, "aria-label": "Generated code" });
    const fill = (line) => code.replaceChildren(!line ? "" : line.op.code >= 0 ? DATA.codes[line.op.code] : `${line.op.parts.map((part) => OPS[part].text).join("\n")}\n\n# ${line.executor} gives no generated code of this region.`);
    queueMicrotask(() => {
      list.set(regions, index);
      fill(regions[index]);
    });
    return [element("div", { class: "half" }, list.node), element("div", { class: "half" }, code)];
  },
};

// ---- memory -------------------------------------------------------------------------------------------------------

const memoryView = {
  name: "Memory",
  shown: () => PROGRAM().lines.length > 0,
  holders: (query) => PROGRAM().data.memory.holders.filter((holder) => matches(holder.name.toLowerCase(), query)),
  count: (query) => (query.length ? memoryView.holders(query).length : 0),
  node(query) {
    const { memory } = PROGRAM().data;
    const program = PROGRAM();
    const find = (phase, index) => program.lines.find((line) => line.phase === phase && line.index === index);
    const at = find(memory.phase, memory.index);
    const rows = memoryView.holders(query).map((holder) => {
      const line = find(holder.phase, holder.index);
      return [bytesText(holder.bytes), `${((100 * holder.bytes) / (memory.peak || 1)).toFixed(1)} %`, valueNode(holder.name, line, goTo), line ? line.op.module : "", line ? line.op.symbol : "input of backward", program.saved.has(holder.name) ? "saved for backward" : ""];
    });
    return [
      element(
        "div",
        { class: "page", tabindex: 0 },
        element("p", {}, `Peak ${bytesText(memory.peak)}${memory.phase ? ` in ${memory.phase}, op ${memory.index} ` : ""}`, at ? valueNode(at.op.outputs.join(", ") || at.op.symbol, at, goTo) : "", `, besides ${bytesText(memory.inputs)} of inputs (parameters, buffers, arguments). An estimate by the lifetimes of values; workspaces of kernels are not in it.`),
        memoryChart(memory, find),
        element("h3", {}, "Alive at the peak"),
        table(["bytes", "share", "value", "module", "computed by", ""], rows.slice(0, 500), [0, 1]),
        rows.length > 500 ? element("p", { class: "faint" }, `and ${rows.length - 500} smaller ones`) : null,
      ),
    ];
  },
};

function memoryChart(memory, find) {
  const points = Object.entries(memory.bytes).flatMap(([phase, values]) => values.map((bytes, index) => ({ phase, index, bytes })));
  const [width, height] = [1000, 220];
  const chart = drawing("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", preserveAspectRatio: "none", role: "img", "aria-label": "Bytes alive at each op" });
  const x = (index) => (index * width) / Math.max(points.length, 1);
  const y = (bytes) => height - (bytes / (memory.peak || 1)) * (height - 10);
  let start = 0;
  for (const [phase, values] of Object.entries(memory.bytes)) {
    let path = `M ${x(start)} ${height}`;
    values.forEach((bytes, index) => {
      path += ` L ${x(start + index)} ${y(bytes)} L ${x(start + index + 1)} ${y(bytes)}`;
    });
    chart.append(drawing("path", { d: `${path} L ${x(start + values.length)} ${height} Z`, class: `area ${phase}` }));
    start += values.length;
  }
  const mark = drawing("line", { x1: -1, x2: -1, y1: 0, y2: height, class: "cursor" });
  chart.append(mark);
  const label = element("div", { class: "faint chart-label" }, "Move over the chart; a click shows the op.");
  const point = (event) => {
    const box = chart.getBoundingClientRect();
    return Math.max(0, Math.min(points.length - 1, Math.floor(((event.clientX - box.left) / box.width) * points.length)));
  };
  chart.addEventListener("mousemove", (event) => {
    const index = point(event);
    const line = find(points[index].phase, points[index].index);
    mark.setAttribute("x1", x(index + 0.5));
    mark.setAttribute("x2", x(index + 0.5));
    label.textContent = `${points[index].phase} op ${points[index].index}: ${bytesText(points[index].bytes)}   ${line.op.module}   ${line.op.text.split("  # ")[0].slice(0, 120)}`;
  });
  chart.addEventListener("click", (event) => {
    const { phase, index } = points[point(event)];
    select(find(phase, index));
  });
  return element("div", {}, chart, element("div", { class: "legend" }, Object.keys(memory.bytes).map((phase) => element("span", { class: `key ${phase}` }, `${phase}: ${countText(memory.bytes[phase].length, "op")}`))), label);
}

// ---- what forward saves -------------------------------------------------------------------------------------------

const savedView = {
  name: "Saved",
  shown: () => PROGRAM().saved.size > 0,
  values: (query) => [...PROGRAM().saved.values()].filter((value) => matches(value.name.toLowerCase(), query)).sort((a, b) => b.bytes - a.bytes),
  count: (query) => savedView.values(query).length,
  node(query) {
    const program = PROGRAM();
    const values = savedView.values(query);
    const rows = values.slice(0, 1000).map((value) => {
      const producer = program.producers.get(`forward ${value.name}`);
      const users = program.users.get(`backward ${value.name}`) || [];
      return [
        bytesText(value.bytes),
        element("code", {}, value.name),
        value.input ? element("span", { class: "faint" }, "input, saved as it is") : valueNode(producer ? producer.op.symbol : "forward", producer, goTo),
        producer ? producer.op.module : "",
        element("div", {}, users.slice(0, 6).map((user) => [valueNode(user.op.outputs[0] || user.op.symbol, user, goTo), " "]), users.length > 6 ? `and ${users.length - 6} more` : ""),
      ];
    });
    return [
      element(
        "div",
        { class: "page", tabindex: 0 },
        element("pre", { class: "source" }, program.data.training.join("\n")),
        table(["bytes", "value", "computed in forward by", "module", "read in backward by"], rows, [0]),
        values.length > rows.length ? element("p", { class: "faint" }, `and ${values.length - rows.length} smaller ones`) : null,
      ),
    ];
  },
};

// ---- guards, compilations, times, collectives, report ---------------------------------------------------------------

const guardsView = {
  name: "Guards",
  shown: () => true,
  guards: (query) => PROGRAM().data.guards.filter((guard) => matches(guard.toLowerCase(), query)),
  count: (query) => guardsView.guards(query).length,
  node(query) {
    const list = new List({
      label: "Guards",
      render: (guard) => element("div", { class: "line" }, element("span", { class: "code" }, guard)),
      choose: (guard) => showDetails(element("article", { class: "details" }, element("h2", {}, "Guard"), element("pre", { class: "source" }, guard), element("p", { class: "faint" }, "The program is valid for calls for which all guards hold. If one fails, another program runs, or one is compiled."))),
    });
    queueMicrotask(() => list.set(guardsView.guards(query)));
    const code = element("pre", { class: "generated", tabindex: 0, "aria-label": "The prologue, which checks the guards" }, PROGRAM().data.prologue);
    return [element("div", { class: "half" }, list.node), element("div", { class: "half" }, code)];
  },
};

const compilationsView = {
  name: "Compilations",
  shown: () => true,
  programs: (query) => PROGRAMS.filter((program) => matches(program.data.head.join("\n").toLowerCase(), query)),
  count: (query) => compilationsView.programs(query).length,
  node(query) {
    const rows = compilationsView.programs(query).map((program) => {
      const number = PROGRAMS.indexOf(program);
      return [button(`program ${number}`, () => chooseProgram(number), { class: "value", "aria-pressed": program === PROGRAM() }), secondsText(program.data.seconds), program.data.reason + (program.data.cached ? "" : " (not cached)"), countText(program.lines.length, "op"), element("div", {}, program.data.head.slice(1).map((text) => element("div", { class: "faint" }, text)))];
    });
    const stages = PROGRAM().data.stages;
    const longest = Math.max(...stages.map(([, seconds]) => seconds), 1e-9);
    const steps = stages.map(([name, seconds, ops]) => [name, secondsText(seconds), meter(seconds / longest), ops === null ? "" : countText(ops, "op")]);
    return [
      element(
        "div",
        { class: "page", tabindex: 0 },
        element("p", {}, `${countText(DATA.calls[0], "call")} ran a program from the cache, ${countText(DATA.calls[1], "call")} compiled one.`),
        table(["program", "time", "compiled because", "ops", "valid for"], rows, [1]),
        DATA.fallbacks.length ? [element("h3", {}, "Run by eager PyTorch"), table(["times", "reason"], DATA.fallbacks.map(([reason, count]) => [count, reason]), [0])] : null,
        element("h3", {}, `Time of the compilation of program ${PROGRAMS.indexOf(PROGRAM())}`),
        table(["stage", "time", "", "ops after it"], steps, [1, 3]),
      ),
    ];
  },
};

function meter(share) {
  const bar = element("div", { class: "meter" });
  const inside = element("div", {});
  inside.style.width = `${Math.max(0.3, 100 * share)}%`;
  bar.append(inside);
  return bar;
}

const timeView = {
  name: "Time",
  shown: () => true,
  records: (query) => PROGRAM().data.measured.filter((row) => matches(row.join("\n").toLowerCase(), query)),
  count: (query) => timeView.records(query).length,
  node(query) {
    const all = PROGRAM().data.measured;
    const total = all.reduce((sum, row) => sum + row[6], 0) || 1;
    const rows = timeView.records(query).slice(0, 1000);
    const cells = rows.map(([phase, operation, executor, place, clock, calls, seconds]) => {
      const line = PROGRAM().lines.find((each) => each.phase === phase && each.op.described === place && each.executor === executor);
      return [secondsText(seconds), `${((100 * seconds) / total).toFixed(1)} %`, meter(seconds / all[0][6]), secondsText(seconds / calls), calls, phase, badge(executor), line ? button(operation, () => goTo(line), { class: "value" }) : operation, element("span", { class: "path" }, shortPath(place))];
    });
    const hint = all.length ? `Measured by ${all[0][4]}: ${secondsText(total)} in all, in the calls so far.` : "Nothing is measured. Compile with the transform line_timing of thunder-plugin-debug, and call the program: thunder.jit(model, transforms=[\"line_timing\"]), or thunder explain ... --transforms line_timing.";
    return [element("div", { class: "page", tabindex: 0 }, element("p", {}, hint), all.length ? table(["total", "share", "", "per call", "calls", "program", "executor", "operation", "line"], cells, [0, 1, 3, 4]) : null)];
  },
};

const collectivesView = {
  name: "Collectives",
  shown: () => PROGRAM().data.collectives.length > 0,
  rows: (query) => PROGRAM().data.collectives.filter((row) => matches(JSON.stringify(row).toLowerCase(), query)),
  count: (query) => collectivesView.rows(query).length,
  node(query) {
    const sent = PROGRAM().data.collectives.reduce((sum, row) => sum + row.bytes, 0);
    const most = Math.max(...PROGRAM().data.collectives.map((row) => row.bytes), 1);
    const rows = collectivesView.rows(query).map((row, index) => [index, row.phase, row.kind, `${row.group} of ${countText(row.ranks, "rank")}`, row.tensors, bytesText(row.bytes), meter(row.bytes / most), row.lines === null ? "not waited for" : `${countText(row.lines, "op")}${row.flops ? `, ${amountText(row.flops)} FLOP` : ""}`, element("span", { class: "path" }, shortPath(row.location || ""))]);
    return [element("div", { class: "page", tabindex: 0 }, element("p", {}, `${countText(PROGRAM().data.collectives.length, "collective")} in order; each rank sends ${bytesText(sent)}.`), table(["", "program", "operator", "group", "tensors", "sends", "", "work before the wait", "line"], rows, [0, 4, 5]))];
  },
};

const reportView = {
  name: "Report",
  shown: () => true,
  count: () => 0,
  node() {
    const options = DATA.options.map(([name, value, changed]) => [element("code", {}, name), changed ? "changed" : "", element("code", { class: "path" }, value)]);
    const notes = [...DATA.notes, ...PROGRAM().data.notes];
    return [
      element(
        "div",
        { class: "page", tabindex: 0 },
        element("pre", { class: "source" }, DATA.summary.join("\n")),
        notes.length ? [element("h3", {}, "Notes"), element("ul", {}, notes.map((note) => element("li", {}, note)))] : null,
        element("h3", {}, "Options"),
        table(["option", "", "value"], options),
        element("p", { class: "faint" }, DATA.versions),
      ),
    ];
  },
};

const VIEWS = [programView, decisionsView, stagesView, regionsView, memoryView, savedView, timeView, collectivesView, guardsView, compilationsView, reportView];
