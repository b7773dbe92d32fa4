"""Makes a Debian package of CPack's reproducible, in place: repack.py EPOCH FILE...

CPack keeps the time at which each file was written by the build. Here every file gets the time of the commit.
"""

import os
import subprocess
import sys
import tempfile


def repack(epoch, package):
    with tempfile.TemporaryDirectory() as folder:
        tree = os.path.join(folder, "tree")
        subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
        for path, folders, names in os.walk(tree):
            for name in folders + names:
                os.utime(os.path.join(path, name), (epoch, epoch), follow_symlinks=False)
        os.chmod(tree, 0o755)
        os.utime(tree, (epoch, epoch))
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", tree, package], check=True,
                       stdout=subprocess.DEVNULL, env=dict(os.environ, SOURCE_DATE_EPOCH=str(epoch)))


if __name__ == "__main__":
    for name in sys.argv[2:]:
        repack(int(sys.argv[1]), name)
