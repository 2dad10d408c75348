"""What a link line says about code generation: the ``global_command_override`` of a local ThinLTO corpus.

In a local ThinLTO build the linker compiles. What lld saves with ``--save-temps=import`` (``X.3.import.bc``: the
module as the ThinLTO backend has it right after importing) comes without a command, so its cc1 command is derived
from the link's. A module is then replayed as ``clang OVERRIDE -x ir X.3.import.bc -fthinlto-index=X.thinlto.bc
-mllvm -thinlto-assume-merged -o X.o``, which enters the same ``lto::thinBackend`` (llvm/lib/LTO/LTOBackend.cpp)
behind the import. What differs is who fills its ``lto::Config``: lld's ``createConfig`` (lld/ELF/LTO.cpp) or clang's
``runThinLTOBackend`` (clang/lib/CodeGen/BackendUtil.cpp). An override says in cc1's words what lld's function sets.

The two steps
=============
A line of a clang driver becomes linker options first, as ``tools::addLTOOptions``
(clang/lib/Driver/ToolChains/CommonArgs.cpp) does it: ``-O``, ``-march``, ... give ``-plugin-opt=`` options, which
stand before everything from ``-Wl,`` and ``-Xlinker``, so these win. A driver forwards neither ``-mllvm`` nor
``-fPIC`` nor ``-mcmodel=`` to the linker. Then, as in lld/ELF/Driver.cpp, the last of contradicting options wins:

============================  ========================================================================================
``-O1``, ``-O2``, ``-O3``     ``--lto-O``; 2 by default. ``-Os`` and ``-Oz`` on a driver's line mean 2, ``-Og`` 1: to
                              optimise for size is an attribute of each function and not lost. ``ld.lld -O2`` is not
                              this option: it is about the linker's own work.
``-vectorize-loops -slp``     from ``-O2`` on; ``-funroll-loops`` at ``-O1``, where lld leaves unrolling on.
``-ffunction-sections``       with ``-fdata-sections`` and ``-faddrsig``: lld always sets these three; what the line
                              says of them has no effect.
``-mrelocation-model``        ``pic`` for ``-pie`` and ``-shared``, else ``static``. Drivers for Linux and Fuchsia link
                              ``-pie`` by default. With ``-r`` lld leaves it to each module, which an override cannot:
                              ``pic``, unless a driver's line has ``-fno-pic``.
``-target-cpu``, -feature     ``-plugin-opt=mcpu=``, ``-mattr=``: for the few functions without attributes of their own.
``-mllvm X``                  the LLVM options given with ``-mllvm`` and ``-plugin-opt=-X``, except those that lld
                              registers and clang does not (llvm/lib/CodeGen/CommandFlags.cpp): clang would refuse
                              them; they become cc1's own options or, where lld has no use for them, nothing.
============================  ========================================================================================

What was measured
=================
The objects of the replay and of lld's backend (``--save-temps=prelink``), LLVM 19.1.7 and 22.1.8, x86-64, 48 modules of
Lua and zlib and C and C++ programs made for it. The **whole file is identical**, not only ``.text``, for:
``--lto-O1``, ``-O2`` and ``-O3``, of modules compiled at ``-O0`` to ``-O3``, ``-Os`` and ``-Oz``; executables with and
without PIE, shared objects, static and ``-r`` links; ``--lto-CGO1``, 2 and 3; ``-march=``; LLVM options.

What a cc1 command cannot say, so that objects differ:

- ``--lto-O0``: lld does not optimise, but generates code at level 2 (``args::getCGOptLevel``, lld/Common/Args.cpp); cc1
  has one level for both. The override says ``-O1``, within 1 % of the size (half of the modules identical, where the
  compiler had optimised before); ``-O0`` gives twice the size.
- ``--lto-CGO0`` with a higher ``--lto-O``: for the same reason; the override follows ``--lto-O``.
- A context-sensitive profile (``--lto-cs-profile-file``; a driver's ``-fprofile-use``): the cc1 options are
  not the same in LLVM 19 and 22. Left out.
- ``--lto-newpm-passes``, ``--lto-aa-pipeline``, ``--load-pass-plugin``: no counterpart. Left out.
- ``-march=native``: the host is not known here; the CPU is left out.
- ``-fveclib=``: ``-fveclib=`` in the override, which LLVM 19 ignores here (it wants an ``-mllvm`` option that LLVM 22
  refuses).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from mlgo_corpus.errors import FormatError, UnsupportedError


def override_from_link_line(tokens: Sequence[str], target_triple: str) -> tuple[str, ...]:
    """Derive the cc1 command that stands for a ThinLTO link's code generation.

    Args:
        tokens: the link command, split as a shell would: a clang driver's or lld's own, with what its response files
            hold in their place (an ``@file`` that is left is ignored). Parts divided by ``&&``, ``||`` and ``;`` are
            told apart, as CMake writes them.
        target_triple: of the modules, e.g. ``x86_64-pc-linux-gnu``; ELF only.

    Returns:
        ``-cc1 -triple T -emit-obj -O2 ...``. Options that have no bearing on the code are not in it.

    Raises:
        FormatError: there is no link command among the tokens, or several that disagree, or a value that lld refuses.
        UnsupportedError: another linker than lld, or another object format than ELF.
    """
    if not target_triple:
        raise FormatError("expected the modules' target triple, found none")
    if _NOT_ELF.search(target_triple):
        raise UnsupportedError(
            f"expected a link for an ELF target, found {target_triple!r}: no override is derived for it"
        )
    commands = list(_link_commands(tokens))
    overrides = {_override(kind, arguments, target_triple) for kind, arguments in commands}
    if len(overrides) > 1:
        raise FormatError(
            f"expected one link command, found {len(commands)} that generate code in different ways; "
            "give the one that made these modules"
        )
    return overrides.pop()


# --- finding the command

_NOT_ELF = re.compile(r"-(?:apple|windows|win32|cygwin|mingw32|uefi|aix|darwin|macosx?|ios)|^(?:wasm|dxil|spirv)")
_VERSION = r"(?:-\d+(?:\.\d+)*)?(?:\.exe)?$"
_DRIVER = re.compile(r"(?:.*-)?(?:clang(?:\+\+)?|c\+\+|cc|g\+\+|gcc)" + _VERSION)
_LLD = re.compile(r"(?:.*-)?(?:ld\.lld|ld|lld)" + _VERSION)
_OTHER_LINKER = re.compile(r"(?:.*-)?(?:ld64\.lld|ld64|lld-link|wasm-ld|ld\.(?:gold|bfd|mold)|gold|mold)" + _VERSION)
_SHELL_OPERATORS = frozenset({"&&", "||", ";", "|", "&"})
_COMPILE_ONLY = frozenset({"-c", "-S", "-E", "-cc1", "-cc1as", "-fsyntax-only", "-M", "-MM", "--precompile"})
# Where no program is named, what only the one or the other understands decides.
_DRIVER_ONLY = re.compile(r"-(?:Wl,|Xlinker$|fuse-ld=|flto)")
_LLD_ONLY = re.compile(r"--?(?:plugin-opt=|mllvm|dynamic-linker)|--(?:lto-|thinlto-|save-temps)|-m$")


class _Kind(Enum):
    DRIVER = auto()
    LLD = auto()


def _link_commands(tokens: Sequence[str]) -> Iterator[tuple[_Kind, tuple[str, ...]]]:
    """Yield the link commands: who reads it, and its arguments. There is at least one, or an error is raised."""
    if not tokens:
        raise FormatError("expected a link command, found nothing")
    found = 0
    compile_option = None
    for command in _shell_commands(tokens):
        kind, arguments = _program(command)
        if kind is None:
            continue
        if kind is _Kind.DRIVER and (options := _COMPILE_ONLY.intersection(arguments)):
            compile_option = min(options)
            continue
        found += 1
        yield kind, arguments
    if not found:
        what = f"a compile command ({compile_option})" if compile_option else repr(" ".join(tokens)[:60])
        raise FormatError(f"expected a link command of clang or lld, found {what}")


def _shell_commands(tokens: Sequence[str]) -> Iterator[tuple[str, ...]]:
    command: list[str] = []
    for token in (*tokens, ";"):
        if token not in _SHELL_OPERATORS:
            command.append(token)
        elif command:
            yield tuple(command)
            command = []


def _program(command: tuple[str, ...]) -> tuple[_Kind | None, tuple[str, ...]]:
    """Tell what reads the command, launchers such as ccache skipped, and give its arguments."""
    for index, token in enumerate(command):
        if token.startswith("-"):
            break
        name = re.split(r"[/\\]", token)[-1]
        if _OTHER_LINKER.match(name):
            raise UnsupportedError(f"expected a link by ld.lld, found {name}: no override is derived for it")
        if _DRIVER.match(name):
            return _Kind.DRIVER, command[index + 1 :]
        if _LLD.match(name):
            return _Kind.LLD, command[index + 1 :]
    if any(map(_DRIVER_ONLY.match, command)):
        return _Kind.DRIVER, command
    if any(map(_LLD_ONLY.match, command)):
        return _Kind.LLD, command
    return None, ()


# --- a driver's options as the linker's

# Options whose next token is their value, however it begins. The values of others do not begin with a dash.
_DRIVER_VALUES = frozenset({"-o", "-Xclang", "-Xassembler", "-Xpreprocessor", "-mllvm", "-z", "-u", "-e", "-T", "-D"})
_PIE_BY_DEFAULT = re.compile(r"-(?:linux|fuchsia)")
_LEVEL = re.compile(r"-O(?P<level>[gsz]|fast|\d*)$")
_NAMED_LEVELS = {"": 1, "g": 1, "s": 2, "z": 2, "fast": 3}
_FORWARDED = {  # a driver's option, up to and with its "=": the linker's
    "-mbranches-within-32B-boundaries": "-plugin-opt=-x86-branches-within-32B-boundaries",
    "-moutline": "-plugin-opt=-enable-machine-outliner",
    "-mno-outline": "-plugin-opt=-enable-machine-outliner=never",
    "-mtls-dialect=gnu2": "-plugin-opt=-enable-tlsdesc",
    "-mtls-dialect=desc": "-plugin-opt=-enable-tlsdesc",
    "-femulated-tls": "-plugin-opt=-emulated-tls",
    "-fno-emulated-tls": "-plugin-opt=-emulated-tls=0",
    "-fenable-matrix": "-plugin-opt=-enable-matrix",
    "-fglobal-isel": "-plugin-opt=-global-isel=1",
    "-fno-global-isel": "-plugin-opt=-global-isel=0",
    "-fjmc": "-plugin-opt=-enable-jmc-instrument",
    "-fno-jmc": "-plugin-opt=-enable-jmc-instrument=0",
    "-fprofile-sample-use=": "-plugin-opt=sample-profile=",
    "-fsplit-machine-functions": "-plugin-opt=-split-machine-functions",
    "-fno-split-machine-functions": "-plugin-opt=-split-machine-functions=0",
    "-fstack-size-section": "-plugin-opt=-stack-size-section",
    "-fno-stack-size-section": "-plugin-opt=-stack-size-section=0",
    "-fveclib=": "-plugin-opt=-vector-library=",
    "-gdwarf-aranges": "-plugin-opt=-generate-arange-section",
    "-gdbx": "-plugin-opt=-debugger-tune=dbx",
    "-ggdb": "-plugin-opt=-debugger-tune=gdb",
    "-glldb": "-plugin-opt=-debugger-tune=lldb",
    "-gsce": "-plugin-opt=-debugger-tune=sce",
}


def _linker_options(arguments: Sequence[str], target_triple: str) -> tuple[str, ...]:
    """Give the options that a clang driver hands to lld, as far as they bear on the code."""
    # -march= names a CPU on these, an architecture elsewhere (getCPUName in CommonArgs.cpp).
    march_is_cpu = target_triple.startswith(("x86_64", "i386", "i486", "i586", "i686", "s390x", "mips", "loongarch"))
    cpu = "x86-64" if target_triple.startswith("x86_64") else ""
    forwarded, passed, kinds = [], [], set()
    lto, pie, pic = False, None, True
    rest = iter(arguments)
    for token in rest:
        if token in _DRIVER_VALUES:
            next(rest, None)
        elif token == "-Xlinker":
            passed.append(next(rest, ""))
        elif token.startswith("-Wl,"):
            passed += token.split(",")[1:]
        elif token.startswith(("-fuse-ld=", "--ld-path=")):
            _check_linker(token.partition("=")[2])
        elif token.startswith("-flto") or token == "-fno-lto":
            lto = token != "-fno-lto"
        elif token in ("-pie", "-no-pie", "-nopie"):
            pie = token == "-pie"
        elif token in ("-shared", "-static", "-static-pie", "-r"):
            kinds.add(token)
        elif re.fullmatch(r"-f(?:no-)?(?:pic|PIC|pie|PIE)", token):
            pic = not token.startswith("-fno-")
        elif match := _LEVEL.match(token):
            level = match["level"]
            forwarded.append(f"-plugin-opt=O{_NAMED_LEVELS.get(level) or min(int(level), 3)}")
        elif token.startswith("-march=" if march_is_cpu else "-mcpu="):
            cpu = token.partition("=")[2].partition("+")[0]
        elif token in _FORWARDED:
            forwarded.append(_FORWARDED[token])
        elif token.startswith("-ggdb"):
            forwarded.append(_FORWARDED["-ggdb"])
        elif (option := token.partition("=")[0] + "=") in _FORWARDED:
            forwarded.append(_FORWARDED[option] + token[len(option) :])
    mode = ["-shared"] if "-shared" in kinds else []
    if "-r" in kinds:
        mode += ["-r"] if pic else ["-r", "-plugin-opt=-relocation-model=static"]
    elif "-static-pie" in kinds or (
        not kinds and (pie if pie is not None else _PIE_BY_DEFAULT.search(target_triple) is not None)
    ):
        mode.append("-pie")
    if cpu and cpu != "native":
        forwarded.insert(0, f"-plugin-opt=mcpu={cpu}")
    # Without -flto a driver says nothing about code generation to the linker, which compiles bitcode all the same.
    return (*mode, *(forwarded if lto else ()), *passed)


def _check_linker(name: str) -> None:
    if not _LLD.match(re.split(r"[/\\]", name)[-1]):
        raise UnsupportedError(f"expected a link by ld.lld, found {name}: no override is derived for it")


# --- the linker's options as cc1's

_LINKER_VALUES = frozenset({"-o", "--output", "-z", "-u", "-e", "-h", "-soname", "--soname", "--defsym", "-T", "-y"})
_MODES = {  # without the dashes, of which lld takes one or two
    "pie": ("pie", True),
    "pic-executable": ("pie", True),
    "no-pie": ("pie", False),
    "shared": ("shared", True),
    "Bshareable": ("shared", True),
    "relocatable": ("relocatable", True),
    "r": ("relocatable", True),
}
# lld's options for what LLVM has an option too: (beginning of lld's, beginning of LLVM's).
_LTO_OPTIONS = (
    ("--lto-basic-block-sections=", "-basic-block-sections="),
    ("--lto-basic-block-address-map", "-basic-block-sections=labels"),
    ("--lto-unique-basic-block-section-names", "-unique-basic-block-section-names"),
)
# Options that lld registers with LLVM's command line and clang does not (llvm/lib/CodeGen/CommandFlags.cpp), or whose
# effect clang takes from its own (llvm/lib/MC/MCTargetOptionsCommandFlags.cpp), in cc1's words.
_VALUES = {
    "align-loops": ("-falign-loops={}",),
    "code-model": ("-mcmodel={}",),
    "debugger-tune": ("-debugger-tuning={}",),
    "float-abi": ("-mfloat-abi", "{}"),
    "fp-contract": ("-ffp-contract={}",),
    "mcpu": ("-target-cpu", "{}"),
    "relocation-model": ("-mrelocation-model", "{}"),
    "thread-model": ("-mthread-model", "{}"),
    "tls-size": ("-mtls-size={}",),
}
_SWITCHES = {  # on, off
    "emulated-tls": ("-femulated-tls", "-fno-emulated-tls"),
    "enable-jmc-instrument": ("-fjmc", ""),
    "enable-tlsdesc": ("-enable-tlsdesc", ""),
    "force-dwarf-frame-section": ("-fforce-dwarf-frame", ""),
    "mc-relax-all": ("-mrelax-all", ""),
    "nozero-initialized-in-bss": ("-fno-zero-initialized-in-bss", ""),
    "separate-named-sections": ("-fseparate-named-sections", ""),
    "split-machine-functions": ("-fsplit-machine-functions", ""),
    "stack-size-section": ("-fstack-size-section", ""),
    "strict-dwarf": ("-gstrict-dwarf", ""),
    "unique-basic-block-section-names": ("-funique-basic-block-section-names", ""),
    "unique-section-names": ("", "-fno-unique-section-names"),
    "use-ctors": ("-fno-use-init-array", ""),
    "x86-relax-relocations": ("", "-mrelax-relocations=no"),
}
# LLVM's name of a vector library, where clang has another.
_VECTOR_LIBRARIES = {"LIBMVEC": "libmvec", "LIBMVEC-X86": "libmvec", "sleefgnuabi": "SLEEF"}
# Those of lld's that change nothing in an LTO link, or nothing that is code. Embedded bitcode is not code either.
_WITHOUT_EFFECT = frozenset(
    """
    addrsig basic-block-address-map call-graph-section data-sections debug-entry-values denormal-fp-math
    denormal-fp-math-f32 disable-tail-calls emit-call-site-info enable-approx-func-fp-math enable-no-infs-fp-math
    enable-no-nans-fp-math enable-no-signed-zeros-fp-math enable-no-trapping-fp-math
    enable-sign-dependent-rounding-fp-math enable-unsafe-fp-math exception-model filetype frame-pointer
    function-sections ignore-xcoff-visibility large-data-threshold load lto-embed-bitcode march meabi mxcoff-roptr
    no-integrated-as partition-static-data-sections stack-symbol-ordering stackrealign swift-async-fp tailcallopt
    trap-func vec-extabi xcoff-traceback-table xray-function-index
    """.split()
)


@dataclass(slots=True)
class _Link:
    """What lld reads from its command line, as far as it bears on the code."""

    level: int = 2
    modes: dict[str, bool] = field(default_factory=dict)
    sample_profile: str = ""
    llvm_options: list[str] = field(default_factory=list)


def _read_linker_options(arguments: Sequence[str]) -> _Link:
    link = _Link()
    # lld parses -plugin-opt=mcpu= before -plugin-opt=-X, and that before -mllvm: the later wins (lld/ELF/Driver.cpp).
    cpus, plugin_options, llvm_options = [], [], []
    rest = iter(arguments)
    for token in rest:
        plugin_option = re.sub(r"^--?plugin-opt=", "", token) if "plugin-opt=" in token else ""
        if token in ("-mllvm", "--mllvm"):
            llvm_options.append(next(rest, ""))
        elif token in _LINKER_VALUES:
            next(rest, None)
        elif token.startswith(("-mllvm=", "--mllvm=")):
            llvm_options.append(token.partition("=")[2])
        elif plugin_option.startswith("-"):
            plugin_options.append(plugin_option)
        elif plugin_option.startswith("mcpu="):
            cpus.append(f"-{plugin_option}")
        elif token.startswith("--lto-O") or plugin_option.startswith("O"):
            link.level = _level(token)
        elif token.startswith("--lto-sample-profile=") or plugin_option.startswith("sample-profile="):
            link.sample_profile = token.rpartition("profile=")[2]
        elif token.startswith("-") and (mode := token.removeprefix("-").removeprefix("-")) in _MODES:
            name, value = _MODES[mode]
            link.modes[name] = value
        else:
            plugin_options += [to + token[len(lto) :] for lto, to in _LTO_OPTIONS if token.startswith(lto)]
    link.llvm_options = [*cpus, *plugin_options, *llvm_options]
    return link


def _level(token: str) -> int:
    level = token.rpartition("O")[2]
    if level not in ("0", "1", "2", "3"):
        raise FormatError(f"reading {token!r} in the link command, expected a level from 0 to 3, found {level!r}")
    return int(level)


def _override(kind: _Kind, arguments: Sequence[str], target_triple: str) -> tuple[str, ...]:
    link = _read_linker_options(_linker_options(arguments, target_triple) if kind is _Kind.DRIVER else arguments)
    settings: dict[str, tuple[str, ...]] = {
        "relocation-model": ("-mrelocation-model", "pic" if any(link.modes.values()) else "static")
    }
    passed: list[str] = []
    for option in link.llvm_options:
        name, _, value = option.lstrip("-").partition("=")
        translated = _translate(name, value)
        if translated is None:
            passed += ["-mllvm", option]
        elif name == "mattr":
            settings[name] = settings.get(name, ()) + translated
        else:
            settings[name] = translated
    if link.sample_profile:
        settings["sample-profile"] = (f"-fprofile-sample-use={link.sample_profile}",)
    return (
        *("-cc1", "-triple", target_triple, "-emit-obj"),
        *_OPTIMISATION[link.level],
        *("-ffunction-sections", "-fdata-sections", "-faddrsig"),
        *(argument for arguments in settings.values() for argument in arguments),
        *passed,
    )


def _translate(name: str, value: str) -> tuple[str, ...] | None:
    """Give the cc1 options for an LLVM option of lld's, maybe none; None where clang takes it as it is."""
    if name in _WITHOUT_EFFECT or (name == "mcpu" and value == "native"):
        return ()
    if name in _VALUES:
        return tuple(word.format(value) for word in _VALUES[name])
    if name in _SWITCHES:
        word = _SWITCHES[name][value.lower() not in ("", "1", "true")]
        return (word,) if word else ()
    if name == "mattr":
        return tuple(word for feature in value.split(",") for word in ("-target-feature", feature))
    if name == "vector-library":
        return (f"-fveclib={_VECTOR_LIBRARIES.get(value, value)}",)
    if name == "basic-block-sections":
        if value == "labels":
            return ("-fbasic-block-address-map",)
        return (f"-fbasic-block-sections={value if value in ('all', 'none') else f'list={value}'}",)
    return None


# What lld makes of its level: both vectorisers from 2 on, unrolling always (lld/ELF/LTO.cpp; the defaults of
# PipelineTuningOptions), where cc1 has the former off and the latter off below 2.
_OPTIMISATION = {
    0: ("-O1",),  # see the module's docstring
    1: ("-O1", "-funroll-loops"),
    2: ("-O2", "-vectorize-loops", "-vectorize-slp"),
    3: ("-O3", "-vectorize-loops", "-vectorize-slp"),
}
