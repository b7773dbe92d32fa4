"""Which sources make up one executable: read from CMakeLists.txt, and from which
headers a source includes.

Only text is read; no CMake runs. What is not found here is found missing by the
linker, and such a program counts as not built.
"""

import glob
import os
import re
from dataclasses import dataclass, field

from programs import SOURCES, without_comments

_MAIN = re.compile(r"\b(?:int|auto)\s+main\s*\(")
_COMMAND = re.compile(r"\b(set|add_executable|add_library|cuda_add_executable|file|project|list|aux_source_directory"
                      r"|add_definitions|add_compile_definitions|target_compile_definitions|target_link_libraries|target_sources)\s*\(([^()]*)\)", re.IGNORECASE)
_OBJECTS = re.compile(r"\$<TARGET_OBJECTS:([^>]+)>")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
# An argument in quotes, or one that may have quotes in it, which stay: ROOT="${CMAKE_SOURCE_DIR}".
_ARGUMENT = re.compile(r'"((?:\\.|[^"\\])*)"(?=\s|$)|((?:[^\s"\\]|\\.|"(?:\\.|[^"\\])*")+)')
# Stands in a macro for the folder that the repository is built in.
ROOT = "@ACCEL_ROOT@"


@dataclass
class Executable:
    """A program that can be built: its sources are migrated in one run."""

    root: str  # the repository, absolute
    main: str  # relative to the root
    sources: list  # relative to the root, `main` first
    flags: list = field(default_factory=list)
    headers: list = field(default_factory=list)  # of the repository, that the sources include
    folder: str = ""  # of the CMakeLists.txt that names it, else of the main
    shape: str = ""
    libraries: list = field(default_factory=list)  # sources of the libraries that share a header with it: for what the linker misses
    listed: list = field(default_factory=list)  # the paths of a list that it stands for

    @property
    def path(self):
        """As `programs.Program` calls it."""
        return self.main

    @property
    def name(self):
        return f"{os.path.basename(self.root)}/{self.main}"


class CMakeFile:
    """The variables and targets of one CMakeLists.txt, as far as text shows them."""

    def __init__(self, root, path):
        self.root = root
        self.folder = os.path.dirname(path)
        self.variables = {"CMAKE_SOURCE_DIR": self.folder, "CMAKE_CURRENT_SOURCE_DIR": self.folder,
                          "CMAKE_CURRENT_LIST_DIR": self.folder, "PROJECT_SOURCE_DIR": self.folder}
        self.targets = []  # lists of sources
        self.executables = {}  # those of them by name
        self.libraries = []  # and those that are libraries
        self.objects = {}  # of OBJECT libraries by name: all they hold is linked, whether somebody asks for it or not
        self.linked = {}  # the names of what a target is linked with
        self.definitions = []  # (target, flag); of no target: for all
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            text = re.sub(r"#[^\n]*", "", file.read())
        named = {}  # the targets
        for command, arguments in _COMMAND.findall(text):
            words = [self.expand(word) for word in re.findall(r'"[^"]*"|\S+', arguments)]
            words = [part for word in words for part in word.strip('"').split(";") if part]
            command = command.lower()
            if command == "set" and words:
                self.variables[words[0]] = ";".join(word for word in words[1:] if word != "PARENT_SCOPE")
            elif command == "project" and words:
                self.variables["PROJECT_NAME"] = words[0]
            elif command == "list" and len(words) > 2 and words[0].upper() == "APPEND":
                self.variables[words[1]] = ";".join([self.variables.get(words[1], ""), *words[2:]])
            elif command == "file" and words and words[0].upper() in ("GLOB", "GLOB_RECURSE"):
                self.variables[words[1]] = ";".join(path for word in words[2:]
                                                    for path in self.glob(word, words[0].upper() == "GLOB_RECURSE"))
            elif command == "aux_source_directory" and len(words) == 2:
                self.variables[words[1]] = ";".join(path for ending in SOURCES
                                                    for path in self.glob(os.path.join(words[0], "*" + ending), False))
            elif command in ("add_executable", "add_library", "cuda_add_executable") and words:
                self.targets.append([path for path in map(self.path, words[1:]) if path])
                named[words[0]] = self.targets[-1]
                self.linked.setdefault(words[0], []).extend(name for word in words[1:] for name in _OBJECTS.findall(word))
                if command == "add_library":
                    self.libraries.append(self.targets[-1])
                    if "OBJECT" in words[1:2]:
                        self.objects[words[0]] = self.targets[-1]
                else:
                    self.executables[words[0]] = self.targets[-1]
            elif command == "target_sources" and words:
                named.get(words[0], []).extend(path for path in map(self.path, words[1:]) if path)
            elif command == "target_link_libraries" and words:
                self.linked.setdefault(words[0], []).extend(words[1:])
            elif command.endswith("definitions"):
                self.define(self.expand(words[0]) if command.startswith("target_") and words else None, arguments)
        for flag in re.findall(r"(?<!\S)-D\w\S*", self.variables.get("CMAKE_CXX_FLAGS", "")):
            self.definitions.append((None, flag))

        # A list of sources that another file makes a target of.
        for value in list(self.variables.values()):
            listed = [path for path in map(self.path, value.split(";")) if path]
            if len(listed) > 1 and not any(set(listed) <= set(target) for target in self.targets):
                self.targets.append(listed)

    def define(self, target, arguments):
        places = {name: "/".join([ROOT, *filter(None, [self.folder])]) for name in
                  ("CMAKE_SOURCE_DIR", "CMAKE_CURRENT_SOURCE_DIR", "CMAKE_CURRENT_LIST_DIR", "PROJECT_SOURCE_DIR")}
        for name in ("CMAKE_BINARY_DIR", "CMAKE_CURRENT_BINARY_DIR", "PROJECT_BINARY_DIR"):
            places[name] = places["CMAKE_SOURCE_DIR"] + "/build"
        words = [quoted or plain for quoted, plain in _ARGUMENT.findall(arguments)]
        for word in words[1:] if target is not None else words:
            word = _VARIABLE.sub(lambda match: places.get(match.group(1), match.group(0)), word)
            word = self.expand(re.sub(r"\\(.)", r"\1", word)).removeprefix("-D")
            # No keyword, other flag, or expression that only CMake can read.
            # The ABI of the author's LibTorch is not that of ours.
            if re.match(r"[A-Za-z_]\w*(=|$)", word) and "$<" not in word and not word.startswith("_GLIBCXX_USE_CXX11_ABI") \
                    and word not in ("PUBLIC", "PRIVATE", "INTERFACE"):
                self.definitions.append((target, "-D" + word))

    def macros(self, main):
        """The flags that define macros for an executable: all but those of others. What a library
        hands on is not told apart from its own."""
        return [flag for target, flag in self.definitions if main in self.executables.get(target, [main])]

    def expand(self, word):
        for _ in range(5):
            word = _VARIABLE.sub(lambda match: self.variables.get(match.group(1), ""), word)
        return word

    def glob(self, pattern, recursive):
        # With a variable that is not known here it may begin with '/', and would be looked for on the whole disk.
        pattern = pattern.lstrip("/")
        place = os.path.join(self.root, pattern if pattern.startswith(self.folder) else os.path.join(self.folder, pattern))
        if recursive:
            place = os.path.join(os.path.dirname(place), "**", os.path.basename(place))
        return [os.path.relpath(path, self.root) for path in sorted(glob.glob(place, recursive=recursive))]

    def path(self, word):
        """A source's path relative to the root, or None."""
        if not word.endswith(SOURCES):
            return None
        for candidate in (word, os.path.join(self.folder, word)):
            candidate = os.path.normpath(candidate.lstrip("/"))
            if os.path.isfile(os.path.join(self.root, candidate)):
                return candidate
        return None


class Executables:
    """The executables of a repository (`programs.Repository`)."""

    def __init__(self, repository):
        self.repository = repository
        self.cmake = []
        for path in repository.files:
            if os.path.basename(path) == "CMakeLists.txt":
                self.cmake.append(CMakeFile(repository.root, path))
        self.mains = [path for path in repository.files if path.endswith(SOURCES) and _MAIN.search(repository.text(path))]

    def sources_of(self, main):
        """The sources beside `main`, and the folder of the CMakeLists.txt."""
        found, folder = [main], os.path.dirname(main)
        for cmake in sorted(self.cmake, key=lambda file: -len(file.folder)):
            target = next((target for target in cmake.targets if main in target), None)
            if target:
                found += [path for path in target if path not in found]
                for name in (name for name, sources in cmake.executables.items() if sources is target):
                    found += [path for path in self.objects_of(name) if path not in found]
                folder = cmake.folder
                # Libraries beside it: what they hold is found by headers below.
                break
        todo = list(found)
        while todo:
            reached, _ = self.repository.reach(todo.pop())
            for header in reached:
                stem, _ = os.path.splitext(os.path.basename(header))
                for ending in SOURCES:
                    candidates = [path for path in self.repository._by_name.get(stem + ending, ())
                                  if path not in self.mains and path not in found]
                    if candidates and not any(os.path.basename(path).startswith(stem + ".") and path.endswith(SOURCES)
                                              for path in found):
                        best = max(candidates, key=lambda path: len(os.path.commonprefix([path, header])))
                        found.append(best)
                        todo.append(best)
        return [path for path in found if path == main or path not in self.mains], folder

    def objects_of(self, target):
        """The sources of the OBJECT libraries that a target is linked with, also by way of others."""
        found, seen, todo = [], set(), [target]
        while todo:
            name = todo.pop(0)
            if name in seen:
                continue
            seen.add(name)
            for cmake in self.cmake:
                found += [path for path in cmake.objects.get(name, []) if path not in found]
                todo += cmake.linked.get(name, [])
        return found

    def macros(self, main, folder):
        """Of the CMakeLists.txt in `folder` and in those around it."""
        above = {"", folder}
        while folder:
            folder = os.path.dirname(folder)
            above.add(folder)
        return list(dict.fromkeys(flag for cmake in self.cmake if cmake.folder in above for flag in cmake.macros(main)))

    def executable(self, main):
        sources, folder = self.sources_of(main)
        flags = list(self.repository.flags(main)) + self.macros(main, folder)
        reached = set().union(*(self.repository.reach(path)[0] for path in sources))
        for path in sources[1:]:
            flags += [flag for flag in self.repository.flags(path) if flag not in flags and flag.startswith("-I")]
        libraries = {path for cmake in self.cmake for library in cmake.libraries
                     if any(self.repository.reach(path)[0] & reached for path in library) for path in library}
        return Executable(self.repository.root, main, sources, flags, sorted(reached - set(sources)), folder,
                          libraries=sorted(libraries - set(sources) - set(self.mains)))

    def all(self, wanted=None):
        """Every executable that trains, or that one of the `wanted` paths is part of."""
        result = []
        training = {program.path for program in self.repository.programs()} if wanted is None else None
        for main in self.mains:
            executable = self.executable(main)
            reached = set().union(*(self.repository.reach(path)[0] for path in executable.sources))
            if wanted is None:
                if training & (reached | set(executable.sources)):
                    result.append(executable)
            else:
                executable.listed = sorted(set(wanted) & (reached | set(executable.sources)))
                if executable.listed:
                    result.append(executable)
        return result
