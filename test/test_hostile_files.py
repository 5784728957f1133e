# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Files that nobody made on purpose are refused as such, quickly, whatever is wrong with them."""

from __future__ import annotations

import re
import time
import zipfile

import pytest
import torch
from bundles import encoder_state, prefixed
from safetensors.torch import save_file
from sessions import SIZE

from vjepa_ros.model.checkpoint.files import WeightsError, open_weights
from vjepa_ros.model.checkpoint.load import examine, load_encoder, read_meta

pytestmark = pytest.mark.usefixtures('one_thread')

QUICK_S = 10.0   # of a processor; a refusal takes about one second at most


def archive(path, pkl, **records):
    """A file as torch.save writes them, around any pickle."""
    with zipfile.ZipFile(path, 'w') as out:
        out.writestr('a/data.pkl', pkl)
        for name, data in {'data/0': bytes(16), 'version': b'3\n', **records}.items():
            out.writestr(f'a/{name}', data)
    return path


def refusal(path, use=open_weights):
    """What is said of a file, which must be said soon."""
    begin = time.thread_time()
    with pytest.raises(WeightsError) as error:
        use(path, 'weights')
    assert time.thread_time() - begin < QUICK_S
    assert str(path) in str(error.value)
    assert len(str(error.value)) < 2000
    return str(error.value)


ORDERED = b'\x80\x02ccollections\nOrderedDict\nq\x00'
PLAIN = b'\x80\x02}.'


@pytest.mark.parametrize(('pkl', 'how', 'problem'), [
    (ORDERED + b'h\x00)R' * 70_000 + b'.', {}, 'far more calls'),
    (b'\x80\x02' + b'}' * 450_000 + b'.', {}, 'more than 400000 instructions'),
    (b'\x80\x02' + b'N0' * 3_000_000 + b'.', {}, 'entries that are compressed or long'),
    (b'\x80\x02N' + b'\x85' * 30_000 + b'.', {}, 'more than 50 deep'),
    (ORDERED + b']q\x01(' + b'K\x01K\x02\x86' * 5_000 + b'eh\x00h\x01\x85R'
     + b'h\x00h\x01\x85R' * 2_000 + b'.', {}, 'copies of objects'),
    (b'\x80\x02c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R.', {},
     r"would run code \('__builtin__.bytearray'\)"),
    (b'\x80\x02X\x01\x00\x00\x00aK\x01\x85R.', {}, 'damaged'),
    (PLAIN, {'version': bytes(5 << 20)}, 'compressed or long'),
    (PLAIN, {'b/DATA.PKL': PLAIN}, 'no checkpoint that torch.save wrote'),
    (b'\x80\x02}X\x02\x00\x00\x00\xff\xfeK\x01s.', {}, 'damaged: UnicodeDecodeError'),
    (b'\x80\x02.', {}, 'truncated or damaged: IndexError'),
    (b'\x80\x02}(K\x01u.', {}, 'truncated or damaged')], ids=range(12))
def test_an_archive_that_is_costly_or_that_torch_did_not_write_is_refused(tmp_path, pkl, how,
                                                                          problem):
    assert re.search(problem, refusal(archive(tmp_path / 'a.pt', pkl, **how)))


@pytest.mark.parametrize(('content', 'problem'), [
    ({'encoder': {'module.' * 100 + 'a': torch.zeros(1)}}, 'name of 709 characters'),
    ({'encoder': {'a': torch.zeros(1).expand(10**9)}}, 'but tensors of 4000000000'),
    ({'encoder': {f'blocks.{"9" * 240}.attn.qkv.bias': torch.zeros(1)}},
     'fits none of the sizes')])
def test_tensors_that_cannot_be_are_refused(tmp_path, content, problem):
    torch.save(content, tmp_path / 'a.pt')
    assert problem in refusal(tmp_path / 'a.pt', lambda path, _: load_encoder(SIZE, weights=path))


@pytest.mark.parametrize('name', ['config.json', 'model.safetensors.index.json'])
@pytest.mark.parametrize('text', [b'[' * 100_000, b'\xff\xfe', b'{"weight_map": {}}',
                                  b' ' * (5 << 20)], ids=range(4))
def test_json_of_a_folder_is_bounded(tmp_path, name, text):
    (tmp_path / 'config.json').write_text('{"model_type": "vjepa2"}')
    (tmp_path / name).write_bytes(text)
    refusal(tmp_path)


def test_a_long_header_of_safetensors_is_refused(tmp_path):
    text = b'{"__metadata__": {"a": "' + b'x' * (5 << 20) + b'"}}'
    path = tmp_path / 'a.safetensors'
    path.write_bytes(len(text).to_bytes(8, 'little') + text + bytes(64))
    assert 'header of 5.0 MiB' in refusal(path)


@pytest.mark.parametrize('text', ['[' * 100_000, '[]', '{"format": 1}',
                                  '{"format": 1, "contact_edges": [1' + '0' * 400 + ']}'],
                         ids=range(4))
def test_a_description_of_heads_that_is_none_is_refused_by_all_who_read_it(tmp_path, text):
    path = tmp_path / 'a.safetensors'
    save_file(prefixed(encoder_state(variant=SIZE), 'encoder.'), path, {'vjepa_ros': text})
    refusal(path, lambda path, _: load_encoder(SIZE, weights=path))
    refusal(path, lambda path, _: examine(path))
    refusal(path, lambda path, _: read_meta(path))
