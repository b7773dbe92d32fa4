"""Tests of accel-migrate against the real LibTorch headers.

Substitutions:
  %accel_migrate  the tool
  %torch_flags    flags for LibTorch's headers, as one gives them behind `--`
  %clangxx        a compiler that only checks, with LibTorch's and accel's headers;
                  both are precompiled
  %clangxx_plain  the same without accel's: a missing #include of them is an error.
                  (In every test the tool itself has parsed its result without.)
  %examples       the project's examples/
  %migrate_corpus test/migrate-corpus; %libtorch and %corpus_compiler, the same compiler
                  as one program, are for its options
  %edit_tests     the unit tests of the edit stage
  %first_runs     what the first runs of the tool have printed (fill_cache)
  %docs           the project's docs/
  FileCheck, not, split-file, clang-apply-replacements: LLVM's

A test works on files of its own (split-file %s %t, or a copy of something in
Inputs/): what a migration inserts must not meet CHECK lines.
"""

import glob
import importlib.util
import os
import shutil
import subprocess
import sys

import lit.formats

config.name = "migrate"
config.test_format = lit.formats.ShTest(execute_external=True)
config.suffixes = [".cpp", ".test"]
config.excludes = ["Inputs", "unit", "corpus"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = config.accel_exec_root


# The longest first: at the end nobody waits for one of them.
config.early_tests = {"rules/forms.test", "cli/cache.test", "cli/cmake.test", "findings/ACL0030.test",
                      "harness/corpus.test", "harness/expected.test", "programs/several-sources.test", "programs/not-together.test"}


def tool(name):
    path = os.path.join(config.llvm_tools_dir, name)
    if not os.path.exists(path):
        lit_config.fatal(f"{path} is missing; run scripts/setup")
    return path


edit_tests = config.accel_migrate + "-edit-tests"
for program in (config.accel_migrate, edit_tests):
    if not os.path.exists(program):
        lit_config.fatal(f"{program} is not built")

# Nothing of the person's own: a configuration file, a cache, a LibTorch.
config.environment["CLANG_NO_DEFAULT_CONFIG"] = "1"
config.environment["XDG_CACHE_HOME"] = os.path.join(config.accel_exec_root, "cache")
config.environment["LC_ALL"] = "C.UTF-8"
for name in ("ACCEL_LIBTORCH", "ACCEL_MIGRATE_RESOURCE_DIR", "CPATH", "CPLUS_INCLUDE_PATH"):
    config.environment.pop(name, None)

def word(name):
    """Matches a command's name, not a part of an option."""
    return rf"(?<![-\w/]){name}(?=\s)"


include_flags = " ".join(f"-isystem {folder}" for folder in config.torch_include_dirs)
torch_flags = f"-std=c++{config.torch_standard} {include_flags}"
accel_include = os.path.join(config.accel_source_dir, "runtime", "include")
clangxx = tool("clang++")
# Those that the headers are precompiled with. Nobody changes a header meanwhile.
compile_flags = f"-O0 -DNDEBUG -fPIC -fclang-abi-compat=17 -Xclang -fno-validate-pch {torch_flags} -I {accel_include}"


def headers():
    """LibTorch's headers, parsed once, and accel's on top of them: a check of a
    program costs 0.5 to 1 s, not 8. The build has them for its own programs,
    where it has any that Clang compiles.
    """
    folder = config.precompiled or os.path.join(config.accel_exec_root, "headers")
    torch, accel = (os.path.join(folder, name + ".pch") for name in ("torch", "results"))
    if not config.precompiled:
        os.makedirs(folder, exist_ok=True)
        precompile = f"{clangxx} {compile_flags} -x c++-header -fpch-instantiate-templates".split()
        subprocess.run([*precompile, os.path.join(config.accel_source_dir, "cmake", "precompiled", "torch.h"), "-o", torch],
                       check=True)
        subprocess.run([*precompile, "-include-pch", torch, os.path.join(accel_include, "accel", "accel.h"), "-o", accel],
                       check=True)
    for path in torch, accel:
        if not os.path.exists(path):
            lit_config.fatal(f"{path} is not built")
    return torch, accel


def fill_cache():
    """The cache that all tests share, filled by the first runs of the tool: they use
    the headers that the build has precompiled for it, or precompile LibTorch's and
    accel's, and make lists of templates, which then are damaged. What the runs print,
    in a folder that is returned, cli/proven.test looks at: it would take as long to
    fill another cache. No test runs meanwhile, which is why lists can be damaged. A
    new tool fills it anew.
    """
    inputs = os.path.join(config.test_source_root, "cli", "Inputs")
    made_of = [config.accel_migrate, __file__, *(os.path.join(inputs, name) for name in ("proven.h", "loader.cpp"))]
    cache = os.path.join(config.environment["XDG_CACHE_HOME"], "accel")
    folder = os.path.join(config.accel_exec_root, "first-runs")
    stamp = os.path.join(folder, "done")
    pattern = os.path.join(cache, "*.pch.proven")
    if os.path.exists(stamp) and glob.glob(pattern) and all(
            os.path.getmtime(path) <= os.path.getmtime(stamp) for path in made_of):
        return folder
    shutil.rmtree(cache, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    os.makedirs(cache)
    # With the names that the cache gives them, without their lists.
    for path in glob.glob(os.path.join(os.path.dirname(config.accel_migrate), "..", "lib*", "accel", "precompiled", "*")):
        if path.endswith((".pch", ".pch.names")):
            shutil.copy2(path, cache)
    with open(os.path.join(folder, "good.cpp"), "w") as file:
        for name in ("proven.h", "loader.cpp"):
            with open(os.path.join(inputs, name)) as part:
                file.write(part.read())

    def damage(change):
        for path in glob.glob(pattern):
            with open(path, "rb") as file:
                content = file.read()
            with open(path, "wb") as file:
                file.write(change(content))

    for run in range(1, 6):
        if run == 4:
            damage(lambda content: b"1 2\n" + content.partition(b"\n")[2])  # Of other headers.
        elif run == 5:
            damage(lambda content: os.urandom(1000))
        with open(os.path.join(folder, f"out.{run}"), "w") as out, open(os.path.join(folder, f"talk.{run}"), "w") as talk:
            # Named, so that what the build has precompiled is left out.
            subprocess.run([config.accel_migrate, "--stats", f"--cache-dir={cache}", "good.cpp"], cwd=folder, env=config.environment, stdout=out, stderr=talk)
        if run == 3:
            # What is in the cache before the tests add to it.
            with open(os.path.join(folder, "cache"), "w") as file:
                for path in sorted(glob.glob(os.path.join(cache, "*.pch*"))):
                    with open(path, "rb") as content:
                        lines = content.read().count(b"\n") if path.endswith(".proven") else "-"
                    file.write(f"{os.path.basename(path)} {lines}\n")
    with open(stamp, "w"):
        pass
    return folder


torch_headers, accel_headers = headers()
first_runs = fill_cache()
quick_compiler = f"{clangxx} {compile_flags} -include-pch {torch_headers}"


def corpus_compiler():
    """The compiler with its options as one program."""
    path = os.path.join(config.accel_exec_root, "corpus-compiler")
    with open(path, "w") as script:
        script.write(f'#!/bin/sh\nexec {quick_compiler} "$@"\n')
    os.chmod(path, 0o755)
    return path


config.substitutions += [
    ("%migrate_corpus", f"{sys.executable} {os.path.join(config.accel_source_dir, 'test', 'migrate-corpus')}"),
    ("%libtorch", os.path.dirname(config.torch_include_dirs[0])),
    ("%corpus_compiler", corpus_compiler()),
    ("%compiler", clangxx),
    ("%accel_migrate", config.accel_migrate),
    ("%edit_tests", edit_tests),
    ("%torch_flags", torch_flags),
    ("%clangxx_plain", f"{quick_compiler} -fsyntax-only"),
    ("%clangxx", f"{clangxx} {compile_flags} -include-pch {accel_headers} -fsyntax-only"),
    ("%first_runs", first_runs),
    ("%examples", os.path.join(config.accel_source_dir, "examples")),
    ("%docs", os.path.join(config.accel_source_dir, "docs")),
    (word("FileCheck"), f"{tool('FileCheck')} -dump-input=fail"),
    (word("not"), tool("not")),
    (word("split-file"), tool("split-file")),
]

# Not needed to build, so perhaps not there; scripts/setup installs both.
if os.path.exists(os.path.join(config.llvm_tools_dir, "clang-apply-replacements")):
    config.available_features.add("clang-apply-replacements")
    config.substitutions.append((word("clang-apply-replacements"), tool("clang-apply-replacements")))
if importlib.util.find_spec("jsonschema"):
    config.available_features.add("jsonschema")

if "ACCEL_SARIF_SCHEMA" in os.environ:
    config.environment["ACCEL_SARIF_SCHEMA"] = os.environ["ACCEL_SARIF_SCHEMA"]
