"""Embedded command lines: splitting, gluing, and what they say."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.formats.commands.embedded import (
    CommandFacts,
    decode_options,
    read_facts,
    same_main_file,
    split_commands,
    split_options,
)

options_without_nul = st.lists(st.binary(min_size=1, max_size=12).filter(lambda item: b"\0" not in item), min_size=1)


@given(options_without_nul, st.booleans())
def test_options_come_back_whatever_their_bytes(options: list[bytes], terminated: bool) -> None:
    data = b"\0".join(options) + (b"\0" if terminated else b"")
    assert split_options(data) == tuple(options)
    assert [os.fsencode(text) for text in decode_options(split_options(data))] == options


def test_empty_commands_and_empty_options() -> None:
    assert split_options(b"") == ()
    assert split_options(memoryview(b"-cc1\0\0-x\0")) == (b"-cc1", b"", b"-x")


@given(st.lists(options_without_nul.filter(lambda items: b"-cc1" not in items), min_size=1, max_size=5))
def test_glued_commands_come_apart_at_cc1(commands: list[list[bytes]]) -> None:
    parts = [b"".join(option + b"\0" for option in (b"-cc1", *options)) for options in commands]
    glued = b"".join(parts)
    assert [glued[start:stop] for start, stop in split_commands(glued)] == parts


@pytest.mark.parametrize(
    ("section", "commands"),
    [
        (b"", []),
        (b"\0\0\0", []),
        (b"-cc1", [b"-cc1"]),
        (b"-cc1\0-O2", [b"-cc1\0-O2"]),
        (b"-frontend\0-swift\0", [b"-frontend\0-swift\0"]),
        (b"\0-cc1\0-O2\0", [b"-cc1\0-O2\0"]),
        (b"-cc1\0-D\0x-cc1\0-cc1as\0", [b"-cc1\0-D\0x-cc1\0-cc1as\0"]),
    ],
)
def test_where_commands_begin(section: bytes, commands: list[bytes]) -> None:
    assert [section[start:stop] for start, stop in split_commands(section)] == commands


def facts(*options: str) -> CommandFacts:
    return read_facts(tuple(os.fsencode(option) for option in options))


def test_what_a_command_says() -> None:
    found = facts(
        "-cc1",
        "-triple",
        "aarch64-linux-gnu",
        "-O2",
        "-main-file-name",
        "-O3.c",
        "-Oz",
        "-fthinlto-index=a/b.thinlto.bc",
    )
    assert found == CommandFacts("-O3.c", "aarch64-linux-gnu", "z", "a/b.thinlto.bc", False)


def test_values_are_not_options() -> None:
    found = facts("-cc1", "-mllvm", "-O1", "-D", "-O0", "-include", "-disable-llvm-passes", "-main-file-name", "a.c")
    assert found == CommandFacts("a.c", None, "0", None, False)


def test_a_cc1_command_without_a_level_is_at_0() -> None:
    assert facts("-cc1", "-emit-obj").opt_level == "0"
    assert facts("-cc1", "-O0", "-O2").opt_level == "2"
    assert facts("-frontend", "-c").opt_level is None  # Swift's, whose default is its own


@pytest.mark.parametrize(
    ("words", "level"),
    [
        (["-Oz"], "z"),
        (["-O2", "-Os"], "s"),
        ([], "0"),
        (["-O"], "1"),
        (["-Ofast"], "3"),
        (["-O4"], "3"),
        (["-Og"], "1"),
        (["-O2", "-Object"], "2"),
    ],
)
def test_levels(words: list[str], level: str) -> None:
    assert facts("-cc1", *words).opt_level == level


def test_the_drivers_own_embedding_is_told_from_a_users_flag() -> None:
    assert facts("-cc1", "-Oz", "-emit-obj", "-disable-llvm-passes").embeds_post_opt
    assert not facts("-cc1", "-Oz", "-disable-llvm-passes", "-main-file-name", "a.c").embeds_post_opt
    assert not facts("-cc1", "-Oz").embeds_post_opt


def test_options_that_end_too_early() -> None:
    assert facts("-cc1", "-triple").target_triple is None
    assert facts("-cc1", "-O").opt_level == "1"
    assert facts() == CommandFacts(None, None, None, None, False)


def test_main_files_are_compared_by_base_name() -> None:
    assert same_main_file("a.c", "/src/a.c")
    assert same_main_file("a.c", None)
    assert same_main_file(None, "a.c")
    assert not same_main_file("a.c", "/src/b.c")


@pytest.mark.parametrize("made", ["p.i", "p.ii", "p.ll", "p.bc"])
def test_a_source_made_of_another_fits_what_it_was_made_of(made: str) -> None:
    assert same_main_file(made, "a.c")
