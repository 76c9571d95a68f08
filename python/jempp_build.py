"""Builds the Python package: the backend of `pip install .` (PEP 517) and of `make wheel`.

jempp_build.py [FOLDER] writes the wheel to FOLDER (default: build/dist). It needs nothing but make
and what make needs: the library, the CPU device and the libraries that they use become part of the
wheel, and no version of Python matters to them.
"""

import base64
import hashlib
import io
import os
import platform
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = "jempp"
DATE = (1980, 1, 1, 0, 0, 0)            # the same files give the same wheel


def version():
    header = (ROOT / "include/jempp.h").read_text()
    return re.search(r'define JEMPP_VERSION "(.*)"', header).group(1)


def metadata():
    return f"""Metadata-Version: 2.1
Name: {NAME}
Version: {version()}
Summary: Joint energy-based models (JEM++): train, classify, score, sample
License: {(ROOT / "LICENSE").read_text().split(chr(10))[0].strip()}
Requires-Python: >=3.9
Requires-Dist: numpy>=1.21
Description-Content-Type: text/markdown

{(ROOT / "docs/python.md").read_text()}"""


def build_library():
    """The folder of the shared libraries."""
    subprocess.run(["make", "-C", str(ROOT), "--no-print-directory", f"-j{os.cpu_count()}",
                    "wheel-folder"], check=True, stdout=sys.stderr)
    return ROOT / "build/release/wheel/lib"


def platform_tag(folder):
    """manylinux with the newest version of glibc that a library asks for."""
    machine = platform.machine()
    minor = [int(v) for f in folder.iterdir()
             for v in re.findall(rb"\0GLIBC_2\.(\d+)\b", f.read_bytes())]
    return f"manylinux_2_{max(minor)}_{machine}" if minor else f"linux_{machine}"


class Wheel:
    def __init__(self, path):
        self.zip, self.record = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED), []

    def add(self, name, data):
        info = zipfile.ZipInfo(name, DATE)
        info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
        self.zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}\n")

    def close(self, info):
        self.zip.writestr(zipfile.ZipInfo(f"{info}/RECORD", DATE),
                          "".join(self.record) + f"{info}/RECORD,,\n")
        self.zip.close()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    libraries = build_library()
    tag = f"py3-none-{platform_tag(libraries)}"
    info, file = f"{NAME}-{version()}.dist-info", f"{NAME}-{version()}-{tag}.whl"
    Path(wheel_directory).mkdir(parents=True, exist_ok=True)
    wheel = Wheel(Path(wheel_directory) / file)
    for source in sorted((ROOT / "python" / NAME).glob("*.py*")):
        if source.is_file():
            wheel.add(f"{NAME}/{source.name}", source.read_bytes())
    wheel.add(f"{NAME}/py.typed", b"")
    for library in sorted(libraries.iterdir()):
        wheel.add(f"{NAME}/lib/{library.name}", library.read_bytes())
    wheel.add(f"{info}/LICENSE", (ROOT / "LICENSE").read_bytes())
    wheel.add(f"{info}/METADATA", metadata().encode())
    wheel.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: jempp_build\n"
                               f"Root-Is-Purelib: false\nTag: {tag}\n".encode())
    wheel.close(info)
    return file


def build_sdist(sdist_directory, config_settings=None):
    top = f"{NAME}-{version()}"
    files = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], check=True,
                           capture_output=True).stdout.decode().split("\0")[:-1]
    with tarfile.open(Path(sdist_directory) / f"{top}.tar.gz", "w:gz") as tar:
        for name in files:
            tar.add(ROOT / name, f"{top}/{name}", recursive=False)
        info = tarfile.TarInfo(f"{top}/PKG-INFO")
        data = metadata().encode()
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    return f"{top}.tar.gz"


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/dist")
    path = folder / build_wheel(folder)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
