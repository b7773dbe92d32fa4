"""Which files of a folder are training programs, and how one would compile them.

Everything here reads text: the point of the harness is to judge the tool, so it
must not ask the tool.
"""

import csv
import os
import re
from dataclasses import dataclass, field

SOURCES = (".cpp", ".cc", ".cxx")
HEADERS = (".h", ".hpp", ".hh", ".hxx")
# Text that a program may include; what else lies in a repository is not copied.
COPIED = SOURCES + HEADERS + (".c", ".inl", ".ipp", ".tpp", ".inc", ".def", ".in", ".cmake", ".cu", ".cuh")
SKIPPED_FOLDERS = {".git", ".accel", "build", "_deps", "node_modules", "third_party", "thirdparty", "vendor", "external"}
LARGEST_FILE = 2 << 20

SHAPES = ("with make_data_loader", "without", "distributed", "RL", "jit-only", "hand-rolled")
EXEMPT = SHAPES[2:]

_COMMENTS = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', re.DOTALL)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
_TRAINING = re.compile(r"(?:\.|->)\s*backward\s*\(|\bautograd::(?:grad|backward)\s*\(")
_MAIN = re.compile(r"\b(?:int|auto)\s+main\s*\(")


@dataclass
class Program:
    """One file to give to the tool."""

    root: str  # the repository, absolute
    path: str  # relative to the root
    flags: list = field(default_factory=list)  # behind `--`; relative -I folders are the repository's
    shape: str = ""
    listed_in_database: bool = False


def without_comments(text):
    return _COMMENTS.sub(lambda match: match.group(1) or " ", text)


def is_libtorch(folder):
    """Whether the folder holds LibTorch, or its headers, that a repository brings along."""
    return any(os.path.isdir(os.path.join(folder, *inner, "c10", "core")) and os.path.isdir(os.path.join(folder, *inner, "torch"))
               for inner in ((), ("include",)))


class Repository:
    """The source files below a folder, and what they include of each other."""

    def __init__(self, root):
        self.root = os.path.abspath(root)
        self.files = []
        self.database = None  # compile_commands.json, relative to the root
        self._texts = {}
        self._by_name = {}
        self._reached = {}
        for folder, folders, names in os.walk(self.root):
            found = os.path.join(folder, "compile_commands.json")
            if os.path.isfile(found) and self.database is None:
                self.database = os.path.relpath(found, self.root)
            # A database is looked for in build/, sources are not.
            folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS and not is_libtorch(os.path.join(folder, name)))
            built = os.path.join(folder, "build", "compile_commands.json")
            if self.database is None and os.path.isfile(built):
                self.database = os.path.relpath(built, self.root)
            for name in sorted(names):
                path = os.path.join(folder, name)
                if name.endswith(COPIED) or name == "CMakeLists.txt":
                    if os.path.isfile(path) and os.path.getsize(path) <= LARGEST_FILE:
                        relative = os.path.relpath(path, self.root)
                        self.files.append(relative)
                        self._by_name.setdefault(name, []).append(relative)

    def text(self, path):
        """The text without comments."""
        if path not in self._texts:
            with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
                self._texts[path] = without_comments(file.read())
        return self._texts[path]

    def reach(self, path):
        """The files of the repository that `path` includes, itself among them,
        and the folders that a compiler must be told of to find them."""
        if path in self._reached:
            return self._reached[path]
        seen, folders, todo = {path}, [], [path]
        while todo:
            includer = todo.pop()
            for delimiter, name in _INCLUDE.findall(self.text(includer)):
                beside = os.path.normpath(os.path.join(os.path.dirname(includer), name))
                # In <> it is not looked for beside the file.
                found, folder = (beside, None if delimiter == '"' else os.path.dirname(includer) or ".") \
                    if beside in self._by_name.get(os.path.basename(name), ()) else self._search(path, name)
                if found is None:
                    continue
                if folder is not None and folder not in folders:
                    folders.append(folder)
                if found not in seen:
                    seen.add(found)
                    todo.append(found)
        self._reached[path] = seen, sorted(folders)
        return self._reached[path]

    def _search(self, path, name):
        """A file whose path ends with `name`, the one nearest to `path`."""
        if name.startswith("."):
            return None, None
        best = None
        for candidate in self._by_name.get(os.path.basename(name), ()):
            if candidate != name and not candidate.endswith("/" + name):
                continue
            common = len(os.path.commonprefix([os.path.dirname(candidate).split("/"), os.path.dirname(path).split("/")]))
            if best is None or common > best[0]:
                best = (common, candidate)
        if best is None:
            return None, None
        return best[1], best[1][: len(best[1]) - len(name)].rstrip("/") or "."

    def standard(self, path):
        """The C++ standard that the nearest CMakeLists.txt asks for, or None."""
        folder = os.path.dirname(path)
        while True:
            cmake = os.path.join(folder, "CMakeLists.txt")
            if cmake in self._by_name.get("CMakeLists.txt", ()):
                with open(os.path.join(self.root, cmake), encoding="utf-8", errors="replace") as file:
                    found = re.search(r"(?:CXX_STANDARD\s+|std=(?:c|gnu)\+\+|cxx_std_)(\d\d)", file.read())
                if found:
                    return max(17, int(found.group(1)))
            if not folder:
                return None
            folder = os.path.dirname(folder)

    def flags(self, path):
        flags = [f"-I{folder}" for folder in self.reach(path)[1]]
        standard = self.standard(path)
        if standard is not None:
            flags.append(f"-std=c++{standard}")
        return flags

    def program(self, path):
        reached, _ = self.reach(path)
        flags = self.flags(path)
        text = "\n".join(self.text(file) for file in sorted(reached))
        return Program(self.root, path, flags, shape_of(text), self.database is not None)

    def programs(self):
        """Every source that trains, by itself or in a header that it includes;
        and the headers that train and that no such source includes."""
        trains = {file for file in self.files
                  if file.endswith(SOURCES + HEADERS) and _TRAINING.search(self.text(file))}
        units, covered = [], set()
        for file in self.files:
            if file.endswith(SOURCES):
                reached, _ = self.reach(file)
                # A header's training belongs to the program that runs it.
                if file in trains or (reached & trains and _MAIN.search(self.text(file))):
                    units.append(file)
                    covered |= reached
        units += sorted(file for file in trains if file.endswith(HEADERS) and file not in covered)
        return [self.program(file) for file in units]


def shape_of(text):
    """One of SHAPES: what the issue counts apart, guessed from words."""
    def has(pattern):
        return re.search(pattern, text) is not None

    if has(r"\bc10d\b|ProcessGroup|\bMPI_Init|\bncclAllReduce|DistributedRandomSampler|DistributedSequentialSampler"):
        return "distributed"
    if has(r"(?i)\breplay_?(?:buffer|memory)|\bcartpole\b|\bself_?play|\bmcts\b|\bgym::|\bppo\b|\bdqn\b|\ba2c\b|"
           r"\brollouts?\b|\breward\w*\b.*\baction|class \w*environment\b"):
        return "RL"
    if has(r"\bmake_data_loader\b"):
        return "with make_data_loader"
    makes_model = has(r"\bnn::(?:Module|Sequential|\w+)\b|\bTORCH_MODULE\b|register_(?:module|parameter)")
    if has(r"\bjit::load\b") and not makes_model:
        return "jit-only"
    if not has(r"\boptim::\w+|\bOptimizer\b"):
        return "hand-rolled"
    return "without"


def from_list(list_file, folder):
    """Programs of a list with the columns `repository` and `path` (and `shape`,
    where a person has said so). A repository owner/name lies in folder/owner/name,
    folder/owner+name or folder/name. Returns the programs and what is not there."""
    programs, missing, repositories = [], [], {}
    with open(list_file, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            name = row.get("repository") or row["repo"]
            for candidate in (name, name.replace("/", "+"), name.split("/")[-1]):
                root = os.path.join(folder, candidate)
                if os.path.isfile(os.path.join(root, row["path"])):
                    break
            else:
                missing.append(f"{name}/{row['path']}")
                continue
            if root not in repositories:
                repositories[root] = Repository(root)
            program = repositories[root].program(os.path.normpath(row["path"]))
            program.shape = row.get("shape") or program.shape
            programs.append(program)
    return programs, missing
