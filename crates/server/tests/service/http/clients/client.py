"""Uses the client that openapi-python-client makes. Takes the addresses of both listeners and the token."""

import sys

from spile_client import AuthenticatedClient, Client
from spile_client.api.decisions import check, ping
from spile_client.api.registry import create_plan, put_plan, show_plan
from spile_client.models import (
    ByOwnLimit,
    Decision,
    Plan,
    Pong,
    Problem,
    Refusal,
)

http, admin, token = sys.argv[1:]
caller = Client(base_url=f"http://{http}")
operator = AuthenticatedClient(base_url=f"http://{admin}", token=token)

# One token in a thousand seconds: the first call spends it.
question = ByOwnLimit(rule_id="clients", identity="python", capacity=1, refill_per_second=0.001)
allowed = check.sync(client=caller, body=question)
assert isinstance(allowed, Decision) and allowed.allowed, allowed
denied = check.sync_detailed(client=caller, body=question)
assert denied.status_code == 429 and isinstance(denied.parsed, Decision), denied
assert not denied.parsed.allowed and denied.parsed.retry_after_ms > 0, denied

# The sample endpoint refuses with a problem document.
while isinstance(answer := ping.sync(client=caller, x_api_key="python"), Pong):
    pass
assert isinstance(answer, Refusal) and answer.status == 429, answer

kept = put_plan.sync_detailed("python", client=operator, body=Plan(capacity=7, refill="7/min"))
assert kept.status_code == 201 and isinstance(kept.parsed, Plan), kept
shown = show_plan.sync("python", client=operator)
assert shown == kept.parsed, (shown, kept)
taken = create_plan.sync(client=operator, body=Plan(name="python", capacity=7, refill="7/min"))
assert isinstance(taken, Problem) and taken.status == 409, taken
missing = show_plan.sync("none", client=operator)
assert isinstance(missing, Problem) and missing.status == 404, missing

print("all is well")
