// ---- A form for the usual fields of an entry. What else an entry has stays as it is, and is edited as JSON.

/** The fields of each kind: where in the document, what they are called, and how they are typed. */
const FIELDS = {
  plans: [{ path: "name", label: "Name", isName: true }],
  tenants: [
    { path: "id", label: "Id", isName: true },
    { path: "plan", label: "Plan", options: plans => plans },
  ],
  rules: [
    { path: "id", label: "Id", isName: true },
    {
      path: "match.path",
      label: "Path",
      placeholder: "every path",
      hint: "* is any one segment, and a last * all that follows.",
    },
    { path: "match.methods", label: "Methods", list: true, placeholder: "every method", hint: "For instance POST, PUT." },
    { path: "match.hosts", label: "Hosts", list: true, placeholder: "every host", hint: "For instance *.example.com." },
    {
      path: "key",
      label: "Key: who pays",
      list: true,
      placeholder: "tenant, ip",
      hint: "The first that a request has of tenant, principal, ip, path, route, header:NAME, literal:NAME.",
    },
    {
      path: "plans",
      label: "Plans",
      list: true,
      words: Object.keys(WORDS_FOR_PLANS),
      hint: plans => `tenant (the plan of the caller), unlimited, banned, or some of: ${plans.join(", ")}.`,
    },
    { path: "anonymousPlan", label: "Plan of callers that are no tenant", none: "none", options: plans => ["", ...plans] },
    { path: "cost", label: "Cost in tokens", number: true, placeholder: "1" },
    { path: "mode", label: "Mode", none: "enforce (not written)", options: () => ["", "enforce", "shadow", "any"] },
    { path: "onFailure", label: "If the store fails", none: "as for all rules", options: () => ["", "allow", "deny", "local"] },
  ],
};

/** The members of each shape of a limit, and what a new one has. */
const SHAPES = { rate: ["capacity", "refill", "lease"], quota: ["quota", "per", "zone", "anchor"] };
const FIRST_LIMITS = { rate: { capacity: 100, refill: "10/s" }, quota: { quota: 100000, per: "month" } };
const PERIODS = ["minute", "hour", "day", "week", "month", "year"];

const fieldId = path => "field-" + path.replace(/[^a-zA-Z0-9]+/g, "-");

const valueAt = (document, path) => path.split(".").reduce((at, step) => at?.[step], document);

/** Sets a value, or removes it if it is undefined. An object that is empty by then is removed, too. */
function setValueAt(document, path, value) {
  const [step, ...rest] = path.split(".");
  if (rest.length) {
    if (typeof document[step] !== "object" || document[step] === null) document[step] = {};
    setValueAt(document[step], rest.join("."), value);
    if (!Array.isArray(document) && !Object.keys(document[step]).length) delete document[step];
  } else if (value === undefined) delete document[step];
  else document[step] = value;
}

const shownText = value =>
  Array.isArray(value) ? value.join(", ") : value === undefined || value === null ? "" : String(value);

/** What was typed, as the document has it. What cannot be right is left for the server to refuse. */
function typedValue({ list, number, words = [] }, text) {
  const trimmed = text.trim();
  if (!trimmed) return undefined;
  if (number) return /^\d{1,15}$/.test(trimmed) ? Number(trimmed) : trimmed;
  if (!list || words.includes(trimmed)) return trimmed;
  return trimmed
    .split(",")
    .map(part => part.trim())
    .filter(Boolean);
}

class EntryForm {
  /** `onchange` gets the document whenever a field is changed. */
  constructor(kind, isNew, plans, onchange) {
    Object.assign(this, { kind, isNew, plans, onchange, errors: [] });
    this.element = el("div", { class: "fields" });
  }

  /** Shows a document, and at its fields what the server says about them: `limits[0].refill: …`. */
  show(text, errors = []) {
    this.errors = errors.map(error => {
      const [place, ...rest] = error.split(": ");
      return { path: place.replace(/\[(\d+)\]/g, ".$1"), text: rest.join(": ") };
    });
    try {
      this.document = JSON.parse(text);
    } catch {
      this.document = null;
    }
    if (typeof this.document !== "object" || !this.document || Array.isArray(this.document)) {
      return this.element.replaceChildren(empty("The JSON text cannot be read, so that there are no fields to show."));
    }
    const limits = this.kind === "plans" ? this.limitFields() : [];
    this.element.replaceChildren(...FIELDS[this.kind].map(field => this.field(field)), ...limits);
    this.element.querySelector("input:not([readonly]), select")?.setAttribute("autofocus", "");
  }

  change(path, value) {
    setValueAt(this.document, path, value);
    this.onchange(this.document);
  }

  /** An error of a field, or of an item of it if it is a list. */
  errorAt({ path, list }) {
    const isFor = error => error.path === path || (list && error.path.startsWith(path + "."));
    return this.errors
      .filter(isFor)
      .map(error => error.text)
      .join(" ");
  }

  field(field) {
    const value = valueAt(this.document, field.path);
    const hint = typeof field.hint === "function" ? field.hint(this.plans) : field.hint;
    if (!field.options || (value !== undefined && typeof value !== "string")) {
      const oninput = event => this.change(field.path, typedValue(field, event.target.value));
      return this.labelled(field, hint, {
        value: shownText(value),
        placeholder: field.placeholder,
        inputmode: field.number && "numeric",
        readonly: field.isName && !this.isNew,
        oninput,
      });
    }
    const choices = [...new Set([...field.options(this.plans), value ?? ""])];
    const options = choices.map(choice =>
      el("option", { value: choice, selected: choice === (value ?? "") }, choice || field.none || "–"),
    );
    const onchange = event => this.change(field.path, event.target.value || undefined);
    return this.labelled(field, hint, { onchange }, options);
  }

  /** A control with its label, its hint and its error. */
  labelled({ path, list, label, part = "" }, hint, attributes, options) {
    const id = fieldId(path + part),
      error = this.errorAt({ path, list });
    const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ");
    const common = {
      id,
      autocomplete: "off",
      spellcheck: "false",
      "aria-invalid": error ? "true" : undefined,
      "aria-describedby": described || undefined,
      ...attributes,
    };
    return el(
      "div",
      { class: "field" },
      el("label", { for: id }, label),
      options ? el("select", common, options) : el("input", common),
      hint && el("p", { class: "dim", id: `${id}-hint` }, hint),
      error && el("p", { class: "bad", id: `${id}-error` }, error),
    );
  }

  /** The limits of a plan: one without a name, or a chain of them. */
  limitFields() {
    const chain = Array.isArray(this.document.limits) ? this.document.limits : null;
    const groups = chain ? chain.map((_, at) => this.limitGroup(`limits.${at}.`, at)) : [this.limitGroup("", 0)];
    const add = el("button", { type: "button", id: "add-limit", onclick: () => this.addLimit() }, "Add a limit");
    const note = "A request must pass all limits of a plan. With several of them, each has a name and buckets of its own.";
    return [...groups, el("div", { class: "wide" }, el("p", { class: "dim" }, note), add)];
  }

  limitGroup(at, index) {
    const named = at && { path: `${at}name`, label: "Limit" };
    const remove = () => {
      this.document.limits.splice(index, 1);
      this.onchange(this.document);
      this.show(JSON.stringify(this.document));
      this.element.querySelector("#add-limit").focus();
    };
    const name = (at && valueAt(this.document, `${at}name`)) || index + 1;
    return el(
      "fieldset",
      { class: "wide" },
      el("legend", {}, at ? `Limit ${name}` : "Limit"),
      named && this.field(named),
      this.shapeField(at),
      ...(this.isQuota(at) ? this.quotaFields(at) : this.rateFields(at)),
      this.field({
        path: `${at}debt`,
        label: "Debt",
        number: true,
        placeholder: "as many as the limit holds",
        hint: "Tokens that late charges may take beyond what is there.",
      }),
      at &&
        this.document.limits.length > 1 &&
        el("button", { type: "button", "aria-label": `Remove limit ${name}`, onclick: remove }, "Remove"),
    );
  }

  isQuota(at) {
    return SHAPES.quota.some(member => valueAt(this.document, at + member) !== undefined);
  }

  /** Chooses between a rate and a quota. The members of the other shape are removed. */
  shapeField(at) {
    const shape = this.isQuota(at) ? "quota" : "rate";
    const onchange = event => {
      const chosen = event.target.value;
      SHAPES[shape].forEach(member => setValueAt(this.document, at + member, undefined));
      Object.entries(FIRST_LIMITS[chosen]).forEach(([member, value]) => setValueAt(this.document, at + member, value));
      this.onchange(this.document);
      this.show(JSON.stringify(this.document));
      this.element.querySelector("#" + fieldId(`${at}shape`)).focus();
    };
    const texts = { rate: "a rate: tokens come back evenly", quota: "a quota: so many in each period" };
    const options = Object.entries(texts).map(([value, text]) =>
      el("option", { value, selected: value === shape }, text),
    );
    return this.labelled({ path: `${at}shape`, label: "What it is" }, undefined, { onchange }, options);
  }

  rateFields(at) {
    return [
      this.field({ path: `${at}capacity`, label: "Capacity: tokens at once", number: true, placeholder: "as refill" }),
      ...this.refillFields(`${at}refill`),
      this.field({ path: `${at}lease`, label: "Lease", placeholder: "none", hint: "For a hot limit in Redis, such as 100ms." }),
    ];
  }

  quotaFields(at) {
    return [
      this.field({ path: `${at}quota`, label: "Quota: tokens in each period", number: true }),
      this.field({ path: `${at}per`, label: "Period", options: () => PERIODS }),
      this.field({ path: `${at}zone`, label: "Time zone", placeholder: "UTC", hint: "For instance Europe/Berlin." }),
      this.field({
        path: `${at}anchor`,
        label: "Starts",
        number: true,
        placeholder: "at the first",
        hint: "Day of the month, hour of the day, weekday (mon) or date (04-01).",
      }),
    ];
  }

  /** `50/s` in two fields: how many tokens come back, and in what time. */
  refillFields(path) {
    const [tokens, period = ""] = shownText(valueAt(this.document, path)).split(/\/(.*)/s);
    const typed = { tokens, period };
    const field = (part, label, placeholder, hint) =>
      this.labelled({ path, label, part: `-${part}` }, hint, {
        value: typed[part],
        placeholder,
        oninput: event => {
          typed[part] = event.target.value.trim();
          this.change(path, [typed.tokens, typed.period].filter(Boolean).join("/") || undefined);
        },
      });
    return [field("tokens", "Refill: tokens back", "10"), field("period", "per", "s", "s, min, h, day, 10s")];
  }

  /** A second limit makes a chain of the plan. */
  addLimit() {
    const { name, limits, ...own } = this.document;
    const before = Array.isArray(limits) ? limits : [{ name: "first", ...own }];
    this.document = { name, limits: [...before, { name: "", ...FIRST_LIMITS.rate }] };
    this.onchange(this.document);
    this.show(JSON.stringify(this.document));
    [...this.element.querySelectorAll("fieldset")].at(-1).querySelector("input").focus();
  }
}
