"""Signals that ask a program to end are interrupts, once; what others do with them is left alone."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from mlgo_corpus.engine.signals import ASKING_TO_END, AskedToEndError, signal_of, signals_as_interrupts


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in ASKING_TO_END}
    for number in ASKING_TO_END:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ASKING_TO_END)
def test_the_first_one_is_raised_and_the_next_ones_are_not(number: signal.Signals) -> None:
    cleaned = False

    def work() -> None:
        nonlocal cleaned
        try:
            os.kill(os.getpid(), number)
            raise AssertionError
        except KeyboardInterrupt:
            for again in ASKING_TO_END:
                os.kill(os.getpid(), again)
            cleaned = True
            raise

    with pytest.raises(AskedToEndError) as caught, signals_as_interrupts():
        work()
    assert cleaned
    assert (caught.value.number, signal_of(caught.value)) == (number, number)
    assert [signal.getsignal(one) for one in ASKING_TO_END] == [signal.SIG_DFL, signal.SIG_DFL]


def test_ctrl_c_has_its_own_number() -> None:
    assert signal_of(KeyboardInterrupt()) == signal.SIGINT


@pytest.mark.parametrize("other", [signal.SIG_IGN, lambda *_: None])
def test_others_handlers_are_left_alone(other: signal.Handlers) -> None:
    """Such as nohup's."""
    signal.signal(signal.SIGHUP, other)
    with signals_as_interrupts():
        os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is other
        with pytest.raises(AskedToEndError):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGHUP) is other


def test_one_block_in_another_leaves_the_outer_one_its_handlers() -> None:
    with signals_as_interrupts():
        with signals_as_interrupts():
            pass
        with pytest.raises(AskedToEndError):
            os.kill(os.getpid(), signal.SIGTERM)


def test_another_thread_may_use_it_too() -> None:
    ran = []

    def work() -> None:
        with signals_as_interrupts():
            ran.append([signal.getsignal(one) for one in ASKING_TO_END])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ran == [[signal.SIG_DFL, signal.SIG_DFL]]
