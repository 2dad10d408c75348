"""Languages of sources, by the endings of their names and by the names that clang has for them (``-x``).

Clang's own tables are in ``clang/include/clang/Driver/Types.def`` and ``clang/lib/Driver/Types.cpp``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from mlgo_corpus.formats.commands.embedded import facts_of_words

C: Final = "C"
CXX: Final = "C++"

ENDINGS: Final = {
    "c": C,
    "i": C,
    "cc": CXX,
    "cp": CXX,
    "cpp": CXX,
    "cxx": CXX,
    "c++": CXX,
    "C": CXX,
    "ii": CXX,
    **dict.fromkeys(("CC", "CPP", "CXX", "C++", "cppm", "ccm", "cxxm", "c++m", "iim"), CXX),
    "m": "Objective-C",
    "mi": "Objective-C",
    "mm": "Objective-C++",
    "mii": "Objective-C++",
    "M": "Objective-C++",
    "cu": "CUDA",
    "hip": "HIP",
    "cl": "OpenCL",
    "f90": "Fortran",
    "swift": "Swift",
    "rs": "Rust",
    "zig": "Zig",
    "s": "assembly",
    "S": "assembly",
    "ll": "LLVM IR",
    "bc": "LLVM IR",
}
"""The language of a source by the ending of its name; other capitals mean the same where they are not listed."""

C_FAMILY_ENDINGS: Final = tuple(
    ending for ending, language in ENDINGS.items() if language in (C, CXX, "Objective-C", "Objective-C++")
)
"""The endings of sources in C, C++, Objective-C and Objective-C++, also after the preprocessor."""

CLANG_NAMES: Final = {
    "c": C,
    "cpp-output": C,
    "c++": CXX,
    "c++-cpp-output": CXX,
    "c++-module": CXX,
    "objective-c": "Objective-C",
    "objective-c-cpp-output": "Objective-C",
    "objective-c++": "Objective-C++",
    "objective-c++-cpp-output": "Objective-C++",
}
"""The language that ``-x NAME`` means."""

LANGUAGES: Final = tuple(dict.fromkeys(ENDINGS.values()))
"""All languages."""


def language_of_name(name: str | None) -> str | None:
    """Return the language of a source by its name (``a.cpp``); None if it is not known."""
    _, dot, ending = (name or "").rpartition(".")
    return ENDINGS.get(ending, ENDINGS.get(ending.lower())) if dot else None


def clang_names(languages: Collection[str]) -> tuple[str, ...]:
    """Return clang's names (``-x NAME``) of some languages; of all if there are none."""
    return tuple(name for name, language in CLANG_NAMES.items() if not languages or language in languages)


def language_of_command(options: Sequence[str]) -> str | None:
    """Return the language of the source that a cc1 command was for; None if it does not tell.

    A command that is replayed reads bitcode, and has the source's name still.
    """
    return language_of_name(facts_of_words(options).main_file_name)
