"""The progress of long work, on a terminal and elsewhere."""
import io
import logging
import sys

import pytest

from ccnn._util import progress


@pytest.fixture
def said(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("ccnn"), "handlers", [])      # a command of another test may have set one
    caplog.set_level(logging.INFO, "ccnn")
    return lambda: [record.getMessage() for record in caplog.records]


def test_without_a_terminal_short_work_says_nothing(said, capsys):
    assert list(progress.Progress(range(5), desc="scoring", unit="image")) == list(range(5))
    assert said() == [] and capsys.readouterr() == ("", "")


def test_without_a_terminal_every_minute_is_a_line(said, capsys, monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL", 0)            # seconds
    with progress.Progress(total=4000, initial=1000, desc="head", unit="it") as bar:
        bar.set_postfix_str("loss 0.5", refresh=False)
        bar.update(1000)
        bar.update(0)                                       # nothing new, but a sign of life
    *_, line, again = said()
    assert line.startswith("head: 2000 of 4000, ") and line.endswith(" left, loss 0.5") and "it/s" in line
    assert again.startswith("head: 2000 of 4000, ")
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar(said, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(progress.Progress(range(5), desc="scoring", unit="image")) == list(range(5))
    assert "scoring: 100%|" in terminal.getvalue() and said() == []
