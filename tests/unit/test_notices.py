"""Signs of life are heard by who wants to, and only meanwhile."""

from __future__ import annotations

from contextlib import contextmanager

from weir.notices import signs_shown_by, under_way


def test_signs_of_life_reach_who_listens():
    heard = []

    @contextmanager
    def listen(text):
        heard.append(f"{text} begins")
        yield
        heard.append(f"{text} ends")

    with under_way("nobody hears this"):
        pass
    with signs_shown_by(listen), under_way("Spark"):
        heard.append("inside")
    with under_way("nor this"):
        pass
    assert heard == ["Spark begins", "inside", "Spark ends"]
