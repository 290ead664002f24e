"""A Redis server on a free port of this machine, which ends with its block."""
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time


class RedisServer:
    def __enter__(self):
        self.folder = tempfile.mkdtemp()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        options = ["--bind", "127.0.0.1", "--save", "", "--dir", self.folder]
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), *options], stdout=subprocess.DEVNULL)
        ends = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return self
            except ConnectionRefusedError:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.01)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def cpu_us(self):
        """The CPU time of its main thread so far, which runs the scripts."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/schedstat").read_text().split()
        return int(fields[0]) / 1_000

    def flush(self):
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(b"FLUSHALL\r\n")
            connection.recv(16)
