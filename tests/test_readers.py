"""Whatever comes from elsewhere: 20,000 damaged inputs, and small files that ask for much memory or time."""
import functools
import io
import logging
import os
import resource
import struct
import subprocess
import sys
import tempfile
import zlib

import numpy as np
import pytest
from broken_photographs import png
from fuzz import ABOUT, NET, READERS, fuzz, marked, model, weights

COUNT = 20_000

SEED = 28


@pytest.mark.parametrize("name", READERS)
def test_damaged_inputs_are_refused_in_one_line(name, tmp_path):
    if name in ("request", "labelling interface"):
        pytest.importorskip("starlette", reason="needs the packages of requirements/studio.txt: make test-studio")
    logging.disable(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else tmp_path) as folder:
            fuzz(name, -(-COUNT // len(READERS)), SEED, folder)     # in memory: a disk would be waited for
    finally:
        logging.disable(logging.NOTSET)


# Bombs: each is read in a process of its own, whose memory and time are measured.

def zeros(width, height, depth, colour):
    """A PNG of that many pixels, all 0."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    packer, row = zlib.compressobj(9), bytes(1 + width * depth * {0: 1, 3: 1, 6: 4}[colour] // 8)
    packed = b"".join([*(packer.compress(row) for _ in range(height)), packer.flush()])
    palette = chunk(b"PLTE", bytes(768)) if colour == 3 else b""
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + palette + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def npz_of_zeros():
    data = io.BytesIO()
    np.savez_compressed(data, probabilities=np.zeros((21, 3000, 3000), np.float16))
    return data.getvalue()


def model_with(net=NET, about=ABOUT):
    return model([net, weights(), about])


BRACKETS, DIGITS = b"[" * 100_000, b'{"size": ' + b"9" * 1_000_000 + b"}"

# name: (name of the reader in tests/fuzz.py, content of its file or what writes it, megabytes that it may take)
BOMBS = {
    "a large padding": ("model", model_with(NET.replace(b"pad: 0", b"pad: 1500")), 300),
    "a huge kernel": ("model", model_with(NET.replace(b"kernel_size: 1", b"kernel_size: 100000")), 300),
    "a model's number of a million digits": ("model.json", ABOUT.replace(b"0.5", b"9" * 1_000_000), 300),
    "a net's description of a million digits": ("about", DIGITS, 300),
    "brackets in model.json": ("model.json", BRACKETS, 300),
    "brackets in state.json": ("state.json", BRACKETS, 300),
    "digits in state.json": ("state.json", DIGITS, 300),
    "brackets in photographs.json": ("photographs.json", BRACKETS, 300),
    "brackets in index.json": ("index.json", BRACKETS, 300),
    "digits in a preset": ("preset", DIGITS, 300),
    "brackets in a preset": ("preset", BRACKETS, 300),
    "brackets in a result": ("result", BRACKETS, 300),
    "brackets in COCO": ("COCO", BRACKETS, 300),
    "digits in COCO": ("COCO", DIGITS, 300),
    "brackets in a request": ("request", BRACKETS, 300),
    "digits in a request": ("request", DIGITS, 300),
    "brackets in param_str": ("param_str", BRACKETS, 300),
    "brackets in constraints.toml": ("constraints.toml", b"[cat]\nleast = " + BRACKETS, 300),
    "digits in constraints.toml": ("constraints.toml", b"[cat]\nleast = " + b"9" * 1_000_000, 300),
    "digits in a mask's text": ("mask's texts", marked(settings="9" * 900_000), 300),
    "a head that promises many pixels": ("photograph", png(60_000, 60_000), 300),
    "a mask that promises many pixels": ("mask", png(60_000, 60_000), 300),
    "16 bits, 16 times the limit": ("photograph", functools.partial(zeros, 44_000, 44_000, 1, 0), 300),
    "16 bits, within the limit": ("photograph", functools.partial(zeros, 10_000, 10_000, 16, 0), 1500),
    "a scribble beyond the limit": ("painted scribble", functools.partial(zeros, 12_000, 11_000, 8, 3), 300),
    "a scribble within the limit": ("painted scribble", functools.partial(zeros, 10_900, 11_000, 8, 3), 1500),
    "a mask within the limit": ("mask", functools.partial(zeros, 10_900, 11_000, 8, 3), 1500),
    "probabilities": ("probabilities", npz_of_zeros, 700),
}


@pytest.mark.faults
@pytest.mark.parametrize("bomb", BOMBS)
def test_small_files_do_not_take_much(bomb, tmp_path):
    name, content, most = BOMBS[bomb]
    path = tmp_path / READERS[name][1]
    path.write_bytes(content() if callable(content) else content)
    assert path.stat().st_size < 3_000_000
    code = """if True:
        import logging, resource, sys
        from pathlib import Path
        import fuzz
        from ccnn._util.errors import UserError
        logging.disable(logging.CRITICAL)
        before = resource.getrusage(resource.RUSAGE_SELF)
        try:
            fuzz.READERS[sys.argv[1]][0](Path(sys.argv[2]))
        except UserError as error:
            assert "\\n" not in str(error) and len(str(error)) < 2000, str(error)
        after = resource.getrusage(resource.RUSAGE_SELF)
        print(after.ru_maxrss - before.ru_maxrss, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    """
    limit = (8 << 30, 8 << 30)              # a bomb that goes off hurts nobody
    done = subprocess.run([sys.executable, "-c", code, name, str(path)], cwd=tmp_path, capture_output=True, text=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit), timeout=300,
                          env=environment_of_tests())
    assert done.returncode == 0, done.stderr[-2000:]
    kilobytes, seconds = map(float, done.stdout.split())
    assert kilobytes / 1024 < most and seconds < 20, (kilobytes / 1024, seconds)


def environment_of_tests():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
