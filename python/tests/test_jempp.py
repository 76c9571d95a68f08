"""Tests of the installed package, beside the program: python -m unittest, with
JEMPP_PROGRAM  the program, whose results the package's must equal bit for bit
JEMPP_RUN      a run folder of a tiny model, trained with one thread
JEMPP_TREE     the source tree
"""

import copy
import csv
import json
import math
import os
import pickle
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import zlib
from pathlib import Path

import numpy as np

import jempp
from jempp import _images

PROGRAM, RUN, TREE = (os.environ[k] for k in ("JEMPP_PROGRAM", "JEMPP_RUN", "JEMPP_TREE"))
TRAIN = dict(data="shapes", model="wrn-10-1", stem="4x4", side=16, iterations=6, batch=16, steps=2,
             px="shared", buffer=64, train_images=200, valid_images=100, warmup=5, threads=1,
             conv="direct")                             # no timing decides on bits


def program(*args, code=0):
    r = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True)
    if r.returncode != code:
        raise AssertionError(f"jempp {args}: exit code {r.returncode}: {r.stderr}")
    return r.stdout if code == 0 else r.stderr


def flags(options):
    return [f"--{k.replace('_', '-')}={v}" for k, v in options.items()]


def read_png(path):
    """uint8 [h, w, c] of an 8-bit PNG without interlacing."""
    data, at, packed = Path(path).read_bytes(), 8, b""
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + n]
        if kind == b"IHDR":
            w, h, c = *struct.unpack(">II", body[:8]), {0: 1, 2: 3}[body[9]]
        packed += body if kind == b"IDAT" else b""
        at += 12 + n
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(h, 1 + w * c)
    out = np.zeros((h + 1, w + 1, c), np.uint8)             # a black border above and on the left
    for y in range(h):
        for x in range(w):
            a, b, d = (v.astype(int) for v in (out[y + 1, x], out[y, x + 1], out[y, x]))
            p = a + b - d
            near = np.where((abs(p - a) <= abs(p - b)) & (abs(p - a) <= abs(p - d)), a,
                            np.where(abs(p - b) <= abs(p - d), b, d))
            add = (0, a, b, (a + b) // 2, near)[rows[y, 0]]
            out[y + 1, x + 1] = (rows[y, 1 + x * c:1 + x * c + c].astype(int) + add) % 256
    return out[1:, 1:]


def rss():
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text()).group(1)) << 10


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = jempp.open(RUN, threads=1)
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = Path(cls.folder.name)
        random = np.random.default_rng(0)
        cls.pixels = random.integers(0, 256, (5, 16, 16, 3), np.uint8)
        cls.files = [cls.dir / f"{i}.png" for i in range(5)]
        for file, pixels in zip(cls.files, cls.pixels):
            file.write_bytes(_images.png(pixels))

    @classmethod
    def tearDownClass(cls):
        cls.model.close()
        cls.folder.cleanup()


class Predicting(Case):
    def test_equals_the_program_bit_for_bit(self):
        rows = json.loads(program("predict", RUN, *self.files, "--json", "--threads=1"))
        p = self.model.predict(self.files)
        self.assertEqual(len(p), 5)
        for i, row in enumerate(rows):
            self.assertEqual(p.names[i], row["class"])
            self.assertEqual(p.probs[i, p.label[i]], np.float32(row["p"]))
            self.assertEqual(p.log_px[i], np.float32(row["log_px"]))
            self.assertEqual(bool(p.known[i]), row["in"])

    def test_all_kinds_of_images_are_the_same_image(self):
        z = self.model.logits(self.files)
        floats = self.pixels.astype(np.float64) / 255
        for images in (self.pixels, self.pixels.transpose(0, 3, 1, 2), list(self.pixels),
                       [str(f) for f in self.files], (a.transpose(2, 0, 1) for a in self.pixels)):
            np.testing.assert_array_equal(self.model.logits(images), z)
        np.testing.assert_allclose(self.model.logits(floats), z, atol=1e-4)
        np.testing.assert_array_equal(self.model.logits(self.files[2]), z[2:3])
        self.assertEqual(self.model.logits([]).shape, (0, 10))
        for images in (np.array(self.files, object), np.array([str(f) for f in self.files]),
                       [f.read_bytes() for f in self.files], [open(f, "rb") for f in self.files]):
            np.testing.assert_array_equal(self.model.logits(images), z)

    def test_few_images_of_a_grey_model_are_not_channels_nor_names_numbers(self):
        pixels = self.pixels[:, :, :, 0]
        jempp.train(**dict(TRAIN, data=f"folder:{self.grey_set()}", channels=1, iterations=1,
                           train_images=None, valid_images=2, batch=4), out=self.dir / "grey")
        with jempp.open(self.dir / "grey", threads=1) as m:
            z = m.logits([p for p in pixels])
            for n in (1, 2, 3, 4, 5):
                np.testing.assert_array_equal(m.logits(pixels[:n]), z[:n])
                np.testing.assert_allclose(m.logits(pixels[:n] / 255), z[:n], atol=1e-4)
            self.assertEqual(m.classes, ["1", "2"])
            np.testing.assert_array_equal(m.sample(2, 1, from_="starts"),
                                          m.sample(2, "2", from_="starts"))

    def grey_set(self):
        for i, pixels in enumerate(np.repeat(self.pixels, 4, 0)):
            folder = self.dir / "set" / str(1 + i % 2)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{i}.png").write_bytes(_images.png(pixels))
        return self.dir / "set"

    def test_bytes_of_any_size_and_colour_are_treated_as_a_file(self):
        for shape in ((20, 31, 3), (9, 40, 1), (24, 24, 4), (16, 16, 2)):
            a = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
            self.files[0].write_bytes(_images.png(a))
            want = self.model.logits(self.files[0])
            np.testing.assert_array_equal(self.model.logits(a), want)
            if shape[2] == 1:
                np.testing.assert_array_equal(self.model.logits(a[:, :, 0]), want)

    def test_pil_images_are_treated_as_their_files(self):
        try:
            from PIL import Image
        except ImportError:
            self.skipTest("no PIL here")
        a = np.random.default_rng(2).integers(0, 256, (19, 23, 3), np.uint8)
        deep = Image.fromarray(a[:, :, 0].astype(np.uint16) * 257 % 65521)
        modes = ("RGB", "L", "RGBA", "LA", "P", "1")
        for image in (*(Image.fromarray(a).convert(m) for m in modes), deep):
            image.save(self.dir / "pil.png")
            np.testing.assert_array_equal(self.model.logits(image),
                                          self.model.logits(self.dir / "pil.png"), image.mode)
        Image.fromarray(a).save(self.dir / "pil.png", transparency=tuple(int(v) for v in a[3, 3]))
        with Image.open(self.dir / "pil.png") as image:         # one colour is transparent
            np.testing.assert_array_equal(self.model.logits(image),
                                          self.model.logits(self.dir / "pil.png"))
        np.testing.assert_array_equal(self.model.logits(deep.convert("I")), self.model.logits(deep))
        with self.assertRaisesRegex(ValueError, "mode F"):
            self.model.logits(deep.convert("F"))

    def test_what_is_no_image_is_refused(self):
        for images, words in ((np.zeros((16, 16, 3)) + 7, "expected [0, 1]"),
                              (np.zeros((17, 16, 3)), "bytes (uint8) may have any size"),
                              (np.full((16, 16, 3), np.nan), "expected [0, 1]"),
                              (np.zeros((16, 16, 3), np.int32), "expected uint8"),
                              (np.zeros((16, 0, 3), np.uint8), "no pixels"),
                              (np.zeros((16, 16, 0), np.uint8), "no pixels"),
                              (np.zeros((2, 3, 4, 5, 6)), "of shape (2, 3, 4, 5, 6)")):
            with self.assertRaises(ValueError) as e:
                self.model.predict(images)
            self.assertIn(words, str(e.exception))
        with self.assertRaisesRegex(TypeError, "int, expected paths, PIL images or arrays"):
            self.model.predict([[1, 2], [3, 4]])
        (self.dir / "no.txt").write_text("no picture")
        with open(self.dir / "no.txt") as f, self.assertRaisesRegex(TypeError, "open as text"):
            self.model.predict(f)
        with open(self.dir / "no.txt", "rb") as f, self.assertRaisesRegex(jempp.Error, "PNG, JPEG"):
            self.model.predict(f)

    def test_pictures_that_cannot_be_read_have_rows_of_their_own(self):
        (self.dir / "no.png").write_text("no picture")
        images = [self.files[0], self.dir / "no.png", self.files[1], self.dir / "gone.png", b"RIFF"]
        want, p = self.model.predict(self.files[:2]), self.model.predict(images, strict=False)
        np.testing.assert_array_equal(p.label, [want.label[0], -1, want.label[1], -1, -1])
        for a, b in ((p.logits, want.logits), (p.probs, want.probs), (p.log_px, want.log_px)):
            np.testing.assert_array_equal(a[[0, 2]], b)
            self.assertTrue(np.isnan(a[[1, 3, 4]]).all())
        self.assertEqual(p.names[1:4], ["", want.names[1], ""])
        self.assertFalse(p.known[[1, 3, 4]].any())
        self.assertEqual(list(p.errors), [1, 3, 4])
        self.assertIn("no.png: ", p.errors[1])
        self.assertEqual(want.errors, {})
        with self.assertRaisesRegex(jempp.Error, "no.png: "):
            self.model.predict(images)

    def test_memory_stays_flat(self):
        one, start = self.pixels[0], 0
        for i in range(10000):
            self.model.predict(one)
            if i == 500:
                start = rss()
        self.assertLess(rss() - start, 4 << 20)


class Scores(Case):
    """`jempp predict --out` and `jempp eval --scores`, read by Python."""

    def test_three_formats_say_the_same(self):
        bad = self.dir / 'a "name", quoted.png'
        bad.write_text("no")
        for f in ("csv", "jsonl", "npz"):
            program("predict", RUN, *self.files, bad, "--threads=1", "--out", self.dir / f"s.{f}", code=1)
        with open(self.dir / "s.csv", newline="") as f:
            rows = list(csv.DictReader(f))
        lines = [json.loads(line) for line in open(self.dir / "s.jsonl")]
        with np.load(self.dir / "s.npz") as z:
            arrays = dict(z)
        names = bytes(arrays["files"]).decode().split("\0")[:-1]
        want = [str(f) for f in self.files] + [str(bad)]
        self.assertEqual([r["file"] for r in rows], want)
        self.assertEqual([r["file"] for r in lines], want)
        self.assertEqual(names, want)
        p = self.model.predict(self.files)
        for i in range(5):
            for row in ([np.float32(rows[i][f"logit_{k}"]) for k in range(10)],
                        np.float32(lines[i]["logits"]), arrays["logits"][i]):
                np.testing.assert_array_equal(row, p.logits[i])
            for row in ([np.float32(rows[i][f"prob_{k}"]) for k in range(10)],
                        np.float32(lines[i]["probs"]), arrays["probs"][i]):
                np.testing.assert_array_equal(row, p.probs[i])
            self.assertEqual((int(rows[i]["predicted"]), lines[i]["predicted"],
                              arrays["predicted"][i]), (p.label[i],) * 3)
            self.assertEqual((rows[i]["known"] == "1", lines[i]["known"], lines[i]["in"],
                              arrays["known"][i] == 1), (bool(p.known[i]),) * 4)
        for error in (rows[5]["error"], lines[5]["error"],
                      bytes(arrays["errors"]).decode().split("\0")[5]):
            self.assertIn("expected a PNG", error)
        self.assertTrue(np.isnan(arrays["logits"][5]).all() and arrays["predicted"][5] == -1)

    def test_they_give_evals_results(self):
        program("eval", RUN, "--tasks=acc,ood", "--ood=uniform", "--limit=300", "--threads=1",
                "--scores=npz", "--out", self.dir / "e")
        tasks = json.loads((self.dir / "e/eval.json").read_text())["tasks"]
        own, other = (np.load(self.dir / f"e/scores/{n}.npz") for n in ("shapes", "uniform"))
        right = np.mean(own["label"] == own["predicted"])
        self.assertAlmostEqual(100 * right, tasks["acc"]["top1"])
        x, y = own["log_px"][:, None], other["log_px"][None]
        auroc = np.mean((x > y) + 0.5 * (x == y))
        self.assertAlmostEqual(auroc, tasks["ood"]["sets"][0]["scores"]["logpx"]["auroc"], 4)


class Sampling(Case):
    def test_equals_the_program_bit_for_bit(self):
        grid = self.dir / "grid.png"
        program("sample", RUN, "--count=4", "--steps=3", "--zoom=1", "--columns=2", "--class=2,5",
                "--threads=1", "--no-preview", "--out", grid)
        got, want = self.model.sample(4, cls=[2, 5], steps=3), read_png(grid)
        self.assertEqual((got.shape, got.dtype), ((4, 16, 16, 3), np.uint8))
        for i, image in enumerate(got):
            y, x = 2 + i // 2 * 18, 2 + i % 2 * 18
            np.testing.assert_array_equal(image, want[y:y + 16, x:x + 16])

    def test_classes_have_names(self):
        name = self.model.classes[3]
        np.testing.assert_array_equal(self.model.sample(2, name, 1), self.model.sample(2, 3, 1))
        with self.assertRaisesRegex(jempp.Error, "no class 'nosuch'|nosuch"):
            self.model.sample(2, "nosuch")
        every = self.model.sample(4, [2, 5], 1)
        for classes in (np.array([2, 5]), (c for c in (2, 5)), {self.model.classes[2], 5}):
            np.testing.assert_array_equal(self.model.sample(4, classes, np.int64(1)), every)

    def test_options_that_would_be_ignored_are_refused(self):
        for name in ("out", "zoom", "columns", "preview", "force"):
            with self.assertRaisesRegex(TypeError, f"{name} is an option of the program alone"):
                self.model.sample(1, steps=1, **{name: 1})
        with self.assertRaisesRegex(ValueError, "best 3 of 2 images"):
            self.model.sample(2, steps=1, best=3)
        self.assertEqual(self.model.sample(2, steps=1, best=2, count=4).shape, (2, 16, 16, 3))

    def test_memory_stays_flat(self):
        start = 0
        for i in range(200):
            self.model.sample(1, steps=1)
            if i == 20:
                start = rss()
        self.assertLess(rss() - start, 4 << 20)


class Using(Case):
    def test_version(self):
        self.assertIn(f"jempp {jempp.__version__}", program("--version"))
        self.assertIn("ref", jempp.devices())

    def test_libraries_are_the_packages_own(self):
        loaded = Path("/proc/self/maps").read_text().split()
        own = Path(jempp.__file__).parent / "lib"
        names = [n for n in ("libjempp.so", "jempp-cpu.so", "libdnnl.so.2", "libcjson.so.1")
                 if (own / n).exists()]
        self.assertIn("libjempp.so", names)
        self.assertEqual([n for n in names if str(own / n) not in loaded], [])

    def test_the_gpu_module_is_looked_for_where_it_is_installed(self):
        line = next(d for d in str(jempp.devices()).splitlines() if "cuda" in d)
        if "no jempp-cuda.so" not in line:
            self.skipTest("the cuda module is installed")
        for folder in ("/usr/local/lib/jempp-0", f"/usr/lib/{sys.implementation._multiarch}/jempp-0"):
            self.assertIn(folder, line)

    def test_errors_are_the_programs(self):
        message = program("predict", "nosuch", "x.png", code=1)
        with self.assertRaises(jempp.Error) as e:
            jempp.open("nosuch")
        self.assertEqual(f"jempp: {e.exception}\n", message)
        self.assertEqual(e.exception.kind, "io")
        with self.assertRaisesRegex(jempp.Error, "did you mean --steps"):
            jempp.train(stpes=3)
        with self.assertRaisesRegex(jempp.Error, "nosuch.png"):
            self.model.predict("nosuch.png")
        with self.assertRaisesRegex(jempp.Error, "is a folder, expected a picture"):
            self.model.predict(self.dir)
        with self.assertRaisesRegex(jempp.Error, "expected a name that ends in"):
            self.model.export(self.dir / "model.zip")

    def test_a_closed_model(self):
        m = jempp.open(RUN, device="ref")
        self.assertIn("10 classes", repr(m))
        m.close()
        m.close()
        with self.assertRaisesRegex(ValueError, "the model is closed"):
            m.logits(self.pixels)

    def test_a_copy_is_opened_again(self):
        want = self.model.logits(self.pixels)
        for m in (copy.copy(self.model), pickle.loads(pickle.dumps(self.model))):
            with m:                     # it may choose other kernels
                np.testing.assert_allclose(m.logits(self.pixels), want, atol=1e-5)
        np.testing.assert_array_equal(self.model.logits(self.pixels), want)

    def test_a_callback_cannot_change_what_the_model_does(self):
        for call in (self.model.close, lambda: self.model.sample(1, steps=1),
                     lambda: jempp.evaluate(self.model, ["acc"], out=self.dir / "no")):
            with self.assertRaisesRegex(ValueError, "can only predict"):
                self.model.sample(2, steps=2, on_progress=lambda *_: call())
        seen = []
        inside = self.model.sample(2, steps=2, seed=3, on_progress=lambda *_: seen.append(
            self.model.logits(self.pixels)))
        self.assertTrue(np.array_equal(inside, self.model.sample(2, steps=2, seed=3)))
        self.assertTrue(np.array_equal(seen[0], self.model.logits(self.pixels)))

    def test_names_are_any_bytes_but_null(self):
        odd = os.fsencode(self.dir) + b"/\xff.png"
        Path(os.fsdecode(odd)).write_bytes(self.files[0].read_bytes())
        for name in (odd, os.fsdecode(odd), Path(os.fsdecode(odd))):
            self.assertEqual(self.model.predict(name).label,
                             self.model.predict(self.files[0]).label)
        out = os.fsdecode(os.fsencode(self.dir) + b"/run\xff")
        self.assertEqual(jempp.train(**TRAIN, out=out).out, out)
        for call in (lambda: jempp.open(RUN + "\0x"), lambda: jempp.train(**TRAIN, out="a\0b"),
                     lambda: self.model.predict(str(self.files[0]) + "\0")):
            with self.assertRaisesRegex(ValueError, "null byte"):
                call()

    def test_a_fork_is_refused_instead_of_waiting(self):
        code = ("import jempp, numpy, os, signal, sys\n"
                "x = numpy.zeros((64, 16, 16, 3), 'uint8')\n"
                "m, one = (jempp.open(sys.argv[1], threads=n) for n in (2, 1))\n"
                "want = m.predict(x).label\n"
                "if not os.fork():\n"
                "    signal.alarm(60)\n"
                "    for use in (lambda: m.predict(x), lambda: jempp.open(sys.argv[1])):\n"
                "        try:\n            use()\n"
                "        except jempp.Error as e:\n            print(e.kind, flush=True)\n"
                "    print((one.predict(x).label == want).all(), flush=True)\n"
                "    os._exit(0)\n"
                "print(os.wait()[1])\n")
        r = subprocess.run([sys.executable, "-c", code, RUN], capture_output=True, text=True)
        self.assertEqual(r.stdout, "usage\nusage\nTrue\n0\n", r.stderr)

    @unittest.skipUnless(shutil.which("localedef")
                         and Path("/usr/share/i18n/locales/de_DE").exists(),
                         "no localedef to make a locale with a decimal comma")
    def test_the_locale_does_not_matter(self):
        subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", self.dir / "de_DE.UTF-8"],
                       capture_output=True)
        code = ("import jempp, locale, sys\n"
                "locale.setlocale(locale.LC_ALL, 'de_DE.UTF-8')\n"
                f"jempp.train(**{TRAIN!r}, lr=0.05, out=sys.argv[1])\n"
                "assert locale.localeconv()['decimal_point'] == ','\n")
        out = self.dir / "locale"
        r = subprocess.run([sys.executable, "-c", code, out], capture_output=True, text=True,
                           env={**os.environ, "LOCPATH": str(self.dir)})
        self.assertEqual(r.returncode, 0, r.stderr)
        program("train", *flags(TRAIN), "--lr", "0.05", "--out", self.dir / "plain")
        a, b = (jempp.read_log(d) for d in (out, self.dir / "plain"))
        for name in a.keys() - {"seconds"}:
            self.assertTrue(np.array_equal(a[name], b[name], equal_nan=True), name)
        options = [json.loads((d / "run.json").read_text())["options"]
                   for d in (out, self.dir / "plain")]
        self.assertEqual({**options[0], "out": ""}, {**options[1], "out": ""})

    def test_threads_share_a_model(self):
        want, wrong = self.model.logits(self.pixels), []

        def use(k):
            for i in range(30):
                if not np.array_equal(self.model.logits(self.pixels), want):
                    wrong.append((k, i))
                if i == k:
                    self.model.sample(1, steps=1)

        threads = [threading.Thread(target=use, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_other_threads_run_meanwhile(self):
        ticks, done = 0, threading.Event()
        worker = threading.Thread(target=lambda: (self.model.sample(16, steps=200), done.set()))
        worker.start()
        while not done.is_set():
            ticks += 1
            time.sleep(0.001)
        worker.join()
        self.assertGreater(ticks, 3)

    def test_torch_is_not_imported(self):
        code = "import jempp, sys; sys.exit('torch' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-c", code]).returncode, 0)

    def test_threads_that_wait_sleep_soon(self):
        code = f"import jempp; jempp.open({str(RUN)!r})"
        env = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
        r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                           env={**env, "OMP_DISPLAY_ENV": "verbose"})
        self.assertIn("GOMP_SPINCOUNT = '2000'", r.stderr)

    def test_as_a_torch_module(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no torch here")
        net = jempp.torch.load(RUN)
        x = self.pixels.transpose(0, 3, 1, 2).astype(np.float32) / 255
        with torch.no_grad():
            z = net(torch.tensor(x)).numpy()
        np.testing.assert_allclose(z, self.model.logits(x), atol=1e-4)
        self.assertEqual(list(net.classes), self.model.classes)
        self.assertFalse(net.training)


class Training(Case):
    def test_equals_the_program_bit_for_bit(self):
        seen = []
        program("train", *flags(TRAIN), "--out", self.dir / "a")
        r = jempp.train(**TRAIN, out=self.dir / "b", on_step=lambda v: seen.append(v))
        self.assertEqual((r.steps, r.stopped, r.out), (6, False, str(self.dir / "b")))
        a, b = jempp.read_log(self.dir / "a"), jempp.read_log(self.dir / "b")
        self.assertEqual(list(a), list(b))
        self.assertEqual(a["step"].tolist(), list(range(6)))
        for name in a:
            if name != "seconds":
                np.testing.assert_array_equal(a[name], b[name])
            np.testing.assert_array_equal([v[name] for v in seen], b[name])
        with jempp.open(self.dir / "a", threads=1) as x, jempp.open(self.dir / "b", threads=1) as y:
            np.testing.assert_array_equal(x.logits(self.pixels), y.logits(self.pixels))
        self.assertTrue(0 <= r.valid_accuracy <= 1 and 0 <= r.test_accuracy <= 1)

    def test_options_may_be_numbers_of_numpy(self):
        given = dict(iterations=np.int64(1), flip=np.bool_(False), lr=np.float64(0.05),
                     decay_at=np.array([0.25, 0.5]), sigma=np.float32(0.5))
        jempp.train(**{**TRAIN, **given}, out=self.dir / "n")
        options = json.loads((self.dir / "n/run.json").read_text())["options"]
        self.assertEqual([options[k] for k in ("iterations", "flip", "lr", "decay-at", "sigma")],
                         ["1", "off", "0.05", "0.25,0.5", "0.5"])

    def test_a_callback_stops_it_and_it_can_be_resumed(self):
        many = dict(TRAIN, iterations=10**6, out=self.dir / "c")
        r = jempp.train(**many, on_step=lambda v: v["step"] == 2)
        self.assertTrue(r.stopped)
        self.assertEqual((r.steps, r.valid_accuracy), (3, None))
        r = jempp.train(resume=True, out=self.dir / "c", iterations=5)
        self.assertEqual((r.steps, r.stopped), (5, False))
        self.assertEqual(len(jempp.read_log(self.dir / "c")["loss"]), 5)

    def test_an_exception_in_a_callback_comes_out(self):
        def fail(v):
            raise KeyError("mine")
        with self.assertRaisesRegex(KeyError, "mine"):
            jempp.train(**TRAIN, out=self.dir / "d", on_step=fail)
        with self.assertRaisesRegex(KeyError, "mine"):
            self.model.sample(4, on_progress=lambda *a: fail(a))
        self.assertEqual(self.model.sample(1, steps=1).shape, (1, 16, 16, 3))

    def test_evaluating_equals_the_program(self):
        program("eval", RUN, "--tasks=acc,ece", "--threads=1", "--out", self.dir / "e")
        want = json.loads((self.dir / "e/eval.json").read_text())
        got = jempp.evaluate(self.model, ["acc", "ece"], out=self.dir / "f")
        strip = lambda v: {k: strip(x) for k, x in v.items()
                           if k not in ("seconds", "model", "version")} if isinstance(v, dict) else v
        self.assertEqual(strip(got), strip(want))
        same = jempp.evaluate(RUN, "acc", out=self.dir / "g", threads=1)
        self.assertEqual(strip(same["tasks"]["acc"]), strip(want["tasks"]["acc"]))

    def test_a_log_that_is_being_written(self):
        run = self.dir / "h"
        run.mkdir()
        (run / "log.tsv").write_text("step\tloss\tvalid\n0\t1.5\t\n1\t0.5\t0.25\n2\t0.")
        log = jempp.read_log(run)
        self.assertEqual(log["step"].tolist(), [0, 1])
        self.assertEqual(log["loss"].tolist(), [1.5, 0.5])
        self.assertTrue(math.isnan(log["valid"][0]) and log["valid"][1] == 0.25)


class Interrupting(Case):
    """Ctrl-C in a long call: KeyboardInterrupt, and everything can be used afterwards."""

    def interrupt(self, body):
        code = ("import jempp, signal, sys, time\n"       # a shell's background job ignores SIGINT
                "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                f"m = jempp.open({RUN!r}, threads=1)\n"
                "def begun(*_, said=[]):\n    said or print('begun', flush=True)\n    said.append(1)\n"
                f"try:\n    {body}\n"
                "except KeyboardInterrupt:\n    print('stopped', m.sample(1, steps=1).shape)\n")
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        self.assertEqual(child.stdout.readline(), "begun\n")
        time.sleep(0.3)
        start = time.monotonic()
        child.send_signal(signal.SIGINT)
        out = child.communicate(timeout=300)[0]
        self.assertEqual(out.split("\n")[-2], "stopped (1, 16, 16, 3)")
        self.assertEqual(child.returncode, 0)
        return time.monotonic() - start

    def test_sampling(self):
        self.interrupt("m.sample(16, steps=100000, on_progress=begun)")

    def test_predicting(self):
        self.interrupt("import numpy, itertools; begun(); "
                       "m.predict(itertools.repeat(numpy.zeros((16, 16, 3), 'uint8')))")

    def test_training_saves_a_checkpoint(self):
        options = dict(TRAIN, iterations=10**6, out=str(self.dir / "stopped"))
        self.interrupt(f"jempp.train(**{options!r}, on_step=begun)")
        steps = len(jempp.read_log(self.dir / "stopped")["step"])
        r = jempp.train(resume=True, out=self.dir / "stopped", iterations=steps + 1)
        self.assertEqual(r.steps, steps + 1)


    def test_while_a_call_begins(self):
        """A signal that comes as the handler is put in place is the former handler's."""
        install, was = signal.signal, signal.signal(signal.SIGINT, signal.default_int_handler)

        def at_once(number, handler):
            former = install(number, handler)
            if handler is not signal.default_int_handler:
                handler(number, None)
            return former

        try:
            with unittest.mock.patch("jempp._lib.signal.signal", at_once):
                with self.assertRaises(KeyboardInterrupt), jempp._lib.Events() as ev:
                    self.assertTrue(ev.stopped)
        finally:
            signal.signal(signal.SIGINT, was)


class Documentation(Case):
    def test_the_notebook_runs(self):
        page = json.loads(Path(TREE, "docs/python.ipynb").read_text())
        cells = ["".join(c["source"]) for c in page["cells"] if c["cell_type"] == "code"]
        self.assertGreater(len(cells), 3)
        self.assertFalse(any(c.get("outputs") for c in page["cells"]))
        here, names = os.getcwd(), {}
        os.chdir(self.dir)
        try:
            for cell in cells:
                exec(compile(cell, "docs/python.ipynb", "exec"), names)
        finally:
            os.chdir(here)
        self.assertEqual(names["grid"].dtype, np.uint8)


if __name__ == "__main__":
    unittest.main()
