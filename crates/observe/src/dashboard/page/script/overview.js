// ---- The first page: what happens now.

const TILES = {
  "t-allowed": "Allowed per second",
  "t-denied": "Denied per second",
  "t-ratio": "Denial ratio",
  "t-store": "Store p50 · p90 · p99",
  "t-wait": "Waiting for the store",
  "t-nearby": "Not asked: denied · leased",
  "t-degraded": "Decided without the store",
};

function overview({ query }) {
  const history = new HistoryPanel(null, query.get("range"));
  const tile = ([id, text]) => el("div", { class: "tile" }, el("dt", {}, text), el("dd", { id }, "–"));
  const tiles = el("dl", { class: "tiles", "aria-label": "Now" }, Object.entries(TILES).map(tile));
  const levels = el("div", { id: "levels" }),
    denied = el("div", { id: "denied" }),
    spending = el("div", { id: "spending" });
  const permits = el("div", { id: "permits" }),
    holding = el("div", { id: "holding" });
  const atOnce = panel("Permits: at most so many at once", "half", permits),
    holders = panel("Holding most permits", "half", holding);
  const limits = el("div", { id: "limits" }),
    events = eventList("Recent events"),
    day = el("div", { id: "day" });
  const csv = el("button", { type: "button", onclick: downloadCsv }, "Download as CSV");
  events.id = "events";
  return {
    title: "Overview",
    elements: [
      el("h2", { class: "sr", tabindex: "-1" }, "Overview"),
      tiles,
      ...history.elements,
      panel("Denied most", "third", denied),
      panel("Spending most", "third", spending),
      panel("How full buckets are", "third", levels),
      atOnce,
      holders,
      panel("Limits with the most decisions", "half", limits),
      panel("Recent events", "half", events),
      panel(
        "The last 24 hours, minute by minute",
        "",
        el("p", {}, "Allowed and denied decisions of each rule and tenant."),
        csv,
      ),
    ],
    show(snapshot) {
      showTiles(snapshot);
      history.show(snapshot);
      levels.replaceChildren(
        ...(snapshot.levels.length ? snapshot.levels.map(levelRow) : [empty("No decisions in the last minute.")]),
      );
      denied.replaceChildren(keyTable("Denied most", "#Denials", snapshot.topDenied, "No key was denied recently."));
      spending.replaceChildren(
        keyTable("Spending most", "#Tokens", snapshot.topSpending, "No key spent tokens recently."),
      );
      atOnce.hidden = holders.hidden = !snapshot.permits.length;
      const permitRows = snapshot.permits.map(p => [p.limit, whole(p.of), ...[p.held, p.acquired, p.released, p.lost].map(whole)]);
      permits.replaceChildren(
        table("Permits", ["Limit", "#For each key", "#Held here", "#Acquired", "#Released", "#Lost"], permitRows, "No limit of this kind."),
      );
      holding.replaceChildren(
        keyTable("Holding most permits", "#Held", snapshot.topHolding, "No permit is held through this instance."),
      );
      const limitRows = snapshot.topLimits.map(l => [l.limit, whole(l.allowed + l.shadow), whole(l.denied)]);
      limits.replaceChildren(
        table("Limits with the most decisions", ["Limit", "#Allowed", "#Denied"], limitRows, "No decisions yet."),
      );
      showEvents(events, snapshot.events, "No events yet.");
    },
    refresh: () => history.refresh(),
  };
}

function showTiles(snapshot) {
  const { storeLatency: latency, totals } = snapshot;
  byId("t-allowed").textContent = whole(snapshot.perSecond.allowed);
  byId("t-denied").textContent = whole(snapshot.perSecond.denied);
  byId("t-ratio").textContent = percent(snapshot.denialRatio);
  byId("t-store").className = "small";
  byId("t-store").textContent = latency.calls
    ? [latency.p50Us, latency.p90Us, latency.p99Us].map(us => (us <= 2 ? "≤2 µs" : micros(us))).join(" · ")
    : "–";
  byId("t-wait").textContent = whole(snapshot.store.waiting);
  const decisions = totals.allowed + totals.denied + totals.shadow || 1;
  byId("t-nearby").className = "small";
  byId("t-nearby").textContent = [snapshot.nearby.denyCache, snapshot.nearby.lease]
    .map(count => percent(count / decisions))
    .join(" · ");
  const all = el("small", {}, "of " + whole(totals.allowed + totals.denied + totals.shadow));
  byId("t-degraded").replaceChildren(whole(snapshot.degraded), all);
}

function levelRow({ limit, shape, mean, lowest }) {
  return el(
    "div",
    { class: "level" },
    el("span", {}, el("strong", {}, limit), " ", el("span", { class: "dim" }, shape)),
    el("span", { class: "num" }, percent(mean)),
    meter(mean, limit),
    el("span", { class: "dim" }, `emptiest ${percent(lowest)}`),
  );
}

async function downloadCsv() {
  try {
    const url = URL.createObjectURL(await (await ask("/dashboard/minutes.csv")).blob());
    el("a", { href: url, download: "spile-minutes.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  } catch (problem) {
    showProblem(problem);
  }
}
