// ---- Tenants, rules and plans: a list of each, and a page for every one.

/** The decisions of the last day by name, of rules or of tenants. */
async function dayOf(by) {
  const { rows } = await askJson("/dashboard/day");
  return new Map(rows.filter(row => row.by === by).map(row => [row.name, row]));
}

/** Three cells: allowed, denied and the ratio of denials. */
function dayCells(row) {
  if (!row) return ["0", "0", "–"];
  const passed = row.allowed + row.shadow;
  return [whole(passed), whole(row.denied), percent(row.denied / Math.max(1, passed + row.denied))];
}

const DAY_HEADS = ["#Allowed, 24 h", "#Denied, 24 h", "#Denial ratio"];

const newButton = kind =>
  el("button", { type: "button", onclick: () => editor.create(kind) }, `New ${kind.slice(0, -1)}…`);
const editButton = (kind, name) =>
  el("button", { type: "button", id: "edit", onclick: () => editor.open(kind, name) }, "Edit…");

/** The rate or quota of each limit of these plans. A word that stands for plans is shown as it is. */
function limitTable(names, plans) {
  const rows = names.flatMap(name =>
    (plans.find(plan => plan.name === name)?.limits || []).map(limit => [limit.name, limit.shape]),
  );
  return table("Limits", ["Limit", "Rate or quota"], rows, "It has no limits of its own.");
}

const WORDS_FOR_PLANS = { tenant: "the plan of the tenant", unlimited: "unlimited", banned: "banned" };
const planLinks = names => names.flatMap((name, i) => [i ? ", " : "", WORDS_FOR_PLANS[name] || link(["plans", name])]);

function tenantList({ query }) {
  const found = el("p", { class: "dim", role: "status", id: "found" }),
    rows = el("div", { id: "tenants" }),
    pager = el("div", { class: "pager" });
  const search = el("input", {
    id: "search",
    type: "search",
    value: query.get("search") || "",
    autocomplete: "off",
    maxlength: 1024,
  });
  const asked = { search: search.value, page: Number(query.get("page")) || 1 };
  const turn = page => {
    asked.page = page;
    rememberQuery({ search: asked.search, page: page > 1 ? page : "" });
    view.refresh().catch(showProblem);
  };
  search.addEventListener("input", () => {
    asked.search = search.value;
    turn(1);
  });
  const form = el(
    "form",
    { role: "search", onsubmit: event => event.preventDefault() },
    el("label", {}, "Search by id or plan", search),
  );
  const view = {
    title: "Tenants",
    elements: [
      headline("Tenants", newButton("tenants")),
      el("section", { "aria-label": "Tenants" }, form, found, rows, pager),
    ],
    async refresh() {
      const wanted = JSON.stringify(asked);
      const [page, day] = await Promise.all([
        askJson("/dashboard/tenants?" + new URLSearchParams(asked)),
        dayOf("tenant"),
      ]);
      // The operator has typed on: another answer is on its way.
      if (wanted !== JSON.stringify(asked)) return;
      setText(found, `${whole(page.found)} ${page.found === 1 ? "tenant" : "tenants"}`);
      rows.replaceChildren(
        table(
          "Tenants",
          ["Tenant", "Plan", ...DAY_HEADS],
          page.tenants.map(({ id, plan }) => [link(["tenants", id]), link(["plans", plan]), ...dayCells(day.get(id))]),
          "No tenant is called so.",
        ),
      );
      showPager(pager, page, turn);
    },
  };
  return view;
}

/** Buttons for the page before and the page after. The focus stays on the button that was pressed. */
function showPager(pager, { page, pages }, turn) {
  if (!pager.children.length) {
    const button = (id, text, step) =>
      el("button", { type: "button", id, onclick: () => turn(Number(pager.dataset.page) + step) }, text);
    pager.append(button("previous", "Previous", -1), el("span", { role: "status" }), button("next", "Next", 1));
  }
  const [previous, text, next] = pager.children;
  pager.dataset.page = page;
  pager.hidden = pages === 1;
  previous.disabled = page === 1;
  next.disabled = page === pages;
  setText(text, `Page ${page} of ${pages}`);
}

/** What a tenant has used of its quotas. The server tells that only to those who have the token. */
async function usageTable(name) {
  if (!token) return empty("What it has used is shown to those who have the token.");
  let quotas = [];
  try {
    ({ quotas } = await askJson(entryPath("tenants", name) + "/usage"));
  } catch (problem) {
    if (![403, 404, 503].includes(problem.status)) throw problem;
  }
  const rows = quotas.map(({ name, used, quota, windowEnd }) => [
    name,
    `${whole(used)} of ${whole(quota)} (${percent(used / quota)})`,
    windowEnd.replace("T", " "),
  ]);
  return table("Quotas", ["Quota", "Used", "Until"], rows, "No quotas to show.");
}

function tenantPage({ name, query }) {
  const history = new HistoryPanel({ by: "tenant", name }, query.get("range"));
  const about = el("div"),
    usage = el("div", { id: "usage" }),
    events = eventList("Recent events of the tenant");
  return {
    title: `Tenant ${name}`,
    elements: [
      headline(`Tenant ${name}`, editButton("tenants", name)),
      panel("About", "third", about),
      panel("Used", "third", usage),
      panel("Recent events", "third", events),
      ...history.elements,
    ],
    show: snapshot =>
      showEvents(
        events,
        snapshot.events.filter(event => event.tenant === name),
        "No recent events.",
      ),
    async refresh() {
      const [page, day, used] = await Promise.all([
        askJson("/dashboard/tenants?" + new URLSearchParams({ search: name })),
        dayOf("tenant"),
        usageTable(name),
        history.refresh(),
      ]);
      usage.replaceChildren(used);
      const tenant = page.tenants.find(({ id }) => id === name),
        [allowed, denied, ratio] = dayCells(day.get(name));
      about.replaceChildren(
        facts([
          ["Plan", tenant ? link(["plans", tenant.plan]) : "No such tenant is in force."],
          ["Buckets", link(["keys", `tenant:${name}`])],
          ["Last 24 hours", `${allowed} allowed, ${denied} denied (${ratio})`],
        ]),
      );
    },
  };
}

function ruleList() {
  const rows = el("div", { id: "rules" });
  return {
    title: "Rules",
    elements: [headline("Rules", newButton("rules")), el("section", { "aria-label": "Rules" }, rows)],
    async refresh() {
      const [{ rules }, day] = await Promise.all([askJson("/dashboard/house"), dayOf("rule")]);
      const cells = rule => [
        link(["rules", rule.id]),
        planLinks(rule.plans),
        rule.shadow ? "shadow" : "enforced",
        rule.onFailure,
        ...dayCells(day.get(rule.id)),
      ];
      rows.replaceChildren(
        table(
          "Rules",
          ["Rule", "Plans", "Mode", "If the store fails", ...DAY_HEADS],
          rules.map(cells),
          "There are no rules.",
        ),
      );
    },
  };
}

function rulePage({ name, query }) {
  const history = new HistoryPanel({ by: "rule", name }, query.get("range"));
  const about = el("div"),
    limits = el("div"),
    events = eventList("Recent denials by the rule");
  return {
    title: `Rule ${name}`,
    elements: [
      headline(`Rule ${name}`, editButton("rules", name)),
      panel("About", "third", about),
      panel("Limits", "third", limits),
      panel("Recent denials", "third", events),
      ...history.elements,
    ],
    show: snapshot =>
      showEvents(
        events,
        snapshot.events.filter(event => event.rule === name),
        "No recent denials.",
      ),
    async refresh() {
      const [{ rules, plans }, day] = await Promise.all([
        askJson("/dashboard/house"),
        dayOf("rule"),
        history.refresh(),
      ]);
      const rule = rules.find(({ id }) => id === name),
        [allowed, denied, ratio] = dayCells(day.get(name));
      about.replaceChildren(
        facts([
          ["Plans", rule ? planLinks(rule.plans) : "No such rule is in force."],
          ["Mode", rule?.shadow ? "shadow: it counts and never denies" : "enforced"],
          ["If the store fails", rule?.onFailure || "–"],
          ["Last 24 hours", `${allowed} allowed, ${denied} denied (${ratio})`],
        ]),
      );
      limits.replaceChildren(limitTable(rule?.plans || [], plans));
    },
  };
}

function planList() {
  const rows = el("div", { id: "plans" });
  return {
    title: "Plans",
    elements: [headline("Plans", newButton("plans")), el("section", { "aria-label": "Plans" }, rows)],
    async refresh() {
      const { plans } = await askJson("/dashboard/house");
      const cells = plans.flatMap(plan =>
        plan.limits.map((limit, i) => [i ? "" : link(["plans", plan.name]), limit.name, limit.shape]),
      );
      rows.replaceChildren(table("Plans", ["Plan", "Limit", "Rate or quota"], cells, "There are no plans."));
    },
  };
}

function planPage({ name }) {
  const limits = el("div"),
    users = el("div");
  return {
    title: `Plan ${name}`,
    elements: [
      headline(`Plan ${name}`, editButton("plans", name)),
      panel("Limits", "half", limits),
      panel("Used by", "half", users),
    ],
    async refresh() {
      const { plans, rules } = await askJson("/dashboard/house");
      const used = rules
        .filter(rule => rule.plans.includes(name))
        .flatMap((rule, i) => [i ? ", " : "", link(["rules", rule.id])]);
      limits.replaceChildren(limitTable([name], plans));
      users.replaceChildren(
        facts([
          ["Rules", used.length ? used : "none by name"],
          ["Tenants", el("a", { href: hashOf(["tenants"], { search: name }) }, "search")],
        ]),
      );
    },
  };
}
