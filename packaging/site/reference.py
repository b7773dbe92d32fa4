"""The reference of the public headers: Doxygen's XML to Markdown pages.

Every class has a page, and every namespace one with its functions; each entry has its declaration, its comment, a link to
its line in the header, which is a page of the site, too, and a link to a line of an example (docs/reference/*.cpp, which
the tests compile). A public name without a comment or without an example is a fault.
"""

import os
import re
import subprocess
import textwrap
import xml.etree.ElementTree as ElementTree

KINDS = {"public-type": "Types", "public-func": "Members", "public-static-func": "Static members",
         "public-attrib": "Data members", "public-static-attrib": "Static data members", "func": "Functions",
         "typedef": "Types", "enum": "Enumerations", "var": "Variables", "user-defined": "Members",
         "protected-func": "Protected members"}


def run_doxygen(headers, xml):
    configuration = f"""
        INPUT = {headers}
        FILE_PATTERNS = *.h
        RECURSIVE = YES
        EXCLUDE = {headers}/accel/detail
        EXCLUDE_PATTERNS = *-inl.h
        EXCLUDE_SYMBOLS = *::Impl std*
        STRIP_FROM_PATH = {headers}
        OUTPUT_DIRECTORY = {os.path.dirname(xml)}
        XML_OUTPUT = {os.path.basename(xml)}
        GENERATE_XML = YES
        XML_PROGRAMLISTING = NO
        GENERATE_HTML = NO
        GENERATE_LATEX = NO
        INCLUDE_GRAPH = NO
        INCLUDED_BY_GRAPH = NO
        JAVADOC_AUTOBRIEF = YES
        MARKDOWN_SUPPORT = YES
        AUTOLINK_SUPPORT = NO
        EXTRACT_ALL = YES
        MACRO_EXPANSION = YES
        EXPAND_ONLY_PREDEF = YES
        PREDEFINED = ACCEL_API= "TORCH_ARG(T, name)=T name"
        QUIET = YES
        WARN_IF_UNDOCUMENTED = NO
        WARN_AS_ERROR = FAIL_ON_WARNINGS
        """
    subprocess.run(["doxygen", "-"], input=textwrap.dedent(configuration), text=True, check=True,
                   stdout=subprocess.DEVNULL)


def inline(node):
    """A paragraph's text as Markdown."""
    out = [node.text or ""]
    for child in node:
        tag = child.tag
        inner = inline(child)
        if tag == "computeroutput":
            inner = f"`{''.join(child.itertext())}`"
        elif tag == "emphasis":
            inner = f"*{inner}*"
        elif tag == "bold":
            inner = f"**{inner}**"
        elif tag == "ulink":
            inner = f"[{inner}]({child.get('url')})"
        elif tag in ("ndash", "mdash"):
            inner = "–"
        elif tag == "linebreak":
            inner = "  \n"
        out += [inner, child.tail or ""]
    return "".join(out)


def code_of(node):
    lines = []
    for line in node.iter("codeline"):
        text = ""
        for part in line.iter():
            if part.tag == "sp":
                text += " "
            elif part.text:
                text += part.text
            if part is not line and part.tail:
                text += part.tail
        lines.append(text)
    return "\n".join(lines)


BLOCKS = {"programlisting", "verbatim", "preformatted", "itemizedlist", "orderedlist", "simplesect", "parameterlist",
          "table", "blockquote"}


def blocks(node):
    """The blocks of a description, each Markdown."""
    for para in node.iter("para") if node.tag != "para" else [node]:
        if para is not node and any(para in list(b.iter("para")) for b in node.iter() if b.tag in BLOCKS):
            continue
        yield from paragraph(para)


def paragraph(para):
    text = ElementTree.Element("para")
    text.text = para.text
    for child in para:
        if child.tag not in BLOCKS:
            text.append(child)
            continue
        if "".join(text.itertext()).strip():
            yield " ".join(inline(text).split())
        text = ElementTree.Element("para")
        text.text = child.tail
        if child.tag in ("programlisting",):
            yield f"```cpp\n{textwrap.dedent(code_of(child))}\n```"
        elif child.tag in ("verbatim", "preformatted"):
            yield f"```cpp\n{textwrap.dedent(''.join(child.itertext())).strip()}\n```"
        elif child.tag in ("itemizedlist", "orderedlist"):
            items = []
            for item in child.findall("listitem"):
                mark = "1. " if child.tag == "orderedlist" else "-   "
                inner = "\n\n".join(block for part in item.findall("para") for block in paragraph(part))
                items.append(mark + textwrap.indent(inner, "    ").lstrip())
            yield "\n".join(items)
        elif child.tag == "parameterlist":
            for item in child.findall("parameteritem"):
                name = "".join(item.find("parameternamelist").itertext()).strip()
                about = " ".join(inline(part) for part in item.find("parameterdescription").iter("para"))
                yield f"`{name}`: {' '.join(about.split())}"
        elif child.tag == "table":
            rows = [[" ".join(" ".join(inline(p) for p in entry.findall("para")).split()) for entry in row.findall("entry")]
                    for row in child.findall("row")]
            rows.insert(1, ["---"] * len(rows[0]))
            yield "\n".join("| " + " | ".join(row) + " |" for row in rows)
        else:
            yield " ".join(" ".join(inline(part) for part in child.iter("para")).split())
    if "".join(text.itertext()).strip():
        yield " ".join(inline(text).split())


def description(node):
    out = []
    for tag in ("briefdescription", "detaileddescription"):
        part = node.find(tag)
        if part is not None:
            for top in part:
                if top.tag == "para":
                    out += paragraph(top)
                elif top.tag.startswith("sect"):
                    title = top.find("title")
                    if title is not None:
                        out.append(f"**{title.text}**")
                    for para in top.findall("para"):
                        out += paragraph(para)
    return "\n\n".join(out)


def linked(text, headers):
    """The text with links to the pages and headers that it names."""
    def link(found):
        if found[1]:
            return f"[{found[1].rpartition('/')[2]}](../{found[1]}.md)"
        known = os.path.exists(os.path.join(headers.folder, found[2]))
        return f"[{found[2]}](source/{slug(found[2])}.md)" if known else found[2]

    parts = re.split(r"(```.*?```|`[^`]*`)", text, flags=re.S)
    parts[::2] = [re.sub(r"(?<![\w/])docs/([\w/-]+)\.md|(?<![\w/<])(accel/[\w/]+\.h)(?!\w)", link, part) for part in parts[::2]]
    return "".join(parts)


def tidy(text):
    """Doxygen's spelling of types in ours."""
    text = re.sub(r" ([&*]+) ?(?=[A-Za-z_(.])", r"\1 ", text)
    text = re.sub(r" ([&*]+)(?=[,)>]|$)", r"\1", text)
    text = re.sub(r"< (.*?) >", r"<\1>", text)
    text = re.sub(r" ?(?<![=<>!])=(?!=) ?", " = ", text)
    return text.replace(" const =", " const =").replace(" )", ")")


def declaration(member):
    kind = member.get("kind")
    templates = ""
    parameters = member.find("templateparamlist")
    if parameters is not None:
        names = []
        for param in parameters.findall("param"):
            kind_of = "".join(param.find("type").itertext())
            name = param.findtext("declname") or ""
            default = param.find("defval")
            names.append(kind_of + (" " + name if name else "") + (
                " = " + "".join(default.itertext()) if default is not None else ""))
        templates = f"template <{', '.join(names)}>\n"
    if kind == "enum":
        values = ", ".join(value.findtext("name") + (" " + (value.findtext("initializer") or "")).rstrip()
                           for value in member.findall("enumvalue"))
        return f"enum class {member.findtext('name')} {{ {values} }};"
    kind_of = "".join(member.find("type").itertext()) if member.find("type") is not None else ""
    if kind == "typedef":
        return re.sub(r"\s+", " ", member.findtext("definition") or "") + ";"
    name, arguments = member.findtext("name"), member.findtext("argsstring") or ""
    if len(kind_of + name + arguments) > 78 and "(" in arguments:
        parts, depth, start = [], 0, 1
        for i, c in enumerate(arguments):
            depth += c in "(<{" 
            depth -= c in ")}" or (c == ">" and arguments[i - 1] != "-")
            if (c == "," and depth == 1) or (c == ")" and depth == 0):
                parts.append(arguments[start:i].strip())
                start = i + 1
                if depth == 0:
                    break
        arguments = "(\n    " + ",\n    ".join(parts) + ")" + arguments[start:].replace(")", "", 0)
    arguments, kind_of = tidy(arguments), tidy(kind_of)
    static = "static " if member.get("static") == "yes" else ""
    return f"{templates}{static}{kind_of}{' ' if kind_of else ''}{name}{arguments};"


def slug(name):
    return re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")


def place(location):
    """The header and line of a declaration; None for what is not in a public header."""
    if location is None:
        return None
    file, line = location.get("declfile") or location.get("file"), location.get("declline") or location.get("line")
    return (file, int(line)) if file and file.startswith("accel/") else None


def source_link(location):
    at = place(location)
    return f"[{at[0]}:{at[1]}](source/{slug(at[0])}.md#__codelineno-0-{at[1]})" if at else None


class Headers:
    """The text of the headers, for what Doxygen does not keep."""

    def __init__(self, folder):
        self.folder, self.read = folder, {}

    def lines(self, file):
        if file not in self.read:
            with open(os.path.join(self.folder, file), encoding="utf-8") as content:
                self.read[file] = content.read().split("\n")
        return self.read[file]

    def heading(self, at, begin):
        """The `// ==== Subject (headers)` that the line stands under: the subject, and what follows it."""
        lines = self.lines(at[0])
        for i in range(at[1] - 1, begin, -1):
            if lines[i].strip().startswith("// ===="):
                first = i
                while lines[first - 1].strip().startswith("// ===="):
                    first -= 1
                text = " ".join(line.strip().removeprefix("// ====").strip() for line in lines[first:i + 1])
                title, bracket, rest = text.partition(" (")
                return title, (bracket + rest).strip()
        return None

    def option(self, at):
        """Whether it is a TORCH_ARG: set by calling it with a value, read by calling it without."""
        return "TORCH_ARG(" in self.lines(at[0])[at[1] - 1]


class Examples:
    """The regions of docs/reference/*.cpp: each begins with `// @example` and the names that it is an example of."""

    def __init__(self, folder):
        self.files, self.regions = {}, {}
        for name in sorted(os.listdir(folder)):
            if not name.endswith(".cpp"):
                continue
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                lines = file.read().rstrip("\n").split("\n")
            self.files[name] = lines
            begin, names = None, []
            for i, line in enumerate(lines + ["// @example"]):
                if line.startswith("// @example"):
                    for known in names:
                        self.regions.setdefault(known, []).append((name, begin, i))
                    begin, names = i + 1, line.split()[2:]

    def code(self, region):
        name, begin, end = region
        return "\n".join(self.files[name][begin:end]).strip("\n")

    def link(self, page, short):
        """The first line in the page's regions that uses the name."""
        for name, begin, end in self.regions.get(page, []) + self.regions.get(f"{page}::{short}", []):
            for i in range(begin, end):
                if re.search(rf"(?<!\w){re.escape(short)}(?!\w)", self.files[name][i].split("//")[0]):
                    return f"[example](examples/{slug(name)}.md#__codelineno-0-{i + 1})"
        return None


LIBRARY = "For the library itself"
OWN = "The library's own"
# What the bases of the Accelerator are about.
SUBJECTS = {"accel/collectives.h": "Values of all processes", "accel/input.h": "Standard input",
            "accel/output.h": "What process 0 prints and saves"}
# Bases in `detail` that hold members for programs.
BASES = {"Collectives", "SharedInput", "MainProcessOutput", "OptimizerControl"}


def members_of(node, xml, is_namespace):
    """The public members, those of bases in `detail` included, as programs call them through the class."""
    for section in node.findall("sectiondef"):
        if section.get("kind") not in KINDS or section.get("kind") == "protected-func":
            continue
        for member in section.findall("memberdef"):
            if member.get("prot") != "public" or member.get("kind") == "friend" or (
                    member.findtext("argsstring") or "").endswith("=delete") or not place(member.find("location")):
                continue
            yield section, member
    if is_namespace:
        return
    for base in node.findall("basecompoundref"):
        if base.get("prot") == "public" and base.get("refid") and (base.text or "").split("::")[-1] in BASES:
            parent = ElementTree.parse(os.path.join(xml, base.get("refid") + ".xml")).getroot().find("compounddef")
            for section, member in members_of(parent, xml, False):
                if not (member.findtext("name") or "").startswith(("operator", "~")) and (
                        member.findtext("name") != parent.findtext("compoundname").split("::")[-1]):
                    yield section, member


def write_page(node, name, xml, headers, examples, out, library):
    """Makes the page of a class or namespace; returns its title and faults, or None where there is nothing to say."""
    is_namespace = node.get("kind") == "namespace"
    location, about = node.find("location"), description(node)
    members, seen = [], set()
    for section, member in members_of(node, xml, is_namespace):
        if member.get("id") not in seen:
            seen.add(member.get("id"))
            members.append((section, member))
    if is_namespace and not members:
        return None
    faults = []
    about = linked(about, headers)
    own = place(location)[0] if place(location) else None
    if not is_namespace:
        # In the order of the header, those of bases behind them.
        members.sort(key=lambda entry: (place(entry[1].find("location"))[0] != own, place(entry[1].find("location"))))
    text = [f"# {'Namespace ' if is_namespace else ''}`{name}`"]
    if not is_namespace:
        link = source_link(location)
        text.append(f"`#include <{location.get('file')}>`" + (f" · {link}" if link else ""))
        if not about:
            faults.append(f"{name}: no comment")
    if about:
        text.append(about)
    library = library or LIBRARY in about
    options = [m for _, m in members if m.get("kind") == "variable" and headers.option(place(m.find("location")))]
    if options:
        text.append(f"Call an option with a value to set it, without one to read it: "
                    f"`options.{options[0].findtext('name')}(…)`.")
    regions = examples.regions.get(name, [])
    if not is_namespace and not library and not regions:
        faults.append(f"{name}: no example in docs/reference")
    shown = [examples.code(region) for region in regions if region[2] - region[1] <= 40]
    if shown and not is_namespace:
        text.append("## Example")
        text += [f"```cpp\n{code}\n```" for code in shown[:2]]
    last, previous, anchors = None, None, set()
    class_line = place(location)[1] if place(location) else 0
    for section, member in members:
        at, short = place(member.find("location")), member.findtext("name")
        heading = None if is_namespace else headers.heading(at, class_line if at[0] == own else 0)
        if not is_namespace and at[0] != own:
            heading = (SUBJECTS.get(at[0], f"From {at[0]}"), f"({at[0]})")
        heading = heading or (section.findtext("header") or KINDS[section.get("kind")], "")
        about = linked(description(member), headers)
        special = short.startswith(("operator", "~")) or short == name.split("::")[-1]
        shared = False
        if not about and previous and not special:
            # One comment may serve overloads, and the declarations below it that it names.
            shared = previous[0] == short or f"`{short}`" in previous[1]
            if not shared:
                faults.append(f"{name}::{short}: no comment ({at[0]}:{at[1]})")
        elif not about and not special:
            faults.append(f"{name}::{short}: no comment ({at[0]}:{at[1]})")
        example = examples.link(name, short)
        if not special and not example and not library and LIBRARY not in about and LIBRARY not in (previous or ("", ""))[1]:
            faults.append(f"{name}::{short}: no example in docs/reference")
        if heading != last:
            text.append(f"## {heading[0]}")
            if heading[1]:
                text.append(f"<small>{heading[1].strip('()')}</small>" if heading[1].endswith(")") and "(" not in heading[1][1:]
                            else heading[1])
            last, previous = heading, previous if shared else None
        if not (previous and previous[0] == short):
            anchor = slug(short)
            text.append(f"### `{short}`" + (f" {{ #{anchor} }}" if anchor and anchor not in anchors else ""))
            anchors.add(anchor)
        if member.get("kind") == "variable" and headers.option(at):
            kind = "".join(member.find("type").itertext())
            default = (member.findtext("initializer") or "").lstrip("= ").strip()
            text.append(f"```cpp\n{short}({tidy(kind)})" + (f"  // default: {default}" if default else "") + "\n```")
        else:
            text.append(f"```cpp\n{declaration(member)}\n```")
        if about:
            text.append(about)
        elif shared and previous[0] != short:
            text.append(previous[1])
        for value in member.findall("enumvalue"):
            value_about = linked(description(value), headers)
            if value_about:
                text.append(f"`{value.findtext('name')}`: {value_about}")
        links = [link for link in (source_link(member.find("location")), example) if link]
        text.append(f"<small>{' · '.join(links)}</small>")
        if about or not shared:
            previous = (short, about)
    file = slug(name) + ".md"
    with open(os.path.join(out, file), "w", encoding="utf-8") as page:
        page.write("\n\n".join(text) + "\n")
    first = re.split(r"(?<=\.)\s|\n\n", description(node))[0].rstrip(":") if not is_namespace else "Functions and types"
    first = "" if first.startswith("```") else " ".join(first.split())
    return (name, file, first.replace("|", "\\|")), faults, library


def write_reference(folder, example_folder, work, out):
    """Makes the pages in the folder `out`; returns [(group, [(title, file)])] and what is wrong with the comments."""
    xml = os.path.join(work, "xml")
    run_doxygen(folder, xml)
    os.makedirs(os.path.join(out, "source"), exist_ok=True)
    os.makedirs(os.path.join(out, "examples"), exist_ok=True)
    headers, examples = Headers(folder), Examples(example_folder)
    table, faults, inside = [], [], set()
    index = ElementTree.parse(os.path.join(xml, "index.xml")).getroot()
    # Classes before those that are declared in them.
    for compound in sorted(index.findall("compound"), key=lambda found: found.findtext("name")):
        if compound.get("kind") not in ("class", "struct", "namespace"):
            continue
        node = ElementTree.parse(os.path.join(xml, compound.get("refid") + ".xml")).getroot().find("compounddef")
        name = node.findtext("compoundname")
        # Of others' namespaces there are specialisations only.
        if not name.startswith("accel") or "detail" in name or "<" in name or node.get("prot") in ("private", "protected"):
            continue
        made = write_page(node, name, xml, headers, examples, out, name.rpartition("::")[0] in inside)
        if made:
            table.append(made[0])
            faults += made[1]
            if made[2]:
                inside.add(name)
    known = {name for name, _, _ in table}
    for name in examples.regions:
        if name not in known and not any(f"{page}::" == name[:name.rfind("::") + 2] for page in known):
            faults.append(f"docs/reference: an example of {name}, which is no public name")
    for path, _, names in os.walk(os.path.join(folder, "accel")):
        if os.path.relpath(path, folder).split("/")[1:2] == ["detail"]:
            continue
        for name in sorted(names):
            header = os.path.relpath(os.path.join(path, name), folder)
            write_source(os.path.join(out, "source", slug(header) + ".md"), header, "\n".join(headers.lines(header)))
    for name, lines in examples.files.items():
        write_source(os.path.join(out, "examples", slug(name) + ".md"), name, "\n".join(lines) + "\n")
    with open(os.path.join(out, "index.md"), "w", encoding="utf-8") as page:
        page.write("# Reference\n\nEvery class and function of the public headers, from their comments. "
                   "Begin with [`accel::Accelerator`](accel-Accelerator.md).\n")
        groups = {}
        for name, file, first in sorted(table, key=lambda row: row[0].lower()):
            groups.setdefault(OWN if name in inside else group_of(name), []).append((name, file, first))
        groups = sorted(groups.items(), key=lambda entry: (entry[0] == OWN, entry[0]))
        for group, names in groups:
            page.write(f"\n## {group}\n\n| name | what it is |\n|---|---|\n")
            for name, file, first in names:
                short = name.removeprefix(f"{group}::").removeprefix("accel::")
                page.write(f"| [`{short}`]({file}) | {first} |\n")
    return [(group, [(name, file) for name, file, _ in names]) for group, names in groups], faults


def group_of(name):
    """The namespace that a name belongs to."""
    parts = name.split("::")
    for length in range(len(parts), 0, -1):
        space = "::".join(parts[:length])
        if space in ("accel::checkpoint", "accel::data", "accel::distributed", "accel::optim"):
            return space
    return "accel"


def write_source(path, title, content):
    with open(path, "w", encoding="utf-8") as page:
        page.write(f"---\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n# {title}\n\n```cpp\n{content}```\n")
