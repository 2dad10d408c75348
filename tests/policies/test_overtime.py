"""Code that does not return is ended at its deadline; code that does is left alone."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mlgo_corpus.policies.overtime import Overtime, end_after


def spin() -> None:
    while True:
        pass


def spin_stubbornly() -> None:
    while True:
        try:
            sum(range(1000))
        except Exception:  # noqa: S112 - as somebody's policy might
            continue


@pytest.mark.parametrize("work", [spin, spin_stubbornly, lambda: time.sleep(600), threading.Event().wait])
def test_what_does_not_return_is_ended_in_the_main_thread(work: Callable[[], Any]) -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    with pytest.raises(Overtime):
        end_after(time.monotonic() + 0.05, work)
    assert signal.getsignal(signal.SIGVTALRM) is before


@pytest.mark.parametrize("work", [spin, spin_stubbornly])
def test_what_computes_for_ever_is_ended_in_other_threads(work: Callable[[], Any]) -> None:
    with ThreadPoolExecutor(2) as pool:
        ended = [pool.submit(end_after, time.monotonic() + 0.05, work) for _ in range(2)]
        assert [type(one.exception(60)) for one in ended] == [Overtime] * 2


def test_what_returns_is_not_interrupted_later() -> None:
    """The deadline is at about the time of the return: what comes is a result or an end, and nothing afterwards."""

    def come_and_go() -> set[object]:
        return {outcome(number * 1e-5) for number in range(100)}

    def outcome(seconds: float) -> object:
        try:
            return end_after(time.monotonic() + seconds, lambda: sum(range(5000)))
        except Overtime:
            return None

    total = sum(range(5000))
    assert come_and_go() <= {total, None}
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(come_and_go).result(60) <= {total, None}


def test_errors_and_results_come_through() -> None:
    assert end_after(time.monotonic() + 60, lambda: 5) == 5
    with pytest.raises(ValueError, match=r"^mine$"):
        end_after(time.monotonic() + 60, _raise)


def _raise() -> None:
    raise ValueError("mine")
