"""Tests of accel-migrate against the real LibTorch headers.

Substitutions:
  %accel_migrate  the tool
  %torch_flags    flags for LibTorch's headers, as one gives them behind `--`
  %clangxx        a compiler that only checks, with LibTorch's and accel's headers;
                  both are precompiled, and what LibTorch's need for themselves
                  at the end of a unit is left out (support/OwnTemplates.cpp)
  %clangxx_plain  the same without accel's: a missing #include of them is an error.
                  (In every test the tool itself has parsed its result without.)
  %examples       the project's examples/
  %migrate_corpus test/migrate-corpus; %libtorch and %corpus_compiler, the same compiler
                  as one program, are for its options
  %edit_tests     the unit tests of the edit stage
  %docs           the project's docs/
  FileCheck, not, split-file, clang-apply-replacements: LLVM's

A test works on files of its own (split-file %s %t, or a copy of something in
Inputs/): what a migration inserts must not meet CHECK lines.
"""

import fcntl
import glob
import hashlib
import importlib.util
import os
import subprocess
import sys

import lit.formats

config.name = "migrate"
config.test_format = lit.formats.ShTest(execute_external=True)
config.suffixes = [".cpp", ".test"]
config.excludes = ["Inputs", "unit", "corpus", "support"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = config.accel_exec_root


# The longest first: at the end nobody waits for one of them.
config.early_tests = {"rules/forms.test", "cli/cache.test", "cli/proven.test", "findings/ACL0030.test",
                      "harness/corpus.test", "programs/several-sources.test", "cli/examples.test"}


def tool(name):
    path = os.path.join(config.llvm_tools_dir, name)
    if not os.path.exists(path):
        lit_config.fatal(f"{path} is missing; run scripts/setup")
    return path


edit_tests = config.accel_migrate + "-edit-tests"
for program in (config.accel_migrate, edit_tests, config.own_templates):
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


def prefixes():
    """LibTorch's headers, parsed once, and accel's on top of them: a check of a
    program costs 0.5 to 1 s, not 8.

    Beside it the tool precompiles its own, in its first run LibTorch's, in its
    second accel's, for which all tests would wait otherwise.
    """
    version = subprocess.run([clangxx, "--version"], capture_output=True, text=True, check=True).stdout
    stamp = [os.stat(os.path.join(folder, "torch", "torch.h")).st_mtime for folder in config.torch_include_dirs
             if os.path.exists(os.path.join(folder, "torch", "torch.h"))]
    key = hashlib.sha256(repr((version, torch_flags, stamp)).encode()).hexdigest()[:16]
    headers = hashlib.sha256()
    for path in sorted(glob.glob(os.path.join(accel_include, "**", "*.h"), recursive=True)):
        with open(path, "rb") as header:
            headers.update(path.encode() + b"\0" + header.read())
    folder = os.path.join(config.accel_exec_root, "prefix")
    os.makedirs(folder, exist_ok=True)
    prefix = os.path.join(folder, f"{key}.pch")
    with_accel = os.path.join(folder, f"{key}-{headers.hexdigest()[:16]}.pch")
    with open(os.path.join(folder, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(prefix):
            header = os.path.join(folder, "prefix.h")
            with open(header, "w") as text:
                text.write("#include <torch/torch.h>\n")
            program = os.path.join(config.test_source_root, "cli", "Inputs", "train.cpp")
            first_runs = subprocess.Popen(["sh", "-c", '"$0" --quiet "$1"; "$0" --quiet "$1"', config.accel_migrate, program],
                                          env=config.environment, stdout=subprocess.DEVNULL)
            subprocess.run([clangxx, "-x", "c++-header", *torch_flags.split(), "-fpch-instantiate-templates",
                            header, "-o", prefix + ".part"], check=True)
            os.replace(prefix + ".part", prefix)
            first_runs.wait()
        if not os.path.exists(with_accel):
            for old in glob.glob(os.path.join(folder, f"{key}-*.pch")):
                os.remove(old)
            subprocess.run([clangxx, "-x", "c++-header", *torch_flags.split(), "-I", accel_include, "-include-pch", prefix,
                            "-fpch-instantiate-templates", os.path.join(accel_include, "accel", "accel.h"),
                            "-o", with_accel + ".part"], check=True)
            os.replace(with_accel + ".part", with_accel)
    return prefix, with_accel


torch_prefix, accel_prefix = prefixes()
quick_compiler = f"{clangxx} -fplugin={config.own_templates} -include-pch {torch_prefix}"
checking = f"-fsyntax-only {torch_flags} -I {accel_include}"


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
    ("%accel_migrate", config.accel_migrate),
    ("%edit_tests", edit_tests),
    ("%torch_flags", torch_flags),
    ("%clangxx_plain", f"{quick_compiler} {checking}"),
    ("%clangxx", f"{clangxx} -fplugin={config.own_templates} -include-pch {accel_prefix} {checking}"),
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
