# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The command line and its tools, as far as they need no ROS."""

from __future__ import annotations

import argparse
import csv
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import cv2
import pytest
from scenes import synthetic

from vjepa_ros import cli

ROOT = Path(__file__).resolve().parents[1]
SMALL = ['--weights', 'random', '--allow-random-weights', '--num-frames', '4',
         '--image-size', '64', '--clip-fps', '5', '--no-window']
PAGES = [ROOT / 'README.md', *sorted((ROOT / 'docs').rglob('*.md'))]
COMMAND = re.compile(rf'vjepa-ros ((?:{"|".join(cli.COMMANDS)})\b[^`#|>;]*)')
BLOCK = re.compile(r'```\w*\n(.*?)```', re.DOTALL)


@pytest.mark.parametrize('command', sorted(cli.COMMANDS))
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([command, '--help'])
    assert end.value.code == 0
    assert '--help' in capsys.readouterr().out


def test_the_package_runs_as_a_module_and_help_loads_no_tool():
    done = subprocess.run([sys.executable, '-X', 'importtime', '-m', 'vjepa_ros', '--help'],
                          capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0 and 'watch' in done.stdout, done.stderr
    loaded = {line.split('|')[-1].strip() for line in done.stderr.splitlines()}
    assert 'vjepa_ros' in loaded and loaded.isdisjoint({'torch', 'cv2', 'rclpy', 'rich'})


def test_a_missing_package_is_one_line_with_its_remedy(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, 'rich.console', None)
    monkeypatch.delitem(sys.modules, 'vjepa_ros.cli.find', raising=False)
    assert cli.main(['find', 'picture.jpg', 'results']) == 1
    assert 'pip install rich' in capsys.readouterr().err


@pytest.mark.parametrize(('distro', 'remedy'), [
    ('', "pip install '.[ros]'"), ('jazzy', f'jazzy is sourced, but {sys.executable}')])
def test_a_missing_rclpy_is_told_with_what_helps_here(distro, remedy, monkeypatch, capsys):
    monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
    monkeypatch.setenv('ROS_DISTRO', distro)
    assert cli.main(['top']) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert 'rclpy is missing' in line and remedy in line


def documented(text: str) -> set[str]:
    """What follows on `vjepa-ros` in blocks of code, a line each, and in spans of code."""
    lines = [line for block in BLOCK.findall(text)
             for line in block.replace('\\\n', ' ').splitlines()]
    spans = [' '.join(span.split()) for span in re.findall(r'`([^`]+)`', BLOCK.sub('', text))]
    return {re.sub(r'\bN\b', '2', found) for code in (*lines, *spans)
            for found in COMMAND.findall(code)}


@pytest.mark.parametrize('file', PAGES, ids=lambda p: p.name)
def test_commands_have_the_options_that_documents_name(file, monkeypatch):
    parse, wrong = argparse.ArgumentParser.parse_args, []

    def only_parse(parser, args=None, namespace=None):
        got = parse(parser, args, namespace)
        if parser.prog != 'vjepa-ros':       # which reads the name of the command alone
            parser.exit()
        return got

    def error(parser, said):
        if 'are required' not in said and 'expected' not in said:   # words are left out
            wrong.append(f'{parser.prog}: {said}')
        parser.exit()

    monkeypatch.setattr(argparse.ArgumentParser, 'parse_args', only_parse)
    monkeypatch.setattr(argparse.ArgumentParser, 'error', error)
    for command in documented(file.read_text(encoding='utf-8')):
        with pytest.raises(SystemExit):
            cli.main(shlex.split(command))
    assert not wrong


@pytest.fixture(scope='module')
def drive(tmp_path_factory):
    """A recording folder of the synthetic drive at an obstacle, small and slow."""
    folder = tmp_path_factory.mktemp('drive')
    (folder / 'frames').mkdir()
    with (folder / 'labels.csv').open('w', newline='') as file:
        table = csv.writer(file)
        table.writerow(['frame', 'stamp_s', 'collision', 'time_to_contact_s'])
        for number, frame in enumerate(synthetic(start_s=6.0, count=24)):
            name = f'{number:05d}.png'
            cv2.imwrite(str(folder / 'frames' / name), frame.rgb[..., ::-1])
            table.writerow([name, f'{number / 10:.3f}', int(frame.truth['collision']),
                            f"{frame.truth['time_to_contact_s']:.4f}"])
    return folder


def test_watch_reports_on_a_recording_with_the_truth_of_its_labels(drive, tmp_path, capsys):
    out = tmp_path / 'out'
    assert cli.main(['watch', str(drive), *SMALL, '--out', str(out)]) == 0
    summary = json.loads((out / 'summary.json').read_text())
    assert summary['frames_in'] == 24 and 10 <= summary['assessments_out'] <= 24
    assert summary['trained'] is False and summary['ttc_judged'] >= 10
    assert (out / 'report.html').stat().st_size > 10_000
    capture = cv2.VideoCapture(str(out / 'overlay.mp4'))
    shown = capture.get(cv2.CAP_PROP_FRAME_COUNT) / capture.get(cv2.CAP_PROP_FPS)
    capture.release()
    assert shown == pytest.approx(2.4, abs=0.3)
    text = capsys.readouterr().out
    assert 'UNTRAINED' in text and 'report.html' in text


@pytest.mark.parametrize(('source', 'words', 'said'), [
    ('nowhere.mp4', SMALL, 'nowhere.mp4'),
    ('', [*SMALL, '--weights', 'missing.safetensors'], 'missing.safetensors'),
    ('', ['--model-size', 'small', '--no-window'], '--allow-random-weights')])
def test_watch_says_what_is_wrong_and_writes_nothing(source, words, said, drive, tmp_path, capsys):
    out = tmp_path / 'out'
    assert cli.main(['watch', source or str(drive), *words, '--out', str(out)]) == 1
    assert said in capsys.readouterr().out
    assert not out.exists()


@pytest.mark.parametrize('words', [
    ['watch', 'synthetic'], ['demo'], ['score', 'film.mp4'], ['train']])
def test_a_file_as_folder_of_the_results_is_refused_before_the_work(words, tmp_path, capsys):
    (tmp_path / 'file').write_text('mine')
    with pytest.raises(SystemExit):
        cli.main([*words, '--out', str(tmp_path / 'file' / 'deeper')])
    said = capsys.readouterr().err.splitlines()[-1]
    assert '--out' in said and f"'{tmp_path / 'file'}' is a file" in said
