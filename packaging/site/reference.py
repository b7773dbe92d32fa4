"""The reference of the public headers: Doxygen's XML to Markdown pages.

Every class has a page, and every namespace one with its functions; each entry has its declaration, its comment and a
link to its line in the header, which is a page of the site, too.
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
        EXCLUDE_SYMBOLS = *detail* *::Impl std*
        STRIP_FROM_PATH = {headers}
        OUTPUT_DIRECTORY = {os.path.dirname(xml)}
        XML_OUTPUT = {os.path.basename(xml)}
        GENERATE_XML = YES
        XML_PROGRAMLISTING = NO
        GENERATE_HTML = NO
        GENERATE_LATEX = NO
        JAVADOC_AUTOBRIEF = YES
        MARKDOWN_SUPPORT = YES
        AUTOLINK_SUPPORT = NO
        EXTRACT_ALL = YES
        MACRO_EXPANSION = YES
        EXPAND_ONLY_PREDEF = YES
        PREDEFINED = ACCEL_API=
        QUIET = YES
        WARNINGS = NO
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


def source_link(location):
    if location is None:
        return None
    file, line = location.get("declfile") or location.get("file"), location.get("declline") or location.get("line")
    if not file or not file.startswith("accel/"):
        return None
    return f"[{file}:{line}](source/{slug(file)}.md#__codelineno-0-{line})"


def write_reference(headers, work, out):
    """Makes the pages in the folder `out`; returns [(title, file)] and the names without a comment."""
    xml = os.path.join(work, "xml")
    run_doxygen(headers, xml)
    os.makedirs(os.path.join(out, "source"), exist_ok=True)
    pages, undocumented, table = [], [], []
    index = ElementTree.parse(os.path.join(xml, "index.xml")).getroot()
    for compound in index.findall("compound"):
        if compound.get("kind") not in ("class", "struct", "namespace"):
            continue
        node = ElementTree.parse(os.path.join(xml, compound.get("refid") + ".xml")).getroot().find("compounddef")
        name = node.findtext("compoundname")
        # Of others' namespaces there are specialisations only.
        if not name.startswith("accel") or "detail" in name or "<" in name or node.get("prot") in ("private", "protected"):
            continue
        location = node.find("location")
        is_namespace = node.get("kind") == "namespace"
        text = [f"# {'Namespace ' if is_namespace else ''}`{name}`"]
        if not is_namespace:
            include = location.get("file")
            text.append(f"`#include <{include}>`" + (f" · {source_link(location)}" if source_link(location) else ""))
        about = description(node)
        if about:
            text.append(about)
        elif not is_namespace:
            undocumented.append(name)
        members = []
        for section in node.findall("sectiondef"):
            if section.get("kind") not in KINDS or section.get("kind") == "protected-func":
                continue
            for member in section.findall("memberdef"):
                if member.get("prot") != "public" or member.get("kind") == "friend" or (
                        member.findtext("argsstring") or "").endswith("=delete") or (
                        is_namespace and not (member.find("location").get("file") or "").startswith("accel/")):
                    continue
                members.append((section, member))
        if is_namespace and not members:
            continue
        last, documented_run = None, ""
        for section, member in members:
            heading = section.findtext("header") or KINDS[section.get("kind")]
            if heading != last:
                text.append(f"## {heading}")
                last = heading
            short = member.findtext("name")
            about = description(member)
            if not about and not short.startswith(("operator", "~")) and short != name.split("::")[-1]:
                undocumented.append(f"{name}::{short}")
            text.append(f"### `{short}` {{ #{slug(short)} }}" if not any(f"#{slug(short)} }}" in part for part in text)
                        else f"### `{short}`")
            text.append(f"```cpp\n{declaration(member)}\n```")
            if about:
                text.append(about)
            for value in member.findall("enumvalue"):
                value_about = description(value)
                if value_about:
                    text.append(f"`{value.findtext('name')}`: {value_about}")
            link = source_link(member.find("location"))
            if link:
                text.append(f"<small>{link}</small>")
        file = slug(name) + ".md"
        with open(os.path.join(out, file), "w", encoding="utf-8") as page:
            page.write("\n\n".join(text) + "\n")
        pages.append((name, file))
        first = re.split(r"(?<=[.:])\s", description(node))[0] if not is_namespace else "Functions and types"
        first = "" if first.startswith("```") else " ".join(first.split())
        table.append((name, file, first.replace("|", "\\|")))
    for folder, folders, names in os.walk(os.path.join(headers, "accel")):
        folders[:] = [f for f in folders if f != "detail"]
        for name in sorted(names):
            path = os.path.join(folder, name)
            header = os.path.relpath(path, headers)
            with open(path, encoding="utf-8") as file:
                content = file.read()
            with open(os.path.join(out, "source", slug(header) + ".md"), "w", encoding="utf-8") as page:
                page.write(f"---\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n# {header}\n\n```cpp\n{content}```\n")
    with open(os.path.join(out, "index.md"), "w", encoding="utf-8") as page:
        page.write("# Reference\n\nEvery class and function of the public headers, from their comments. "
                   "Begin with [`accel::Accelerator`](accel-Accelerator.md).\n\n| name | |\n|---|---|\n")
        for name, file, first in sorted(table, key=lambda row: (row[0].count("::") > 1, row[0].lower())):
            page.write(f"| [`{name}`]({file}) | {first} |\n")
    return pages, undocumented
