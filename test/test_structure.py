# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What no linter checks: licence lines, paths, links, folders, and what a robot loads."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / 'vjepa_ros'
HEADER = ['# SPDX-License-Identifier: Apache-2.0', '# Copyright 2026 vjepa_ros maintainers']
ABSOLUTE = re.compile(r"""['"`\s(=](/(?:home|root|tmp|work|usr/local|Users|mnt)/[\w.-]+)""")
LINK = re.compile(r'\]\(([^)\s#]+)')     # the file of a Markdown link, without anchor


def sources() -> list[Path]:
    folders = (PACKAGE, ROOT / 'test', ROOT / 'launch', ROOT / 'requirements')
    return [*sorted(p for folder in folders for p in folder.rglob('*.py')), ROOT / 'setup.py']


def test_every_file_says_its_licence_and_its_job():
    wrong = []
    for path in sources():
        text = path.read_text(encoding='utf-8')
        lines = text.splitlines()
        at = lines[0].startswith('#!')
        docstring = ast.get_docstring(ast.parse(text)) or ''
        if lines[at:at + 2] != HEADER or not docstring.partition('\n')[0].rstrip().endswith('.'):
            wrong.append(path.relative_to(ROOT).as_posix())
    assert wrong == []


def test_no_path_of_a_machine_is_written_down():
    patterns = ('*.md', '*.toml', '*.cfg', '*.xml', 'Makefile', '.ci/*', 'config/*',
                'docs/**/*.md', 'requirements/*.txt')
    texts = [p for pattern in patterns for p in ROOT.glob(pattern) if p.is_file()]
    found = {path.relative_to(ROOT).as_posix(): ABSOLUTE.findall(path.read_text(encoding='utf-8'))
             for path in (*sources(), *texts)}
    assert {name: paths for name, paths in found.items() if paths} == {}


def test_links_between_documents_lead_to_files():
    broken = [(path.relative_to(ROOT).as_posix(), target)
              for path in (*ROOT.glob('*.md'), *ROOT.glob('docs/**/*.md'), *PACKAGE.rglob('*.md'))
              for target in LINK.findall(path.read_text(encoding='utf-8'))
              if not target.startswith('http') and not (path.parent / target).exists()]
    assert broken == []


def test_each_test_that_the_page_on_faults_names_exists():
    named = set(re.findall(r'`(test_\w+)`', (ROOT / 'docs' / 'safety.md').read_text('utf-8')))
    tests = '\n'.join(path.read_text('utf-8') for path in (ROOT / 'test').glob('test_*.py'))
    assert len(named) > 25
    assert {name for name in named if f'def {name}(' not in tests} == set()


def test_the_core_works_where_there_is_no_ros():
    code = ('import sys\n'
            'for name in ("rclpy", "std_msgs", "sensor_msgs", "builtin_interfaces"):\n'
            '    sys.modules[name] = None\n'                  # makes any import of it fail
            'import vjepa_ros\n'
            'import vjepa_ros.cli.parameter_docs, vjepa_ros.ros.read\n'
            'assert "rclpy" not in [m for m in sys.modules if sys.modules[m]]\n'
            'print(vjepa_ros.ObstacleDetector.__name__)\n')
    assert run(code).strip() == 'ObstacleDetector'


@pytest.mark.ros
@pytest.mark.parametrize('node', ['perception_node', 'collision_guard', 'local_planner',
                                  'command_watchdog'])
def test_a_robot_loads_nothing_of_the_lab(node):
    pytest.importorskip('rclpy')
    loaded = run(f'import sys, vjepa_ros.ros.{node}.node\nprint(*sys.modules)').split()
    foreign = re.compile(
        r'(vjepa_ros\.(lab|cli|fleet|viewer)|matplotlib|pyarrow|rerun|rich)(\..+)?')
    assert [name for name in loaded if foreign.fullmatch(name)] == []


@pytest.mark.slow
def test_ament_flake8_finds_nothing():
    linter = pytest.importorskip('ament_flake8.main', reason='`make ament` installs ament_flake8')
    assert linter.main(['--config', str(ROOT / 'setup.cfg'), *(str(ROOT / name) for name in (
        'vjepa_ros', 'launch', 'setup.py', 'test'))]) == 0


@pytest.mark.slow
def test_ament_pep257_finds_nothing_in_what_users_import():
    linter = pytest.importorskip('ament_pep257.main', reason='`make ament` installs ament_pep257')
    # D105: special methods do what Python says of them.
    public = [str(PACKAGE / name) for name in (
        '__init__.py', 'detector.py', 'perception/types.py', 'ros/read.py', 'guard', 'sources')]
    assert linter.main(['--convention', 'numpy', '--add-ignore', 'D105', '--', *public]) == 0


def run(code: str) -> str:
    """What a Python process prints."""
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True,
                          timeout=400)
    assert done.returncode == 0, done.stderr
    return done.stdout
