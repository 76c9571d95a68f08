#!/usr/bin/env python3
"""make_golden_inception.py [FOLDER [WEIGHTS]] - writes inception.safetensors (default: tests/golden).

What pytorch-fid's network gives with weights from a seeded generator, and what torch-fidelity's copy of
TensorFlow's resize gives. With WEIGHTS, a safetensors file of the published weights by pytorch-fid's names, also
what they make of ten pictures (else those are taken over from the file that is there). Needs pip's pytorch-fid,
torch-fidelity, torch, torchvision, safetensors and numpy.

Every number comes from base/rng.h's Philox with seed 16 and stream RNG_TEST (16). A tensor's step is its name's
32-bit FNV-1a hash; element k of it is uniform(k), mapped to [low, high) by the name's last parts:
  conv.weight, fc.weight     -sqrt(6 / fan_in) .. sqrt(6 / fan_in)
  bn.weight, bn.running_var  0.5 .. 1.5
  bn.bias, bn.running_mean   -0.2 .. 0.2
  fc.bias                    0 .. 1, so that it would be seen if it were added
Images are bytes: u32(k) >> 24 at step 1000 (299x299) and 1001 (the resize's).

inception.safetensors
  features        [2,2048] F32, pool_3 of the images of step 1000 (two), (v - 128) / 128
  logits          [2,1008] F32, features times fc.weight
  resize.HxW      F32, the images of step 1001 ([1,3,h,w], h and w in the metadata) to H rows and W columns,
                  then (v - 128) / 128; of 299x299 every 13th row
  pictures        [10,3,32,32] U8: coloured waves and discs
  real            [10,2048] F32: their features by the published weights, after TensorFlow's resize
"""
import os
import sys

import numpy as np
import torch

SEED, STREAM = 16, 16
SIZES = [(32, 32, 299, 299), (9, 6, 23, 17), (1, 1, 5, 4), (40, 30, 7, 11)]     # h, w to H, W


def philox(step, count):
    """u32(0 .. count-1) of {SEED, STREAM, step, 0}."""
    blocks = (count + 3) // 4
    low = np.uint64(0xffffffff)
    c = [np.arange(blocks, dtype=np.uint64), np.full(blocks, step, np.uint64),
         np.zeros(blocks, np.uint64), np.full(blocks, STREAM, np.uint64)]
    k0, k1 = SEED & 0xffffffff, SEED >> 32
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), b & low,
             (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), a & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xffffffff, (k1 + 0xBB67AE85) & 0xffffffff
    return np.stack(c, 1).reshape(-1)[:count]


def fnv1a(name):
    h = 2166136261
    for byte in name.encode():
        h = (h ^ byte) * 16777619 & 0xffffffff
    return h


def uniform(step, shape, low, high):
    unit = (philox(step, int(np.prod(shape))) >> np.uint64(8)).astype(np.float64) * 2.0 ** -24
    return torch.from_numpy((low + (high - low) * unit).astype(np.float32).reshape(shape))


def images(step, *shape):
    return torch.from_numpy((philox(step, int(np.prod(shape))) >> np.uint64(24)).astype(np.uint8).reshape(shape))


def weights(names):
    out = {}
    for name, t in names.items():
        if 'tracked' in name:
            continue
        part = '.'.join(name.split('.')[-2:])
        if part in ('conv.weight', 'fc.weight'):
            bound = np.sqrt(6 / t[0].numel())
            low, high = -bound, bound
        elif part in ('bn.weight', 'bn.running_var'):
            low, high = 0.5, 1.5
        elif part == 'fc.bias':
            low, high = 0, 1
        else:
            low, high = -0.2, 0.2
        out[name] = uniform(fnv1a(name), tuple(t.shape), low, high)
    return out


def pictures():
    """Ten small pictures with edges, gradients and colours."""
    i, j = np.meshgrid(np.linspace(-1, 1, 32), np.linspace(-1, 1, 32), indexing='ij')
    out = np.zeros((10, 3, 32, 32))
    for n in range(10):
        r = (philox(2000 + n, 64) >> np.uint64(8)).astype(np.float64) * 2.0 ** -24
        for c in range(3):
            out[n, c] = 128 + 90 * np.sin((1 + 8 * r[0]) * i + (1 + 8 * r[1]) * j + 6 * r[2 + c])
        for d in range(3):
            at = r[8 + 8 * d:16 + 8 * d]
            inside = (i - 2 * at[0] + 1) ** 2 + (j - 2 * at[1] + 1) ** 2 < (0.2 + 0.5 * at[2]) ** 2
            for c in range(3):
                out[n, c][inside] = 255 * at[3 + c]
    return torch.from_numpy(out.round().clip(0, 255).astype(np.uint8))


def main():
    import pytorch_fid.inception as fid
    import torchvision
    from safetensors.torch import load_file, save_file
    from torch_fidelity.interpolate_compat_tensorflow import interpolate_bilinear_2d_like_tensorflow1x as resize

    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), '../tests/golden')
    path = os.path.join(folder, 'inception.safetensors')
    plain = torchvision.models.inception_v3(num_classes=1008, aux_logits=False, weights=None, init_weights=False)
    w = weights(plain.state_dict())

    def network(given):
        fid.load_state_dict_from_url = lambda *_, **__: dict(plain.state_dict(), **given)
        return fid.InceptionV3([3], resize_input=False, normalize_input=False).double().eval()

    def bilinear(x, *size):
        return (resize(x.float(), size=size, align_corners=False) - 128) / 128

    out = {}
    with torch.no_grad():
        features = network(w)((images(1000, 2, 3, 299, 299).double() - 128) / 128)[0].reshape(2, 2048)
        print('features', features.mean().item(), features.std().item())
        out['features'] = features.float()
        out['logits'] = (features @ w['fc.weight'].double().T).float()
        for h, wide, height, width in SIZES:
            y = bilinear(images(1001, 1, 3, h, wide), height, width)
            out[f'resize.{height}x{width}'] = y[:, :, ::13].contiguous() if height == 299 else y
        out['pictures'] = pictures()
        if len(sys.argv) > 2:
            x = bilinear(out['pictures'], 299, 299).double()
            out['real'] = network(load_file(sys.argv[2]))(x)[0].reshape(10, 2048).float()
        else:
            out['real'] = load_file(path)['real']
    save_file(out, path)


if __name__ == '__main__':
    main()
