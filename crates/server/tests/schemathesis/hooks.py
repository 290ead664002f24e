"""What the description cannot say: which names there are, and which numbers go together."""

import schemathesis
from hypothesis import strategies as st

# Names that spile.toml beside this file has.
schemathesis.openapi.format("rule-id", st.sampled_from(["default", "login"]))
schemathesis.openapi.format("plan-name", st.sampled_from(["gold", "daily", "pro", "free"] + [f"p{n}" for n in range(1, 29)]))
schemathesis.openapi.format("identity", st.from_regex(r"\A[a-zA-Z0-9:@._-]{1,64}\Z"))
schemathesis.openapi.format("refill", st.sampled_from(["1/s", "100/min", "5/10s", "10000/day"]))
schemathesis.openapi.format("etag", st.sampled_from(["*", '"0123456789abcdef"', '"0123456789abcdef", "fedcba9876543210"']))
schemathesis.openapi.format("path-pattern", st.sampled_from(["/", "/login", "/scores/*", "/a/*/b"]))


@schemathesis.hook
def map_body(context, body):
    """A limit of the caller's own whose bucket fills within ten years, and a cost that it covers."""
    return fitting(body)


def fitting(body):
    if isinstance(body, list):
        return [fitting(question) for question in body]
    if isinstance(body, dict) and all(is_number(body.get(name)) for name in ("capacity", "refillPerSecond")):
        capacity, rate = body["capacity"], body["refillPerSecond"]
        if 1 <= capacity <= 1e9 and 0.000001 <= rate <= 1e9:
            body = dict(body, refillPerSecond=max(10, round(rate)))
            cost = body.get("cost")
            if is_number(cost) and 0 <= cost <= 1e9:
                body["cost"] = min(cost, capacity)
    return body


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)
