"""Where threads are: their names, their calls from the outside in, and how often."""

import threading

from weir.slot.stacks import Stack, current_stacks, decode_stacks, frames_of, stacks


def waits_here(begun: threading.Event, go: threading.Event) -> None:
    begun.set()
    go.wait(30)


def waiting() -> tuple[threading.Thread, threading.Event]:
    begun, go = threading.Event(), threading.Event()
    thread = threading.Thread(target=waits_here, args=(begun, go), name="a thread that waits")
    thread.start()
    begun.wait(10)
    return thread, go


def test_a_thread_is_found_where_it_waits_and_the_one_that_looks_is_not() -> None:
    thread, go = waiting()
    try:
        (found,) = [s for s in current_stacks() if s.thread == "a thread that waits"]
        assert any(frame.startswith("waits_here (") for frame in found.frames)
        places = [i for i, f in enumerate(found.frames) if "waits_here" in f or ".wait (" in f]
        assert places == sorted(places)
        assert not any("current_stacks" in f for s in current_stacks() for f in s.frames)
    finally:
        go.set()
        thread.join()


def test_samples_are_counted_by_place() -> None:
    thread, go = waiting()
    try:
        found = [s for s in stacks(100) if s.thread == "a thread that waits"]
        assert sum(stack.count for stack in found) == 10
    finally:
        go.set()
        thread.join()


def test_deep_stacks_keep_what_is_nearest_to_the_work() -> None:
    def deeper(left: int) -> tuple[str, ...]:
        import sys

        return frames_of(sys._getframe()) if left == 0 else deeper(left - 1)

    found = deeper(300)
    assert len(found) == 200
    assert "deeper" in found[0]


def test_stacks_travel_as_they_are() -> None:
    import msgspec

    sent = [Stack("main", ("a (x:1)", "b (y:2)"), 3)]
    assert decode_stacks(msgspec.msgpack.encode(sent)) == sent
