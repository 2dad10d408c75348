"""The base class of the stages' reports."""

from __future__ import annotations

from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar


class Report:
    """The base class of the dataclasses that stages return.

    A subclass lists in ``_properties`` the properties that `as_json` adds after its fields. One that changes the values
    calls ``Report.as_json(self)``: ``super()`` without arguments fails in a dataclass with slots.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    _properties: ClassVar[tuple[str, ...]] = ()

    @property
    def exit_code(self) -> int:
        """What a verb ends with that returns this: 1 if its field or property ``failed`` tells of something, else 0."""
        return 1 if getattr(self, "failed", None) else 0

    def as_json(self) -> dict[str, Any]:
        """Return the fields, in their order, and the listed properties as plain values; seconds have three decimals."""
        names = (*(item.name for item in fields(self)), *self._properties)
        values = {name: _plain(getattr(self, name)) for name in names}
        return {name: round(value, 3) if name.endswith("seconds") else value for name, value in values.items()}


def _plain(value: Any) -> Any:
    """Return a value in which paths are strings, and dataclasses are dictionaries."""
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "as_json"):
        return value.as_json()
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(_plain, value))
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value
