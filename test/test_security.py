# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The policy of SROS2 allows what the nodes use, and nothing else.

`python test/test_security.py` starts each node with everything on, asks the ROS graph and writes
security/vjepa_ros.policy.xml. The format is that of sros2 (https://github.com/ros2/sros2, policies
of version 0.2.0).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch
from xml.etree import ElementTree as Xml

import pytest

pytest.importorskip('rclpy')

from node_fixtures import SMALL
from ros_harness import Session, ros_session

from vjepa_ros.ros.listener import Listener

pytestmark = pytest.mark.ros

FILE = Path(__file__).resolve().parents[1] / 'security' / 'vjepa_ros.policy.xml'
Uses = dict[str, set[str]]       # names by kind of use, private ones with a tilde
# Each node with the parameters that make it use all of its topics, and what it then logs.
NODES: dict[str, tuple[str, dict[str, Any], str]] = {
    'vjepa_node': ('perception_node', {
        **SMALL, 'autostart': True, 'camera.transport': 'raw', 'obstacles.odometry': 'odom',
        'camera.mount.height': 0.3, 'obstacles.base_frame': 'base_link', 'obstacles.scan': True},
        ': active'),
    'collision_guard': ('collision_guard', {
        'autostart': True, 'odometry': True, 'heartbeat': 0.4, 'watchdog': True,
        'ranges': ['sonar']}, ': active'),
    'local_planner': ('local_planner', {'autostart': True}, ': active'),
    'command_watchdog': ('command_watchdog', {}, 'watches'),
    'camera_source': ('sim.camera_source', {
        'source': 'synthetic', 'transport': 'both', 'truth': True}, 'playing'),
}
# Commands that show people what nodes publish, and the pictures that these read.
TOOLS = ('vjepa_ros_echo', 'vjepa_ros_top', 'vjepa_ros_view')
PICTURES = ('camera/image_raw', 'camera/image_raw/compressed')
# What the graph does not show here: one of two ways, or what needs packages, tf or a simulation.
_TIME_AND_TF = {'clock', 'tf', 'tf_static'}
ALSO: dict[str, Uses] = {
    'vjepa_node': {
        'publish': {f'~/camera/{name}' for name in ('detections', 'obstacle_points', 'scan')},
        'subscribe': {'camera/image_raw/compressed', 'camera/image_raw/ffmpeg', *_TIME_AND_TF}},
    'collision_guard': {'subscribe': _TIME_AND_TF},
    'local_planner': {'subscribe': {'clock', 'odom'}},
    'command_watchdog': {'subscribe': {'clock'}},
    'camera_source': {'subscribe': {'clock'}}}
ASKED: tuple[tuple[str, str, str, Callable], ...] = (
    ('topics', 'publish', 'topic', lambda node: node.get_publisher_names_and_types_by_node),
    ('topics', 'subscribe', 'topic', lambda node: node.get_subscriber_names_and_types_by_node),
    ('services', 'reply', 'service', lambda node: node.get_service_names_and_types_by_node),
    ('services', 'request', 'service', lambda node: node.get_client_names_and_types_by_node))


def used_names(allowed: dict[str, Uses]) -> dict[str, Uses]:
    """What each node and tool uses."""
    found: dict[str, Uses] = {}
    for name, (module, parameters, ready) in NODES.items():
        with ros_session() as ros, ros.compose(f'vjepa_ros.ros.{module}', parameters) as process:
            process.wait_for_output(ready)
            more = ALSO[name]
            found[name] = {use: names | more.get(use, set()) for use, names in _uses(
                ros, name, {use: names - more.get(use, set())
                            for use, names in allowed.get(name, {}).items()}).items()}
    shown = {topic.replace('~', node) for node, uses in found.items()
             for topic in uses['publish']} | {*PICTURES}
    for name in TOOLS:
        with ros_session() as ros, patch.dict(os.environ, ROS_DOMAIN_ID=str(ros.domain_id)), \
                Listener(name):
            found[name] = _uses(ros, name, {**allowed.get(name, {}), 'subscribe': set()})
            found[name]['subscribe'] |= shown        # of which not all is subscribed to here
    return found


def _uses(ros: Session, name: str, wanted: Uses) -> Uses:
    """What the graph has of a node, once no more comes and what is wanted is there."""
    uses: Uses = {}

    def settled() -> bool:
        if name not in ros.node.get_node_names():
            return False
        before = dict(uses)
        for _, use, _, ask in ASKED:
            # Relative to the namespace, or to the node.
            uses[use] = {full.replace(f'/{name}/', '~/', 1).removeprefix('/')
                         for full, _ in ask(ros.node)(name, '/')}
        ros.spin_for(0.5)
        return uses == before and all(wanted[use] <= uses[use] for use in wanted)

    # On busy cores the graph hears of names one by one; what never comes the comparison tells.
    ros.spin_until(settled, 30.0)
    return uses


def policy(found: dict[str, Uses]) -> str:
    """The text of the policy."""
    root = Xml.Element('policy', version='0.2.0')
    enclaves = Xml.SubElement(root, 'enclaves')
    for node, uses in found.items():
        enclave = Xml.SubElement(enclaves, 'enclave', path=f'/{node}')
        profile = Xml.SubElement(Xml.SubElement(enclave, 'profiles'), 'profile', ns='/', node=node)
        for kind, use, item, _ in ASKED:
            if uses[use]:
                rules = Xml.SubElement(profile, kind, {use: 'ALLOW'})
                for one in sorted(uses[use]):
                    Xml.SubElement(rules, item).text = one
    Xml.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{Xml.tostring(root, encoding="unicode")}\n'


def rules(text: str) -> dict[str, Uses]:
    """What a policy allows, as `used_names` gives it."""
    return {profile.get('node', ''): {
        use: {one.text or '' for one in profile.findall(f'{kind}[@{use}="ALLOW"]/{item}')}
        for kind, use, item, _ in ASKED} for profile in Xml.fromstring(text).iter('profile')}


def test_the_policy_allows_what_the_nodes_use_and_nothing_else():
    text = FILE.read_text(encoding='utf-8')
    allowed = rules(text)
    assert policy(used_names(allowed)) == text, 'run python test/test_security.py'
    # Nobody but these two reaches the base, and nobody else is asked for anything.
    assert [node for node, uses in allowed.items() if 'cmd_vel' in uses['publish']] == [
        'command_watchdog']
    assert not any(uses['request'] for uses in allowed.values())


if __name__ == '__main__':
    FILE.write_text(policy(used_names({})), encoding='utf-8')
    sys.stdout.write(f'wrote {FILE}\n')
