"""Work in the background: in order, settled when it says so, and never the end of the thread."""

from __future__ import annotations

import logging
import threading

import pytest

from weir.failpoint import ProcessDeath
from weir.jobmanager.background import BackgroundThread, Inline, carry_out
from weir.testing import ManualClock


def test_work_is_carried_out_in_order_and_settled():
    worker, done, gate = BackgroundThread("test"), [], threading.Event()
    worker.run(gate.wait, "waiting")
    for number in range(5):
        worker.run(lambda number=number: done.append(number), f"adding {number}")
    assert done == []
    gate.set()
    worker.settle()
    assert done == [0, 1, 2, 3, 4]
    worker.close()


def raising(error):
    raise error


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_what_fails_is_logged_and_the_next_piece_is_carried_out(error, caplog):
    worker, done = BackgroundThread("test"), []
    with caplog.at_level(logging.ERROR, "weir.jobmanager"):
        worker.run(lambda: raising(error), "committing checkpoint 7")
        worker.run(lambda: done.append("next"), "the next piece")
        settled = threading.Thread(target=worker.settle, daemon=True)
        settled.start()
        settled.join(30)
    assert not settled.is_alive()
    assert done == ["next"]
    assert "committing checkpoint 7 failed" in caplog.text
    assert error.__name__ in caplog.text
    worker.close()


def test_the_death_of_the_process_is_nothing_that_is_logged(caplog):
    with pytest.raises(ProcessDeath):
        carry_out(lambda: raising(ProcessDeath), "committing checkpoint 7")
    assert caplog.text == ""


class Heard(logging.Handler):
    """Keeps what is said, and acts then."""

    def __init__(self, act):
        super().__init__(logging.WARNING)
        self.said, self._act = [], act

    def emit(self, record):
        self.said.append(record.getMessage())
        self._act(len(self.said))


def test_who_waits_says_again_and_again_what_for_and_how_long():
    clock, begun, gate = ManualClock(), threading.Event(), threading.Event()
    worker = BackgroundThread("test", clock, say_s=0.01)

    def commit():
        begun.set()
        gate.wait()

    def pass_time(times):
        clock.advance(60_000)
        if times == 3:
            gate.set()

    worker.run(commit, "committing checkpoint 7")
    worker.run(lambda: None, "committing checkpoint 8")
    assert begun.wait(30)
    clock.advance(40_500)
    heard = Heard(pass_time)
    log = logging.getLogger("weir.jobmanager")
    log.addHandler(heard)
    try:
        worker.settle()
    finally:
        log.removeHandler(heard)
    for said, seconds in zip(heard.said, (40, 100, 160), strict=False):
        assert said.startswith(f"committing checkpoint 7 has taken {seconds} s so far")
    assert len(heard.said) >= 3
    worker.close()


def test_who_need_not_wait_says_nothing(caplog):
    worker = BackgroundThread("test")
    worker.run(lambda: None, "nothing")
    worker.settle()
    worker.close()
    assert caplog.text == ""


def test_a_closed_worker_ends_its_thread_after_its_work():
    worker, done = BackgroundThread("closed worker"), []
    (thread,) = [t for t in threading.enumerate() if t.name == "closed worker"]
    worker.run(lambda: done.append(1), "adding")
    worker.close()
    thread.join(5)
    assert done == [1]
    assert not thread.is_alive()


def test_inline_work_is_done_at_once():
    done = []
    Inline().run(lambda: done.append(1), "adding")
    Inline().settle()
    Inline().close()
    assert done == [1]
