import signal

import pytest

from cluster.errors import JobStoppedError
from cluster.stop_signal import stop_signal


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_interrupts_while_there_is_nothing_to_end(name):
    """It is named in the message."""
    with pytest.raises(JobStoppedError, match=f"stopped by {name}"), stop_signal():
        signal.raise_signal(signal.Signals[name])


def test_a_deferred_signal_is_noted_and_a_second_one_interrupts():
    """The loop ends in good order on the first; who is in a hurry sends another."""
    with stop_signal() as stop:
        stop.defer()
        signal.raise_signal(signal.SIGTERM)
        assert "SIGTERM" == stop.name
        with pytest.raises(JobStoppedError, match="SIGINT"):
            signal.raise_signal(signal.SIGINT)


def test_the_handlers_before_are_put_back():
    """A library must leave its caller's handlers alone."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with stop_signal():
        assert before != (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    assert before == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
