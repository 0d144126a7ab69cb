"""What a capture reads of connections: real ones of this process, on the loopback."""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("torch")

from profkit.capture.inside.record import connections
from profkit.capture.inside.record.connections import Connections

SENT = 3_000_000
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux counts this")


@contextmanager
def connected(server: socket.socket, address: tuple[str, int]) -> Iterator[tuple[socket.socket, socket.socket]]:
    with server, socket.create_connection(address) as here, server.accept()[0] as there:
        yield here, there


def local() -> tuple[socket.socket, tuple[str, int]]:
    server = socket.create_server(("127.0.0.1", 0))
    return server, server.getsockname()[:2]


def send(here: socket.socket, there: socket.socket) -> None:
    def receive() -> None:
        left = SENT
        while left:
            left -= len(there.recv(min(left, 1 << 16)))

    reader = threading.Thread(target=receive)
    reader.start()
    here.sendall(bytes(SENT))
    reader.join()


@pytest.fixture
def among_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_is_one_of_several", lambda: True)


def seen_while_sending(pair: tuple[socket.socket, socket.socket]) -> list[dict]:
    watch = Connections()
    watch.begin()
    send(*pair)
    return watch.end()


def of_this(rows: list[dict]) -> dict[int, dict]:
    """The two ends of the connection that carried what was sent, by end."""
    name = max(rows, key=lambda row: row["acked_bytes"])["id"]
    return {row["end"]: row for row in rows if row["id"] == name}


@pytest.mark.usefixtures("among_ranks")
def test_both_ends_of_a_connection_have_one_name_and_what_each_sent():
    with connected(*local()) as (here, there):
        there.sendall(b"before" * 1000)
        here.recv(6000, socket.MSG_WAITALL)
        rows = seen_while_sending((here, there))
        port = str(here.getsockname()[1])
    ends = of_this(rows)
    assert sorted(ends) == [0, 1]
    sender, receiver = sorted(ends.values(), key=lambda row: -row["acked_bytes"])
    assert sender["acked_bytes"] == SENT == receiver["received_bytes"]
    assert receiver["acked_bytes"] == sender["received_bytes"] == 0
    assert 0 <= sender["peer_limited_ns"] <= sender["busy_ns"] < 60 * 10**9
    assert sender["round_trip_ns"] > 0
    text = json.dumps(rows)
    assert "127.0.0.1" not in text
    assert f'"{port}"' not in text


@pytest.mark.usefixtures("among_ranks")
def test_an_end_that_calls_its_address_ipv6_has_the_same_name():
    if not socket.has_dualstack_ipv6():
        pytest.skip("no socket of both families here")
    server = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    with connected(server, ("127.0.0.1", server.getsockname()[1])) as pair:
        rows = seen_while_sending(pair)
    assert sorted(of_this(rows)) == [0, 1]


@pytest.mark.usefixtures("among_ranks")
def test_a_connection_of_the_window_counts_from_its_beginning():
    watch = Connections()
    watch.begin()
    with connected(*local()) as pair:
        send(*pair)
        rows = watch.end()
    assert max(row["acked_bytes"] for row in rows) in (SENT, SENT + 1)  # Linux counts the beginning as one


@pytest.mark.usefixtures("among_ranks")
def test_the_sockets_stay_as_they_were():
    with connected(*local()) as (here, _):
        here.settimeout(None)
        socket.setdefaulttimeout(3)
        try:
            connections.established()
        finally:
            socket.setdefaulttimeout(None)
        assert here.getblocking()


def test_of_a_process_that_is_no_rank_among_several_nothing_is_read():
    with connected(*local()) as pair:
        assert seen_while_sending(pair) == []


@pytest.mark.usefixtures("among_ranks")
def test_a_kernel_that_does_not_count_is_no_failure(monkeypatch: pytest.MonkeyPatch):
    with connected(*local()):
        monkeypatch.setattr(connections, "_TIMES_AT", 4096)
        assert connections.established() == {}
        monkeypatch.setattr(connections, "_DESCRIPTORS", "/nowhere")
        watch = Connections()
        watch.begin()
        assert watch.end() == []


@pytest.mark.usefixtures("among_ranks")
def test_no_more_than_a_bounded_number_is_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "_MOST_KEPT", 1)
    with connected(*local()) as pair:
        (row,) = seen_while_sending(pair)
    assert SENT in (row["acked_bytes"], row["received_bytes"])
