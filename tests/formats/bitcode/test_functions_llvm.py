"""Functions of bitcode against LLVM: what it prints, by `irtext`, is the oracle for all that is read."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from mlgo_corpus.formats.bitcode.functions import DefinedFunction, count_functions, read_functions
from mlgo_corpus.formats.ir.text import ENCODING, IDENTIFIER, Function, body_digest, opcodes, parse_module
from tests.conftest import Llvm, run_checked
from tests.formats.bitcode.test_functions import real

pytestmark = pytest.mark.whole

Compile = Callable[..., Path]

_TYPE = re.compile(rf"^%({IDENTIFIER}) = type (.*)$", re.MULTILINE)
_LOCAL = re.compile(rf"%({IDENTIFIER})")
_FIRST_LABEL = re.compile(rf"\A{IDENTIFIER}:.*\n")
_CALL = re.compile(r"\b(?:call|invoke|callbr)\b")
_NESTED = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_ATTRIBUTE = re.compile(
    r" (?:noundef|nonnull|signext|zeroext|noalias|nocapture|returned|readonly|writeonly|readnone|immarg|inreg|nest"
    r"|nofree|writable|dead_on_unwind|dead_on_return|allocptr|allocalign|swiftself|swifterror|noext|align \d+"
    r"|(?:dereferenceable|dereferenceable_or_null|captures|nofpclass|align|byval|sret|elementtype|range|initializes|byref"
    rf"|inalloca|preallocated|alignstack|dead_on_return){_NESTED})(?=[ ,)])"
)


def as_hashed(function: Function, types: dict[str, str]) -> Function:
    """Change a function's text where the docstring of `functionhash` says that the rule is another.

    Named structs become what is in them, attributes of calls' arguments and the first block's name go.
    """

    def layout(found: re.Match[str]) -> str:
        return f"<{_LOCAL.sub(layout, types[found[1]])}>" if found[1] in types else found[0]

    lines = []
    for line in _LOCAL.sub(layout, _FIRST_LABEL.sub("", function.body)).split("\n"):
        before = ""
        after = line
        while _CALL.search(after) and after != before:
            before, after = after, _ATTRIBUTE.sub("", after)
        lines.append(after)
    return dataclasses.replace(function, body="\n".join(lines))


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    found: DefinedFunction
    as_hashed: bytes
    as_text: bytes


def compare(llvm: Llvm, data: bytes, folder: Path) -> list[Compared]:
    """Read a module's functions, and check all but the hashes against what LLVM prints."""
    path = folder / "compared.bc"
    path.write_bytes(data)
    run_checked(llvm.dis, path, "-o", path.with_suffix(".ll"))
    module = parse_module(path.with_suffix(".ll").read_text(ENCODING))
    types = dict(_TYPE.findall(module.preamble))
    functions = read_functions(data)
    assert [(each.name, each.linkage, each.instructions) for each in functions] == [
        (each.name, each.linkage, len(opcodes(each.body))) for each in module.functions
    ]
    # Without a target LLVM writes no symbol table; in it an ifunc is like a function.
    count = sum(each.linkage != "available_externally" for each in functions)
    count += len(re.findall(r"^@.* ifunc ", module.preamble, re.MULTILINE))
    assert count_functions(data) == (count if module.triple else None)
    return [
        Compared(found, body_digest(as_hashed(text, types)), body_digest(text))
        for found, text in zip(functions, module.functions, strict=True)
    ]


def check_partition(compared: Iterable[Compared]) -> int:
    """Check that the same functions are taken for equal; return how many different ones there are."""
    by_hash, by_text = defaultdict(set), defaultdict(set)
    for each in compared:
        by_hash[each.found.body_hash].add(each.as_hashed)
        by_text[each.as_hashed].add(each.found.body_hash)
    assert {len(texts) for texts in by_hash.values()} == {1}
    assert {len(hashes) for hashes in by_text.values()} == {1}
    return len(by_hash)


@pytest.mark.parametrize(("name", "version"), [("lua-clang19", 19), ("lua-clang22", 22), ("zlib-clang19", 19)])
def test_real_libraries(request: pytest.FixtureRequest, tmp_path: Path, name: str, version: int) -> None:
    llvm: Llvm = request.getfixturevalue(f"llvm{version}")
    compared = [each for data in real(name).values() for each in compare(llvm, data, tmp_path)]
    different = check_partition(compared)
    # In C of one project the exceptions do not occur: the text as it stands tells the same functions apart.
    assert different == len({each.as_text for each in compared}) < len(compared)


SHARED = r"""
#include <cstdarg>
namespace {} extern "C" int printf(char const *, ...);
struct Bits { unsigned a : 3, b : 7; int c : 12; };
typedef float v4 __attribute__((vector_size(16)));
typedef int i4 __attribute__((vector_size(16)));
struct P { long a, b, c, d; };
struct Error { virtual ~Error() {} virtual int code() const { return 1; } int x; };
struct Other : virtual Error { int code() const override { return x + 2; } int y; };
struct Noisy { Noisy(); ~Noisy(); int v; };
extern int external[10];
inline char const *const names[] = {"a", "bc", nullptr};
template <class T> T add(T a, T b) { return a + b; }
inline int atomics(int x, int *p, long *q) {
  int e = 3;
  __atomic_fetch_add(p, x, 5); __atomic_store_n(q, 4, 3); __atomic_compare_exchange_n(p, &e, x, true, 4, 2);
  __atomic_thread_fence(2); __atomic_signal_fence(5); __atomic_fetch_nand(p, 3, 0);
  return __atomic_load_n(p, 2) + __atomic_exchange_n(p, 1, 4) + e; }
inline v4 vec(v4 a, v4 b, i4 m) {
  v4 c = __builtin_shufflevector(a, b, 0, 5, 2, 7); c[1] = a[2] * b[m[0]]; return c + a * b - (v4){1, 2, 3, 4}; }
inline i4 least(i4 a, i4 b) { return a < b ? a : b; }
inline int bits(Bits &b) { b.a = 3; b.b += b.a; b.c = -1; return b.c * b.b; }
inline int varied(int n, ...) { va_list l; va_start(l, n); int s = 0; for (int i = 0; i < n; i++) s += va_arg(l, int);
  P p = va_arg(l, P); va_end(l); return s + (int)p.b; }
inline int vary(char const *s) { P p{1, 2, 3, 4}; return printf("%s %d %f", s, 3, 2.5) + varied(1, 2, p); }
inline int jump(unsigned char const *p) { void *t[] = {&&a, &&b, &&c}; int x = 0; goto *t[*p++];
  a: x += 1; goto *t[*p++]; b: x *= 3; goto *t[*p++]; c: return x; }
inline int assembly(int x) { int y; asm volatile("addl %1,%0\n\tnop" : "=r"(y) : "r"(x), "0"(3) : "cc", "memory");
  asm goto("testl %0,%0; jne %l1" ::"r"(x)::hit); return y; hit: return 1; }
inline int thrower(int x) { Noisy n; try { if (x > 3) throw Error(); if (x < 0) throw 5; return n.v; }
  catch (Error const &e) { return e.code(); } catch (int i) { return i; } catch (...) { throw; } }
inline int never(int x) noexcept { Noisy n; thrower(x); return 2; }
inline int choose(int x) { switch (x) { case 1: return 5; case 7: return 8; case -100: return 2; default: return 0; } }
inline long choose64(unsigned long x) {
  switch (x) { case 1ul << 63: return 5; case ~0ul: return 3; default: return 0; } }
inline __int128 wide(__int128 x) { return x * (((__int128)1) << 100) + 5; }
inline long double far(long double x) { return x * 1.5L + 0x1p-70L; }
inline double floats(double x, float y) { return x == x ? x + 0.1 + -y * 1.5f : -0.0; }
inline bool order(double a, double b, int *p, int *q) { return (a < b) ^ (a != b) ^ (p < q) ^ !(a >= b); }
inline int templates() { return add(1, 2) + (int)add(1.0, 2.0) + (int)add(3L, 4L); }
inline Error *make(int k) { if (k) return new Other; return new Error; }
inline int member(Error *d, int (Error::*f)() const) { return (d->*f)(); }
inline int cast(Error *b) { if (auto *m = dynamic_cast<Other *>(b)) return m->y; return 0; }
inline int *address() { return &external[4]; }
inline char const *name(int i) { return names[i]; }
inline bool same() { return &external[2] == (int *)names; }
inline auto closure(int k) { return [k](int x) { return x + k; }; }
inline int closures() { return closure(1)(2) + closure(3)(4); }
inline thread_local int local = 4; inline int locals() { return ++local; }
inline int once(int *p) { static int first = thrower(4); return first + *p; }
inline int sized(int n) { volatile int a[n]; a[0] = n; return a[n - 1] + *(int *)__builtin_alloca(n); }
inline int builtins(unsigned x, int *p) { __builtin_assume(x > 1); p = (int *)__builtin_assume_aligned(p, 32); int r;
  if (__builtin_add_overflow((int)x, *p, &r)) return 0; __builtin_memcpy(p, p + 4, 16);
  return __builtin_popcount(x) + r; }
inline int loops(int n) { int s = 0; for (int i = 0; i < n; i++) { if (i % 3 == 0) continue; while (n--) s ^= n; }
  return s; }
inline _Complex double twice(_Complex double a, _Complex double b) { return a * b; }
inline int text(int i) { char buffer[] = "local string"; return buffer[i] + "tail\xff\x01"[i & 1]; }
inline void self(int n) { if (n) self(n - 1); }
int SUFFIX(use)(int k, unsigned char *p, int *q, long *r, v4 v, i4 m, Bits b, v4 *w, i4 *u) {
  *w = vec(v, v, m); *u = least(m, m); self(k);
  return atomics(k, q, r) + bits(b) + vary("x") + jump(p) + assembly(k) + never(k) + choose(k) + (int)choose64(k)
    + (int)wide(k) + (int)far(k) + (int)floats(k, k) + order(k, 2, q, q) + templates() + cast(make(k))
    + member(make(1), &Error::code) + *address() + name(k)[0] + same() + closures() + locals() + once(q) + sized(k)
    + builtins(k, q) + loops(k) + (int)__real__ twice(1, 2) + text(k); }
"""
BEFORE = """
template <class A, class B> struct Pair { A a; B b; }; struct Unused { int x[7]; char y; };
Pair<long, Unused> pairs[3] = {{5, {{1, 2}, 'x'}}}; int table[] = {9, 8, 7};
char const *words[] = {"some", "a", "words"};
int first(Pair<short, Pair<int, char>> *p, float f) { return p->b.a + (int)(f * 7.25f) + table[p->a]; }
[[gnu::cold]] __int128 other(__int128 a) { return a ^ 77; } void hook(void (*)(double, int, Unused)); long double z = 3;
"""

FLAGS = [("-O0",), ("-O2", "-Xclang", "-disable-llvm-passes"), ("-O2",), ("-Oz", "-fno-discard-value-names")]


def compiled(llvm: Llvm, compile_c: Compile, text: str, *flags: str) -> bytes:
    macro = "-DSUFFIX(x)=x##" + str(len(text))
    return compile_c(llvm, text, "-std=c++20", "-emit-llvm", "-w", macro, *flags, name="a.cpp").read_bytes()


def hashes(functions: Sequence[DefinedFunction]) -> dict[str, int]:
    return {each.name: each.body_hash for each in functions if each.linkage == "linkonce_odr"}


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_what_two_translation_units_share(
    llvm: Llvm, compile_c: Compile, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    plain = compiled(llvm, compile_c, SHARED, *flags)
    around = compiled(llvm, compile_c, BEFORE + SHARED, *flags, "-DNDEBUG")
    debugging = compiled(llvm, compile_c, BEFORE + SHARED, *flags, "-g", "-DX=2")
    modules = [compare(llvm, data, tmp_path) for data in (plain, around, debugging)]
    first, *others = (hashes([each.found for each in module]) for module in modules)
    if flags != FLAGS[2]:  # otherwise most are inlined
        assert len(first) > 20
    for other in others:
        assert first == {name: other[name] for name in first}
    different = check_partition(each for module in modules for each in module)
    assert different > len(first) / 2


COROUTINE = """
#include <coroutine>
struct G { struct promise_type { int v; G get_return_object() {
  return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
  std::suspend_always initial_suspend() { return {}; } std::suspend_always final_suspend() noexcept { return {}; }
  void return_void() {} void unhandled_exception() {} std::suspend_always yield_value(int x) { v = x; return {}; } };
  std::coroutine_handle<promise_type> h; };
G gen(int n) { for (int i = 0; i < n; i++) co_yield i * i; }
"""
FUNCLETS = """
struct N { N(); ~N(); int v; }; void may(int); struct E { int a; };
int f(int x) { N n; try { may(x); N m; may(2); } catch (E &e) { return e.a; } catch (int i) { return i; }
  catch (...) { may(3); throw; } return n.v; }
"""
STRICT = "double f(double a, double b) { return a * b + a / 3.0; } float g(float x) { return x < 1.0f ? -x : x; }"
SCALABLE = """
#include <arm_sve.h>
svfloat32_t f(svbool_t p, svfloat32_t a, svfloat32_t b) { return svadd_x(p, a, svmul_z(p, a, b)); }
"""
SPACES = "int f(__attribute__((address_space(3))) int *p, __attribute__((address_space(1))) int *q) { return *p + *q; }"
OTHERS = {
    "coroutine": (COROUTINE, "-std=c++20"),
    "windows": (FUNCLETS, "--target=x86_64-pc-windows-msvc", "-fexceptions", "-fcxx-exceptions"),
    "wasm": (FUNCLETS, "--target=wasm32", "-fwasm-exceptions", "-fexceptions", "-mllvm", "-wasm-enable-eh"),
    "strict": (STRICT, "-ffp-model=strict"),
    "scalable": (SCALABLE, "--target=aarch64-linux-gnu", "-march=armv8-a+sve", "-ffreestanding"),
    "spaces": (SPACES, "--target=amdgcn-amd-amdhsa", "-nogpulib"),
    "sanitised": (FUNCLETS, "-fsanitize=address,undefined"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_code(llvm: Llvm, compile_c: Compile, tmp_path: Path, case: str) -> None:
    text, *flags = OTHERS[case]
    compared = []
    for level in ("-O0", "-O2"):
        path = compile_c(llvm, text, "-w", "-emit-llvm", level, *flags, name="a.cpp")
        compared += compare(llvm, path.read_bytes(), tmp_path)
    check_partition(compared)


LINKAGES = """
__attribute__((gnu_inline)) extern inline int available(int x) { return x + 1; }
int use(int x) { return available(x); } static int hidden(int x) { return x * x; } inline int once() { return 4; }
__attribute__((weak)) int weak(int *p) { return hidden(*p) + once(); } template <class T> T both(T x) { return x; }
template int both(int); extern "C" int target() { return 3; } int other() __attribute__((alias("target")));
extern "C" void *resolver() { return 0; } int picked() __attribute__((ifunc("resolver"))); extern "C" int declared();
asm(".globl in_assembly\\nin_assembly: ret"); __attribute__((constructor)) static void early() { declared(); }
"""


def test_linkages(llvm: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    path = compile_c(llvm, LINKAGES, "-emit-llvm", "-O1", "-Xclang", "-disable-llvm-passes", name="a.cpp")
    found = {each.found.linkage for each in compare(llvm, path.read_bytes(), tmp_path)}
    assert found == {"external", "available_externally", "internal", "linkonce_odr", "weak", "weak_odr"}


def test_several_modules_in_one_file(llvm: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    cat = llvm.tool("llvm-cat")
    if not cat:
        pytest.skip(f"llvm-cat-{llvm.version} is not installed")
    paths = [
        compile_c(llvm, text, "-emit-llvm", "-w", *flags, name=f"{number}.cpp")
        for number, (text, *flags) in enumerate((OTHERS["strict"], (LINKAGES, "-O1"), OTHERS["sanitised"]))
    ]
    expected = [each for path in paths for each in read_functions(path.read_bytes())]
    for flags in ((), ("-b",)):
        run_checked(cat, *flags, *paths, "-o", tmp_path / "all.bc")
        data = (tmp_path / "all.bc").read_bytes()
        assert list(read_functions(data)) == expected
        assert count_functions(data) in (None, len(expected))
    # A module in two: the second has what vtables need.
    path = compile_c(llvm, SHARED, *SPLIT, name="split.cpp")
    functions = read_functions(path.read_bytes())
    assert count_functions(path.read_bytes()) == len(functions) > 40


SPLIT = (
    *("-std=c++20", "-w", "-DSUFFIX(x)=x", "-flto=thin", "-fsplit-lto-unit", "-fwhole-program-vtables"),
    *("-fvisibility=hidden", "-Xclang", "-disable-llvm-passes"),
)


# --- one change at a time

_BASE = r"""
%s = type { i32, %t, i8 }
%t = type { i64 }
%u = type { i32, %t, i8 }
@g = external global i32
@h = external global [4 x i8]
@a = external addrspace(1) global i32
declare i32 @callee(i32, ...)
declare i32 @llvm.smax.i32(i32, i32)
declare i32 @llvm.smin.i32(i32, i32)
declare double @llvm.experimental.constrained.sqrt.f64(double, metadata, metadata)
declare void @llvm.assume(i1)
declare i32 @__gxx_personality_v0(...)
define i32 @f(ptr %p, i32 %x, i64 %y, double %d, <4 x i32> %v) personality ptr @__gxx_personality_v0 {
entry:
  %add = add nsw i32 %x, 7
  %div = udiv exact i32 %add, 3
  %wide = zext nneg i32 %div to i64
  %gep = getelementptr inbounds %s, ptr %p, i64 %y, i32 1
  %load = load i32, ptr %gep, align 4
  store volatile i32 %load, ptr @g, align 4
  %cmp = icmp slt i32 %load, %x
  %fast = fadd nnan double %d, 2.500000e+00
  %max = call i32 @llvm.smax.i32(i32 %load, i32 %div)
  %call = tail call fastcc i32 (i32, ...) @callee(i32 %max, i64 %wide, double %fast)
  %both = select i1 %cmp, ptr getelementptr inbounds ([4 x i8], ptr @h, i64 0, i64 1), ptr undef
  %old = atomicrmw add ptr %both, i32 %call syncscope("singlethread") monotonic, align 4
  %pair = cmpxchg weak ptr %p, i32 1, i32 2 acq_rel monotonic, align 4
  %one = extractvalue { i32, i1 } %pair, 0
  %shuffle = shufflevector <4 x i32> %v, <4 x i32> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %element = extractelement <4 x i32> %shuffle, i64 2
  %slot = alloca %s, align 8
  %asm = call i32 asm sideeffect "nop $0", "=r,r"(i32 %x)
  %space = load i32, ptr addrspace(1) @a, align 4
  %root = call double @sqrt(double %d, metadata !"round.dynamic", metadata !"fpexcept.strict")
  call void @llvm.assume(i1 true) [ "align"(ptr %p, i64 8) ]
  fence acquire
  br i1 %cmp, label %then, label %else
then:
  %big = mul i128 1267650600228229401496703205376, 3
  invoke void @thrower(ptr byval(%s) %p, i32 noundef %x) to label %else unwind label %pad
else:
  %phi = phi i32 [ %add, %entry ], [ %div, %then ]
  switch i32 %phi, label %end [ i32 5, label %end ]
pad:
  %lp = landingpad { ptr, i32 } cleanup catch ptr null
  resume { ptr, i32 } %lp
end:
  ret i32 %phi
}
declare void @thrower(ptr, i32)
"""
BASE = _BASE.replace("@sqrt", "@llvm.experimental.constrained.sqrt.f64")
COUNT = r"""
add nsw => add nuw
add nsw => add
add nsw => sub nsw
%x, 7 => %x, 8
udiv exact => udiv
zext nneg => zext
zext nneg => sext
inbounds %s => %s
%y, i32 1\n => %y, i32 2\n
i64 %y, i32 1 => i32 %x, i32 1
%gep, align 4 => %gep, align 2
load i32, ptr %gep => load volatile i32, ptr %gep
store volatile => store
ptr @g, align 4 => ptr %p, align 4
icmp slt => icmp sgt
fadd nnan => fadd ninf
2.500000e+00 => 2.750000e+00
@llvm.smax.i32(i32 %load => @llvm.smin.i32(i32 %load
tail call fastcc => call fastcc
tail call fastcc => tail call
double %fast) => double %d)
i64 0, i64 1) => i64 0, i64 2)
(i32 %max, i64 %wide => (i32 %max, i64 poison
ptr undef => ptr poison
ptr undef => ptr null
ptr @h, i64 0 => ptr @g, i64 0
inbounds ([4 x i8] => ([4 x i8]
atomicrmw add => atomicrmw sub
monotonic, align 4\n  %pair => acquire, align 4\n  %pair
syncscope("singlethread") mono => mono
cmpxchg weak => cmpxchg
i1 } %pair, 0 => i1 } %pair, 1
i32 2, i32 3> => i32 3, i32 2>
i64 2\n => i64 3\n
alloca %s, align 8 => alloca %s, align 16
alloca %s => alloca [2 x %s]
nop $0 => nop  $0
"=r,r" => "=r,m"
asm sideeffect => asm
"align"( => "dereferenceable"(
i64 8) ] => i64 16) ]
fence acquire => fence release
label %then, label %else\n => label %else, label %then\n
i128 12676506 => i128 22676506
[ %div, %then ] => [ %x, %then ]
[ i32 5, => [ i32 6,
cleanup catch => catch
ret i32 %phi => ret i32 %add
%t = type { i64 } => %t = type { i16 }
fence acquire\n  br => br
catch ptr null => catch ptr @g
addrspace(1) => addrspace(2)
"""
DO_NOT_COUNT = r"""
%add => %sum
@g => @other_name
@callee => @called
%s => %another
entry => start
@f( => @"f g"(
noundef %x => noundef signext %x
alloca %s, align 8 => alloca %u, align 8
define i32 => define internal i32
@callee(i32 %max => @callee(i32 noundef %max
%v) pers => %v) noinline pers
!"round.dynamic" => !"round.upward"
%gep, align 4 => %gep, align 4, !tbaa !0
ptr byval(%s) %p => ptr %p
declare void @thrower => @more = global i32 3\n%new = type { i8 }\ndeclare %new @unused(%new)\ndeclare void @thrower
(ptr %p, i32 %x, => (ptr %p, i16 %unused, i32 %x,
"""


def changed(table: str) -> Iterator[str]:
    """Give the base with one change at a time; a line is what is replaced and by what."""
    for line in table.strip("\n").split("\n"):
        old, new = line.replace("\\n", "\n").split(" => ")
        assert old in BASE
        yield BASE.replace(old, new)


def assembled(llvm: Llvm, text: str, folder: Path) -> list[Compared]:
    assembler = llvm.tool("llvm-as")
    if not assembler:
        pytest.skip(f"llvm-as-{llvm.version} is not installed")
    (folder / "a.ll").write_text(text + '\n!0 = !{!1, !1, i64 0}\n!1 = !{!"x", !2}\n!2 = !{!"y"}\n')
    run_checked(assembler, folder / "a.ll", "-o", folder / "a.bc")
    return compare(llvm, (folder / "a.bc").read_bytes(), folder)


def test_each_change_counts(llvm: Llvm, tmp_path: Path) -> None:
    compared = [assembled(llvm, text, tmp_path)[0] for text in (BASE, *changed(COUNT))]
    assert len({each.found.body_hash for each in compared}) == len(compared)
    check_partition(compared)


def test_what_does_not_count(llvm: Llvm, tmp_path: Path) -> None:
    compared = [assembled(llvm, text, tmp_path)[0] for text in (BASE, *changed(DO_NOT_COUNT))]
    assert {each.found.body_hash for each in compared} == {compared[0].found.body_hash}
