"""Replaying a module: the cc1 command that compiles its bitcode again, and nothing else.

``clang`` + neutralised command + ``-x ir MODULE.bc`` + ThinLTO's index + the caller's options + ``-o OUTPUT``.

A command comes from a build that no longer exists, or from an untrusted source. So it is split into whole options
(`options`), and then

- options that do not affect the object's code and data are removed: inputs and outputs, other files that are written,
  reports, preprocessed or serialised by-products (`neutralise`);
- options that would run code other than the compiler's, or do something other than generate code, are refused, and so
  is every unknown option (`refused_options`);
- options that name a file that is read, also when the input is IR, are listed, so that a missing file can be reported
  (`required_files`).

What was measured (LLVM 19.1.7 and 22.1.8)
------------------------------------------
Every cc1 option, and every LLVM option except those that take a number according to the help, was tried on a small
module with a path as its value, and with the compiler's system calls recorded. Options that wrote a file, ran a program
or ended without an object are removed or refused; options that read a file are listed.

- Files are written by ``-diagnostic-log-file``, ``-serialize-diagnostic-file``, ``-split-dwarf-output``,
  ``-stack-usage-file``, ``-opt-record-file``, ``-stats-file=``, ``-ftime-trace=``, and by ``-coverage-notes-file=``:
  not at its value, but at the path in the module's ``llvm.gcov`` metadata, so anywhere. Without it and with
  ``-coverage-data-file=`` the object is the same. The dependency file's options write nothing for IR.
- LLVM's options ``-info-output-file``, ``-view-edge-bundles``, ``-polly-dot``, ``-polly-dot-only`` and
  ``-polly-show-only`` write files. **-exec-on-ir-change=PROGRAM runs a program**, found on PATH.
- ``-load`` and ``-fpass-plugin=`` load a library, whose constructors run. LLVM's ``-load`` and ``-load-pass-plugin``
  are options of opt, which clang does not know.
- A word ``@FILE`` is replaced by the file's words, also where it is an option's value: ``-D @FILE`` defines the first
  word and reads the others as options. LLVM does the same with ``-mllvm @FILE``.
- ``-fthinlto-index=`` of a missing file ends with exit code **0 and an empty object**. A missing profile, list or
  overlay is an error with exit code 1.
- ``-split-dwarf-file`` and ``-split-dwarf-output`` only determine where debug information goes. Without them it is in
  the object, and ``.text`` and ``.eh_frame`` are the same. ml-compiler-opt drops both too.

What a caller has to do
-----------------------
Run the compiler in an empty folder of its own, with a deadline: an option with an unknown effect may still write a file
with a plain name there. The environment should set ``TMPDIR``, because a compiler that crashes leaves files there, and
``LLVM_DISABLE_SYMBOLIZATION=1``, because it would look for a program on PATH. Untrusted bitcode may contain inline
assembly that reads files (``.incbin``) into the object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.commands.options import Cc1Option, LlvmOption, join_cc1, llvm_options, parse_cc1
from mlgo_corpus.formats.words import word_set

# --- options that do not affect code and data


_DROPPED = word_set(
    """
    -o -x -working-directory -working-directory=
    -fembed-bitcode -fembed-bitcode=
    -dependency-file -dependency-dot -module-dependency-dir -module-file-deps -sys-header-deps -fdepfile-entry=
    -MT -MQ -MP -MG -MV -H -header-include-file -header-include-format= -header-include-filtering=
    -show-skipped-includes --show-includes
    -serialize-diagnostic-file -diagnostic-log-file -verify -verify= -v -print-stats
    -split-dwarf-file -split-dwarf-output -dumpdir -save-temps= -fmodule-output=
    -coverage-notes-file -coverage-notes-file= -femit-coverage-notes -ftest-coverage
    -stack-usage-file -stats-file= -stats-file-append -as-secure-log-file
    -ftime-trace -ftime-trace= -ftime-trace-granularity= -ftime-trace-verbose -ftime-report -ftime-report=
    -opt-record-file -opt-record-format -opt-record-passes -R -mdebug-pass
    -fdiagnostics-show-hotness -fdiagnostics-hotness-threshold=
    -ast-dump-filter -ast-dump-filter= -dump-coverage-mapping -dump-deserialized-decls
    -fdump-record-layouts -fdump-record-layouts-simple -fdump-record-layouts-complete -fdump-record-layouts-canonical
    -fdump-vtable-layouts
    -ivfsoverlay -vfsoverlay -fmodules-embed-file= -fmodules-cache-path= -index-store-path
    -arcmt-action= -arcmt-migrate-report-output -mt-migrate-directory -analyzer-dump-egraph -analyzer-dump-egraph=
    -code-completion-at -code-completion-at= -remap-file
    -objcmt-allowlist-dir-path= -objcmt-atomic-property -objcmt-migrate-all -objcmt-migrate-annotation
    -objcmt-migrate-designated-init -objcmt-migrate-instancetype -objcmt-migrate-literals -objcmt-migrate-ns-macros
    -objcmt-migrate-property -objcmt-migrate-property-dot-syntax -objcmt-migrate-protocol-conformance
    -objcmt-migrate-readonly-property -objcmt-migrate-readwrite-property -objcmt-migrate-subscripting
    -objcmt-ns-nonatomic-iosonly -objcmt-returns-innerpointer-property -objcmt-white-list-dir-path=
    -objcmt-whitelist-dir-path=
    """
)
# LLVM's options, with a training compiler's logs and the options that only a compiler with assertions has.
_DROPPED_LLVM = word_set(
    """
    stats stats-json info-output-file track-memory sort-timers time-passes time-passes-per-run pass-remarks
    pass-remarks-analysis pass-remarks-missed remarks-section lto-stats-file lto-pass-remarks-output
    crash-diagnostics-dir ir-dump-directory debug debug-only debug-pass dataflow-log
    constraint-elimination-dump-reproducers hvc-dump-module icp-dumpafter memprof-dump-ccg attributor-dump-dep-graph
    lowertypetests-write-summary wholeprogramdevirt-write-summary orderfile-write-mapping as-secure-log-file
    lto-embed-bitcode mbb-profile-dump training-log regalloc-training-log regalloc-priority-training-log
    """
)
# Options that print, draw or show graphs. print-pipeline-passes ends the compilation before an object is written,
# print-changed= runs the program that -print-changed-diff-path= names, and a view runs a viewer.
_DROPPED_LLVM_NAMES = re.compile(r"(?:.*-)?(?:print|view|viewbfi|dot|dotcfg)(?:-.*)?")
# These have similar names, but change the code.
_KEPT_LLVM = word_set(
    "disable-debug-info-print enable-hexagon-vector-print msan-print-stack-names polly-codegen-emit-rtc-print"
)

# --- options that a replay refuses

# Actions that make other forms of the object; the replay's action is -emit-obj.
_CODE_GENERATION = word_set("-emit-obj -emit-llvm -emit-llvm-bc -emit-llvm-only -emit-codegen-only -S")
_ACTIONS = word_set(
    """
    -E -Eonly -analyze -ast-list -ast-print -ast-view -compiler-options-dump -dump-raw-tokens -dump-tokens -emit-cir
    -emit-header-unit -emit-html -emit-interface-stubs -emit-merged-ifs -emit-module -emit-module-interface -emit-pch
    -emit-reduced-module-interface -extract-api -fixit -fixit= -fixit-recompile -fixit-to-temporary -fsyntax-only
    -help --help -init-only -migrate -module-file-info -print-dependency-directives-minimized-source -print-preamble
    -rewrite-macros -rewrite-objc -rewrite-test -templight-dump -verify-pch -version --version -ast-merge
    """
)
_ACTION_NAMES = re.compile(
    r"-m(?:cpu|tune)=help|-ast-dump(?:-all|-lookups|-decl-types)?=?|--?print-(?:supported|enabled)-.*|-analyzer-.*help.*|-analyzer-list-.*"
)
_LOADS = "it loads code into the compiler"
_REFUSED = {
    "-load": _LOADS,
    "-plugin": _LOADS,
    "-add-plugin": _LOADS,
    "-plugin-arg-": _LOADS,
    "-fplugin=": _LOADS,
    "-fpass-plugin=": _LOADS,
    "-mmlir": "MLIR's options are not known here",
    "-cc1as": "it starts another program than the compiler",
    "-cc1gen-reproducer": "it starts another program than the compiler",
    "-Xclang": "it is an option of the driver, not of cc1",
}
_REFUSED_LLVM = {
    "load": _LOADS,
    "load-pass-plugin": _LOADS,
    "exec-on-ir-change": "it runs a program",
    "executor": "it runs a program",
    "inliner-interactive-channel-base": "the compiler would wait for a program that is not there",
    "regalloc-evict-interactive-channel-base": "the compiler would wait for a program that is not there",
    "regalloc-priority-interactive-channel-base": "the compiler would wait for a program that is not there",
    "lto-aix-system-assembler": "it runs a program",
    "x86-lvi-load-opt-plugin": _LOADS,
    "x86-lvi-load-dot-only": "it draws graphs instead of generating all code",
}
_ANSWERS_LLVM = re.compile(r"h|help(?:-hidden|-list|-list-hidden)?|version|print-(?:all-)?options")
# These also change the code (LLVM 22), so they can be neither removed nor run.
_POLLY_FILES = re.compile(r"polly-(?:dot|show|export|dump)(?:-.*)?")

# --- files that are read

# By cc1, when the input is IR. Frontends read much more: -include-pch, -fmodule-map-file=, -fprofile-list=,
# -fxray-attr-list=, -fsanitize-ignorelist= ... are ignored.
_READ = word_set(
    """
    -fprofile-instrument-use-path= -fprofile-sample-use= -fprofile-remapping-file= -fmemory-profile-use=
    -fthinlto-index= -fsanitize-coverage-allowlist= -fsanitize-coverage-ignorelist= -mlink-bitcode-file
    -mlink-builtin-bitcode -fms-secure-hotpatch-functions-file=
    """
)
_READ_WITH_DATAFLOW = word_set("-fsanitize-ignorelist= -fsanitize-system-ignorelist= -fsanitize-blacklist=")
_READ_LLVM = word_set(
    """
    cgscc-inline-replay chr-function-list chr-module-list codegen-data-use-path cs-profile-path dfsan-abilist
    extract-blocks-file forceattrs-csv-path fs-profile-file fs-remapping-file internalize-public-api-file
    ir2vec-vocab-path lowertypetests-read-summary memprof-import-summary mir2vec-vocab-path
    ml-inliner-ir2native-model ml-inliner-ir2vec-vocab-file ml-inliner-model-under-training
    ms-secure-hotpatch-functions-file pgo-test-profile-file pgo-test-profile-remapping-file polly-import-jscop-dir
    prefetch-hints-file regalloc-model regalloc-priority-model sample-profile-file sample-profile-inline-replay
    sample-profile-remapping-file thinlto-workload-def use-ctx-profile wholeprogramdevirt-read-summary
    """
)
# Harmless options whose value may be any text: names of functions, passes, sections and rules, numbers, and a path that
# is stored in the object, for when the program runs. W is another name of a flag.
_HARMLESS_LLVM = word_set(
    """
    W aarch64-stack-hazard-size alloc-token-prefix amdgpu-sched-strategy amdgpu-use-native asan-debug-func
    asan-memory-access-callback-prefix bbsections-cold-text-prefix break-anti-dependencies cfg-func-name
    check-functions-filter cphoistfn ctx-prof-skip-callsite-instr debug-counter default-gcov-version
    dfsan-combine-taint-lookup-table emscripten-cxx-exceptions-allowed expandvp-override-evl-transform
    expandvp-override-mask-transform filter-passes force-attribute force-remove-attribute
    hotcoldsplit-cold-section-name hwasan-memory-access-callback-prefix icp-ignored-base-types
    instrument-cold-function-only-path internalize-public-api-list lto-pass-remarks-filter lto-pass-remarks-format
    lto-pass-remarks-hotness-threshold mcfg-func-name memprof-debug-func memprof-memory-access-callback-prefix
    memprof-runtime-default-options mips32-function-mask ml-inliner-model-selector ms-secure-hotpatch-functions-list
    nsan-shadow-type-mapping nvptx-lower-global-ctor-dtor-id nvvm-reflect-add opt-disable pgo-trace-func-hash
    polly-context polly-debug-func polly-ignore-func polly-import-jscop-postfix polly-only-func polly-only-region
    polly-opt-maximize-bands polly-opt-optimize-only polly-opt-outer-coincidence polly-opt-simplify-deps
    profile-context-root rename-exclude-alias-prefixes rename-exclude-function-prefixes rename-exclude-global-prefixes
    rename-exclude-struct-prefixes reserve-regs-for-regalloc sbvec-allow-files sbvec-collect-seeds sbvec-passes
    spirv-ext spv-allow-unknown-intrinsics start-after start-before stop-after stop-before target-abi
    verify-pseudo-probe-funcs wholeprogramdevirt-skip x86-align-branch
    """
)
_HARMLESS_LLVM_NAMES = re.compile(r".*combiner-(?:disable|only-enable)-rule|.*lowering-(?:disable|only-enable)-rule")


def neutralise(options: Sequence[str]) -> tuple[str, ...]:
    """Remove options that do not affect an object's code and data, and make the command's action ``-emit-obj``.

    Removed are inputs, ``-x``, ``-o``, everything that writes or reports something else, and a virtual file system,
    which a replay does not need. ``-working-directory`` is removed too, so relative paths of files that are read are
    relative to the replay's folder. An action that makes another form of the same object becomes ``-emit-obj``; other
    actions stay, for `refused_options` to report. The function is idempotent.
    """
    parsed = parse_cc1(options)
    written = {p for option in llvm_options(parsed) if _is_dropped_llvm(option) for p in option.positions}
    kept = [
        option
        for position, option in enumerate(parsed)
        if not (option.is_input or option.name in _DROPPED or position in written or option.name in _CODE_GENERATION)
    ]
    # At the beginning, where no option can take it as its value.
    kept.insert(1 if kept and kept[0].name == "-cc1" else 0, Cc1Option("-emit-obj", (), ("-emit-obj",)))
    return join_cc1(kept)


def _is_dropped_llvm(option: LlvmOption) -> bool:
    if option.name in _KEPT_LLVM or _refused_llvm_name(option.name):
        return False
    if option.is_ambiguous or not option.is_known:
        return False
    return option.name in _DROPPED_LLVM or _DROPPED_LLVM_NAMES.fullmatch(option.name) is not None


def refused_options(options: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Find the options that a replay must not run, among those that `neutralise` keeps of a command.

    Every word has to be an option of clang 17 to 22, or an option's value; so has every word for LLVM. An LLVM option
    whose value may be any text is refused unless it is known only to read a file, or to be harmless.

    Returns:
        Each such option's words and the reason; nothing if the command can be run.
    """
    return tuple(_iter_refused(options))


def _iter_refused(options: Sequence[str]) -> Iterator[tuple[str, str]]:
    if not options or options[0] != "-cc1":
        yield options[0] if options else "", "expected -cc1 as the first word"
    parsed = parse_cc1(neutralise(options))
    for option in parsed:
        if reason := _REFUSED.get(option.name):
            yield option.text, reason
        elif option.name in _ACTIONS or _ACTION_NAMES.fullmatch(option.name):
            yield option.text, "it does something else than generating code"
        elif not option.is_known:
            yield option.text, "clang -cc1 17 to 22 has no such option"
        elif option.lacks_value:
            yield option.text, "its value is missing"
        elif any("\0" in word for word in option.words):
            yield option.text, "it holds a NUL character"
        elif any(word.startswith("@") for word in option.words):
            yield option.text, "clang would replace a word that begins with @ by a file's words"
    for llvm_option in llvm_options(parsed):
        if why := _refused_llvm(llvm_option):
            yield " ".join(parsed[position].text for position in llvm_option.positions), why


def _refused_llvm_name(name: str) -> str | None:
    if _ANSWERS_LLVM.fullmatch(name):
        return "it does something else than generating code"
    if _POLLY_FILES.fullmatch(name):
        return "it writes files"
    return _REFUSED_LLVM.get(name)


def _refused_llvm(option: LlvmOption) -> str | None:
    if reason := _refused_llvm_name(option.name):
        return reason
    if not option.name:  # a word that begins with @ is reported already
        return None if (option.value or "").startswith("@") else "it is a value without an option"
    if not option.is_known:
        return "LLVM 17 to 22 has no such option"
    if option.is_ambiguous:
        return "versions of LLVM disagree on its value: write it after a ="
    if option.lacks_value:
        return "its value is missing"
    if option.takes_text and not (
        option.name in _READ_LLVM
        or option.name in _HARMLESS_LLVM
        or _HARMLESS_LLVM_NAMES.fullmatch(option.name) is not None
    ):
        return "it may write a file or run a program: the effect of its value is unknown"
    return None


def required_files(options: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Find the files that a replay of this command reads besides the bitcode, in order.

    Returns:
        Pairs of the option that names a file, and the path as written. A profile's path may be a folder, a model's is.
    """
    parsed = parse_cc1(neutralise(options))
    dataflow = any(o.name == "-fsanitize=" and "dataflow" in "".join(o.values).split(",") for o in parsed)
    found: list[tuple[int, str, str]] = []
    for position, option in enumerate(parsed):
        value = "".join(option.values)
        if option.name in _READ or (dataflow and option.name in _READ_WITH_DATAFLOW):
            found.append((position, option.name, value))
        elif option.name == "-fbasic-block-sections=" and value.startswith("list="):
            found.append((position, "-fbasic-block-sections=list=", value.removeprefix("list=")))
        elif option.name == "-fembed-offload-object=":  # maybe FILE,OFFLOAD-KIND
            found.append((position, option.name, value.partition(",")[0]))
    found += [
        (llvm.positions[0], f"-mllvm -{llvm.name}", llvm.value)
        for llvm in llvm_options(parsed)
        if llvm.name in _READ_LLVM and llvm.value
    ]
    return tuple((name, path) for _, name, path in sorted(found, key=lambda item: item[0]) if path)


def replay_command(
    options: Sequence[str],
    *,
    bitcode: str,
    output: str,
    thinlto_index: str | None = None,
    extra: Sequence[str] = (),
    trusted: bool = False,
) -> tuple[str, ...]:
    """Return the cc1 command that compiles a module again, to be run as ``clang`` + this.

    Args:
        options: the module's command, or its corpus's override. A command that the driver's ``-fembed-bitcode``
            embedded, with ``-disable-llvm-passes``, is replayed unchanged.
        bitcode: the module.
        output: the object to write.
        thinlto_index: the module's ThinLTO index, in a corpus that has them. It replaces the command's own, or is added
            to a command that has none (an override), and LLVM is told that the import has been done, as
            ml-compiler-opt does.
        extra: words to add, such as ``-mllvm`` and an LLVM option. They come from the caller and are neither
            neutralised nor refused; if an option is given twice the last one is used. So is an action instead of
            ``-emit-obj``.
        trusted: refuse nothing, because the command comes from a trusted source.

    Raises:
        UsageError: the command has one of `refused_options`, or ends before an option's value.
    """
    if not trusted and (refused := refused_options(options)):
        text, reason = refused[0]
        raise UsageError(f"a replay refuses {text!r}: {reason}")
    added = parse_cc1(extra)
    if added and added[-1].lacks_value:
        raise UsageError(f"expected a value after {added[-1].text!r} in the added options, found none")
    command = neutralise(options)
    if any(option.name in _CODE_GENERATION for option in added):
        # If there are two actions, clang uses the last one, but only in a command with -main-file-name: it refuses any
        # other command.
        command = join_cc1(option for option in parse_cc1(command) if option.name != "-emit-obj")
    if thinlto_index is not None:
        command = _with_thinlto_index(command, thinlto_index)
    return (*command, "-x", "ir", _as_path(bitcode), *extra, "-o", _as_path(output))


# Dropped options that write nothing when the input is IR. Embedded commands of nearly every build have some.
_SILENT = word_set("-fembed-bitcode= -dependency-file -sys-header-deps -MT -MQ -MP -MG -emit-obj")


def verbatim_command(options: Sequence[str], *, bitcode: str, output: str) -> tuple[str, ...] | None:
    """Return a command that compiles a module again exactly as it is embedded, so that it embeds itself again.

    The object is then the original's, byte for byte, with the bitcode and the command in it. Return None if the command
    has an option that a replay leaves out because it writes more than the object; refused options are not checked here.
    A dependency file is not written when the input is IR, but to be independent of that, its path must be inside the
    folder that the command runs in.
    """
    parsed = parse_cc1(options)
    if any(option.name == "-dependency-file" and not _is_inside("".join(option.values)) for option in parsed):
        return None
    kept = join_cc1(option for option in parsed if option.name not in _SILENT)
    if not any(option.name == "-emit-obj" for option in parsed) or parsed[-1].lacks_value:
        return None
    if neutralise(kept) != neutralise(options) or len(neutralise(kept)) != len(kept) + 1:
        return None
    return (*options, "-x", "ir", _as_path(bitcode), "-o", _as_path(output))


def _is_inside(path: str) -> bool:
    return not path.startswith("/") and ".." not in path.split("/")


def embedding_options(options: Sequence[str]) -> tuple[str, ...]:
    """Return the words by which a command embeds bitcode. A replay leaves them out; they can be added again."""
    parsed = parse_cc1(options)
    words = [word for option in parsed if option.name == "-fembed-bitcode=" for word in option.words]
    for option in llvm_options(parsed):
        if option.name == "lto-embed-bitcode" and len(option.positions) == 1:
            words += parsed[option.positions[0]].words
    return tuple(words)


def _with_thinlto_index(command: Sequence[str], index: str) -> tuple[str, ...]:
    name = "-fthinlto-index="
    new = Cc1Option(name, (index,), (name + index,))
    parsed = parse_cc1(command)
    first = next((p for p, option in enumerate(parsed) if option.name == name), len(parsed))
    kept = [option for option in parsed[first:] if option.name != name]
    command = join_cc1([*parsed[:first], new, *kept])
    if any(option.name == "thinlto-assume-merged" for option in llvm_options(parsed)):
        return command
    return (*command, "-mllvm", "-thinlto-assume-merged")


def _as_path(path: str) -> str:
    """Write a path so that it cannot be read as an option, or as a file of words."""
    return f"./{path}" if path.startswith(("-", "@")) else path
