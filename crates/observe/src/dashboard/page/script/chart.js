// ---- Charts. Rows are { at: seconds since the epoch, … }; a series is { key, label, tone }.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 200,
  LEFT = 52,
  RIGHT = 6,
  TOP = 8,
  BOTTOM = 20;

function svg(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** A round number that is not less than `peak`. */
function roofOf(peak) {
  const step = 10 ** Math.floor(Math.log10(Math.max(1, peak)));
  return Math.ceil(Math.max(1, peak) / step) * step;
}

class Chart {
  /** `stacked` draws areas on top of each other, else each series is a line. `format` writes a value as text. A row for
   *  which `isKnown` is false has no values: a line has a gap there. */
  constructor({ label, series, stacked = true, format = whole, isKnown = () => true }) {
    Object.assign(this, { series, stacked, format, isKnown, rows: [], cursorAt: null });
    this.svg = svg("svg", { role: "img", tabindex: 0, "aria-label": label, preserveAspectRatio: "none" });
    this.tip = el("div", { class: "tip", role: "status", hidden: true });
    this.summary = el("p", { class: "sr" });
    const legend = series.map(({ label, tone }) => el("span", {}, el("b", { class: tone }), label));
    this.element = el(
      "figure",
      { class: "chart" },
      this.svg,
      this.tip,
      el("div", { class: "legend" }, legend),
      this.summary,
    );
    this.svg.addEventListener("pointermove", event => this.point(event.offsetX));
    this.svg.addEventListener("pointerleave", () => this.pointAt(null));
    this.svg.addEventListener("blur", () => this.pointAt(null));
    this.svg.addEventListener("keydown", event => this.move(event));
    new ResizeObserver(() => this.steps && this.draw(this.rows, this)).observe(this.svg);
  }

  /** Shows these rows in a window of so many steps of so many seconds, up to `end`. */
  draw(rows, { end, steps, stepSeconds }) {
    Object.assign(this, { rows, end, steps, stepSeconds });
    this.width = this.svg.clientWidth || 600;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    const total = row => this.series.reduce((sum, { key }) => sum + row[key], 0);
    const highest = row => Math.max(...this.series.map(({ key }) => row[key]));
    this.peak = Math.max(0, ...rows.map(this.stacked ? total : highest));
    this.roof = roofOf(this.peak);
    this.svg.replaceChildren(...this.scale(), ...(this.stacked ? this.areas() : this.lines()));
    setText(
      this.summary,
      `The highest value is ${this.format(this.peak)}. The left and right arrow keys read out single values.`,
    );
    this.drawCursor();
  }

  x(at) {
    return this.width - RIGHT - (((this.end - at) / this.stepSeconds) * (this.width - LEFT - RIGHT)) / (this.steps - 1);
  }

  y(value) {
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / this.roof);
  }

  /** The lines and texts behind the figures. */
  scale() {
    const values = [0, 0.5, 1]
      .map(share => this.roof * share)
      .flatMap(value => [
        svg("line", { class: "rule", x1: LEFT, x2: this.width - RIGHT, y1: this.y(value), y2: this.y(value) }),
        svg(
          "text",
          { class: "axis", x: LEFT - 6, y: this.y(value) + 4, "text-anchor": "end" },
          this.format === whole ? compact(value) : this.format(value),
        ),
      ]);
    const first = this.end - (this.steps - 1) * this.stepSeconds;
    const times = [
      [first, "start"],
      [(first + this.end) / 2, "middle"],
      [this.end, "end"],
    ].map(([at, anchor]) =>
      svg("text", { class: "axis", x: this.x(at), y: HEIGHT - 4, "text-anchor": anchor }, this.timeOf(at)),
    );
    return [...values, ...times];
  }

  timeOf(at) {
    return this.stepSeconds < 60 ? clock(at * 1000) : hourAndMinute(at * 1000);
  }

  areas() {
    let base = this.rows.map(() => 0);
    const place = (row, value) => `${this.x(row.at).toFixed(1)},${this.y(value).toFixed(1)}`;
    return this.series.flatMap(({ key, tone }) => {
      const tops = this.rows.map((row, i) => base[i] + row[key]),
        below = base;
      base = tops;
      if (!this.rows.some(row => row[key])) return [];
      const outline = [
        ...this.rows.map((row, i) => place(row, tops[i])),
        ...this.rows.map((row, i) => place(row, below[i])).reverse(),
      ];
      return [svg("polygon", { class: tone, points: outline.join(" ") })];
    });
  }

  lines() {
    const step = key => (row, i) => {
      if (!this.isKnown(row)) return "";
      const place = `${this.x(row.at).toFixed(1)} ${this.y(row[key]).toFixed(1)}`;
      // A line without length is drawn as a dot, so that a single row can be seen.
      return i && this.isKnown(this.rows[i - 1]) ? "L" + place : `M${place}h0`;
    };
    return this.series.map(({ key, tone }) => svg("path", { class: tone, d: this.rows.map(step(key)).join("") }));
  }

  /** Shows the values of the row that is nearest to this place. */
  point(x) {
    const distance = row => Math.abs(this.x(row.at) - x);
    const nearest = this.rows.reduce((best, row) => (!best || distance(row) < distance(best) ? row : best), null);
    this.pointAt(nearest && nearest.at);
  }

  pointAt(at) {
    this.cursorAt = at;
    this.drawCursor();
  }

  move(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (!steps || !this.rows.length) return;
    event.preventDefault();
    const shown = this.rows.findIndex(row => row.at === this.cursorAt),
      from = shown < 0 ? this.rows.length : shown;
    this.pointAt(this.rows[Math.min(this.rows.length - 1, Math.max(0, from + steps))].at);
  }

  drawCursor() {
    this.svg.querySelector(".cursor")?.remove();
    const row = this.rows.find(row => row.at === this.cursorAt);
    this.tip.hidden = !row;
    if (!row) return;
    const x = this.x(row.at);
    this.svg.append(svg("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
    const values = this.series.map(({ key, label, tone }) =>
      el(
        "div",
        {},
        el("span", {}, el("b", { class: tone }), label + " "),
        el("span", {}, this.isKnown(row) ? this.format(row[key]) : "–"),
      ),
    );
    this.tip.replaceChildren(el("div", {}, this.timeOf(row.at)), ...values);
    const right = x > this.width / 2;
    this.tip.style.left = right ? "" : `${x + 8}px`;
    this.tip.style.right = right ? `${this.width - x + 8}px` : "";
  }
}
