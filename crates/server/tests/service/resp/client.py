"""Asks a Spile through redis-py: both protocols, a pipeline, an error, a password."""

import sys

import redis

open_port, guarded_port, password = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

for protocol in (2, 3):
    key = f"user:{protocol}"
    client = redis.Redis(port=open_port, protocol=protocol, client_name="tests")
    assert client.ping()
    assert client.client_getname() in ("tests", b"tests")
    assert client.execute_command("CL.THROTTLE", key, 15, 30, 3600) == [0, 16, 15, -1, 120]
    try:
        client.execute_command("CL.THROTTLE", key, "many", 30, 3600)
        raise SystemExit("a bad argument was taken")
    except redis.ResponseError as error:
        assert "max_burst 'many'" in str(error), error
    # The connection that saw the error still answers, and nothing was charged.
    with client.pipeline(transaction=False) as pipeline:
        for _ in range(16):
            pipeline.execute_command("CL.THROTTLE", key, 15, 30, 3600)
        replies = pipeline.execute()
    assert [reply[0] for reply in replies] == [0] * 15 + [1], replies
    assert [reply[2] for reply in replies] == list(range(14, -1, -1)) + [0], replies
    # What redis-py sends unless told otherwise: MULTI, the commands, EXEC.
    with client.pipeline() as pipeline:
        for cost in (4, 5, 6):
            pipeline.execute_command("SPILE.CHECK", "default", key, cost)
        pipeline.execute_command("SPILE.PEEK", "default", key, 1)
        pipeline.execute_command("SPILE.REFUND", "default", key, 3)
        replies = pipeline.execute()
    if protocol == 2:
        replies = [dict(zip(reply[::2], reply[1::2])) for reply in replies]
    assert [reply[b"allowed"] for reply in replies] == [1, 1, 0, 1, 1], replies
    assert [reply[b"remaining"] for reply in replies] == [6, 1, 1, 1, 4], replies
    assert replies[2][b"limitedBy"] == b"free" and replies[2][b"reason"] == b"limited", replies
    try:
        with client.pipeline() as pipeline:
            pipeline.execute_command("SPILE.CHECK", "default", key, 1)
            pipeline.execute_command("NO.SUCH.COMMAND")
            pipeline.execute()
        raise SystemExit("a transaction with a wrong command ran")
    except redis.ResponseError:
        pass
    with client.pipeline() as pipeline:
        pipeline.execute_command("SPILE.PEEK", "default", key, 1)
        (reply,) = pipeline.execute()
    reply = dict(zip(reply[::2], reply[1::2])) if protocol == 2 else reply
    assert reply[b"remaining"] == 4, "nothing of it ran"
    other = redis.Redis(port=open_port, protocol=protocol, db=3)
    assert other.execute_command("CL.THROTTLE", key, 15, 30, 3600) == [0, 16, 15, -1, 120], "a name space of its own"
    assert client.info()["redis_mode"] == "standalone"
    assert "cl.throttle" in {name.lower() for name in client.command()}

known = redis.Redis(port=guarded_port, password=password)
assert known.execute_command("CL.THROTTLE", "user", 0, 1, 3600)[0] == 0
try:
    redis.Redis(port=guarded_port, password="guess").ping()
    raise SystemExit("a wrong password was taken")
except redis.AuthenticationError:
    pass
print("all is well")
