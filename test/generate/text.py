"""C++ text: indentation by braces, variables of a program, and the forms in which
functions, classes and main reach them."""

import re
from dataclasses import dataclass, field
from typing import List, Optional


def formatted(lines, width):
    """The lines indented by their braces and parentheses; access specifiers stand one level out."""
    result, depth = [], 0
    for line in flatten(lines):
        line = line.strip()
        closing = len(re.match(r"[})]*", line).group())
        level = depth - closing
        if re.match(r"(public|private|protected):", line):
            level -= 1
        if re.match(r"\w+\(.*\)$", line) is None and line.startswith(": "):
            level += 1
        result.append(" " * (width * max(level, 0)) + line if line and not line.startswith("#") else line)
        bare = re.sub(r'"(?:\\.|[^"\\])*"|//.*', "", line)
        depth += sum(bare.count(c) for c in "{(") - sum(bare.count(c) for c in "})")
    return "\n".join(result) + "\n"


def flatten(lines):
    for line in lines:
        if isinstance(line, str):
            yield from line.split("\n")
        else:
            yield from flatten(line)


@dataclass
class Var:
    """A variable that a training needs, in all forms in which it can be made."""

    name: str
    type: str
    args: str = ""  # of the constructor
    parameter: str = ""  # how a function takes it
    pointer: bool = False  # used through `->` where it was made
    parameter_is_pointer: Optional[bool] = None  # used through `->` in a function that was given it
    passed: str = ""  # what the caller writes
    template: str = ""  # the template parameter that is its type, if it is one
    local: str = ""  # a declaration other than `type name(args);`
    deferred: str = ""  # a declaration without a value (for globals and members)
    assignment: str = ""  # what gives it its value later
    after: List[str] = field(default_factory=list)  # statements once it is there
    deferred_pointer: Optional[bool] = None  # used through `->` in the deferred form

    def __post_init__(self):
        if self.parameter_is_pointer is None:
            self.parameter_is_pointer = self.pointer
        if self.deferred_pointer is None:
            self.deferred_pointer = self.pointer
        self.passed = self.passed or self.name
        self.parameter = self.parameter or f"{self.type}& {self.name}"

    def declaration(self):
        return [self.local or f"{self.type} {self.name}({self.args});", self.after]


class Reach:
    """How the text at one place reaches the variables: `->` or `.`."""

    def __init__(self, pointers):
        self.pointers = pointers  # names that are pointers here

    def dot(self, name):
        return f"{name}->" if name in self.pointers else f"{name}."

    def object(self, name):
        return f"*{name}" if name in self.pointers else name
