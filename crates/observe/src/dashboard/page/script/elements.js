// ---- Elements. Names of tenants, rules and keys come from callers: they are always set as text, never as HTML.

const byId = id => document.getElementById(id);

/** el("a", { href: "#/" }, "text", child): false or undefined attributes are left out, `on…` are listeners. */
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter(child => child !== undefined && child !== false));
  return element;
}

/** A link to a page of the dashboard: link(["tenants", id]). */
function link(path, text = path.at(-1)) {
  return el("a", { href: hashOf(path) }, text);
}

function hashOf(path, query = {}) {
  const search = new URLSearchParams(query).toString();
  return "#/" + path.map(encodeURIComponent).join("/") + (search && "?" + search);
}

/** Changes the text only if it is another one, so that a screen reader does not repeat it. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function empty(text) {
  return el("p", { class: "empty" }, text);
}

/** A part of a page, with its heading. */
function panel(title, size, ...children) {
  const id = "h-" + title.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  return el("section", { class: size, "aria-labelledby": id }, el("h3", { id }, title), ...children);
}

/** The heading of a page, with what can be done there. */
function headline(title, ...actions) {
  return el(
    "div",
    { class: "headline" },
    el("h2", { tabindex: "-1" }, title),
    el("div", { class: "actions" }, actions),
  );
}

/** Names and values. */
function facts(pairs) {
  return el(
    "dl",
    { class: "facts" },
    pairs.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
  );
}

/** A table whose first column names the row. A heading that starts with `#` is of numbers. */
function table(caption, heads, rows, none) {
  if (!rows.length) return empty(none);
  const kind = i => (heads[i][0] === "#" ? "num" : undefined);
  const head = heads.map((text, i) => el("th", { scope: "col", class: kind(i) }, text.replace("#", "")));
  const cell = (content, i) => el(i ? "td" : "th", { class: kind(i), scope: i ? undefined : "row" }, content);
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el(
      "table",
      {},
      el("caption", { class: "sr" }, caption),
      el("thead", {}, el("tr", {}, head)),
      el(
        "tbody",
        {},
        rows.map(row => el("tr", {}, row.map(cell))),
      ),
    ),
  );
}

/** How full something is, from 0 to 1. */
function meter(level, label) {
  const bar = el(
    "div",
    { class: "bar", role: "meter", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100 },
    el("i"),
  );
  fill(bar, level);
  return bar;
}

function fill(bar, level) {
  bar.firstChild.style.width = (level * 100).toFixed(1) + "%";
  bar.firstChild.className = level < 0.2 ? "low" : level < 0.5 ? "mid" : "";
  bar.setAttribute("aria-valuenow", Math.round(level * 100));
}

// ---- Numbers and times as text.

const whole = count => Math.round(count).toLocaleString("en");
const tenths = count => count.toLocaleString("en", { maximumFractionDigits: 1 });
const compact = count => Intl.NumberFormat("en", { notation: "compact" }).format(count);
const percent = share => (share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0) + " %";
const clock = ms => new Date(ms).toLocaleTimeString("en-GB");
const hourAndMinute = ms => clock(ms).slice(0, 5);

/** A latency. */
function micros(us) {
  if (us >= 1e6) return (us / 1e6).toFixed(1) + " s";
  if (us >= 1e3) return (us / 1e3).toFixed(us < 1e4 ? 1 : 0) + " ms";
  return Math.round(us) + " µs";
}

/** How long a caller has to wait: rounded up, and never nothing. */
const waiting = ms => (ms < 60_000 ? micros(Math.max(1, ms) * 1000) : span(Math.ceil(ms / 60_000) * 60_000));

/** A time of seconds to days. */
function span(ms) {
  const s = Math.floor(ms / 1000),
    min = Math.floor(s / 60),
    h = Math.floor(min / 60),
    d = Math.floor(h / 24);
  if (d) return `${d} d ${h % 24} h`;
  if (h) return `${h} h ${min % 60} min`;
  return min ? `${min} min` : `${s} s`;
}
