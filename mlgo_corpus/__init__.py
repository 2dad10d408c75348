"""Turn real builds into datasets for machine-learning-guided compiler optimisation (MLGO).

The public names are in ``__init__.pyi``. Each is imported when it is first used, so that
``import mlgo_corpus`` stays as cheap as the smallest thing done with it.
"""

import importlib

__version__ = "0.1.0"

# Public names and their modules, from the stub's lines: from MODULE import NAME as NAME.
with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as _stub:
    _HOME = {words[3]: words[1] for words in map(str.split, _stub) if words[:1] == ["from"]}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
