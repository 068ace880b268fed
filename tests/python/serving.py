"""Runs `heed look --serve` for tests, and speaks HTTP at the level of bytes."""

import http.client
import os
import re
import signal
import socket
import subprocess

import numpy as np


class Served:
    """A running server: with Served(FOLDER, ARGUMENT, …) as served."""

    def __init__(self, folder, *arguments):
        self.process = subprocess.Popen([os.environ["HEED_COMMAND"], "look", *map(str, arguments), "--serve"], cwd=folder,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.told = ""
        for line in self.process.stdout:
            self.told += line
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/([0-9a-f]{32})/", line):
                self.address, self.port, self.token = found[0], int(found[1]), found[2]
                return
        raise AssertionError(self.told + self.process.stderr.read())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.end()

    def end(self):
        """Sends Ctrl-C. Returns what it printed from then on, and its exit code."""
        self.process.send_signal(signal.SIGINT)
        told, complaint = self.process.communicate(timeout=20)
        self.told += told
        return complaint, self.process.returncode

    def ask(self, path, method="GET", headers=None, prefix=None):
        """Status and body of a request; `prefix` replaces /TOKEN."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, (f"/{self.token}" if prefix is None else prefix) + path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()

    def tile(self, head, rows, keys, step=1):
        """The numbers of a tile, [bins of rows, bins of keys]; masked ones are -inf."""
        status, body, _ = self.ask(f"/tile?head={head}&rows={rows[0]}:{rows[1]}&keys={keys[0]}:{keys[1]}&step={step}")
        assert status == 200, body
        return np.frombuffer(body, "<f4").reshape(-(-(rows[1] - rows[0]) // step), -(-(keys[1] - keys[0]) // step))

    def raw(self, data, patience=20):
        """The response to these bytes, however malformed. Waits `patience` seconds for its beginning."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=patience) as link:
            answer = b""
            try:
                link.sendall(data)
                try:
                    answer = link.recv(65536)
                except TimeoutError:
                    pass  # the server waits for more bytes
                link.settimeout(20)
                link.shutdown(socket.SHUT_WR)
                while piece := link.recv(65536):
                    answer += piece
            except OSError:
                pass  # the server may close the connection at once
            return answer
