"""safetensors_interop.py IN OUT - checks, with the reference library, the file that
test_safetensors.c wrote, then writes one for C to read."""
import sys

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

with safe_open(sys.argv[1], "np") as f:
    assert f.metadata() == {"step": "17", "a \"quoted\" key": "line\nbreak, \u00e9"}, f.metadata()
    t = {name: f.get_tensor(name) for name in f.keys() if name != "bf16"}
    assert f.get_slice("bf16").get_shape() == [2]
assert t["f32"].dtype == np.float32 and t["f32"].tolist() == [[0, 0.5, 1], [1.5, 2, 2.5]], t["f32"]
assert t["f64"].dtype == np.float64 and t["f64"].tolist() == [0.1], t["f64"]
assert t["f16"].dtype == np.float16 and t["f16"].tolist() == [1, -2], t["f16"]
assert t["i64"].tolist() == [-(2 ** 63), 2 ** 63 - 1], t["i64"]
assert t["i32"].tolist() == [[-5]], t["i32"]
assert t["u8"].shape == (3, 1, 1) and t["u8"].reshape(-1).tolist() == [0, 128, 255], t["u8"]
assert t["scalar"].shape == () and t["scalar"] == 42 and t["empty"].shape == (0, 4), t
save_file(t, sys.argv[2], metadata={"from": "python"})
