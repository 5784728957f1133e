# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Messages drawn from a seed, wrong in any field, neither end nor hang a node, nor move a base."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

pytest.importorskip('rclpy')

from geometry_msgs.msg import Twist
from guard_rig import CLEAR, RELIABLE, cloud
from lifecycle_msgs.srv import GetState
from node_fixtures import SMALL, raw, stamped
from ros_harness import Running, Session, ros_session
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import PointCloud2
from test_security import NODES

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]

PARAMETERS: dict[str, dict[str, Any]] = {
    'camera_source': {'loop': True},
    'vjepa_node': {**SMALL, 'cameras': ['camera', 'other'], 'other.transport': 'compressed'},
    'collision_guard': {'sources': ['camera', 'other'], 'ranges': ['sonar', 'laser'],
                        'laser.type': 'scan', 'other.direction': 'left'}}
REALS = (math.nan, math.inf, -math.inf, 0.0, -1.0, 1e308, -1e308, 5e-324, 1e30)
TEXTS = ('', 'optical', 'x' * 300_000, '../../etc', 'line\nbreak', '/', '%s{}', 'base_link')
COUNTS = (0, 1, 2, 3, 40, 1000)
# Of a message that is right.
RIGHT: dict[str, dict[str, Any]] = {
    'CameraInfo': {'width': 128, 'height': 96, 'k': [100.0, 0, 64, 0, 100, 48, 0, 0, 1]},
    'LaserScan': {'angle_min': -1.0, 'angle_max': 1.0, 'angle_increment': 0.1, 'range_min': 0.1,
                  'range_max': 10.0, 'ranges': [5.0] * 21},
    'Range': {'min_range': 0.1, 'max_range': 4.0, 'range': 3.0, 'field_of_view': 0.3}}
PICTURE = np.random.default_rng(0).integers(0, 255, (96, 128, 3), np.uint8)


def message_type(name: str) -> type:
    package, *_, kind = name.split('/')
    return getattr(import_module(f'{package}.msg'), kind)


def wild(rng: random.Random, kind: str) -> Any:
    """Any value of a type of a field."""
    if found := re.fullmatch(r'sequence<(.+?)(, \d+)?>|(.+)\[(\d+)\]', kind):
        inner, count = found[1] or found[3], int(found[4] or rng.choice(COUNTS))
        if '/' in inner:
            count = min(count, 3)
        return [wild(rng, inner) for _ in range(count)]
    if '/' in kind:
        return spoil(rng, message_type(kind)(), 99)
    if kind in ('float', 'double'):
        real = rng.choice(REALS)
        return real if kind == 'double' or not math.isfinite(real) else min(max(real, -3e38), 3e38)
    if kind.startswith(('string', 'wstring')):
        return rng.choice(TEXTS)
    if kind == 'boolean':
        return rng.random() < 0.5
    bits = int(re.sub(r'\D', '', kind) or 8)
    least, most = ((0, 2**bits - 1) if kind.startswith(('u', 'byte', 'octet', 'char')) else
                   (-2**(bits - 1), 2**(bits - 1) - 1))
    return rng.choice((least, most, 0, 1, 7))


def spoil(rng: random.Random, msg: Any, count: int) -> Any:
    """Make up to so many fields of a message wrong."""
    kinds = msg.get_fields_and_field_types()
    for name in rng.sample(list(kinds), min(count, len(kinds))):
        within = getattr(msg, name)
        if hasattr(within, 'get_fields_and_field_types'):
            spoil(rng, within, count)
        else:
            setattr(msg, name, wild(rng, kinds[name]))
    return msg


def right(topic: str, kind: type) -> Any:
    """A message that a node expects there."""
    if kind is PointCloud2 and topic.endswith('assessment'):
        return cloud(replace(CLEAR, stamp_ns=time.time_ns()))
    msg = raw(PICTURE) if kind.__name__ == 'Image' else kind(**RIGHT.get(kind.__name__, {}))
    return stamped(msg, time.time_ns()) if hasattr(msg, 'header') else msg


def drawn(rng: random.Random, topic: str, kind: type) -> Any:
    """A message: right, wrong in some fields, or in all."""
    how = rng.random()
    return (right(topic, kind) if how < 0.3 else spoil(rng, kind(), 99) if how > 0.9 else
            spoil(rng, right(topic, kind), rng.randint(1, 3)))


def topics_of(ros: Session) -> Iterator[tuple[str, type]]:
    """All that the nodes read, but parameters and what has no type here."""
    read = {topic: kinds[0] for name in NODES for topic, kinds in
            ros.node.get_subscriber_names_and_types_by_node(name, '/')}
    for topic, kind in sorted(read.items()):
        if topic not in ('/parameter_events', '/tf', '/tf_static', '/clock'):
            yield topic, message_type(kind)


def test_no_message_ends_or_hangs_a_node_or_fails_in_it():
    rng, out = random.Random(60), list[Twist]()
    with ros_session() as ros, ExitStack() as stack:
        nodes = dict[str, Running]()
        # One after the other: so many that start at once miss each other's announcements.
        for name, (module, given, ready) in NODES.items():
            nodes[name] = stack.enter_context(ros.spawn(
                f'vjepa_ros.ros.{module}', {**given, **PARAMETERS.get(name, {})}))
            nodes[name].wait_for_output(ready)
        ros.node.create_subscription(Twist, 'cmd_vel_out', out.append, 100)

        def unseen() -> set[str]:
            return NODES.keys() - set(ros.node.get_node_names())

        assert ros.spin_until(lambda: not unseen()), unseen()
        ros.spin_for(1.0)
        ros.spin_until(lambda: len(list(topics_of(ros))) > 15)
        senders = [(partial(drawn, rng, topic, kind), ros.node.create_publisher(
            kind, topic, RELIABLE)) for topic, kind in topics_of(ros)]
        assert len(senders) > 15
        for _ in range(60):
            for draw, sender in senders:
                sender.publish(draw())
            ros.spin_for(0.02)
        for name, node in nodes.items():
            if NODES[name][2] == ': active':
                assert ros.call(GetState, f'/{name}/get_state').current_state.label == 'active'
            assert node.alive() and 'Traceback' not in node.output, node.output
        assert out and all(map(math.isfinite, [value for twist in out for part in (
            twist.linear, twist.angular) for value in (part.x, part.y, part.z)]))


def test_a_time_that_cannot_be_is_named_and_ends_nothing():
    with ros_session() as ros, ros.compose('vjepa_ros.ros.command_watchdog', {
            'use_sim_time': True}) as node:
        clock = ros.node.create_publisher(Clock, '/clock', 1)
        before = Clock()
        before.clock.sec = -5
        assert ros.spin_until(clock.get_subscription_count)
        assert ros.spin_until(lambda: clock.publish(before) or '/clock has a time' in node.output)
        assert node.alive()
