"""Writes small files of every format that is read, into the folders that fuzz_seeds.sh has made."""
import gzip
import io
import json
import pathlib
import re
import struct
import tarfile
import zipfile
import zlib


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)


def piece(data):
    return struct.pack("<H", len(data)) + data


# ---- safetensors
header = {
    "__metadata__": {"step": "3", "options": "batch = 8\n"},
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "F16", "shape": [4], "data_offsets": [24, 32]},
    "c": {"dtype": "I64", "shape": [], "data_offsets": [32, 40]},
    "d": {"dtype": "BF16", "shape": [0], "data_offsets": [40, 40]},
}
text = json.dumps(header).encode()
put("safetensors/types", struct.pack("<Q", len(text)) + text + bytes(range(40)))
put("json/all", b'{"a": [1, -2.5e3, true, null, "\\u00e9\\n"], "b": {"c": ""}}')


# ---- images and statistics for FID
def npy(dtype, shape, data):
    text = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + data


def npz(path, arrays):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in arrays.items():
            z.writestr(name + ".npy", data)


images = npy("|u1", (2, 3, 4, 3), bytes(range(72)))
put("images/array", images)
npz("images/deflated.npz", {"arr_0": images})
dim = 2048                                                      # zeros deflate to 33 kB
npz("statistics/full.npz", {"mu": npy("<f8", (dim,), bytes(8 * dim)),
                            "sigma": npy("<f8", (dim, dim), bytes(8 * dim * dim))})
npz("statistics/small.npz", {"mu": npy("<f4", (2,), bytes(8)), "sigma": npy("<f8", (2, 2), bytes(32))})
text = json.dumps({"mu": {"dtype": "F64", "shape": [dim], "data_offsets": [0, 8 * dim]},
                   "sigma": {"dtype": "F64", "shape": [2, 2], "data_offsets": [8 * dim, 8 * dim + 32]},
                   "features": {"dtype": "F32", "shape": [4, dim],
                                "data_offsets": [8 * dim + 32, 40 * dim + 32]}}).encode()
put("statistics/cache", struct.pack("<Q", len(text)) + text + bytes(40 * dim + 32))


# ---- pickles of PyTorch's files; storage 0 has 16 floats
for path in pathlib.Path("torch").glob("*.pt"):
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as z:
            name = next(n for n in z.namelist() if n.endswith("data.pkl"))
            put(f"pickle/{path.stem}", z.read(name))
storage = b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" + b"0X\3\0\0\0cpuK\x10tQ"
tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\1(K\3K\4t(K\5K\1t\x89}tR"
put("pickle/tensor", b"\x80\2}(X\1\0\0\0a" + tensor + b"X\1\0\0\0bK\7u.")
put("pickle/object", b"\x80\4c__torch__\nA\n)\x81q\0}X\1\0\0\0a" + tensor + b"sb.")


def with_text(path, old, new):
    """A safetensors file with other text in its header."""
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    head = re.sub(old, new, data[8:8 + n])
    assert head != data[8:8 + n]
    return struct.pack("<Q", len(head)) + head + data[8 + n:]


for key in (b"step", b"drawn", b"attempt", b"best_step", b"judged"):     # numbers that no integer holds
    put("state/huge_" + key.decode(), with_text("state/last.safetensors", b'"%s":"[^"]*"' % key, b'"%s":"1e300"' % key))
put("model/huge_side", with_text("model/best.safetensors", b'"side":"[^"]*"', b'"side":"1e300"'))

# ---- pictures
def png(w, h, kind, bits, rows, extra=b"", interlace=0):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", w, h, bits, kind, 0, 0, interlace)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


def row(n):
    return b"\0" + bytes(i % 251 for i in range(n))


palette = b"PLTE" + bytes(range(12))
palette = struct.pack(">I", 12) + palette + struct.pack(">I", zlib.crc32(palette))
small = png(4, 3, 2, 8, row(12) * 3)
put("png/grey", png(5, 4, 0, 8, row(5) * 4))
put("png/rgb", small)
put("png/rgba16", png(3, 2, 6, 16, row(24) * 2))
put("png/palette", png(8, 3, 3, 2, row(2) * 3, palette))
put("png/interlaced", png(1, 1, 0, 1, row(1), interlace=1))

# ---- image sets
images = struct.pack(">BBBBIII", 0, 0, 8, 3, 3, 4, 4) + bytes(48)
labels = struct.pack(">BBBBI", 0, 0, 8, 1, 3) + b"\x01\x09\x00"
put("idx/plain", piece(images) + labels)
put("idx/gzipped", piece(gzip.compress(images)) + gzip.compress(labels))
put("cifar/two", (b"\x03" + bytes(3072)) * 2)


def element(kind, data):
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def array(name, dims, numbers, mat_class=9, kind=2):
    return element(14, element(6, struct.pack("<II", mat_class, 0)) +
                   element(5, struct.pack("<%dI" % len(dims), *dims)) +
                   element(1, name) + element(kind, numbers))


mat = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
x, y = array(b"X", (32, 32, 3, 2), bytes(6144)), array(b"y", (2, 1), b"\x01\x0a")
doubles = array(b"y", (2, 1), struct.pack("<2d", 1, 10), 6, 9)
deflated = b"".join(struct.pack("<II", 15, len(z)) + z for z in map(zlib.compress, (x, y)))
put("svhn/plain", mat + x + y)
put("svhn/doubles", mat + x + doubles)
put("svhn/deflated", mat + deflated)

put("folder/flat", b"".join(piece(n) + piece(small) for n in (b"a/1.png", b"a/2.png", b"b/1.png", b"b/2.png")))
put("folder/halves", b"".join(piece(n) + piece(small) for n in (b"train/a/1.png", b"test/a/1.PNG")))


def tar(names, mode):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as t:
        for name, data in names:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


members = [("set/images.bin", bytes(64)), ("set/names.txt", b"cat\ndog\n"), ("set/../up", b"no")]
put("archive/plain.tar", tar(members, "w"))
put("archive/gzipped.tar", tar(members, "w:gz"))
