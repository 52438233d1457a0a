"""Steps end once they have used up their time; the time of other work does not count."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.analysis.explaining import Limited


class Processor:
    """Time of the processor: ``now``, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def work(self, seconds: float) -> None:
        self.now += seconds

    def steps(self, *seconds: float) -> Iterator[None]:
        for each in seconds:
            self.work(each)
            yield


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Processor:
    made = Processor()
    monkeypatch.setattr("app.analysis.explaining.thread_time", lambda: made.now)
    return made


def test_other_work_between_two_steps_does_not_count(processor: Processor) -> None:
    limited = Limited(processor.steps(0.25, 0.25, 0.25), 1.0)

    for _ in limited:
        processor.work(10.0)

    assert (0.75, False) == (limited.seconds, limited.ended_early)


def test_no_step_after_the_time_is_over(processor: Processor) -> None:
    limited = Limited(processor.steps(0.5, 1.0, 0.5), 1.0)

    assert 2 == len([*limited])
    assert (1.5, True) == (limited.seconds, limited.ended_early)
