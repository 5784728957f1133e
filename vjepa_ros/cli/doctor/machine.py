# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Look at this machine: devices, memory, libraries, middleware, weights, disk."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from vjepa_ros.cli.console import with_options
from vjepa_ros.ros.common.environment import LARGE_IMAGES, TUNING
from vjepa_ros.ros.common.processes import FOREIGN, middleware_hint, takes_large_images
from vjepa_ros.ros.doctor.finding import ERROR, Finding, NOTE, OK, WARNING

GB = 2**30
LOW_DISK_GB, LOW_MEMORY_GB, LOW_SHARED_GB = 2.0, 1.0, 0.25
SOCKET_BYTES = 4 << 20       # receive buffer that fragments of a large image need
SOCKETS = Path('/proc/sys/net/core/rmem_max')
OPTIONAL = {             # modules, and what pip installs where that has another name
    'rich': '', 'matplotlib': '', 'psutil': '', 'yaml': 'PyYAML', 'rosbags': '', 'av': '',
    'huggingface_hub': '', 'onnxruntime': 'onnx onnxscript onnxruntime', 'rerun': 'rerun-sdk',
    'pyarrow': '', 'ray': "'ray[data]<2.64'"}


def devices(wanted: str, precision: str) -> Iterator[Finding]:
    """Yield the devices, and which one a model would get."""
    try:
        import torch

        from vjepa_ros.lab.report.measurement import hardware, versions
        from vjepa_ros.runtime import device as policy
    except ModuleNotFoundError as error:
        yield Finding(ERROR, 'python', f'{error.name} is missing: no model runs here',
                      'pip install . in the checkout, or follow docs/get-started.md')
        return
    about = hardware()
    yield Finding(OK, 'machine', ', '.join(f'{name} {value}' for name, value in about.items()))
    yield Finding(OK, 'libraries', ', '.join(f'{name} {value}' for name, value
                                             in versions().items())
                  + f'; PyTorch is built for {policy.build()}, '
                  f'{torch.get_num_threads()} threads')
    present = policy.find_devices()
    for each in present.values():
        memory = f', {each.memory_bytes / GB:.0f} GB' if each.memory_bytes else ''
        words = f', {" ".join(sorted(each.features))}' if each.features else ''
        yield (Finding(ERROR, each.title, each.problem, 'install the PyTorch for it') if
               each.problem else Finding(OK, each.title, f'usable{memory}{words}'))
    try:
        choice = policy.choose_device(wanted, True, precision, present)
        yield Finding(OK, 'choice', f'{choice.device} in {choice.precision}: {choice.reason}')
    except policy.DeviceError as error:
        yield _failed('choice', error)
    yield from _unused(present)


def _failed(about: str, error: Exception) -> Finding:
    """Return the finding of an error of the core, which ends with its remedy."""
    text, _, remedy = str(error).rpartition('; ')
    return Finding(ERROR, about, text or remedy, with_options(
        remedy, ('device', 'precision', 'weights')) if text else 'choose another value')


def _unused(present: Mapping[str, object]) -> Iterator[Finding]:
    """Yield a finding for an accelerator that this PyTorch does not see."""
    nvidia = next((path for path in ('/dev/nvidia0', '/dev/nvhost-gpu', '/dev/nvmap')
                   if os.path.exists(path)), '')
    if nvidia and not any(name.startswith('cuda') for name in present):
        yield Finding(ERROR, 'GPU', f'{nvidia} is there, but this PyTorch sees no CUDA device',
                      'install the PyTorch wheel for its CUDA; on a Jetson the one of its '
                      'JetPack (docs/jetson.md); in a container give it the GPU')
    if sys.platform == 'darwin' and 'mps' not in present:
        yield Finding(WARNING, 'GPU', 'macOS, but no MPS', 'use an arm64 Python and macOS 13 or '
                      'later')


def packages() -> Iterator[Finding]:
    """Yield which optional packages are missing, and what installs them."""
    for name, wanted in OPTIONAL.items():
        if find_spec(name) is None:
            yield Finding(NOTE, 'packages', f'{name} is not installed',
                          f'pip install {wanted or name}')


def memory() -> Iterator[Finding]:
    """Yield free memory and disk, and the caches."""
    if find_spec('psutil'):
        import psutil

        free = psutil.virtual_memory().available / GB
        yield Finding(WARNING if free < LOW_MEMORY_GB else OK, 'memory', f'{free:.1f} GB free',
                      'end other programs, or choose a smaller model' * (free < LOW_MEMORY_GB))
    places = {'disk': (Path.cwd(), LOW_DISK_GB, 'reports and bags need room'),
              'temporary files': (Path(tempfile.gettempdir()), LOW_DISK_GB, 'remove old ones'),
              'shared memory': (Path('/dev/shm'), LOW_SHARED_GB, 'Fast DDS needs it: remove stale '
                                'fastrtps_* files, or give a container --ipc=host')}
    for name, (path, least, remedy) in places.items():
        if path.is_dir():
            free = shutil.disk_usage(path).free / GB
            low = free < least
            yield Finding(WARNING if low else OK, name, f'{free:.1f} GB free', remedy * low)
    for name, path in caches(os.environ).items():
        if path.is_dir():
            size = sum(file.lstat().st_size for file in path.rglob('*') if file.is_file()) / GB
            yield Finding(OK, f'cache of {name}', f'{size:.2f} GB')


def caches(environ: Mapping[str, str]) -> dict[str, Path]:
    """Return the folders in which weights and compiled code are kept, by what they are of."""
    home = Path(environ.get('XDG_CACHE_HOME') or Path.home() / '.cache')
    hub = Path(environ.get('HF_HOME') or home / 'huggingface') / 'hub'
    temporary = Path(tempfile.gettempdir())
    return {'the Hugging Face hub': Path(environ.get('HF_HUB_CACHE') or hub),
            'torch.compile': Path(environ.get('TORCHINDUCTOR_CACHE_DIR')
                                  or temporary / f'torchinductor_{environ.get("USER", "")}'),
            'CUDA extensions': Path(environ.get('TORCH_EXTENSIONS_DIR')
                                    or home / 'torch_extensions')}


def weights(files: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what each checkpoint is, and for which clips its heads are valid."""
    from vjepa_ros.model.checkpoint.files import WeightsError
    from vjepa_ros.model.checkpoint.load import bundled_file, examine, read_meta

    for who, file in files.items():
        path = file or str(bundled_file('tiny') or '')
        try:
            found = examine(path)
        except WeightsError as error:
            yield _failed(who, error)
            continue
        bad = [part.name for part in found.parts if not part.complete]
        parts = ', '.join(f'{p.name} ({kind})' if (kind := ' '.join(filter(None, (
            p.variant, p.version)))) else p.name for p in found.parts)
        yield Finding(ERROR if bad else OK, who, f'{Path(path).name} ({found.size / 1e6:.0f} MB, '
                      f'sha256 {found.sha256[:16]}): {parts}; made for {found.profile}',
                      f'{", ".join(bad)} incomplete: vjepa-ros inspect shows what is missing'
                      if bad else '')
        meta = read_meta(path) if Path(path).suffix == '.safetensors' else None
        if meta is None:
            yield Finding(NOTE, who, 'has no learned heads: geometry alone judges', 'give a file '
                          'with heads, or train some (docs/training.md)')
            continue
        modes = ', '.join((meta.resize_mode, *meta.other_modes))
        robot = ', '.join(f'{name} {value:g} m' for name, value in meta.robot.items())
        yield Finding(OK, who, f'heads are valid for {meta.num_frames} frames of '
                      f'{meta.image_size} px, resize_mode {modes}, {meta.interval_s[0]:g} to '
                      f'{meta.interval_s[1]:g} s apart; robot {robot}')


def middleware(environ: Mapping[str, str], name: str) -> Iterator[Finding]:
    """Yield distribution and middleware of ROS, and the settings of its transport."""
    variables = ('ROS_DISTRO', 'ROS_DOMAIN_ID', 'RMW_IMPLEMENTATION', 'ROS_LOCALHOST_ONLY',
                 'ROS_AUTOMATIC_DISCOVERY_RANGE', 'FASTDDS_BUILTIN_TRANSPORTS', *FOREIGN)
    given = ', '.join(f'{key}={environ[key]}' for key in variables if environ.get(key))
    yield Finding(OK, 'ROS', f'{environ.get("ROS_DISTRO") or "no ROS sourced: wheels"}, {name}; '
                  + (given or 'no variable sets discovery or transport'))
    known = {**environ, 'RMW_IMPLEMENTATION': name}
    if middleware_hint(known):
        yield Finding(NOTE, 'middleware', middleware_hint(known).strip(' ()'), 'ros2 run '
                      'rmw_zenoh_cpp rmw_zenohd')
    if 'fastrtps' in name:
        profiles = [key for key in FOREIGN if 'PROFILES' in key and environ.get(key)]
        if not environ.get('FASTDDS_BUILTIN_TRANSPORTS') and not profiles:
            yield Finding(WARNING, 'middleware', 'Fast DDS has its default transports: most raw '
                          'images above a megabyte are lost to best-effort readers',
                          f'export FASTDDS_BUILTIN_TRANSPORTS="{LARGE_IMAGES}" for camera and '
                          'node' if takes_large_images(known) else 'use the compressed topic')
        if environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE') == 'LOCALHOST':
            yield Finding(WARNING, 'middleware', 'ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST makes '
                          'rmw_fastrtps ignore the sizes in FASTDDS_BUILTIN_TRANSPORTS',
                          'set it to SUBNET and the transports to SHM?...')
    if environ.get('ROS_LOCALHOST_ONLY', '0') != '0':
        yield Finding(NOTE, 'middleware', 'ROS_LOCALHOST_ONLY is set: nodes of other computers '
                      'are not seen', 'unset it where the camera is on another computer')
    if SOCKETS.is_file() and int(SOCKETS.read_text()) < SOCKET_BYTES:
        yield Finding(NOTE, 'middleware', f'the kernel limits receive buffers to '
                      f'{int(SOCKETS.read_text()) >> 10} kB: images over UDP are lost',
                      f'sudo sysctl -w net.core.rmem_max={SOCKET_BYTES << 2}')
    unset = [key for key in TUNING if key not in environ]
    if unset:
        yield Finding(NOTE, 'environment', f'{", ".join(unset)} not set in this terminal',
                      'start nodes by the launch files, which set them')
