// ---- Charts over time, with a choice of the range.

const RANGES = {
  "2min": { text: "2 min", steps: 119, stepSeconds: 1, unit: "second" },
  "1h": { text: "1 h", steps: 60, stepSeconds: 60, unit: "minute" },
  "24h": { text: "24 h", steps: 1440, stepSeconds: 60, unit: "minute" },
};

const OUTCOMES = [
  { key: "allowed", label: "allowed", tone: "ok" },
  { key: "denied", label: "denied", tone: "no" },
  { key: "shadow", label: "shadow", tone: "shadow" },
];
const LATENCIES = [
  { key: "p50Us", label: "half of the calls (p50)", tone: "ok" },
  { key: "p90Us", label: "nine of ten (p90)", tone: "warn" },
  { key: "p99Us", label: "99 of 100 (p99)", tone: "no" },
];
const STORELESS = [
  { key: "passed", label: "passed, without a limit", tone: "no" },
  { key: "refused", label: "refused", tone: "shadow" },
  { key: "local", label: "decided by this instance alone", tone: "warn" },
];

/** A row for every step of the range: those that are missing have zeros. */
function everyStep(rows, series, { end, steps, stepSeconds }) {
  const byTime = new Map(rows.map(row => [row.at, row]));
  const zeros = Object.fromEntries(series.map(({ key }) => [key, 0]));
  return Array.from({ length: steps }, (_, i) => {
    const at = end - (steps - 1 - i) * stepSeconds;
    return { ...zeros, ...byTime.get(at), at };
  });
}

/** Buttons for the ranges. The choice is part of the address, so that a link shows the same. */
function rangeButtons(ranges, chosen, choose) {
  const button = range =>
    el(
      "button",
      {
        type: "button",
        "data-range": range,
        "aria-pressed": String(range === chosen),
        onclick: event => {
          for (const other of event.target.parentNode.children)
            other.setAttribute("aria-pressed", String(other === event.target));
          choose(range);
        },
      },
      RANGES[range].text,
    );
  return el("div", { class: "actions", role: "group", "aria-label": "Range" }, ranges.map(button));
}

/** The decisions of the server, or of one rule or tenant, and how the store did. */
class HistoryPanel {
  /** `selected` is `{ by, name }` for one rule or tenant, and `null` for everything. Only then there are seconds. */
  constructor(selected, chosen) {
    this.selected = selected;
    const ranges = selected ? ["1h", "24h"] : Object.keys(RANGES);
    this.range = ranges.includes(chosen) ? chosen : ranges[0];
    this.snapshot = null;
    this.decisions = new Chart({ label: "Decisions", series: OUTCOMES });
    this.latency = new Chart({
      label: "Latency of the store",
      series: LATENCIES,
      stacked: false,
      format: micros,
      isKnown: row => row.calls > 0,
    });
    this.storeless = new Chart({ label: "Decided without the store", series: STORELESS });
    this.heading = el("h3", { id: "h-decisions" });
    const buttons = rangeButtons(ranges, this.range, range => this.choose(range));
    const top = el("div", { class: "headline" }, this.heading, buttons);
    this.elements = [el("section", { "aria-labelledby": "h-decisions", id: "decisions" }, top, this.decisions.element)];
    if (!selected)
      this.elements.push(
        panel("Latency of the store", "half", this.latency.element),
        panel("Decided without the store", "half", this.storeless.element),
      );
  }

  choose(range) {
    this.range = range;
    rememberQuery({ range });
    this.refresh().catch(showProblem);
  }

  /** The window of the range that ends now, or with the last whole second. */
  window() {
    const range = RANGES[this.range],
      now = this.snapshot ? this.snapshot.atMs / 1000 : Date.now() / 1000;
    const end = Math.floor(now / range.stepSeconds) * range.stepSeconds - (range.stepSeconds === 1 ? 1 : 0);
    return { ...range, end };
  }

  show(snapshot) {
    this.snapshot = snapshot;
    if (this.range !== "2min" || this.reading) return;
    this.reading = true;
    this.refresh()
      .catch(showProblem)
      .finally(() => {
        this.reading = false;
      });
  }

  async refresh() {
    const range = this.range,
      seconds = range === "2min";
    const query = new URLSearchParams({ minutes: RANGES[range].steps, ...this.selected });
    const [history, store] = await Promise.all([
      seconds ? { rows: this.snapshot?.seconds || [], scope: "instance" } : askJson("/dashboard/history?" + query),
      this.selected ? [] : askJson("/dashboard/store?by=" + RANGES[range].unit),
    ]);
    if (range !== this.range) return;
    const window = this.window(),
      whose = history.scope === "all" ? "all instances" : "this instance";
    setText(this.heading, `Decisions per ${window.unit}, ${whose}`);
    for (const [chart, rows] of [
      [this.decisions, history.rows],
      [this.latency, store],
      [this.storeless, store],
    ])
      chart.draw(everyStep(rows, chart.series, window), window);
  }
}
