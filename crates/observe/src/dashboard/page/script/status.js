// ---- The state of server and store: banners, pills, icon and title.

const DROP = "M8 1C5 5 3 7.5 3 10a5 5 0 0 0 10 0C13 7.5 11 5 8 1z";
const icon = colour =>
  "data:image/svg+xml," +
  encodeURIComponent(`<svg xmlns="${SVG}" viewBox="0 0 16 16"><path d="${DROP}" fill="${colour}"/></svg>`);

const status = {
  title: "Overview",
  alarm: "",

  /** The stream brought these figures. */
  showLive(snapshot) {
    document.body.classList.remove("stale");
    byId("away").hidden = true;
    pill(byId("link"), "good", "live");
    setText(byId("uptime"), "up " + span(snapshot.upMs));
    this.showStore(snapshot);
    this.showWarning("slow", snapshot.storeState === "slow" && `The store is slow: ${snapshot.storeMessage}.`);
    this.showWarning("store", snapshot.store.warning && `The store warns: ${snapshot.store.warning}`);
  },

  showStore({ store, storeState, storeMessage, outage }) {
    const storeLost = storeState === "lost";
    const breaker = store.breakersOpen ? "breaker open" : "breaker closed";
    pill(
      byId("store"),
      { lost: "bad", slow: "wait" }[storeState] || "good",
      `store ${storeState} · ${breaker} · ${store.store || "embedded"}`,
    );
    byId("outage").hidden = !storeLost;
    this.setAlarm(
      storeLost ? outageHeadline(store) : "",
      storeLost && limitsAreOff(store) ? "LIMITS OFF" : storeLost ? "Store lost" : "",
    );
    if (!storeLost) return byId("outage").replaceChildren();
    const why = storeMessage && el("small", {}, storeMessage);
    byId("outage").replaceChildren(`${outageHeadline(store)} ${outageCount(outage)}`, ...(why ? [why] : []));
  },

  /** The server does not answer: nothing that is shown is known to be true. */
  showAway() {
    document.body.classList.add("stale");
    byId("away").hidden = false;
    byId("outage").hidden = true;
    pill(byId("link"), "bad", "away");
    pill(byId("store"), "wait", "store unknown");
    this.setAlarm("The server does not answer.", "Server away");
  },

  showLocked() {
    document.body.classList.add("stale");
    byId("away").hidden = byId("outage").hidden = true;
    pill(byId("link"), "wait", "locked");
    pill(byId("store"), "wait", "store unknown");
    this.setAlarm("", "");
  },

  /** Says it once to screen readers, and in the title for as long as it is so. */
  setAlarm(sentence, title) {
    setText(byId("alarm"), sentence);
    this.alarm = title;
    this.setTitle(this.title);
  },

  setTitle(title) {
    this.title = title;
    const text = (this.alarm ? `⚠ ${this.alarm} · ` : "") + `${title} · Spile`;
    if (document.title !== text) document.title = text;
    const address = icon(this.alarm ? "#b3190c" : "#0a7d5a");
    if (byId("icon").getAttribute("href") !== address) byId("icon").setAttribute("href", address);
  },

  warnings: {},

  /** Shows a warning until the same source has none. */
  showWarning(source, text) {
    this.warnings[source] = text;
    const all = Object.values(this.warnings).filter(Boolean).join(" · ");
    byId("warnings").hidden = !all;
    setText(byId("warnings"), all);
  },
};

function pill(element, kind, text) {
  setText(element, text);
  element.className = "pill " + kind;
}

const limitsAreOff = store => store.onFailure !== "deny" && store.onFailure !== "local";

function outageHeadline({ onFailure }) {
  const effects = {
    deny: "Requests are refused (policy deny).",
    local: "Each instance limits alone, by its share (policy local).",
  };
  return "The store does not answer. " + (effects[onFailure] || "Limits are NOT enforced (policy allow).");
}

/** What was decided since: rules may have policies of their own, so that there can be several counts. */
function outageCount(outage) {
  if (!outage) return "";
  const { passed, refused, local } = outage.decisions;
  const counts = [
    [passed, "passed"],
    [refused, "were refused"],
    [local, "were decided locally"],
  ].filter(([count]) => count);
  const text = counts.map(([count, what], i) => `${whole(count)} ${i ? "" : "decisions "}${what}`).join(", ");
  return `${text || "No decisions"} since ${hourAndMinute(outage.sinceMs)}.`;
}
