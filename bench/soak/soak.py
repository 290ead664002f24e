"""The soak itself: `run` says what it is for. One process: load, faults, samples and the judgement."""

import asyncio
import collections
import datetime
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import grpc

PERIOD = 15  # seconds from one fault to the next
REST = 5  # the last seconds of each period, in which nothing but the load goes on
CAPACITY, REFILL = 100, 50  # of every bucket: tokens, and tokens per second
KEYS = 2  # buckets of each door
PATIENCE = 10  # seconds before a request counts as unanswered
DOORS = ["check", "batch", "auth", "gateway", "resp", "grpc"]

CONFIG = """
[listen]
http = "127.0.0.1:{http}"
admin = "127.0.0.1:{admin}"
grpc = "127.0.0.1:{grpc}"
resp = "127.0.0.1:{resp}"
gateway = "127.0.0.1:{gateway}"
[store]
url = "redis://127.0.0.1:{redis}"
on_failure = "allow"
[clients]
trusted_proxies = ["127.0.0.1/32"]
[plans.soak]
capacity = {capacity}
refill = "{refill}/s"
[[rules]]
id = "gateway"
match = {{ path = "/soak" }}
key = ["principal"]
plans = ["soak"]
[[rules]]
id = "grpc"
match = {{ domain = "soak", entries = ["who"] }}
plans = ["soak"]
[[routes]]
path = "/"
upstream = "http://127.0.0.1:{upstream}"
"""
NAMED = '[[rules]]\nid = "{0}"\nkey = ["principal"]\nplans = ["soak"]\nmatch = {{ path = "/{0}-only" }}\n'


class Ledger:
    """What each door's clients were told, by key."""

    def __init__(self):
        self.granted = collections.Counter()
        self.told = collections.Counter()
        self.unexpected = collections.Counter()

    def book(self, door, key, allowed, degraded):
        kind = "degraded" if degraded else "allowed" if allowed else "denied"
        self.told[door, kind] += 1
        if kind == "allowed":
            self.granted[door, key] += 1

    def wonder(self, door, what):
        self.unexpected[f"{door}: {what}"[:120]] += 1


class Http:
    """One connection of HTTP/1.1 that is opened again when it has ended."""

    def __init__(self, port):
        self.port, self.stream = port, None

    async def ask(self, method, path, fields="", body=""):
        if self.stream is None:
            self.stream = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.stream
        head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\n{fields}content-length: {len(body)}\r\n\r\n"
        try:
            writer.write((head + body).encode())
            answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            lengths = [line.split(":")[1] for line in answer.split("\r\n") if line.startswith("content-length:")]
            text = await reader.readexactly(int(lengths[0])) if lengths else b""
        except BaseException:
            self.close()
            raise
        if "connection: close" in answer:
            self.close()
        return int(answer.split(" ")[1]), answer, text

    def close(self):
        if self.stream:
            self.stream[1].close()
        self.stream = None


class Soak:
    def __init__(self, binary, minutes):
        self.binary, self.seconds = binary, minutes * 60
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="spile-soak-"))
        self.ports = free_ports(["http", "admin", "grpc", "resp", "gateway", "redis", "upstream"])
        self.ledger, self.samples, self.faults = Ledger(), [], []
        self.restarts = 0  # of Redis: each one fills all buckets
        self.resting = False

    # The cast: Redis, an upstream and Spile.

    def start_redis(self):
        arguments = ["redis-server", "--port", str(self.ports["redis"]), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.redis = subprocess.Popen(arguments, cwd=self.home, stdout=subprocess.DEVNULL)

    async def redis_command(self, *words):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports["redis"])
        writer.write(resp(words))
        await asyncio.wait_for(reader.readline(), PATIENCE)
        writer.close()

    async def upstream(self, reader, writer):
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def start_spile(self):
        rules = "".join(NAMED.format(rule) for rule in ["check", "batch", "auth", "resp"])
        config = CONFIG.format(**self.ports, capacity=CAPACITY, refill=REFILL) + rules
        (self.home / "spile.toml").write_text(config)
        arguments = [self.binary, "serve", "--config", str(self.home / "spile.toml")]
        self.log = open(self.home / "log", "w+")
        self.spile = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=self.log)

    async def metrics(self):
        _, _, text = await Http(self.ports["admin"]).ask("GET", "/metrics")
        return text.decode()

    # The load: each door has its own clients and buckets.

    async def load(self, door, number):
        key, ask = f"{door}-{number % KEYS}", getattr(self, f"ask_{door}")
        client = Http(self.ports["gateway" if door == "gateway" else "http"])
        while not self.over():
            try:
                await asyncio.wait_for(ask(client, key), PATIENCE)
            except Exception as why:
                self.ledger.wonder(door, f"unanswered, {type(why).__name__} {why}")
                client.close()
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.01)
        client.close()

    async def ask_check(self, client, key):
        body = json.dumps({"ruleId": "check", "identity": key})
        status, _, text = await client.ask("POST", "/v1/check", "content-type: application/json\r\n", body)
        self.book_json("check", key, status, json.loads(text))

    async def ask_batch(self, client, key):
        body = json.dumps([{"ruleId": "batch", "identity": key}] * 3)
        status, _, text = await client.ask("POST", "/v1/check/batch", "content-type: application/json\r\n", body)
        for decision in json.loads(text) if status == 200 else []:
            self.book_json("batch", key, 200, decision)
        if status != 200:
            self.ledger.wonder("batch", status)

    def book_json(self, door, key, status, decision):
        if status not in (200, 429) or "allowed" not in decision:
            return self.ledger.wonder(door, f"{status} {decision}")
        self.ledger.book(door, key, decision["allowed"], decision["degraded"])

    async def ask_auth(self, client, key):
        status, answer, _ = await client.ask("GET", "/v1/auth/auth", f"x-forwarded-user: {key}\r\n")
        self.book_fields("auth", key, status, answer)

    async def ask_gateway(self, client, key):
        status, answer, _ = await client.ask("GET", "/soak", f"x-forwarded-user: {key}\r\n")
        self.book_fields("gateway", key, status, answer)

    def book_fields(self, door, key, status, answer):
        if status not in (200, 429) or "x-ratelimit-limit:" not in answer:
            return self.ledger.wonder(door, f"{status} {answer}")
        self.ledger.book(door, key, status == 200, "x-ratelimit-degraded: true" in answer)

    async def ask_resp(self, client, key):
        if client.stream is None:
            client.port = self.ports["resp"]
            client.stream = await asyncio.open_connection("127.0.0.1", client.port)
        reader, writer = client.stream
        writer.write(resp(["SPILE.CHECK", "resp", key]))
        reply = await read_resp(reader)
        if not isinstance(reply, list):
            return self.ledger.wonder("resp", reply)
        parts = dict(zip(reply[::2], reply[1::2]))
        self.ledger.book("resp", key, parts["allowed"] == 1, parts["degraded"] == 1)

    async def ask_grpc(self, client, key):
        if client.stream is None:
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{self.ports['grpc']}")
            client.stream = (None, Closing(channel))
        call = client.stream[1].channel.unary_unary("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
        entry = field(1, field(1, b"who") + field(2, key.encode()))
        answer = await call(field(1, b"soak") + field(2, entry), timeout=PATIENCE)
        code = answer[1] if answer[:1] == b"\x08" else 0
        if code not in (1, 2):
            return self.ledger.wonder("grpc", answer)
        self.ledger.book("grpc", key, code == 1, b"x-ratelimit-degraded" in answer.lower())

    # The faults, in turn.

    async def fault_pause_redis(self):
        self.redis.send_signal(signal.SIGSTOP)
        await asyncio.sleep(2)
        self.redis.send_signal(signal.SIGCONT)

    async def fault_kill_redis(self):
        self.redis.kill()
        self.redis.wait()
        await asyncio.sleep(1)
        # Before it is started: a bucket is full from the first moment on.
        self.restarts += 1
        self.start_redis()

    async def fault_cut_redis_connections(self):
        await self.redis_command("CLIENT", "KILL", "TYPE", "normal")

    async def fault_flush_scripts(self):
        await self.redis_command("SCRIPT", "FLUSH")

    async def fault_reload(self):
        for _ in range(5):
            self.spile.send_signal(signal.SIGHUP)
            await asyncio.sleep(0.2)

    async def fault_slow_clients(self):
        beginnings = {"http": b"GET /v1/", "gateway": b"GET / HT", "grpc": b"PRI * HTTP/2.0\r\n", "resp": b"*3\r\n$11\r\nSPI"}
        await asyncio.gather(*[self.hold(door, begun, 4) for door, begun in beginnings.items() for _ in range(40)])

    async def fault_flood_of_connections(self):
        await asyncio.gather(*[self.hold(door, b"", 1) for door in ["http", "admin", "gateway", "grpc", "resp"] for _ in range(150)])

    async def fault_broken_bytes(self):
        rubbish = os.urandom(2000)
        await asyncio.gather(*[self.hold(door, rubbish, 0.5) for door in ["http", "admin", "gateway", "grpc", "resp"] for _ in range(20)])

    async def fault_http2_resets(self):
        # A request and its reset, many times on one connection.
        host = b"127.0.0.1"
        request = bytes([0x82, 0x86, 0x84, 0x41, len(host)]) + host
        for door in ["http", "gateway", "grpc"]:
            streams = b"".join(
                frame(1, 5, stream, request) + frame(3, 0, stream, b"\0\0\0\x08") for stream in range(1, 1001, 2)
            )
            await self.hold(door, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + streams, 0.5)

    async def hold(self, door, sent, seconds):
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", self.ports[door]), PATIENCE)
            writer.write(sent)
            await asyncio.sleep(seconds)
            writer.close()
            await writer.wait_closed()
        except ConnectionError:
            pass  # a server may cut such a caller off
        except Exception as why:
            self.ledger.wonder(door, f"cannot connect, {type(why).__name__}")

    async def disturb(self):
        turns = [getattr(self, name) for name in Soak.__dict__ if name.startswith("fault_")]
        turn = 0
        while self.left() > PERIOD:
            fault = turns[turn % len(turns)]
            turn, begun, self.resting = turn + 1, time.monotonic(), False
            name = fault.__name__.removeprefix("fault_").replace("_", " ")
            try:
                await fault()
            except Exception as why:
                self.ledger.wonder("fault", f"{name}: {why}")
            self.faults.append(name)
            await asyncio.sleep(max(0, begun + PERIOD - REST - time.monotonic()))
            self.resting = True
            await asyncio.sleep(max(0, begun + PERIOD - time.monotonic()))

    async def sample(self):
        process = pathlib.Path(f"/proc/{self.spile.pid}")
        while not self.over():
            status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
            fds = len(list((process / "fd").iterdir()))
            usage = (int(status["VmRSS"].split()[0]), fds, int(status["Threads"]))
            self.samples.append((time.monotonic() - self.begun, self.resting, usage))
            await asyncio.sleep(1)

    def left(self):
        return self.begun + self.seconds - time.monotonic()

    def over(self):
        return self.left() <= 0

    async def run(self):
        self.start_redis()
        await asyncio.start_server(self.upstream, "127.0.0.1", self.ports["upstream"])
        self.start_spile()
        try:
            for port in ["redis", "http", "admin", "grpc", "resp", "gateway"]:
                await listens(self.ports[port])
            self.begun = time.monotonic()
            clients = [self.load(door, number) for door in DOORS for number in range(2 * KEYS)]
            await asyncio.gather(self.disturb(), self.sample(), *clients)
            # No request began before or ended after.
            lasted, metrics = time.monotonic() - self.begun, await self.metrics()
            stopping = time.monotonic()
            self.spile.terminate()
            code = await asyncio.to_thread(self.spile.wait, 60)
            self.log.seek(0)
            panics = self.log.read().count("panicked")
            return self.judge(lasted, metrics, code, time.monotonic() - stopping, panics)
        finally:
            for process in [self.spile, self.redis]:
                process.kill()
                process.wait()
            shutil.rmtree(self.home, ignore_errors=True)

    # The judgement.

    def judge(self, lasted, metrics, code, stop, panics):
        verdicts, lines = [], []

        def claim(what, holds):
            verdicts.append(holds)
            lines.append(f"| {what} | {'yes' if holds else '**no**'} |")

        second, last = self.fifth(1), self.fifth(4)
        (rss, fds, threads), (rss_end, fds_end, threads_end) = second, last
        claim(f"memory is flat: {rss / 1024:.1f} MB, at the end {rss_end / 1024:.1f} MB", rss_end <= rss * 1.1 + 4096)
        claim(f"descriptors are flat: {fds}, at the end {fds_end}", fds_end <= fds + 8)
        claim(f"threads are flat: {threads}, at the end {threads_end}", threads_end <= threads + 1)
        # Every bucket starts full, is full again when Redis has forgotten it, and refills meanwhile.
        due = CAPACITY * (1 + self.restarts) + REFILL * lasted
        most = max(self.ledger.granted.values(), default=0)
        least = min((self.ledger.granted[door, f"{door}-{n}"] for door in DOORS for n in range(KEYS)), default=0)
        claim(f"no bucket gave more than {due:.0f} tokens: the most is {most}", most <= due)
        claim(f"every bucket was asked for all that it had: the least gave {least}", least >= 0.6 * REFILL * lasted)
        for door in DOORS:
            told = [self.ledger.told[door, kind] for kind in ("allowed", "denied", "degraded")]
            counted = counters(metrics, door)
            claim(f"`{door}`: the server counted what clients were told, {counted}", told == counted)
        unexpected = ", ".join(f"{count} × {what}" for what, count in self.ledger.unexpected.most_common(5))
        claim(f"no answer was unexpected{': ' + unexpected if unexpected else ''}", not unexpected)
        claim(f"it stopped in {stop:.1f} s with exit code {code}, and nothing panicked", code == 0 and not panics)
        self.write(lasted, lines)
        print("\n".join(lines))
        return all(verdicts)

    def fifth(self, which):
        """The medians of a fifth of the run, in rest."""
        start, end = which * self.seconds / 5, (which + 1) * self.seconds / 5
        usages = [usage for at, resting, usage in self.samples if resting and start <= at < end]
        return [int(statistics.median(column)) for column in zip(*usages)]

    def write(self, lasted, lines):
        given = ", on the binary that `BINARY` names" if os.environ.get("BINARY") else ""
        told = collections.Counter()
        for (_, kind), count in self.ledger.told.items():
            told[kind] += count
        faults = collections.Counter(self.faults)
        text = [
            "# Soak",
            "",
            f"`bench/soak/run {self.seconds / 60:g}`{given}, {datetime.date.today():%-d %B %Y}, {os.cpu_count()} cores, {lasted:.0f} s.",
            "",
            f"{sum(told.values())} decisions at six doors: {told['allowed']} allowed, {told['denied']} denied, {told['degraded']} let pass"
            f" while Redis was away. Each of the {len(DOORS) * KEYS} buckets holds {CAPACITY} tokens and gets {REFILL} a second.",
            "",
            f"A fault every {PERIOD} s, {len(self.faults)} in all: " + ", ".join(f"{name} {count}×" for name, count in faults.items()) + ".",
            "",
            f"Memory, descriptors and threads are medians of the second and of the last fifth, over the last {REST} s before each fault.",
            "",
            "| | |",
            "|---|---|",
            *lines,
            "",
        ]
        (pathlib.Path(__file__).parent.parent / "results/soak.md").write_text("\n".join(text))


class Closing:
    """A channel that is closed as a stream is."""

    def __init__(self, channel):
        self.channel = channel

    def close(self):
        asyncio.ensure_future(self.channel.close())


def counters(metrics, rule):
    """What the server counted under a rule: allowed and denied by the store, and let pass without it."""
    counted = collections.Counter()
    for line in metrics.splitlines():
        if line.startswith("ratelimit_decisions_total{") and f'rule="{rule}"' in line:
            outcome = "degraded" if 'source="policy"' in line else "allowed" if 'outcome="allowed"' in line else "denied"
            counted[outcome] += int(float(line.rsplit(" ", 1)[1]))
    return [counted[kind] for kind in ("allowed", "denied", "degraded")]


def free_ports(names):
    sockets = [socket.socket() for _ in names]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = {name: one.getsockname()[1] for name, one in zip(names, sockets)}
    for one in sockets:
        one.close()
    return ports


async def listens(port):
    for _ in range(200):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            return writer.close()
        except OSError:
            await asyncio.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}")


def resp(words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words)


async def read_resp(reader):
    line = (await reader.readuntil(b"\r\n"))[:-2].decode()
    kind, rest = line[:1], line[1:]
    if kind == "*":
        return [await read_resp(reader) for _ in range(int(rest))]
    if kind == ":":
        return int(rest)
    if kind == "$" and rest != "-1":
        return (await reader.readexactly(int(rest) + 2))[:-2].decode()
    return None if kind == "$" else rest if kind == "+" else line


def field(number, value):
    """A field of a protobuf message, of fewer than 128 bytes."""
    return bytes([number << 3 | 2, len(value)]) + value


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(65536, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    sys.exit(0 if asyncio.run(Soak(sys.argv[1], float(sys.argv[2])).run()) else 1)
