"""two_clones.py LIBTORCH COMPILER: what one clone has compiled, ccache finds in another, at another path.

A small part of the project, with a precompiled header and sources that are compiled together, is built in two copies of
the sources with a cache of its own. In the second every object has to come from the cache but that of the one source in
which folders stand (launcher/layout.cpp.in). Exit code 77 where there is no ccache.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main():
    libtorch, compiler = sys.argv[1:]
    if not shutil.which("ccache"):
        print("no ccache here")
        return 77
    with tempfile.TemporaryDirectory(prefix="accel-clones-") as folder:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CCACHE_")}
        environment["CCACHE_DIR"] = os.path.join(folder, "cache")
        before = 0
        for name in ("one", "elsewhere/and/deeper/two"):
            clone = os.path.join(folder, name)
            for part in ("CMakeLists.txt", "CMakePresets.json", "cmake", "runtime", "templates"):
                source, target = os.path.join(ROOT, part), os.path.join(clone, part)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                (shutil.copytree if os.path.isdir(source) else shutil.copy2)(source, target)
            run = lambda *command: subprocess.run(command, cwd=clone, env=environment, check=True, text=True,
                                                  stdout=subprocess.PIPE, stdin=subprocess.DEVNULL).stdout
            run("cmake", "--preset", "quick", f"-DACCEL_LIBTORCH={libtorch}", f"-DCMAKE_CXX_COMPILER={compiler}",
                "-DACCEL_BUILD_TESTS=OFF", "-DACCEL_BUILD_TOOL=OFF", "-DACCEL_BUILD_RUNTIME=OFF",
                "-DACCEL_SANITIZED_LIBRARY=OFF")
            # Of that library not what is the dearest: the readers, a source that is optimised, and the one with folders.
            targets = re.findall(r"^(\S*/accel_launcher_lib\.dir/\S+\.cpp\.o): ", run("ninja", "-C", "build/quick", "-t", "targets", "all"), re.M)
            said = run("ninja", "-C", "build/quick", *(target for target in targets if "/launcher___" not in target))
            objects = len(re.findall(r"Building CXX object", said))
            counts = dict(line.split("\t")[:2] for line in run("ccache", "--print-stats").splitlines() if "\t" in line)
            hits = int(counts["direct_cache_hit"]) + int(counts["preprocessed_cache_hit"])
            print(f"{name}: {objects} objects, {hits - before} of them from the cache")
            if objects < 4:
                print("too few objects to show anything")
                return 1
            wanted = 0 if before == 0 and name == "one" else objects - 1
            if hits - before != wanted:
                print(f"{wanted} were expected")
                return 1
            before = hits
    return 0


if __name__ == "__main__":
    sys.exit(main())
