"""What would abort the process is told in one line."""
import os

from ccnn._util.rehearsal import rehearse


def test_a_rehearsal_reports_every_way_to_end():
    assert rehearse(lambda: None) is None
    assert rehearse(lambda: 1 / 0) == "division by zero"
    assert rehearse(lambda: os._exit(3)) is not None
    assert "signal 9" in rehearse(lambda: os.kill(os.getpid(), 9))
