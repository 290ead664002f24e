// ---- Pages by address, the stream of figures, and the theme.

/** Makes a page from `{ name, query }`: `{ title, elements, show(snapshot), refresh(), refreshSeconds }`. */
const PAGES = {
  "": { list: overview },
  tenants: { list: tenantList, one: tenantPage },
  rules: { list: ruleList, one: rulePage },
  plans: { list: planList, one: planPage },
  keys: { list: keyList, one: keyPage },
  hashes: { list: keyList, one: hashPage },
  routes: { list: routeList },
};

const REFRESH_SECONDS = 10;
let view = null,
  lastSnapshot = null,
  refreshing = 0;

/** The address behind the `#`: `#/tenants/acme?range=24h`. */
function address() {
  const [path, search] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  try {
    const [kind, name] = path.split("/").map(decodeURIComponent);
    return { kind, name: name || undefined, query: new URLSearchParams(search) };
  } catch {
    return { kind: "", query: new URLSearchParams() };
  }
}

function noSuchPage() {
  return {
    title: "No such page",
    elements: [headline("There is no such page"), el("section", {}, link([], "Overview"))],
  };
}

function openPage(event) {
  const { kind, name, query } = address(),
    page = PAGES[kind];
  const make = (page && (name === undefined ? page.list : page.one)) || noSuchPage;
  view = make({ name, query });
  byId("view").replaceChildren(...view.elements);
  byId("problem").hidden = true;
  status.setTitle(view.title);
  for (const entry of byId("pages").children) {
    const current = entry.getAttribute("href") === hashOf(kind ? [kind === "hashes" ? "keys" : kind] : []);
    if (current) entry.setAttribute("aria-current", "page");
    else entry.removeAttribute("aria-current");
  }
  // A screen reader goes on with the new page.
  if (event) byId("view").querySelector("h2")?.focus();
  if (lastSnapshot) view.show?.(lastSnapshot);
  refreshView();
}

/** Keeps choices of a page in its address without opening it anew. */
function rememberQuery(changes) {
  const { kind, name, query } = address();
  for (const [key, value] of Object.entries(changes)) value === "" ? query.delete(key) : query.set(key, value);
  history.replaceState(null, "", hashOf([kind, name].filter(Boolean), Object.fromEntries(query)));
}

/** Reads what the stream does not bring, now and again after a while. */
async function refreshView() {
  clearTimeout(refreshing);
  if (locked) return;
  const shown = view;
  try {
    await Promise.all([shown.refresh?.(), shown.refreshSeconds ? undefined : readWarning()]);
    if (shown === view) byId("problem").hidden = true;
  } catch (problem) {
    if (shown === view) showProblem(problem);
  }
  if (shown === view) {
    clearTimeout(refreshing);
    refreshing = setTimeout(refreshView, (shown.refreshSeconds || REFRESH_SECONDS) * 1000);
  }
}

async function readWarning() {
  const { warning } = await askJson("/dashboard/house");
  status.showWarning("registry", warning && `The registry warns: ${warning}`);
}

/** Shows why a request was refused. The stream reports that the server does not answer at all. */
function showProblem(problem) {
  if (!(problem instanceof Refused)) {
    if (!(problem instanceof TypeError)) throw problem;
    return;
  }
  if (problem.status === 401) return;
  byId("problem").hidden = false;
  setText(byId("problem"), problem.message);
}

let heardAt = 0;

function showSnapshot(snapshot) {
  heardAt = Date.now();
  lastSnapshot = snapshot;
  keysShown = snapshot.keysShown;
  status.showLive(snapshot);
  view.show?.(snapshot);
}

/** Reads the stream by hand, because an EventSource cannot send a token. Connects again after it ends. */
async function readStream() {
  try {
    const reader = (await ask("/dashboard/events")).body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; ;) {
      const { value, done } = await reader.read();
      if (done) break;
      const parts = (text + value).split("\n\n");
      text = parts.pop();
      for (const part of parts) if (part.startsWith("data: ")) showSnapshot(JSON.parse(part.slice("data: ".length)));
    }
  } catch (problem) {
    if (!(problem instanceof Refused || problem instanceof TypeError)) console.error(problem);
  }
  if (locked) return;
  status.showAway();
  setTimeout(start, 1000);
}

/** A stream that is open and silent is away, too. */
setInterval(() => {
  if (heardAt && !locked && Date.now() - heardAt > 5000) status.showAway();
}, 1000);

const THEMES = ["auto", "light", "dark"],
  THEME = "spile-theme";

function setTheme(theme) {
  byId("theme").textContent = "Theme: " + theme;
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

function nextTheme() {
  const now = document.documentElement.dataset.theme || "auto",
    next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  if (next === "auto") localStorage.removeItem(THEME);
  else localStorage.setItem(THEME, next);
  setTheme(next);
}

function start() {
  readStream();
  refreshView();
}

const kept = localStorage.getItem(THEME);
setTheme(THEMES.includes(kept) ? kept : "auto");
byId("theme").addEventListener("click", nextTheme);
byId("skip").addEventListener("click", event => {
  event.preventDefault();
  byId("main").focus();
});
addEventListener("hashchange", openPage);
openPage();
readStream();
