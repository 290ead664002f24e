"""What the description cannot say: which names there are, and which numbers go together."""

import atexit
import base64
import collections
import json
import os
import re

import schemathesis
from hypothesis import strategies as st
from schemathesis import GenerationMode

# Requests with a body that were sent: those that the description allows, and those that it forbids.
SENT = collections.Counter()
atexit.register(lambda: json.dump(SENT, open(os.environ["SENT"], "w")))

# What spile.toml beside this file has.
RULES = ["default", "login"]
PLANS = ["gold", "daily", "pro", "free"] + [f"p{n}" for n in range(1, 29)]
TAGS = ["*", '"0123456789abcdef"', '"0123456789abcdef", "fedcba9876543210"']
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")



def reservation(number):
    """The id of a reservation, as /v1/reserve answers it."""
    charges = charged({"name": "free", "limit": {"capacity": 10, "refill": "1/s"}})
    return encoded({"random": f"{number:x}", "ttl_us": 60_000_000, "charges": charges})


def permit(number):
    """A permit, as /v1/acquire answers it."""
    return encoded({"id": f"{number:032x}", "places": charged({"name": "jobs", "limit": {"concurrency": 2}})})


def charged(bucket):
    """One charge of one key, as both of them list it."""
    question = {"ruleId": "default", "identity": "user:123", "cost": 0}
    return {"question": question, "keys": ["user:123"], "buckets": [{"key": 0, "cost": 1, **bucket}]}


def encoded(ticket):
    return base64.urlsafe_b64encode(json.dumps(ticket).encode()).decode().rstrip("=")


schemathesis.openapi.format("rule-id", st.sampled_from(RULES))
schemathesis.openapi.format("plan-name", st.sampled_from(PLANS))
schemathesis.openapi.format("identity", st.from_regex(r"\A[a-zA-Z0-9:@._-]{1,64}\Z"))
schemathesis.openapi.format("lease", st.sampled_from(["1ms", "100ms", "10s"]))
schemathesis.openapi.format("refill", st.sampled_from(["1/s", "100/min", "5/10s", "10000/day"]))
schemathesis.openapi.format("zone", st.sampled_from(["UTC", "Europe/Berlin", "Pacific/Apia"]))
schemathesis.openapi.format("anchor", st.sampled_from(["15", "mon", "04-01"]))
schemathesis.openapi.format("path-pattern", st.sampled_from(["/", "/login", "/scores/*", "/a/*/b"]))
schemathesis.openapi.format("request-path", st.sampled_from(["/", "/login", "/a/b?c=d", "//x"]))
schemathesis.openapi.format("request-method", st.sampled_from(["GET", "POST", "PURGE"]))
schemathesis.openapi.format("request-host", st.sampled_from(["localhost", "API.example:443", "[::1]"]))
schemathesis.openapi.format("refund-id", st.from_regex(r"\A[a-zA-Z0-9 :{}%-]{1,64}\Z"))
schemathesis.openapi.format("ttl", st.sampled_from(["1s", "90s", "5m", "1day"]))
schemathesis.openapi.format("reservation-id", st.builds(reservation, st.integers(0, 2**128 - 1)))
schemathesis.openapi.format("permit", st.builds(permit, st.integers(0, 2**128 - 1)))
schemathesis.openapi.format("holder", st.from_regex(r"\A[a-zA-Z0-9:@._ -]{0,64}\Z"))
schemathesis.openapi.format("hold", st.sampled_from(["1s", "30s", "1day"]))
schemathesis.openapi.format("etag", st.sampled_from(TAGS))


@schemathesis.hook
def before_call(context, case, kwargs):
    """Puts what there is in the place of what could be. What the description forbids is sent as it was made."""
    forbidden = case.meta is not None and case.meta.generation.mode is GenerationMode.NEGATIVE
    if isinstance(case.body, (dict, list, str, int, float, bytes)):
        SENT["forbidden" if forbidden else "allowed"] += 1
    if not forbidden:
        case.body, case.query = rounded(case.body), rounded(case.query)
    if case.path.startswith("/v1/") and not forbidden:
        case.body = fitting(case.body)
        if case.path == "/v1/settle" and isinstance(case.body, dict):
            # The names are those of the reservation's limits. One of both members is there.
            costs = case.body.get("costs")
            if isinstance(costs, dict):
                case.body["costs"] = {"free": cost for cost in costs.values()}
            elif costs is None and case.body.get("cost") is None:
                case.body["cost"] = 1
        if case.path == "/v1/acquire" and isinstance(case.body, dict) and isinstance(case.body.get("plans"), list):
            # Plans that are named must have a concurrency, and a question has room for so many.
            case.body["plans"] = case.body["plans"][:31] + ["jobs"]


def rounded(value):
    """Numbers of tokens with the decimals that they may have: JSON Schema cannot say how many."""
    if isinstance(value, list):
        return [rounded(item) for item in value]
    if isinstance(value, dict):
        return {name: rounded(member) for name, member in value.items()}
    return round(value, 6) if isinstance(value, float) else value


def fitting(body):
    if isinstance(body, list):
        return [fitting(question) for question in body]
    if not isinstance(body, dict):
        return body
    body = dict(body)
    if within(body.get("capacity"), 1) and within(body.get("refillPerSecond"), 0.000001):
        # A bucket that fills within ten years, and covers the cost.
        body["refillPerSecond"] = max(10, round(body["refillPerSecond"]))
        if within(body.get("cost"), 0):
            body["cost"] = min(body["cost"], body["capacity"])
    elif is_name(body.get("ruleId")) and body["ruleId"] not in RULES and body.get("capacity") is None:
        body["ruleId"] = RULES[0]
    if isinstance(body.get("plans"), list):
        body["plans"] = known(body["plans"])
    return body


def known(names):
    """Names that there are, the same where they are the same and others where they are not."""
    free = iter([plan for plan in PLANS if plan not in names])
    chosen = {}
    for name in names:
        if is_name(name) and name not in PLANS and name not in chosen:
            chosen[name] = next(free, name)
    return [chosen.get(name, name) if isinstance(name, str) else name for name in names]


def is_name(value):
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def within(value, least):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= 1e9
