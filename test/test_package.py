# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tests of what is installed: package description, requirements, colcon build, pip, config."""

from __future__ import annotations

import ast
import os
import re
import runpy
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import setuptools
import yaml

import vjepa_ros
from vjepa_ros.model.checkpoint.load import bundled_file, read_meta
from vjepa_ros.ros.perception_node.parameters import SCHEMA

REPOSITORY = Path(__file__).resolve().parents[1]
WEIGHTS = REPOSITORY / 'vjepa_ros' / 'weights'
CONFIGS = sorted(p for p in (REPOSITORY / 'config').glob('*.yaml')
                 # Those of other nodes are tested beside them.
                 if not p.name.startswith(('nav2', 'collision_guard', 'local_planner')))
# Import name -> name in package.xml and on the package index, where they differ.
ROS_PACKAGES = {'cv2': 'python3-opencv', 'PIL': 'python3-pil',
                **{name: f'python3-{name}' for name in ('matplotlib', 'numpy', 'psutil', 'yaml')}}
WHEELS = {'cv2': 'opencv-python-headless', 'PIL': 'pillow', 'yaml': 'pyyaml'}
ONLY_FROM_PIP = {'torch', 'torchao', 'safetensors', 'rich', 'rosbags', 'huggingface_hub',
                 'transformers'}


def imports_of(*folders: str) -> set[str]:
    """Top-level names of all imports below the folders, but those for type checkers."""
    found = set()
    for file in (file for folder in folders for file in (REPOSITORY / folder).rglob('*.py')):
        tree = ast.parse(file.read_text())
        tree.body = [node for node in tree.body if not isinstance(node, ast.If)
                     or ast.unparse(node.test) != 'TYPE_CHECKING']
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition('.')[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition('.')[0])
    return found - set(sys.stdlib_module_names) - {'vjepa_ros'}


@pytest.fixture
def setup_arguments(monkeypatch) -> dict:
    """What setup.py passes to setup()."""
    got = {}
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setattr(setuptools, 'setup', lambda **arguments: got.update(arguments))
    for name in ('COLCON', 'ROS_DISTRO'):
        monkeypatch.delenv(name, raising=False)
    runpy.run_path('setup.py')
    return got


def test_what_is_imported_is_required_and_the_version_is_the_same_everywhere(setup_arguments):
    manifest = ElementTree.parse(REPOSITORY / 'package.xml').getroot()
    assert manifest.find('version').text == setup_arguments['version'] == vjepa_ros.__version__
    depends = {tag.text for tag in manifest.iter('exec_depend')}
    used = imports_of('vjepa_ros', 'launch')
    assert {ROS_PACKAGES.get(name, name) for name in used - ONLY_FROM_PIP} <= depends
    lines = sum(setup_arguments['extras_require'].values(), setup_arguments['install_requires'])
    required = {re.match(r'[\w-]+', line).group().lower() for line in lines}
    used = {WHEELS.get(name, name) for name in imports_of('vjepa_ros')}
    assert used - depends <= required
    base = {re.match(r'[\w-]+', line).group() for line in setup_arguments['install_requires']}
    assert base == {'torch', 'safetensors', 'rich', 'matplotlib', 'pillow', 'psutil', 'PyYAML',
                    'numpy', 'opencv-python-headless'}      # and nothing else on a robot


def test_the_locked_environment_has_what_is_required_by_hash(setup_arguments):
    lines = (REPOSITORY / 'requirements/locked.txt').read_text().splitlines()[1:]
    locked = {}
    for line in lines:
        name, version = re.fullmatch(
            r'([a-z0-9._-]+)==(\S+) --hash=sha256:[0-9a-f]{64}', line).groups()
        locked[name.replace('_', '-')] = version
    assert len(locked) == len(lines) > 100
    files = [(REPOSITORY / 'requirements' / f'{name}.txt').read_text().splitlines()
             for name in ('dev', 'test', 'lint', 'ros-kilted')]
    wanted = {line for lines in (*files, setup_arguments['install_requires']) for line in lines
              if line and line[0] != '#' and "< '3.11'" not in line}
    for text in wanted:
        name = re.match(r'[A-Za-z0-9._-]+', text)[0].lower().replace('_', '-')
        assert (name in locked) == (name != 'torch'), text
        for pinned in re.findall(r'==([^;]+)', text):
            assert locked[name] == pinned


@pytest.mark.parametrize('file', sorted((REPOSITORY / 'docker').glob('*')),
                         ids=lambda file: file.name)
def test_containers_use_what_the_package_has(file):
    text = file.read_text()
    for launch, words in re.findall(r'vjepa_ros[" ,]+(\w+\.launch\.py)((?:.|\n)*)', text):
        source = (REPOSITORY / 'launch' / launch).read_text() + (
            REPOSITORY / 'vjepa_ros/ros/common/launching.py').read_text()
        for name in re.findall(r'(\w+):=', words):
            assert f"('{name}'," in source, name
    for name in re.findall(r'(?::[=-]|:-)(\w+\.yaml)', text):
        assert (REPOSITORY / 'config' / name).is_file()
    if file.suffix == '.yaml':
        for service in yaml.safe_load(text)['services'].values():
            if 'build' in service:
                assert (REPOSITORY / service['build']['dockerfile']).is_file()


def copy_of_repository(target: Path) -> Path:
    """Copy what a clone holds (no environments and build results)."""
    shutil.copytree(REPOSITORY, target, ignore=shutil.ignore_patterns(
        '.git', '.venv*', 'build', 'install', 'log', 'demo_output', '*.egg-info', '__pycache__',
        'docs', 'test', '.*_cache'))
    return target


def tool_env(*path: Path) -> dict[str, str]:
    """Environment of a tool: the folders on Python's path, but not the repository."""
    # setup.py and colcon look at the last, and must see the same on every machine.
    env = {name: value for name, value in os.environ.items() if name not in (
        'PYTHONPATH', 'ROS_DISTRO', 'AMENT_PREFIX_PATH', 'COLCON_PREFIX_PATH')}
    others = [p for p in os.environ.get('PYTHONPATH', '').split(os.pathsep)
              if p and Path(p).resolve() != REPOSITORY]
    return {**env, 'PYTHONPATH': os.pathsep.join([*map(str, path), *others])}


def run(command: list[object], cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=400)
    assert done.returncode == 0, done.stdout
    return done.stdout


def site_packages(prefix: Path) -> Path:
    """Folder below an installation prefix that has to be on the path."""
    return next(prefix.rglob('vjepa_ros/__init__.py')).parents[1]


@pytest.fixture(scope='module')
def colcon_prefix(tmp_path_factory) -> Path:
    """Prefix of a real colcon build of a copy of the repository."""
    pytest.importorskip('colcon_ros', reason='colcon is not installed here')
    workspace = tmp_path_factory.mktemp('workspace')
    copy_of_repository(workspace / 'src' / 'vjepa_ros')
    run([sys.executable, '-m', 'colcon', '--log-base', 'log', 'build'], workspace, tool_env())
    return workspace / 'install' / 'vjepa_ros'


@pytest.fixture(scope='module')
def pip_prefix(tmp_path_factory) -> Path:
    """Prefix of a real installation by pip."""
    folder = tmp_path_factory.mktemp('pip')
    run([sys.executable, '-m', 'pip', 'install', '--quiet', '--no-deps', '--no-index',
         '--no-build-isolation', '--ignore-installed', '--prefix', folder / 'prefix',
         copy_of_repository(folder / 'source')], folder, tool_env())
    return folder / 'prefix'


@pytest.fixture(params=['colcon', 'pip'])
def prefix(request) -> Path:
    return request.getfixturevalue(f'{request.param}_prefix')


def files(package: Path) -> set[str]:
    return {str(p.relative_to(package)) for p in package.rglob('*')
            if p.is_file() and p.suffix != '.pyc'}    # pip compiles every file it installs


def test_every_file_is_installed(prefix):
    assert files(site_packages(prefix) / 'vjepa_ros') == files(REPOSITORY / 'vjepa_ros')
    for folder in ('launch', 'config'):
        assert files(prefix / 'share/vjepa_ros' / folder) == files(REPOSITORY / folder) != set()


def test_the_installed_commands_run_without_the_repository(prefix, tmp_path):
    env = tool_env(site_packages(prefix))
    said = run([next(prefix.rglob('vjepa-ros')), '--version'], tmp_path, env)
    assert vjepa_ros.__version__ in said
    code = 'import vjepa_ros; print(vjepa_ros.__file__)'
    assert str(prefix) in run([sys.executable, '-c', code], tmp_path, env)
    # Where `ros2 run` looks for those that colcon has built.
    assert prefix.name != 'vjepa_ros' or {'vjepa_node', 'collision_guard', 'local_planner'} <= {
        file.name for file in (prefix / 'lib/vjepa_ros').iterdir()}


@pytest.mark.parametrize('file', CONFIGS, ids=lambda file: file.stem)
def test_with_every_parameter_file_the_heads_of_the_package_hold(file):
    content = yaml.safe_load(file.read_text())
    assert list(content) == ['/**'], 'the file must fit a node in every namespace'
    values = {**{row.name: row.default for row in SCHEMA.rows},
              **content['/**']['ros__parameters']}
    assert (values['weights'], values['heads'], values['allow_random_weights']) == ('', '', False)
    meta = read_meta(bundled_file(values['model_size'], 'auto'))
    assert {name: values[name] for name in ('num_frames', 'image_size', 'resize_mode')} == {
        name: getattr(meta, name) for name in ('num_frames', 'image_size', 'resize_mode')}
    shortest, longest = meta.interval_s
    assert shortest <= 1 / values['clip_fps'] <= longest
