"""Start a worker process of a Ray cluster: what Ray's own ``setup_worker.py`` does where a job has no environment.

That one loads all of Ray in order to start a Python that loads all of Ray.
"""

from __future__ import annotations

import gc
import importlib
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

# Ray imports these, and no worker uses them; they are a quarter of what it loads.
UNUSED = ("requests", "jsonschema")


class Unused(ModuleType):
    """Stands for a module, which is imported when it is asked for something."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


if __name__ == "__main__":
    gc.set_threshold(50_000)  # what is loaded is no garbage
    words = [word for word in sys.argv[1:] if not word.startswith("--language=")]
    while words[0].startswith("-"):  # what the first Python was called with
        del words[0]
    sys.argv = words
    sys.path[0] = str(Path(words[0]).parent)
    sys.modules.update({name: Unused(name) for name in UNUSED})
    runpy.run_path(words[0], run_name="__main__")
