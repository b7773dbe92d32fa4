"""Makes the data that the programs of one corpus repository read, in
datasets/NAME below the current folder: folders of small PNG images, with
labels beside them or a folder for each class.

    image_folders.py --dataset NAME [--class_list FILE] [...the program's options]

In each of train, valid and test, and with the endings of pairs (I and O, A and
B, 1 and 2, LR and HR), lie 12 images. Where the program is given a class list
and no boxes, there is a folder for each class.
"""

import argparse
import os
import random
import struct
import zlib

SIZE = 64
COUNT = 12
ENDINGS = ("", "I", "O", "A", "B", "1", "2", "3", "LR", "HR", "N", "GT", "P")


def png(path, pixels, palette=None):
    """Writes rows of bytes: RGB, or indices where there is a palette."""
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    width = len(pixels[0]) // (1 if palette else 3)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, len(pixels), 8, 3 if palette else 2, 0, 0, 0)))
        if palette:
            file.write(chunk(b"PLTE", palette))
        file.write(chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in pixels))) + chunk(b"IEND", b""))


def picture(rng):
    tint = [rng.randrange(64, 192) for _ in range(3)]
    return [bytes(max(0, min(255, tint[c] + 2 * x - y + rng.randrange(-20, 20))) for x in range(SIZE) for c in range(3))
            for y in range(SIZE)]


def labels(rng, classes):
    split = rng.randrange(8, SIZE - 8)
    left, right = rng.randrange(classes), rng.randrange(classes)
    return [bytes(left if x < split else right for x in range(SIZE)) for _ in range(SIZE)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--class_list")
    parser.add_argument("--class_num", type=int, default=0)
    parser.add_argument("--nd", type=int, default=0)
    options, rest = parser.parse_known_args()
    boxes = "--prob_thresh" in rest or "--Lambda_noobject" in rest
    segments = bool(options.class_num) and not options.class_list
    classes = []
    if options.class_list and not boxes:
        with open(options.class_list, encoding="utf-8") as file:
            classes = file.read().split()
    rng = random.Random(0)
    for part in ("train", "valid", "test"):
        for ending in ENDINGS:
            folder = os.path.join("datasets", options.dataset, part + ending)
            for name in classes or ["."]:
                os.makedirs(os.path.join(folder, name), exist_ok=True)
            for number in range(COUNT):
                place = os.path.join(folder, classes[number % len(classes)] if classes else ".")
                if boxes and ending == "O":
                    with open(os.path.join(place, f"{number:03}.txt"), "w", encoding="utf-8") as file:
                        for _ in range(2):
                            file.write(f"{rng.randrange(options.class_num or 1)} {rng.uniform(.3, .7):.4f} {rng.uniform(.3, .7):.4f} "
                                       f"{rng.uniform(.1, .5):.4f} {rng.uniform(.1, .5):.4f}\n")
                elif segments and ending == "O":
                    palette = bytes(rng.randrange(256) for _ in range(3 * 256))
                    png(os.path.join(place, f"{number:03}.png"), labels(rng, options.class_num), palette)
                elif ending == "P":
                    with open(os.path.join(place, f"{number:03}.txt"), "w", encoding="utf-8") as file:
                        file.write(" ".join(f"{value:.5f}" for value in (
                            1, 0, 0, rng.uniform(-.2, .2), 0, 1, 0, rng.uniform(-.2, .2), 0, 0, 1, 2, 0, 0, 0, 1)))
                elif options.nd:
                    with open(os.path.join(place, f"{number:03}.dat"), "w", encoding="utf-8") as file:
                        file.writelines(f"{rng.gauss(0, 1):.6f}\n" for _ in range(options.nd))
                else:
                    png(os.path.join(place, f"{number:03}.png"), picture(rng))


if __name__ == "__main__":
    main()
