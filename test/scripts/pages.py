"""pages.py BUILD_DIR: every option that `--help` names is in the man pages and completions, and nothing else is.

What is expected is read from what the commands print for people, not from the tables that the pages are made from.
"""

import os
import re
import shutil
import subprocess
import sys
import unittest

BUILD = os.path.abspath(sys.argv.pop(1))
SUBCOMMANDS = ["launch", "config", "env", "test", "estimate-memory", "merge-weights", "flags", "verify"]


def program(name):
    return os.path.join(BUILD, "bin", name)


def share(command, path):
    with open(os.path.join(BUILD, "pages", command, path), encoding="utf-8") as file:
        return file.read()


def help_of(*command):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def options_in(text):
    """The options at the beginnings of lines."""
    found = set()
    for line in text.split("EXAMPLES:")[0].splitlines():
        start = re.match(r"\s{2,4}(-[^ =<]+(?:, ?-[^ =<]+)*)", line)
        if start:
            found.update(re.split(r", ?", start[1]))
    return found


def man_options(text):
    return set(re.findall(r"\\fB(-[^\\]*(?:\\-[^\\]*)*)\\fR", text.split(".SH OPTIONS")[1].split(".SH ")[0])) | set()


def unroff(names):
    return {name.replace("\\-", "-") for name in names}


class Pages(unittest.TestCase):
    maxDiff = None

    def launcher_options(self):
        found = {}
        for name in SUBCOMMANDS:
            found[name] = options_in(help_of(program("accel"), name, "--help"))
            self.assertGreaterEqual(len(found[name]), 2, name)
        self.assertGreater(len(found["launch"]), 25)
        return found

    def migrate_options(self):
        found = options_in(help_of(program("accel-migrate"), "--help")) - {"-h", "--help-list"}
        found = {name for name in found if not name.startswith("--help-")} | {"-h"}
        self.assertGreater(len(found), 20)
        self.assertIn("--write", found)
        return found

    def manual(self, command, name):
        text = share(command, f"man/man1/{name}.1")
        return {part.replace("\\-", "-") for part in re.findall(r"\\fB(\\-(?:[^\\]|\\-)*)\\fR", text)}

    def test_man_pages_have_every_option(self):
        for name, options in self.launcher_options().items():
            self.assertEqual(options, self.manual("accel", f"accel-{name}"), name)
        self.assertEqual(self.migrate_options(), self.manual("accel-migrate", "accel-migrate"))

    def test_man_pages_are_read_without_a_warning(self):
        if not shutil.which("groff"):
            self.skipTest("no groff")
        for command in ("accel", "accel-migrate"):
            folder = os.path.join(BUILD, "pages", command, "man/man1")
            for name in os.listdir(folder):
                said = subprocess.run(["groff", "-man", "-Tutf8", "-ww", os.path.join(folder, name)], text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.assertEqual("", said.stderr, name)
                self.assertIn("OPTIONS", said.stdout)

    def complete(self, command, *words):
        """What bash offers behind these words."""
        script = (f"source {os.path.join(BUILD, 'pages', command, 'bash-completion/completions', command)}; "
                  f"COMP_WORDS=({command} {' '.join(repr(word) for word in words)}); COMP_CWORD={len(words)}; "
                  f"_{command.replace('-', '_')}; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
        return set(help_of("bash", "-c", script).split())

    def test_bash_offers_every_option(self):
        for name, options in self.launcher_options().items():
            self.assertEqual(options, self.complete("accel", name, "-"), name)
        self.assertEqual(self.migrate_options(), self.complete("accel-migrate", "-"))

    def test_bash_offers_commands_values_and_nothing_of_the_programs(self):
        self.assertEqual(set(SUBCOMMANDS), self.complete("accel", ""))
        self.assertEqual({"json"}, self.complete("accel-migrate", "--format", "j"))
        self.assertEqual(set(), self.complete("accel", "launch", "--", "--num"))
        self.assertEqual({"--num-processes", "--num-machines"} | {
            option for option in self.launcher_options()["launch"] if option.startswith("--num")},
            self.complete("accel", "launch", "--num"))

    def test_zsh_and_fish_know_every_option(self):
        zsh, fish = share("accel", "zsh/site-functions/_accel"), share("accel", "fish/vendor_completions.d/accel.fish")
        for name, options in self.launcher_options().items():
            part = re.search(rf"^    {name}\)\n(.*?)^      ;;", zsh, re.S | re.M)[1]
            self.assertEqual(options, set(re.findall(r"'(?:\([^)]*\))?(--?[a-z][a-z0-9-]*)=?\[", part)), name)
            lines = [line for line in fish.splitlines() if f"'__fish_seen_subcommand_from {name}'" in line]
            found = {"--" + word for line in lines for word in re.findall(r" -l ([a-z0-9-]+)", line)}
            found |= {"-" + word for line in lines for word in re.findall(r" -s ([a-zA-Z])\b", line)}
            self.assertEqual(options, found, name)
        zsh = share("accel-migrate", "zsh/site-functions/_accel-migrate")
        self.assertEqual(self.migrate_options(), set(re.findall(r"'(?:\([^)]*\))?(--?[a-z][a-z0-9-]*)=?\[", zsh)))
        for shell, files in (("bash", "bash-completion/completions/{}"), ("zsh", "zsh/site-functions/_{}"),
                             ("fish", "fish/vendor_completions.d/{}.fish")):
            if not shutil.which(shell):
                continue
            for command in ("accel", "accel-migrate"):
                path = os.path.join(BUILD, "pages", command, files.format(command))
                said = subprocess.run([shell, "-n", path], text=True, stderr=subprocess.PIPE)
                self.assertEqual((0, ""), (said.returncode, said.stderr), path)


if __name__ == "__main__":
    unittest.main()
