"""Spends from Spile's buckets by portable.lua, on redis-py.

python3 spend.py portable.lua redis://127.0.0.1:6379 user:123 100
"""

import hashlib
import pathlib
import re
import sys

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

TOKEN = 1_000_000  # micro-tokens
DAY = 86_400_000_000  # microseconds

# The plan `gold`: burst = "2500, 100/day", monthly = "30000, 30000/30days". Per limit: name, capacity, refill, period.
LIMITS = [
    ("burst", 2_500 * TOKEN, 100 * TOKEN, DAY),
    ("monthly", 30_000 * TOKEN, 30_000 * TOKEN, 30 * DAY),
]


def tag(key):
    escaped = re.sub(r"[{}%:\x00-\x1f\x7f]", lambda found: f"%{ord(found[0]):02X}", key)
    if len(escaped.encode()) <= 200:
        return escaped
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()[:32].upper()


def spend(script, key, tokens):
    """Whether the request may proceed, and otherwise after how many seconds to ask again."""
    arguments = [0]  # by the time of the server
    for name, capacity, refill, period in LIMITS:
        arguments += [1, name, capacity, refill, period, TOKEN, tokens * TOKEN]
    allowed, at, denied_by, retry_after, *per_limit = script(keys=[f"spile:{{{tag(key)}}}:gold"], args=arguments)
    return allowed == 1, retry_after / 1_000_000


if __name__ == "__main__":
    script_file, url, key, requests = sys.argv[1:]
    # A call whose reply was lost may have spent, so it is never sent again. `redis.Redis(host=...)` does so by default.
    client = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0))
    script = client.register_script(pathlib.Path(script_file).read_text())
    answers = [spend(script, key, 1) for _ in range(int(requests))]
    allowed = sum(1 for is_allowed, _ in answers if is_allowed)
    print(f"{allowed} allowed, the last one may be repeated after {answers[-1][1]:.0f} s")
