"""Builds the C library with cargo and puts it beside the package.

Everything else about the package is in pyproject.toml. The crate is two
directories up in the project, and in ./crate in a source distribution.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
CRATE = HERE / "crate" if (HERE / "crate").is_dir() else HERE.parent.parent

# What cargo needs to build the library.
CRATE_FILES = ["Cargo.toml", "Cargo.lock", "build.rs", "rust-toolchain.toml", "cbindgen.toml"]
CRATE_DIRECTORIES = ["src", "include"]


class Binary(Distribution):
    """A package with a compiled part: it is installed where those go."""

    def has_ext_modules(self) -> bool:
        return True


class Wheel(bdist_wheel):
    """Of one platform, but for every Python 3: nothing links to Python."""

    def get_tag(self) -> "tuple[str, str, str]":
        return "py3", "none", super().get_tag()[2]


class Build(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # there DLEASE_LIBRARY names the library
            shutil.copyfile(build_library(), Path(self.build_lib, "dlease", "libdlease.so"))


class Source(sdist):
    def make_release_tree(self, base_dir: str, files: "list[str]") -> None:
        super().make_release_tree(base_dir, files)
        target = Path(base_dir, "crate")
        target.mkdir()
        for name in CRATE_FILES + [found.name for found in CRATE.glob("LICENSE*")]:
            shutil.copy(CRATE / name, target)
        for name in CRATE_DIRECTORIES:
            shutil.copytree(CRATE / name, target / name)
        manifest = target / "Cargo.toml"
        manifest.write_text(without_tests(manifest.read_text()))


def without_tests(manifest: str) -> str:
    """The manifest without the targets whose files are not shipped. Its
    dependencies stay, so that Cargo.lock fits."""
    return re.sub(r"(?ms)^\[\[(example|test|bench)\]\]\n.*?(?=^\[|\Z)", "", manifest)


def build_library() -> str:
    """Builds the library, which takes minutes the first time; its path."""
    if shutil.which("cargo") is None:
        raise RuntimeError("dlease is built by cargo, which is not on the PATH: see https://rustup.rs")
    command = ["cargo", "rustc", "--release", "--locked", "--lib", "--crate-type", "cdylib"]
    # cargo says where the file is, wherever CARGO_TARGET_DIR and the like point.
    messages = subprocess.run(
        [*command, "--message-format=json-render-diagnostics"],
        cwd=CRATE, check=True, stdout=subprocess.PIPE, text=True,
    ).stdout
    for message in map(json.loads, messages.splitlines()):
        if message["reason"] == "compiler-artifact" and "cdylib" in message["target"]["crate_types"]:
            for name in message["filenames"]:
                if name.endswith(".so"):
                    return name
    raise RuntimeError("cargo built no libdlease.so")


setup(
    distclass=Binary,
    cmdclass={"bdist_wheel": Wheel, "build_py": Build, "sdist": Source},
)
