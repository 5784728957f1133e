# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Weights are loaded completely or not at all."""

import hashlib

import pytest
import torch
from safetensors.torch import save_file

from vjepa_ros.model.checkpoint import files
from vjepa_ros.model.checkpoint.load import WeightsError, load_encoder
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import Variant

SIZE = Variant('test', 48, 2, 1, 96)


@pytest.fixture(autouse=True)
def nothing_bundled(tmp_path, monkeypatch):
    """As if the package brought no weights; test_bundle.py tests those."""
    monkeypatch.setattr(files, 'WEIGHTS_FOLDER', tmp_path)


def tensors(variant=SIZE, seed=7):
    with torch.no_grad():
        encoder = Encoder(variant)
        encoder.init_random(seed)
    return {key: value.clone() for key, value in encoder.state_dict().items()}


def saved(tmp_path, state):
    path = tmp_path / 'weights.safetensors'
    save_file(state, path)
    return path


def test_without_weights_loading_is_refused_and_both_remedies_are_named():
    with pytest.raises(WeightsError) as error:
        load_encoder('tiny')
    assert '`weights`' in str(error.value)
    assert '`allow_random_weights: true`' in str(error.value)


def test_random_weights_depend_on_the_seed_alone():
    first, second = (load_encoder(SIZE, allow_random_weights=True, seed=3)[0] for _ in range(2))
    other = load_encoder(SIZE, allow_random_weights=True, seed=4)[0]
    for key, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[key]), key
    assert not torch.equal(first.blocks[0].attn.qkv.weight, other.blocks[0].attn.qkv.weight)


def test_random_weights_follow_the_initialisation_of_the_training_code():
    encoder, _ = load_encoder(Variant('test', 192, 4, 3, 768), allow_random_weights=True)
    assert encoder.patch_embed.proj.weight.std().item() == pytest.approx(0.02, rel=0.02)
    for number, block in enumerate(encoder.blocks, start=1):
        scaled = 0.02 / (2 * number) ** 0.5
        assert block.attn.qkv.weight.std().item() == pytest.approx(0.02, rel=0.02)
        assert block.attn.proj.weight.std().item() == pytest.approx(scaled, rel=0.03)
        assert block.mlp.fc2.weight.std().item() == pytest.approx(scaled, rel=0.03)
        assert block.mlp.fc1.bias.abs().max() == 0
        assert (block.norm1.weight == 1).all() and (block.norm1.bias == 0).all()


@pytest.mark.parametrize('prefix', ['', 'module.', 'backbone.', 'module.backbone.', 'encoder.'])
def test_a_file_is_loaded_whatever_wrapper_its_keys_carry(tmp_path, prefix):
    state = tensors()
    path = saved(tmp_path, {prefix + key: value for key, value in state.items()})
    encoder, report = load_encoder(SIZE, weights=str(path))
    for key, value in encoder.state_dict().items():
        assert torch.equal(value, state[key]), key
    assert report.trained
    assert report.path == str(path)
    assert report.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert report.keys_loaded == len(state)


def test_a_missing_key_is_an_error_that_names_it(tmp_path):
    state = tensors()
    del state['blocks.1.mlp.fc2.bias']
    with pytest.raises(WeightsError, match=r'1 missing \(blocks\.1\.mlp\.fc2\.bias\)'):
        load_encoder(SIZE, weights=saved(tmp_path, state))


def test_an_unexpected_key_is_an_error_that_names_it(tmp_path):
    state = tensors() | {'head.weight': torch.zeros(2)}
    with pytest.raises(WeightsError, match=r'1 unexpected \(head\.weight\)'):
        load_encoder(SIZE, weights=saved(tmp_path, state))


def test_a_wrong_shape_is_an_error_that_names_both_shapes(tmp_path):
    state = tensors() | {'norm.bias': torch.zeros(5)}
    with pytest.raises(WeightsError, match=r'norm\.bias \(5,\) instead of \(48,\)'):
        load_encoder(SIZE, weights=saved(tmp_path, state))


def test_a_file_of_another_size_is_refused_with_the_size_it_fits(tmp_path):
    state = load_encoder('tiny', allow_random_weights=True)[0].state_dict()
    with pytest.raises(WeightsError, match=r"does not fit model size 'small'.*size 'tiny'"):
        load_encoder('small', weights=saved(tmp_path, state))


@pytest.mark.parametrize(('asked', 'there'), [('2.0', '2.1'), ('2.1', '2.0')])
def test_a_file_of_another_version_is_refused_with_the_version_it_fits(tmp_path, asked, there):
    state = load_encoder('tiny', there, allow_random_weights=True)[0].state_dict()
    with pytest.raises(WeightsError, match=rf"version {asked}.*fits model size 'tiny' version "
                                           rf'{there}'):
        load_encoder('tiny', asked, saved(tmp_path, state))


def test_a_file_of_no_known_size_is_refused_with_the_sizes_there_are(tmp_path):
    with pytest.raises(WeightsError, match=r'looks like version 2\.0 and fits none of the sizes'):
        load_encoder('tiny', weights=saved(tmp_path, tensors()))


@pytest.mark.parametrize('allow', [False, True])
def test_a_missing_file_never_turns_into_random_weights(tmp_path, allow):
    with pytest.raises(WeightsError, match='does not exist'):
        load_encoder(SIZE, weights=tmp_path / 'none.safetensors', allow_random_weights=allow)
