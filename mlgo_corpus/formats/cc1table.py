"""Which cc1 options take a value, and how; made by scripts/make_cc1_options.py, not by hand.

The union over the Options.inc of LLVM 19, clang 17.0.6, clang 18.1.6, clang 19.1.7, clang 20.1.2, clang 21.1.0, clang
22.1.8.
Options without a value, and those whose name ends in ``=``, are not listed.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The value is the next word.
SEPARATE = _words(
    """
    -add-plugin -analyze-function -analyzer-checker -analyzer-config -analyzer-config-compatibility-mode
    -analyzer-constraints -analyzer-disable-checker -analyzer-dump-egraph -analyzer-inline-max-stack-depth
    -analyzer-inlining-mode -analyzer-max-loop -analyzer-output -analyzer-purge -arcmt-migrate-report-output
    -as-secure-log-file -ast-dump-filter -ast-merge -aux-target-cpu -aux-target-feature -aux-triple -c-isystem
    -chain-include -code-completion-at -coverage-data-file -coverage-notes-file -darwin-target-variant-triple
    -default-function-attr -dependency-dot -dependency-file -diagnostic-log-file -dumpdir -dwarf-debug-flags
    -error-on-deserialized-decl -exception-model -fbracket-depth -fconstant-string-class -fcuda-include-gpubinary
    -fdebug-compilation-dir -fdiagnostics-format -fdiagnostics-show-category -ferror-limit
    -fexperimental-openacc-macro-override -fmodule-feature -fmodule-implementation-of -fmodules-user-build-path
    -fopenmp-host-ir-file-path -ftabstop -ftrapv-handler -function-alignment -header-include-file -hlsl-entry
    -include-pch -internal-externc-isystem -internal-iframework -internal-isystem -load -main-file-name -mdebug-pass
    -meabi -mfloat-abi -mfpmath -mlimit-float-precision -mlink-bitcode-file -mlink-builtin-bitcode -mllvm -mmlir
    -module-dependency-dir -mregparm -mrelocation-model -msmall-data-limit -mt-migrate-directory -mthread-model -mtp
    -objc-isystem -objcxx-isystem -object-file-name -opt-record-file -opt-record-format -opt-record-passes
    -pic-level -plugin -record-command-line -remap-file -resource-dir -serialize-diagnostic-file -source-date-epoch
    -split-dwarf-file -split-dwarf-output -stack-protector -stack-protector-buffer-size -stack-usage-file
    -target-abi -target-cpu -target-feature -target-linker-version -triple -tune-cpu -working-directory
    /validator-version
    """
)

# The value is the rest of the word, or the next word where nothing is left.
JOINED_OR_SEPARATE = _words(
    """
    -D -F -I -MQ -MT -U -cxx-isystem -iapinotes-modules -idirafter -iframework -iframeworkwithsysroot -imacros
    -include -interface-stub-version= -iprefix -iquote -isysroot -isystem -ivfsoverlay -iwithprefix
    -iwithprefixbefore -iwithsysroot -o -vfsoverlay -x
    """
)

# There are two values, the rest of the word and the next word.
JOINED_AND_SEPARATE = _words(
    """
    -plugin-arg-
    """
)

# The value is the rest of the word.
JOINED = _words(
    """
    -O -Ofast -R -W -Wno-nonportable-cfstrings -Wnonportable-cfstrings -fcx-fortran-rules -fcx-limited-range
    -fmodules-embed-all-files -fno-builtin- -fno-cx-fortran-rules -fno-cx-limited-range -fno-modules-check-relocated
    -ftime-trace-verbose
    """
)

# Others, which begin as one with a joined value does.
LONGER = _words(
    """
    -objcmt-allowlist-dir-path= -objcmt-atomic-property -objcmt-migrate-all -objcmt-migrate-annotation
    -objcmt-migrate-designated-init -objcmt-migrate-instancetype -objcmt-migrate-literals -objcmt-migrate-ns-macros
    -objcmt-migrate-property -objcmt-migrate-property-dot-syntax -objcmt-migrate-protocol-conformance
    -objcmt-migrate-readonly-property -objcmt-migrate-readwrite-property -objcmt-migrate-subscripting
    -objcmt-ns-nonatomic-iosonly -objcmt-returns-innerpointer-property -objcmt-white-list-dir-path=
    -objcmt-whitelist-dir-path= -object-file-name=
    """
)
