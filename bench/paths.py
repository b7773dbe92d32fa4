"""Types of command line arguments that name programs and folders: absolute paths, so that a measurement may go to another folder."""

import argparse
import os
import shutil


def program_path(value):
    """A path from the current folder where it holds a slash, otherwise a name in $PATH or of a file in this folder."""
    path = os.path.abspath(value) if os.sep in value else shutil.which(value) or os.path.abspath(value)
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise argparse.ArgumentTypeError(f"{value}: there is no program {path}")
    # Links are kept: the Python of a virtual environment is one.
    return os.path.abspath(path)


def folder_path(value):
    path = os.path.abspath(value)
    if not os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"{value}: there is no folder {path}")
    return path


def built_path(build, *parts):
    """A file below a build folder."""
    path = os.path.join(build, *parts)
    if not os.path.isfile(path):
        raise SystemExit(f"{path} is missing; build it with -DACCEL_BUILD_BENCH=ON")
    return path
