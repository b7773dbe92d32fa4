"""What accel-migrate has made of the examples in this build is what is kept beside them, byte for byte.

    kept_examples.py --examples DIR --migrated DIR

Of each folder of examples/ with a *.accel.cpp: the same files, no more, with the same text.
"""

import argparse
import difflib
import os
import sys

SUFFIX = ".accel.cpp"


def text_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", required=True)
    parser.add_argument("--migrated", required=True, help="a folder for each example")
    options = parser.parse_args()
    compared, wrong = 0, False
    for name in sorted(os.listdir(options.examples)):
        example, migrated = os.path.join(options.examples, name), os.path.join(options.migrated, name)
        kept = {file for file in os.listdir(example) if file.endswith(SUFFIX)} if os.path.isdir(example) else set()
        if not kept:
            continue
        made = set(os.listdir(migrated)) if os.path.isdir(migrated) else set()
        if made != {file.replace(SUFFIX, ".cpp") for file in kept}:
            print(f"{name}: kept are {sorted(kept)}, made were {sorted(made)}")
            wrong = True
            continue
        for file in sorted(kept):
            ours, theirs = os.path.join(example, file), os.path.join(migrated, file.replace(SUFFIX, ".cpp"))
            compared += 1
            if text_of(ours) != text_of(theirs):
                wrong = True
                print("".join(difflib.unified_diff(text_of(ours).splitlines(True), text_of(theirs).splitlines(True), ours, theirs)))
    print(f"{compared} files compared")
    return 1 if wrong or compared < 9 else 0


if __name__ == "__main__":
    sys.exit(main())
