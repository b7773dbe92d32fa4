"""The code blocks of a page, and what each of them is.

Pages that `accel-migrate --explain` prints in a terminal have indented blocks, without a language; what they are is seen from
their text. scripts/docs colours them, and the tests compile or run them.
"""

import re
import textwrap

# What stands at the beginning of a command.
COMMAND = re.compile(r"""(\w*\$\ ) | ([A-Z_]+=\S+\ )+(\\ | \./) |
    ([A-Z_]+=\S+\ )*(accel | accel-migrate | c\+\+ | cmake | mkdir | mpirun | srun | torchrun | (/usr|scripts|test|bench)/\S+)(\ |$)""", re.X)


def language_of(code):
    """What an indented block holds: console, cmake, json, yaml, cpp, or text: what a command prints, a synopsis, a drawing."""
    first = code.lstrip().split("\n", 1)[0]
    if re.search(r" \[-|\[options\]", first):
        return "text"
    if COMMAND.match(first):
        return "console"
    if re.match(r"(find_package|set|add_subdirectory)\(", first):
        return "cmake"
    if first == "{":
        return "json"
    if re.match(r"\w+: \[", first):
        return "yaml"
    lines = [re.sub(r"\s*//.*", "", line).strip() for line in code.split("\n")]
    return "cpp" if any(line.endswith((";", "{", "}")) or line.startswith("#") for line in lines) else "text"


def parts(text):
    """A page's parts, [(language, code or text, line)]; the language of what is no code is None."""
    found, prose, begin = [], [], 1
    lines = text.split("\n")

    def flush(until):
        nonlocal prose, begin
        if prose:
            found.append((None, "\n".join(prose), begin))
        prose, begin = [], until + 1

    i = 0
    while i < len(lines):
        fence = re.match(r"```(\w*)", lines[i])
        if fence:
            flush(i)
            end = next(j for j in range(i + 1, len(lines)) if lines[j].startswith("```"))
            found.append((fence[1], "\n".join(lines[i + 1:end]), i + 2))
            i = begin = end + 1
            begin += 1
        elif lines[i].startswith("    ") and (i == 0 or not lines[i - 1].strip()) and not in_list(lines, i):
            flush(i)
            end = i
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            while not lines[end - 1].strip():
                end -= 1
            code = textwrap.dedent("\n".join(lines[i:end]))
            found.append((language_of(code), code, i + 1))
            i = end
            begin = i + 1
        else:
            prose.append(lines[i])
            i += 1
    flush(len(lines))
    return found


def in_list(lines, i):
    """Whether an indented line continues an item of a list."""
    before = next((line for line in reversed(lines[:i]) if line.strip() and not line.startswith(" ")), "")
    return bool(re.match(r"([-*]|\d+\.) ", before))


def fenced(text):
    """The page with a language at each block, its fenced blocks as they are."""
    out, lines = [], text.split("\n")
    last = 0
    for language, code, line in parts(text):
        if language is None or lines[line - 2:line - 1] and lines[line - 2].startswith("```"):
            continue
        # In a console's colours a line without a prompt is what was printed.
        shown = "bash" if language == "console" and not re.search(r"^\w*\$ ", code, re.M) else language
        out += lines[last:line - 1] + [f"```{shown}", *code.split("\n"), "```"]
        last = line - 1 + len(code.split("\n"))
    return "\n".join(out + lines[last:])
