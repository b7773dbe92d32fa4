"""Packs an install tree of the components tool and launcher into a Python wheel.

    build_wheel.py --stage DIR --version V --epoch SECONDS --out DIR [--readme FILE]

The commands are in the wheel as they are, without Python around them: pip puts
them into the environment's bin/, and what they read into its lib/accel. The same
tree makes the same bytes: files are sorted and dated with `--epoch`.
"""

import argparse
import base64
import hashlib
import os
import re
import subprocess
import sys
import time
import zipfile

NAME = "accel_migrate"


def oldest_glibc(programs):
    """The newest version of glibc's symbols that the programs use: (2, 34)."""
    newest = (2, 17)
    for program in programs:
        symbols = subprocess.run(["objdump", "-T", program], check=True, text=True, stdout=subprocess.PIPE).stdout
        for version in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols):
            newest = max(newest, tuple(map(int, version)))
    return newest


def metadata(version, readme):
    head = f"""\
Metadata-Version: 2.1
Name: accel-migrate
Version: {version}
Summary: Turns single-device LibTorch training programs into distributed ones
License: Apache-2.0
Keywords: libtorch,pytorch,c++,distributed training,refactoring
Classifier: Environment :: Console
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C++
Classifier: Topic :: Software Development :: Code Generators
Requires-Python: >=3.7
Provides-Extra: torch
Requires-Dist: torch>=2.7; extra == "torch"
Description-Content-Type: text/markdown
"""
    return head + "\n" + readme


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--epoch", required=True, type=int)
    parser.add_argument("--out", required=True)
    parser.add_argument("--readme")
    options = parser.parse_args()

    dist_info = f"{NAME}-{options.version}.dist-info"
    data = f"{NAME}-{options.version}.data"
    programs = [os.path.join(options.stage, "bin", name) for name in ("accel", "accel-migrate")]
    for program in programs:
        if not os.path.isfile(program):
            sys.exit(f"error: {program} is missing; install the components tool and launcher there")
    major, minor = oldest_glibc(programs)
    tag = f"py3-none-manylinux_{major}_{minor}_{os.uname().machine}"

    files = {}  # name in the wheel: (bytes, mode)
    for folder, _, names in os.walk(options.stage):
        for name in names:
            path = os.path.join(folder, name)
            relative = os.path.relpath(path, options.stage)
            top, _, rest = relative.partition("/")
            if top == "bin" and path not in programs:
                continue
            target = f"{data}/scripts/{rest}" if top == "bin" else f"{data}/data/{relative}"
            with open(path, "rb") as file:
                files[target] = file.read(), 0o755 if top == "bin" else 0o644
    readme = ""
    if options.readme:
        with open(options.readme, encoding="utf-8") as file:
            readme = file.read()
    for name, text in (("METADATA", metadata(options.version, readme)),
                       ("WHEEL", f"Wheel-Version: 1.0\nGenerator: accel\nRoot-Is-Purelib: false\nTag: {tag}\n")):
        files[f"{dist_info}/{name}"] = text.encode(), 0o644

    def digest(content):
        return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()

    record = "".join(f"{name},{digest(content)},{len(content)}\n" for name, (content, _) in sorted(files.items()))
    files[f"{dist_info}/RECORD"] = (record + f"{dist_info}/RECORD,,\n").encode(), 0o644

    # pip reads the record last; ZIP knows no time before 1980.
    date = time.gmtime(max(options.epoch, 315532800))[:6]
    os.makedirs(options.out, exist_ok=True)
    wheel = os.path.join(options.out, f"{NAME}-{options.version}-{tag}.whl")
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, (content, mode) in sorted(files.items(), key=lambda item: (item[0].startswith(dist_info), item[0])):
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            entry.create_system = 3
            archive.writestr(entry, content, compresslevel=9)
    print(wheel)


if __name__ == "__main__":
    main()
