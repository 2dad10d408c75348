"""LLVM's options, as -mllvm passes them; made by scripts/make_cc1_options.py, not by hand.

The union over clang 19.1.7, clang 22.1.8, a development-mode clang 19, zig 17.0.6, zig 18.1.6, zig 19.1.7, zig 20.1.2,
zig 21.1.0, zig 22.1.8.
"""

from __future__ import annotations

from mlgo_corpus.formats.words import word_set

# The value, if any, follows ``=``.
OPTIONAL = word_set(
    """
    W aarch64-a57-fp-load-balancing-force-all aarch64-disable-multivector-spill-fill aarch64-early-ifcvt
    aarch64-elf-ldtls-generation aarch64-enable-atomic-cfg-tidy aarch64-enable-branch-relax
    aarch64-enable-branch-targets aarch64-enable-ccmp aarch64-enable-collect-loh aarch64-enable-compress-jump-tables
    aarch64-enable-cond-br-tune aarch64-enable-condopt aarch64-enable-copy-propagation aarch64-enable-copyelim
    aarch64-enable-dead-defs aarch64-enable-early-ifcvt aarch64-enable-ext-to-tbl aarch64-enable-falkor-hwpf-fix
    aarch64-enable-gep-opt aarch64-enable-gisel-ldst-postlegal aarch64-enable-gisel-ldst-prelegal
    aarch64-enable-gisel-sve aarch64-enable-global-merge aarch64-enable-ldst-opt aarch64-enable-logical-imm
    aarch64-enable-loop-data-prefetch aarch64-enable-mcr aarch64-enable-mgather-combine aarch64-enable-nonlazybind
    aarch64-enable-pipeliner aarch64-enable-promote-const aarch64-enable-simd-scalar aarch64-enable-sink-fold
    aarch64-enable-stp-suppress aarch64-enable-subreg-liveness-tracking aarch64-enable-sve-intrinsic-opts
    aarch64-enable-zpr-predicate-spills aarch64-lit-verify aarch64-load-store-renaming aarch64-lower-to-sme-routines
    aarch64-macho-enable-nonlazybind aarch64-mark-bti-property aarch64-new-sme-abi aarch64-order-frame-objects
    aarch64-postlegalizer-consecutive-memops aarch64-redzone aarch64-select-opt aarch64-simd-scalar-force-all
    aarch64-slh-loads aarch64-split-sve-objects aarch64-stack-hazard-in-non-streaming aarch64-stress-ccmp
    aarch64-stress-promote-const aarch64-use-aa aarch64-use-featcpa-codegen aarch64-use-mops aarch64-use-tbi
    aarch64-win-import-call-optimization abort-on-max-devirt-iterations-reached acc-reassoc adce-remove-control-flow
    adce-remove-loops add-linkage-names-to-declaration-call-origins addr-sink-combine-base-gv
    addr-sink-combine-base-offs addr-sink-combine-base-reg addr-sink-combine-scaled-reg addr-sink-new-phis
    addr-sink-new-select addr-sink-using-gep aggregate-extracted-args aggressive-ext-opt aggressive-machine-cse
    aix-ssp-tb-bit align-neon-spills alloc-token-cover-replaceable-new alloc-token-extended alloc-token-fast-abi
    allow-arm-wlsloops allow-ginsert-as-artifact allow-incomplete-ir allow-unroll-and-jam
    amdgcn-skip-cache-invalidations amdgpu-any-address-space-out-arguments amdgpu-asan-instrument-lds
    amdgpu-attributor-enable amdgpu-bypass-slow-div amdgpu-dce-in-ra
    amdgpu-disable-clustered-low-occupancy-reschedule amdgpu-disable-loop-alignment
    amdgpu-disable-unclustered-high-rp-reschedule amdgpu-disable-unclustred-high-rp-reschedule amdgpu-dpp-combine
    amdgpu-dump-hsa-metadata amdgpu-early-ifcvt amdgpu-early-inline-all amdgpu-enable-delay-alu
    amdgpu-enable-hipstdpar amdgpu-enable-image-intrinsic-optimizer amdgpu-enable-lower-exec-sync
    amdgpu-enable-lower-module-lds amdgpu-enable-max-ilp-scheduling-strategy amdgpu-enable-merge-m0
    amdgpu-enable-power-sched amdgpu-enable-pre-ra-optimizations amdgpu-enable-promote-kernel-arguments
    amdgpu-enable-remove-incompatible-functions amdgpu-enable-rewrite-partial-reg-uses amdgpu-enable-single-use-vdst
    amdgpu-enable-structurizer-workarounds amdgpu-enable-sw-lower-lds amdgpu-enable-uniform-intrinsic-combine
    amdgpu-enable-vopd amdgpu-expert-scheduling-mode amdgpu-function-calls amdgpu-igrouplp-exact-solver
    amdgpu-igrouplp-exact-solver-cost-heur amdgpu-internalize-symbols amdgpu-ir-lower-kernel-arguments
    amdgpu-kernarg-preload amdgpu-late-structurize amdgpu-link-time-closed-world amdgpu-load-store-vectorizer
    amdgpu-loop-prefetch amdgpu-lower-global-ctor-dtor amdgpu-mfma-vgpr-form amdgpu-mode-register
    amdgpu-module-splitting-log-private amdgpu-module-splitting-no-externalize-address-taken
    amdgpu-module-splitting-no-externalize-globals amdgpu-opt-exec-mask-pre-ra amdgpu-opt-vgpr-liverange
    amdgpu-prealloc-sgpr-spill-vgprs amdgpu-prelink amdgpu-print-max-reg-pressure-regusage-after-scheduler
    amdgpu-print-max-reg-pressure-regusage-before-scheduler amdgpu-print-rp-downward amdgpu-reassign-regs
    amdgpu-scalar-ir-passes amdgpu-scalarize-global-loads amdgpu-schedule-relaxed-occupancy amdgpu-sdwa-peephole
    amdgpu-set-wave-priority amdgpu-sgpr-hazard-boundary-cull amdgpu-sgpr-hazard-mem-wait-cull
    amdgpu-sgpr-hazard-wait amdgpu-simplify-libcall amdgpu-stress-function-calls amdgpu-super-align-lds-globals
    amdgpu-unroll-runtime-local amdgpu-use-aa-in-codegen amdgpu-use-amdgpu-trackers
    amdgpu-use-divergent-register-indexing amdgpu-use-native amdgpu-use-sdag-ptradd amdgpu-verify-hsa-metadata
    amdgpu-vgpr-index-mode amdgpu-waitcnt-forcezero amdgpu-waitcnt-load-forcezero annotate-inline-phase
    annotate-sample-profile-inline-phase append-content-hash-outlined-name apply-ext-tsp-for-size
    arc-contract-use-objc-claim-rv argext-abi-check arm-add-build-attributes arm-adjust-jump-tables
    arm-assume-itcm-bankconflict arm-assume-misaligned-load-store arm-atomic-cfg-tidy arm-disable-omit-dls
    arm-enable-merge-loopenddec arm-enable-subreg-liveness arm-force-fast-isel arm-global-merge arm-interworking
    arm-load-store-opt arm-loloops-disable-tailpred arm-promote-constant arm-set-lr-predicate
    arm-synthesize-thumb-1-tbb arm-use-mulops arm64ec-generate-thunks arm64ec-lower-direct-to-indirect
    array-bounds-pseudofn asan-always-slow-path asan-detect-invalid-pointer-cmp asan-detect-invalid-pointer-pair
    asan-detect-invalid-pointer-sub asan-force-dynamic-shadow asan-globals asan-globals-live-support
    asan-guard-against-version-mismatch asan-initialization-order asan-instrument-atomics asan-instrument-byval
    asan-instrument-dynamic-allocas asan-instrument-reads asan-instrument-writes asan-kernel
    asan-kernel-mem-intrinsic-prefix asan-opt asan-opt-globals asan-opt-same-temp asan-opt-stack
    asan-optimize-callbacks asan-recover asan-redzone-byval-args asan-skip-promotable-allocas asan-stack
    asan-stack-dynamic-alloca asan-use-after-scope asan-use-odr-indicator asan-use-private-alias
    asan-use-stack-safety asan-with-comdat asan-with-ifunc asan-with-ifunc-suppress-remat asm-print-latency
    asm-show-inst assume-preserve-all atomic-counter-update-promoted atomic-first-counter
    attributor-allow-deep-wrappers attributor-allow-shallow-wrappers attributor-annotate-decl-cs
    attributor-assume-closed-world attributor-dump-dep-graph attributor-enable-call-site-specific-deduction
    attributor-manifest-internal attributor-print-call-graph attributor-print-dep attributor-simplify-all-loads
    attributor-view-dep-graph avail-extern-to-local avoid-speculation basic-aa-recphi basic-aa-separate-storage
    basic-block-address-map-skip-bb-entries basic-block-section-match-infer bbsections-detect-source-drift
    bbsections-guided-section-prefix bounds-checking-single-trap bounds-checking-unique-traps
    bpf-disable-avoid-speculation bpf-disable-serialize-icmp bpf-disable-trap-unreachable bpf-expand-memcpy-in-order
    branch-fold-placement branch-relax-asm-large callgraph-heat-colors callgraph-multigraph callgraph-show-weights
    canonicalize-icmp-predicates-to-unsigned cfg-heat-colors cfg-hide-deoptimize-paths cfg-hide-unreachable-paths
    cfg-raw-weights cfg-weights cgp-icmp-eq2icmp-st cgp-optimize-phi-types cgp-split-large-offset-gep
    cgp-type-promotion-merge cgp-verify-bfi-updates check-bfi-unknown-block-queries check-early-avail
    codegen-data-generate codegen-data-thinlto-two-rounds color combined-index-memprof-context combiner-disabled
    combiner-global-alias-analysis combiner-reduce-load-op-store-width
    combiner-reduce-load-op-store-width-force-narrowing-profitable combiner-shrink-load-replace-store-with-store
    combiner-split-load-index combiner-store-merging combiner-stress-load-slicing combiner-use-tbaa
    combiner-vector-fcopysign-extend-round commgep-const commgep-inv commgep-speculate compute-dead
    conditional-counter-update constant-loads-to-imm consthoist-gep consthoist-with-block-frequency
    constraint-elimination-dump-reproducers costmodel-reduxcost crash-on-ppc-vsx-self-copy crel cs-profile-generate
    ctx-prof-include-empty ctx-prof-promote-alwaysinline ctx-profile-force-is-specialized da-delinearize
    da-disable-delinearization-checks da-dump-monotonicity-report da-enable-monotonicity-check dag-dump-verbose
    dataflow-log ddg-pi-blocks ddg-simplify debug debug-ata-coalesce-frags debug-counter-break-on-last
    debug-info-correlate debugify-and-strip-all-safe debugify-atoms debugify-check-and-strip-all-safe debugify-quiet
    delinearize-use-fixed-size-array-heuristic demote-catchswitch-only devirtualize-speculatively
    dfa-early-exit-heuristic dfa-hazard-rec dfa-jump-view-cfg-before dfsan-add-global-name-suffix
    dfsan-combine-offset-labels-on-gep dfsan-combine-pointer-labels-on-load dfsan-combine-pointer-labels-on-store
    dfsan-conditional-callbacks dfsan-debug-nonzero-labels dfsan-event-callbacks dfsan-ignore-personality-routine
    dfsan-preserve-alignment dfsan-reaches-function-callbacks dfsan-track-select-control-flow disable-2addr-hack
    disable-a15-sd-optimization disable-aarch64-lit-all disable-aarch64-lit-bytecmp disable-adv-copy-opt
    disable-advanced-peeling disable-arm-loloops disable-arm-parallel-dsp disable-atexit-based-global-dtor-lowering
    disable-auto-paired-vec-st disable-auto-upgrade-debug-info disable-basic-aa disable-binop-extract-shuffle
    disable-bitcode-version-upgrade disable-block-placement disable-bpf-peephole disable-branch-fold disable-bswap
    disable-cfi-fixup disable-cgdata-for-merging disable-cgp disable-cgp-branch-opts disable-cgp-delete-phis
    disable-cgp-ext-ld-promotion disable-cgp-gc-opts disable-cgp-select2branch disable-cgp-store-extract
    disable-check-noreturn-call disable-chr disable-cleanups disable-complex-addr-modes disable-const64
    disable-constant-hoisting disable-copyprop disable-debug-info-print disable-demotion disable-dfa-sched
    disable-early-ifcvt disable-early-taildup disable-expand-reductions disable-fp-call-folding
    disable-gep-const-evaluation disable-gisel-legality-check disable-global-outlining disable-gotol disable-gotox
    disable-hcp disable-hexagon-amodeopt disable-hexagon-cfgopt disable-hexagon-dealloc-ret disable-hexagon-hwloops
    disable-hexagon-loop-align disable-hexagon-misched disable-hexagon-nv-schedule disable-hexagon-opt-ext-to-64
    disable-hexagon-optszext disable-hexagon-peephole disable-hexagon-pnotp disable-hexagon-shuffle
    disable-hexagon-volatile-memcpy disable-hsdr disable-i2p-p2i-opt disable-icp disable-ifcvt-diamond
    disable-ifcvt-forked-diamond disable-ifcvt-simple disable-ifcvt-simple-false disable-ifcvt-triangle
    disable-ifcvt-triangle-false disable-ifcvt-triangle-rev disable-interleaved-load-combine
    disable-lanai-mem-alu-combiner disable-last-run-tracking disable-layout-fsprofile-loader disable-ldsx
    disable-lftr disable-licm-promotion disable-load-acq-store-rel disable-load-widen
    disable-loop-idiom-vectorize-all disable-loop-idiom-vectorize-bytecmp
    disable-loop-idiom-vectorize-find-first-byte disable-loop-level-heuristics disable-lsr disable-machine-cse
    disable-machine-dce disable-machine-licm disable-machine-sink disable-mask disable-memcpy-idiom
    disable-memmove-idiom disable-memop-opt disable-merge-into-combines disable-mergeicmps disable-mips-delay-filler
    disable-mips-df-backward-search disable-mips-df-forward-search disable-mips-df-succbb-search disable-movsx
    disable-mr-partial-inlining disable-nofree-inference disable-non-allocatable-phys-copy-opt
    disable-nounwind-inference disable-nvjump disable-nvptx-ir-peephole disable-nvptx-load-store-vectorizer
    disable-nvptx-require-structured-cfg disable-ondemand-mds-loading disable-p10-store-forward disable-packetizer
    disable-partial-inlining disable-partial-libcall-inlining disable-peephole disable-phi-elim-edge-splitting
    disable-polly-legality disable-post-ra disable-postra-machine-licm disable-postra-machine-sink
    disable-ppc-cmp-opt disable-ppc-constant-hoisting disable-ppc-ctrloop-analysis disable-ppc-ctrloops
    disable-ppc-ilp-pref disable-ppc-innermost-loop-align32 disable-ppc-instr-form-prep disable-ppc-peephole
    disable-ppc-preinc disable-ppc-sched-addi-load disable-ppc-sco disable-ppc-unaligned
    disable-ppc-vsx-fma-mutation disable-ppc-vsx-swap-removal disable-preheader-prot disable-preinline
    disable-promote-alloca-to-lds disable-promote-alloca-to-vector disable-qfp-opt disable-qfp-opt-mul
    disable-ra-fsprofile-loader disable-replace-with-vec-lib disable-riscv-zilsd-opt disable-sample-loader-inlining
    disable-sched-critical-path disable-sched-cycles disable-sched-hazard disable-sched-height
    disable-sched-live-uses disable-sched-physreg-join disable-sched-reg-pressure disable-sched-stalls
    disable-sched-vrcycle disable-sdiv-smod disable-select-optimize disable-separate-const-offset-from-gep
    disable-shifter-op disable-sparc-delay-filler disable-sparc-leaf-proc disable-spill-fusing disable-spill-hoist
    disable-ssc disable-store-widen disable-storeimm disable-strictnode-mutation disable-symbolication
    disable-tail-duplicate disable-thinlto-funcattrs disable-type-promotion disable-vecdbl-nv-stores
    disable-vector-combine disable-vp disable-wasm-fallthrough-return-opt disable-whole-program-visibility
    disable-x86-domain-reassignment disable-x86-lea-opt do-comdat-renaming do-counter-promotion dot-ddg-only
    dot-mcfg-only dropped-variable-stats dropped-variable-stats-mir dse-optimize-memoryssa dump-thin-cg-sccs
    dwarf-use-key-instructions dwarf64 eagerly-invalidate-analyses early-live-intervals earlycse-debug-hash
    eif-no-loop-exit elide-all-zero-branch-weights emit-bb-hash emit-compact-unwind-non-canonical
    emit-func-debug-line-table-offsets emit-gnuas-syntax-on-zos emit-jump-table-sizes-section
    emptyline-comment-coverage emulate-old-livedebugvalues enable-aa-sched-mi enable-aarch64-lsr-cost-opt
    enable-aarch64-or-like-select enable-aarch64-sme-peephole-opt enable-acc-forwarding enable-alu-forwarding
    enable-amdgpu-aa enable-andcmp-sinking enable-arm-3-addr-conv enable-arm-gisel-bigendian
    enable-arm-maskedgatscat enable-arm-maskedldst enable-block-placement-stats enable-branch-hint enable-bsb-sched
    enable-chr enable-cold-section enable-coldcc-stress-test enable-complex-deinterleaving enable-cond-stores-vec
    enable-constraint-elimination enable-cse-in-irtranslator enable-cse-in-legalizer enable-cur-sched
    enable-deferred-spilling enable-detailed-function-properties enable-devirtualize-speculatively
    enable-dfa-jump-thread enable-double-float-shrink enable-dse-initializes-attr-improvement
    enable-dse-partial-overwrite-tracking enable-dse-partial-store-merging enable-early-exit-vectorization
    enable-emscripten-cxx-exceptions enable-emscripten-sjlj enable-epilogue-vectorization enable-evl-indvar-simplify
    enable-ext-tsp-block-placement enable-falkor-hwpf-unroll-fix enable-fixedwidth-autovec-in-streaming-mode
    enable-fs-discriminator enable-gen-insn enable-global-analyses enable-global-merge enable-global-merge-func
    enable-gvn-hoist enable-gvn-memdep enable-gvn-memoryssa enable-gvn-sink enable-heap-to-stack-conversion
    enable-hexagon-br-prob enable-hexagon-sdnode-sched enable-hexagon-vector-print
    enable-histogram-loop-vectorization enable-if-conversion enable-implicit-null-checks enable-import-metadata
    enable-ind-var-reg-heur enable-infer-alignment-pass enable-interleaved-mem-accesses enable-ipra
    enable-jump-table-to-switch enable-knowledge-retention enable-legalize-types-checking
    enable-linkonceodr-ir-outlining enable-linkonceodr-outlining enable-load-in-loop-pre enable-load-pre
    enable-loadstore-runtime-interleave enable-local-reassign enable-loop-distribute enable-loop-flatten
    enable-loop-header-duplication enable-loop-simplifycfg-term-folding enable-loop-versioning-licm
    enable-loopinterchange enable-lsr-phielim enable-lto-internalization enable-machine-outliner
    enable-masked-interleaved-mem-accesses enable-matrix enable-mem-access-versioning enable-memcpy-dag-opt
    enable-memcpyopt-without-libcalls enable-memprof-context-disambiguation enable-memprof-indirect-call-support
    enable-merge-functions enable-misched enable-module-inliner enable-mve-interleave enable-name-compression
    enable-newgvn enable-noalias-to-md-conversion enable-nonnull-arg-prop enable-nontrivial-unswitch
    enable-npm-pgo-inline-deferral enable-npm-synthetic-counts enable-objc-arc-opts
    enable-order-file-instrumentation enable-partial-inlining enable-patchpoint-liveness enable-peeling-for-iv
    enable-pgo-force-function-attrs enable-phi-of-ops enable-pipeliner enable-pipeliner-opt-size
    enable-poison-reuse-guard enable-polly-aligned enable-post-misched enable-post-pgo-loop-rotation
    enable-ppc-branch-coalesce enable-ppc-extra-toc-reg-deps enable-ppc-gen-scalar-mass enable-ppc-prefetching
    enable-pre enable-sampled-instrumentation enable-save-restore-long enable-scalable-autovec-in-streaming-mode
    enable-scc-inline-advisor-printing enable-scoped-noalias enable-selectiondag-sp enable-shrink-wrap
    enable-shrink-wrap-region-split enable-single-byte-coverage enable-spill-copy-elim
    enable-split-backedge-in-load-pre enable-split-loopiv-heuristic enable-split-machine-functions
    enable-stackovf-sanitizer enable-store-refinement enable-subreg-liveness enable-tail-merge enable-tbaa
    enable-tc-latency-sched enable-timing-class-latency enable-unroll-and-jam
    enable-unsafe-globalsmodref-alias-results enable-unswitch-cost-multiplier enable-value-profiling enable-vfe
    enable-vplan-native-path enable-vtable-profile-use enable-vtable-value-profiling enable-wide-lane-mask
    enable-x86-scalar-amx exhaustive-register-search expand-all-fp-mlx expand-constant-exprs
    experimental-debug-variable-locations experimental-debuginfo-iterators expose-ppc-andi-glue-bug
    ext-tsp-apply-without-profile extbinary-write-vtable-type-prof extra-vectorizer-passes
    extract-blocks-erase-funcs extract-needand extract-nosr0 fast-isel fast-isel-report-on-fallback fatal-warnings
    fdpic ffast-math fixup-allow-gcptr-in-csr fixup-byte-word-insts fixup-scs-enable-copy-propagation
    fixup-scs-extend-slot-size flatten-profile-for-matching flattened-profile-used force-chr force-fast-cluster
    force-fuse-matrix force-hardware-loop-guard force-hardware-loop-phi force-hardware-loops force-hvx-float
    force-import-all force-instr-ref-livedebugvalues force-legal-indexing force-loop-cold-block
    force-mips-long-branch force-nested-hardware-loop force-ordered-reductions force-pgso
    force-precise-rotation-cost force-specialization force-split-store force-streaming force-streaming-compatible
    force-streaming-compatible-sve force-target-supports-scalable-vectors force-widen-divrem-via-safe-divisor
    forget-scev-loop-unroll forward-switch-cond freeze-loop-unswitch-cond fs-viewbfi-after fs-viewbfi-before
    funcspec-for-literal-constant funcspec-on-address fuse-matrix fuse-matrix-use-loops gc-empty-basic-blocks
    gcov-atomic-counter generate-arange-section generate-merged-base-profiles generate-type-units global-isel
    global-merge-all-const global-merge-group-by-use global-merge-ignore-single-use global-merge-on-const
    global-merge-on-external global-merging-skip-no-params greedy-regclass-priority-trumps-globalness
    greedy-reverse-local-assignment gsframe guard-widening-widen-branch-guards gvn-add-phi-translation
    hash-based-counter-split hexagon-add-build-attributes hexagon-align-loads hexagon-allow-scatter-gather-hvx
    hexagon-autohvx hexagon-bit hexagon-cext hexagon-check-bank-conflict hexagon-commgep hexagon-copy-hoist
    hexagon-disable-args-min-alignment hexagon-eif hexagon-emit-jt-text hexagon-emit-jump-tables
    hexagon-emit-lookup-tables hexagon-emit-lut-text hexagon-enable-branch-prediction hexagon-expand-condsets
    hexagon-extract hexagon-fp-elim hexagon-fp-fast-convert hexagon-gen-pred hexagon-hwloop-preheader
    hexagon-initial-cfg-cleanup hexagon-insert hexagon-instsimplify hexagon-isel-su hexagon-long-calls
    hexagon-loop-prefetch hexagon-loop-resched hexagon-masked-vmem hexagon-mem-abs hexagon-mux hexagon-noopt
    hexagon-opt-spill hexagon-opt-vextract hexagon-packetize-volatiles hexagon-pred-calls hexagon-rdf-dump
    hexagon-rdf-track-reserved hexagon-sched-inline-asm hexagon-shrink-frame hexagon-statics-in-small-data
    hexagon-subreg-liveness hexagon-tfr-cleanup hexagon-vector-combine hexbit-bitsplit hexbit-extract
    hexbit-keep-tied hints-allow-reordering hoist-cheap-insts hoist-common-insts hoist-const-loads
    hoist-const-stores hoist-loads-stores-with-cond-faulting hoist-runtime-checks homogeneous-prolog-epilog
    hot-cold-split hot-cold-static-analysis hsdr-no-mem hsdr-split-all hvc-dump-module hvc-va hvc-va-full-stores
    hvc-vi hwasan-all-globals hwasan-experimental-use-page-aliases hwasan-generate-tags-with-calls hwasan-globals
    hwasan-inline-all-checks hwasan-inline-fast-path-checks hwasan-instrument-atomics hwasan-instrument-byval
    hwasan-instrument-landing-pads hwasan-instrument-mem-intrinsics hwasan-instrument-personality-functions
    hwasan-instrument-reads hwasan-instrument-stack hwasan-instrument-with-calls hwasan-instrument-writes
    hwasan-kernel hwasan-kernel-mem-intrinsic-prefix hwasan-recover hwasan-static-linking hwasan-use-after-scope
    hwasan-use-short-granules hwasan-use-stack-safety hwasan-with-frame-record hwasan-with-ifunc hwasan-with-tls
    hwloop-spec-preheader icp-allow-candidate-skip icp-allow-decls icp-allow-hot-only icp-call-only icp-dumpafter
    icp-invoke-only icp-lto icp-samplepgo ifcvt-branch-fold ignore-bb-reg-pressure ignore-redundant-instrumentation
    ignore-tti-inline-compatible implicit-mapsyms import-all-index import-constants-with-refs import-declaration
    import-full-type-definitions improved-fs-discriminator incremental-linker-compatible
    indexed-codegen-data-lazy-loading indexed-codegen-data-read-function-map-names indvars-post-increment-ranges
    indvars-predicate-loop-traps indvars-predicate-loops indvars-widen-indvars inline-all-viable-calls
    inline-caller-superset-nobuiltin inline-cost-full inline-deferral inline-enable-cost-benefit-analysis
    inline-remark-attribute inliner-interactive-include-default insert-all0 insert-const insert-has0 insert-timing
    insert-timing-detail instcombine-code-sinking instcombine-negator-enabled instcombine-verify-known-bits
    instrprof-atomic-counter-update-all interactive-model-runner-echo-reply interleave-loops
    interleave-small-loop-scalar-reduction interpreter-print-volatile ir-outliner irce-allow-narrow-latch
    irce-allow-unsigned-latch irce-print-changed-loops irce-print-range-checks
    irce-print-scaled-boundary-range-checks irce-skip-profitability-checks isel-rebalance-addr
    iterative-counter-promotion join-globalcopies join-liveintervals join-splitedges jump-is-expensive
    jump-threading-across-loop-headers jumptable-in-function-section keep-inline-advisor-for-printing keep-loops
    laa-speculate-unit-stride lanai-nop-delay-filler licm-control-flow-hoisting licm-force-thread-model-single
    limited-coverage-experimental lint-abort-on-error live-debug-variables
    load-bitcode-into-experimental-debuginfo-iterators load-func-profile-for-cg-matching
    loongarch-annotate-tablejump loongarch-check-zero-division loongarch-disable-cvt-to-d-suffix
    loongarch-disable-sextw-removal loongarch-enable-dead-defs loongarch-enable-loop-data-prefetch
    loongarch-enable-merge-offset loongarch-enable-sink-fold loongarch-no-aliases loongarch-numeric-reg
    loongarch-use-aa loop-deletion-enable-symbolic-execution loop-distribute-non-if-convertible
    loop-distribute-verify loop-flatten-assume-no-overflow loop-flatten-version-loops loop-flatten-widen-iv
    loop-idiom-force-memset-pattern-intrinsic loop-idiom-vectorize-verify loop-predication-enable-count-down-loop
    loop-predication-enable-iv-truncation loop-predication-insert-assumes-of-predicated-guards-conditions
    loop-predication-predicate-widenable-branches-to-deopt loop-predication-skip-profitability-checks
    loop-prefetch-writes loop-rotate-multi loop-vectorize-with-block-frequency loop-version-annotate-no-alias
    lower-interleaved-accesses lowertypetests-avoid-reuse lsr-drop-scaled-reg-for-vscale lsr-drop-solution
    lsr-enable-vscale-immediates lsr-exp-narrow lsr-filter-same-scaled-reg lsr-insns-cost lsr-term-fold
    lto-discard-value-names lto-keep-symbol-copies lto-pass-remarks-with-hotness lv-strided-pointer-ivs
    lvi-per-pred-ranges m68k-register-prefix-optional m68k-use-base-pointer machine-combiner-dump-subst-intrs
    machine-combiner-verify-pattern-order machine-sink-bfi machine-sink-split mandatory-inlining-first
    mark-data-regions matrix-allow-contract matrix-print-after-transpose-opt mc-relax-all mcabac
    mcp-use-is-copy-instr mem-loc-frag-fill membedded-data memprof-allow-recursive-callsites
    memprof-allow-recursive-contexts memprof-ambiguous-attributes memprof-annotate-static-data-prefix
    memprof-attach-calleeguids memprof-clone-recursive-contexts memprof-dump-ccg memprof-export-to-dot
    memprof-fixup-important memprof-guard-against-version-mismatch memprof-histogram memprof-instrument-atomics
    memprof-instrument-reads memprof-instrument-stack memprof-instrument-writes memprof-keep-all-not-cold-contexts
    memprof-match-hot-cold-new memprof-merge-clones memprof-merge-iteration memprof-print-function-guids
    memprof-print-match-info memprof-print-matched-alloc-stack memprof-report-hinted-sizes
    memprof-require-definition-for-promotion memprof-salvage-stale-profile memprof-use-callbacks
    memprof-use-hot-hints memprof-verify-ccg memprof-verify-nodes mergefunc-preserve-debug-info
    mergefunc-use-aliases merror-missing-parenthesis merror-noncontigious-register mextern-sdata mfix4300
    mfs-split-ehcode mgpopt mhvx mhvx-ieee-fp mips-align-constant-islands mips-constant-islands-no-load-relaxation
    mips-erase-gp-opnd mips-fix-global-base-reg mips-jalr-reloc mips-load-target-from-got mips-mixed-16-32 mips-os16
    mips-riscv-load-store-pairs mips-round-section-sizes mips-tail-calls mips16-constant-islands
    mips16-dont-expand-cond-pseudo mips16-hard-float mir-debug-loc mir-strip-debugify-only
    mir-vreg-namer-use-stable-hash misched-bottomup misched-cluster misched-cyclicpath misched-dcpl
    misched-dump-schedule-trace misched-fusion misched-postra misched-regpressure misched-sort-resources-in-trace
    misched-topdown ml-advisor-keep-fpi-cache ml-inliner-ir2native-number-rows ml-inliner-stop-immediately
    mlocal-sdata mno-check-zero-division mno-compound mno-fixup mno-hvx mno-ldc1-sdc1 mno-pairing mno-sort-sda
    msan-check-access-address msan-check-constant-shadow msan-disable-checks msan-dump-heuristic-instructions
    msan-dump-strict-instructions msan-dump-strict-intrinsics msan-eager-checks msan-handle-asm-conservative
    msan-handle-icmp msan-handle-icmp-exact msan-handle-lifetime-intrinsics msan-keep-going msan-kernel
    msan-poison-stack msan-poison-stack-with-call msan-poison-undef msan-poison-undef-vectors
    msan-precise-disjoint-or msan-print-stack-names msan-with-comdat msp430-branch-select msp430-no-legal-immediate
    mul-constant-optimization mv5 mv55 mv60 mv62 mv65 mv66 mv67 mv67t mv68 mv69 mv71 mv71t mv73 mv75 mv79 mv81
    mwarn-missing-parenthesis mwarn-noncontigious-register mwarn-sign-mismatch new-reg-bank-select
    no-deprecated-warn no-discriminators no-dwarf-ranges-section no-kernel-info-end-lto no-pgo-warn-mismatch
    no-pgo-warn-mismatch-comdat-weak no-phi-elim-live-out-early-exit no-stack-coloring no-stack-slot-sharing
    no-trap-after-noreturn no-type-check no-warn no-warn-sample-unused no-x86-call-frame-opt norm-fold-all
    norm-preserve-order norm-rename-all norm-reorder-operands nsan-check-loads nsan-check-ret nsan-check-stores
    nsan-instrument-fcmp nsan-propagate-non-ft-const-stores-as-ft nsan-truncate-fcmp-eq nvptx-approx-log2f32
    nvptx-early-byval-copy nvptx-emit-init-fini-kernel nvptx-exit-on-unreachable nvptx-force-min-byval-param-align
    nvptx-lower-global-ctor-dtor nvptx-mad-wide-opt nvptx-no-f16-math nvptx-no-f32x2 nvptx-prec-sqrtf32
    nvptx-rsqrt-approx-opt nvptx-sched4reg nvptx-short-ptr nvvm-reflect-enable old-thumb2-ifcvt
    only-nonnested-memmove-idiom only-simple-regions openmp-deduce-icv-values openmp-hide-memory-transfer-latency
    openmp-ir-builder-optimistic-attributes openmp-opt-disable openmp-opt-disable-barrier-elimination
    openmp-opt-disable-deglobalization openmp-opt-disable-folding openmp-opt-disable-internalization
    openmp-opt-disable-spmdization openmp-opt-disable-state-machine-rewrite openmp-opt-enable-merging
    openmp-opt-inline-device openmp-opt-print-module-after openmp-opt-print-module-before openmp-opt-verbose-remarks
    openmp-print-gpu-kernels openmp-print-icv-values opt-bisect-verbose opt-disable-enable-verbosity
    optimize-existing-hot-cold-new optimize-hot-cold-new optimize-nobuiltin-hot-cold-new-new
    optimize-non-fmv-callers optimize-regalloc outliner-leaf-descendants overwrite-existing-weights partial-profile
    pbqp-coalescing persist-profile-staleness pgo-analysis-map-emit-bb-sections-cfg pgo-block-coverage
    pgo-emit-branch-prob pgo-fix-entry-count pgo-function-entry-coverage pgo-instr-memop pgo-instr-old-cfg-hashing
    pgo-instr-select pgo-instrument-cold-function-only pgo-instrument-entry pgo-instrument-loop-entries
    pgo-memop-optimize-memcmp-bcmp pgo-memop-scale-count pgo-temporal-instrumentation pgo-treat-unknown-as-cold
    pgo-verify-bfi pgo-verify-hot-bfi pgo-view-block-coverage-graph pgo-warn-misexpect pgo-warn-missing-function
    pgso pgso-cold-code-only pgso-cold-code-only-for-instr-pgo pgso-cold-code-only-for-partial-sample-pgo
    pgso-cold-code-only-for-sample-pgo pgso-lwss-only phi-elim-split-all-critical-edges phicse-debug-hash
    pi-force-live-exit-outline pi-mark-coldcc pick-merged-source-locations pipeliner-annotate-for-testing
    pipeliner-dbg-res pipeliner-experimental-cg pipeliner-mve-cg pipeliner-prune-deps pipeliner-prune-loop-carried
    pipeliner-register-pressure pipeliner-show-mask pipeliner-swap-branch-targets-mve poison-checking-function-local
    polly polly-2nd-level-tiling polly-allow-dereference-of-all-function-parameters
    polly-allow-differing-element-types polly-allow-error-blocks polly-allow-modref-calls polly-allow-nonaffine
    polly-allow-nonaffine-branches polly-allow-nonaffine-loops polly-allow-unsigned-operations
    polly-analyze-read-only-scalars polly-annotate-metadata-vectorize polly-ast-detect-parallel
    polly-ast-print-accesses polly-ast-use-context polly-check-parallel polly-check-vectorizable
    polly-codegen-add-debug-printing polly-codegen-emit-rtc-print polly-codegen-generate-expressions
    polly-codegen-perf-monitoring polly-codegen-trace-scalars polly-codegen-trace-stmts polly-codegen-verify
    polly-delicm-compute-known polly-delicm-overapproximate-writes polly-delicm-partial-writes polly-delinearize
    polly-dependences-use-reductions polly-detect-full-functions polly-detect-keep-going polly-detect-reductions
    polly-detect-track-failures polly-detect-verify polly-disable-multiplicative-reductions polly-dot polly-dot-only
    polly-dump-after polly-dump-before polly-enable-delicm polly-enable-mse polly-enable-optree
    polly-enable-prune-unprofitable polly-enable-simplify polly-export polly-ignore-aliasing polly-ignore-inbounds
    polly-ignore-integer-wrapping polly-ignore-parameter-bounds polly-import polly-invariant-load-hoisting
    polly-loopfusion-greedy polly-matmul-opt polly-on-isl-error-abort polly-only-scop-detection
    polly-optimized-scops polly-optree-analyze-known polly-optree-normalize-phi polly-parallel polly-parallel-force
    polly-pattern-matching-based-opts polly-postopts polly-pragma-based-opts polly-pragma-ignore-depcheck
    polly-precise-fold-accesses polly-precise-inbounds polly-print-ast polly-print-delicm polly-print-deps
    polly-print-detect polly-print-flatten-schedule polly-print-import-jscop polly-print-instructions
    polly-print-mse polly-print-opt-isl polly-print-optree polly-print-scops polly-print-simplify
    polly-process-unprofitable polly-register-tiling polly-remarks-minimal polly-report polly-reschedule
    polly-run-dce polly-run-inliner polly-show polly-show-only polly-tc-opt polly-tiling
    polly-unprofitable-scalar-accs polly-use-llvm-names polly-use-runtime-alias-checks polly-view-all polly-view-cfg
    post-RA-scheduler ppc-always-use-base-pointer ppc-asm-full-reg-names ppc-bit-perm-rewriter-stress-rotates
    ppc-convert-rr-to-ri ppc-disable-non-volatile-cr ppc-disable-perfect-shuffle ppc-eliminate-signext
    ppc-eliminate-zeroext ppc-enable-coldcc ppc-enable-gpr-to-vsr-spills ppc-enable-pe-vector-spills
    ppc-enable-pipeliner ppc-fma-rp-reduction ppc-formprep-chain-commoning ppc-formprep-prefer-update
    ppc-formprep-update-nonconst-inc ppc-gen-isel ppc-gep-opt ppc-global-merge ppc-late-peephole
    ppc-lsr-no-insns-cost ppc-machine-combiner ppc-merge-string-pool ppc-old-latency-calc ppc-opt-conditional-trap
    ppc-pcrel-linker-opt ppc-postra-bias-addi ppc-pwr9-evl ppc-reduce-cr-logicals ppc-reg-to-imm-fixed-point
    ppc-reg-with-percent-prefix ppc-stack-ptr-caller-preserved ppc-tls-opt ppc-track-subreg-liveness
    ppc-use-absolute-jumptables ppc-use-base-pointer ppc-use-bit-perm-rewriter ppc-use-branch-hint ppc-vec-mask-cost
    ppc-vsr-nums-as-vr precise-rotation-cost prefer-inloop-reductions prefer-no-csel
    prefer-predicated-reduction-select preserve-alignment-assumptions-during-inlining preserve-bc-uselistorder
    preserve-input-debuginfo-format preserve-ll-uselistorder print-addrspace-name print-after-all print-after-isel
    print-all-reaching-defs print-before-all print-before-changed print-bfi print-bpi print-changed print-debug-ata
    print-debug-counter print-debug-counter-queries print-failed-fuse-candidates print-gc print-import-failures
    print-imports print-inst-addrs print-inst-debug-locs print-instruction-comments print-isel-input
    print-loop-func-scope print-lsr-output print-lvi-after-jump-threading print-machine-bfi print-mi-addrs
    print-module-scope print-on-crash print-pass-numbers print-pipeline-passes print-prof-data print-regusage
    print-slotindexes print-summary-global-ids profcheck-annotate-select profcheck-disable-metadata-fixes
    profcheck-weights-for-test profile-accurate-for-symsinlist profile-guided-section-prefix profile-isfs
    profile-sample-accurate profile-sample-block-accurate profile-summary-contextless
    profile-unknown-in-special-section propagate-attrs protect-from-escaped-allocas r600-ir-structurize
    rafast-ignore-missing-defs rdf-opt reassoc-shl-addi-add reassociate-geps-verify-no-dead-code
    reassociate-use-cse-local rebalance-only-imbal rebalance-only-opt regalloc-enable-development-features
    relax-nv-checks relink-builtin-bitcode-postop remarks-section remat-pic-stub-load rename-only-inst
    renumber-blocks-before-view report-profile-staleness restrict-statepoint-remat reverse-csr-restore-seq
    riscv-abi-attributes riscv-add-build-attributes riscv-align-rvc riscv-asm-relax-branches riscv-ccmov
    riscv-disable-cost-per-use riscv-disable-frm-insert-opt riscv-disable-insert-vsetvl-phi-opt
    riscv-disable-regalloc-hints riscv-disable-sextw-removal riscv-disable-strip-w-suffix
    riscv-disable-using-constant-pool-for-large-ints riscv-disable-vector-mask-mutation riscv-emit-x8-as-fp
    riscv-enable-cfi-instr-inserter riscv-enable-copy-propagation riscv-enable-copyelim riscv-enable-dead-defs
    riscv-enable-global-merge riscv-enable-loop-data-prefetch riscv-enable-machine-combiner
    riscv-enable-p-ext-simd-codegen riscv-enable-pipeliner riscv-enable-sink-fold riscv-enable-subreg-liveness
    riscv-enable-vl-optimizer riscv-insert-vsetvl-strict-asserts
    riscv-insert-vsetvli-whole-vector-register-move-valid-vtype riscv-lower-form-vw-w-with-splat
    riscv-misched-load-clustering riscv-misched-load-store-clustering riscv-no-aliases
    riscv-postmisched-load-store-clustering riscv-prefer-whole-register-move riscv-split-regalloc
    riscv-uleb128-reloc riscv-use-aa riscv-use-rematerializable-movimm riscv-vsetvl-after-rvv-regalloc
    rotation-prepare-for-lto rs4gc-allow-statepoint-with-no-deopt-info rs4gc-clobber-non-live
    rs4gc-remat-derived-at-uses runtime-counter-relocation safe-stack-coloring safe-stack-layout
    safepoint-ir-verifier-print-only safestack-use-pointer-address salvage-stale-profile salvage-unused-profile
    sample-profile-even-flow-distribution sample-profile-inline-size sample-profile-join-islands
    sample-profile-merge-inlinee sample-profile-prioritized-inline sample-profile-rebalance-unknown
    sample-profile-recursive-inline sample-profile-remove-probe sample-profile-top-down-load
    sample-profile-use-preinliner sample-profile-use-profi sampled-instrumentation sanitizer-coverage-control-flow
    sanitizer-coverage-drop-ctors sanitizer-coverage-gated-trace-callbacks sanitizer-coverage-inline-8bit-counters
    sanitizer-coverage-inline-bool-flag sanitizer-coverage-pc-table sanitizer-coverage-prune-blocks
    sanitizer-coverage-stack-depth sanitizer-coverage-trace-compares sanitizer-coverage-trace-divs
    sanitizer-coverage-trace-geps sanitizer-coverage-trace-loads sanitizer-coverage-trace-pc
    sanitizer-coverage-trace-pc-guard sanitizer-coverage-trace-stores sanitizer-early-opt-ep
    sanitizer-metadata-atomics sanitizer-metadata-covered sanitizer-metadata-nosanitize-attr sanitizer-metadata-uar
    sanitizer-metadata-weak-callbacks save-temp-labels sbvec-allow-non-pow2 sbvec-print-pass-pipeline
    scalar-evolution-classify-expressions scalar-evolution-finite-loop
    scalar-evolution-use-context-for-no-wrap-flag-strenghening scalar-evolution-use-expensive-range-sharpening
    scalarize-load-store scalarize-variable-insert-extract scale-partial-sample-profile-working-set-size
    scev-verify-ir sched-model-force-enable-intervals sched-preds-closer sched-print-cycles
    sched-retval-optimization scheditins schedmodel schedule-ppc-vsx-fma-mutation-early show-fs-branchprob
    simple-loop-unswitch-drop-non-trivial-implicit-null-checks simple-loop-unswitch-estimate-profile
    simple-loop-unswitch-guards simple-loop-unswitch-inject-invariant-conditions simplify-mir
    simplifycfg-hoist-common simplifycfg-hoist-cond-stores simplifycfg-hoist-loads-stores-with-cond-faulting
    simplifycfg-hoist-loads-with-cond-faulting simplifycfg-hoist-stores-with-cond-faulting
    simplifycfg-merge-compatible-invokes simplifycfg-merge-cond-stores simplifycfg-merge-cond-stores-aggressively
    simplifycfg-require-and-preserve-domtree simplifycfg-sink-common sink-common-insts sink-insts-to-avoid-spills
    skip-mips-long-branch skip-ret-exit-block slot1-store-slot0-load slp-copyable-elements slp-disable-tree-reorder
    slp-force-strided-loads slp-optimize-identity-hor-reduction-ops slp-revec slp-skip-early-profitability-check
    slp-split-alternate-instructions slp-vectorize-hor slp-vectorize-hor-store slp-vectorize-non-power-of-2
    sort-profiled-scc-member sort-timers sparc-enable-branch-relax sparc-reserve-app-registers
    spec-exec-only-if-divergent-target speculate-one-expensive-inst speculate-unpredictables
    speculative-counter-promotion-to-loop spirv-emit-op-names split-dwarf-cross-cu-references split-static-data
    spp-all-backedges spp-no-backedge spp-no-call spp-no-entry spp-print-base-pointers spp-print-liveset
    spp-print-liveset-size spp-split-backedge spv-allow-unknown-intrinsics spv-dump-deps
    spv-emit-nonsemantic-debug-info sroa-skip-mem2reg sroa-strict-inbounds stack-safety-print stack-safety-run
    stack-tagging-first-slot-opt stack-tagging-merge-init stack-tagging-merge-settag stack-tagging-use-stack-safety
    stackcoloring-lifetime-start-on-first-use static-func-full-module-prefix stats stats-json
    store-to-load-forwarding-conflict-detection stress-cgp-ext-ld-promotion stress-cgp-store-extract
    stress-early-ifcvt strip-global-constants structurizecfg-relaxed-uniform-regions
    structurizecfg-skip-uniform-regions supports-hot-cold-new sve-prefer-fixed-over-scalable-if-equal
    sve-use-scalar-inc-vl switch-range-to-icmp switch-to-lookup system-headers-coverage systemz-machine-combiner
    systemz-subreg-liveness tail-dup-placement tail-dup-verify terminal-rule tfutils-use-simplelogger
    thinlto-assume-merged thinlto-move-ctxprof-trees thinlto-synthesize-entry-counts time-passes time-passes-per-run
    tls-load-hoist trace-gv-placement trace-hex-vector-stores-only track-memory translator-compatibility-mode
    trap-unreachable tre-disable-entrycount-recompute treat-scalable-fixed-error-as-warning trim-var-locs
    tsan-compound-read-before-write tsan-distinguish-volatile tsan-handle-cxx-exceptions tsan-instrument-atomics
    tsan-instrument-func-entry-exit tsan-instrument-memintrinsics tsan-instrument-memory-accesses
    tsan-instrument-read-before-write tsan-omit-by-pointer-capturing twoaddr-reschedule type-based-intrinsic-cost
    tysan-outline-instrumentation tysan-verify-outlined-instrumentation tysan-writes-always-set-type
    ubsan-guard-checks ubsan-unique-traps unroll-add-parallel-reductions unroll-allow-loop-nests-peeling
    unroll-allow-partial unroll-allow-peeling unroll-allow-remainder unroll-remainder unroll-revisit-child-loops
    unroll-runtime unroll-runtime-epilog unroll-runtime-multi-exit unroll-runtime-other-exit-predictable
    unroll-verify-domtree unroll-verify-loopinfo update-pseudo-probe use-constant-fp-for-fixed-length-splat
    use-constant-fp-for-scalable-splat use-constant-int-for-fixed-length-splat use-constant-int-for-scalable-splat
    use-dwarf-ranges-base-address-specifier use-gnu-debug-macro use-iterative-bfi-inference use-leb128-directives
    use-lir-code-size-heurs use-mbpi use-newer-candidate use-noalias-intrinsic-during-inlining
    use-profiled-call-graph use-registers-for-deopt-values use-registers-for-gc-values-in-landing-pad
    use-riscv-ccmov use-riscv-mips-ccmov use-riscv-mips-load-store-pairs use-segment-set-for-physregs
    use-source-filename-for-promoted-locals use-tbaa-in-sched-mi use-undef vectorize-loops vectorize-slp
    vectorize-use-legacy-cost-model vectorizer-consider-reg-pressure vectorizer-maximize-bandwidth
    vectorizer-maximize-bandwidth-for-vector-calls verbose-gisel-verify-legalizer-info verify-analysis-invalidation
    verify-arm-pseudo-expand verify-assumption-cache verify-cfiinstrs verify-coalescing verify-dom-info
    verify-loop-info verify-loop-lcssa verify-machine-dom-info verify-machineinstrs verify-matrix-shapes
    verify-memoryssa verify-misched verify-noalias-scope-decl-dom verify-predicateinfo verify-pseudo-probe
    verify-regalloc verify-region-info verify-scev verify-scev-strict view-edge-bundles view-slp-tree
    vp-static-alloc vplan-build-stress-test vplan-print-in-dot-format vplan-verify-each vplan-verify-hcfg
    wasm-disable-explicit-locals wasm-disable-fix-irreducible-control-flow-pass wasm-enable-eh wasm-enable-exnref
    wasm-enable-sjlj wasm-keep-registers wasm-use-legacy-eh whole-program-visibility
    wholeprogramdevirt-keep-unreachable-function wholeprogramdevirt-print-index-based widen-global-strings
    write-experimental-debuginfo write-experimental-debuginfo-iterators-to-bitcode write-relbf-to-summary
    x86-and-imm-shrink x86-branches-within-32B-boundaries x86-bypass-prefetch-instructions x86-cmov-converter
    x86-cmov-converter-force-all x86-cmov-converter-force-mem-operand x86-disable-avoid-SFB
    x86-disable-regalloc-hints-for-ndd x86-discriminate-memops x86-early-ifcvt x86-enable-apx-for-relocation
    x86-experimental-lvi-inline-asm-hardening x86-experimental-unordered-atomic-isel x86-indirect-branch-tracking
    x86-lvi-load-dot x86-lvi-load-dot-only x86-lvi-load-dot-verify x86-lvi-load-no-cbranch x86-machine-combiner
    x86-pad-for-align x86-pad-for-branch-align x86-promote-anyext-load x86-relax-relocations
    x86-seses-enable-without-lvi-cfi x86-seses-omit-branch-lfences x86-seses-one-lfence-per-bb
    x86-seses-only-lfence-non-const x86-slh-fence-call-and-ret x86-slh-indirect x86-slh-ip x86-slh-lfence
    x86-slh-loads x86-slh-post-load x86-speculative-load-hardening x86-sse2avx x86-tile-ra x86-use-base-pointer
    x86-use-fsrm-for-memcpy x86-use-vzeroupper x86-widen-shift
    """
)

# The value follows ``=``, or is the next word.
REQUIRED = word_set(
    """
    aarch64-a57-fp-load-balancing-override aarch64-authenticated-lr-check-method aarch64-b-offset-bits
    aarch64-base-histcnt-cost aarch64-bcc-offset-bits aarch64-cb-offset-bits aarch64-cbz-offset-bits
    aarch64-ccmp-limit aarch64-enable-global-isel-at-O aarch64-force-unroll-threshold
    aarch64-insert-extract-base-cost aarch64-load-store-const-scan-limit aarch64-load-store-scan-limit
    aarch64-max-xors aarch64-min-jump-table-entries aarch64-neon-syntax aarch64-ptrauth-auth-checks
    aarch64-search-limit aarch64-stack-hazard-remark-size aarch64-stack-hazard-size aarch64-streaming-hazard-size
    aarch64-sve-vector-bits-max aarch64-sve-vector-bits-min aarch64-tbz-offset-bits aarch64-update-scan-limit
    aarch64o0prelegalizercombiner-disable-rule aarch64o0prelegalizercombiner-only-enable-rule
    aarch64postlegalizercombiner-disable-rule aarch64postlegalizercombiner-only-enable-rule
    aarch64postlegalizerlowering-disable-rule aarch64postlegalizerlowering-only-enable-rule
    aarch64prelegalizercombiner-disable-rule aarch64prelegalizercombiner-only-enable-rule acc-max-width
    acc-min-depth accel-tables agg-antidep-debugdiv agg-antidep-debugmod aggressive-instcombine-max-scan-instrs
    alias-set-saturation-threshold align-all-blocks align-all-functions align-all-nofallthru-blocks
    alloc-token-fallback alloc-token-max alloc-token-prefix ambiguous-new-hint-value
    amdgpu-assume-dynamic-stack-object-size amdgpu-assume-external-call-stack-size amdgpu-atomic-optimizer-strategy
    amdgpu-barrier-signal-wait-latency amdgpu-hard-clause-length-limit amdgpu-igrouplp-exact-solver-cutoff
    amdgpu-igrouplp-exact-solver-max-branches amdgpu-indirect-access-weight
    amdgpu-indirect-call-specialization-threshold amdgpu-inline-arg-alloca-cost amdgpu-inline-arg-alloca-cutoff
    amdgpu-inline-max-bb amdgpu-kernarg-preload-count amdgpu-large-stride-threshold amdgpu-large-stride-weight
    amdgpu-limit-wave-threshold amdgpu-long-branch-factor amdgpu-lower-module-lds-strategy
    amdgpu-max-exhaustive-hazard-search amdgpu-max-memory-clause amdgpu-max-return-arg-num-regs
    amdgpu-membound-threshold amdgpu-memcpy-loop-unroll amdgpu-mfma-padding-ratio
    amdgpu-module-splitting-large-function-merge-overlap amdgpu-module-splitting-large-function-threshold
    amdgpu-module-splitting-large-threshold amdgpu-module-splitting-log-dir amdgpu-module-splitting-max-depth
    amdgpu-module-splitting-merge-threshold amdgpu-module-splitting-print-module-dotcfg
    amdgpu-module-splitting-print-partition-summaries amdgpu-nsa-threshold amdgpu-promote-alloca-to-vector-limit
    amdgpu-promote-alloca-to-vector-max-regs amdgpu-promote-alloca-to-vector-vgpr-ratio amdgpu-sched-strategy
    amdgpu-schedule-metric-bias amdgpu-scheduler-pending-queue-limit amdgpu-set-wave-priority-valu-insts-threshold
    amdgpu-sgpr-hazard-mem-wait-cull-threshold amdgpu-skip-threshold amdgpu-snop-padding
    amdgpu-unroll-max-block-to-analyze amdgpu-unroll-threshold-if amdgpu-unroll-threshold-local
    amdgpu-unroll-threshold-private amdgpupostlegalizercombiner-disable-rule
    amdgpupostlegalizercombiner-only-enable-rule amdgpuprelegalizercombiner-disable-rule
    amdgpuprelegalizercombiner-only-enable-rule amdgpuregbankcombiner-disable-rule
    amdgpuregbankcombiner-only-enable-rule amdhsa-code-object-version arc-opt-max-ptr-states
    arm-constant-island-max-iteration arm-data-bank-mask arm-force-unroll-threshold arm-implicit-it
    arm-max-base-updates-to-check arm-memtransfer-tploop arm-parallel-dsp-load-limit
    arm-prera-ldst-opt-reorder-limit arm-promote-constant-max-size arm-promote-constant-max-total as-secure-log-file
    asan-constructor-kind asan-debug asan-debug-func asan-debug-max asan-debug-min asan-debug-stack
    asan-destructor-kind asan-force-experiment asan-instrument-address-spaces
    asan-instrumentation-with-call-threshold asan-mapping-offset asan-mapping-scale asan-max-inline-poisoning-size
    asan-max-ins-per-bb asan-memory-access-callback-prefix asan-realign-stack asan-shadow-addr-space
    asan-use-after-return asm-macro-max-nesting-depth attributor-depgraph-dot-filename-prefix attributor-enable
    attributor-max-initialization-chain-length attributor-max-iterations attributor-max-potential-values
    attributor-max-potential-values-iterations attributor-max-specializations-per-call-base
    avail-extern-gv-in-addrspace-to-local available-load-scan-limit avoid-spirv-capabilities
    bbsections-cold-text-prefix big-basic-block-instruction-threshold bitcode-flush-threshold
    bitcode-mdindex-threshold block-freq-ratio-threshold block-placement-exit-block-bias
    block-placement-predecessor-limit bonus-inst-threshold bpf-min-jump-table-entries bpf-stack-size
    branch-hint-probability-threshold branch-relax-safety-buffer break-anti-dependencies cache-line-size
    call-penalty-sm-change call-with-many-arguments-threshold callgraph-dot-filename-prefix
    callsite-splitting-duplication-threshold canon-nth-function capture-tracking-max-uses-to-explore
    cfg-dot-filename-prefix cfg-func-name cfg-hide-cold-paths cgp-freq-ratio-to-skip-merge
    cgp-max-address-users-to-scan cgpp-huge-func cgscc-inline-replay cgscc-inline-replay-fallback
    cgscc-inline-replay-format cgscc-inline-replay-scope check-functions-filter chr-bias-threshold chr-dup-threshold
    chr-function-list chr-merge-threshold chr-module-list codegen-data-use-path cold-branch-ratio
    cold-callsite-rel-freq cold-new-hint-value cold-operand-max-cost-multiplier cold-operand-threshold
    cold-synthetic-count coldcc-rel-freq combiner-store-merge-dependence-limit combiner-tokenfactor-inline-limit
    compile-time-mem-idiom-threshold consthoist-min-num-to-rebase constraint-elimination-max-rows
    coro-elide-branch-ratio cost-kind cphoistfn crash-diagnostics-dir cs-profile-path csuses-threshold
    ctx-prof-skip-callsite-instr ctx-profile-printer-level cvp-max-functions-per-value da-miv-max-level-threshold
    dag-maps-huge-region dag-maps-reduction-size dataflow-edge-limit debug-ata-max-blocks debug-counter debug-only
    debug-pass debugify-func-limit debugify-level default-gcov-version default-trip-count dfa-cost-threshold
    dfa-instr-limit dfa-max-cloned-rate dfa-max-num-paths dfa-max-num-visited-paths dfa-max-out-use-blocks
    dfa-max-path-length dfa-sched-reg-pressure-threshold dfsan-abilist dfsan-combine-taint-lookup-table
    dfsan-instrument-with-call-threshold dfsan-track-origins disable-hoisting-to-hotter-blocks
    dmb-lookahead-threshold dom-conditions-max-uses dom-tree-reachability-max-bbs-to-explore dot-cfg-after-color
    dot-cfg-before-color dot-cfg-common-color dot-cfg-dir dot-cfg-mssa dot-ddg-filename-prefix
    dse-memoryssa-defs-per-block-limit dse-memoryssa-otherbb-cost dse-memoryssa-partial-store-limit
    dse-memoryssa-path-check-limit dse-memoryssa-samebb-cost dse-memoryssa-scanlimit dse-memoryssa-walklimit
    dwarf-extended-loc dwarf-inlined-strings dwarf-linkage-names dwarf-op-convert dwarf-sections-as-references
    dwarf-version early-ifcvt-limit earlycse-mssa-optimization-cap eif-limit emit-dwarf-unwind
    emscripten-cxx-exceptions-allowed enable-ml-inliner epilogue-vectorization-force-VF
    epilogue-vectorization-minimum-VF exec-on-ir-change execute-concurrency executor expand-condsets-coa-limit
    expand-condsets-tfr-limit expand-div-rem-bits expand-fp-convert-bits expand-limit expand-variadics-override
    expandvp-override-evl-transform expandvp-override-mask-transform ext-tsp-block-placement-max-blocks
    extract-blocks-file extract-cutoff fast-cluster-threshold fast-isel-abort filter filter-passes
    filter-print-funcs fixup-max-csr-statepoints flat-loop-tripcount-threshold float2int-max-integer-bw
    force-attribute force-remove-attribute force-summary-edges-cold force-tail-folding-style
    force-target-instruction-cost force-target-max-scalar-interleave force-target-max-vector-interleave
    force-target-num-scalar-regs force-target-num-vector-regs force-vector-interleave force-vector-width
    forceattrs-csv-path frame-helper-size-threshold fs-profile-debug-bw-threshold
    fs-profile-debug-prob-diff-threshold fs-profile-file fs-remapping-file func-profile-similarity-threshold
    funcspec-max-block-predecessors funcspec-max-clones funcspec-max-codesize-growth
    funcspec-max-discovery-iterations funcspec-max-incoming-phi-values funcspec-max-iters
    funcspec-min-codesize-savings funcspec-min-function-size funcspec-min-inlining-bonus
    funcspec-min-latency-savings fuse-matrix-tile-size global-isel-abort global-merge-max-offset
    global-merge-min-data-size global-merging-call-overhead global-merging-extra-threshold
    global-merging-inst-overhead global-merging-max-params global-merging-min-instrs global-merging-min-merges
    global-merging-param-overhead gotol-abs-low-bound gpsize grow-region-complexity-budget
    guards-predicate-pass-branch-weight gvn-hoist-max-bbs gvn-hoist-max-chain-length gvn-hoist-max-depth
    gvn-max-block-speculations gvn-max-hoisted gvn-max-num-deps gvn-max-num-insns gvn-max-num-visited-insts
    hardware-loop-counter-bitwidth hardware-loop-decrement has-predecessor-max-steps hexagon-amode-growth-limit
    hexagon-cext-limit hexagon-cext-threshold hexagon-frame-index-reuse-limit hexagon-frame-index-search-range
    hexagon-gen-mux-threshold hexagon-hvx-loop-align-limit-ub hexagon-hvx-widen hexagon-loop-align-limit-lb
    hexagon-loop-align-limit-ub hexagon-loop-bundle-align-limit hexagon-loop-edge-threshold hexagon-loop-range
    hexagon-rdf-limit hexagon-small-data-threshold hexagon-tiny-loop-align-limit-ub
    hexagon-tiny-loop-bundle-align-limit hexagon-vextract-threshold hexagon-vlcr-iteration-lim hexbit-max-bitsplit
    hexbit-max-extract hexbit-registerset-limit hlir-simplify-limit hoist-loads-stores-with-cond-faulting-threshold
    hot-callsite-rel-freq hot-callsite-threshold hot-func-cutoff-for-staleness-error hot-new-hint-value
    hotcoldsplit-cold-probability-denom hotcoldsplit-cold-section-name hotcoldsplit-max-params
    hotcoldsplit-threshold huge-size-for-split hvc-va-group-count-limit hvc-va-group-size-limit
    hwasan-mapping-offset hwasan-mapping-offset-dynamic hwasan-match-all-tag hwasan-memory-access-callback-prefix
    hwasan-percentile-cutoff-hot hwasan-random-rate hwasan-record-stack-history icp-csskip icp-cutoff
    icp-ignored-base-types icp-max-annotations icp-max-num-vtable-last-candidate icp-max-num-vtables icp-max-prom
    icp-minimum-count-threshold icp-remaining-percent-threshold icp-total-percent-threshold
    icp-vtable-percentage-threshold ifcvt-fn-start ifcvt-fn-stop ifcvt-limit imp-null-check-page-size
    imp-null-max-insts-to-consider import-cold-multiplier import-critical-multiplier import-cutoff
    import-hot-evolution-factor import-hot-multiplier import-instr-evolution-factor import-instr-limit
    info-output-file initial-synthetic-count inline-asm-instr-cost inline-call-penalty inline-call-penalty-sm-change
    inline-cold-callsite-threshold inline-deferral-scale inline-instr-cost inline-max-stacksize
    inline-memaccess-cost inline-priority-mode inline-savings-multiplier inline-savings-profitable-multiplier
    inline-size-allowance inline-synthetic-count inline-threshold inlinecold-threshold inlinedefault-threshold
    inlinehint-threshold inliner-function-import-stats inliner-interactive-channel-base insert-dist-cutoff
    insert-max-ifmap insert-max-orl insert-vreg-cutoff instcombine-guard-widening-window
    instcombine-infinite-loop-threshold instcombine-lower-dbg-declare instcombine-max-copied-from-constant-users
    instcombine-max-num-phis instcombine-max-sink-users instcombine-maxarray-size instcombine-negator-max-depth
    instcombine-simplify-vector-elts-depth instrument-cold-function-only-path internalize-public-api-file
    internalize-public-api-list intra-scc-cost-multiplier intrinsic-cost-strategy ir-dump-directory
    ir2vec-arg-weight ir2vec-kind ir2vec-opc-weight ir2vec-type-weight ir2vec-vocab-path irce-loop-size-cutoff
    irce-max-type-size-for-overflow-check irce-min-eliminated-checks irce-min-runtime-iterations
    iterative-bfi-max-iterations-per-block iterative-bfi-precision jump-inst-cost jump-table-density
    jump-table-to-switch-function-size-threshold jump-table-to-switch-size-threshold
    jump-threading-implication-search-threshold jump-threading-phi-threshold jump-threading-threshold
    lanai-constant-mul-threshold lanai-ssection-threshold large-interval-freq-threshold
    large-interval-size-threshold late-remat-update-threshold lcr-max-depth lcr-max-interf ldstmemcpy-glue-max
    licm-max-num-fp-reassociations licm-max-num-int-reassociations licm-max-num-uses-traversed
    licm-mssa-max-acc-promotion licm-mssa-optimization-cap licm-versioning-invariant-threshold
    licm-versioning-max-depth-threshold likely-branch-weight limit-float-precision livedebugvalues-input-bb-limit
    livedebugvalues-input-dbg-value-limit livedebugvalues-max-stack-slots locally-hot-callsite-threshold
    loongarch-materialize-float-imm loop-distribute-scev-check-threshold
    loop-distribute-scev-check-threshold-with-pragma loop-flatten-cost-threshold loop-fusion-dependence-analysis
    loop-fusion-peel-max-count loop-idiom-vectorize-bytecmp-vf loop-idiom-vectorize-style
    loop-interchange-max-loop-nest-depth loop-interchange-max-meminstr-count loop-interchange-min-loop-nest-depth
    loop-interchange-profitabilities loop-interchange-threshold loop-load-elimination-scev-check-threshold
    loop-predication-latch-probability-scale loop-to-cold-block-ratio lower-allow-check-percentile-cutoff-hot
    lower-allow-check-random-rate lowertypetests-read-summary lowertypetests-summary-action
    lowertypetests-write-summary lsr-complexity-limit lsr-preferred-addressing-mode lsr-setupcost-depth-limit
    lto-aix-system-assembler lto-embed-bitcode lto-pass-remarks-filter lto-pass-remarks-format
    lto-pass-remarks-hotness-threshold lto-pass-remarks-output lto-stats-file m68k-ssection-threshold
    machine-combiner-inc-threshold machine-outliner-reruns machine-sink-cycle-limit
    machine-sink-load-blocks-threshold machine-sink-load-instrs-threshold machine-sink-split-probability-threshold
    matrix-default-layout matrix-split-matmul-remainder-over-threshold max-bb-size-for-load-store-widening
    max-booleans-in-control-flow-hub max-bytes-for-alignment max-counter-promotions max-counter-promotions-per-loop
    max-deopt-or-unreachable-succ-check-depth max-dependences max-forked-scev-depth max-heap-to-stack-size max-hsdr
    max-ifunc-versions max-inst-checked-for-throw-during-inlining max-interleave-group-factor max-jump-table-size
    max-jump-threading-live-blocks max-loads-per-memcmp max-loads-per-memcmp-opt-size
    max-nested-scalar-reduction-interleave max-num-inline-blocks max-num-inst-between-tfr-and-nv-store
    max-partial-inlining max-phi-entries-increase-after-removing-empty-block max-prefetch-iters-ahead
    max-registers-for-gc-values max-sched-reorder max-speculation-depth max-store-memcpy max-store-memcpy-Os
    max-store-memmove max-store-memmove-Os max-store-memset max-store-memset-Os max-switch-cases-per-result
    max-uses-for-sinking mbb-profile-dump mcfg-dot-filename-prefix mcfg-func-name
    medium-basic-block-instruction-threshold mem-intrinsic-expand-size memchr-inline-threshold
    memcmp-num-loads-per-block memdep-block-number-limit memdep-block-scan-limit memdep-cache-global-limit
    memop-max-annotations memop-value-prof-max-opt-size memory-check-merge-threshold
    memprof-ave-lifetime-cold-threshold memprof-callsite-cold-threshold memprof-cloning-cold-threshold memprof-debug
    memprof-debug-func memprof-debug-max memprof-debug-min memprof-dot-alloc-id memprof-dot-context-id
    memprof-dot-file-path-prefix memprof-dot-scope memprof-icp-noinline-threshold memprof-import-summary
    memprof-lifetime-access-density-cold-threshold memprof-mapping-granularity memprof-mapping-scale
    memprof-matching-cold-threshold memprof-memory-access-callback-prefix
    memprof-min-ave-lifetime-access-density-hot-threshold memprof-min-percent-max-cold-size
    memprof-runtime-default-options memprof-tail-call-search-depth memprof-top-n-important memssa-check-limit
    mergefunc-verify mfs-count-threshold mfs-psi-cutoff mhwmult min-bit-test-cmps min-block-execution
    min-call-count-for-cg-matching min-ctr-loop-threshold min-func-count-for-cg-matching
    min-functions-for-staleness-error min-jump-table-entries min-page-size min-prefetch-stride min-region-size-ratio
    minimize-addr-in-v5 minimum-jump-tables mips-compact-branches mips-constant-islands-small-offset
    mips-ssection-threshold mips32-function-mask mipspostlegalizercombiner-disable-rule
    mipspostlegalizercombiner-only-enable-rule mir2vec-common-operand-weight mir2vec-kind mir2vec-opc-weight
    mir2vec-reg-operand-weight mir2vec-vocab-path misched misched-dump-schedule-trace-col-header-width
    misched-dump-schedule-trace-col-width misched-limit misched-postra-direction misched-prera-direction
    misched-resource-cutoff misched-verbose-level misexpect-tolerance misfetch-cost mispredict-default-rate
    ml-advisor-size-increase-threshold ml-inliner-ir2native-model ml-inliner-ir2vec-vocab-file
    ml-inliner-model-selector ml-inliner-model-under-training ml-inliner-output-spec-override ml-inliner-skip-policy
    ml-inliner-trained-model-feed-prefix mlregalloc-max-eviction-count module-inliner-top-priority-threshold
    module-summary-dot-file module-summary-max-indirect-edges moudle-inliner-top-priority-threshold
    move-auto-init-threshold ms-secure-hotpatch-functions-file ms-secure-hotpatch-functions-list msan-and-mask
    msan-disambiguate-warning-threshold msan-instrumentation-with-call-threshold msan-origin-base
    msan-poison-stack-pattern msan-shadow-base msan-track-origins msan-xor-mask mve-max-interleave-factor
    neon-nonconst-stride-overhead non-global-value-max-name-size notcold-new-hint-value nsan-shadow-type-mapping
    number-scavenger-slots nvj-count nvptx-fma-level nvptx-lower-global-ctor-dtor-id nvptx-prec-divf32
    nvptx-traverse-address-aliasing-limit nvvm-intr-range-sm nvvm-reflect-add
    object-size-offset-visitor-max-visit-instructions openmp-ir-builder-unroll-threshold-factor
    openmp-opt-max-iterations openmp-opt-shared-limit opt-bisect opt-bisect-limit opt-bisect-print-ir-path
    opt-disable optsize-jump-table-density orderfile-write-mapping outline-region-freq-percent
    outliner-benefit-threshold partial-inlining-extra-penalty partial-reg-update-clearance
    partial-sample-profile-working-set-size-scale-factor partial-unrolling-threshold pass-remarks
    pass-remarks-analysis pass-remarks-missed pgo-analysis-map pgo-cold-func-opt pgo-cold-instrument-entry-threshold
    pgo-critical-edge-threshold pgo-function-size-threshold pgo-memop-count-threshold pgo-memop-max-version
    pgo-memop-percent-threshold pgo-test-profile-file pgo-test-profile-remapping-file pgo-trace-func-hash
    pgo-verify-bfi-cutoff pgo-verify-bfi-ratio pgo-view-counts pgo-view-raw-counts pgso-cutoff-instr-prof
    pgso-cutoff-sample-prof phi-node-folding-threshold phicse-num-phi-smallsize pipeliner-force-ii
    pipeliner-force-issue-width pipeliner-ii-search-range pipeliner-max-mii pipeliner-max-num-stores
    pipeliner-max-stages pipeliner-register-pressure-margin polly-2nd-level-default-tile-size
    polly-2nd-level-tile-sizes polly-analysis-computeout polly-code-generation polly-context polly-dce-precise-steps
    polly-debug-func polly-default-tile-size polly-delicm-max-ops polly-dependences-analysis-level
    polly-dependences-analysis-type polly-dependences-computeout polly-detect-profitability-min-per-loop-insts
    polly-dump-after-file polly-dump-before-file polly-ignore-func polly-import-jscop-dir polly-import-jscop-postfix
    polly-isl-arg polly-num-threads polly-omp-backend polly-only-func polly-only-region polly-opt-max-coefficient
    polly-opt-max-constant-term polly-opt-maximize-bands polly-opt-optimize-only polly-opt-outer-coincidence
    polly-opt-simplify-deps polly-optimizer polly-optree-max-ops polly-overflow-tracking
    polly-pattern-matching-nc-quotient polly-position polly-prevect-width polly-register-tile-sizes
    polly-register-tiling-default-tile-size polly-rtc-max-array-disjuncts polly-rtc-max-arrays-per-group
    polly-rtc-max-parameters polly-schedule-computeout polly-scheduling polly-scheduling-chunksize
    polly-stmt-granularity polly-target-1st-cache-level-associativity
    polly-target-1st-cache-level-default-associativity polly-target-1st-cache-level-default-size
    polly-target-1st-cache-level-size polly-target-2nd-cache-level-associativity
    polly-target-2nd-cache-level-default-associativity polly-target-2nd-cache-level-default-size
    polly-target-2nd-cache-level-size polly-target-first-level-cache-line-size polly-target-latency-vector-fma
    polly-target-throughput-vector-fma polly-target-vector-register-bitwidth polly-tc-dependences-computeout
    polly-tile-sizes polly-vectorizer polly-view-only post-index-use-threshold postra-sched-debugdiv
    postra-sched-debugmod ppc-aix-shared-lib-tls-model-opt-limit ppc-chaincommon-max-vars
    ppc-chaincommon-min-threshold ppc-dispprep-min-threshold ppc-dqprep-max-vars ppc-dsprep-max-vars
    ppc-fma-rp-factor ppc-formprep-max-vars ppc-gather-alias-max-depth ppc-global-merge-max-offset ppc-gpr-icmps
    ppc-max-crbit-spill-dist ppc-max-strings-pooled ppc-min-bit-test-cmps ppc-min-jump-table-entries
    ppc-min-strings-before-pool ppc-preinc-prep-max-vars ppc-set-dscr pragma-unroll-and-jam-threshold
    pragma-unroll-full-max-iterations pragma-unroll-threshold pragma-vectorize-scev-check-threshold pre-RA-sched
    precent-mismatch-for-staleness-error predictable-branch-threshold prefer-predicate-over-epilogue
    prefetch-distance prefetch-hints-file preinline-threshold print-after print-after-pass-number
    print-at-pass-number print-before print-before-pass-number print-bfi-func-name print-bpi-func-name
    print-changed-diff-path print-changed-dot-path print-on-crash-path print-region-style print-regmask-num-regs
    procres-cost-lim profcheck-default-function-entry-count profcheck-default-select-false-weight
    profcheck-default-select-true-weight profile-context-root profile-correlate profile-likely-prob
    profile-summary-cutoff-cold profile-summary-cutoff-hot profile-summary-huge-working-set-size-threshold
    profile-summary-large-working-set-size-threshold profile-symbol-list-cutoff
    promote-alloca-vector-loop-user-weight propeller-infer-threshold rdf-bb-limit rdf-liveness-max-rec
    recurrence-chain-limit recursive-inline-max-stacksize regalloc regalloc-cheap-remat-weight regalloc-copy-weight
    regalloc-csr-first-time-cost regalloc-enable-advisor regalloc-enable-priority-advisor
    regalloc-evict-interactive-channel-base regalloc-eviction-max-interference-cutoff
    regalloc-expensive-remat-weight regalloc-load-weight regalloc-model regalloc-priority-interactive-channel-base
    regalloc-priority-model regalloc-priority-training-log regalloc-store-weight regalloc-training-log
    rename-exclude-alias-prefixes rename-exclude-function-prefixes rename-exclude-global-prefixes
    rename-exclude-struct-prefixes replexitval reroll-num-tolerated-failed-matches reserve-regs-for-regalloc
    rewrite-map-file rewrite-phi-limit riscv-force-machine-combiner-strategy riscv-load-store-scan-limit
    riscv-lower-ext-max-web-size riscv-lower-fp-repeated-divisors riscv-lower-fpimm-cost riscv-max-build-ints-cost
    riscv-min-jump-table-entries riscv-rvv-regalloc riscv-v-fixed-length-vector-lmul-max riscv-v-min-trip-count
    riscv-v-register-bit-width-lmul riscv-v-slp-max-vf riscv-v-vector-bits-max riscv-v-vector-bits-min
    riscv-zilsd-max-reschedule-distance riscvo0prelegalizercombiner-disable-rule
    riscvo0prelegalizercombiner-only-enable-rule riscvpostlegalizercombiner-disable-rule
    riscvpostlegalizercombiner-only-enable-rule riscvprelegalizercombiner-disable-rule
    riscvprelegalizercombiner-only-enable-rule rng-seed rotation-max-header-size runtime-check-per-loop-load-elim
    runtime-mem-idiom-threshold runtime-memory-check-threshold salvage-stale-profile-max-callsites
    sample-profile-check-record-coverage sample-profile-check-sample-coverage sample-profile-cold-inline-threshold
    sample-profile-file sample-profile-hot-inline-threshold sample-profile-icp-max-prom
    sample-profile-icp-relative-hotness sample-profile-icp-relative-hotness-skip sample-profile-inline-growth-limit
    sample-profile-inline-limit-max sample-profile-inline-limit-min sample-profile-inline-replay
    sample-profile-inline-replay-fallback sample-profile-inline-replay-format sample-profile-inline-replay-scope
    sample-profile-max-propagate-iterations sample-profile-profi-cost-block-dec
    sample-profile-profi-cost-block-entry-dec sample-profile-profi-cost-block-entry-inc
    sample-profile-profi-cost-block-inc sample-profile-profi-cost-block-unknown-inc
    sample-profile-profi-cost-block-zero-inc sample-profile-remapping-file sampled-instr-burst-duration
    sampled-instr-period sanitizer-coverage-level sanitizer-coverage-stack-depth-callback-min sbvec-allow-files
    sbvec-collect-seeds sbvec-cost-threshold sbvec-passes sbvec-seed-bundle-size-limit sbvec-seed-groups-limit
    sbvec-stop-at sbvec-stop-bndl sbvec-vec-reg-bits scalable-vectorization scalar-evolution-huge-expr-threshold
    scalar-evolution-max-add-rec-size scalar-evolution-max-arith-depth scalar-evolution-max-cast-depth
    scalar-evolution-max-constant-evolving-depth scalar-evolution-max-loop-guard-collection-depth
    scalar-evolution-max-scc-analysis-depth scalar-evolution-max-scev-compare-depth
    scalar-evolution-max-scev-operations-implication-depth scalar-evolution-max-value-compare-depth
    scalarize-min-bits scev-addops-inline-threshold scev-cheap-expansion-budget scev-mulops-inline-threshold
    scev-range-iter-threshold sched-avg-ipc sched-high-latency-cycles select-opti-loop-cycle-gain-threshold
    select-opti-loop-gradient-gain-threshold select-opti-loop-relative-gain-threshold sgpr-regalloc
    shrink-frame-limit simple-loop-unswitch-inject-invariant-condition-hotness-threshold
    simple-loop-unswitch-memoryssa-threshold simplifycfg-branch-fold-common-dest-vector-multiplier
    simplifycfg-branch-fold-threshold simplifycfg-hoist-common-skip-limit simplifycfg-max-small-block-size
    sink-freq-percent-threshold slp-max-look-ahead-depth slp-max-reg-size slp-max-root-look-ahead-depth
    slp-max-store-lookup slp-max-stride slp-max-vf slp-min-reg-size slp-min-strided-loads slp-min-tree-size
    slp-recursion-max-depth slp-schedule-budget slp-threshold small-loop-cost sparc-bpcc-offset-bits
    sparc-bpr-offset-bits spec-exec-max-not-hoisted spec-exec-max-speculation-cost
    speculative-counter-promotion-max-exiting spill-func-threshold spill-func-threshold-Os spirv-ext
    spirvprelegalizercombiner-disable-rule spirvprelegalizercombiner-only-enable-rule split-spill-mode
    split-threshold-for-reg-with-hint spp-counted-loop-trip-width spp-rematerialization-threshold ssc-dce-limit
    stack-safety-max-iterations stack-tagging-merge-init-scan-limit stack-tagging-merge-init-size-limit
    stack-tagging-record-stack-history stack-tagging-unchecked-ld-st stackmap-version start-after start-before
    static-data-default-hotness static-func-strip-dirname-prefix static-likely-prob stop-after stop-before
    stress-regalloc strncmp-inline-threshold summary-file sve-gather-overhead sve-scatter-overhead sve-tail-folding
    sve-tail-folding-insn-threshold sve-vscale-for-tuning switch-peel-threshold t2-reduce-limit t2-reduce-limit2
    t2-reduce-limit3 tail-dup-indirect-size tail-dup-limit tail-dup-placement-aggressive-threshold
    tail-dup-placement-penalty tail-dup-placement-threshold tail-dup-pred-size tail-dup-profile-percent-threshold
    tail-dup-size tail-dup-succ-size tail-merge-size tail-merge-threshold tail-predication target-abi
    temporal-reuse-threshold thinlto-move-symbols thinlto-workload-def threads tiny-trip-count-interleave-threshold
    training-log triangle-chain-count two-entry-phi-node-folding-threshold undef-reg-clearance
    unlikely-branch-weight unroll-and-jam-count unroll-and-jam-threshold unroll-count unroll-force-peel-count
    unroll-full-max-count unroll-max-count unroll-max-iteration-count-to-analyze unroll-max-percent-threshold-boost
    unroll-max-upperbound unroll-optsize-threshold unroll-partial-threshold unroll-peel-count unroll-peel-max-count
    unroll-threshold unroll-threshold-aggressive unroll-threshold-default unswitch-num-initial-unscaled-candidates
    unswitch-parent-blocks-div unswitch-siblings-toplevel-div unswitch-threshold use-ctx-profile
    use-unknown-locations vector-combine-max-scan-instrs vector-library vectorize-memory-check-threshold
    vectorize-num-stores-pred vectorize-scev-check-threshold vectorizer-min-trip-count verify-pseudo-probe-funcs
    vgpr-regalloc view-bfi-func-name view-block-freq-propagation-dags view-block-layout-with-bfi
    view-hot-freq-percent view-machine-block-freq-propagation-dags vliw-misched-reg-pressure vp-counters-per-site
    wholeprogramdevirt-branch-funnel-threshold wholeprogramdevirt-check wholeprogramdevirt-cutoff
    wholeprogramdevirt-read-summary wholeprogramdevirt-skip wholeprogramdevirt-summary-action
    wholeprogramdevirt-write-summary window-diff-limit window-ii-coeff window-ii-limit window-region-limit
    window-sched window-search-num window-search-ratio wwm-regalloc x86-align-branch x86-align-branch-boundary
    x86-asm-syntax x86-br-merging-base-cost x86-br-merging-ccmp-bias x86-br-merging-likely-bias
    x86-br-merging-unlikely-bias x86-cmov-converter-threshold x86-experimental-pref-innermost-loop-alignment
    x86-lvi-load-opt-plugin x86-pad-max-prefix-size x86-sfb-inspection-limit x86-wineh-unwindv2-force-mode
    x86-wineh-unwindv2-max-unwind-codes x86prelegalizercombiner-disable-rule
    x86prelegalizercombiner-only-enable-rule xcore-max-threads
    """
)

# Versions disagree on whether the next word is the value of these.
DIFFERS = word_set(
    """
    lowertypetests-drop-type-tests use-dereferenceable-at-point-semantics
    """
)

# Options whose value may be any text. Others take a number, a truth value or one of a few words.
TEXT = word_set(
    """
    W aarch64-stack-hazard-size aarch64o0prelegalizercombiner-disable-rule
    aarch64o0prelegalizercombiner-only-enable-rule aarch64postlegalizercombiner-disable-rule
    aarch64postlegalizercombiner-only-enable-rule aarch64postlegalizerlowering-disable-rule
    aarch64postlegalizerlowering-only-enable-rule aarch64prelegalizercombiner-disable-rule
    aarch64prelegalizercombiner-only-enable-rule alloc-token-prefix amdgpu-module-splitting-log-dir
    amdgpu-module-splitting-print-module-dotcfg amdgpu-module-splitting-print-partition-summaries
    amdgpu-sched-strategy amdgpu-use-native amdgpupostlegalizercombiner-disable-rule
    amdgpupostlegalizercombiner-only-enable-rule amdgpuprelegalizercombiner-disable-rule
    amdgpuprelegalizercombiner-only-enable-rule amdgpuregbankcombiner-disable-rule
    amdgpuregbankcombiner-only-enable-rule as-secure-log-file asan-debug-func asan-memory-access-callback-prefix
    attributor-depgraph-dot-filename-prefix bbsections-cold-text-prefix break-anti-dependencies
    callgraph-dot-filename-prefix cfg-dot-filename-prefix cfg-func-name cgscc-inline-replay check-functions-filter
    chr-function-list chr-module-list codegen-data-use-path cphoistfn crash-diagnostics-dir cs-profile-path
    ctx-prof-skip-callsite-instr dataflow-log debug-counter debug-only default-gcov-version dfsan-abilist
    dfsan-combine-taint-lookup-table dot-cfg-after-color dot-cfg-before-color dot-cfg-common-color dot-cfg-dir
    dot-cfg-mssa dot-ddg-filename-prefix emscripten-cxx-exceptions-allowed exec-on-ir-change executor
    expandvp-override-evl-transform expandvp-override-mask-transform extract-blocks-file filter filter-passes
    filter-print-funcs force-attribute force-remove-attribute forceattrs-csv-path fs-profile-file fs-remapping-file
    hotcoldsplit-cold-section-name hwasan-memory-access-callback-prefix icp-ignored-base-types info-output-file
    inliner-interactive-channel-base instrument-cold-function-only-path internalize-public-api-file
    internalize-public-api-list ir-dump-directory ir2vec-vocab-path lowertypetests-read-summary
    lowertypetests-write-summary lto-aix-system-assembler lto-pass-remarks-filter lto-pass-remarks-format
    lto-pass-remarks-hotness-threshold lto-pass-remarks-output lto-stats-file mbb-profile-dump
    mcfg-dot-filename-prefix mcfg-func-name memprof-debug-func memprof-dot-file-path-prefix memprof-import-summary
    memprof-memory-access-callback-prefix memprof-runtime-default-options mips32-function-mask
    mipspostlegalizercombiner-disable-rule mipspostlegalizercombiner-only-enable-rule mir2vec-vocab-path
    ml-inliner-ir2native-model ml-inliner-ir2vec-vocab-file ml-inliner-model-selector
    ml-inliner-model-under-training ml-inliner-output-spec-override ml-inliner-trained-model-feed-prefix
    module-summary-dot-file ms-secure-hotpatch-functions-file ms-secure-hotpatch-functions-list
    nsan-shadow-type-mapping nvptx-lower-global-ctor-dtor-id nvvm-reflect-add opt-bisect-print-ir-path opt-disable
    orderfile-write-mapping pass-remarks pass-remarks-analysis pass-remarks-missed pgo-test-profile-file
    pgo-test-profile-remapping-file pgo-trace-func-hash polly-context polly-debug-func polly-dump-after-file
    polly-dump-before-file polly-ignore-func polly-import-jscop-dir polly-import-jscop-postfix polly-isl-arg
    polly-only-func polly-only-region polly-opt-maximize-bands polly-opt-optimize-only polly-opt-outer-coincidence
    polly-opt-simplify-deps polly-view-only prefetch-hints-file print-after print-before print-bfi-func-name
    print-bpi-func-name print-changed-diff-path print-changed-dot-path print-on-crash-path profile-context-root
    regalloc-evict-interactive-channel-base regalloc-model regalloc-priority-interactive-channel-base
    regalloc-priority-model regalloc-priority-training-log regalloc-training-log rename-exclude-alias-prefixes
    rename-exclude-function-prefixes rename-exclude-global-prefixes rename-exclude-struct-prefixes
    reserve-regs-for-regalloc rewrite-map-file riscvo0prelegalizercombiner-disable-rule
    riscvo0prelegalizercombiner-only-enable-rule riscvpostlegalizercombiner-disable-rule
    riscvpostlegalizercombiner-only-enable-rule riscvprelegalizercombiner-disable-rule
    riscvprelegalizercombiner-only-enable-rule sample-profile-file sample-profile-inline-replay
    sample-profile-remapping-file sbvec-allow-files sbvec-collect-seeds sbvec-passes spirv-ext
    spirvprelegalizercombiner-disable-rule spirvprelegalizercombiner-only-enable-rule spv-allow-unknown-intrinsics
    start-after start-before stop-after stop-before summary-file target-abi thinlto-workload-def training-log
    use-ctx-profile verify-pseudo-probe-funcs view-bfi-func-name wholeprogramdevirt-read-summary
    wholeprogramdevirt-skip wholeprogramdevirt-write-summary x86-align-branch x86-lvi-load-opt-plugin
    x86prelegalizercombiner-disable-rule x86prelegalizercombiner-only-enable-rule
    """
)
