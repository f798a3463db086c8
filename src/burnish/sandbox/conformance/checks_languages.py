"""Programs in the languages of this machine: one that works, and the three ways in which one does not."""

from dataclasses import dataclass, replace
from functools import partial

from burnish.sandbox.conformance.suite import LIMITS, Bench, CheckSkipped, Registry, expect, tail

_registry = Registry()

_LIMITS = replace(LIMITS, memory_bytes=1 << 30, num_pids=256, disk_bytes=256 << 20)
"""What compilers and virtual machines need."""
_ENDLESS_S = 0.4


@dataclass(frozen=True, kw_only=True, slots=True)
class Language:
    """How one language is built and run, and four programs in it.

    Example: Language(name="perl", file="a.pl", tools=("perl",), build="perl -c a.pl", run="perl a.pl", hello=...)
    """

    name: str
    file: str
    tools: tuple[str, ...]
    build: str  # fails for a program that is none; empty where that shows at the start
    run: str
    hello: str
    wrong: str  # is no program of the language
    fails: str  # fails when it runs
    endless: str


LANGUAGES = (
    Language(
        name="python", file="a.py", tools=("python3",), build="", run="python3 a.py",
        hello="print('hello')", wrong="print('hello'", fails="[][1]", endless="while True: pass",
    ),
    Language(
        name="bash", file="a.sh", tools=("bash",), build="", run="bash a.sh",
        hello="echo hello", wrong="if true; then (", fails="false || exit 3", endless="while :; do :; done",
    ),
    Language(
        name="c", file="a.c", tools=("gcc",), build="gcc -o a a.c", run="./a",
        hello='#include <stdio.h>\nint main(void) { puts("hello"); return 0; }', wrong="int main(void) { return 0 }",
        fails="#include <stdlib.h>\nint main(void) { abort(); }", endless="int main(void) { for (;;) {} }",
    ),
    Language(
        name="cpp", file="a.cc", tools=("g++",), build="g++ -o a a.cc", run="./a",
        hello='#include <iostream>\nint main() { std::cout << "hello\\n"; }', wrong="int main() { return no_such; }",
        fails="#include <vector>\nint main() { return std::vector<int>{}.at(1); }", endless="int main() { while (1); }",
    ),
    Language(
        name="javascript", file="a.js", tools=("node",), build="", run="node a.js",
        hello="console.log('hello')", wrong="console.log('hello'", fails="null.x", endless="for (;;) {}",
    ),
    Language(
        name="java", file="A.java", tools=("javac", "java"), build="javac A.java", run="java A",
        hello='class A { public static void main(String[] a) { System.out.println("hello"); } }', wrong="class A {",
        fails="class A { public static void main(String[] a) { System.out.println(a[9]); } }",
        endless="class A { public static void main(String[] a) { for (;;) {} } }",
    ),
    Language(
        name="rust", file="a.rs", tools=("rustc",), build="rustc a.rs", run="./a",
        hello='fn main() { println!("hello"); }', wrong="fn main() { no_such }",
        fails='fn main() { panic!("no"); }', endless="fn main() { loop {} }",
    ),
    Language(
        name="go", file="a.go", tools=("go",), build="go build a.go", run="./a",
        hello='package main\nimport "fmt"\nfunc main() { fmt.Println("hello") }', wrong="package main\nfunc main() {",
        fails='package main\nfunc main() { panic("no") }', endless="package main\nfunc main() { for {} }",
    ),
    Language(
        name="perl", file="a.pl", tools=("perl",), build="", run="perl a.pl",
        hello='print "hello\\n";', wrong="print 'hello", fails="die 'no';", endless="while (1) {}",
    ),
)  # fmt: skip


async def _try(language: Language, bench: Bench) -> None:
    missing = [tool for tool in language.tools if not (await bench.sh(f"command -v {tool}")).ok]
    if missing:
        raise CheckSkipped(f"the sandbox has no {', '.join(missing)}")
    async with await bench.backend.create(limits=_LIMITS) as box:
        line = f"{language.build} && {language.run}" if language.build else language.run
        for program in (language.hello, language.wrong, language.fails):
            await box.files.write(language.file, program)
            result = await box.commands.run(line)
            expect(result.limit_hit is None, f"{program!r}: {tail(result)}")
            if program is language.hello:
                expect(result.ok and result.stdout == b"hello\n", f"{program!r}: {tail(result)}")
            else:
                expect(not result.ok, f"{program!r} did not fail: {tail(result)}")
            if program is language.wrong:
                expect(
                    result.signal is None and bool(result.stderr), f"{program!r} fails without a word: {tail(result)}"
                )
        await box.files.write(language.file, language.endless)
        if language.build:
            expect((await box.commands.run(language.build)).ok, "the endless program was not built")
        result = await box.commands.run(language.run, timeout_s=_ENDLESS_S)
        expect(result.timed_out and result.limit_hit == "wall", f"{language.endless!r}: {tail(result)}")
        expect((await box.commands.run("echo next")).stdout == b"next\n", "the sandbox does not answer afterwards")


for _language in LANGUAGES:
    _registry.add(
        f"programs_in_{_language.name}_work_and_fail",
        f"In {_language.name}: hello, an error of the compiler, an error at run time and an endless loop.",
        ("shell", "files", "limits.wall"),
        partial(_try, _language),
    )

CHECKS = _registry.all()
