"""How cc1 options are spelled, and which take a value; made by scripts/make_cc1_options.py, not by hand.

The union over the Options.inc of LLVM 19, the Options.inc of LLVM 22, zig 17.0.6, zig 18.1.6, zig 20.1.2, zig 21.1.0.
"""

from __future__ import annotations

from mlgo_corpus.formats.words import word_set

# There is no value.
FLAG = word_set(
    """
    --compress-debug-sections --crel --emit-extension-symbol-graphs --emit-sgf-symbol-labels-for-testing --gsframe
    --help --hipstdpar --hipstdpar-interpose-alloc --no-offload-new-driver --no-offloadlib --no-warnings
    --offload-new-driver --offloadlib --pedantic --pedantic-errors --pretty-sgf --print-enabled-extensions
    --print-supported-cpus --print-supported-extensions --relocatable-pch --show-includes --traditional-cpp -C -CC
    -E -Eonly -H -MG -MP -MV -P -Qn -Qy -S -analyze -analyzer-checker-help -analyzer-checker-help-alpha
    -analyzer-checker-help-developer -analyzer-checker-option-help -analyzer-checker-option-help-alpha
    -analyzer-checker-option-help-developer -analyzer-config-help -analyzer-disable-all-checks
    -analyzer-disable-retry-exhausted -analyzer-display-progress -analyzer-list-enabled-checkers
    -analyzer-note-analysis-entry-points -analyzer-opt-analyze-headers -analyzer-stats -analyzer-viz-egraph-graphviz
    -analyzer-werror -arcmt-migrate-emit-errors -ast-dump -ast-dump-all -ast-dump-decl-types -ast-dump-lookups
    -ast-list -ast-print -ast-view -building-pch-with-obj -cc1 -cc1as -cfg-add-implicit-dtors -cfguard
    -cfguard-no-checks -cl-fast-relaxed-math -cl-finite-math-only -cl-fp32-correctly-rounded-divide-sqrt
    -cl-kernel-arg-info -cl-mad-enable -cl-no-signed-zeros -cl-opt-disable -cl-single-precision-constant
    -cl-strict-aliasing -cl-uniform-work-group-size -cl-unsafe-math-optimizations -clangir-disable-passes
    -clangir-disable-verifier -clear-ast-before-backend -code-completion-brief-comments -code-completion-macros
    -code-completion-patterns -code-completion-with-fixits -compiler-options-dump -compress-debug-sections -dD -dE
    -dI -dM -debug-forward-template-params -debug-info-macro -debug-info-macro-expansion-loc
    -detailed-preprocessing-record -disable-O0-optnone -disable-free -disable-lifetime-markers -disable-llvm-optzns
    -disable-llvm-passes -disable-llvm-verifier -disable-objc-default-synthesize-properties
    -disable-pragma-debug-crash -disable-red-zone -discard-value-names -dump-coverage-mapping
    -dump-deserialized-decls -dump-raw-tokens -dump-tokens -dwarf-explicit-import -dwarf-ext-refs -ehcontguard
    -emit-cir -emit-codegen-only -emit-header-unit -emit-html -emit-interface-stubs -emit-llvm -emit-llvm-bc
    -emit-llvm-only -emit-llvm-uselists -emit-merged-ifs -emit-module -emit-module-interface -emit-obj -emit-pch
    -emit-reduced-module-interface -emit-symbol-graph -enable-noundef-analysis -enable-tlsdesc -extract-api
    -faapcs-bitfield-load -faapcs-bitfield-width -faarch64-jump-table-hardening -faddrsig
    -faligned-alloc-unavailable -faligned-allocation -fallow-editor-placeholders -fallow-pch-with-compiler-errors
    -fallow-pch-with-different-modules-cache-path -fallow-pcm-with-compiler-errors -fansi-escape-codes -fapinotes
    -fapinotes-modules -fapple-kext -fapple-pragma-pack -fapplication-extension -fapply-global-visibility-to-externs
    -fapprox-func -fasm-blocks -fassume-nothrow-exception-dtor -fasync-exceptions -fatomic-fine-grained-memory
    -fatomic-ignore-denormal-mode -fatomic-remote-memory -fbasic-block-address-map -fblocks
    -fblocks-runtime-optional -fborland-extensions -fbuiltin-headers-in-system-modules -fcf-protection -fchar8_t
    -fcheck-new -fclangir -fcolor-diagnostics -fcommon -fcompatibility-qualified-id-block-type-checking
    -fcomplete-member-pointers -fconst-strings -fconvergent-functions -fcoro-aligned-allocation -fcoroutines
    -fcoverage-mapping -fcoverage-mcdc -fctor-dtor-return-this -fcuda-allow-variadic-functions
    -fcuda-approx-transcendentals -fcuda-is-device -fcuda-short-ptr -fcxx-exceptions -fdata-sections
    -fdebug-info-for-profiling -fdebug-pass-manager -fdebug-ranges-base-address -fdebugger-cast-result-to-id
    -fdebugger-objc-literal -fdebugger-support -fdeclare-opencl-builtins -fdeclspec -fdefer-ts
    -fdefine-target-os-macros -fdelayed-template-parsing -fdeprecated-macro -fdevirtualize-speculatively
    -fdiagnostics-absolute-paths -fdiagnostics-parseable-fixits -fdiagnostics-print-source-range-info
    -fdiagnostics-show-hotness -fdiagnostics-show-note-include-stack -fdiagnostics-show-template-tree -fdigraphs
    -fdirect-access-external-data -fdirectives-only -fdisable-block-signature-string -fdisable-module-hash
    -fdollars-in-identifiers -fdump-record-layouts -fdump-record-layouts-canonical -fdump-record-layouts-complete
    -fdump-record-layouts-simple -fdump-vtable-layouts -fdwarf2-cfi-asm -femit-all-decls
    -femit-compact-unwind-non-canonical -femulated-tls -fenable-matrix -fencode-extended-block-signature
    -fexceptions -fexperimental-bounds-safety -fexperimental-call-graph-section -fexperimental-late-parse-attributes
    -fexperimental-library -fexperimental-lifetime-safety -fexperimental-lifetime-safety-inference
    -fexperimental-loop-fusion -fexperimental-modules-reduced-bmi -fexperimental-new-constant-interpreter
    -fexperimental-omit-vtable-rtti -fexperimental-relative-c++-abi-vtables -fexperimental-strict-floating-point
    -fextend-variable-liveness -fexternc-nounwind -ffake-address-space-map -ffast-math -ffat-lto-objects
    -ffile-reproducible -ffine-grained-bitfield-accesses -ffinite-loops -ffinite-math-only -ffixed-point
    -fforbid-guard-variables -fforce-check-cxx20-modules-input-files -fforce-dwarf-frame -fforce-emit-vtables
    -fforce-enable-int128 -ffreestanding -ffunction-sections -fgnu-keywords -fgnu89-inline -fgpu-allow-device-init
    -fgpu-approx-transcendentals -fgpu-defer-diag -fgpu-exclude-wrong-side-overloads -fgpu-rdc
    -fhalf-no-semantic-interposition -fheinous-gnu-extensions -fhip-kernel-arg-name -fhip-new-launch-api
    -fhlsl-strict-availability -fident -fignore-exceptions -fimplicit-module-maps -fimplicit-modules-use-lock
    -finclude-default-header -fincremental-extensions -finline-functions -finline-hint-functions
    -finstrument-function-entry-bare -finstrument-functions -finstrument-functions-after-inlining -fintegrated-as
    -fix-only-warnings -fix-what-you-can -fixit -fixit-recompile -fixit-to-temporary -fjmc
    -fkeep-persistent-storage-variables -fkeep-static-consts -fkeep-system-includes -floop-interchange -flto
    -flto-unit -flto-visibility-public-std -fmath-errno -fmemory-profile -fmerge-all-constants -fmerge-functions
    -fminimize-whitespace -fmodule-file-home-is-cwd -fmodule-map-file-home-is-cwd -fmodule-output
    -fmodulemap-allow-subdirectory-search -fmodules -fmodules-codegen -fmodules-debuginfo -fmodules-decluse
    -fmodules-disable-diagnostic-validation -fmodules-hash-content -fmodules-local-submodule-visibility
    -fmodules-reduced-bmi -fmodules-search-all -fmodules-single-module-parse-mode -fmodules-skip-diagnostic-options
    -fmodules-skip-header-search-paths -fmodules-strict-context-hash -fmodules-strict-decluse
    -fmodules-validate-once-per-build-session -fmodules-validate-system-headers -fms-compatibility -fms-define-stdc
    -fms-extensions -fms-hotpatch -fms-kernel -fms-volatile -fnamed-loops -fnative-half-arguments-and-returns
    -fnative-half-type -fnative-int16-type -fnew-infallible -fno-aapcs-bitfield-width -fno-access-control
    -fno-aligned-allocation -fno-apinotes -fno-apinotes-modules -fno-approx-func -fno-assume-sane-operator-new
    -fno-assume-unique-vtables -fno-assumptions -fno-auto-import -fno-autolink -fno-bitfield-type-align -fno-builtin
    -fno-c++-static-destructors -fno-caret-diagnostics -fno-char8_t -fno-check-new -fno-clangir -fno-common
    -fno-const-strings -fno-constant-cfstrings -fno-convergent-functions -fno-cuda-host-device-constexpr
    -fno-cxx-modules -fno-debug-pass-manager -fno-declspec -fno-define-target-os-macros
    -fno-delete-null-pointer-checks -fno-deprecated-macro -fno-devirtualize-speculatively
    -fno-diagnostics-fixit-info -fno-diagnostics-show-line-numbers -fno-diagnostics-show-note-include-stack
    -fno-diagnostics-show-option -fno-diagnostics-use-presumed-location -fno-digraphs
    -fno-direct-access-external-data -fno-disable-block-signature-string -fno-dllexport-inlines
    -fno-dollars-in-identifiers -fno-dwarf-directory-asm -fno-elide-constructors -fno-elide-type
    -fno-eliminate-unused-debug-types -fno-escaping-block-tail-calls -fno-experimental-bounds-safety
    -fno-experimental-late-parse-attributes -fno-experimental-lifetime-safety
    -fno-experimental-lifetime-safety-inference -fno-experimental-omit-vtable-rtti
    -fno-experimental-relative-c++-abi-vtables -fno-fast-math -fno-fat-lto-objects -fno-file-reproducible
    -fno-fine-grained-bitfield-accesses -fno-finite-loops -fno-gnu-inline-asm -fno-gnu-keywords
    -fno-hip-fp32-correctly-rounded-divide-sqrt -fno-ident -fno-implicit-modules -fno-implicit-modules-use-lock
    -fno-inline -fno-inline-functions -fno-integrated-as -fno-jump-tables -fno-knr-functions -fno-loop-interchange
    -fno-lto -fno-lto-unit -fno-math-builtin -fno-modulemap-allow-subdirectory-search -fno-modules-error-recovery
    -fno-modules-force-validate-user-headers -fno-modules-global-index
    -fno-modules-prune-non-affecting-module-map-files -fno-modules-search-all -fno-modules-share-filemanager
    -fno-modules-skip-diagnostic-options -fno-modules-skip-header-search-paths
    -fno-modules-validate-textual-header-includes -fno-ms-tls-guards -fno-new-infallible
    -fno-objc-avoid-heapify-local-blocks -fno-objc-convert-messages-to-runtime-calls
    -fno-objc-infer-related-result-type -fno-objc-weak -fno-offload-uniform-block -fno-openmp
    -fno-openmp-assume-teams-oversubscription -fno-openmp-assume-threads-oversubscription -fno-openmp-extensions
    -fno-openmp-simd -fno-openmp-target-debug -fno-openmp-target-new-runtime -fno-operator-names
    -fno-optimize-sibling-calls -fno-padding-on-unsigned-fixed-point -fno-pch-instantiate-templates
    -fno-pch-timestamp -fno-plt -fno-prebuilt-implicit-modules -fno-preserve-as-comments
    -fno-pseudo-probe-for-profiling -fno-raw-string-literals -fno-reciprocal-math -fno-recovery-ast
    -fno-recovery-ast-type -fno-relaxed-template-template-args -fno-ropi -fno-rounding-math -fno-rtti -fno-rtti-data
    -fno-rwpi -fno-sanitize-address-globals-dead-stripping -fno-sanitize-address-outline-instrumentation
    -fno-sanitize-address-poison-custom-array-cookie -fno-sanitize-address-use-after-scope
    -fno-sanitize-address-use-odr-indicator -fno-sanitize-alloc-token-extended -fno-sanitize-alloc-token-fast-abi
    -fno-sanitize-annotate-debug-info -fno-sanitize-blacklist -fno-sanitize-cfi-canonical-jump-tables
    -fno-sanitize-cfi-cross-dso -fno-sanitize-debug-trap-reasons -fno-sanitize-handler-preserve-all-regs
    -fno-sanitize-hwaddress-experimental-aliasing -fno-sanitize-ignorelist -fno-sanitize-link-c++-runtime
    -fno-sanitize-link-runtime -fno-sanitize-memory-param-retval -fno-sanitize-memory-track-origins
    -fno-sanitize-memory-use-after-dtor -fno-sanitize-merge -fno-sanitize-minimal-runtime -fno-sanitize-recover
    -fno-sanitize-stable-abi -fno-sanitize-stats -fno-sanitize-thread-atomics -fno-sanitize-thread-func-entry-exit
    -fno-sanitize-thread-memory-access -fno-sanitize-trap -fno-sanitize-type-outline-instrumentation
    -fno-sanitize-undefined-trap-on-error -fno-show-column -fno-show-source-location -fno-signed-char
    -fno-signed-wchar -fno-signed-zeros -fno-sized-deallocation -fno-skip-odr-check-in-gmf -fno-spell-checking
    -fno-strict-float-cast-overflow -fno-strict-return -fno-swift-version-independent-apinotes -fno-temp-file
    -fno-threadsafe-statics -fno-trigraphs -fno-unified-lto -fno-unique-section-names -fno-unroll-loops
    -fno-use-ctor-homing -fno-use-cxa-atexit -fno-use-init-array -fno-validate-pch -fno-verbose-asm
    -fno-visibility-inlines-hidden-static-local-var -fno-wchar -fno-xray-function-index -fno-zero-initialized-in-bss
    -fno-zos-extensions -fnoopenmp-relocatable-target -fnoopenmp-use-tls -fobjc-arc -fobjc-arc-exceptions
    -fobjc-avoid-heapify-local-blocks -fobjc-direct-precondition-thunk -fobjc-disable-direct-methods-for-testing
    -fobjc-encode-cxx-class-template-spec -fobjc-exceptions -fobjc-gc -fobjc-gc-only -fobjc-runtime-has-weak
    -fobjc-subscripting-legacy-runtime -fobjc-weak -foffload-implicit-host-device-templates -foffload-uniform-block
    -foffload-via-llvm -fopenacc -fopenmp -fopenmp-assume-no-nested-parallelism -fopenmp-assume-no-thread-state
    -fopenmp-assume-teams-oversubscription -fopenmp-assume-threads-oversubscription -fopenmp-cuda-mode
    -fopenmp-enable-irbuilder -fopenmp-extensions -fopenmp-force-usm -fopenmp-is-device -fopenmp-is-target-device
    -fopenmp-offload-mandatory -fopenmp-optimistic-collapse -fopenmp-relocatable-target -fopenmp-simd
    -fopenmp-target-debug -fopenmp-target-new-runtime -forder-file-instrumentation -fpadding-on-unsigned-fixed-point
    -fparse-all-comments -fpartition-static-data-sections -fpascal-strings -fpass-by-value-is-noalias
    -fpcc-struct-return -fpch-codegen -fpch-debuginfo -fpch-instantiate-templates -fprebuilt-implicit-modules
    -fpreserve-vec3-type -fprofile-continuous -fprofile-sample-accurate -fprotect-parens
    -fpseudo-probe-for-profiling -fptrauth-auth-traps -fptrauth-block-descriptor-pointers -fptrauth-calls
    -fptrauth-elf-got -fptrauth-function-pointer-type-discrimination -fptrauth-indirect-gotos -fptrauth-init-fini
    -fptrauth-init-fini-address-discrimination -fptrauth-intrinsics -fptrauth-objc-class-ro
    -fptrauth-objc-interface-sel -fptrauth-objc-isa -fptrauth-returns
    -fptrauth-type-info-vtable-pointer-discrimination -fptrauth-vtable-pointer-address-discrimination
    -fptrauth-vtable-pointer-type-discrimination -fraw-string-literals -freciprocal-math -frecovery-ast
    -frecovery-ast-type -freg-struct-return -fregister-global-dtors-with-atexit -frelaxed-template-template-args
    -freroll-loops -fretain-comments-from-system-headers -fretain-subst-template-type-parm-type-ast-nodes
    -frewrite-imports -frewrite-includes -fropi -frounding-math -frwpi -fsafe-buffer-usage-suggestions
    -fsample-profile-use-profi -fsanitize-address-globals-dead-stripping -fsanitize-address-outline-instrumentation
    -fsanitize-address-poison-custom-array-cookie -fsanitize-address-use-after-scope
    -fsanitize-address-use-odr-indicator -fsanitize-alloc-token-extended -fsanitize-alloc-token-fast-abi
    -fsanitize-annotate-debug-info -fsanitize-cfi-canonical-jump-tables -fsanitize-cfi-cross-dso
    -fsanitize-cfi-icall-experimental-normalize-integers -fsanitize-cfi-icall-generalize-pointers
    -fsanitize-coverage-8bit-counters -fsanitize-coverage-control-flow -fsanitize-coverage-indirect-calls
    -fsanitize-coverage-inline-8bit-counters -fsanitize-coverage-inline-bool-flag -fsanitize-coverage-no-prune
    -fsanitize-coverage-pc-table -fsanitize-coverage-stack-depth -fsanitize-coverage-trace-bb
    -fsanitize-coverage-trace-cmp -fsanitize-coverage-trace-div -fsanitize-coverage-trace-gep
    -fsanitize-coverage-trace-loads -fsanitize-coverage-trace-pc -fsanitize-coverage-trace-pc-guard
    -fsanitize-coverage-trace-stores -fsanitize-debug-trap-reasons -fsanitize-handler-preserve-all-regs
    -fsanitize-hwaddress-experimental-aliasing -fsanitize-kcfi-arity -fsanitize-link-c++-runtime
    -fsanitize-link-runtime -fsanitize-memory-param-retval -fsanitize-memory-track-origins
    -fsanitize-memory-use-after-dtor -fsanitize-merge -fsanitize-minimal-runtime -fsanitize-recover
    -fsanitize-stable-abi -fsanitize-stats -fsanitize-thread-atomics -fsanitize-thread-func-entry-exit
    -fsanitize-thread-memory-access -fsanitize-trap -fsanitize-type-outline-instrumentation
    -fsanitize-undefined-trap-on-error -fsemantic-interposition -fseparate-named-sections -fshort-enums
    -fshow-skipped-includes -fsigned-wchar -fsigned-zeros -fsized-deallocation -fskip-odr-check-in-gmf
    -fsplit-dwarf-inlining -fsplit-lto-unit -fsplit-machine-functions -fsplit-stack
    -fspv-enable-maximal-reconvergence -fspv-use-unknown-image-format -fstack-clash-protection -fstack-size-section
    -fstrict-enums -fstrict-vtable-pointers -fswift-version-independent-apinotes -fsycl-is-device -fsycl-is-host
    -fsyntax-only -fsystem-module -ftime-report -ftime-report-json -ftrapv -ftrigraphs -funified-lto
    -funique-basic-block-section-names -funique-internal-linkage-names -funknown-anytype -funroll-loops
    -funsafe-math-optimizations -fuse-ctor-homing -fuse-line-directives -fuse-register-sized-bitfield-access
    -fvalidate-ast-input-files-content -fverbose-asm -fverify-debuginfo-preserve -fvirtual-function-elimination
    -fvisibility-from-dllstorageclass -fvisibility-global-new-delete-hidden -fvisibility-inlines-hidden
    -fvisibility-inlines-hidden-static-local-var -fwhole-program-vtables -fwrapv -fwrapv-pointer -fwritable-strings
    -fxl-pragma-pack -fxray-always-emit-customevents -fxray-always-emit-typedevents -fxray-ignore-loops
    -fxray-instrument -fxray-shared -fzos-extensions -fzvector -gcall-site-info -gcodeview -gcodeview-command-line
    -gcodeview-ghash -gdwarf32 -gdwarf64 -gembed-source -ggnu-pubnames -gkey-instructions -gno-call-site-info
    -gno-codeview-command-line -gno-column-info -gno-inline-line-tables -gno-key-instructions
    -gno-structor-decl-linkage-names -gomit-unreferenced-methods -gpubnames -gpulibc -gstrict-dwarf
    -gstructor-decl-linkage-names -gtemplate-alias -help -hlsl-all-resources-bound -import-call-optimization
    -index-header-map -init-only -llvm-verify-each -mabi=ieeelongdouble -mabi=quadword-atomics -mabi=vec-extabi
    -maix-struct-return -malign-double -mamdgpu-expand-waitcnt-profiling -massembler-fatal-warnings
    -massembler-no-warn -mbackchain -mbranch-protection-pauth-lr -mbranch-target-enforce -mcmse
    -mconstructor-aliases -mcpu=help -menable-no-infs -menable-no-nans -mfentry -mglobal-merge
    -mguarded-control-stack -mignore-xcoff-visibility -migrate -mincremental-linker-compatible
    -mindirect-branch-cs-prefix -mlink-builtin-bitcode-postopt -mlong-double-128 -mlong-double-64 -mlong-double-80
    -mmapsyms=implicit -mmemops -mms-bitfields -mmsa -mno-amdgpu-ieee -mno-backchain -mno-constructor-aliases
    -mno-fmv -mno-global-merge -mno-link-builtin-bitcode-postopt -mno-memops -mno-nvj -mno-nvs -mno-outline
    -mno-outline-atomics -mno-packed-stack -mno-packets -mno-skip-rax-setup -mno-stack-arg-probe -mno-strict-align
    -mno-tls-direct-seg-refs -mno-tocdata -mno-type-check -mnoexecstack -mnop-mcount -mnvj -mnvs -module-file-deps
    -module-file-info -moutline -moutline-atomics -mpacked-stack -mpackets -mqdsp6-compat -mreassociate -mrecip
    -mrecord-mcount -mregnames -mrelax-all -mrelax-relocations=no -mrtd -msave-reg-params -msave-temp-labels
    -mskip-rax-setup -msoft-float -mspeculative-load-hardening -msse2avx -mstackrealign -mstrict-align
    -msvr4-struct-return -mtocdata -mtune=help -munsafe-fp-atomics -mxcoff-roptr -new-struct-path-tbaa
    -no-clear-ast-before-backend -no-code-completion-globals -no-code-completion-ns-level-decls -no-disable-free
    -no-emit-llvm-uselists -no-enable-noundef-analysis -no-finalize-removal -no-implicit-float -no-integrated-as
    -no-ns-alloc-error -no-pointer-tbaa -no-pthread -no-round-trip-args -no-struct-path-tbaa -nobuiltininc -nogpulib
    -nogpulibc -nostdinc++ -nostdsysteminc -objcmt-atomic-property -objcmt-migrate-all -objcmt-migrate-annotation
    -objcmt-migrate-designated-init -objcmt-migrate-instancetype -objcmt-migrate-literals -objcmt-migrate-ns-macros
    -objcmt-migrate-property -objcmt-migrate-property-dot-syntax -objcmt-migrate-protocol-conformance
    -objcmt-migrate-readonly-property -objcmt-migrate-readwrite-property -objcmt-migrate-subscripting
    -objcmt-ns-nonatomic-iosonly -objcmt-returns-innerpointer-property -pch-through-hdrstop-create
    -pch-through-hdrstop-use -pedantic -pedantic-errors -pg -pic-is-pie -pointer-tbaa
    -print-dependency-directives-minimized-source -print-enabled-extensions -print-ivar-layout -print-preamble
    -print-stats -print-supported-cpus -print-supported-extensions -pthread -regcall4 -relaxed-aliasing
    -relocatable-pch -res-may-alias -rewrite-macros -rewrite-objc -rewrite-test -round-trip-args
    -setup-static-analyzer -skip-function-bodies -static-define -static-libclosure -stats-file-append
    -stats-file-timers -sys-header-deps -templight-dump -traditional-cpp -trim-egraph -undef -unoptimized-cfg -v
    -vectorize-loops -vectorize-slp -verify -verify-ignore-unexpected -verify-pch -version -w
    /hlsl-all-resources-bound /res-may-alias
    """
)

# The value is the next word.
SEPARATE = word_set(
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
    -target-abi -target-cpu -target-feature -target-linker-version -triple -tune-cpu -validator-version
    -working-directory /validator-version
    """
)

# The value is the rest of the word.
JOINED = word_set(
    """
    --compress-debug-sections= --dependent-lib= --embed-dir= --extract-api-ignores= --gpu-max-threads-per-block=
    --linker-option= --no-system-header-prefix= --offload-targets= --output-asm-variant= --product-name=
    --save-temps= --std= --stdlib= --symbol-graph-dir= --system-header-prefix= --unwindlib=
    --warning-suppression-mappings= -O -R -W -analyze-function= -analyzer-checker=
    -analyzer-config-compatibility-mode= -analyzer-constraints= -analyzer-disable-checker= -analyzer-dump-egraph=
    -analyzer-inline-max-stack-depth= -analyzer-inlining-mode= -analyzer-output= -analyzer-purge= -arcmt-action=
    -ast-dump-all= -ast-dump-filter= -ast-dump= -cl-ext= -cl-std= -code-completion-at= -complex-range=
    -compress-debug-sections= -coverage-data-file= -coverage-notes-file= -coverage-version= -cuid=
    -darwin-target-variant-sdk-version= -debug-info-kind= -debugger-tuning= -dump-minimization-hints=
    -dwarf-version= -error-on-deserialized-decl= -exception-model= -faddress-space-map-mangling= -falign-loops=
    -falloc-token-max= -falloc-token-mode= -fallow-runtime-check-skip-hot-cutoff= -faltivec-src-compat=
    -fapinotes-swift-version= -fbasic-block-sections= -fbfloat16-excess-precision= -fbinutils-version=
    -fbuild-session-timestamp= -fc++-abi= -fc++-static-destructors= -fcaret-diagnostics-max-lines= -fcf-protection=
    -fcf-runtime-abi= -fclang-abi-compat= -fcomment-block-commands= -fcomplex-arithmetic=
    -fconstexpr-backtrace-limit= -fconstexpr-depth= -fconstexpr-steps= -fcoverage-compilation-dir=
    -fcoverage-prefix-map= -fcx-fortran-rules -fcx-limited-range -fdebug-compilation-dir= -fdebug-prefix-map=
    -fdefault-calling-conv= -fdenormal-fp-math-f32= -fdenormal-fp-math= -fdepfile-entry=
    -fdiagnostics-hotness-threshold= -fdiagnostics-misexpect-tolerance= -fdx-rootsignature-define=
    -fdx-rootsignature-version= -fembed-bitcode= -fembed-offload-object= -femit-dwarf-unwind=
    -fexperimental-assignment-tracking= -fexperimental-max-bitint-width=
    -fexperimental-sanitize-metadata-ignorelist= -fexperimental-sanitize-metadata= -fextend-arguments=
    -fextend-variable-liveness= -ffloat16-excess-precision= -ffp-contract= -ffp-eval-method=
    -ffp-exception-behavior= -ffuchsia-api-level= -fgnuc-version= -fgpu-default-stream= -finitial-counter-value=
    -finline-max-stacksize= -fixit= -flax-vector-conversions= -flto-jobs= -flto= -fmacro-backtrace-limit=
    -fmacro-prefix-map= -fmatrix-memory-layout= -fmax-tokens= -fmax-type-align= -fmcdc-max-conditions=
    -fmcdc-max-test-vectors= -fmemory-profile-use= -fmemory-profile= -fmessage-length= -fmodule-file=
    -fmodule-format= -fmodule-map-file= -fmodule-name= -fmodule-output= -fmodules-cache-path=
    -fmodules-embed-all-files -fmodules-embed-file= -fmodules-ignore-macro= -fmodules-prune-after=
    -fmodules-prune-interval= -fms-compatibility-version= -fms-layout-compatibility= -fms-memptr-rep=
    -fms-secure-hotpatch-functions-file= -fms-secure-hotpatch-functions-list= -fnew-alignment= -fno-builtin-
    -fno-cx-fortran-rules -fno-cx-limited-range -fno-experimental-sanitize-metadata= -fno-modules-check-relocated
    -fno-sanitize-annotate-debug-info= -fno-sanitize-coverage= -fno-sanitize-merge= -fno-sanitize-recover=
    -fno-sanitize-trap= -fno-sanitize= -fobjc-arc-cxxlib= -fobjc-dispatch-method= -fobjc-runtime=
    -fopenmp-cuda-blocks-per-sm= -fopenmp-cuda-number-of-sm= -fopenmp-cuda-teams-reduction-recs-num=
    -fopenmp-target-debug= -fopenmp-targets= -fopenmp-version= -fopenmp= -foperator-arrow-depth=
    -foverride-record-layout= -fpack-struct= -fpass-plugin= -fpatchable-function-entry-offset=
    -fpatchable-function-entry-section= -fpatchable-function-entry= -fprebuilt-module-path= -fprofile-exclude-files=
    -fprofile-filter-files= -fprofile-function-groups= -fprofile-instrument-path= -fprofile-instrument-use-path=
    -fprofile-instrument-use= -fprofile-instrument= -fprofile-list= -fprofile-remapping-file= -fprofile-sample-use=
    -fprofile-selected-function-group= -fprofile-update= -frandomize-layout-seed-file= -frandomize-layout-seed=
    -fsanitize-address-destructor= -fsanitize-address-field-padding= -fsanitize-address-use-after-return=
    -fsanitize-annotate-debug-info= -fsanitize-blacklist= -fsanitize-coverage-allowlist=
    -fsanitize-coverage-ignorelist= -fsanitize-coverage-stack-depth-callback-min= -fsanitize-coverage-type=
    -fsanitize-coverage= -fsanitize-debug-trap-reasons= -fsanitize-hwaddress-abi= -fsanitize-ignorelist=
    -fsanitize-kcfi-hash= -fsanitize-memory-track-origins= -fsanitize-memtag-mode= -fsanitize-merge=
    -fsanitize-recover= -fsanitize-skip-hot-cutoff= -fsanitize-system-ignorelist= -fsanitize-trap=
    -fsanitize-undefined-ignore-overflow-pattern= -fsanitize-undefined-strip-path-components= -fsanitize=
    -fshow-overloads= -fspell-checking-limit= -fstrict-flex-arrays= -fswift-async-fp= -fsymbol-partition=
    -ftemplate-backtrace-limit= -ftemplate-depth= -ftest-module-file-extension= -fthin-link-bitcode=
    -fthinlto-index= -ftime-report= -ftime-trace-granularity= -ftime-trace-verbose -ftime-trace= -ftls-model=
    -ftrap-function= -ftrivial-auto-var-init-max-size= -ftrivial-auto-var-init-stop-after= -ftrivial-auto-var-init=
    -ftype-visibility= -funique-source-file-identifier= -funwind-tables= -fveclib=
    -fverify-debuginfo-preserve-export= -fvisibility-dllexport= -fvisibility-externs-dllimport=
    -fvisibility-externs-nodllstorageclass= -fvisibility-global-new-delete= -fvisibility-nodllstorageclass=
    -fvisibility= -fwarn-stack-size= -fwchar-type= -fwinx64-eh-unwindv2= -fxray-always-instrument= -fxray-attr-list=
    -fxray-function-groups= -fxray-instruction-threshold= -fxray-instrumentation-bundle= -fxray-modes=
    -fxray-never-instrument= -fxray-selected-function-group= -fzero-call-used-regs= -gsimple-template-names=
    -gsrc-hash= -header-include-filtering= -header-include-format= -inline-asm= -loader-replaceable-function= -mabi=
    -mcf-branch-label-scheme= -mcmodel= -mcode-object-version= -mdefault-visibility-export-mapping= -mdouble=
    -mframe-pointer= -mfunction-return= -mlarge-data-threshold= -mmacos-version-min= -mmacosx-version-min=
    -mno-tocdata= -mprefer-vector-width= -mprintf-kind= -mrecip= -msign-return-address-key= -msign-return-address=
    -mstack-alignment= -mstack-probe-size= -mstack-protector-guard-offset= -mstack-protector-guard-reg=
    -mstack-protector-guard-symbol= -mstack-protector-guard= -mtls-size= -mtocdata= -mvscale-max= -mvscale-min=
    -mvscale-streaming-max= -mvscale-streaming-min= -mzos-target= -objcmt-allowlist-dir-path=
    -objcmt-white-list-dir-path= -objcmt-whitelist-dir-path= -object-file-name= -pch-through-header=
    -preamble-bytes= -save-temps= -stats-file= -std= -stdlib= -sycl-std= -target-sdk-version= -triple= -unwindlib=
    -verify-ignore-unexpected= -verify= -vtordisp-mode= -working-directory=
    """
)

# The value is the rest of the word, or the next word if nothing is left.
JOINED_OR_SEPARATE = word_set(
    """
    --emit-symbol-graph= --imacros --include --vfsoverlay -D -F -I -MQ -MT -U -cxx-isystem -iapinotes-modules
    -idirafter -iframework -iframeworkwithsysroot -imacros -include -interface-stub-version= -iprefix -iquote
    -isysroot -isystem -ivfsoverlay -iwithprefix -iwithprefixbefore -iwithsysroot -o -vfsoverlay -x
    """
)

# There are two values, the rest of the word and the next word.
JOINED_AND_SEPARATE = word_set(
    """
    -plugin-arg-
    """
)

# Spellings that other versions read as a shorter option and its value.
SHADOWED = word_set(
    """
    -mabi=ieeelongdouble -mabi=quadword-atomics -mabi=vec-extabi -objcmt-allowlist-dir-path= -objcmt-atomic-property
    -objcmt-migrate-all -objcmt-migrate-annotation -objcmt-migrate-designated-init -objcmt-migrate-instancetype
    -objcmt-migrate-literals -objcmt-migrate-ns-macros -objcmt-migrate-property -objcmt-migrate-property-dot-syntax
    -objcmt-migrate-protocol-conformance -objcmt-migrate-readonly-property -objcmt-migrate-readwrite-property
    -objcmt-migrate-subscripting -objcmt-ns-nonatomic-iosonly -objcmt-returns-innerpointer-property
    -objcmt-white-list-dir-path= -objcmt-whitelist-dir-path=
    """
)
