"""Who holds the lock that the training thread waits for: by stacks and by blocks of the source."""

import threading

import pytest

from profkit.capture.inside.holders import Holders
from profkit.capture.inside.places.looked import frames_now


class Store:
    def __init__(self):
        self.lock, self.other_lock = threading.Lock(), threading.Lock()
        self.is_in, self.may_go = threading.Event(), threading.Event()

    def rest(self):
        self.is_in.set()
        self.may_go.wait(10)

    def fill(self):
        with self.lock:
            for _ in range(1):
                self.rest()

    def fill_other(self):
        with self.other_lock:
            self.rest()

    def wait_as_well(self):
        self.rest()
        with self.lock:
            pass


def waits(store):
    with store.lock:
        return store


def looks_only(store):
    return store.lock


def told(runs, line, n=8):
    """What is told of looks at a line of this file while another thread runs that."""
    store = Store()
    thread = threading.Thread(target=getattr(store, runs), name="collector")
    thread.start()
    store.is_in.wait(10)
    holders = Holders()
    at = (line.__code__.co_filename, line.__code__.co_firstlineno + 1, line.__name__)
    for _ in range(n):
        holders.look(at, frames_now, threading.get_ident(), lambda file: file == __file__)
    store.may_go.set()
    thread.join()
    return holders.told().get("locks", [])


def test_the_thread_is_named_with_its_block_and_what_it_does_in_it():
    (found,) = told("fill", waits)
    assert (found["thread"], found["n_looks"]) == ("collector", 8)
    assert (found["waits"]["text"], found["block"]["text"]) == ("with store.lock:", "with self.lock:")
    assert (found["block"]["function"], found["block"]["share"]) == ("fill", 1.0)
    assert found["inside"]["text"] == "self.may_go.wait(10)"


@pytest.mark.parametrize(
    ("runs", "line", "n"),
    [("fill_other", waits, 8), ("wait_as_well", waits, 8), ("fill", looks_only, 8), ("fill", waits, 2)],
    ids=["another lock", "no block", "no wait", "few looks"],
)
def test_nobody_is_named_for(runs, line, n):
    assert told(runs, line, n) == []
