"""Work in the background: in order, settled when it says so, and never the end of the thread."""

from __future__ import annotations

import logging
import threading

from weir.jobmanager.background import BackgroundThread, Inline


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


def test_what_fails_is_logged_and_the_next_piece_is_carried_out(caplog):
    worker, done = BackgroundThread("test"), []
    with caplog.at_level(logging.ERROR, "weir.jobmanager"):
        worker.run(lambda: done.append(1 // 0), "dividing")
        worker.run(lambda: done.append("next"), "the next piece")
        worker.settle()
    assert done == ["next"]
    assert "dividing failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    worker.close()


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
