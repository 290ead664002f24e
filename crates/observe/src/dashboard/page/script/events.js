// ---- Recent events as sentences, with links to what they are about.

const SENTENCES = {
  key_denied: e => [
    keyLink(e.key),
    " was denied by ",
    e.limit,
    ...(e.rule ? [" (rule ", link(["rules", e.rule]), ")"] : []),
    `; the next request may pass in ${waiting(e.retryAfterMs)}`,
  ],
  tenant_near: e => ["Tenant ", link(["tenants", e.tenant]), ` has used ${e.usedPercent} % of ${e.limit}`],
  tenant_over: e => ["Tenant ", link(["tenants", e.tenant]), ` is over ${e.limit}`],
  store_slow: e => [`The store is slow: ${e.why}`],
  store_lost: e => [`The store is lost: ${e.why}`],
  store_recovered: e => [`The store is back after ${span(e.lostForMs)}`],
  config_reloaded: () => ["A new configuration is in force"],
  config_refused: e => [`A new configuration was refused: ${e.why}`],
  events_suppressed: e => [`${whole(e.count)} or more events of the kind ${e.kind} were left out`],
};

function eventList(label) {
  return el("ol", { class: "log", role: "log", "aria-live": "off", tabindex: "0", "aria-label": label });
}

/** Fills the list, unless it shows the same events already: a link that has the focus stays where it is. */
function showEvents(list, events, none) {
  const shown = events.slice(0, 40),
    ids = shown.map(event => event.id).join();
  if (list.dataset.shown === ids) return;
  list.dataset.shown = ids;
  const item = event =>
    el("li", {}, el("time", {}, clock(event.atMs)), (SENTENCES[event.type] || (e => [e.type]))(event));
  list.replaceChildren(...(shown.length ? shown.map(item) : [el("li", { class: "empty" }, none)]));
}
