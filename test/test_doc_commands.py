# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The commands that documents tell people to type have the options that they name."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from vjepa_ros import cli

ROOT = Path(__file__).resolve().parents[1]
FILES = [ROOT / 'README.md', *sorted((ROOT / 'docs').rglob('*.md'))]
COMMAND = re.compile(rf'vjepa-ros ((?:{"|".join(cli.COMMANDS)})\b[^`#|>;]*)')
BLOCK = re.compile(r'```\w*\n(.*?)```', re.DOTALL)


def commands(text: str) -> set[str]:
    """What follows on `vjepa-ros`: in blocks of code a line each, and in spans of code."""
    lines = [line for block in BLOCK.findall(text)
             for line in block.replace('\\\n', ' ').splitlines()]
    spans = [' '.join(span.split()) for span in re.findall(r'`([^`]+)`', BLOCK.sub('', text))]
    return {re.sub(r'\bN\b', '2', found) for code in (*lines, *spans)
            for found in COMMAND.findall(code)}


def problems(text: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What argparse says against the commands of a text, but for words that it leaves out."""
    parse, found = argparse.ArgumentParser.parse_args, {}

    def only_parse(parser, args=None, namespace=None):
        got = parse(parser, args, namespace)
        if parser.prog != 'vjepa-ros':       # which reads the name of the command alone
            parser.exit()
        return got

    def error(parser, said):
        if 'are required' not in said and 'expected' not in said:
            found[command] = said
        parser.exit()

    monkeypatch.setattr(argparse.ArgumentParser, 'parse_args', only_parse)
    monkeypatch.setattr(argparse.ArgumentParser, 'error', error)
    for command in commands(text):
        with pytest.raises(SystemExit):
            cli.main(shlex.split(command))
    return found


@pytest.mark.parametrize('file', FILES, ids=lambda p: p.name)
def test_commands_have_the_options_that_documents_name(file, monkeypatch):
    assert not problems(file.read_text(encoding='utf-8'), monkeypatch)


def test_a_wrong_option_and_a_wrong_choice_are_noticed(monkeypatch):
    assert list(problems('`vjepa-ros top --twice`', monkeypatch)) == ['top --twice']
    text = '```\nvjepa-ros score a --out \\\n b --event-level red  # no\n```'
    assert len(problems(text, monkeypatch)) == 1
