# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Describe the package to colcon (ament_python) and to pip."""

import os
from glob import glob
from pathlib import Path

from setuptools import find_packages, setup

NAME = 'vjepa_ros'
HERE = Path(__file__).resolve().parent


def requirements(environ):
    """
    Name what pip has to bring, which depends on who owns the rest.

    Parameters
    ----------
    environ : mapping of str to str
        The environment variables of the build.

    Returns
    -------
    list of str
        Requirements for the `Requires-Dist` lines of the package.
    """
    # colcon installs no requirements; package.xml names them there. A list would only harm: the
    # OpenCV of apt is no distribution called opencv-python-headless, and a start script whose
    # requirements are checked would refuse to run beside it.
    if environ.get('COLCON') == '1':
        return []
    pip_only = ['torch>=2.4', 'safetensors>=0.4', 'rich>=12', 'matplotlib>=3.5', 'pillow>=9',
                'psutil>=5.8', 'PyYAML>=5.4']
    # A sourced ROS brings its own NumPy and OpenCV, and cv_bridge is compiled against them.
    if 'ROS_DISTRO' in environ:
        return pip_only
    return [*pip_only, 'numpy>=1.21', 'opencv-python-headless>=4.5']


def lines(name):
    """Read the requirements of a file in the folder requirements."""
    text = (HERE / 'requirements' / name).read_text()
    return [line for line in text.splitlines() if line and not line.startswith('#')]


setup(
    name=NAME,
    version='0.1.0',
    description='V-JEPA 2 obstacle and collision perception for ROS 2',
    license='Apache-2.0',
    author='vjepa_ros maintainers',
    maintainer='vjepa_ros maintainers',
    maintainer_email='vjepa_ros@users.noreply.github.com',
    packages=find_packages(include=[NAME, f'{NAME}.*']),
    package_data={NAME: ['weights/*', 'sources/clips/*', 'lab/recipes/*'], '': ['*.cu']},
    data_files=[
        ('share/ament_index/resource_index/packages', [f'resource/{NAME}']),
        (f'share/{NAME}', ['package.xml', 'LICENSE']),
        (f'share/{NAME}/launch', sorted(glob('launch/*.launch.py'))),
        (f'share/{NAME}/config', sorted(glob('config/*'))),
        (f'share/{NAME}/security', sorted(glob('security/*.xml'))),
    ],
    python_requires='>=3.10',
    install_requires=requirements(os.environ),
    extras_require={
        'bags': ['rosbags>=0.10'],
        # score --ray; Ray 2.64 will refuse the keywords that limit retries.
        'fleet': ['av>=12', 'pyarrow>=14', 'rosbags>=0.10', 'ray[data]>=2.10,<2.64'],
        'video': ['av>=12'],         # camera topics with H.264 or H.265
        'score': ['av>=12', 'pyarrow>=14', 'rosbags>=0.10'],  # recordings, see docs/score.md
        'view': ['rerun-sdk>=0.41'],  # for the computer of who looks, 390 MB
        'hub': ['huggingface_hub>=0.23'],  # weights by their name on the Hugging Face hub
        'quantized': ['torchao>=0.18'],  # precision fp8 and int8, 28 MB
        'export': ['onnx>=1.16', 'onnxscript>=0.5', 'onnxruntime>=1.18'],
        # Weights of encoders by name, and recordings in bags.
        'train': ['huggingface_hub>=0.23', 'rosbags>=0.10'],
        'benchmark': ['transformers>=4.53'],     # --baseline hf
        'ros': lines('ros-kilted.txt'),  # real ROS 2 for a machine without one
        # By this colcon knows that `colcon test` is to run pytest.
        'test': [line for line in lines('dev.txt') if line.startswith('pytest')],
        'dev': [*lines('dev.txt'), *lines('test.txt')],
    },
    zip_safe=False,  # weights are read from a file
    entry_points={
        'console_scripts': [
            f'vjepa_node = {NAME}.ros.perception_node.__main__:main',
            f'camera_source = {NAME}.ros.common.process:camera_source',
            f'collision_guard = {NAME}.ros.collision_guard.__main__:main',
            f'command_watchdog = {NAME}.ros.command_watchdog.__main__:main',
            f'simulated_robot = {NAME}.ros.common.process:simulated_robot',
            f'local_planner = {NAME}.ros.local_planner.__main__:main',
            f'vjepa-ros = {NAME}.cli:main',
        ],
    },
)
