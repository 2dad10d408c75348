#!/usr/bin/env python3
"""Write the tables of options that a replay knows: cc1table.py (clang -cc1) and llvmtable.py (-mllvm).

    python scripts/make_cc1_options.py SOURCE...

A SOURCE is a header ``Options.inc`` (the packages libclang-19-dev and libclang-22-dev have it), or a clang, or a zig,
which has a clang inside (ziglang 0.12 to 0.17 on PyPI: clang 17 to 22). Each is a version of its own; the tables are
their union.

How a clang is asked: every string in the program and its libraries that may be an option's name is put on a cc1 command
line with each prefix, followed by two words that no clang knows. Clang reports each unknown word but those that the
option took as its value. A name with a letter more that is not reported is that of an option whose value is joined. As
some words are unknown, clang compiles nothing. LLVM's options, as -help-list-hidden names them, are asked in the same
way through -mllvm; that a value is refused whatever text it is says that the option takes a number, a truth value or
one of a few words.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

KINDS = ("FLAG", "SEPARATE", "JOINED", "JOINED_OR_SEPARATE", "JOINED_AND_SEPARATE")
_PREFIXES = ("-", "--", "/")
# What is in a development-mode compiler alone, and not all of its builds have all: name, value.
_DEVELOPMENT_VALUES = """
    training-log ml-inliner-model-under-training ml-inliner-ir2native-model regalloc-training-log regalloc-model
    regalloc-priority-training-log regalloc-priority-model
"""
# What only a compiler with assertions has: values, flags.
_ASSERTIONS_VALUES = "debug-only"
_ASSERTIONS_FLAGS = "debug"

# A linker lets strings that end alike share their bytes, so a name may be the end of a longer string.
_WORD = re.compile(rb"(?=((?:--?|/)[A-Za-z0-9_][A-Za-z0-9_+.-]{0,60}=?)\0)")
_UNKNOWN = re.compile(r"unknown argument:? '(.*?)'(?:$|; did you mean)", re.MULTILINE)
_UNKNOWN_LLVM = re.compile(r"Unknown command line argument '(.*?)'\.  Try", re.MULTILINE)
_INVALID_LLVM = re.compile(
    r"for the --?(\S+) option: (?:'.*?' (?:value invalid for|is invalid value for)|Cannot find option named"
    r"|does not allow a value)"
)
# Flags to which clang answers in another way, whatever else is on the line, and options with which it would be quiet
# about unknown ones. The headers have them.
_ANSWERS = re.compile(r"print-|help|^-+verify|^-+version|^-+[WRDIU]|^-+v$")
_ANSWERS_LLVM = re.compile(r"h|help.*|version|print-(?:all-)?options")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BATCH = 1000
Spellings = dict[str, str]  # an option as it is written, without its value: kind
LlvmOptions = dict[str, tuple[int, bool]]  # name: how many words it takes as its value, whether that may be any text


def read_header(path: Path) -> Spellings:
    """Read the options that cc1 sees from ``OPTION(prefixes, "name", id, kind, group, alias, arguments, ...``."""
    text = path.read_text()
    prefixes = _read_prefixes(text)
    text = text[text.index("#ifdef OPTION\n") : text.index("#endif // OPTION\n")]
    spellings: Spellings = {}
    for entry in text.split("\nOPTION(")[1:]:
        # LLVM 19: prefix_4, "-include", ...; LLVM 22: 3, 60003 /* -include */, ...
        found = re.match(r'(\w+)(?: /\*.*?\*/)?, (?:"([^"]*)"|\d+ /\* (.*?) \*/), \w+, (\w+), ', entry)
        if found is None or not re.search(r"\bCC1Option\b", entry):
            continue
        name = (found[2] or found[3]).lstrip("-/")
        kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", found[4]).upper().replace("COMMA_JOINED", "JOINED")
        if kind not in KINDS:
            raise SystemExit(f"{path}: {name} is of the kind {found[4]}, which the parser does not know of")
        for prefix in prefixes[found[1]]:
            before = spellings.setdefault(prefix + name, kind)
            if {before, kind} == {"FLAG", "JOINED"}:  # -O and -O2
                spellings[prefix + name] = "JOINED"
            elif before != kind:
                raise SystemExit(f"{path}: {prefix}{name} is of two kinds, which the parser does not know of")
    return {name: kind for name, kind in spellings.items() if not _is_value(name, spellings)}


def _is_value(name: str, spellings: Spellings) -> bool:
    """Whether a person would call an option another's value: ``-O0``, ``-Wall``, ``-mabi=ieeelongdouble``."""
    begin = name[: name.find("=") + 1] if name[:2] not in ("-O", "-R", "-W") else name[:2]
    return begin != name and spellings.get(begin) == "JOINED"


def _read_prefixes(text: str) -> dict[str, list[str]]:
    if old := dict(re.findall(r"^PREFIX\((\w+), \{(.*)\}\)$", text, re.MULTILINE)):
        return {name: [prefix for prefix in re.findall(r'"(.*?)"', old[name]) if prefix] for name in old}
    table = text[text.index("OptionPrefixesTable[] = {") :].partition("};")[0]
    found: dict[str, list[str]] = {}
    position = 0
    for count, prefixes in re.findall(r"(\d+) /\* prefixes \*/((?:, \d+ /\* '.*?' \*/)*)", table):
        found[str(position)] = re.findall(r"'(.*?)'", prefixes)
        position += 1 + int(count)
    return found


def ask_cc1(program: Path, headers: Sequence[Spellings]) -> Spellings:
    """Find the options of a clang by giving it words it does not know; which to try, the headers say too."""
    found = {match[1].decode() for path in _libraries(program) for match in _WORD.finditer(path.read_bytes())}
    written = {spelling for header in headers for spelling in header}
    names = {word.lstrip("-/") for word in found | written}
    spellings = _ask_cc1(_command(program), sorted(prefix + name for name in names if name for prefix in _PREFIXES))
    for header in headers:
        spellings |= {word: kind for word, kind in header.items() if _ANSWERS.search(word)}
    return _as_written(spellings, headers)


def _as_written(spellings: Spellings, headers: Iterable[Spellings]) -> Spellings:
    """Take the kinds of a header where they explain the answers as well: what begins as another leaves doubts."""
    found = dict(spellings)
    for header in headers:
        for word, kind in header.items():
            answers = {(words, is_longer) for words, _, is_longer in _readings(word, spellings)}
            expected = {(words, is_longer) for words, _, is_longer in _readings(word, {**spellings, word: kind})}
            if answers == expected:
                found[word] = kind
    return found


def _ask_cc1(command: Sequence[str], words: Sequence[str]) -> Spellings:
    words = [word for word in words if not _ANSWERS.search(word)]
    # A word with a slash that is no option is a file to compile, which nobody reports.
    takes_next = {word: taken for word, taken in _try_each(command, words) if taken or word[0] == "-"}
    longer = dict(_try_each(command, [f"{word}q" for word in takes_next if word[0] == "-"]))
    if several := [name for name, taken in takes_next.items() if taken > 1]:
        raise SystemExit(f"{command[0]}: {several} take two words, which the parser does not know of")
    spellings: Spellings = {}
    joined: list[str] = []
    for word in sorted(takes_next):  # in order, so an option comes before those that begin as it does
        begun = next((name for name in reversed(joined) if word.startswith(name)), None)
        behaviour = (takes_next[word], longer.get(f"{word}q"))
        if begun is not None and behaviour == (int(spellings[begun] == "JOINED_AND_SEPARATE"), longer[f"{begun}q"]):
            continue  # maybe a value of the shorter one: a flag is read in as many words
        if begun is not None and behaviour[1] is not None:
            spellings[word] = "SEPARATE" if behaviour[0] else "FLAG"
        else:
            spellings[word] = _kind(*behaviour)
            if behaviour[1] is not None:
                joined.append(word)
    return spellings


def _kind(taken: int, taken_by_longer: int | None) -> str:
    if taken_by_longer is None:
        return "SEPARATE" if taken else "FLAG"
    return "JOINED_AND_SEPARATE" if taken_by_longer else "JOINED_OR_SEPARATE" if taken else "JOINED"


def _try_each(command: Sequence[str], names: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Give each name that clang knows, and how many of the two words after it were its value."""
    for start in range(0, len(names), _BATCH):
        batch = names[start : start + _BATCH]
        words = [word for index, name in enumerate(batch) for word in (name, f"-zz{index}", f"-zy{index}")]
        unknown = set(_UNKNOWN.findall(_run(command, words)))
        if len(unknown) < len(batch):
            raise SystemExit(f"{command[0]}: expected reports of unknown words, found {len(unknown)}")
        for index, name in enumerate(batch):
            if name not in unknown:
                yield name, 2 - len({f"-zz{index}", f"-zy{index}"} & unknown)


def ask_llvm(program: Path) -> LlvmOptions:
    """Find the options of a clang's LLVM."""
    command = _command(program)
    listed = re.findall(r"^  --?([^\s=\[]+)", _run(command, ["-mllvm", "-help-list-hidden"]), re.MULTILINE)
    names = sorted(name for name in {*listed} if not _ANSWERS_LLVM.fullmatch(name))
    known: dict[str, int] = {}
    checked: set[str] = set()
    for batch in _batches(names):
        _ask_llvm_batch(command, batch, known, checked)
    if several := [name for name, taken in known.items() if taken > 1]:
        raise SystemExit(f"{command[0]}: {several} take two words, which the parser does not know of")
    return {name: (taken, name not in checked) for name, taken in known.items()}


def _ask_llvm_batch(command: Sequence[str], names: Sequence[str], known: dict[str, int], checked: set[str]) -> None:
    alone = [word for index, name in enumerate(names) for word in (f"-{name}", f"-zz{index}", f"-zy{index}")]
    unknown = set(_UNKNOWN_LLVM.findall(_run(command, _for_clang([*alone, "-zzz"]))))
    said = _run(command, _for_clang([*(f"-{name}=/zq/zq" for name in names), "-zzz"]))
    if "-zzz" in unknown and "-zzz" in _UNKNOWN_LLVM.findall(said):
        for index, name in enumerate(names):
            if f"-{name}" not in unknown:
                known[name] = 2 - len({f"-zz{index}", f"-zy{index}"} & unknown)
        checked |= set(_INVALID_LLVM.findall(said))
    elif len(names) > 1:  # one of them ends everything where its value is not what it expects
        _ask_llvm_batch(command, names[: len(names) // 2], known, checked)
        _ask_llvm_batch(command, names[len(names) // 2 :], known, checked)
    else:
        known[names[0]] = 1
        print(f"{command[0]}: -{names[0]} checks its value, and ends everything")  # noqa: T201
        checked.add(names[0])


def _for_clang(words: Iterable[str]) -> list[str]:
    return [word for option in words for word in ("-mllvm", option)]


def _batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + _BATCH] for start in range(0, len(names), _BATCH))


def _run(command: Sequence[str], words: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory() as folder:  # some options make a file of their name even so
        done = subprocess.run(
            [*command, "-cc1", *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=300,
        )
    return _COLOUR.sub("", done.stdout + done.stderr)  # -fcolor-diagnostics is among the names


def _command(program: Path) -> tuple[str, ...]:
    return (str(program.absolute()), *(("clang",) if program.name == "zig" else ()))


def _libraries(program: Path) -> tuple[Path, ...]:
    program = program.resolve()
    shared = subprocess.run(["/usr/bin/ldd", program], capture_output=True, text=True, check=False).stdout
    return (program, *(Path(path) for path in re.findall(r"=> (\S*/lib(?:clang-cpp|LLVM)\S*) ", shared)))


# --- several versions in one


def unite(versions: Sequence[Spellings]) -> tuple[dict[str, set[str]], set[str], dict[str, set[str]]]:
    """Give the union by kinds, what is read as different numbers of words, and what is part of another option's word.

    The last are spellings that some version has as an option, and another takes for a shorter one with a joined value:
    spelling, and the shorter ones.
    """
    kinds: dict[str, set[str]] = {kind: set() for kind in KINDS}
    differs: set[str] = set()
    shadowed: dict[str, set[str]] = {}
    for spelling in sorted(set().union(*versions)):
        found = {version[spelling] for version in versions if spelling in version}
        readings = {reading for version in versions for reading in _readings(spelling, version)}
        joined = {kind for kind in found if kind.startswith("JOINED")}
        kinds[max(joined or found)].add(spelling)  # the one that takes most, where they differ
        alone = {words for words, _, is_longer in readings if not is_longer}
        longer = {words for words, _, is_longer in readings if is_longer and joined}
        if len(alone) > 1 or len(longer) > 1:
            differs.add(spelling)
        if others := {name for _, name, is_longer in readings if name != spelling and (joined or not is_longer)}:
            shadowed[spelling] = others
    return kinds, differs, shadowed


def _readings(spelling: str, version: Spellings) -> Iterator[tuple[int, str, bool]]:
    """Give how many words a version takes for a spelling alone and with a letter more, and for which option."""
    shorter = (spelling[:end] for end in range(len(spelling) - 1, 1, -1))
    before = next((name for name in shorter if version.get(name, "").startswith("JOINED")), None)
    kind = version.get(spelling)
    if kind is not None:
        yield 1 + (kind not in ("FLAG", "JOINED")), spelling, False
    if kind is not None and kind.startswith("JOINED"):
        yield 1 + (kind == "JOINED_AND_SEPARATE"), spelling, True
    elif before is not None:
        words = 1 + (version[before] == "JOINED_AND_SEPARATE")
        yield words, before, True
        if kind is None:
            yield words, before, False


def unite_llvm(versions: Sequence[LlvmOptions]) -> dict[str, set[str]]:
    """Give the names of LLVM's options by what is known of their values."""
    found: Mapping[str, set[tuple[int, bool]]] = defaultdict(set)
    for version in versions:
        for name, behaviour in version.items():
            found[name].add(behaviour)
    for name in (_DEVELOPMENT_VALUES + _ASSERTIONS_VALUES).split():
        found[name].add((1, True))
    for name in _ASSERTIONS_FLAGS.split():
        found[name].add((0, False))
    table: dict[str, set[str]] = {"OPTIONAL": set(), "REQUIRED": set(), "DIFFERS": set(), "TEXT": set()}
    for name, behaviours in found.items():
        taken = {taken for taken, _ in behaviours}
        table["DIFFERS" if len(taken) > 1 else "REQUIRED" if taken == {1} else "OPTIONAL"].add(name)
        if any(text for _, text in behaviours):
            table["TEXT"].add(name)
    return table


# --- the modules

_HEAD = '''"""{title}; made by scripts/make_cc1_options.py, not by hand.

{sources}
"""

from __future__ import annotations

from mlgo_corpus.formats.words import word_set

'''
_COMMENTS = {
    "FLAG": "There is no value.",
    "SEPARATE": "The value is the next word.",
    "JOINED_OR_SEPARATE": "The value is the rest of the word, or the next word if nothing is left.",
    "JOINED_AND_SEPARATE": "There are two values, the rest of the word and the next word.",
    "JOINED": "The value is the rest of the word.",
    "DIFFERS": "Versions disagree on whether the next word is the value of these.",
    "SHADOWED": "Spellings that other versions read as a shorter option and its value.",
    "OPTIONAL": "The value, if any, follows ``=``.",
    "REQUIRED": "The value follows ``=``, or is the next word.",
    "TEXT": "Options whose value may be any text. Others take a number, a truth value or one of a few words.",
}


def render(title: str, sources: Sequence[str], table: Mapping[str, Iterable[str]]) -> str:
    """Write tables as a Python module."""
    origin = textwrap.fill(f"The union over {', '.join(sources)}.", 120)
    parts = [_HEAD.format(title=title, sources=origin)]
    for name, names in table.items():
        words = textwrap.fill(
            " ".join(sorted(names)),
            116,
            break_long_words=False,
            break_on_hyphens=False,
            initial_indent="    ",
            subsequent_indent="    ",
        )
        parts.append(f'# {_COMMENTS[name]}\n{name} = word_set(\n    """\n{words}\n    """\n)\n')
    return "\n".join(parts)


def main() -> None:
    """Read the sources, write the tables."""
    parser = argparse.ArgumentParser(description="Write the tables of options that a replay knows.")
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("mlgo_corpus/formats/commands"))
    arguments = parser.parse_args()
    headers = {_title(source): read_header(source) for source in arguments.sources if source.suffix == ".inc"}
    versions = dict(headers)
    llvm_versions: dict[str, LlvmOptions] = {}
    for source in arguments.sources:
        if source.suffix == ".inc":
            continue
        title = _title(source)
        llvm_versions[title] = ask_llvm(source)
        print(f"{title}: {len(llvm_versions[title])} LLVM options")  # noqa: T201
        if not any(f"LLVM {title.split()[1].partition('.')[0]}" in header for header in headers):
            versions[title] = ask_cc1(source, list(headers.values()))
            print(f"{title}: {len(versions[title])} spellings")  # noqa: T201
    write(versions, llvm_versions, arguments.folder)


def write(versions: Mapping[str, Spellings], llvm_versions: Mapping[str, LlvmOptions], folder: Path) -> None:
    """Write both tables, and say where versions differ."""
    kinds, differs, shadowed = unite(list(versions.values()))
    if differs:
        raise SystemExit(f"versions differ on how many words {sorted(differs)} take, which the parser does not know of")
    for spelling, others in shadowed.items():
        print(f"{spelling} is also read as {', '.join(sorted(others))}")  # noqa: T201
    title = "How cc1 options are spelled, and which take a value"
    cc1 = render(title, list(versions), {**kinds, "SHADOWED": set(shadowed)})
    (folder / "cc1table.py").write_text(cc1)
    title = "LLVM's options, as -mllvm passes them"
    llvm = render(title, list(llvm_versions), unite_llvm(list(llvm_versions.values())))
    (folder / "llvmtable.py").write_text(llvm)


def _title(source: Path) -> str:
    if source.suffix == ".inc":
        found = re.search(r"llvm-(\d+)", str(source))
        return f"the Options.inc of LLVM {found[1] if found else '?'}"
    version = subprocess.run([*_command(source), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"clang version (\d+\.\d+\.\d+)", version)
    return f"{'zig' if source.name == 'zig' else 'clang'} {found[1] if found else '?'}"


if __name__ == "__main__":
    main()
