"""What would abort the process is told in one line."""
import os

from ccnn._util.try_in_child import try_in_child


def test_a_trial_reports_every_way_to_end():
    assert try_in_child(lambda: None) is None
    assert try_in_child(lambda: 1 / 0) == "division by zero"
    assert try_in_child(lambda: os._exit(3)) is not None
    assert "signal 9" in try_in_child(lambda: os.kill(os.getpid(), 9))
