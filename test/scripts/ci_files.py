"""ci_files.py BUILD_DIR: the hook, the action and the template run what they say, with this accel-migrate.

Their commands are taken out of the files and run on a program that is not migrated and on one that makes a collective
call on one process only.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError:
    print("no PyYAML here")
    sys.exit(77)

BUILD = os.path.abspath(sys.argv.pop(1))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def load(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return yaml.safe_load(file)


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="accel-ci-")
        self.addCleanup(self.folder.cleanup)
        with open(f"{self.folder.name}/empty.cpp", "w") as file:
            file.write("int main() { return 0; }\n")
        with open(f"{self.folder.name}/plain.cpp", "w") as file:
            file.write("#include <torch/torch.h>\nint main() {\n  torch::nn::Linear net(1, 1);\n"
                       "  torch::optim::SGD optimizer(net->parameters(), 0.1);\n  for (int i = 0; i < 3; ++i) {\n"
                       "    auto loss = net->forward(torch::randn({8, 1})).pow(2).mean();\n"
                       "    optimizer.zero_grad();\n    loss.backward();\n    optimizer.step();\n  }\n}\n")

    def run_bash(self, command, **variables):
        environment = dict(os.environ, PATH=f"{BUILD}/bin:{os.environ['PATH']}", **variables)
        return subprocess.run(["bash", "-eo", "pipefail", "-c", command], cwd=self.folder.name, env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_hooks(self):
        hooks = load(".pre-commit-hooks.yaml")
        self.assertEqual({"accel-lint", "accel-check"}, {hook["id"] for hook in hooks})
        for hook in hooks:
            self.assertLessEqual({"id", "name", "entry", "language"}, set(hook))
            self.assertTrue(re.search(hook["files"], "src/train.cpp"))
            self.assertFalse(re.search(hook["files"], "src/train.cpp.txt"))
            command = hook["entry"] + " "
            good = self.run_bash(command + "empty.cpp --")
            self.assertEqual((0, ""), (good.returncode, good.stdout), hook["id"])
        check = next(hook for hook in hooks if hook["id"] == "accel-check")
        bad = self.run_bash(check["entry"] + " empty.cpp plain.cpp")
        self.assertEqual((1, "plain.cpp\n"), (bad.returncode, bad.stdout))

    def sarif(self, command, code, **variables):
        said = self.run_bash(command, **variables)
        self.assertEqual(code, said.returncode, said.stdout)
        with open(f"{self.folder.name}/accel.sarif") as file:
            log = json.load(file)
        self.assertEqual("2.1.0", log["version"])
        self.assertEqual("accel-migrate", log["runs"][0]["tool"]["driver"]["name"])
        return log

    def test_action(self):
        action = load("packaging/github/action.yml")
        self.assertEqual("composite", action["runs"]["using"])
        for step in action["runs"]["steps"]:
            self.assertLessEqual({"shell", "run"}, set(step))
            for value in step["env"].values():
                used = re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value)
                self.assertIn(used[1], action["inputs"])
            # What comes from outside reaches the shell as a variable, never as its text.
            self.assertNotIn("${{", step["run"])
        step = action["runs"]["steps"][-1]
        common = {"ACCEL_SARIF": "accel.sarif", "ACCEL_FLAGS": ""}
        self.sarif(step["run"], 0, ACCEL_PATHS="empty.cpp", ACCEL_MODE="lint", **common)
        log = self.sarif(step["run"], 1, ACCEL_PATHS="plain.cpp", ACCEL_MODE="check", **common)
        self.assertTrue(log["runs"][0]["results"])
        wrong = self.run_bash(step["run"], ACCEL_PATHS="empty.cpp", ACCEL_MODE="write", **common)
        self.assertEqual(2, wrong.returncode)

    def test_template(self):
        template = load("packaging/gitlab/accel.gitlab-ci.yml")
        script = "\n".join(template[".accel-migrate"]["script"])
        for job in (".accel-lint", ".accel-check"):
            self.assertEqual(".accel-migrate", template[job]["extends"])
            variables = dict(template[".accel-migrate"]["variables"], **template[job]["variables"])
            variables["ACCEL_PATHS"] = "plain.cpp" if job == ".accel-check" else "empty.cpp"
            self.sarif(script, 1 if job == ".accel-check" else 0, **variables)
        self.assertEqual(0, self.run_bash("\n".join(template[".accel-migrate"]["before_script"]), ACCEL_INSTALL="").returncode)

    def test_dockerfile_copies_what_is_there(self):
        with open(os.path.join(ROOT, "Dockerfile"), encoding="utf-8") as file:
            text = file.read().replace("\\\n", " ")
        for line in text.splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] == "COPY" and not any(word.startswith("--from") for word in words):
                for name in words[1:-1]:
                    self.assertTrue(os.path.exists(os.path.join(ROOT, name)), name)
        for script in re.findall(r"scripts/[\w-]+", text):
            self.assertTrue(os.access(os.path.join(ROOT, script), os.X_OK), script)


if __name__ == "__main__":
    unittest.main()
