"""Data sets that programs read, made up: the right format and size, learnable
noise inside. A program is run, and what it says it misses is put there.
"""

import os
import random
import re
import struct

MNIST = {"train-images-idx3-ubyte": (60000, True), "train-labels-idx1-ubyte": (60000, False),
         "t10k-images-idx3-ubyte": (10000, True), "t10k-labels-idx1-ubyte": (10000, False)}
CIFAR = [f"data_batch_{index}.bin" for index in range(1, 6)] + ["test_batch.bin"]


class Store:
    """Makes each data set once, in `folder`, and links it to where it is missed."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)

    def _once(self, name, make):
        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            with open(path + ".part", "wb") as file:
                make(file, random.Random(name))
            os.rename(path + ".part", path)
        return path

    def mnist(self, name):
        count, images = MNIST[name]

        def make(file, rng):
            labels = random.Random(count)
            if images:
                file.write(struct.pack(">iiii", 2051, count, 28, 28))
            else:
                file.write(struct.pack(">ii", 2049, count))
            # 256 images in turn; the label says which part is bright.
            noise = [bytes(rng.randrange(64) for _ in range(784)) for _ in range(64)]
            for _ in range(count):
                label = labels.randrange(10)
                if not images:
                    file.write(bytes([label]))
                    continue
                image = bytearray(noise[rng.randrange(64)])
                for pixel in range(label * 78, label * 78 + 78):
                    image[pixel] = 128 + image[pixel]
                file.write(image)

        return self._once(name, make)

    def cifar(self, name):
        def make(file, rng):
            noise = [bytes(rng.randrange(64) for _ in range(3072)) for _ in range(64)]
            for _ in range(10000):
                label = rng.randrange(10)
                image = bytearray(noise[rng.randrange(64)])
                for pixel in range(label * 300, label * 300 + 300):
                    image[pixel] = 128 + image[pixel]
                file.write(bytes([label]) + image)

        return self._once(name, make)

    def text(self, name):
        def make(file, rng):
            words = ["".join(rng.choice("abcdefghij") for _ in range(rng.randrange(2, 7))) for _ in range(200)]
            for _ in range(2000):
                file.write((" ".join(rng.choice(words) for _ in range(12)) + "\n").encode())

        return self._once(name, make)

    def tokens(self, name):
        """Of nanoGPT's form: 16 bits each, of 65 characters."""
        def make(file, rng):
            phrase = [rng.randrange(65) for _ in range(40)]
            for _ in range(2000):
                file.write(struct.pack("<20H", *(phrase[(index + rng.randrange(2)) % 40] for index in range(20))))

        return self._once(name, make)


_ABSOLUTE = re.compile(r'"(/(?:home|Users|scratch|root|media|mnt|data|workspace|opt)/[^"\n]*|[A-Z]:(?:/|\\\\)[^"\n]*)"')


def localise(root, endings, replace=(), without_cuda=False):
    """Turns absolute paths of an author's machine, in string literals of the
    sources below `root`, into paths below the working directory; and replaces what
    a recipe says: pairs of a pattern and a text. `without_cuda`: CUDA devices become
    the CPU, for a program that asks for one without looking whether there is one."""
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != ".git"]
        for name in names:
            path = os.path.join(folder, name)
            if not name.endswith(endings) or not os.path.isfile(path):
                continue
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                text = file.read()
            local = _ABSOLUTE.sub(lambda match: f'"{_local(match.group(1))}"', text)
            for pattern, replacement in replace:
                local = re.sub(pattern, replacement, local)
            if without_cuda:
                for pattern, replacement in _ON_CPU:
                    local = pattern.sub(replacement, local)
            if local != text:
                with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
                    file.write(local)


# Where the program names the device. What it asks, as torch::cuda::is_available(), stays.
_ON_CPU = ((re.compile(r"\bkCUDA\b"), "kCPU"), (re.compile(r"\bDeviceType::CUDA\b"), "DeviceType::CPU"),
           (re.compile(r'"cuda(?::\d+)?"'), '"cpu"'), (re.compile(r"\.cuda\(\)"), ".cpu()"))


def _local(path):
    name = re.split(r"[/\\]+", path.rstrip("/\\"))[-1]
    return "./" + name + ("/" if path.endswith(("/", "\\")) else "")


def provide(store, said, cwd, root):
    """Puts the files and folders that the error text `said` misses where they are
    looked for from `cwd`, never outside of `root`. Returns whether something was put."""
    for match in re.finditer(r"(\S*?)(train-(?:images|labels)-idx\d-ubyte|t10k-(?:images|labels)-idx\d-ubyte)", said):
        folder = os.path.join(cwd, match.group(1).strip("'\"`:") or ".")
        if _put(folder, root, {name: store.mnist(name) for name in MNIST}):
            return True
    for match in re.finditer(r"(?:\bat(?=\.))?(\S*?)((?:data_batch_\d|test_batch)\.bin)", said):
        folder = os.path.join(cwd, match.group(1).strip("'\"`:") or ".")
        if _put(folder, root, {name: store.cifar(name) for name in CIFAR}):
            return True
    # Folders that its author had.
    for match in re.finditer(r"[Pp]arent directory (\S+) does not exist", said):
        folder = os.path.normpath(os.path.join(cwd, match.group(1)))
        if (folder + os.sep).startswith(root + os.sep) and not os.path.exists(folder):
            os.makedirs(folder)
            return True
    # Text to learn a language from.
    for match in re.finditer(r"(?:path|file|open)\W+(\S+?\.txt)\b", said):
        if _put(cwd, root, {match.group(1): store.text("words.txt")}):
            return True
    for match in re.finditer(r"(?:path|file|open)\W+(\S*?\b(?:train|val)\.bin)\b", said):
        if _put(cwd, root, {match.group(1): store.tokens("tokens.bin")}):
            return True
    return False


def _put(folder, root, files):
    folder = os.path.normpath(folder)
    if not (folder + os.sep).startswith(root + os.sep):
        return False
    put = False
    try:
        os.makedirs(folder, exist_ok=True)
        for name, path in files.items():
            target = os.path.normpath(os.path.join(folder, name))
            if not (target + os.sep).startswith(root + os.sep):
                return False
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if not os.path.exists(target):
                os.symlink(path, target)
                put = True
    except OSError:
        return False
    return put
