#!/usr/bin/python3
"""Makes resize_golden.h: what PIL (and torchvision's Resize + CenterCrop, which call it) make of a
picture that test_image.c can make too: resize_golden.py > resize_golden.h"""
import numpy as np
import PIL
from PIL import Image


def source(w, h, c):
    y, x, k = np.mgrid[0:h, 0:w, 0:c]
    a = ((x * 37 + y * 91 + k * 53 + x * y * 7) % 256).astype(np.uint8)
    return Image.fromarray(a[:, :, 0] if c == 1 else a)


def square(im, side):
    w, h = im.size
    short, long = (w, h) if w <= h else (h, w)
    other = int(side * long / short)
    w, h = (side, other) if w <= h else (other, side)
    im = im.resize((w, h), Image.BILINEAR)
    left, top = int(round((w - side) / 2.0)), int(round((h - side) / 2.0))
    return im.crop((left, top, left + side, top + side))


print(f"// resize_golden.h - made by resize_golden.py with PIL {PIL.__version__}.")
print("static const struct { int w, h, c, to_w, to_h, square; uint8_t p[400]; } golden[] = {")
for w, h, c, tw, th, sq in [(17, 11, 3, 6, 5, 0), (17, 11, 1, 23, 15, 0), (9, 40, 1, 8, 8, 0),
                            (101, 67, 3, 7, 4, 0), (5, 4, 3, 5, 9, 0), (12, 7, 3, 3, 7, 0),
                            (1, 1, 3, 3, 2, 0), (17, 11, 3, 8, 8, 1), (11, 18, 3, 5, 5, 1),
                            (50, 37, 1, 16, 16, 1), (5, 8, 1, 8, 8, 1), (13, 10, 1, 10, 10, 1)]:
    im = source(w, h, c)
    out = np.asarray(square(im, tw) if sq else im.resize((tw, th), Image.BILINEAR)).reshape(-1)
    print(f"    {{ {w}, {h}, {c}, {tw}, {th}, {sq}, {{")
    for i in range(0, len(out), 18):
        print("        " + ", ".join(map(str, out[i:i + 18])) + ",")
    print("    } },")
print("};")
rgb = [tuple(int(v) for v in p) for p in np.random.default_rng(1).integers(0, 256, (12, 3))]
print("static const uint8_t golden_grey[][4] = {        // R, G, B and PIL's L")
for r, g, b in rgb:
    grey = Image.new("RGB", (1, 1), (r, g, b)).convert("L").getpixel((0, 0))
    print(f"    {{ {r}, {g}, {b}, {grey} }},")
print("};")
