// ---- Why a key is limited: what the server explains about it, for one request if one is described.

/** What a request of the key would meet, as a class and a sentence. */
const VERDICTS = {
  allowed: ["good", "A request would pass now."],
  denied: ["bad", "A request would be denied now."],
  banned: ["bad", "Every such request is refused: its rule is banned."],
  unlimited: ["good", "Nothing limits such a request."],
  tenantsOnly: ["bad", "It is refused: the rule is for tenants alone."],
  noKey: ["bad", "It is refused: the request has none of the keys of the rule."],
  routeRefuses: ["bad", "It is refused: the route is not for this caller."],
  neverPasses: ["bad", "It never passes: it costs more than a bucket holds."],
  storeLost: ["wait", "The store does not answer, and the failure policy decides."],
};

const CHOICES = {
  named: "as you asked",
  matched: "which such a request falls under",
  denied: "which denied the key last",
  default: "which is for all that no other rule matches",
};

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
const REQUEST_FIELDS = ["path", "method", "host", "cost", "rule"];

class ExplanationPanel {
  constructor(key, query) {
    this.key = key;
    this.asked = Object.fromEntries(REQUEST_FIELDS.map(name => [name, query.get(name) || ""]));
    this.outcome = el("p", { id: "outcome", role: "status" });
    this.about = el("div", { id: "explained" });
    this.buckets = el("div", { id: "payers" });
    this.denials = el("div", { id: "denials" });
    this.advice = el("ul", { id: "advice" });
    this.problem = el("p", { class: "bad", id: "why-problem", role: "status" });
    this.rows = [];
    this.element = panel(
      "Why was it limited?",
      "",
      this.requestForm(),
      this.problem,
      this.outcome,
      this.about,
      this.buckets,
      this.advice,
      this.denials,
    );
  }

  /** Describes a request. The description is part of the address, so that the answer can be sent to others. */
  requestForm() {
    const field = (name, label, attributes) =>
      el("label", {}, label, el("input", { name, value: this.asked[name], autocomplete: "off", ...attributes }));
    const methods = METHODS.map(name => el("option", { selected: this.asked.method === name }, name));
    const submit = event => {
      event.preventDefault();
      const fields = Object.fromEntries(new FormData(event.target));
      // The other fields describe a request only together with a path, or alone if they do not need one.
      if (!fields.path && !fields.host && fields.method === "GET") fields.method = "";
      rememberQuery(fields);
      this.asked = fields;
      view.refresh().catch(showProblem);
    };
    const described = REQUEST_FIELDS.some(name => this.asked[name]);
    return el(
      "details",
      { id: "request", open: described },
      el("summary", {}, "Ask about one request"),
      el(
        "form",
        { onsubmit: submit },
        field("path", "Path", { placeholder: "/login", maxlength: 8192, spellcheck: "false" }),
        el("label", {}, "Method", el("select", { name: "method" }, methods)),
        field("host", "Host", { placeholder: "any", maxlength: 255, spellcheck: "false" }),
        field("cost", "Cost in tokens", { placeholder: "of the rule", type: "number", min: 0, max: 1e9 }),
        field("rule", "Or a rule by its id", { maxlength: 128, spellcheck: "false" }),
        el("button", {}, "Explain"),
      ),
    );
  }

  async refresh() {
    const fields = Object.entries(this.asked).filter(([, value]) => value),
      wanted = JSON.stringify(this.asked);
    let explained;
    try {
      explained = await askJson("/admin/v1/explain?" + new URLSearchParams([["key", this.key], ...fields]));
    } catch (problem) {
      if (!(problem instanceof Refused)) throw problem;
      setText(this.problem, problem.message);
      setText(this.outcome, "");
      this.rows = [];
      for (const part of [this.about, this.buckets, this.denials, this.advice]) part.replaceChildren();
      return;
    }
    // Another request has been described since.
    if (wanted === JSON.stringify(this.asked)) this.show(explained);
  }

  show(explained) {
    const [kind, sentence] = VERDICTS[explained.outcome] || ["wait", explained.outcome];
    const isOff = explained.outcome === "allowed" && explained.shadow.some(one => !one.allowed);
    setText(this.problem, "");
    setText(this.outcome, isOff ? "A rule in shadow mode would deny a request now. It passes all the same." : sentence);
    this.outcome.className = isOff ? "wait" : kind;
    showIfChanged(this.about, facts(explainedFacts(explained)));
    this.showBuckets(explained);
    showIfChanged(this.advice, ...explained.advice.map(text => el("li", {}, withCode(text))));
    showIfChanged(this.denials, ...denialTable(explained.denials));
  }

  showBuckets({ key, buckets }) {
    const names = buckets.map(bucket => [bucket.limit, bucket.key, bucket.decides]).join("\n");
    if (this.names !== names || this.rows.length !== buckets.length) {
      this.names = names;
      this.rows = buckets.map(bucket => new BucketRow({ ...bucket, shape: payerNote(key, bucket) }));
      this.buckets.replaceChildren(...this.rows.map(row => row.element));
    }
    this.rows.forEach((row, i) => row.set({ ...buckets[i], available: buckets[i].tokens }));
  }
}

/** Shows something anew only if it reads otherwise, so that a link that has the focus stays. */
function showIfChanged(part, ...children) {
  const next = el("div", {}, children);
  if (next.textContent !== part.textContent) part.replaceChildren(...next.childNodes);
}

/** Who pays, and what the bucket is. */
function payerNote(key, bucket) {
  return [
    `${bucket.refill}, costs ${whole(bucket.cost)}`,
    bucket.key === key ? "" : `of ${bucket.key}`,
    bucket.decides ? "this one decides" : "",
    bucket.shadow ? "shadow mode" : "",
    bucket.exists ? "" : "nothing spent yet",
  ]
    .filter(Boolean)
    .join(" · ");
}

function explainedFacts({ rule, chosen, route, routeLimits, tenant, plans, cost, outcome, retryAfterMs }) {
  const ofRoute = route && chosen !== "matched",
    why = CHOICES[chosen] && `, ${CHOICES[chosen]}`;
  const limits = routeLimits.length ? `, with its limits ${routeLimits.join(", ")}` : "";
  return [
    ["Rule", rule ? [ofRoute ? rule : link(["rules", rule]), why || ""] : "none is for it"],
    route && ["Route", `${route}${ofRoute ? "" : limits}`],
    tenant && ["Tenant", link(["tenants", tenant])],
    plans.length && ["Pays from", [...planLinks(plans), `, ${whole(cost)} ${cost === 1 ? "token" : "tokens"} a request`]],
    outcome === "denied" && ["Passes in", waitingSeconds(retryAfterMs)],
  ].filter(Boolean);
}

/** Whole seconds, so that it changes once a second. */
const waitingSeconds = ms =>
  ms <= 1000 ? "less than a second" : ms < 60_000 ? `${Math.ceil(ms / 1000)} s` : waiting(ms);

function denialTable(denials) {
  const cells = ({ limit, rule, reason, count, lastAtMs, retryAfterMs }) => [
    limit,
    rule ? link(["rules", rule]) : "–",
    reason === "fail_closed" ? "the store failed" : reason,
    whole(count),
    clock(lastAtMs),
    waiting(retryAfterMs),
  ];
  return [
    el("h4", {}, "Last denials of this key"),
    table(
      "Last denials of this key",
      ["Denied by", "Rule", "Why", "#Times", "#Last", "#Told to wait"],
      denials.map(cells),
      "This instance has not denied it lately.",
    ),
  ];
}

/** A sentence whose parts between backticks are code. */
const withCode = text => text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));
