// Elements and numbers. Texts are text nodes alone, so that no text of a program can become markup.

function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

function drawing(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, String(value));
  return node;
}

function button(text, action, attributes) {
  return element("button", { type: "button", onclick: action, ...attributes }, text);
}

// Rows of nodes or texts under a head; the columns named in `numeric` are aligned to the right.
function table(head, rows, numeric = []) {
  const side = (column) => (numeric.includes(column) ? "number" : null);
  return element(
    "table",
    {},
    element("thead", {}, element("tr", {}, head.map((text, column) => element("th", { class: side(column) }, text)))),
    element(
      "tbody",
      {},
      rows.map((row) => element("tr", {}, row.map((cell, column) => element("td", { class: side(column) }, cell)))),
    ),
  );
}

function bytesText(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${unit && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${units[unit]}`;
}

function secondsText(seconds) {
  if (seconds < 1e-3) return `${(seconds * 1e6).toFixed(1)} us`;
  return seconds < 1 ? `${(seconds * 1e3).toFixed(1)} ms` : `${seconds.toFixed(2)} s`;
}

// A path without the folder that packages are installed in, and the end of a long name.
function shortPath(path) {
  return path.replace(/^.*\/(site|dist)-packages\//, "");
}

function endOf(text, length) {
  return text.length > length ? `\u2026${text.slice(text.length - length + 1)}` : text;
}

function countText(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

function amountText(number) {
  const units = ["", " thousand", " million", " billion", " trillion"];
  const unit = Math.min(Math.floor(Math.log10(Math.max(number, 1)) / 3), units.length - 1);
  return `${(number / 1000 ** unit).toPrecision(3)}${units[unit]}`;
}
