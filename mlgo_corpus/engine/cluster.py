"""The connection to a Ray cluster: for the duration of a block, with a one-line error if there is no cluster."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlgo_corpus.engine.signals import ASKING_TO_END
from mlgo_corpus.errors import UsageError

_CONNECT_S = 10.0
# The first bytes of an HTTP/2 client, and so of gRPC (RFC 9113, 3.4): its preface, and an empty frame of settings.
_HTTP2_FRAME, _HTTP2_SETTINGS = 9, 4
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, _HTTP2_SETTINGS, 0, 0, 0, 0, 0))
# Whether Ray makes clusters of several machines, on every system despite the name.
_MAKES_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_NOT_HERE = "no Ray cluster runs here; 'ray start --head' starts one, `ray_address` HOST:PORT names one elsewhere"
_NOT_INSTALLED = "Ray is not installed; pip install 'mlgo-corpus[ray]' installs it"


def import_ray(otherwise: str, *, option: str | None = None, value: str | None = None) -> Any:
    """Import Ray, which takes half a second.

    Args:
        otherwise: the error's message if it is not installed.
        option: the error's parameter.
        value: the parameter's value.

    Raises:
        UsageError: Ray is not installed.
    """
    # Usage statistics are private to the user, who may enable them.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise UsageError(otherwise, option=option, value=value) from None
    return ray


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Connect this process to a Ray cluster for the duration of the block, unless it is connected already.

    The connection must not last longer: Ray prints the cluster's events on stdout, and its threads forbid forks.

    Raises:
        UsageError: Ray is not installed, or there is no such cluster.
    """
    ray = import_ray(_NOT_INSTALLED, option="engine", value="ray")
    if ray.is_initialized():
        yield
        return
    named = address or os.environ.get("RAY_ADDRESS") or "auto"
    if named != "auto":
        host, port = _parse_address(named)
        if problem := why_unreachable(host, port):
            raise UsageError(f"no Ray cluster answers there: {problem}", option="ray_address", value=named)
    elif (left := last_local_cluster()) is not None and why_unreachable(*left):
        raise UsageError(_NOT_HERE, option="engine", value="ray")
    handlers = {number: signal.getsignal(number) for number in ASKING_TO_END}
    try:
        ray.init(address=named, log_to_driver=False, logging_level="ERROR", namespace="mlgo-corpus")
    except Exception as error:  # ConnectionError, RuntimeError, ValueError, ... depending on the cause
        reason = str(error).strip().partition("\n")[0]
        if named == "auto":
            raise UsageError(_NOT_HERE, option="engine", value="ray") from error
        raise UsageError(reason, option="ray_address", value=named) from error
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():  # ray.init puts others in their place, which end the process at once
            signal.signal(number, handler)
    try:
        yield
    finally:
        ray.shutdown()


def _parse_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise UsageError("expected HOST:PORT, as 'ray start --head' shows it", option="ray_address", value=address)
    return host.strip("[]"), int(port)


def last_local_cluster() -> tuple[str, int] | None:
    """Return the address of the last cluster that was started on this machine; it may have ended."""
    try:
        address = Path(os.environ.get("RAY_TMPDIR") or "/tmp", "ray", "ray_current_cluster").read_text()  # noqa: S108
        return _parse_address(address.strip())
    except (OSError, ValueError, UsageError):
        return None


@contextmanager
def on_loopback() -> Iterator[None]:
    """Make a cluster that is started within the block listen on the loopback device alone, not on every interface.

    Ray does so on systems where it does not make clusters of several machines; ``_node_ip_address="127.0.0.1"`` would
    be replaced by the address that others see. Ray reads the setting when it is imported: here, and in the processes it
    starts.
    """
    from ray._private import ray_constants

    previous, enabled = os.environ.get(_MAKES_CLUSTERS), ray_constants.ENABLE_RAY_CLUSTER
    os.environ[_MAKES_CLUSTERS], ray_constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = enabled
        del os.environ[_MAKES_CLUSTERS]
        if previous is not None:
            os.environ[_MAKES_CLUSTERS] = previous


def why_unreachable(host: str, port: int) -> str:
    """Return the reason why no gRPC server answers, or ''. Ray itself would try for minutes, or end this process."""
    try:
        with socket.create_connection((host, port), _CONNECT_S) as connection:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return ""
            connection.sendall(_HTTP2_HELLO)
            answer = connection.recv(_HTTP2_FRAME)
    except (OSError, OverflowError) as error:
        return getattr(error, "strerror", None) or str(error)
    # The fourth byte is the frame's type. A server begins with its settings.
    return "" if len(answer) > 3 and answer[3] == _HTTP2_SETTINGS else "something else does"
