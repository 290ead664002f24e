// ---- Keys: the busiest ones, and the buckets of one.

const WHY_HASHES =
  "Keys are shown as hashes, because a key is often the address of a person. With show_keys = true under [observe] in " +
  "the configuration they are shown in plain text, also in events and webhooks. If you know a key, look it up: its page " +
  "says which hash it has.";

let keysShown = false;

/** A key in a list. If it is a hash, its page says what is known of the hash. */
const keyLink = key => link([keysShown ? "keys" : "hashes", key], el("code", {}, key));

function keyTable(caption, head, keys, none) {
  return table(
    caption,
    ["Key", head],
    keys.map(({ key, count, error }) => [keyLink(key), (error ? "≤ " : "") + whole(count)]),
    none,
  );
}

/** Opens the page of the key that is typed in. */
function lookUp() {
  const key = el("input", {
    id: "key",
    required: true,
    maxlength: 1024,
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "tenant:acme",
  });
  const submit = event => {
    event.preventDefault();
    location.hash = hashOf(["keys", key.value]);
  };
  return el(
    "form",
    { id: "inspect", role: "search", onsubmit: submit },
    el("label", {}, "Key", key),
    el("button", {}, "Look up"),
  );
}

function keyList() {
  const denied = el("div"),
    spending = el("div"),
    why = el("p", { class: "dim" });
  return {
    title: "Keys",
    elements: [
      headline("Keys"),
      panel("Look up a key", "", lookUp(), why),
      panel("Denied most", "half", denied),
      panel("Spending most", "half", spending),
    ],
    show(snapshot) {
      setText(why, snapshot.keysShown ? "Looking spends no tokens." : WHY_HASHES);
      denied.replaceChildren(keyTable("Denied most", "#Denials", snapshot.topDenied, "No key was denied recently."));
      spending.replaceChildren(
        keyTable("Spending most", "#Tokens", snapshot.topSpending, "No key spent tokens recently."),
      );
    },
  };
}

/** What the lists and events say about a key, under the name that it has there. */
function showListed(counts, events, snapshot, listed) {
  const count = (keys, unit) => {
    const found = keys.find(({ key }) => key === listed);
    return found ? `about ${whole(found.count)} ${unit}` : "not among the ten first";
  };
  counts.replaceChildren(
    facts([
      ["Denied recently", count(snapshot.topDenied, "denials")],
      ["Spent recently", count(snapshot.topSpending, "tokens")],
    ]),
  );
  showEvents(
    events,
    snapshot.events.filter(event => event.key === listed),
    "No recent denials.",
  );
}

function hashPage({ name }) {
  const listed = el("div"),
    events = eventList("Recent denials of the key");
  return {
    title: `Key ${name}`,
    elements: [
      headline(`Key with the hash ${name}`),
      panel("In the lists", "half", listed),
      panel("Recent denials", "half", events),
      panel("Which key is this?", "", el("p", {}, WHY_HASHES), lookUp()),
    ],
    show: snapshot => showListed(listed, events, snapshot, name),
  };
}

function keyPage({ name, query }) {
  const explanation = new ExplanationPanel(name, query),
    why = el("p", { class: "dim" });
  const buckets = el("div", { id: "buckets", "aria-live": "polite" }),
    listed = el("div"),
    events = eventList("Recent denials of the key");
  let mask = null,
    bars = [];
  return {
    title: `Key ${name}`,
    elements: [
      headline(`Key ${name}`),
      explanation.element,
      panel("Buckets under every plan", "half", buckets),
      panel("In the lists", "half", listed),
      panel("Recent events", "half", events),
      panel("Another key", "half", lookUp(), why),
    ],
    show(snapshot) {
      setText(why, snapshot.keysShown ? "" : WHY_HASHES);
      if (mask) showListed(listed, events, snapshot, snapshot.keysShown ? name : mask);
    },
    refreshSeconds: 1,
    async refresh() {
      const explained = explanation.refresh();
      try {
        const body = await askJson("/dashboard/buckets?" + new URLSearchParams({ key: name }));
        mask = body.mask;
        if (bars.length !== body.buckets.length) {
          bars = body.buckets.map(bucket => new BucketRow(bucket));
          const note = el(
            "p",
            { class: "dim" },
            "Looking spends no tokens. Where keys are hashes, this one is ",
            el("code", {}, mask),
            ".",
          );
          buckets.replaceChildren(...bars.map(bar => bar.element), note);
        }
        bars.forEach((bar, i) => bar.set(body.buckets[i]));
      } catch (problem) {
        if (!(problem instanceof Refused)) throw problem;
        bars = [];
        buckets.replaceChildren(el("p", { class: "bad" }, problem.message));
      }
      await explained;
    },
  };
}

/** The level of one bucket. */
class BucketRow {
  constructor({ limit, shape }) {
    this.bar = meter(0, limit);
    this.left = el("span", { class: "num" });
    const name = el("span", {}, el("strong", {}, limit), " ", el("span", { class: "dim" }, shape));
    this.element = el("div", { class: "level" }, name, this.left, this.bar);
  }

  set({ level, available, capacity }) {
    fill(this.bar, level);
    this.left.textContent = `${tenths(available)} of ${whole(capacity)}`;
  }
}
