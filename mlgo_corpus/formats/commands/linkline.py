"""Code generation options of a link line: the ``global_command_override`` of a local ThinLTO corpus.

In a local ThinLTO build the linker compiles. The modules that lld saves with ``--save-temps=import``
(``X.3.import.bc``, as the ThinLTO backend has them right after importing) come without a command, so their cc1 command
is derived from the link's. A module is then replayed as ``clang OVERRIDE -x ir X.3.import.bc
-fthinlto-index=X.thinlto.bc -mllvm -thinlto-assume-merged -o X.o``, which enters the same ``lto::thinBackend``
(llvm/lib/LTO/LTOBackend.cpp) right after the import. The difference is the function that fills its ``lto::Config``:
lld's ``createConfig`` (lld/ELF/LTO.cpp) or clang's ``runThinLTOBackend`` (clang/lib/CodeGen/BackendUtil.cpp). An
override expresses the settings of the former as cc1 options.

Two steps
---------
A clang driver's line becomes linker options first, as in ``tools::addLTOOptions``
(clang/lib/Driver/ToolChains/CommonArgs.cpp): ``-O2``, ``-march=haswell`` and the like become ``-plugin-opt=`` options.
They come before everything from ``-Wl,`` and ``-Xlinker``, so these win. A driver does not pass on ``-mllvm``,
``-fPIC`` and ``-mcmodel=``. Then, as in lld/ELF/Driver.cpp and createConfig, the last of contradicting options wins:

- the level: ``--lto-O``, 2 by default. A driver's ``-Os`` and ``-Oz`` mean 2, ``-Og`` 1 (optimisation for size is an
  attribute of each function, and not lost). ``ld.lld -O2`` concerns the linker's own work, not this level.
- ``-vectorize-loops -vectorize-slp`` from level 2 on; ``-funroll-loops`` at level 1, where lld leaves unrolling on.
- ``-ffunction-sections -fdata-sections -faddrsig``: lld always sets these, whatever the line has.
- ``-mrelocation-model``: ``pic`` for ``-pie`` and ``-shared``, else ``static``. Drivers for Linux and Fuchsia link
  ``-pie`` by default. With ``-r`` each module decides, which an override cannot express: ``pic``, unless a driver's
  line has ``-fno-pic``.
- ``-target-cpu`` and ``-target-feature``: they affect only the few functions without attributes of their own.
- ``-mllvm X`` for each LLVM option, given by ``-mllvm X`` or ``-plugin-opt=X``; but options that lld registers and
  clang does not (llvm/lib/CodeGen/CommandFlags.cpp) make clang fail. They become cc1's own options, or are left out if
  lld ignores them.

What was measured
-----------------
The replay's objects against those of lld's backend (``--save-temps=prelink``), with LLVM 19.1.7 and 22.1.8. **The whole
files are identical**, not only ``.text``, in these cases:

- x86-64, 48 modules of Lua and zlib: levels 1, 2 and 3; executables with and without PIE, static, shared, ``-r``;
- x86-64, C and C++ (exceptions, vtables, thread-local storage) with part of the former, compiled at ``-O1`` to ``-O3``,
  ``-Os``, ``-Oz`` and unoptimised: ``-march=``, ``-mcmodel=``, ``-ffast-math``, ``-fno-pic``, ``-g`` of every tuning,
  sanitizers, stack protector, ``-fwhole-program-vtables``, XRay, plain IR profiles, basic block sections, and LLVM
  options, passed unchanged or translated;
- the same C and C++ for AArch64 (Linux, Android), RISC-V, i686, PowerPC, s390x, MIPS64, LoongArch, FreeBSD.
  On 32-bit Arm and LoongArch with LLVM 19 only ``.ARM.attributes`` and the ELF header's flags differ.

Settings that a cc1 command cannot express, so that objects differ:

- ``--lto-O0``: lld leaves the IR alone and generates code at level 2 (``args::getCGOptLevel``, lld/Common/Args.cpp);
  cc1 has one level for both. The override says ``-O1``. In Lua and zlib, optimised when they were compiled, half of
  the modules are identical then and the sizes within 1 %; with ``-O0`` the code is twice the size.
- A level of the code generator other than ``--lto-O``, for the same reason: ``--lto-CGO``, or 2 at ``--lto-O1``, where
  it is the default. The override follows ``--lto-O``. Generating at 1 for 2 makes no difference on x86-64 and does on
  32-bit Arm, 2 for 3 changed one module of 32, 2 for 0 nearly all.
- A context-sensitive profile (``--lto-cs-profile-file``; also what a driver makes of ``-fprofile-use``, where a profile
  of another kind has no effect): cc1 spells it differently in LLVM 19 and 22. Left out.
- ``-fveclib=``: with LLVM 19, cc1's option has no effect here, and the LLVM option that has one is refused by LLVM 22.
- ``-march=native``: the host is not known here. ``-target-cpu`` is left out.
- ``--lto-newpm-passes``, ``--lto-aa-pipeline``, ``--load-pass-plugin``, ``-mllvm -stack-symbol-ordering=0``: no
  counterpart. Left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from mlgo_corpus.errors import FormatError, UnsupportedError
from mlgo_corpus.formats.commands.driverline import TAKES_NEXT
from mlgo_corpus.formats.words import word_set


def override_from_link_line(tokens: Sequence[str], target_triple: str) -> tuple[str, ...]:
    """Derive the cc1 command that stands for the code generation of a ThinLTO link.

    Args:
        tokens: the link command, split as a shell splits it: a clang driver's, or lld's own. It may be one of several
            separated by ``&&``, ``||`` or ``;``, as CMake writes them. An ``@file`` is ignored: it usually names
            objects.
        target_triple: the modules', for example ``x86_64-pc-linux-gnu``; ELF only.

    Returns:
        ``-cc1 -triple T -emit-obj -O2 ...``: without options that do not affect the code, and unknown ones.

    Raises:
        FormatError: the tokens have no link command, or several that disagree, or a level that lld rejects.
        UnsupportedError: the linker is not lld, or the target's objects are not ELF.
    """
    if not target_triple:
        raise FormatError("expected the target triple of the link's modules, found none")
    if _NOT_ELF.search(target_triple):
        raise UnsupportedError(f"an override is derived from links for ELF targets only, found {target_triple!r}")
    commands = tuple(_iter_link_commands(tokens))
    overrides = {_override(reader, arguments, target_triple) for reader, arguments in commands}
    if len(overrides) > 1:
        raise FormatError(
            f"expected one link command, found {len(commands)} that do not generate code alike; "
            "give the one that made these modules"
        )
    return overrides.pop()


# --- finding the command

_NOT_ELF = re.compile(r"-(?:apple|darwin|macos|ios|windows|win32|cygwin|mingw|uefi|aix)|^(?:wasm|dxil|spirv)")
_VERSION = r"(?:-\d+(?:\.\d+)*)?(?:\.exe)?$"
_DRIVER = re.compile(r"(?:.*-)?(?:clang(?:\+\+)?|c\+\+|cc|g\+\+|gcc)" + _VERSION)
_LLD = re.compile(r"(?:.*-)?(?:ld\.lld|lld|ld)" + _VERSION)
_OTHER_LINKER = re.compile(r"(?:.*-)?(?:ld64(?:\.lld)?|lld-link|wasm-ld|ld\.(?:gold|bfd|mold)|gold|mold)" + _VERSION)
_SHELL_OPERATORS = frozenset({"&&", "||", ";", "|", "&"})
_NO_LINK = frozenset({"-c", "-S", "-E", "-M", "-MM", "-cc1", "-cc1as", "-fsyntax-only", "--precompile"})
# If no program is named, options that only one of the two understands decide.
_DRIVERS_OWN = re.compile(r"-(?:Wl,|Xlinker$|fuse-ld=|flto)")
_LLDS_OWN = re.compile(r"--?(?:plugin-opt=|mllvm|dynamic-linker)|--(?:lto-|thinlto-|save-temps)")


class _Reader(Enum):
    """The program that reads a command's arguments."""

    DRIVER = auto()
    LLD = auto()


def _iter_link_commands(tokens: Sequence[str]) -> Iterator[tuple[_Reader, tuple[str, ...]]]:
    """Yield each link command's reader and arguments; raise an error if there is none."""
    if not tokens:
        raise FormatError("expected a link command, found nothing")
    compiles = ""
    found = False
    for command in _iter_shell_commands(tokens):
        reader, arguments = _find_reader(command)
        if reader is _Reader.DRIVER and (options := _NO_LINK.intersection(arguments)):
            compiles = min(options)
        elif reader is not None:
            found = True
            yield reader, arguments
    if not found:
        what = f"one that does not link ({compiles})" if compiles else repr(" ".join(tokens)[:60])
        raise FormatError(f"expected a link command of clang or ld.lld, found {what}")


def _iter_shell_commands(tokens: Sequence[str]) -> Iterator[tuple[str, ...]]:
    command: list[str] = []
    for token in (*tokens, ";"):
        if token not in _SHELL_OPERATORS:
            command.append(token)
        elif command:
            yield tuple(command)
            command = []


def _find_reader(command: tuple[str, ...]) -> tuple[_Reader | None, tuple[str, ...]]:
    """Find the program, after launchers such as ccache, and its arguments."""
    for index, word in enumerate(command):
        if word.startswith("-"):
            break
        name = _base_name(word)
        if _OTHER_LINKER.match(name):
            raise _unsupported_linker(name)
        if _DRIVER.match(name):
            return _Reader.DRIVER, command[index + 1 :]
        if _LLD.match(name):
            return _Reader.LLD, command[index + 1 :]
    if any(map(_DRIVERS_OWN.match, command)):
        return _Reader.DRIVER, command
    if any(map(_LLDS_OWN.match, command)):
        return _Reader.LLD, command
    return None, ()


def _base_name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def _unsupported_linker(name: str) -> UnsupportedError:
    return UnsupportedError(f"an override is derived from links by ld.lld only, found {name!r}")


# --- a driver's arguments as the linker's

_PIE_BY_DEFAULT = re.compile(r"-(?:linux|fuchsia)")
# For these targets -march= names a CPU, for others an architecture (getCPUName in CommonArgs.cpp).
_MARCH_IS_CPU = re.compile(r"x86_64|i[3-6]86|s390x|mips|loongarch")
_LEVEL = re.compile(r"-O([gsz]|fast|\d*)$")
_NAMED_LEVELS = {"": 1, "g": 1, "s": 2, "z": 2, "fast": 3}
_PIC = re.compile(r"-f(no-)?(?:pic|PIC|pie|PIE)$")
_FORWARDED = {  # a driver's option, up to and including its "=": the linker's
    "-fenable-matrix": "-plugin-opt=-enable-matrix",
    "-femulated-tls": "-plugin-opt=-emulated-tls",
    "-fno-emulated-tls": "-plugin-opt=-emulated-tls=0",
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
    "-gdbx": "-plugin-opt=-debugger-tune=dbx",
    "-gdwarf-aranges": "-plugin-opt=-generate-arange-section",
    "-ggdb": "-plugin-opt=-debugger-tune=gdb",
    "-glldb": "-plugin-opt=-debugger-tune=lldb",
    "-gsce": "-plugin-opt=-debugger-tune=sce",
    "-mbranches-within-32B-boundaries": "-plugin-opt=-x86-branches-within-32B-boundaries",
    "-moutline": "-plugin-opt=-enable-machine-outliner",
    "-mno-outline": "-plugin-opt=-enable-machine-outliner=never",
    "-mtls-dialect=desc": "-plugin-opt=-enable-tlsdesc",
    "-mtls-dialect=gnu2": "-plugin-opt=-enable-tlsdesc",
}


def _linker_arguments(arguments: Sequence[str], target_triple: str) -> tuple[str, ...]:
    """Return the options that a clang driver passes to lld, if they affect the code."""
    cpu = "x86-64" if target_triple.startswith("x86_64") else ""
    cpu_option = "-march=" if _MARCH_IS_CPU.match(target_triple) else "-mcpu="
    forwarded: list[str] = []
    passed: list[str] = []
    modes: set[str] = set()
    lto, pic = False, True
    pie = _PIE_BY_DEFAULT.search(target_triple) is not None
    linker = ""
    rest = iter(arguments)
    for argument in rest:
        head, equals, value = argument.partition("=")
        if argument == "-Xlinker":
            passed.append(next(rest, ""))
        elif argument in TAKES_NEXT:
            next(rest, None)
        elif argument.startswith("-Wl,"):
            passed += argument.split(",")[1:]
        elif head in ("-fuse-ld", "--ld-path"):
            linker = _base_name(value)
        elif head in ("-flto", "-fno-lto"):
            lto = head == "-flto"
        elif argument in ("-pie", "-no-pie", "-nopie"):
            pie = argument == "-pie"
        elif argument in ("-shared", "-static", "-static-pie", "-r"):
            modes.add(argument)
        elif match := _PIC.match(argument):
            pic = match[1] is None
        elif match := _LEVEL.match(argument):
            forwarded.append(f"-plugin-opt=O{_NAMED_LEVELS.get(match[1]) or min(int(match[1]), 3)}")
        elif argument.startswith(cpu_option):
            cpu = value.partition("+")[0]
        elif (option := "-ggdb" if argument.startswith("-ggdb") else argument) in _FORWARDED:
            forwarded.append(_FORWARDED[option])
        elif f"{head}{equals}" in _FORWARDED:
            forwarded.append(_FORWARDED[f"{head}{equals}"] + value)
    if linker and not _LLD.match(linker):
        raise _unsupported_linker(linker)
    mode: list[str] = [option for option in ("-shared", "-r") if option in modes]
    if "-static-pie" in modes or (pie and not modes):
        mode.append("-pie")
    if "-r" in modes and not pic:
        mode.append("-plugin-opt=-relocation-model=static")
    if cpu:
        forwarded.append(f"-plugin-opt=mcpu={cpu}")
    # Without -flto the linker still compiles bitcode inputs, but the driver passes it no options for that.
    return (*mode, *(forwarded if lto else ()), *passed)


# --- the linker's arguments as cc1's

_LINKER_VALUES = frozenset({"-o", "--output", "-z", "-u", "-e", "-h", "-soname", "--soname", "--defsym", "-T", "-y"})
_MODES = {  # without dashes, of which lld accepts one or two
    "Bshareable": ("shared", True),
    "no-pie": ("pie", False),
    "pic-executable": ("pie", True),
    "pie": ("pie", True),
    "r": ("relocatable", True),
    "relocatable": ("relocatable", True),
    "shared": ("shared", True),
}
# lld's options that correspond to an option of LLVM, by their beginnings: lld's, LLVM's.
_LTO_OPTIONS = (
    ("--lto-basic-block-address-map", "-basic-block-sections=labels"),
    ("--lto-basic-block-sections=", "-basic-block-sections="),
    ("--lto-unique-basic-block-section-names", "-unique-basic-block-section-names"),
)
# LLVM options that clang does not have (llvm/lib/CodeGen/CommandFlags.cpp), or has and ignores
# (llvm/lib/MC/MCTargetOptionsCommandFlags.cpp), as cc1 options.
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
# cc1's name of a vector library, if LLVM's is another.
_VECTOR_LIBRARIES = {"LIBMVEC": "libmvec", "LIBMVEC-X86": "libmvec", "sleefgnuabi": "SLEEF"}
# More such LLVM options, which in an LTO link have no effect (lld sets the value itself, or only opt and llc use it),
# do not change code, or have no counterpart. Clang has lto-embed-bitcode, which would embed the module in its object.
_LEFT_OUT = word_set(
    """
    addrsig basic-block-address-map call-graph-section data-sections debug-entry-values denormal-fp-math
    denormal-fp-math-f32 disable-tail-calls emit-call-site-info enable-approx-func-fp-math enable-no-infs-fp-math
    enable-no-nans-fp-math enable-no-signed-zeros-fp-math enable-no-trapping-fp-math
    enable-sign-dependent-rounding-fp-math enable-unsafe-fp-math exception-model filetype frame-pointer
    function-sections ignore-xcoff-visibility large-data-threshold load lto-embed-bitcode march meabi mxcoff-roptr
    no-integrated-as partition-static-data-sections stack-symbol-ordering stackrealign swift-async-fp tailcallopt
    trap-func vec-extabi xcoff-traceback-table xray-function-index
    """
)
# lld turns both vectorisers on from level 2, and never changes unrolling, which is on in PipelineTuningOptions; cc1
# has the vectorisers off, and unrolling off below level 2.
_OPTIMISATION = (
    ("-O1",),  # explained in the module's docstring
    ("-O1", "-funroll-loops"),
    ("-O2", "-vectorize-loops", "-vectorize-slp"),
    ("-O3", "-vectorize-loops", "-vectorize-slp"),
)


@dataclass(slots=True)
class _Link:
    """The settings on lld's command line that affect the code."""

    level: int = 2
    modes: dict[str, bool] = field(default_factory=dict)
    sample_profile: str = ""
    llvm_options: list[str] = field(default_factory=list)


def _override(reader: _Reader, arguments: Sequence[str], target_triple: str) -> tuple[str, ...]:
    link = _read_link(_linker_arguments(arguments, target_triple) if reader is _Reader.DRIVER else arguments)
    model = "pic" if any(link.modes.values()) else "static"
    settings: dict[str, tuple[str, ...]] = {"relocation-model": ("-mrelocation-model", model)}
    passed: list[str] = []
    for option in link.llvm_options:
        name, _, value = option.lstrip("-").partition("=")
        translated = _translate(name, value)
        if translated is None:
            passed += ("-mllvm", option)
        elif name == "mattr":  # a list: each one adds to those before it
            settings[name] = settings.get(name, ()) + translated
        else:
            settings[name] = translated
    if link.sample_profile:
        settings["sample-profile"] = (f"-fprofile-sample-use={link.sample_profile}",)
    return (
        *("-cc1", "-triple", target_triple, "-emit-obj"),
        *_OPTIMISATION[link.level],
        *("-ffunction-sections", "-fdata-sections", "-faddrsig"),
        *(word for setting in settings.values() for word in setting),
        *passed,
    )


def _read_link(arguments: Sequence[str]) -> _Link:
    link = _Link()
    # lld parses the LLVM options in this order, and the last one wins: the last mcpu=, other -plugin-opt=, -mllvm.
    cpus: list[str] = []
    plugin_options: list[str] = []
    llvm_options: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        head, _, value = argument.partition("=")
        plugin_option = value if head in ("-plugin-opt", "--plugin-opt") else ""
        if argument in ("-mllvm", "--mllvm"):
            llvm_options.append(next(rest, ""))
        elif head in ("-mllvm", "--mllvm"):
            llvm_options.append(value)
        elif argument in _LINKER_VALUES:
            next(rest, None)
        elif plugin_option.startswith("-"):
            plugin_options.append(plugin_option)
        elif plugin_option.startswith("mcpu="):
            cpus.append(f"-{plugin_option}")
        elif plugin_option.startswith("O"):
            link.level = _level(argument, plugin_option.removeprefix("O"))
        elif argument.startswith("--lto-O"):
            link.level = _level(argument, argument.removeprefix("--lto-O"))
        elif plugin_option.startswith("sample-profile="):
            link.sample_profile = plugin_option.removeprefix("sample-profile=")
        elif head == "--lto-sample-profile":
            link.sample_profile = value
        elif argument.startswith("-") and (mode := _MODES.get(argument.removeprefix("-").removeprefix("-"))):
            link.modes[mode[0]] = mode[1]
        else:
            plugin_options += [to + argument[len(ours) :] for ours, to in _LTO_OPTIONS if argument.startswith(ours)]
    link.llvm_options = [option for option in (*cpus, *plugin_options, *llvm_options) if option]
    return link


def _level(argument: str, level: str) -> int:
    if level not in ("0", "1", "2", "3"):
        raise FormatError(f"reading {argument!r} in the link command, expected a level from 0 to 3, found {level!r}")
    return int(level)


def _translate(name: str, value: str) -> tuple[str, ...] | None:
    """Return the cc1 words for an LLVM option, possibly none; None if clang accepts the option itself."""
    if name in _LEFT_OUT or (name == "mcpu" and value == "native"):
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
