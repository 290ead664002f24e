// ---- Editing an entry of the registry: its fields or its text, then what would change, then the answer of the server.

const TEMPLATES = {
  plans: { name: "", ...FIRST_LIMITS.rate },
  rules: { id: "", match: { path: "/" }, key: ["tenant", "ip"], plans: ["free"], mode: "shadow" },
  tenants: { id: "", plan: "free" },
};

const editor = {
  dialog: byId("editor"),

  async open(kind, name) {
    Object.assign(this, { kind, name, problems: [], errors: [] });
    try {
      await Promise.all([this.load(), this.loadPlans()]);
      this.text = this.before;
    } catch (problem) {
      return showProblem(problem);
    }
    this.showText();
    this.dialog.showModal();
  },

  async create(kind) {
    try {
      await this.loadPlans();
    } catch (problem) {
      return showProblem(problem);
    }
    Object.assign(this, {
      kind,
      name: undefined,
      tag: null,
      source: null,
      apiKeyCount: 0,
      before: "",
      text: JSON.stringify(TEMPLATES[kind], null, 2),
      problems: [],
      errors: [],
    });
    this.showText();
    this.dialog.showModal();
  },

  /** Reads the entry that is in force. The text that was typed stays. */
  async load() {
    const {
      tag,
      document: { source, apiKeyCount, ...document },
    } = await readEntry(this.kind, this.name);
    Object.assign(this, { tag, source, apiKeyCount, before: JSON.stringify(document, null, 2) });
  },

  /** Reads the names of plans, to choose from. */
  async loadPlans() {
    this.plans = (await askJson("/dashboard/house")).plans.map(plan => plan.name);
  },

  noun() {
    return this.kind.slice(0, -1);
  },

  title() {
    return this.name === undefined ? `New ${this.noun()}` : `Edit ${this.noun()} ${this.name}`;
  },

  /** Shows a step of the dialog. */
  step(title, content, actions) {
    const problems =
      this.problems.length &&
      el(
        "div",
        { role: "alert", class: "bad", id: "editor-problem" },
        this.problems.map(text => el("p", {}, text)),
      );
    this.dialog.replaceChildren(
      el("h2", { id: "h-editor" }, title),
      ...(problems ? [problems] : []),
      ...content,
      el("div", { class: "actions" }, actions),
    );
  },

  button(text, onclick, options = {}) {
    return el("button", { type: "button", onclick, ...options }, text);
  },

  /** The first step: the usual fields, and the whole entry as JSON. A change in one of them is one in the other. */
  showText() {
    const form = new EntryForm(this.kind, this.name === undefined, this.plans, document => {
      this.text = area.value = JSON.stringify(document, null, 2);
    });
    form.show(this.text, this.errors);
    const area = el("textarea", {
      id: "document",
      spellcheck: "false",
      "aria-describedby": "editor-hint",
      oninput: event => {
        this.text = event.target.value;
        form.show(this.text);
      },
    });
    area.value = this.text;
    const hints = [
      this.source === "file"
        ? "This is from the configuration file. What you save here overrides the file until you remove it."
        : "The fields are those of the admin API.",
      this.apiKeyCount ? `Its API keys (${this.apiKeyCount}) stay as they are, unless you write "apiKeys".` : "",
    ];
    const submit = event => {
      event.preventDefault();
      this.review();
    };
    this.step(
      this.title(),
      [
        el("p", { class: "dim", id: "editor-hint" }, hints.join(" ")),
        el("form", { id: "entry", novalidate: true, onsubmit: submit }, form.element),
        el(
          "details",
          { id: "as-json" },
          el("summary", {}, "The whole entry as JSON"),
          el("label", {}, el("span", { class: "sr" }, "The entry as JSON"), area),
        ),
      ],
      [
        el("button", { form: "entry", class: "primary", id: "review" }, "Review…"),
        this.button("Cancel", () => this.dialog.close()),
        this.tag && this.source !== "file" && this.button("Remove…", () => this.confirmRemoval(), { id: "remove" }),
      ].filter(Boolean),
    );
  },

  /** Goes to the first field that is wrong, or else to the text. */
  focusProblem() {
    const field = this.dialog.querySelector("[aria-invalid=true]");
    if (!field) this.dialog.querySelector("#as-json").open = true;
    (field || this.dialog.querySelector("#document")).focus();
  },

  /** The second step: what would change. */
  review() {
    this.problems = this.errors = [];
    let document;
    try {
      document = JSON.parse(this.text);
    } catch (why) {
      this.problems = [`This is not JSON: ${why.message}`];
      this.showText();
      return this.focusProblem();
    }
    const changes = changedLines(this.before, JSON.stringify(document, null, 2));
    const lines = el(
      "div",
      { class: "changes", tabindex: "0", role: "region", "aria-label": "Changes" },
      changes.map(({ kind, text }) =>
        el("div", { class: kind }, { added: "+ ", removed: "− ", same: "  " }[kind] + text),
      ),
    );
    const unchanged = changes.every(({ kind }) => kind === "same");
    this.step(
      `${this.title()}: save this?`,
      [
        el(
          "p",
          {},
          unchanged
            ? "Nothing has changed."
            : "It takes effect at once, on every instance that shares the registry, and is written to the audit log.",
        ),
        lines,
      ],
      [
        this.button("Save", () => this.save(document), { class: "primary", id: "save", disabled: unchanged }),
        this.button("Back", () => this.back()),
      ],
    );
    this.dialog.querySelector(".changes").focus();
  },

  back() {
    this.showText();
    this.dialog.querySelector("#review").focus();
  },

  save(document) {
    const name = this.name ?? document.id ?? document.name;
    return this.change(
      () => writeEntry(this.kind, this.name, this.tag, document),
      `The ${this.noun()} ${name} is saved.`,
    );
  },

  confirmRemoval() {
    this.problems = [];
    this.step(
      `Remove the ${this.noun()} ${this.name}?`,
      [
        el(
          "p",
          {},
          "It is removed from the registry at once. What the configuration file says about this name holds again.",
        ),
      ],
      [
        this.button(
          "Remove",
          () =>
            this.change(
              () => removeEntry(this.kind, this.name, this.tag),
              `The ${this.noun()} ${this.name} is removed.`,
            ),
          { class: "primary", id: "confirm-removal" },
        ),
        this.button("Back", () => this.back()),
      ],
    );
  },

  /** Asks the server for a change and says what came of it. */
  async change(request, done) {
    try {
      await request();
    } catch (problem) {
      if (problem.status === 401) return;
      return problem.status === 412 ? this.showConflict() : this.showRefusal(problem);
    }
    this.dialog.close();
    setText(byId("notice"), done);
    refreshView();
  },

  showRefusal(problem) {
    this.problems =
      problem instanceof Refused
        ? ["Nothing was saved.", ...problem.errors]
        : ["The server does not answer. Look whether it was saved before you try again."];
    this.errors = problem instanceof Refused ? problem.errors : [];
    this.showText();
    this.focusProblem();
  },

  /** The entry has another tag by now: it was changed elsewhere. */
  showConflict() {
    this.problems = [
      `The ${this.noun()} ${this.name} has been changed elsewhere since you opened it. Nothing was saved.`,
    ];
    const again = async () => {
      try {
        await this.load();
        this.review();
      } catch (problem) {
        this.showRefusal(problem);
      }
    };
    const discard = () => {
      this.dialog.close();
      this.open(this.kind, this.name);
    };
    this.step(
      this.title(),
      [el("p", {}, "You can compare your text with what is in force now, or discard it.")],
      [
        this.button("Compare with what is in force", again, { class: "primary", id: "compare" }),
        this.button("Discard my text", discard, { id: "discard" }),
        this.button("Cancel", () => this.dialog.close()),
      ],
    );
  },
};

/** The lines of both texts in order, each as `same`, `removed` or `added`: their longest common part is the same. */
function changedLines(before, after) {
  const a = before ? before.split("\n") : [],
    b = after.split("\n");
  const common = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  const lines = [];
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    if (i < a.length && j < b.length && a[i] === b[j]) (lines.push({ kind: "same", text: a[i++] }), j++);
    else if (j === b.length || (i < a.length && common[i + 1][j] >= common[i][j + 1]))
      lines.push({ kind: "removed", text: a[i++] });
    else lines.push({ kind: "added", text: b[j++] });
  }
  return lines;
}
