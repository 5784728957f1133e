# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The policy of SROS2 allows what the nodes use, and nothing else."""

from __future__ import annotations

import pytest

pytest.importorskip('rclpy')

from security_policy import ALSO, FILE, NODES, TOOLS, policy, rules, used_names

pytestmark = pytest.mark.ros


def test_the_policy_allows_what_the_nodes_use_and_nothing_else():
    allowed = rules(FILE.read_text(encoding='utf-8'))
    used = used_names(allowed)
    assert allowed.keys() == {*NODES, *TOOLS}
    assert rules(policy(used)) == allowed, 'run python test/security_policy.py'
    # Nobody but these two reaches the base, and nobody else is asked for anything.
    assert [node for node, uses in allowed.items() if 'cmd_vel' in uses['publish']] == [
        'command_watchdog']
    assert not any(uses['request'] for uses in allowed.values())
    for node, more in ALSO.items():      # they are names of topics that the documents have
        assert all(name in allowed[node][use] for use, names in more.items() for name in names)
