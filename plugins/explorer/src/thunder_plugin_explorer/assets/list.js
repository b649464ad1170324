// A list of which only the visible rows are in the document, so that one of 10,000 rows opens at once.

class List {
  constructor({ label, render, choose, height = 24 }) {
    Object.assign(this, { render, choose, height, rows: [], chosen: -1 });
    this.content = element("div", { class: "rows" });
    this.node = element(
      "div",
      { class: "list", tabindex: 0, role: "listbox", "aria-label": label, onkeydown: (event) => this.key(event) },
      this.content,
    );
    this.content.addEventListener("click", (event) => {
      this.pick(Math.floor((event.clientY - this.content.getBoundingClientRect().top) / this.height));
    });
    this.node.addEventListener("scroll", () => this.drawIfMoved(), { passive: true });
    new ResizeObserver(() => this.drawIfMoved()).observe(this.node);
  }

  set(rows, chosen = -1) {
    this.rows = rows;
    this.chosen = chosen;
    this.content.style.height = `${rows.length * this.height}px`;
    if (chosen >= 0) this.show(chosen);
    else this.node.scrollTop = 0;
    this.draw();
  }

  // The first row to draw, and the one after the last: those that are visible, and ten more at each side.
  visible() {
    const { scrollTop, clientHeight } = this.node;
    const first = Math.max(0, Math.floor(scrollTop / this.height) - 10);
    return [first, Math.min(this.rows.length, Math.ceil((scrollTop + clientHeight) / this.height) + 10)];
  }

  // Equal rows stay: a browser drops a click whose element is replaced between press and release.
  drawIfMoved() {
    if (String(this.visible()) !== this.drawn) this.draw();
  }

  draw() {
    const [first, last] = this.visible();
    this.drawn = String([first, last]);
    const nodes = [];
    for (let index = first; index < last; index += 1) {
      const node = this.render(this.rows[index], index);
      node.classList.add("row");
      node.setAttribute("role", "option");
      node.setAttribute("aria-selected", index === this.chosen);
      node.style.top = `${index * this.height}px`;
      nodes.push(node);
    }
    if (!this.rows.length) nodes.push(element("div", { class: "nothing faint" }, "No row matches the search and the filters."));
    this.content.replaceChildren(...nodes);
  }

  pick(index) {
    if (index < 0 || index >= this.rows.length) return;
    this.chosen = index;
    this.choose(this.rows[index], index);
    this.draw();
  }

  show(index) {
    const top = index * this.height;
    const height = this.node.clientHeight || 400;
    if (top < this.node.scrollTop || top + this.height > this.node.scrollTop + height) {
      this.node.scrollTop = Math.max(0, top - height / 3);
    }
  }

  move(index) {
    const next = Math.max(0, Math.min(this.rows.length - 1, index));
    this.show(next);
    this.pick(next);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.node.clientHeight / this.height) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: page, PageUp: -page };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in steps) this.move(this.chosen + steps[event.key]);
    else if (event.key === "Home") this.move(0);
    else if (event.key === "End") this.move(this.rows.length - 1);
    else return;
    event.preventDefault();
  }
}
