# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the order of the rooms: who may import whom, and what every module must look like."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / 'vjepa_ros'
# From left to right; a room imports only itself and rooms to its left.
CHAIN = ('model', 'runtime', 'clip', 'perception', 'guard')
ALLOWED = {
    **{room: set(CHAIN[:i + 1]) for i, room in enumerate(CHAIN)},
    'world': {'world'},
    'sources': {'sources', 'world'},
    'evaluation': {'evaluation'},
    'training': {*CHAIN, 'sources', 'world', 'evaluation', 'training'},
    'ros': {*CHAIN, 'ros', 'sources', 'world'},
    'tools': {*CHAIN, 'ros', 'sources', 'world', 'evaluation', 'training', 'tools', 'detector'},
}
# The plain Python interface stands beside the rooms, above perception.
ALLOWED_AT_TOP = {*CHAIN, 'detector'}
ROS = re.compile(r'rclpy|rcl_interfaces|rosidl\w*|lifecycle_msgs|builtin_interfaces|launch(_ros)?'
                 r'|ament_\w+|cv_bridge|\w+_(msgs|srvs)')
LONGEST = 350
DATA = {'weights'}   # folders of the package that hold no code
ABSOLUTE = re.compile(r"""['"`\s(=](/(?:home|root|tmp|work|usr/local|Users|mnt)/[\w.-]+)""")


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob('*.py'))


def sources() -> list[Path]:
    folders = (PACKAGE, ROOT / 'test', ROOT / 'launch', ROOT / 'requirements')
    return [*sorted(p for folder in folders for p in folder.rglob('*.py')), ROOT / 'setup.py']


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(path: Path) -> set[str]:
    """Dotted names of everything a module imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f'{name_of(path)}: imports are written in full'
            names |= {f'{node.module}.{alias.name}' for alias in node.names}
    return names


def test_there_is_a_rule_for_every_room():
    rooms = {path.name for path in PACKAGE.iterdir()
             if path.is_dir() and path.name[0] != '_' and path.name not in DATA}
    assert rooms == ALLOWED.keys()


@pytest.mark.parametrize('path', modules(), ids=name_of)
def test_a_room_imports_only_rooms_to_its_left(path):
    parts = path.relative_to(PACKAGE).parts
    if parts == ('__main__.py',):
        allowed = {'tools'}                  # the command line, started with python -m
    else:
        allowed = ALLOWED[parts[0]] if len(parts) > 1 else ALLOWED_AT_TOP
    for name in imported(path):
        top, *rest = name.split('.')
        if top == 'vjepa_ros' and rest:
            inside = (PACKAGE / rest[0]).is_dir() or (PACKAGE / f'{rest[0]}.py').exists()
            if inside:                       # a name of the package itself belongs to no room
                assert rest[0] in allowed, f'{name_of(path)} imports {name}'


@pytest.mark.parametrize('path', [p for p in modules() if PACKAGE / 'ros' not in p.parents],
                         ids=name_of)
def test_only_the_room_of_ros_imports_ros(path):
    foreign = {name for name in imported(path) if ROS.fullmatch(name.split('.')[0])}
    assert not foreign


def test_the_core_works_where_there_is_no_ros():
    code = ('import sys\n'
            'for name in ("rclpy", "std_msgs", "sensor_msgs", "builtin_interfaces"):\n'
            '    sys.modules[name] = None\n'                  # makes any import of it fail
            'import vjepa_ros\n'
            'import vjepa_ros.ros.table, vjepa_ros.ros.read\n'
            'assert "rclpy" not in [m for m in sys.modules if sys.modules[m]]\n'
            'print(vjepa_ros.ObstacleDetector.__name__)\n')
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True,
                          timeout=400)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == 'ObstacleDetector'


@pytest.mark.parametrize('path', sources(), ids=name_of)
def test_every_file_says_its_licence_and_its_job(path):
    text = path.read_text(encoding='utf-8')
    lines = text.splitlines()
    at = lines[0].startswith('#!')
    assert lines[at:at + 2] == ['# SPDX-License-Identifier: Apache-2.0',
                                '# Copyright 2026 vjepa_ros maintainers']
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring
    assert docstring.splitlines()[0].rstrip().endswith('.')


@pytest.mark.parametrize('path', modules(), ids=name_of)
def test_no_module_is_too_long_to_read(path):
    assert len(path.read_text(encoding='utf-8').splitlines()) <= LONGEST


def texts() -> list[Path]:
    found = [p for pattern in ('*.md', '*.toml', '*.cfg', '*.xml', 'Makefile', '.ci/*',
                               'config/*', 'docs/**/*.md', 'requirements/*.txt')
             for p in ROOT.glob(pattern) if p.is_file()]
    return [*sources(), *sorted(found)]


@pytest.mark.parametrize('path', texts(), ids=name_of)
def test_no_path_of_a_machine_is_written_down(path):
    assert ABSOLUTE.findall(path.read_text(encoding='utf-8')) == []


@pytest.mark.parametrize('path', [p for p in modules() if PACKAGE / 'tools' not in p.parents],
                         ids=name_of)
def test_library_code_logs_and_does_not_print(path):
    calls = [node.func.id for node in ast.walk(ast.parse(path.read_text(encoding='utf-8')))
             if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    assert 'print' not in calls


MAY_CATCH_ALL = {'vjepa_ros/runtime/wake.py', *(f'vjepa_ros/ros/{name}.py' for name in (
    'worker', 'decoder', 'intake', 'service', 'swapper', 'transitions', 'planner_worker'))}


@pytest.mark.parametrize('path', modules(), ids=name_of)
def test_no_error_is_swallowed(path):
    """`except Exception` is for threads and for the transitions of nodes only."""
    broad = []
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if isinstance(node, ast.ExceptHandler):
            caught = [n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)] \
                if node.type else ['bare']
            reraised = any(isinstance(n, ast.Raise) for n in ast.walk(node))
            if {'bare', 'Exception', 'BaseException'} & set(caught) and not reraised:
                broad.append(node.lineno)
    if name_of(path) not in MAY_CATCH_ALL:
        assert broad == []
