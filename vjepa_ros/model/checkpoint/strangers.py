# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Say what a file is that is no checkpoint of V-JEPA 2."""

from __future__ import annotations

import re
from collections.abc import Mapping

from vjepa_ros.model.checkpoint.files import Shaped
from vjepa_ros.model.variants import PATCH, TUBELET

PATCHES = ('patch_embed.proj.weight', 'embeddings.patch_embeddings.proj.weight')
OURS = (3, TUBELET, PATCH, PATCH)       # shape of a patch in these weights
MERGE = 'merge them into their encoder and save that'
TOGETHER = 'give the file of the encoder'

# What tells families apart, first match first: a part of the name of a parameter, what such a file
# is, and what to do; '' to take a checkpoint of V-JEPA 2.
FAMILIES = tuple((re.compile(sign), what, remedy) for sign, what, remedy in (
    (r'(^|[._])lora_|\.(hada|lokr)_', 'adapters (LoRA) of another network', MERGE),
    (r'(^|\.)(vision_model|text_model|visual|visual_projection)\.|(^|\.)logit_scale$',
     'CLIP or SigLIP', ''),
    (r'(^|\.)videomae\.|\.q_bias$|encoder_to_decoder|(^|\.)decoder\.', 'VideoMAE', ''),
    (r'(^|\.)(vivit|timesformer|temporal_attn|temporal_attention)\b', 'ViViT or TimeSformer', ''),
    (r'\.ls[12]\.gamma$|layer_scale[12]|(register|storage)_tokens', 'DINOv2 or DINOv3', ''),
    (r'(^|\.)(cls_token|class_token|class_embedding)$', 'an image transformer (ViT)', ''),
    (r'(embed_tokens|word_embeddings|wte|lm_head)\.', 'a language model', ''),
    (r'(^|\.)(conv1|stem)\.|(^|\.)layer[1-4]\.\d|running_mean$', 'a convolutional network', ''),
    (r'exp_avg|momentum_buffer', 'the state of an optimiser', TOGETHER),
    (r'^((module|model)\.)*(head|fc|classifier|linear)\.',
     'a classifier without its encoder', TOGETHER)))

# Beginnings of files that are no weights.
STARTS = (
    (b'version https://git-lfs', 'a pointer of Git LFS and not the file itself; run `git lfs '
     'pull` where it lies'),
    (b'<', 'a web page, perhaps of an error or a login; download the file itself'),
    (b'{', 'JSON, such as a configuration or a list of shards; give the folder that it lies in'),
    (b'\x1f\x8b', 'a compressed archive; unpack it and give the checkpoint inside'),
    (b'GGUF', 'a GGUF file, which holds language models'),
    (b'\x89HDF', 'an HDF5 file, as Keras writes them'),
    (b'\x93NUMPY', 'an array of NumPy'),
    (b'\x08', 'perhaps an ONNX network; give the checkpoint that it was exported from'))


def family(parameters: Mapping[str, Shaped]) -> tuple[str, str]:
    """Return what network parameters belong to, and what to do; '' where no sign tells."""
    for sign, what, remedy in FAMILIES:
        if any(map(sign.search, parameters)):
            return what, remedy
    for key in PATCHES:
        shape = tuple(parameters[key].shape) if key in parameters else ()
        if len(shape) == 4:
            return 'an image transformer', ''
        if len(shape) == 5 and shape[1:] != OURS:
            return f'a video transformer with patches of {shape[1:]} instead of {OURS}', ''
    return '', ''


def start_of(start: bytes) -> str:
    """Return what a file is by its first bytes, and what to do; '' where they do not tell."""
    if not start:
        return 'empty; download it again'
    text = start.lstrip()
    return next((what for sign, what in STARTS if text.startswith(sign)), '')
