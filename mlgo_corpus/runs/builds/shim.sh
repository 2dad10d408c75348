# Stands in for a compiler, ar or a linker while `mlgo-corpus build` runs a build: the lines above this one say for
# which (_mlgo_compile runs it, _mlgo_become turns into it, _mlgo_driver is c, c++, ar or ld, ld.lld, ...), and where
# compiles are recorded.
#
# What compiles to an object gets one more option, is waited for, and leaves a record (its format is told in
# formats/commands/shimrecord.py) with a copy of the object beside it. All else becomes the compiler at once: links and
# archives, which leave a record of their command, preprocessing, questions, and what configure and CMake compile to
# find out about the compiler.
#
# Every name begins with _mlgo_, for an exported variable of the same name would reach the compiler. Before the
# compiler has run no line may start a program (parameter files need one): it would cost more than all the rest.

_mlgo_skip= _mlgo_language= _mlgo_output= _mlgo_only= _mlgo_sources=0 _mlgo_bitcode=0 _mlgo_lto= _mlgo_embeds=
_mlgo_plain= _mlgo_check= _mlgo_end= _mlgo_record= _mlgo_copies=0 _mlgo_signal= _mlgo_links= _mlgo_temps=
_mlgo_files=0 _mlgo_folder=$PWD

# Look at one word of the command line.
_mlgo_word() {
    if [ -n "$_mlgo_skip" ]; then
        case $_mlgo_skip$1 in
            o*) _mlgo_output=$1 ;;
            x*) _mlgo_set_language "$1" ;;
            w*) _mlgo_folder=$1 ;;
            X-fembed-bitcode*) _mlgo_embeds=1 ;;
            X-emit-obj) ;;
            X-emit-* | X-fsyntax-only | X-ast-* | X-E | X-S | X-Eonly | X-verify-pch) _mlgo_plain=1 ;;
        esac
        _mlgo_skip=
        return 0
    fi
    case $_mlgo_end$1 in
        -o | --output) _mlgo_skip=o ;;
        -x | --language) _mlgo_skip=x ;;
        -Xclang) _mlgo_skip=X ;;
        -working-directory) _mlgo_skip=w ;;
        -I | -D | -U | -L | -l | -F | -T | -u | -z | -e | -A | -B | -G | -include | -include-pch | -imacros | -isystem \
            | -isystem-after | -cxx-isystem | -iquote | -idirafter | -iprefix | -iwithprefix | -iwithprefixbefore \
            | -isysroot | -iframework | -ivfsoverlay | -MF | -MT | -MQ | -MJ | -Xlinker | -Xassembler | -Xpreprocessor \
            | -Xanalyzer | -Xopenmp-target* | -Xarch_* | -mllvm | -mmlir | -target | -arch | -framework | -aux-info \
            | -dumpbase | -dumpdir | -rpath | -install_name | -current_version | -compatibility_version | -undefined \
            | -bundle_loader | -resource-dir | --param | --sysroot | --include | --define-macro \
            | --undefine-macro | --include-directory | --library-directory | --serialize-diagnostics \
            | -serialize-diagnostics | --config | --imacros | -iwithsysroot | -iframeworkwithsysroot | -imultilib \
            | -stdlib++-isystem | -vfsoverlay | --vfsoverlay | -dependency-file | -fdebug-compilation-dir \
            | -ftrapv-handler | -filelist | -mthread-model) _mlgo_skip=- ;;
        -c | --compile) _mlgo_only=1 ;;
        --output=*) _mlgo_output=${1#*=} ;;
        --language=*) _mlgo_set_language "${1#*=}" ;;
        -x?*) _mlgo_set_language "${1#-x}" ;;
        -working-directory=*) _mlgo_folder=${1#*=} ;;
        -object* | -objcmt*) ;;
        -o?*) _mlgo_output=${1#-o} ;;
        -E | -S | -M | -MM | -fsyntax-only | --syntax-only | '-###' | --analyze | -emit-* | -verify-pch | --precompile \
            | -extract-api | --preprocess | --assemble | --dependencies | --user-dependencies) _mlgo_plain=1 ;;
        -fno-lto) _mlgo_lto= ;;
        -flto | -flto=*) _mlgo_lto=1 ;;
        -fembed-bitcode=off) _mlgo_embeds= ;;
        -fembed-bitcode*) _mlgo_embeds=1 ;;
        -save-temps* | --save-temps*) _mlgo_temps=1 ;;
        --) _mlgo_end=+ ;;
        -?*) ;;
        *) _mlgo_input "$1" ;;
    esac
}

_mlgo_set_language() {
    case $1 in
        none) _mlgo_language= ;;
        assembler*) _mlgo_language=assembly ;;
        *-header | *-header-unit | cuda* | hip*) _mlgo_language=other ;; # none makes an object, or more than one
        *) _mlgo_language=code ;;
    esac
}

_mlgo_input() {
    case ${_mlgo_language:-.}$1 in
        other*) _mlgo_plain=1 ;;
        assembly* | .*.[sS] | .*.sx | .*.asm) _mlgo_source "$1" ;;
        code* | .*.[cCiMm] | .*.cc | .*.cp | .*.cxx | .*.cpp | .*.c++ | .*.C++ | .*.CC | .*.CPP | .*.CXX | .*.ii \
            | .*.mm | .*.mi | .*.mii | .*.cl | .*.cppm | .*.ccm | .*.cxxm | .*.c++m | .*.iim | .*.pcm | .*.ixx \
            | .*.ll | .*.bc)
            _mlgo_bitcode=1
            _mlgo_source "$1"
            ;;
        .*.[hH] | .*.hh | .*.hpp | .*.hxx | .*.h++ | .*.inc | .*.[fF] | .*.[fF][0-9][0-9] | .*.cu | .*.hip) ;;
        .?*) _mlgo_links=1 ;; # objects have any ending: .o, .lo, .os (SCons), .pico (BSD)
    esac
}

# Count a source; with a record open, enter it there.
_mlgo_source() {
    _mlgo_sources=$((_mlgo_sources + 1))
    if [ -n "$_mlgo_record" ]; then
        printf 'source\0%s\0' "$1"
        if [ -n "$_mlgo_only" ] && [ -z "$_mlgo_named" ]; then
            _mlgo_name=${1##*/}
            _mlgo_keep "${_mlgo_name%.*}.o"
        fi
        return 0
    fi
    [ -z "$_mlgo_keep_checks" ] || return 0
    case $PWD/:$1 in
        *:conftest[.0-9]* | *:*/conftest[.0-9]* | */CMakeFiles/CMakeScratch/* | */CMakeFiles/CMakeTmp/* \
            | */CMakeFiles/_CMakeLTOTest-*/* | */CompilerId*/:CMake* | */meson-private/* | */.sconf_temp/* | */.conf_check_*/* | */ffconf.*/* | */config-temp/* \
            | */config.tests/*) _mlgo_check=1 ;;
    esac
}

# Copy an object: the build may delete or change it. A link would not do: strip and objcopy write into the file.
_mlgo_keep() {
    _mlgo_copies=$((_mlgo_copies + 1))
    case $1 in
        /*) _mlgo_object=$1 ;;
        *) _mlgo_object=$_mlgo_folder/$1 ;;
    esac
    printf 'object\0%s\0' "$1"
    if [ "$_mlgo_status" = 0 ] && [ -f "$_mlgo_object" ] &&
        $_mlgo_copy -- "$_mlgo_object" "$_mlgo_record.$_mlgo_copies"; then
        printf '%s\0' "$_mlgo_copies"
    else
        printf '\0'
    fi
}

# Look at all words, also of parameter files.
_mlgo_words() {
    for _mlgo_each; do
        case $_mlgo_skip$_mlgo_each in
            @?*) _mlgo_file "$_mlgo_each" ;;
            *) _mlgo_word "$_mlgo_each" ;;
        esac
    done
}

# Look at the words of a parameter file, which may name others, even itself. They are split by xargs, which is exact but
# fails at a backslash in quotes; then at spaces, which is enough to see what is compiled: the whole command is read from
# the file itself. A line may end in CR LF.
_mlgo_file() {
    [ -f "${1#@}" ] && [ "$_mlgo_files" -lt 20 ] || return 0
    if [ -n "$_mlgo_record" ]; then
        _mlgo_copies=$((_mlgo_copies + 1))
        $_mlgo_copy -- "${1#@}" "$_mlgo_record.$_mlgo_copies"
        printf 'words\0%s\0%s\0' "$1" "$_mlgo_copies"
    fi
    _mlgo_split=$(tr '\r' ' ' <"${1#@}" | xargs printf '%s\n' 2>/dev/null) ||
        _mlgo_split=$(tr -s ' \t\r' '\n\n\n' <"${1#@}" | sed "s/^[\"']//; s/[\"']\$//")
    _mlgo_files=$((_mlgo_files + 1))
    while IFS= read -r _mlgo_inner; do
        [ -z "$_mlgo_inner" ] || _mlgo_words "$_mlgo_inner"
    done <<_mlgo_end_of_file
$_mlgo_split
_mlgo_end_of_file
}

# Compile with bitcode what was compiled with -save-temps. That makes two compilers of one, and both would embed: the
# bitcode would have bitcode in it. Where a parameter file has the option, or stdin was the source, the object stays
# without.
_mlgo_compile_again() {
    for _mlgo_each; do
        shift
        case $_mlgo_each in
            -) return 0 ;;
            -save-temps* | --save-temps*) _mlgo_temps= ;;
            *) set -- "$@" "$_mlgo_each" ;;
        esac
    done
    [ -n "$_mlgo_temps" ] || _mlgo_compile -Xclang -fembed-bitcode=all "$@" </dev/null >/dev/null 2>&1
}

# Open a record of its own for this command; fail if the build is over.
_mlgo_open_record() {
    _mlgo_record=$_mlgo_run/$$
    set -C
    until { true >"$_mlgo_record"; }; do # a process of another container, or a number that comes again
        [ -d "$_mlgo_run" ] && [ -e "$_mlgo_record" ] || return 1
        _mlgo_record=$_mlgo_record-
    done
    set +C
}

# Write into the record what begins it, then its parameter files and sources.
_mlgo_tell() {
    _mlgo_what=$1 _mlgo_status=$2
    shift 2
    printf '%s\0' mlgo-compile-1 "$_mlgo_driver" "$_mlgo_what" "$_mlgo_status" "$_mlgo_folder" "$#" "$@"
    _mlgo_skip= _mlgo_language= _mlgo_end= _mlgo_files=0
    _mlgo_words "$@"
}

# The compiler does not meet the shims: ccache's links, and clang for some targets, look for another one on PATH.
_mlgo_path=:${PATH-}:
_mlgo_rest=${_mlgo_path#*:"$_mlgo_shims":}
if [ "$_mlgo_rest" != "$_mlgo_path" ]; then
    _mlgo_path=${_mlgo_path%%:"$_mlgo_shims":*}:$_mlgo_rest
    _mlgo_path=${_mlgo_path#:}
    PATH=${_mlgo_path%:}
fi

[ -d "$_mlgo_run" ] || _mlgo_become "$@"
case $_mlgo_driver in
    ar | ld*) _mlgo_links=1 ;;
    *) _mlgo_words "$@" ;;
esac
if [ -n "$_mlgo_plain" ] || [ "$_mlgo_sources" = 0 ]; then
    case $_mlgo_keep_checks$PWD in
        /*/CMakeFiles/CMakeScratch/* | /*/CMakeFiles/CMakeTmp | /*/CMakeFiles/CMakeTmp/* \
            | /*/CMakeFiles/_CMakeLTOTest-*) _mlgo_links= ;; # a check's programs and archives are none of the project
    esac
    if [ -z "$_mlgo_plain$_mlgo_only" ] && [ -n "$_mlgo_links" ]; then
        (
            exec </dev/null >/dev/null 2>&1
            _mlgo_open_record && { _mlgo_tell program 0 "$@" && printf 'end\0'; } >"$_mlgo_record"
        )
    fi
    _mlgo_become "$@"
fi
if [ -z "$_mlgo_keep_checks" ] && [ "$_mlgo_output" = /dev/null ]; then
    _mlgo_check=1
fi
[ "$_mlgo_output" = - ] && _mlgo_become "$@" # an object on stdout, which nobody could copy
if [ -n "$_mlgo_check" ]; then
    { printf . >>"$_mlgo_run/checks"; } 2>/dev/null
    _mlgo_become "$@"
fi

# The shell waits for the compiler whatever signal it gets itself, so that none is left running alone.
trap '_mlgo_signal=HUP' HUP
trap '_mlgo_signal=INT' INT
trap '_mlgo_signal=TERM' TERM
# Bitcode of an LTO build is in the object as it is, and a compiler told to embed it twice crashes.
if [ "$_mlgo_bitcode" = 0 ] || [ -n "$_mlgo_lto$_mlgo_embeds" ]; then
    _mlgo_compile "$@"
elif [ -n "$_mlgo_temps" ]; then
    _mlgo_compile "$@" && { _mlgo_compile_again "$@" || _mlgo_compile "$@"; }
else
    _mlgo_compile -Xclang -fembed-bitcode=all "$@"
fi
_mlgo_status=$?

exec </dev/null >/dev/null 2>&1
_mlgo_open_record || exit "$_mlgo_status"
{
    _mlgo_named=$_mlgo_output
    [ -n "$_mlgo_only" ] && _mlgo_what=object || _mlgo_what=program
    _mlgo_tell "$_mlgo_what" "$_mlgo_status" "$@"
    [ -z "$_mlgo_only" ] && _mlgo_named=${_mlgo_named:-a.out}
    [ -z "$_mlgo_named" ] || _mlgo_keep "$_mlgo_named"
    printf 'end\0'
} >"$_mlgo_record"
if [ -n "$_mlgo_signal" ]; then
    trap - HUP INT TERM
    kill -s "$_mlgo_signal" $$
fi
exit "$_mlgo_status"
