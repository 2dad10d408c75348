"""Reading and changing cc1 commands by whole options."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.commands import llvmtable
from mlgo_corpus.formats.commands.cc1table import FLAG, JOINED, JOINED_AND_SEPARATE, JOINED_OR_SEPARATE, SEPARATE
from mlgo_corpus.formats.commands.edit import edit_command, is_deleted_first
from mlgo_corpus.formats.commands.options import join_cc1, llvm_options, parse_cc1
from tests.conftest import Llvm
from tests.fuzz.cc1_canaries import find_compilers
from tests.fuzz.cc1_words import differences, strings, unknown_words

SPELLINGS = FLAG | SEPARATE | JOINED | JOINED_OR_SEPARATE | JOINED_AND_SEPARATE
# Words that are options, look like some, or are anything else.
WORDS = st.one_of(
    st.sampled_from(
        [
            *sorted(SPELLINGS),
            *("-cc1", "-O2", "-DA=1", "-oa.o", "-", "--", "", "-mllvm", "-mllvm", "-x=1", "a.c", "@a", "-load", "-w"),
        ]
    ),
    st.text(max_size=12),
    st.binary(max_size=8).map(lambda data: data.decode("utf-8", "surrogateescape")),
)
COMMANDS = st.lists(WORDS, max_size=20).map(tuple)


def names_and_values(*words: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(option.name, option.values) for option in parse_cc1(words)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-cc1", "-emit-obj", "-O2"], [("-cc1", ()), ("-emit-obj", ()), ("-O", ("2",))]),
        (["-main-file-name", "-load", "-w"], [("-main-file-name", ("-load",)), ("-w", ())]),
        (["-D", "-load", "-D-load"], [("-D", ("-load",)), ("-D", ("-load",))]),
        (["-mllvm", "-x=1", "-mllvm"], [("-mllvm", ("-x=1",)), ("-mllvm", ())]),
        (["-fthinlto-index=", "-fthinlto-index=a=b"], [("-fthinlto-index=", ("",)), ("-fthinlto-index=", ("a=b",))]),
        (["-include", "a", "-include-pch", "b", "-includec"], [
            ("-include", ("a",)), ("-include-pch", ("b",)), ("-include", ("c",)),
        ]),
        (["-o", "a", "-ob", "-opt-record-file", "c", "-objcmt-migrate-all"], [
            ("-o", ("a",)), ("-o", ("b",)), ("-opt-record-file", ("c",)), ("-objcmt-migrate-all", ()),
        ]),
        (["-plugin-arg-p", "-load", "-w"], [("-plugin-arg-", ("p", "-load")), ("-w", ())]),
        (["a.c", "-", "/b.c", ""], [("", ("a.c",)), ("", ("-",)), ("", ("/b.c",)), ("", ("",))]),
        (["-main-file-name", "", "--", "--load", "x"], [
            ("-main-file-name", ("",)), ("--", ()), ("--load", ()), ("", ("x",)),
        ]),
        (["-Wframe-larger-than=5", "-Rpass=a"], [("-W", ("frame-larger-than=5",)), ("-R", ("pass=a",))]),
        (["--include", "-load", "/validator-version", "1", "--save-temps=cwd"], [
            ("-include", ("-load",)), ("-validator-version", ("1",)), ("-save-temps=", ("cwd",)),
        ]),
        (["-fno-builtin-memcpy", "-fno-builtin"], [("-fno-builtin-", ("memcpy",)), ("-fno-builtin", ())]),
    ],
)  # fmt: skip
def test_words_become_options(words: list[str], expected: list[tuple[str, tuple[str, ...]]]) -> None:
    assert names_and_values(*words) == expected


@given(COMMANDS)
def test_joining_gives_the_words_back(words: tuple[str, ...]) -> None:
    options = parse_cc1(words)
    assert join_cc1(options) == words
    assert all(option.is_input or option.name.lstrip("-") in option.words[0] for option in options)
    assert [option for option in options[:-1] if option.lacks_value] == []


@given(COMMANDS, st.sampled_from(sorted(SEPARATE)), WORDS)
def test_a_value_is_never_taken_for_an_option(words: tuple[str, ...], name: str, value: str) -> None:
    option, *rest = parse_cc1((name, value, *words))
    assert (option.values, option.words, tuple(rest)) == ((value,), (name, value), parse_cc1(words))


def test_llvm_options_join_their_values() -> None:
    words = ["-mllvm", "-a=1", "-mllvm", "--b", "-O2", "-mllvm", "5", "-D", "-mllvm", "-mllvm", "-c", "-mllvm"]
    found = [(option.name, option.value, option.positions) for option in llvm_options(parse_cc1(words))]
    assert found == [("a", "1", (0,)), ("b", "5", (1, 3)), ("c", None, (5,))]


def test_llvm_options_take_what_follows_as_llvm_does() -> None:
    words = [
        "-crash-diagnostics-dir",
        "-exec-on-ir-change=x",
        "--stats",
        "x",
        "-inline-threshold=",
        "---stats",
        "--",
        "-",
    ]
    found = [(o.name, o.value, o.is_known) for o in llvm_options(parse_cc1(w for x in words for w in ("-mllvm", x)))]
    assert found == [
        ("crash-diagnostics-dir", "-exec-on-ir-change=x", True), ("stats", None, True), ("", "x", False),
        ("inline-threshold", "", True), ("-stats", None, False), ("", None, False), ("", None, False),
    ]  # fmt: skip


def test_an_llvm_value_without_an_option() -> None:
    assert [(o.name, o.value) for o in llvm_options(parse_cc1(["-mllvm", "x"]))] == [("", "x")]


# --- the table and the real compilers


COMPILERS = find_compilers()


@pytest.mark.llvm
@pytest.mark.parametrize("name", ["clang-19", "clang-22", "zig"])
def test_each_clang_takes_as_many_words(name: str) -> None:
    """All that have a value, with each prefix, and some others; make fuzz tries all strings of the program."""
    if name not in COMPILERS:
        pytest.skip(f"{name} is not installed")
    valued = sorted({spelling.lstrip("-/") for spelling in SPELLINGS - FLAG})
    pick = random.Random(1).sample
    bases = [*valued, *pick(sorted(FLAG), 60), *pick(strings(Path(COMPILERS[name][0])), 60)]
    assert differences(COMPILERS[name], [base.lstrip("-/") for base in bases]) == []


def test_what_no_clang_knows(llvm: Llvm) -> None:
    words = ("--", "--load", "-mllvm=-x", "-Xclang", "-fplugin=a")
    assert unknown_words([llvm.clang], words) == set(words)
    assert [option.is_known for option in parse_cc1(words)] == [False] * len(words)


def test_the_tables_are_as_the_parser_expects() -> None:
    assert not [name for name in FLAG | SEPARATE if name.endswith("=")]
    assert not [
        name for name in JOINED | JOINED_OR_SEPARATE | JOINED_AND_SEPARATE if name[0] != "-" or "=" in name[:-1]
    ]
    kinds = (FLAG, SEPARATE, JOINED, JOINED_OR_SEPARATE, JOINED_AND_SEPARATE)
    assert sum(map(len, kinds)) == len(SPELLINGS)
    assert not llvmtable.REQUIRED & llvmtable.OPTIONAL
    assert llvmtable.REQUIRED | llvmtable.OPTIONAL | llvmtable.DIFFERS >= llvmtable.TEXT


# --- edits

COMMAND = (
    "-cc1", "-triple", "x86_64-pc-linux-gnu", "-emit-obj", "-O2", "-fno-rtti", "-main-file-name", "-fno-rtti", "-D",
    "A=1", "-DB", "-target-cpu", "haswell", "-fthinlto-index=a.bc", "-mllvm", "-foo=1", "-mllvm", "-bar", "-mllvm", "3",
)  # fmt: skip


def without(*words: str) -> tuple[str, ...]:
    """Give `COMMAND` without these adjacent words, which are in it once as such."""
    places = [at for at in range(len(COMMAND)) if COMMAND[at : at + len(words)] == words]
    return COMMAND[: places[0]] + COMMAND[places[0] + len(words) :]


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("-fno-rtti", ("-fno-rtti",)),  # not the file of this name, and not what follows
        ("-O", ("-O2",)),
        ("-O2", ("-O2",)),
        ("-target-cpu", ("-target-cpu", "haswell")),
        ("-target-cpu haswell", ("-target-cpu", "haswell")),
        ("-main-file-name", ("-main-file-name", "-fno-rtti")),
        ("-DA", ("-D", "A=1")),
        ("-D A=1", ("-D", "A=1")),
        ("-D'B'", ("-DB",)),
        ("-fthinlto-index", ("-fthinlto-index=a.bc",)),
        ("-fthinlto-index=", ("-fthinlto-index=a.bc",)),
        ("-fthinlto-index=a.bc", ("-fthinlto-index=a.bc",)),
        ("-mllvm -foo", ("-mllvm", "-foo=1")),
        ("-mllvm --foo=1", ("-mllvm", "-foo=1")),
        ("-foo", ("-mllvm", "-foo=1")),
        ("-bar", ("-mllvm", "-bar", "-mllvm", "3")),
        ("-bar=3", ("-mllvm", "-bar", "-mllvm", "3")),
        ("-mllvm", ("-mllvm", "-foo=1", "-mllvm", "-bar", "-mllvm", "3")),
    ],
)
def test_deleting_takes_whole_options(flag: str, words: tuple[str, ...]) -> None:
    edited = edit_command(COMMAND, delete=[flag])
    assert edited.options == without(*words)
    assert edited.unmatched == ()


@pytest.mark.parametrize(
    "flag",
    ["-fno-rt", "-fno-rttii", "-O3", "-o", "-target-cpu skylake", "-DC", "-DA=2", "-fthinlto-index=b", "-mllvm -fo",
     "-mllvm -foo=2", "-mllvm 3", "-frtti"],
)  # fmt: skip
def test_deleting_what_is_not_there_is_reported(flag: str) -> None:
    edited = edit_command(COMMAND, delete=[flag])
    assert edited.options == COMMAND
    assert edited.unmatched == (flag,)


@given(COMMANDS)
def test_deleting_an_absent_option_changes_nothing(words: tuple[str, ...]) -> None:
    edited = edit_command(words, delete=["-no-such-option", "-mllvm -no-such"], replace=["-no-such-option=1"])
    assert edited.options == words
    assert edited.unmatched == ("-no-such-option", "-mllvm -no-such", "-no-such-option=1")


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        ("-O=z", "-O2", "-Oz"),
        ("-target-cpu=sky lake", "haswell", "sky lake"),
        ("-fthinlto-index=b=c", "-fthinlto-index=a.bc", "-fthinlto-index=b=c"),
        ("-mllvm -foo=7", "-foo=1", "-foo=7"),
        ("-foo=", "-foo=1", "-foo="),
        ("-DA=2", "A=1", "A=2"),
        ("-main-file-name=-o", None, "-o"),
    ],
)
def test_replacing_a_value(edit: str, old: str | None, new: str) -> None:
    edited = edit_command(COMMAND, replace=[edit])
    at = COMMAND.index(old) if old else 7
    assert edited.options == (*COMMAND[:at], new, *COMMAND[at + 1 :])
    assert edited.unmatched == ()


def test_replacing_a_value_that_is_a_word_of_its_own() -> None:
    assert edit_command(COMMAND, replace=["-bar=9"]).options == (*COMMAND[:-3], "-bar=9")


def test_a_flag_has_no_value_to_replace() -> None:
    assert edit_command(COMMAND, replace=["-fno-rtti=1", "-baz=1"]).unmatched == ("-fno-rtti=1", "-baz=1")


@pytest.mark.parametrize(
    ("replace", "deletions"),
    [
        ("-O=z", ("-O",)),
        ("-target-cpu=x", ("-target-cpu",)),
        ("-fthinlto-index=a", ("-fthinlto-index", "-fthinlto-index=")),
        ("-DA=2", ("-DA", "-D A")),
        ("-mllvm -foo=7", ("-foo", "--foo", "-mllvm -foo", "-mllvm")),
        ("-foo=7", ("-foo", "-mllvm -foo", "-mllvm")),
    ],
)
def test_a_deletion_that_leaves_nothing_to_replace(replace: str, deletions: tuple[str, ...]) -> None:
    for delete in deletions:
        assert is_deleted_first(replace, delete), delete
        assert edit_command(COMMAND, delete=[delete], replace=[replace]).unmatched == (replace,)


@pytest.mark.parametrize(
    ("replace", "deletions"),
    [
        ("-O=z", ("-O2", "-target-cpu", "-Oz")),  # other levels are left
        ("-target-cpu=x", ("-target-cpu skylake", "-O")),
        ("-DA=2", ("-DB", "-DA=2", "-O")),
        ("-mllvm -foo=7", ("-bar", "-mllvm -foo=2", "-O")),
        ("-foo=7", ("-bar", "-foo=2")),
    ],
)
def test_a_deletion_that_leaves_something_to_replace(replace: str, deletions: tuple[str, ...]) -> None:
    assert not [delete for delete in deletions if is_deleted_first(replace, delete)]


def test_adding_comes_last_and_keeps_quoted_values() -> None:
    edited = edit_command(COMMAND, add=["-Oz", "-mllvm -x='a b'"], delete=["-O2"], replace=["-DB=3"])
    assert edited.options[-3:] == ("-Oz", "-mllvm", "-x=a b")
    assert "-DB=3" in edited.options
    assert "-O2" not in edited.options


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ({"add": ["a.c"]}, "expected one option of clang -cc1, found 'a.c'"),
        ({"add": ["-mllvm"]}, "expected a value after '-mllvm' in an option to add, found none"),
        ({"add": ["-w -v"]}, "expected one option of clang -cc1, found '-w -v'"),
        ({"delete": [""]}, "expected one option of clang -cc1, found ''"),
        ({"delete": ["-D'"]}, 'expected an option, found "-D\'": No closing quotation'),
        ({"replace": ["-O2"]}, "expected NAME=VALUE to replace an option's value, found '-O2'"),
    ],
)
def test_edits_that_are_none(edits: dict[str, list[str]], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        edit_command(COMMAND, **edits)


def test_nothing_is_added_as_the_value_of_a_cut_off_option() -> None:
    with pytest.raises(UsageError, match=r"expected a value after '-o', the command's last word, found none"):
        edit_command(("-cc1", "-o"), add=["-Oz"])
