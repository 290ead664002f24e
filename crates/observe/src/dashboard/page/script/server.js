// ---- Requests, and the token that they carry.

const TOKEN = "spile-admin-token";
let token = sessionStorage.getItem(TOKEN);
let locked = false;

/** The server refused a request. `status` is 401 if the page is locked. */
class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || `The server answers ${status}.`);
    this.status = status;
    this.errors = problem.errors || [this.message];
  }
}

/** A response of the server. A refusal is thrown. */
async function ask(path, options = {}) {
  const headers = { ...options.headers, ...(token && { Authorization: "Bearer " + token }) };
  const answer = await fetch(path, { ...options, headers });
  if (answer.ok) return answer;
  if (answer.status === 401) lock();
  throw new Refused(answer.status, await answer.json().catch(() => ({})));
}

const askJson = async path => (await ask(path)).json();

/** The path of an entry of the registry, or of all of a kind. */
const entryPath = (kind, name) => `/admin/v1/${kind}` + (name === undefined ? "" : "/" + encodeURIComponent(name));

/** An entry with its tag, which says whether it has changed since. */
async function readEntry(kind, name) {
  const answer = await ask(entryPath(kind, name));
  return { tag: answer.headers.get("ETag"), document: await answer.json() };
}

/** Puts an entry in place of the one with this tag. A new one has no tag, and must bring its name along. */
function writeEntry(kind, name, tag, document) {
  const body = JSON.stringify(document),
    json = { "Content-Type": "application/json" };
  return tag
    ? ask(entryPath(kind, name), { method: "PUT", headers: { ...json, "If-Match": tag }, body })
    : ask(entryPath(kind), { method: "POST", headers: json, body });
}

function removeEntry(kind, name, tag) {
  return ask(entryPath(kind, name), { method: "DELETE", headers: { "If-Match": tag } });
}

/** Asks for the token. If there was one, it is wrong. */
function lock() {
  if (token) {
    byId("gate-text").textContent = "That token is not valid.";
    byId("gate-text").className = "bad";
  }
  token = null;
  sessionStorage.removeItem(TOKEN);
  if (locked) return;
  locked = true;
  document.body.classList.add("locked");
  byId("gate").hidden = false;
  byId("editor").close();
  status.showLocked();
  byId("token").focus();
}

async function unlock(event) {
  event.preventDefault();
  const typed = byId("token").value;
  token = typed;
  // A header value cannot contain other characters, so that such a token is wrong.
  if (!/^[\x20-\x7e\xa0-\xff]+$/.test(typed)) return lock();
  byId("token").value = "";
  try {
    await ask("/dashboard/house");
  } catch {
    return;
  }
  sessionStorage.setItem(TOKEN, typed);
  locked = false;
  document.body.classList.remove("locked");
  byId("gate").hidden = true;
  byId("gate-text").textContent = "";
  start();
}
byId("unlock").addEventListener("submit", unlock);
