"""What people see while the demo runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from weir.cli.demo_screen import PlainScreen, QuietScreen, live_view, open_screen
from weir.demo.recount import Comparison
from weir.demo.run import DemoResult
from weir.demo.steps import Killed, Moved
from weir.demo.tracking import Figures


def figures(seconds, rows=500_000):
    return Figures(seconds, rows, 2_000_000, 120_000, 1, 9, 2, 300_000, 4, 5_400_000, 900)


EXPECTED = ["500,000 (25%)", "120,000", "4 (last 5.4 MB, 900 ms)", "300,000 entries"]


def test_a_screen_without_a_terminal_prints_milestones_only(capsys):
    screen = open_screen(quiet=False)
    with screen:
        for tenth in range(41):
            screen.show(figures(tenth / 10, rows=tenth * 30_000))
        screen.say("Killed slot 1")
        for tenth in range(101):  # what is done again is no milestone
            screen.show(figures(4 + tenth / 10, rows=1_000_000 + tenth * 10_000))
    lines = capsys.readouterr().out.splitlines()
    assert ["Killed" in line for line in lines] == [False, False, True, False, False]
    assert all(text in lines[0] for text in ["510,000 (25%)", *EXPECTED[1:]])
    assert ["(51%)" in lines[1], "(75%)" in lines[3], "(100%)" in lines[4]] == [True] * 3


def test_the_live_view_has_every_figure_on_its_own_line():
    console = Console(file=io.StringIO(), width=100)
    console.print(live_view(figures(3)))
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 9
    assert all(any(text in line for line in lines[1:]) for text in EXPECTED)


@pytest.mark.parametrize("kill", [None, Killed(77, 5_500)])
@pytest.mark.parametrize("move", [None, Moved("file:///s", 5_000_000, 1_200, 2, 3, 4_300)])
def test_the_result_shows_the_recount_the_recovery_and_the_savepoint(kill, move, capsys):
    comparison = Comparison(10, 9, lost=2, duplicated=1, different=3)
    PlainScreen().result(DemoResult(comparison, kill, move, 12.3, figures(12)))
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.startswith("│"))
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["10", "9", "2", "1", "3"]
    assert ("first epoch after it: 5.5 s" in out) is (kill is not None)
    told = "Savepoint of 5.0 MB, job stopped with it in 1.2 s; from 2 to 3 subtasks"
    assert (told in out, "4.3 s after the start" in out) == (move is not None, move is not None)
    assert f"{'The job' if move is None else 'Both jobs'} ran 12.3 s" in out


def test_the_result_tells_of_a_dead_broker(capsys):
    comparison = Comparison(10, 10, lost=0, duplicated=0, different=0)
    killed = Killed(78, 6_500)
    PlainScreen().result(DemoResult(comparison, None, None, 9.0, figures(9), broker=killed))
    out = capsys.readouterr().out
    assert "Committed records against a recount" in out
    assert "the broker's death to the first records after it: 6.5 s" in out


def test_a_quiet_screen_says_nothing(capsys):
    screen = open_screen(quiet=True)
    assert isinstance(screen, QuietScreen)
    screen.say("hello")
    screen.show(figures(1))
    assert capsys.readouterr().out == ""
