# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write security/vjepa_ros.policy.xml: what each node may publish, subscribe and serve.

`python test/security_policy.py` starts each node with everything on and asks the ROS graph. The
format is that of sros2 (https://github.com/ros2/sros2, policies of version 0.2.0).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any
from unittest.mock import patch
from xml.etree import ElementTree as Xml

from node_fixtures import SMALL
from ros_harness import Session, ros_session

from vjepa_ros.ros.listener import Listener

FILE = Path(__file__).resolve().parents[1] / 'security' / 'vjepa_ros.policy.xml'
WAIT_S = 30.0     # for names that a policy allows, if they do not come
# Each node with the parameters that make it use all of its topics.
NODES: dict[str, tuple[str, dict[str, Any]]] = {
    'vjepa_node': ('vjepa_ros.ros.perception_node', {
        **SMALL, 'autostart': True, 'camera.transport': 'raw', 'obstacles.odometry': 'odom',
        'camera.mount.height': 0.3, 'obstacles.base_frame': 'base_link', 'obstacles.scan': True}),
    'collision_guard': ('vjepa_ros.ros.collision_guard', {
        'autostart': True, 'odometry': True, 'heartbeat': 0.4, 'watchdog': True,
        'ranges': ['sonar']}),
    'local_planner': ('vjepa_ros.ros.local_planner', {'autostart': True}),
    'command_watchdog': ('vjepa_ros.ros.command_watchdog', {}),
    'camera_source': ('vjepa_ros.ros.sim.camera_source', {
        'source': 'synthetic', 'transport': 'both', 'truth': True}),
}
# What a node logs once it uses all of them, where that is not that it is active.
READY = {'command_watchdog': 'watches', 'camera_source': 'playing'}
# Commands that show people what nodes publish, and the pictures that these read.
TOOLS = ('vjepa_ros_echo', 'vjepa_ros_top', 'vjepa_ros_view')
PICTURES = ('camera/image_raw', 'camera/image_raw/compressed')
# What the graph does not show here: one of two ways, or what needs packages, tf or a simulation.
_TIME_AND_TF = ['clock', 'tf', 'tf_static']
ALSO: dict[str, dict[str, list[str]]] = {
    'vjepa_node': {
        'publish': [f'~/camera/{name}' for name in ('detections', 'obstacle_points', 'scan')],
        'subscribe': ['camera/image_raw/compressed', 'camera/image_raw/ffmpeg',
                      *_TIME_AND_TF]},
    'collision_guard': {'subscribe': _TIME_AND_TF},
    'local_planner': {'subscribe': ['clock', 'odom']},
    'command_watchdog': {'subscribe': ['clock']},
    'camera_source': {'subscribe': ['clock']}}
ASKED: tuple[tuple[str, str, str, Callable], ...] = (
    ('topics', 'publish', 'topic', lambda node: node.get_publisher_names_and_types_by_node),
    ('topics', 'subscribe', 'topic', lambda node: node.get_subscriber_names_and_types_by_node),
    ('services', 'reply', 'service', lambda node: node.get_service_names_and_types_by_node),
    ('services', 'request', 'service', lambda node: node.get_client_names_and_types_by_node))


def used_names(allowed: Mapping[str, Mapping[str, Sequence[str]]] | None = None
               ) -> dict[str, dict[str, list[str]]]:
    """What each node uses by kind of use, private names with a tilde.

    What is `allowed` is waited for: on busy cores the graph hears of it one by one.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for name, (module, parameters) in NODES.items():
        with ros_session() as ros, ros.compose(module, parameters) as process:
            process.wait_for_output(READY.get(name, ': active'))
            uses = found[name] = {}
            assert ros.spin_until(lambda name=name: name in ros.node.get_node_names())
            for _, use, _, ask in ASKED:
                more = set(ALSO.get(name, {}).get(use, ()))
                wanted = set((allowed or {}).get(name, {}).get(use, ())) - more
                uses[use] = sorted({short(full, name)
                                    for full in _settled(ros, ask, name, wanted)} | more)
    shown = {topic.replace('~', node) for node, uses in found.items()
             for topic in uses['publish']} | {*PICTURES}
    for name in TOOLS:
        with ros_session() as ros, patch.dict(os.environ, ROS_DOMAIN_ID=str(ros.domain_id)), \
                Listener(name):
            assert ros.spin_until(lambda name=name: name in ros.node.get_node_names())
            # What people are shown is not all subscribed to here.
            wanted = {use: set() if use == 'subscribe' else set((allowed or {}).get(name, {}).get(
                use, ())) for _, use, _, _ in ASKED}
            found[name] = {use: sorted(short(full, name)
                                       for full in _settled(ros, ask, name, wanted[use]))
                           for _, use, _, ask in ASKED}
            found[name]['subscribe'] = sorted(shown.union(found[name]['subscribe']))
    return found


def _settled(ros: Session, ask: Callable, name: str, wanted: Set[str] = frozenset()
             ) -> set[str]:
    """Names that the graph has of a node, once no more come, and those that are wanted have."""
    seen: set[str] = set()
    end = time.monotonic() + WAIT_S

    def settled() -> bool:
        before = len(seen)
        seen.update(full for full, _ in ask(ros.node)(name, '/'))
        ros.spin_for(0.5)
        seen.update(full for full, _ in ask(ros.node)(name, '/'))
        return before == len(seen) and (time.monotonic() > end or wanted <= {
            short(full, name) for full in seen})

    assert ros.spin_until(settled), name
    return seen


def short(full: str, node: str) -> str:
    """A name as policies have it: relative to the namespace, or to the node."""
    own = f'/{node}/'
    return f'~/{full.removeprefix(own)}' if full.startswith(own) else full.removeprefix('/')


def policy(found: dict[str, dict[str, list[str]]]) -> str:
    """The text of the policy."""
    root = Xml.Element('policy', version='0.2.0')
    enclaves = Xml.SubElement(root, 'enclaves')
    for node, uses in found.items():
        enclave = Xml.SubElement(enclaves, 'enclave', path=f'/{node}')
        profile = Xml.SubElement(Xml.SubElement(enclave, 'profiles'), 'profile', ns='/', node=node)
        for kind, use, item, _ in ASKED:
            if uses[use]:
                rules = Xml.SubElement(profile, kind, {use: 'ALLOW'})
                for one in uses[use]:
                    Xml.SubElement(rules, item).text = one
    Xml.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{Xml.tostring(root, encoding="unicode")}\n'


def rules(text: str) -> dict[str, dict[str, list[str]]]:
    """What a policy allows, as `used_names` gives it."""
    allowed: dict[str, dict[str, list[str]]] = {}
    for profile in Xml.fromstring(text).iter('profile'):
        allowed[profile.get('node', '')] = {
            use: [one.text or '' for one in profile.findall(f'{kind}[@{use}="ALLOW"]/{item}')]
            for kind, use, item, _ in ASKED}
    return allowed


if __name__ == '__main__':
    FILE.write_text(policy(used_names()), encoding='utf-8')
    sys.stdout.write(f'wrote {FILE}\n')
