"""What shims write about a compile, read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.errors import FormatError, TruncatedError
from mlgo_corpus.formats.commands.shimrecord import CompileRecord, parse_compile_record

# What a program can be given: any bytes but NUL.
WORD = st.binary(max_size=12).map(lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
COPY = st.one_of(st.just(""), st.integers(1, 10**6).map(str))
RECORDS = st.builds(
    CompileRecord,
    driver=st.sampled_from(["c", "c++", "ar"]),
    links=st.booleans(),
    status=st.integers(0, 255),
    directory=WORD,
    arguments=st.lists(WORD, max_size=6).map(tuple),
    sources=st.lists(WORD, max_size=3).map(tuple),
    objects=st.lists(st.tuples(WORD, COPY), max_size=3).map(tuple),
    responses=st.lists(st.tuples(WORD, COPY), max_size=2).map(tuple),
)


def written(record: CompileRecord) -> bytes:
    words = ["mlgo-compile-1", record.driver, "program" if record.links else "object", str(record.status)]
    words += [record.directory, str(len(record.arguments)), *record.arguments]
    for name, copy in record.responses:
        words += ["words", name, copy]
    for name in record.sources:
        words += ["source", name]
    for name, copy in record.objects:
        words += ["object", name, copy]
    return "".join(f"{word}\0" for word in (*words, "end")).encode("utf-8", "surrogateescape")


PLAIN = CompileRecord("c", False, 0, "/b", ("-c", "a b.c"), ("a b.c",), (("a b.o", "1"),), (("@r", "2"),))


@given(RECORDS)
def test_a_record_comes_back(record: CompileRecord) -> None:
    assert parse_compile_record(written(record)) == record


def test_a_record_that_ends_early_is_told_at_every_byte() -> None:
    data = written(PLAIN)
    for size in range(len(data)):
        with pytest.raises(TruncatedError):
            parse_compile_record(data[:size])


@given(st.binary(max_size=60))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        parse_compile_record(data)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"mlgo-compile-1\0", b"mlgo-compile-2\0", "expected mlgo-compile-1, found 'mlgo-compile-2'"),
        (b"\0c\0", b"\0rust\0", "expected c or c++ or ar or ld or ld.bfd or ld.gold or ld.lld, found 'rust'"),
        (b"\0object\x000", b"\0thing\x000", "expected object or program, found 'thing'"),
        (b"\x000\0", b"\0-1\0", "expected a number, found '-1'"),
        (b"\x002\0-c", b"\x00999999999\0-c", "expected more words"),
        (b"\0source\0", b"\0sauce\0", "expected an entry of a compile's record, found 'sauce'"),
        (b"a b.o\x001\0", b"a b.o\0../x\0", "expected a number, found '../x'"),
        (b"end\0", b"end\0end\0", "has more words after its end"),
    ],
)
def test_what_is_wrong_is_said(old: bytes, new: bytes, message: str) -> None:
    data = written(PLAIN)
    assert old in data
    with pytest.raises(FormatError) as caught:
        parse_compile_record(data.replace(old, new, 1))
    assert message in str(caught.value)


def test_words_of_parameter_files_take_their_place() -> None:
    record = CompileRecord("c", False, 0, "/", ("-c", "@r", "@none"), (), (), ())
    assert record.expanded({"@r": ("a.c", "-o", "a.o")}) == ("-c", "a.c", "-o", "a.o", "@none")
    assert record.expanded({"@r": ("@s", "-g"), "@s": ("a.c",)}) == ("-c", "a.c", "-g", "@none")
    assert record.expanded({"@r": ("-g", "@r")}) == ("-c", *("-g",) * 20, "@r", "@none")
