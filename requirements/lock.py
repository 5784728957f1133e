#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write locked.txt: what the development environment installs, each file with its SHA-256.

PyTorch is left out, and what its builds for GPUs bring: which build it is depends on the index.
Its version is pinned in torch.txt.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
WANTED = ('dev', 'test', 'lint', 'ros-kilted')
LEFT_OUT = ('torch', 'triton', 'nvidia-', 'cuda-')
HEAD = ('# For Python 3.11 on Linux x86_64, written by `make lock`; '
        '`make env LOCKED=1` installs it.\n')


def main() -> int:
    """Ask pip what it would install into an empty environment."""
    wanted = [word for name in WANTED for word in ('-r', str(HERE / f'{name}.txt'))]
    done = subprocess.run(
        [sys.executable, '-m', 'pip', 'install', '--dry-run', '--ignore-installed', '-qq',
         '--disable-pip-version-check', '--report', '-', *wanted,
         '-r', str(HERE / 'torch.txt'), '-e', f'{HERE.parent}[bags]'],
        stdout=subprocess.PIPE, text=True, check=True)
    lines = []
    for item in json.loads(done.stdout)['install']:
        name, told = item['metadata']['name'].lower(), item['download_info']
        if 'archive_info' in told and not name.startswith(LEFT_OUT):
            lines.append(f'{name}=={item["metadata"]["version"]} '
                         f'--hash=sha256:{told["archive_info"]["hashes"]["sha256"]}\n')
    (HERE / 'locked.txt').write_text(HEAD + ''.join(sorted(lines)))
    print(f'wrote {len(lines)} packages')
    return 0


if __name__ == '__main__':
    sys.exit(main())
