// ---- The routes of the gateway and their upstreams.

/** The series of a metric in Prometheus's text: [{ labels: { route, … }, value }]. */
function seriesOf(exposition, metric) {
  return exposition
    .split("\n")
    .filter(line => line.startsWith(metric + "{"))
    .map(line => {
      const labels = {};
      for (const [, name, value] of line.matchAll(/([a-z_]+)="((?:[^"\\]|\\.)*)"/g))
        labels[name] = value.replace(/\\(.)/g, (_, escaped) => (escaped === "n" ? "\n" : escaped));
      return { labels, value: Number(line.slice(line.lastIndexOf(" ") + 1)) };
    });
}

function routeList() {
  const routes = el("div", { id: "routes" }),
    upstreams = el("div", { id: "upstreams" });
  return {
    title: "Routes",
    elements: [headline("Routes and upstreams"), panel("Routes", "", routes), panel("Upstreams", "", upstreams)],
    async refresh() {
      const metrics = await (await ask("/metrics")).text();
      const sum = (metric, route) =>
        seriesOf(metrics, metric)
          .filter(({ labels }) => labels.route === route)
          .reduce((all, { value }) => all + value, 0);
      upstreams.replaceChildren(upstreamTable(metrics));
      try {
        const configured = (await askJson("/admin/v1/routes")).routes;
        const cells = route => [
          route.name,
          route.path,
          (route.hosts || []).join(", ") || "every host",
          limitedWord(route),
          whole(sum("gateway_retries_total", route.name)),
          whole(sum("gateway_upstream_failures_total", route.name)),
        ];
        routes.replaceChildren(
          table(
            "Routes",
            ["Route", "Path", "Hosts", "Limited", "#Retries", "#Failures"],
            configured.map(cells),
            "The gateway has no routes.",
          ),
        );
      } catch (problem) {
        if (!(problem instanceof Refused)) throw problem;
        routes.replaceChildren(el("p", { class: "bad" }, problem.message));
      }
    },
  };
}

const limitedWord = ({ limited }) => (limited ? "yes" : el("strong", { class: "bad" }, "no: no rule is for it"));

function upstreamTable(metrics) {
  const gauge = (metric, { route, upstream }) => {
    const found = seriesOf(metrics, metric).find(
      ({ labels }) => labels.route === route && labels.upstream === upstream,
    );
    return found ? whole(found.value) : "–";
  };
  const cells = ({ labels, value }) => [
    labels.upstream,
    labels.route,
    el("strong", { class: value ? "good" : "bad" }, value ? "up" : "down"),
    gauge("gateway_concurrency_in_use", labels),
    gauge("gateway_queue_depth", labels),
  ];
  return table(
    "Upstreams",
    ["Upstream", "Route", "State", "#In use", "#Waiting"],
    seriesOf(metrics, "gateway_upstream_up").map(cells),
    "The gateway has no upstreams.",
  );
}
