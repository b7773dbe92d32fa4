"""What scripts/setup, scripts/common.sh and CMake say where something is missing: one line with the remedy.

Programs of the system are replaced by small ones that fail as the real ones do (`tools`).
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# All that the scripts call besides what a test replaces.
USED = ("awk bash cat cmake cmp cp cut date df dirname dpkg-query env find flock grep head id mkdir mktemp mv ninja "
        "python3 rm sed sh tail touch tr clang++-19 apt-get").split()


class Machine(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="accel-scripts-")
        self.addCleanup(shutil.rmtree, self.folder)
        # A clone with nothing but scripts, and a PATH with nothing but what is named here.
        self.clone = os.path.join(self.folder, "clone")
        shutil.copytree(os.path.join(ROOT, "scripts"), os.path.join(self.clone, "scripts"))
        self.bin = os.path.join(self.folder, "bin")
        os.mkdir(self.bin)
        for name in USED:
            path = shutil.which(name)
            if path:
                os.symlink(path, os.path.join(self.bin, name))
        self.tools(**{"apt-get": "exit 0", "dpkg-query": "echo ii", "cmake": "exit 0", "ninja": "exit 0",
                      "id": "echo 0"})

    def tools(self, **texts):
        for name, text in texts.items():
            path = os.path.join(self.bin, name)
            if os.path.lexists(path):
                os.remove(path)
            with open(path, "w") as file:
                file.write(f"#!{shutil.which('bash')}\n{text}\n")
            os.chmod(path, 0o755)

    def run_script(self, *command, **environment):
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ACCEL_")}
        return subprocess.run(command, cwd=self.clone, env={**inherited, "PATH": self.bin, **environment},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)

    def build(self, **environment):
        return self.run_script("bash", "-c", "set -euo pipefail; . scripts/common.sh; configure_and_build all",
                               **environment)

    def refused(self, result, *parts):
        """One line on standard error, with these parts."""
        self.assertNotEqual(result.returncode, 0, result.stdout)
        lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(lines), 1, result.stderr)
        for part in parts:
            self.assertIn(part, lines[0])

    def libtorch(self):
        """What looks to scripts/setup like a LibTorch."""
        lib = os.path.join(self.folder, "libtorch", "lib")
        os.makedirs(lib)
        open(os.path.join(lib, "libtorch_cpu.so"), "w").close()
        return os.path.dirname(lib)


class Setup(Machine):
    def test_is_content_where_nothing_is_missing(self):
        result = self.run_script("scripts/setup", ACCEL_LIBTORCH=self.libtorch())
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_no_root_and_no_sudo(self):
        self.tools(**{"dpkg-query": "exit 1", "id": "echo 1000"})
        self.refused(self.run_script("scripts/setup"), "not root, and no sudo", "As root: apt-get install", " clang-19 ")

    def test_no_network_for_lists(self):
        self.tools(**{"dpkg-query": "exit 1", "apt-get": "[ $1 != update ] || exit 100"})
        self.refused(self.run_script("scripts/setup"), "could not be fetched", "is there a network?")

    def test_no_network_for_packages(self):
        self.tools(**{"dpkg-query": "exit 1", "apt-get": "[ $1 = update ] || exit 100"})
        self.refused(self.run_script("scripts/setup"), "could not be installed", "by hand: apt-get install")

    def test_no_network_for_libtorch(self):
        self.tools(python3="exit 1")
        self.refused(self.run_script("scripts/setup", "--no-packages"), "the wheels of LibTorch could not be fetched",
                     "is there a network?", "ACCEL_LIBTORCH=DIR")
        self.assertEqual(os.listdir(os.path.join(self.clone, ".deps")), [], "what was begun is left behind")

    def test_no_room_for_libtorch(self):
        self.tools(df="echo Filesystem; echo disk 100 98 20 90% /")
        self.refused(self.run_script("scripts/setup", "--no-packages"), "LibTorch needs 1500 MB", "20 MB are free")

    def test_read_only_source(self):
        # Root may write everywhere: a file stands where the folder would be made.
        open(os.path.join(self.clone, ".deps"), "w").close()
        self.refused(self.run_script("scripts/setup", "--no-packages"), ".deps cannot be written",
                     "ACCEL_LIBTORCH=DIR ACCEL_BUILD_DIR=DIR scripts/demo")

    def test_a_libtorch_that_is_none(self):
        self.refused(self.run_script("scripts/setup", "--no-packages", ACCEL_LIBTORCH=self.folder),
                     "has no lib/libtorch_cpu.so", "unset it")


class Build(Machine):
    def test_shows_how_far_it_is(self):
        self.tools(ninja="for i in $(seq 20); do echo \"[$i/20] Building $i\"; done".replace(
            "$(seq 20)", " ".join(str(i) for i in range(1, 21))))
        result = self.build()
        self.assertEqual(result.returncode, 0, result.stderr)
        for line in ("     10 %  2 of 20 steps", "    100 %  20 of 20 steps"):
            self.assertIn(line, result.stdout.splitlines())
        with open(os.path.join(self.clone, "build", "quick", "build.log")) as log:
            self.assertIn("[20/20] Building 20", log.read())

    def test_says_what_does_not_compile(self):
        self.tools(ninja="echo '[1/9] Building a.o'; echo 'FAILED: a.o'; echo 'a.cpp:1: error: no'; exit 1")
        result = self.build()
        self.refused(result, "the build failed", "build.log")
        self.assertIn("a.cpp:1: error: no", result.stderr)

    def test_full_disk(self):
        self.tools(ninja="echo 'FAILED: a.o'; echo 'fatal error: error in backend: IO failure on output stream: No space left on device'; exit 1")
        self.refused(self.build(), "is full", "start again")

    def test_no_memory(self):
        self.tools(ninja="echo 'FAILED: a.o'; echo 'Killed'; exit 1")
        self.refused(self.build(), "lack of memory", "CMAKE_BUILD_PARALLEL_LEVEL=1")

    def test_no_compiler(self):
        os.remove(os.path.join(self.bin, "clang++-19"))
        self.refused(self.build(), "clang++-19", "scripts/setup", "apt-get install clang-19")

    def test_cmake_fails(self):
        self.tools(cmake="printf -- '-- Found\\nCMake Error at tool/CMakeLists.txt:18 (message):\\n  This is\\n  wrong.\\n\\n\\n-- Incomplete\\n'; exit 1")
        self.refused(self.build(), "error: This is wrong. All of what cmake said is in ")

    def test_folder_that_cannot_be_written(self):
        blocked = os.path.join(self.folder, "file")
        open(blocked, "w").close()
        self.refused(self.build(ACCEL_BUILD_DIR=os.path.join(blocked, "build")), "cannot be written", "ACCEL_BUILD_DIR=DIR")

    def test_path_with_spaces(self):
        spaced = os.path.join(self.folder, "my clone")
        os.rename(self.clone, spaced)
        self.clone = spaced
        for script in ("scripts/demo", "scripts/test", "scripts/setup"):
            self.refused(self.run_script(script), "has a space in it", "move it: mv ")

    def test_two_at_once(self):
        folder = os.path.join(self.clone, "build", "quick")
        os.makedirs(folder)
        self.tools(ninja=f"date +%s.%N >{self.folder}/started")
        with open(os.path.join(folder, "lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            ended = []

            def release():
                time.sleep(1.5)
                ended.append(time.time())
                fcntl.flock(lock, fcntl.LOCK_UN)

            thread = threading.Thread(target=release)
            thread.start()
            result = self.build()
            thread.join()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Another build is at work", result.stdout)
        with open(os.path.join(self.folder, "started")) as file:
            self.assertGreaterEqual(float(file.read()), ended[0])


class CMake(Machine):
    def configure(self, *settings):
        return subprocess.run(
            ["cmake", "-S", ROOT, "-B", os.path.join(self.folder, "build"), "-G", "Ninja", "-DACCEL_BUILD_RUNTIME=OFF",
             "-DACCEL_BUILD_LAUNCHER=OFF", "-DACCEL_BUILD_TESTS=OFF", *settings],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)

    def failed(self, result, *parts):
        self.assertNotEqual(result.returncode, 0, result.stdout)
        text = " ".join(result.stderr.split())
        self.assertEqual(text.count("CMake Error"), 1, text)
        for part in parts:
            self.assertIn(part, text)

    def libtorch_of(self, version, symbols):
        root = os.path.join(self.folder, "libtorch")
        for name, text in {
                "include/torch/csrc/api/include/torch/torch.h": "",
                "include/torch/headeronly/version.h": "".join(
                    f"#define TORCH_VERSION_{part} {number}\n"
                    for part, number in zip(("MAJOR", "MINOR", "PATCH"), version)),
                "lib/libtorch_cpu.so": "", "lib/libc10.so": symbols}.items():
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text)
        return "-DACCEL_LIBTORCH=" + root

    def test_llvm_too_old(self):
        for package in ("LLVM", "Clang"):
            folder = os.path.join(self.folder, package)
            os.mkdir(folder)
            with open(os.path.join(folder, f"{package}Config.cmake"), "w") as file:
                file.write("set(LLVM_VERSION_MAJOR 14)\nset(LLVM_PACKAGE_VERSION 14.0.6)\n")
        result = self.configure(f"-DLLVM_DIR={self.folder}/LLVM", f"-DClang_DIR={self.folder}/Clang",
                                self.libtorch_of((2, 11, 0), "_ZNSt7__cxx1112basic_stringIcE"))
        self.failed(result, "written for LLVM 19, found 14.0.6", "Run scripts/setup")

    def test_libtorch_too_old(self):
        self.failed(self.configure(self.libtorch_of((2, 6, 0), "_ZNSt7__cxx1112basic_stringIcE")),
                    "LibTorch 2.6.0", "is too old: accel needs 2.7 or newer")

    def test_libtorch_of_another_abi(self):
        self.failed(self.configure(self.libtorch_of((2, 11, 0), "_ZN3c105ErrorC1ESs")),
                    "LibTorch 2.11.0", "another ABI", "-DACCEL_LIBTORCH=DIR", "scripts/setup")


if __name__ == "__main__":
    unittest.main()
