// The data of the page, and what follows from it: the ops of each program, their decisions, producers and users.

const DATA = JSON.parse(document.getElementById("data").textContent);

// An op of the table of all ops.
class Op {
  constructor(row) {
    [this.text, this.symbol, this.executor, this.place, this.outputs, this.inputs, this.parts, this.code] = row;
    const location = this.place < 0 ? null : DATA.locations[this.place];
    [this.file, this.line, this.function, this.module, this.source] = location || ["", 0, "", "", ""];
    this.words = [this.text, this.symbol, this.module, location ? `${this.file}:${this.line}` : "", this.source]
      .join("\n")
      .toLowerCase();
  }

  // `file:line in function (module)`, as the report has it.
  get described() {
    if (this.place < 0) return "";
    return `${this.file}:${this.line} in ${this.function}${this.module ? ` (${this.module})` : ""}`;
  }
}

const OPS = DATA.ops.map((row) => new Op(row));

class Decision {
  constructor(row, parent = null) {
    let parts;
    [this.phase, this.symbol, this.outputs, this.location, this.executor, this.variant, this.declined, parts, this.bytes, this.flops] = row;
    this.parent = parent;
    this.parts = parts.map((part) => new Decision(part, this));
  }

  get runs() {
    if (this.parts.length) return "its parts";
    return this.variant ? `${this.executor}.${this.variant}` : this.executor;
  }

  get words() {
    return [this.symbol, this.runs, this.location || "", ...this.declined.flat()].join("\n").toLowerCase();
  }

  *all() {
    yield this;
    for (const part of this.parts) yield* part.all();
  }
}

// One op at its position in an executed program.
class Line {
  constructor(program, phase, index, op) {
    Object.assign(this, { program, phase, index, op });
  }

  // The executor: that of the op, or the one that the decision names.
  get executor() {
    return this.op.executor || "reference";
  }

  decisions() {
    return this.program.decisionsOf(this.op, this.phase);
  }

  // Decisions of the op, and of the ops inside of a region.
  allDecisions() {
    const own = this.decisions();
    const inner = this.op.parts.flatMap((part) => this.program.decisionsOf(OPS[part], this.phase));
    return [...new Set([...own, ...inner])];
  }
}

class Program {
  constructor(data) {
    this.data = data;
    this.decisions = data.decisions.map((row) => new Decision(row));
    this.byName = new Map();
    for (const top of this.decisions) {
      for (const decision of top.all()) {
        for (const name of decision.outputs) {
          const key = `${decision.phase} ${name}`;
          if (!this.byName.has(key)) this.byName.set(key, []);
          this.byName.get(key).push(decision);
        }
      }
    }
    this.lines = [];
    this.producers = new Map();
    this.users = new Map();
    for (const [phase, trace] of Object.entries(data.final)) {
      trace.ops.forEach((position, index) => {
        const line = new Line(this, phase, index, OPS[position]);
        this.lines.push(line);
        for (const name of line.op.outputs) this.producers.set(`${phase} ${name}`, line);
        for (const name of line.op.inputs) {
          const key = `${phase} ${name}`;
          if (!this.users.has(key)) this.users.set(key, []);
          this.users.get(key).push(line);
        }
      });
    }
    this.saved = new Map(data.saved.map(([name, bytes, input]) => [name, { name, bytes, input }]));
    this.executors = [...new Set(this.lines.map((line) => line.executor))].sort();
    this.decliners = [...new Set([...this.every()].flatMap((each) => each.declined.map(([name]) => name)))].sort();
  }

  *every() {
    for (const top of this.decisions) yield* top.all();
  }

  // The decisions on an op, on what it is part of, and on composites with one of its results.
  decisionsOf(op, phase) {
    const found = [];
    for (const name of op.outputs) {
      for (const kind of [phase, "pattern", "joint"]) found.push(...(this.byName.get(`${kind} ${name}`) || []));
    }
    return [...new Set(found)].sort((a, b) => (a.symbol === op.symbol ? 0 : 1) - (b.symbol === op.symbol ? 0 : 1));
  }

  producer(phase, name) {
    return this.producers.get(`${phase} ${name}`) || (phase === "backward" ? this.producers.get(`forward ${name}`) : null);
  }

  usersOf(phase, name) {
    const own = this.users.get(`${phase} ${name}`) || [];
    return phase === "forward" && this.saved.has(name) ? [...own, ...(this.users.get(`backward ${name}`) || [])] : own;
  }

  // The line that computes one of these values.
  lineOf(phase, names) {
    for (const name of names) {
      const line = this.producers.get(`${phase} ${name}`) || (phase !== "backward" && this.producers.get(`forward ${name}`)) || this.producers.get(`inference ${name}`);
      if (line) return line;
      const region = this.lines.find((each) => each.op.parts.some((part) => OPS[part].outputs.includes(name)));
      if (region) return region;
    }
    return null;
  }
}

const PROGRAMS = DATA.programs.map((program) => new Program(program));

// Whether a text has all words of a query.
function matches(words, query) {
  return query.every((word) => words.includes(word));
}

// Lines as rows in which consecutive layers with equal ops are one row. `open` has the keys of unfolded rows.
function foldLayers(lines, open) {
  const segments = [];
  for (const line of lines) {
    const found = /^(.*?\b)(\d+)(?=\.|$)/.exec(line.op.module);
    const last = segments[segments.length - 1];
    const layer = found ? `${found[1]}${found[2]}` : null;
    if (last && last.phase === line.phase && (last.layer === layer || !line.op.module)) last.lines.push(line);
    else segments.push({ phase: line.phase, layer, prefix: found && found[1], lines: [line] });
  }
  for (const segment of segments) {
    segment.shape = segment.layer && segment.lines.map((line) => `${line.op.symbol.replace(/_\d+$/, "")} ${line.executor}`).join("\n");
  }
  const rows = [];
  let phase = null;
  for (let start = 0; start < segments.length; ) {
    const segment = segments[start];
    if (segment.phase !== phase) {
      phase = segment.phase;
      rows.push({ kind: "phase", phase, count: lines.filter((line) => line.phase === phase).length });
    }
    let end = start + 1;
    const same = (other) => segment.layer && other.prefix === segment.prefix && other.shape === segment.shape;
    while (end < segments.length && segments[end].phase === phase && same(segments[end])) end += 1;
    rows.push(...segment.lines.map((line) => ({ kind: "line", line })));
    if (end - start > 1) {
      const hidden = segments.slice(start + 1, end);
      const key = `${phase} ${hidden[0].layer} ${hidden[hidden.length - 1].layer} ${hidden[0].lines[0].index}`;
      rows.push({ kind: "layers", key, first: segment, hidden, open: open.has(key) });
      if (open.has(key)) rows.push(...hidden.flatMap((each) => each.lines.map((line) => ({ kind: "line", line }))));
    }
    start = end;
  }
  return rows;
}
