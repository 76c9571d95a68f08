#!/usr/bin/env python3
"""npz_fixtures.py FOLDER - writes the files that tests/test_npz.c reads, with NumPy."""
import sys
import numpy as np

images = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
sigma = np.arange(9.0).reshape(3, 3)
arrays = dict(arr_0=images, mu=np.arange(3.0), sigma=sigma, columns=np.asfortranarray(sigma),
              single=np.arange(3, dtype=np.float32), half=np.arange(3, dtype=np.float16),
              big=np.arange(3, dtype=">f8"), text=np.array(["a", "b"]), scalar=np.float64(7),
              pair=np.zeros(2, dtype=[("a", "<f8"), ("b", "<i4")]), empty=np.zeros((0, 3)),
              complex=np.zeros(2, dtype=np.complex64))
np.savez(f"{sys.argv[1]}/stored.npz", **arrays)
np.savez_compressed(f"{sys.argv[1]}/deflated.npz", **arrays)
with open(f"{sys.argv[1]}/version2.npy", "wb") as f:
    np.lib.format.write_array(f, images, version=(2, 0))
