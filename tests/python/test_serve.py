"""`heed look --serve` over real HTTP: its answers, and everything that it refuses."""

import contextlib
import json
import os
import random
import socket
import subprocess
import threading

import numpy as np
import pytest

from serving import Served

ROWS, KEYS = 300, 260  # different, and not multiples of the steps


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with doc.safetensors: two batch entries of two heads, causal, with some masked keys."""
    folder = tmp_path_factory.mktemp("served")
    draw = np.random.default_rng(3)
    for name, count in (("q", ROWS), ("k", KEYS), ("v", KEYS)):
        np.save(folder / f"{name}.npy", draw.standard_normal((2, 2, count, 8), dtype=np.float32))
    mask = draw.random((ROWS, KEYS)) < 0.7
    mask[100] = False
    np.save(folder / "mask.npy", mask)
    command(folder, "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--causal", "--mask", "mask.npy", "--save",
            "doc.safetensors")
    return folder


def command(folder, *arguments, code=0):
    done = subprocess.run([os.environ["HEED_COMMAND"], "look", *map(str, arguments)], cwd=folder, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def served(folder):
    with Served(folder, "doc.safetensors") as served:
        yield served


def cells_of(folder, batch, head):
    """All weights, from the command's --tile; masked cells are -inf."""
    told = json.loads(command(folder, "doc.safetensors", "--batch", batch, "--head", head, "--tile", f"0:{ROWS},0:{KEYS}",
                              "--json").stdout)
    weights = np.array(told["weights"], np.float64).reshape(ROWS, KEYS)
    return np.where(np.array(told["allowed"], bool).reshape(ROWS, KEYS), weights, -np.inf)


def binned(cells, step):
    shape = [-(-count // step) for count in cells.shape]
    bins = np.full(shape, -np.inf)
    for (row, key), weight in np.ndenumerate(cells):
        if weight > -np.inf:
            place = row // step, key // step
            bins[place] = max(bins[place], 0) + weight
    return bins


def test_the_page_is_served_and_may_ask_its_server_alone(served):
    status, body, headers = served.ask("/")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    assert b"default-src 'none'" in body and b"connect-src 'self'\">" in body
    assert headers["Referrer-Policy"] == "no-referrer" and headers["Cache-Control"] == "no-store"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert served.ask("/", headers={"Accept-Encoding": "gzip, br"})[1] == body


def test_a_page_in_a_file_has_no_network(folder):
    command(folder, "doc.safetensors", "--html", "page.html")
    assert "connect-src" not in (folder / "page.html").read_text()


def test_weights_are_those_of_the_command(served, folder):
    for head in range(4):
        cells = cells_of(folder, head // 2, head % 2).astype(np.float32)
        np.testing.assert_array_equal(served.tile(head, (0, ROWS), (0, KEYS)), cells)
        np.testing.assert_array_equal(served.tile(head, (7, 8), (0, KEYS)), cells[7:8])
        np.testing.assert_array_equal(served.tile(head, (250, 300), (11, 60)), cells[250:300, 11:60])


def test_bins_are_the_sums_of_their_weights(served, folder):
    cells = cells_of(folder, 1, 0)
    for rows, keys, step in [((0, ROWS), (0, KEYS), 7), ((64, 200), (32, 250), 16), ((3, 9), (0, 5), 1000)]:
        found = served.tile(2, rows, keys, step)
        expected = binned(cells[rows[0]:rows[1], keys[0]:keys[1]], step)
        np.testing.assert_array_equal(found == -np.inf, expected == -np.inf)
        some = expected > -np.inf
        np.testing.assert_allclose(found[some], expected[some], rtol=2e-5, atol=1e-9)


@pytest.mark.parametrize("query, names", [
    ("", "4 parameters|head, rows, keys and step"), ("?head=0&rows=0:1&keys=0:1", "there are 3 parameters; head, rows, keys and step are expected"),
    ("?head=0", "there is 1 parameter; "),
    ("?head=4&rows=0:1&keys=0:1&step=1", "head is '4'; 0 to 3"), ("?head=-1&rows=0:1&keys=0:1&step=1", "head is '-1'"),
    ("?head=0&head=1&rows=0:1&keys=0:1", "head is given more than once"),
    ("?head=0&rows=0:301&keys=0:1&step=1", "rows is '0:301'; FROM:TO within 0:300"),
    ("?head=0&rows=5:5&keys=0:1&step=1", "rows is '5:5'"), ("?head=0&rows=5:4&keys=0:1&step=1", "rows is '5:4'"),
    ("?head=0&rows=0:1&keys=0&step=1", "keys is '0'"), ("?head=0&rows=0:1&keys=0:1:2&step=1", "keys is '0:1:2'"),
    ("?head=0&rows=0:1&keys=0:261&step=1", "keys is '0:261'"), ("?head=0&rows=0:1&keys=0:1&step=0", "step is '0'"),
    ("?head=0&rows=0:1&keys=0:1&step=1e3", "step is '1e3'"), ("?head=0&rows=0:1&keys=0:1&step=99999999999999999999", "step is"),
    ("?head=0&rows=0:1&keys=0:1&size=1", "step is given not at all"), ("?head=0&rows=0:1&keys=0:1&step=1&x=1", "5 parameters"),
    ("?head=%1b[31m&rows=0:1&keys=0:1&step=1", r"head is '\x1B[31m'"),
])
def test_pieces_that_are_not_there_are_refused_in_a_sentence(served, query, names):
    status, body, headers = served.ask("/tile" + query)
    assert status == 400 and headers["Content-Type"].startswith("text/plain")
    assert any(name in body.decode() for name in names.split("|")) and body.count(b"\n") == 1


def test_pieces_that_are_too_large_are_refused(tmp_path):
    draw = np.random.default_rng(3)
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", draw.standard_normal((5000, 2), dtype=np.float32))
    with Served(tmp_path, "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--no-received") as served:
        piece = "/tile?head=0&rows=0:5000&keys=0:5000&step="
        assert served.ask(piece + "1")[:2] == (400, b"the tile has 5000 x 5000 bins; 1048576 at most are expected\n")
        assert served.ask(piece + "64")[:2] == (400, b"the tile has 5000 x 5000 weights; 16777216 at most are expected\n")
        assert served.tile(0, (0, 4096), (0, 4096), 64).sum() == pytest.approx(
            sum(served.tile(0, (row, row + 128), (0, 4096)).sum(dtype=float) for row in range(0, 4096, 128)), rel=1e-5)


@pytest.mark.parametrize("prefix", ["", "/", "/00000000000000000000000000000000", "/TOKEN0", "/TOKE", "//TOKEN", "/x/TOKEN",
                                    "/../TOKEN", "/%00TOKEN", "/TOKEN%00"])
def test_without_the_token_nothing_is_told(served, prefix):
    prefix = prefix.replace("TOKEN", served.token).replace("TOKE", served.token[:-1])
    for path in ("/", "/tile?head=0&rows=0:1&keys=0:1&step=1", "/favicon.ico"):
        status, body, _ = served.ask(path, prefix=prefix)
        assert status == 403 and body.startswith(b"the token in the address is missing or wrong"), (prefix, path)


@pytest.mark.parametrize("path", ["/../../etc/passwd", "/..%2f..%2fetc%2fpasswd", "/tile/", "/tile/../", "//", "/tile%00", "/./",
                                  "/%2e%2e/", "/doc.safetensors", "", "/tile;x"])
def test_there_are_no_other_paths(served, path):
    status, body, _ = served.ask(path)
    assert (status, body) == (404, b"the path is neither the page nor tile\n")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:PORT", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:PORT",
                                  "[::1]:PORT", "127.0.0.1:PORT@evil.example", "127.0.0.2:PORT"])
def test_another_host_is_refused_before_all_else(served, host):
    status, body, _ = served.ask("/", headers={"Host": host.replace("PORT", str(served.port))})
    assert status == 403 and body.startswith(b"the Host header is not this server's")


def test_the_host_is_named_once(served):
    line = f"GET /{served.token}/ HTTP/1.1\r\n"
    host = f"Host: 127.0.0.1:{served.port}\r\n"
    assert served.raw((line + host + "Connection: close\r\n\r\n").encode()).startswith(b"HTTP/1.1 200")
    assert served.raw((line + "Connection: close\r\n\r\n").encode()).startswith(b"HTTP/1.1 403")
    assert served.raw((line + host + "Host: evil.example\r\nConnection: close\r\n\r\n").encode()).startswith(b"HTTP/1.1 403")
    assert served.ask("/", headers={"Host": f"localhost:{served.port}"})[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "PRI", "CONNECT", "TRACE"])
def test_nothing_but_get_is_answered(served, method):
    status, body, headers = served.ask("/", method=method)
    assert status in ((405,) if method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD") else (400, 405))
    assert headers["Allow"] == "GET" or status == 400


def test_parts_of_an_answer_are_refused(served):
    assert served.ask("/", headers={"Range": "bytes=0-1,2-3"})[0] == 400


@pytest.mark.parametrize("parts", ["bytes=0-3", "bytes=2-5", "bytes=0-1,2-3", "bytes=-4", "bytes=5000-"])
def test_no_refusal_is_cut_to_the_range_that_was_asked_for(served, parts):
    refused = b"a Range header is given; this server sends only whole answers\n"
    assert served.ask("/", headers={"Range": parts})[:2] == (400, refused)
    for path, prefix, status in [("/x", None, 404), ("/", "/wrong", 403)]:
        whole = served.ask(path, prefix=prefix)[1]
        assert served.ask(path, headers={"Range": parts}, prefix=prefix)[:2] == (status, whole)


def test_connections_that_say_nothing_hold_up_nobody(served):
    idle = [socket.create_connection(("127.0.0.1", served.port), timeout=20) for _ in range(20)]
    try:
        for link in idle[10:]:
            link.sendall(b"GET /")
        assert served.ask("/x")[0] == 404
        for link in idle[10:]:  # the server still waits for the rest of each: the answer did not wait for their end
            link.setblocking(False)
            with pytest.raises(BlockingIOError):
                link.recv(1)
    finally:
        for link in idle:
            link.close()


def test_many_ask_at_once(served, folder):
    cells = cells_of(folder, 0, 1).astype(np.float32)
    wrong = []

    def ask(seed):
        draw = random.Random(seed)
        for _ in range(20):
            row, key = draw.randrange(ROWS - 20), draw.randrange(KEYS - 30)
            if not np.array_equal(served.tile(1, (row, row + 20), (key, key + 30)), cells[row:row + 20, key:key + 30]):
                wrong.append((row, key))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_random_bytes_do_no_harm(served):
    seed = 20240611
    draw = random.Random(seed)
    good = f"GET /{served.token}/tile?head=0&rows=0:9&keys=0:9&step=1 HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n\r\n".encode()
    answered = 0
    for turn in range(150):
        data = bytearray(good if turn % 3 else draw.randbytes(draw.randrange(400)))
        for _ in range(draw.randrange(1, 12)):
            kind, place = draw.randrange(4), draw.randrange(len(data) + 1)
            if kind == 0:
                data[place:place] = draw.randbytes(draw.randrange(1, 9))
            elif kind == 1:
                del data[place:place + draw.randrange(1, 9)]
            elif kind == 2:
                data[place:place + 1] = draw.choice([b"\r\n", b"%", b"\x00", b":", b"&", b"=", b"/", b" ", b"-1", b"9" * 30])
            else:
                data += data[place:place + 50]
        answer = served.raw(bytes(data), patience=0.05)
        answered += answer.startswith(b"HTTP/1.1 200")
        assert answer == b"" or answer.startswith(b"HTTP/1.1 "), (seed, turn, bytes(data))
        assert served.process.poll() is None, (seed, turn, bytes(data))
    assert served.tile(0, (0, 9), (0, 9)).shape == (9, 9) and answered > 0


def test_endless_requests_are_cut(served):
    start = f"GET /{served.token}/?".encode()
    assert served.raw(start + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n")[:12] in (b"HTTP/1.1 414", b"HTTP/1.1 400", b"")
    assert served.raw(start + b" HTTP/1.1\r\nX: " + b"y" * 100_000 + b"\r\n\r\n")[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 403", b"")
    assert served.ask("/")[0] == 200


def test_it_listens_here_alone_and_ends_cleanly(folder):
    with Served(folder, "doc.safetensors") as served:
        with socket.create_connection(("127.0.0.1", served.port), timeout=20):  # an idle connection blocks nothing
            listening = open("/proc/net/tcp").read()
            assert f"0100007F:{served.port:04X}" in listening and f"00000000:{served.port:04X}" not in listening
            assert served.end() == ("", 0)
        assert served.told.endswith("The server has stopped.\n")
        assert served.told.count(served.token) == 1


def test_clients_that_send_and_read_forever_hold_up_no_end(folder):
    with Served(folder, "doc.safetensors") as served:
        slow = [socket.create_connection(("127.0.0.1", served.port), timeout=20) for _ in range(4)]
        for link in slow[:2]:
            link.sendall(b"GET / HTTP/1.1\r\nX: ")
        for link in slow[2:]:  # asks for more than the system buffers, and reads none of it
            link.sendall(f"GET /{served.token}/ HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n\r\n".encode() * 400)
        ended = threading.Event()

        def drip():
            while not ended.wait(0.5):
                for link in slow[:2]:
                    with contextlib.suppress(OSError):
                        link.sendall(b"y")

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert served.end() == ("", 0)
        finally:
            ended.set()
            dripping.join()
            for link in slow:
                link.close()
        assert served.told.endswith("The server has stopped.\n")


def test_a_port_may_be_chosen_and_may_be_taken(folder):
    with Served(folder, "doc.safetensors") as first:
        done = command(folder, "doc.safetensors", "--serve", "--port", first.port, code=1)
        assert f"port {first.port} of 127.0.0.1 cannot be opened" in done.stderr
        with Served(folder, "doc.safetensors") as second:
            assert (first.port, first.token) != (second.port, second.token) and first.token != second.token


@pytest.mark.parametrize("arguments, complaint", [
    (["--serve", "--row", "1"], "--row and --serve are both given"), (["--serve", "--head", "0"], "--head is given together with --serve"),
    (["--port", "80"], "--port is given without --serve"), (["--serve", "--port", "65536"], "--port is '65536'"),
    (["--serve", "--json"], "--json is given together with --serve"), (["--proof"], "--proof is given without --html FILE.html or --serve"),
])
def test_bad_use_is_refused(folder, arguments, complaint):
    assert complaint in command(folder, "doc.safetensors", *arguments, code=2).stderr
