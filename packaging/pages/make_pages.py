"""Makes the man pages and the completions of bash, zsh and fish.

    make_pages.py --out DIR --version V [--accel PROGRAM] [--accel-migrate PROGRAM]

Everything comes from the option tables of the commands themselves: what
`PROGRAM --help-table` prints is what they parse with. DIR gets the folders of
share/: man/man1, bash-completion/completions, zsh/site-functions and
fish/vendor_completions.d.
"""

import argparse
import json
import os
import subprocess


def ask(*command):
    return json.loads(subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout)


class Page:
    """A command: its own options, and those of its subcommands."""

    def __init__(self, table, subcommands=()):
        self.name = table["name"]
        self.table = table
        self.subcommands = list(subcommands)  # (name, summary, table or None)


def accel_page(program):
    tables = [(name, summary, ask(program, name, "--help-table")) for name, summary in ask(program, "--help-table")]
    own = {
        "name": "accel",
        "description": "Starts programs that use accel as several processes, compares them with what they were made "
                       "from, and says how they are built.",
        "usage": "COMMAND [OPTIONS]",
        "footer": "",
        "options": [{"names": ["-h", "--help"], "value": "", "description": "Print this help and exit"},
                    {"names": ["--version"], "value": "", "description": "Print the version and exit"}],
    }
    return Page(own, tables)


def migrate_page(program):
    table = ask(program, "--help-table")
    return Page(table, [(name, summary, None) for name, summary in table["commands"]])


# Man pages.

def roff(text):
    return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")


def line(text):
    """A line that cannot be taken for a request."""
    text = roff(text)
    return "\\&" + text if text[:1] in (".", "\\") and not text.startswith("\\-") or text.startswith("\\(aq") else text


def option_entry(option):
    names = ", ".join(f"\\fB{roff(name)}\\fR" for name in option["names"])
    if option["value"]:
        joint = "=" if option["names"][-1].startswith("--") else " "
        names += f"{joint}\\fI{roff(option['value'])}\\fR"
    entry = [".TP", names, line(option["description"])]
    for value, meaning in option.get("values", ()):
        entry += [".RS", ".TP", f"\\fB{roff(value)}\\fR", line(meaning), ".RE"]
    return entry


def literal(text):
    return [".PP", ".nf", *[line(part) for part in text.splitlines()], ".fi"] if text.strip() else []


def man_page(name, table, version, see_also, subcommands=()):
    summary = " ".join(table["description"].split("\n\n")[0].split()).rstrip(".")
    summary = summary[0].lower() + summary[1:]
    file_name = name.replace(" ", "-")
    text = [f".TH {roff(file_name.upper())} 1 \"\" \"accel {version}\" \"User Commands\"",
            ".SH NAME", f"{roff(file_name)} \\- {roff(summary)}",
            ".SH SYNOPSIS", f"\\fB{roff(name)}\\fR {roff(table['usage'])}",
            ".SH DESCRIPTION"]
    for paragraph in table["description"].strip().split("\n\n"):
        text += [".PP", line(" ".join(paragraph.split()))]
    if subcommands:
        text.append(".SH COMMANDS")
        for sub, about, page in subcommands:
            text += [".TP", f"\\fB{roff(sub)}\\fR", line(about[0].upper() + about[1:] + (
                f"; see accel-{sub}(1)" if page else ""))]
    text.append(".SH OPTIONS")
    for option in table["options"]:
        text += option_entry(option)
    if table["footer"].strip():
        text += [".SH NOTES", *literal(table["footer"])]
    text += [".SH SEE ALSO", ", ".join(f"\\fB{roff(other)}\\fR(1)" for other in see_also if other != file_name)]
    return file_name, "\n".join(text) + "\n"


# Completions. What stands for a file in the tables.

FILES = ("FILE", "PROGRAM", "FILE.html", "MODEL", "OUTPUT", "ID|FILE:LINE")
FOLDERS = ("DIR", "DIR/", "FOLDER")


def kind(option):
    if option.get("values"):
        return "values"
    return "files" if option["value"] in FILES else "folders" if option["value"] in FOLDERS else "other"


def commands_of(page):
    """(words, options) of the command itself and of each subcommand that has options of its own."""
    yield "", page.table["options"]
    for name, _, table in page.subcommands:
        if table:
            yield name, table["options"]


def bash(page):
    function = "_" + page.name.replace("-", "_")
    with_tables = [name for name, _, table in page.subcommands if table]
    out = [f"# bash completion of {page.name}", f"{function}() {{",
           "  local cur=${COMP_WORDS[COMP_CWORD]} prev= command= word",
           "  [ \"$COMP_CWORD\" -gt 0 ] && prev=${COMP_WORDS[COMP_CWORD-1]}",
           "  COMPREPLY=()"]
    if with_tables:
        # What stands behind the program belongs to the program.
        out += ["  command=${COMP_WORDS[1]}", "  [ \"$COMP_CWORD\" -gt 1 ] || command="]
    out += ["  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do",
            "    if [ \"$word\" = -- ]; then COMPREPLY=($(compgen -f -- \"$cur\")); return; fi", "  done",
            "  case \"$command\" in"]
    for command, options in commands_of(page):
        out += [f"    {command or chr(39) * 2})", "      case \"$prev\" in"]
        for option in options:
            if not option["value"] and not option.get("values"):
                continue
            what = {"values": f"-W '{' '.join(value for value, _ in option.get('values', ()))}'",
                    "files": "-f", "folders": "-d", "other": None}[kind(option)]
            reply = f"COMPREPLY=($(compgen {what} -- \"$cur\"))" if what else ":"
            out.append(f"        {'|'.join(option['names'])}) {reply}; return ;;")
        names = " ".join(name for option in options for name in option["names"])
        out += ["      esac", f"      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W '{names}' -- \"$cur\")); return; fi"]
        if not command and page.subcommands:
            words = " ".join(name for name, _, _ in page.subcommands)
            files = "" if with_tables else " $(compgen -f -- \"$cur\")"
            out.append(f"      [ \"$COMP_CWORD\" -ne 1 ] || {{ COMPREPLY=($(compgen -W '{words}' -- \"$cur\"){files}); return; }}")
        out.append("      ;;")
    out += ["  esac", "  COMPREPLY=($(compgen -f -- \"$cur\"))", "}", f"complete -o filenames -F {function} {page.name}"]
    return "\n".join(out) + "\n"


def quoted(text):
    return text.replace("\\", "\\\\").replace("'", "'\\''")


def zsh_option(option):
    description = quoted(option["description"].replace("[", "(").replace("]", ")").replace(":", "\\:"))
    action = ""
    if option["value"] or option.get("values"):
        what = {"values": f"({' '.join(value for value, _ in option.get('values', ()))})", "files": "_files",
                "folders": "_files -/", "other": " "}[kind(option)]
        action = ":" + quoted((option["value"] or "value").replace(":", "\\:")) + ":" + what
    names = option["names"]
    exclusive = f"({' '.join(names)})" if len(names) > 1 else ""
    return [f"'{exclusive}{name}{'=' if action and name.startswith('--') else ''}[{description}]{action}'" for name in names]


def zsh(page):
    function = "_" + page.name
    out = [f"#compdef {page.name}", "", f"{function}() {{"]
    with_tables = [name for name, _, table in page.subcommands if table]
    summaries = [f"'{name}:{quoted(summary)}'" for name, summary, _ in page.subcommands]
    if with_tables:
        out += ["  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then", "    local -a commands",
                f"    commands=({' '.join(summaries)})", "    _describe command commands", "    return", "  fi",
                "  local command=$words[2]", "  case $command in"]
        for command, options in commands_of(page):
            if command:
                out += [f"    {command})", "      shift words", "      (( CURRENT-- ))", "      _arguments -s \\"]
                out += ["        " + spec + " \\" for option in options for spec in zsh_option(option)]
                out += ["        '*:file:_files'", "      ;;"]
        out += ["    *)", "      _arguments \\"]
        out += ["        " + spec + " \\" for option in page.table["options"] for spec in zsh_option(option)]
        out += ["        '*:file:_files'", "      ;;", "  esac"]
    else:
        if summaries:
            out += ["  local -a commands", f"  commands=({' '.join(summaries)})",
                    "  (( CURRENT == 2 )) && [[ $words[2] != -* ]] && _describe command commands"]
        out += ["  _arguments \\"]
        out += ["    " + spec + " \\" for option in page.table["options"] for spec in zsh_option(option)]
        out += ["    '*:file:_files'"]
    out += ["}", "", f'{function} "$@"']
    return "\n".join(out) + "\n"


def fish(page):
    out = [f"# fish completion of {page.name}"]
    with_tables = [name for name, _, table in page.subcommands if table]
    for name, summary, _ in page.subcommands:
        files = " -f" if with_tables else ""
        out.append(f"complete -c {page.name} -n __fish_use_subcommand{files} -a {name} -d '{quoted(summary)}'")
    for command, options in commands_of(page):
        if command:
            condition = f" -n '__fish_seen_subcommand_from {command}'"
        else:
            condition = " -n __fish_use_subcommand" if with_tables else ""
        for option in options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option["names"])
            value = ""
            if option.get("values"):
                value = f" -x -a '{' '.join(word for word, _ in option['values'])}'"
            elif option["value"]:
                value = {"files": " -r -F", "folders": " -x -a '(__fish_complete_directories)'", "other": " -x"}[kind(option)]
            out.append(f"complete -c {page.name}{condition} {names}{value} -d '{quoted(option['description'])}'")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--accel")
    parser.add_argument("--accel-migrate")
    options = parser.parse_args()
    pages = []
    if options.accel:
        pages.append(accel_page(options.accel))
    if options.accel_migrate:
        pages.append(migrate_page(options.accel_migrate))

    def write(path, text):
        path = os.path.join(options.out, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    for page in pages:
        see_also = ["accel", "accel-migrate"]
        names = [man_page(page.name, page.table, options.version, see_also, page.subcommands)]
        names += [man_page(f"{page.name} {name}", table, options.version, see_also)
                  for name, _, table in page.subcommands if table]
        for name, text in names:
            write(f"man/man1/{name}.1", text)
        write(f"bash-completion/completions/{page.name}", bash(page))
        write(f"zsh/site-functions/_{page.name}", zsh(page))
        write(f"fish/vendor_completions.d/{page.name}.fish", fish(page))


if __name__ == "__main__":
    main()
