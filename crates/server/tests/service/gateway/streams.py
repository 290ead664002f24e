"""gRPC's own C library on both sides of the gateway: long streams of small messages, and calls of strangers beside them.

Serves on a free port, prints it, reads the gateway's address, and talks to itself through the gateway.
Usage: grpc_streams.py MESSAGES [CERTIFICATE KEY]
"""

import concurrent.futures
import sys
import threading

import grpc

MESSAGES = int(sys.argv[1])
SMALL = b"x" * 16


def same(message):
    return message


class Service(grpc.GenericRpcHandler):
    def service(self, details):
        calls = {
            "/t.T/Unary": grpc.unary_unary_rpc_method_handler(lambda request, _: request),
            "/t.T/Down": grpc.unary_stream_rpc_method_handler(lambda request, _: (SMALL for _ in range(int(request)))),
            "/t.T/Up": grpc.stream_unary_rpc_method_handler(lambda requests, _: str(sum(1 for _ in requests)).encode()),
            "/t.T/Both": grpc.stream_stream_rpc_method_handler(lambda requests, _: requests),
        }
        return calls.get(details.method)


def serve():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(16), handlers=[Service()])
    if len(sys.argv) > 2:
        certificate, key = (open(path, "rb").read() for path in sys.argv[2:4])
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def down(channel):
    return sum(1 for _ in channel.unary_stream("/t.T/Down")(str(MESSAGES).encode()))


def up(channel):
    return int(channel.stream_unary("/t.T/Up")(SMALL for _ in range(MESSAGES)))


def both(channel):
    return sum(1 for _ in channel.stream_stream("/t.T/Both")(SMALL for _ in range(MESSAGES)))


class Strangers:
    """Call after call on connections of their own, until told to stop."""

    def __init__(self, address):
        self.stop, self.calls, self.failures = threading.Event(), 0, []
        self.threads = [threading.Thread(target=self.run, args=[address]) for _ in range(2)]
        for thread in self.threads:
            thread.start()

    def run(self, address):
        with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            while not self.stop.is_set():
                try:
                    channel.unary_unary("/t.T/Unary")(SMALL, timeout=20)
                    self.calls += 1
                except grpc.RpcError as error:
                    self.failures.append(str(error))
                self.stop.wait(0.005)

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        assert not self.failures, self.failures[:3]
        assert self.calls > 10, self.calls


def main():
    server, port = serve()
    print(port, flush=True)
    address = sys.stdin.readline().strip()
    strangers = Strangers(address)
    with grpc.insecure_channel(address) as channel:
        # Streams that are not read: their frames must stay nobody's trouble but their own.
        unread = [channel.unary_stream("/t.T/Down")(str(MESSAGES).encode()) for _ in range(3)]
        first = [next(stream) for stream in unread]
        assert first == [SMALL] * 3, first
        for name, call in [("down", down), ("up", up), ("both", both)]:
            count = call(channel)
            assert count == MESSAGES, (name, count)
            print(name, count, flush=True)
        rest = [sum(1 for _ in stream) for stream in unread]
        assert rest == [MESSAGES - 1] * 3, rest
    strangers.end()
    print("strangers", strangers.calls, flush=True)
    server.stop(None)


main()
