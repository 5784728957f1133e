#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Look for known weaknesses of what is installed, with pip-audit; silence is not an all-clear.

pip-audit finds nothing, and succeeds, where its server knows none of the packages.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import requires, version

PACKAGE = 'vjepa_ros'


def asked_for() -> set[str]:
    """Name what every installation of the package needs, but builds that no server knows."""
    needed = [re.match(r'[\w.-]+', line)[0] for line in requires(PACKAGE) or ()
              if 'extra ==' not in line]
    return {plain(name) for name in needed if '+' not in version(name)}     # torch 2.13.0+cpu


def plain(name: str) -> str:
    """Write the name of a distribution as an index does."""
    return re.sub(r'[-_.]+', '-', name).lower()


def judge(report: dict, needed: set[str]) -> tuple[list[str], bool]:
    """
    Say what a report of pip-audit means.

    Parameters
    ----------
    report
        Its JSON.
    needed
        Packages about which the server must have answered.

    Returns
    -------
    list of str
        Lines for people.
    bool
        Whether all is well: the needed packages are known, and no package has a known weakness.
    """
    lines, known, unknown = [], set(), set()
    for one in report['dependencies']:
        (unknown if 'skip_reason' in one else known).add(plain(one['name']))
        for weakness in one.get('vulns', ()):
            fixed = ', '.join(weakness.get('fix_versions', ())) or 'no version yet'
            lines.append(f"{one['name']} {one['version']}: {weakness['id']}, fixed in {fixed}")
    well = not lines
    lines.append(f'{len(known)} packages have an answer, {len(unknown)} have none: '
                 f"{', '.join(sorted(unknown)) or '-'}")
    if missing := sorted(needed - known):
        lines.append(f"not audited: {', '.join(missing)}; the server must know what the package "
                     "needs. Another one: make audit ARGS='-s osv'")
    return lines, well and not missing


def main(arguments: list[str]) -> int:
    """Run pip-audit with further arguments."""
    done = subprocess.run(
        [sys.executable, '-m', 'pip_audit', '--skip-editable', '--progress-spinner', 'off',
         '--format', 'json', *arguments], capture_output=True, text=True)
    if not done.stdout.strip():
        print(done.stderr, file=sys.stderr)
        return done.returncode or 1
    lines, well = judge(json.loads(done.stdout), asked_for())
    print('\n'.join(lines))
    return 0 if well else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
