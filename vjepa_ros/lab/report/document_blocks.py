# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Replace generated blocks of a document."""

from __future__ import annotations


def fill(text: str, name: str, content: str) -> str:
    """The text with `content` between ``<!-- name:begin -->`` and ``<!-- name:end -->``.

    Raises
    ------
    ValueError
        When a mark is missing.
    """
    begin, end = f'<!-- {name}:begin -->\n', f'<!-- {name}:end -->'
    if begin not in text or end not in text:
        raise ValueError(f'the document has no block between {begin.strip()} and {end}')
    before, rest = text.split(begin, 1)
    return before + begin + content + end + rest.split(end, 1)[1]
